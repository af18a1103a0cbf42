//! Lookups of names, and files that they hold for a while.

use crate::operations::callers::SEARCH;
use crate::translate::data_context;
use crate::weirfs::WeirFs;
use weir_fuse::{Reply, RequestContext};
use weir_types::{Attr, ErrorKind, FileId, FileKind, Result};
use weir_wire::capability::Rights;

/// The most attempts to hold a file that is gone each time.
const HOLD_TRIES: usize = 64;

impl WeirFs {
    /// Looks up a name.
    pub(crate) fn find(&self, ctx: &RequestContext<'_>, dir: FileId, name: &[u8]) -> Result<Attr> {
        if !self.pins.tries_again(ctx.pid) {
            return self.look_up(ctx, dir, name);
        }
        let found = self.find_and_hold(ctx, dir, name);
        // Others are on the way to it.
        if found.as_ref().map_or(true, |attr| attr.kind == FileKind::File) {
            self.pins.tried(ctx.pid);
        }
        found
    }

    fn look_up(&self, ctx: &RequestContext<'_>, dir: FileId, name: &[u8]) -> Result<Attr> {
        self.judged(ctx, dir, SEARCH, |by| self.client.lookup(by, dir, name))
    }

    /// The reply about a file that the kernel has found, or is told of.
    pub(crate) fn found<T>(&self, ctx: &RequestContext<'_>, answer: Result<T>) -> Reply<T> {
        if answer.as_ref().is_err_and(|error| error.kind == ErrorKind::Stale) {
            self.pins.missed(ctx.pid);
        }
        Ok(answer?)
    }

    /// Looks up a name; if it is a regular file's, holds the file for a while.
    fn find_and_hold(&self, ctx: &RequestContext<'_>, parent: FileId, name: &[u8]) -> Result<Attr> {
        for _ in 0..HOLD_TRIES {
            let attr = self.look_up(ctx, parent, name)?;
            if attr.kind != FileKind::File {
                return Ok(attr);
            }
            match self.client.open(&data_context(ctx), attr.file, Rights::READ) {
                Ok((file, attr)) => {
                    self.pins.hold(file);
                    return Ok(attr);
                }
                Err(error) if error.kind == ErrorKind::Stale => {}
                Err(_) => return Ok(attr),
            }
        }
        self.look_up(ctx, parent, name)
    }
}
