//! Faults: which operation fails, and when the disk stops.

use rustix::io::{Errno, Result};
use std::collections::BTreeMap;
use std::ops::Range;

/// What a process asks of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// Reading a file.
    Read,
    /// Writing to a file.
    Write,
    /// Setting a file's length, also by opening it with `truncate`.
    SetLen,
    /// Reserving room.
    Allocate,
    /// Punching a hole.
    Punch,
    /// Making a file durable.
    Sync,
    /// Making a directory's names durable.
    SyncDirectory,
    /// Making everything durable.
    SyncFileSystem,
    /// Opening a file or directory.
    Open,
    /// Making a file.
    Create,
    /// Making a directory.
    MakeDirectory,
    /// Removing a file.
    Unlink,
    /// Renaming.
    Rename,
    /// Listing a directory.
    List,
    /// Asking for size and kind.
    Stat,
    /// Asking for room.
    Space,
    /// Locking a file.
    Lock,
}

impl Operation {
    /// Whether it makes something durable.
    pub fn is_sync(self) -> bool {
        matches!(self, Self::Sync | Self::SyncDirectory | Self::SyncFileSystem)
    }

    /// Whether it changes something that can be seen.
    pub fn changes(self) -> bool {
        use Operation::{Allocate, Create, MakeDirectory, Punch, Rename, SetLen, Unlink, Write};
        matches!(self, Write | SetLen | Allocate | Punch | Create | MakeDirectory | Unlink | Rename)
    }
}

/// What becomes of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// It is done.
    Do,
    /// The disk stops in the middle of it.
    Torn,
    /// It fails.
    Fail(Errno),
}

#[derive(Clone, Debug)]
pub(super) struct Planned {
    pub(super) operation: Operation,
    pub(super) errno: Errno,
    /// So many of them pass first.
    pub(super) after: u64,
    /// Whether all further ones fail too.
    pub(super) always: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Faults {
    pub(super) planned: Vec<Planned>,
    pub(super) read_only: bool,
    pub(super) gone: Option<Errno>,
    /// Bytes of a file that cannot be read.
    pub(super) unreadable: Vec<(u64, Range<u64>)>,
    /// How probable it is that bytes are not in memory.
    pub(super) not_cached: f64,
    pub(super) skipped_site: Option<String>,
    /// After so many operations the disk stops.
    pub(super) crash_in: Option<u64>,
    pub(super) frozen: bool,
    /// Operations so far that change something or sync.
    pub(super) operations: u64,
    pub(super) sites: BTreeMap<&'static str, u64>,
}

impl Faults {
    /// Counts the operation and says what becomes of it.
    ///
    /// # Errors
    /// Nothing at all works any more.
    pub(super) fn turn(&mut self, operation: Operation) -> Result<Turn> {
        if self.frozen {
            return Err(Errno::IO);
        }
        if let Some(errno) = self.gone {
            return Err(errno);
        }
        if operation.changes() || operation.is_sync() {
            self.operations += 1;
            if let Some(left) = &mut self.crash_in {
                if *left == 0 {
                    self.crash_in = None;
                    self.frozen = true;
                    return Ok(Turn::Torn);
                }
                *left -= 1;
            }
        }
        if self.read_only && operation.changes() {
            return Ok(Turn::Fail(Errno::ROFS));
        }
        Ok(self.planned_for(operation).map_or(Turn::Do, Turn::Fail))
    }

    fn planned_for(&mut self, operation: Operation) -> Option<Errno> {
        let mut failure = None;
        self.planned.retain_mut(|planned| {
            if planned.operation != operation || failure.is_some() {
                return true;
            }
            if planned.after > 0 {
                planned.after -= 1;
                return true;
            }
            failure = Some(planned.errno);
            planned.always
        });
        failure
    }

    /// Whether a sync at this site is left out.
    pub(super) fn skips(&mut self, site: &'static str) -> bool {
        *self.sites.entry(site).or_default() += 1;
        self.skipped_site.as_deref() == Some(site)
    }
}
