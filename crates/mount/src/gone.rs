//! What is removed while the kernel still has it.
//!
//! To the cluster it does not exist any more. But who has a directory open, or as its current
//! directory, may still look at it, and finds it empty; the kernel asks what it is before it
//! says so (`ENOENT` rather than `ESTALE`). And who holds a file by `O_PATH` alone, of which
//! the cluster is not told, may ask what it is.

use crate::fuse::{NodeId, RequestContext};
use crate::translate::context;
use crate::weirfs::WeirFs;
use weir_client::Context;
use weir_types::{Attr, ErrorKind, FileId, Result};

/// What is known of a file.
pub(crate) enum Found {
    Now(Attr),
    /// When it was removed: nobody can say more of it.
    Last(Attr),
}

impl WeirFs {
    /// What the directory is that a call is about to remove or replace, if the kernel knows one.
    pub(crate) fn may_go(
        &self,
        ctx: &RequestContext<'_>,
        parent: NodeId,
        name: &[u8],
    ) -> Option<Attr> {
        let file = self.nodes.at(parent, name)?;
        let known = self.client.known_attr(file);
        known.or_else(|| self.client.getattr(&context(ctx), file).ok())
    }

    /// What a file is, or was.
    pub(crate) fn attr_or_last(&self, by: &Context, file: FileId) -> Result<Found> {
        let found = self.client.getattr(by, file);
        match found {
            Err(error) if error.kind == ErrorKind::Stale => {
                Ok(Found::Last(self.nodes.gone(file).ok_or(error)?))
            }
            found => found.map(Found::Now),
        }
    }
}
