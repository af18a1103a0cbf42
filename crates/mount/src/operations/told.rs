//! What the kernel is told of files, and for how long it may use it.

use crate::kernel::answers::Question;
use crate::kernel::names::{self, Asker};
use crate::kernel::size::Answer;
use crate::translate::groupless;
use crate::weirfs::WeirFs;
use std::time::{Duration, Instant};
use weir_client::{Consistency, File};
use weir_fuse::{Entry, NodeId, OpenArgs, Opened, Reply, RequestContext};
use weir_types::{Attr, FileId, FileKind};

/// The longest lifetime of the root's attributes. By those one sees whether the mount is dead: of
/// everything else the kernel asks for the name.
const MAX_ROOT_LIFETIME: Duration = Duration::from_secs(1);

impl WeirFs {
    /// How long the kernel may use these attributes under this number without asking: as long as
    /// the client may, if it caches the very same. When that ends, the kernel is told.
    pub(crate) fn lifetime(&self, ctx: &RequestContext<'_>, attr: &Attr, node: NodeId) -> Duration {
        if self.options.consistency != Consistency::Strict {
            return self.ttl();
        }
        let lifetime = match attr.file {
            FileId::ROOT => self.client.keeps_for().min(MAX_ROOT_LIFETIME),
            _ => self.client.keeps_for(),
        };
        if self.cache.names.is_closed(attr.file) {
            return Duration::ZERO;
        }
        let begins = || self.cache.begins_to_use((attr, node), ctx.pid, lifetime);
        // What a file takes that may have holes, changes unnoticed.
        if attr.sparse || lifetime.is_zero() || !begins() {
            return Duration::ZERO;
        }
        // Asked after that: what ends it now is passed on.
        if self.client.settled_attr(attr.file).is_some_and(|known| known == *attr) {
            return lifetime;
        }
        self.cache.was_told(attr.file);
        Duration::ZERO
    }

    /// Records a request of a thread: it has handled the reply to the one before.
    pub(crate) fn heard(&self, ctx: &RequestContext<'_>) {
        self.cache.names.asks(asker(ctx), Instant::now());
    }

    /// How long the kernel may use the name of a file in a directory without asking: for a moment, if
    /// the client caches the very same. If the kernel is told of none, [`names::Names::tells_none`]
    /// has to follow.
    pub(crate) fn name_lifetime(
        &self,
        ctx: &RequestContext<'_>,
        (dir, name): (FileId, &[u8]),
        file: FileId,
        listing: bool,
    ) -> Duration {
        if self.options.consistency != Consistency::Strict {
            return self.ttl();
        }
        let lifetime = self.client.keeps_for().min(names::LIFETIME);
        if lifetime.is_zero() || !self.cache.begins_to_name(asker(ctx), (dir, file), listing) {
            return Duration::ZERO;
        }
        // Asked after that: what changes it now closes the directory first.
        match self.client.known_name(dir, name) == Some(file) {
            true => lifetime,
            false => Duration::ZERO,
        }
    }

    /// An entry that was found by its name.
    pub(crate) fn lasting_name(
        &self,
        ctx: &RequestContext<'_>,
        at: (FileId, &[u8]),
        entry: Entry,
    ) -> Entry {
        let entry_ttl = self.name_lifetime(ctx, at, entry.attr.file, false);
        if entry_ttl.is_zero() {
            self.cache.names.tells_none(asker(ctx));
        }
        Entry { entry_ttl, ..entry }
    }

    /// Attributes for the kernel.
    pub(crate) fn tell(
        &self,
        ctx: &RequestContext<'_>,
        question: Question,
        attr: Attr,
    ) -> Reply<Attr> {
        let again = |file| self.client.getattr(&groupless(ctx), file);
        self.found(ctx, self.cache.tell(question, attr, again))
    }

    pub(crate) fn entry(&self, ctx: &RequestContext<'_>, attr: Attr) -> Reply<Entry> {
        let question = self.cache.asks(ctx.pid, None, Answer::Attributes);
        Ok(Entry::new(self.tell(ctx, question, attr)?, self.ttl()))
    }

    /// The entry of a new, open file.
    pub(crate) fn created(
        &self,
        ctx: &RequestContext<'_>,
        parent: NodeId,
        (file, attr): (File, Attr),
        args: OpenArgs,
    ) -> Reply<(Entry, Opened)> {
        let entry = self.made(ctx, parent, attr)?;
        let opened = self.opened(ctx, file, &entry.attr, args.flags);
        Ok((entry, opened))
    }

    /// An entry for a found or new name.
    pub(crate) fn named(
        &self,
        ctx: &RequestContext<'_>,
        (parent, name): (NodeId, &[u8]),
        attr: Attr,
    ) -> Reply<Entry> {
        let mut entry = self.entry(ctx, attr)?;
        self.number(&mut entry, parent, name);
        Ok(entry)
    }

    /// The entry of a file that was asked for by name or number. (The kernel believes the attributes
    /// in a reply to a change, whatever ended them meanwhile: those have no lifetime.)
    pub(crate) fn lasting(&self, ctx: &RequestContext<'_>, entry: Entry) -> Entry {
        if entry.attr.sparse {
            return entry;
        }
        Entry { attr_ttl: self.lifetime(ctx, &entry.attr, entry.node), ..entry }
    }

    /// Gives a directory the kernel's node id for this place.
    pub(crate) fn number(&self, entry: &mut Entry, parent: NodeId, name: &[u8]) {
        match entry.attr.kind {
            FileKind::Directory => entry.node = self.nodes.found(&entry.attr, parent, name),
            _ => self.cache.files.told_in(entry.attr.file, parent),
        }
    }

    /// An entry for a file that is no directory, of which the kernel is told.
    pub(crate) fn made(
        &self,
        ctx: &RequestContext<'_>,
        parent: NodeId,
        attr: Attr,
    ) -> Reply<Entry> {
        let entry = self.entry(ctx, attr)?;
        self.cache.files.told_in(entry.attr.file, parent);
        Ok(entry)
    }

    /// Handles the kernel's removal of a name of a file. The file stays if it is in use.
    pub(crate) fn lost_a_name(&self, left: Attr) {
        if left.nlink == 0
            && left.kind == FileKind::File
            && let Some(needless) = self.cache.files.holds_own(left.file)
        {
            self.client.let_go(needless);
        }
        if left.nlink == 0 && left.kind == FileKind::Directory {
            // By a rename over it.
            self.below.forget(left.file);
        }
        self.nodes.has_lost_a_name(left);
    }

    /// Records that the kernel has dropped so many of the lookups that it was told of.
    pub(crate) fn forgotten(&self, node: NodeId, lookups: u64) {
        let file = self.nodes.file(node);
        self.nodes.forget(node, lookups);
        if self.cache.files.forget(FileId(node), lookups) {
            self.client.let_go(FileId(node));
        }
        let Some(file) = file else { return };
        // Before it is looked whether the kernel has the file: another thread may be telling it.
        let number = self.cache.last_told(file);
        if !self.nodes.is_known(node) && !self.cache.files.is_known(file) {
            self.cache.was_dropped(file, node, number);
        }
    }
}

/// The request, for what the kernel is told of names.
pub(crate) fn asker(ctx: &RequestContext<'_>) -> Asker {
    Asker { thread: ctx.pid, unique: ctx.unique }
}
