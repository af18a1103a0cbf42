//! Questions for the attributes of a file, and changes of them.

use crate::kernel::size::Answer;
use crate::operations::callers::{WRITE, groups_may_matter};
use crate::operations::gone::Found;
use crate::translate::{context, data_context, groupless, set_time};
use crate::weirfs::WeirFs;
use std::time::Duration;
use weir_client::{Context, set_nothing};
use weir_fuse::{Attributes, Errno, NodeId, Reply, RequestContext, SetAttr};
use weir_types::FileKind;
use weir_wire::meta;

impl WeirFs {
    /// The attributes of a file, and what it takes on disk.
    pub(crate) fn attributes(
        &self,
        ctx: &RequestContext<'_>,
        node: NodeId,
        fh: Option<u64>,
    ) -> Reply<Attributes> {
        let file = self.file(node)?;
        self.heard(ctx);
        self.cache.waits_until_open(file);
        let question = self.cache.asks(ctx.pid, Some(file), Answer::Attributes);
        let by = groupless(ctx);
        let attr = match self.found(ctx, self.attr_or_last(&by, file))? {
            Found::Now(attr) => attr,
            Found::Last(attr) => return Ok(Attributes { attr, allocated: None, ttl: self.ttl() }),
        };
        let attr = self.tell(ctx, question, attr)?;
        if fh.is_some() && attr.sparse {
            // The kernel wants the size alone, for a read or a seek: stat and fstat name no
            // handle, and ask.
            return Ok(Attributes { attr, allocated: None, ttl: Duration::ZERO });
        }
        let (attr, allocated) = self.with_room(ctx, attr)?;
        let ttl = self.lifetime(ctx, &attr, node);
        Ok(Attributes { attr, allocated, ttl })
    }

    /// Changes attributes of a file.
    pub(crate) fn set_attributes(
        &self,
        ctx: &RequestContext<'_>,
        node: NodeId,
        set: &SetAttr,
    ) -> Reply<Attributes> {
        let context = context(ctx);
        let request = meta::SetAttrRequest {
            file: self.file(node)?,
            mode: set.mode.map(|mode| (mode & 0o7777) as u16),
            uid: set.uid,
            gid: set.gid,
            size: set.size,
            atime: set.atime.map(set_time),
            mtime: set.mtime.map(set_time),
        };
        // ftruncate works on what was opened, whatever the mode says now.
        let by_handle = set.fh.is_some() && set.size.is_some();
        let by = if by_handle { &data_context(ctx) } else { &context };
        let question = self.cache.asks(ctx.pid, Some(request.file), Answer::Change);
        if self.may_take_back(ctx, set)? {
            let attr = self.client.getattr(by, request.file)?;
            if set.size != Some(attr.size) {
                // Of the kernel nobody hears this. A program does, and what it asks for again
                // is done.
                return Err(Errno::EINTR);
            }
            let attr = self.tell(ctx, question, attr)?;
            return Ok(Attributes { attr, allocated: None, ttl: Duration::ZERO });
        }
        if set.atime.is_some() {
            self.access_is_set(request.file);
        }
        let change = |by: &Context| self.set_attr_or_last(by, &request);
        let known = self.client.known_attr(request.file);
        let done = match by_handle || groups_may_matter(&request, known.as_ref()) {
            true => change(by),
            false => self.judged(ctx, request.file, WRITE, change),
        };
        let mut attr = match self.found(ctx, done)? {
            Found::Now(attr) => attr,
            Found::Last(attr) => return Ok(Attributes { attr, allocated: None, ttl: self.ttl() }),
        };
        // Nothing to set is `chown` to nobody else, or a write that takes these away.
        // (The kernel asks nobody for such a change, and so it is for us to see who may.)
        let nothing = request == set_nothing(request.file);
        let may = ctx.uid == 0 || ctx.uid == attr.uid;
        if set.kill_suidgid || (nothing && may && attr.kind == FileKind::File) {
            self.clear_suid(&context, self.file(node)?)?;
            attr = self.client.getattr(&context, self.file(node)?)?;
        }
        let attr = self.tell(ctx, question, attr)?;
        // Whoever wants to know what it takes asks.
        let ttl = if attr.sparse { Duration::ZERO } else { self.ttl() };
        Ok(Attributes { attr, allocated: None, ttl })
    }
}
