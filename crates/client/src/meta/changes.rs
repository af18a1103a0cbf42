//! Changes at the metadata server, and what of their replies is cached.

use crate::config::Consistency;
use crate::context::Context;
use crate::core::kept::Kept;
use crate::core::news::{Asked, Found};
use crate::counters::add;
use crate::state::{Call, Inner};
use std::time::Duration;
use weir_host::clock;
use weir_host::plant::{Bug, planted};
use weir_types::{Attr, Error, ErrorKind, FileId, Result};
use weir_wire::Request;
use weir_wire::meta::CommitSizeRequest;

/// When a reply was requested and when it was made.
type News = (Asked, Found);

/// What may be cached of the reply to a change.
#[derive(Debug)]
pub(crate) struct Changed {
    pub(crate) found: Found,
    /// Other files and directories of which the attributes came with it.
    pub(crate) also: Vec<FileId>,
    asked: Option<Asked>,
}

impl Inner {
    /// Whether names and attributes are cached.
    pub(crate) fn keeps(&self) -> bool {
        self.config.keep_metadata && self.config.consistency != Consistency::None
    }

    /// Whether the cache may be used at this moment.
    pub(crate) fn may_use_kept(&self) -> bool {
        self.keeps()
            && (self.config.consistency == Consistency::Relaxed || self.holdings.clock.is_good())
    }

    /// Time until which a reply may be cached.
    pub(crate) fn end(&self) -> Option<Duration> {
        let ttl = Duration::from_millis(self.config.metadata_ttl_ms);
        (self.config.consistency == Consistency::Relaxed).then(|| clock::uptime() + ttl)
    }

    /// To be noted before a request whose reply may be cached.
    pub(crate) fn asking(&self) -> Asked {
        self.holdings.kept.lock().news.asking()
    }

    /// Caches a reply.
    pub(crate) fn keep(&self, keep: impl FnOnce(&mut Kept, Option<Duration>)) {
        if self.keeps() {
            add(&self.counters.kept_misses, 1);
            keep(&mut self.holdings.kept.lock(), self.end());
        }
    }

    /// Changes these files and directories. Meanwhile nothing of them is cached. If a quota is used
    /// up, the change is tried again after the server was told of closed files, because removed
    /// files count until then.
    pub(crate) fn alter<R: Request>(
        &self,
        ctx: &Context,
        request: &R,
        files: &[FileId],
        names: &[(FileId, &[u8])],
    ) -> (Result<R::Reply>, Changed) {
        let (result, changed) = self.alter_once(ctx, request, files, names);
        let is_used_up = |error: &Error| error.kind == ErrorKind::QuotaExceeded;
        match result.as_ref().is_err_and(is_used_up) && self.send_closes() {
            true => self.alter_once(ctx, request, files, names),
            false => (result, changed),
        }
    }

    fn alter_once<R: Request>(
        &self,
        ctx: &Context,
        request: &R,
        files: &[FileId],
        names: &[(FileId, &[u8])],
    ) -> (Result<R::Reply>, Changed) {
        if !self.keeps() || planted(Bug::ForgetOwnChange) {
            let (result, found) = self.session.alter(ctx, request);
            let result = result.map(|(reply, _)| reply);
            return (result, Changed { found, asked: None, also: Vec::new() });
        }
        let mut files = files.to_vec();
        let begun = {
            let mut kept = self.holdings.kept.lock();
            for (dir, name) in names {
                files.push(*dir);
                // What the name stands for changes too: its links, at least.
                files.extend(kept.name(*dir, name, clock::uptime()).flatten());
            }
            let begun = kept.news.begin_change(&files);
            files.iter().for_each(|file| kept.forget(*file));
            begun
        };
        // Others may see the change before the reply is here.
        if let Some(upper) = &self.upper {
            files.iter().for_each(|file| upper.attributes_change(*file));
        }
        let (result, found) = self.session.alter(ctx, request);
        let (result, also) = match result {
            Ok((reply, also)) => (Ok(reply), also),
            Err(error) => (Err(error), Vec::new()),
        };
        let mut kept = self.holdings.kept.lock();
        let asked = kept.news.end_change(begun, &files);
        files.iter().for_each(|file| kept.forget(*file));
        names.iter().for_each(|(dir, name)| kept.forget_name(*dir, name));
        for attr in &also {
            kept.keep_also((begun, asked), found, &files, attr, self.end());
        }
        drop(kept);
        if let Some(upper) = &self.upper {
            let others = also.iter().map(|attr| attr.file).filter(|file| !files.contains(file));
            others.for_each(|file| upper.attributes_change(file));
        }
        let also = also.into_iter().map(|attr| attr.file).collect();
        (result, Changed { found, asked: Some(asked), also })
    }

    /// Caches the file of a name after a change, or that there is none, if the directory's
    /// attributes came with the reply.
    pub(crate) fn keep_changed_name(
        &self,
        changed: &Changed,
        name: (FileId, &[u8]),
        value: Option<FileId>,
    ) {
        if let Some(asked) = changed.asked.filter(|_| changed.also.contains(&name.0)) {
            let (mut kept, end) = (self.holdings.kept.lock(), self.end());
            kept.keep_changed_name((asked, changed.found), name, value, end);
        }
    }

    /// Whether exactly these attributes are cached.
    pub(crate) fn has_learned(&self, attr: &Attr) -> bool {
        self.may_use_kept()
            && self.holdings.kept.lock().attr(attr.file, clock::uptime()).as_ref() == Some(attr)
    }

    /// Caches attributes from the reply to a change, possibly under a name.
    pub(crate) fn keep_changed(
        &self,
        changed: &Changed,
        attr: &Attr,
        name: Option<(FileId, &[u8])>,
    ) {
        let Some(asked) = changed.asked else { return };
        let news: News = (asked, changed.found);
        let (mut kept, end) = (self.holdings.kept.lock(), self.end());
        kept.forget(attr.file);
        kept.keep_attr(news, attr, end);
        if let Some(name) = name {
            kept.keep_name(news, name, Some(attr.file), end);
        }
    }

    /// Caches that a directory which this client has made is empty.
    pub(crate) fn keep_empty(&self, changed: &Changed, dir: FileId) {
        if let Some(asked) = changed.asked
            && self.config.consistency == Consistency::Strict
        {
            self.holdings.kept.lock().keep_empty((asked, changed.found), dir);
        }
    }

    /// Drops what is cached of a file that a change has concerned without naming it.
    pub(crate) fn forget(&self, file: FileId) {
        self.holdings.kept.lock().changed(file);
        if let Some(upper) = &self.upper {
            upper.attributes_change(file);
        }
    }

    /// Reports size and time of writes. Returns the epoch of the session in which that was answered.
    pub(crate) fn commit_size(&self, call: Call<'_>, request: &CommitSizeRequest) -> Result<u64> {
        let (result, changed) = self.alter(call.ctx, request, &[request.file], &[]);
        let attr = result?;
        call.file.saw_limits(changed.found.keep, attr.size);
        self.keep_changed(&changed, &attr, None);
        call.file.saw_attr(&attr);
        Ok(changed.found.epoch)
    }
}
