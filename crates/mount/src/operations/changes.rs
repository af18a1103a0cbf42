//! Removals and moves of names by this kernel, which may have names in these directories that it uses without asking.

use crate::kernel::names::Ended;
use crate::operations::told::asker;
use crate::weirfs::WeirFs;
use std::time::Instant;
use weir_fuse::RequestContext;
use weir_types::{ErrorKind, FileId, Result};

impl WeirFs {
    /// Carries out a removal or a move of names in these directories. Others may see it before the
    /// kernel does: so the kernel uses no name in them without asking meanwhile.
    pub(crate) fn changing<T>(
        &self,
        ctx: &RequestContext<'_>,
        dirs: &[FileId],
        change: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let (asker, names) = (asker(ctx), &self.cache.names);
        let dirs = if dirs.first() == dirs.last() { &dirs[..1] } else { dirs };
        names.change_begins(asker, dirs, Instant::now());
        let done = change();
        names.change_ends(asker, dirs, self.ended(dirs, &done));
        done
    }

    fn ended<T>(&self, dirs: &[FileId], done: &Result<T>) -> Ended {
        match done {
            // Of a directory that the kernel has twice it changes one.
            Ok(_) if dirs.iter().any(|dir| self.nodes.has_several(*dir)) => Ended::Unknown,
            Ok(_) => Ended::Done,
            Err(error) if is_refusal(error.kind) => Ended::Refused,
            Err(_) => Ended::Unknown,
        }
    }
}

/// Whether such an error says that nothing was changed.
fn is_refusal(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::NotFound
            | ErrorKind::Exists
            | ErrorKind::NotDirectory
            | ErrorKind::IsDirectory
            | ErrorKind::NotEmpty
            | ErrorKind::NotPermitted
            | ErrorKind::AccessDenied
            | ErrorKind::InvalidArgument
            | ErrorKind::NameTooLong
            | ErrorKind::NoSpace
            | ErrorKind::ReadOnly
            | ErrorKind::TooManyLinks
            | ErrorKind::CrossDevice
            | ErrorKind::QuotaExceeded
            | ErrorKind::Stale
    )
}
