//! Names and attributes, requested or cached.

use crate::config::Consistency;
use crate::context::Context;
use crate::core::kept::Kept;
use crate::counters::add;
use crate::state::Inner;
use weir_host::clock;
use weir_types::codec::Bytes;
use weir_types::{ACL_ACCESS, ACL_DEFAULT, Attr, ErrorKind, FileId, FileKind, Result};
use weir_wire::lease::SIZE_UNKNOWN;
use weir_wire::meta::{
    CAPABILITY, DirPage, GetAttrRequest, GetXattrRequest, ListXattrRequest, LookupRequest,
    ReaddirRequest,
};

/// Prefixes of extended attributes of which a file may have any.
const KINDS: [&[u8]; 3] = [b"security.", b"trusted.", b"user."];

impl Inner {
    /// Looks up a name in a directory.
    pub(crate) fn lookup(&self, ctx: &Context, dir: FileId, name: &[u8]) -> Result<Attr> {
        if self.may_use_kept() {
            let now = clock::uptime();
            let mut kept = self.holdings.kept.lock();
            let found = kept.name(dir, name, now);
            let attr = found.flatten().and_then(|file| kept.attr(file, now));
            drop(kept);
            if found == Some(None) || attr.is_some() {
                add(&self.counters.kept_hits, 1);
                return attr.map(|attr| self.seen(attr)).ok_or_else(|| ErrorKind::NotFound.into());
            }
        }
        let asked = self.asking();
        let request = LookupRequest { parent: dir, name: name.into() };
        let (result, found) = self.session.ask(ctx, &request);
        let known = found.keep & SIZE_UNKNOWN == 0;
        self.keep(|kept, end| match &result {
            Ok(attr) => {
                kept.keep_name((asked, found), (dir, name), Some(attr.file), end);
                if known {
                    kept.keep_attr((asked, found), attr, end);
                }
            }
            Err(error) if error.kind == ErrorKind::NotFound => {
                kept.keep_name((asked, found), (dir, name), None, end);
            }
            Err(_) => {}
        });
        if let Ok(attr) = &result
            && !known
            && self.upper.is_none()
        {
            // (The kernel asks for attributes after the name.)
            return Ok(self.seen(self.find_size(ctx, attr.clone())));
        }
        result.map(|attr| self.seen(attr))
    }

    /// The file of a cached name.
    pub(crate) fn known_name(&self, dir: FileId, name: &[u8]) -> Option<FileId> {
        let known = || self.holdings.kept.lock().name(dir, name, clock::uptime());
        self.may_use_kept().then(known).flatten().flatten()
    }

    /// Cached attributes.
    pub(crate) fn known_attr(&self, file: FileId) -> Option<Attr> {
        let may = self.may_use_kept();
        let attr = may.then(|| self.holdings.kept.lock().attr(file, clock::uptime())).flatten()?;
        Some(self.seen(attr))
    }

    /// Attributes of a file, with this client's own writes.
    pub(crate) fn getattr(&self, ctx: &Context, file: FileId) -> Result<Attr> {
        self.getattr_within(ctx, file, self.config.request_timeout_ms)
    }

    /// As [`Inner::getattr`], within `time_ms`.
    pub(crate) fn getattr_within(&self, ctx: &Context, file: FileId, time_ms: u64) -> Result<Attr> {
        if self.may_use_kept()
            && let Some(attr) = self.holdings.kept.lock().attr(file, clock::uptime())
        {
            add(&self.counters.kept_hits, 1);
            return Ok(self.seen(attr));
        }
        let asked = self.asking();
        let (result, found) = self.session.ask_within(ctx, &GetAttrRequest { file }, time_ms);
        let attr = result?;
        if found.keep & SIZE_UNKNOWN != 0 {
            return Ok(self.seen(self.find_size(ctx, attr)));
        }
        self.keep(|kept, end| kept.keep_attr((asked, found), &attr, end));
        Ok(self.seen(attr))
    }

    /// Finds the size of a file whose writer has died, as an open would. If that fails now, the
    /// attributes are returned all the same.
    fn find_size(&self, ctx: &Context, before: Attr) -> Attr {
        let file = before.file;
        if !self.holdings.unknown_sizes.lock().try_now(file, clock::uptime()) {
            return before;
        }
        let found = self
            .settle_in_own_name(ctx, file)
            .and_then(|()| self.session.call(ctx, &GetAttrRequest { file }));
        found.unwrap_or_else(|error| {
            tracing::warn!(
                "file {file}: its writer died, and the size that is shown is the one from before: \
                 {error}"
            );
            self.holdings.unknown_sizes.lock().failed(file, clock::uptime());
            before
        })
    }

    /// A page of a directory.
    pub(crate) fn readdir(&self, ctx: &Context, request: &ReaddirRequest) -> Result<DirPage> {
        if self.may_use_kept()
            && let Some(mut page) = self.holdings.kept.lock().page(request, clock::uptime())
        {
            add(&self.counters.kept_hits, 1);
            self.show(&mut page);
            return Ok(page);
        }
        let asked = self.asking();
        let (result, found) = self.session.ask(ctx, request);
        let mut page = result?;
        if self.keeps() {
            self.keep(|kept, end| {
                for entry in &page.entries {
                    let name = (request.dir, &entry.name[..]);
                    kept.keep_name((asked, found), name, Some(entry.file), end);
                    if let Some(attr) = &entry.attr {
                        kept.keep_attr((asked, found), attr, end);
                    }
                }
                let next = page.entries.last().filter(|_| !page.end).map(|entry| entry.cookie);
                if self.config.consistency == Consistency::Strict && (page.end || next.is_some()) {
                    let place = (request.cookie, next);
                    kept.keep_page((asked, found), request.dir, place, &page);
                }
            });
        }
        self.show(&mut page);
        Ok(page)
    }

    /// Puts this client's own writes into the attributes of a page.
    fn show(&self, page: &mut DirPage) {
        for entry in &mut page.entries {
            entry.attr = entry.attr.take().map(|attr| self.seen(attr));
        }
    }

    /// The value of an extended attribute.
    pub(crate) fn get_xattr(&self, ctx: &Context, file: FileId, name: &[u8]) -> Result<Vec<u8>> {
        if self.may_use_kept()
            && let Some(known) = self.kept_xattr(file, name)
        {
            add(&self.counters.kept_hits, 1);
            return known.ok_or_else(|| ErrorKind::NoAttribute.into());
        }
        let asked = self.asking();
        let request = GetXattrRequest { file, name: name.into() };
        let (result, found) = self.session.ask(ctx, &request);
        match &result {
            Ok(value) if name == ACL_ACCESS => {
                let list = Some(&value.0[..]);
                self.keep(|kept, end| kept.keep_acl((asked, found), file, list, end));
            }
            Err(error) if name == ACL_ACCESS && error.kind == ErrorKind::NoAttribute => {
                self.keep(|kept, end| kept.keep_acl((asked, found), file, None, end));
            }
            Err(error) if name == CAPABILITY && error.kind == ErrorKind::NoAttribute => {
                self.keep(|kept, end| kept.keep_bare((asked, found), file, end));
            }
            _ => {}
        }
        Ok(result?.0)
    }

    /// The cached value of an attribute; `Some(None)` if the attribute does not exist.
    fn kept_xattr(&self, file: FileId, name: &[u8]) -> Option<Option<Vec<u8>>> {
        let (mut kept, now) = (self.holdings.kept.lock(), clock::uptime());
        let is_there = |kept: &mut Kept, of: fn(&Attr) -> bool| {
            kept.attr(file, now).filter(|attr| attr.kind != FileKind::Symlink).map(|attr| of(&attr))
        };
        let absent = match name {
            CAPABILITY => {
                kept.is_bare(file, now)
                    || is_there(&mut kept, |attr| attr.extras.any) == Some(false)
            }
            ACL_ACCESS => match kept.acl(file, now) {
                Some(known) => return Some(known),
                None => is_there(&mut kept, |attr| attr.extras.acl) == Some(false),
            },
            ACL_DEFAULT => is_there(&mut kept, |attr| attr.extras.default_acl) == Some(false),
            _ if KINDS.iter().any(|kind| name.starts_with(kind) && name.len() > kind.len()) => {
                is_there(&mut kept, |attr| attr.extras.any) == Some(false)
            }
            _ => false,
        };
        absent.then_some(None)
    }

    /// The names of all extended attributes.
    pub(crate) fn list_xattr(&self, ctx: &Context, file: FileId) -> Result<Vec<Bytes>> {
        if self.known_attr(file).is_some_and(|attr| !attr.extras.any) {
            add(&self.counters.kept_hits, 1);
            return Ok(Vec::new());
        }
        self.session.call(ctx, &ListXattrRequest { file })
    }
}
