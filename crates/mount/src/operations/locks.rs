//! Locks of programs: translation between the kernel and the cluster, and unlocks by closes.

use crate::operations::lock_kind::waits_for_open_file;
use crate::weirfs::WeirFs;
use weir_client::Context;
use weir_fuse::{self as fuse, NodeId, ReleaseArgs, Reply};
use weir_types::FileId;
use weir_wire::lock::{LAST_BYTE, Lock, LockMode, LockWait};

impl WeirFs {
    /// Returns a conflicting lock.
    pub(crate) fn test_lock(
        &self,
        by: &Context,
        node: NodeId,
        args: &fuse::LockArgs,
    ) -> Reply<fuse::Lock> {
        let found = self.client.test_lock(by, &from_kernel(self.file(node)?, args))?;
        Ok(to_kernel(found, args.lock))
    }

    /// Locks or unlocks, for a thread.
    pub(crate) fn set_lock(
        &self,
        (by, thread): (&Context, u32),
        node: NodeId,
        args: &fuse::LockArgs,
        wait: bool,
    ) -> Reply<()> {
        let file = self.file(node)?;
        if args.lock.kind == fuse::LockKind::Unlock {
            self.write_before_unlock(by, args.fh, file)?;
        } else if !args.flock {
            self.locks.note(args.fh, args.owner);
        }
        let wait = match wait {
            false => LockWait::No,
            true if args.flock || waits_for_open_file(thread) => LockWait::Yes,
            true => LockWait::UnlessDeadlock,
        };
        Ok(self.client.set_lock(by, &from_kernel(file, args), wait)?)
    }

    /// Unlocks what was locked through a closed handle.
    pub(crate) fn unlock_left(&self, fh: u64, node: NodeId, args: ReleaseArgs) -> Reply<()> {
        let owners = self.locks.close(fh);
        if owners.is_empty() && !args.flock_unlock {
            return Ok(());
        }
        let (file, ours) = (self.file(node)?, Context::root());
        self.write_before_unlock(&ours, fh, file)?;
        for owner in owners {
            self.client.unlock_all(&ours, file, owner, false);
        }
        if args.flock_unlock {
            self.client.unlock_all(&ours, file, args.lock_owner, true);
        }
        Ok(())
    }

    /// Writes buffered data before an unlock: the next holder of the lock sees it. An error is
    /// returned by the next write, fsync or close; the lock is released all the same.
    fn write_before_unlock(&self, by: &Context, fh: u64, file: FileId) -> Reply<()> {
        if let Err(error) = self.handle(fh)?.file()?.file.flush(by) {
            tracing::warn!("file {file}: unlocked with unwritten data: {error}");
        }
        Ok(())
    }
}

/// Converts the kernel's request for the cluster.
fn from_kernel(file: FileId, args: &fuse::LockArgs) -> Lock {
    let mode = match args.lock.kind {
        fuse::LockKind::Read => LockMode::Shared,
        fuse::LockKind::Write => LockMode::Exclusive,
        fuse::LockKind::Unlock => LockMode::Unlock,
    };
    // A lock of flock(2) is one of the whole file.
    let (start, last) = if args.flock { (0, LAST_BYTE) } else { (args.lock.start, args.lock.end) };
    Lock {
        file,
        owner: args.owner,
        flock: args.flock,
        start,
        last: last.min(LAST_BYTE),
        mode,
        pid: args.lock.pid,
    }
}

/// Converts a conflicting lock for the kernel; none becomes an unlock.
fn to_kernel(found: Option<Lock>, asked: fuse::Lock) -> fuse::Lock {
    match found {
        None => fuse::Lock { kind: fuse::LockKind::Unlock, ..asked },
        Some(lock) => fuse::Lock {
            start: lock.start,
            end: lock.last,
            kind: match lock.mode {
                LockMode::Shared => fuse::LockKind::Read,
                LockMode::Exclusive => fuse::LockKind::Write,
                LockMode::Unlock => fuse::LockKind::Unlock,
            },
            pid: lock.pid,
        },
    }
}
