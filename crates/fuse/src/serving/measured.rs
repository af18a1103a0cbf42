//! Durations of programs' operations, by kind, and failures.

use crate::protocol::errno::Errno;
use crate::protocol::request::Op;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;
use weir_metrics::names::{MOUNT_FAILURES, MOUNT_GROUP_READS, MOUNT_IN_PROGRESS, MOUNT_TIME};
use weir_metrics::{Histogram, Page};

/// Kinds of operations.
const KINDS: [&str; 16] = [
    "lookup", "getattr", "setattr", "readdir", "open", "create", "close", "read", "write", "fsync",
    "allocate", "copy", "names", "xattr", "lock", "other",
];
const OTHER: usize = KINDS.len() - 1;

/// Counters since the mount began.
#[derive(Debug, Default)]
pub struct Measured {
    times: [Histogram; KINDS.len()],
    failures: [AtomicU64; KINDS.len()],
    in_progress: AtomicU64,
    group_reads: Arc<AtomicU64>,
}

/// An operation, until it is dropped.
pub(crate) struct Begun<'a> {
    measured: &'a Measured,
    kind: usize,
    at: Instant,
}

impl Measured {
    /// Begins an operation.
    pub(crate) fn begin(&self, op: &Op<'_>) -> Begun<'_> {
        self.in_progress.fetch_add(1, Relaxed);
        let name = kind_of(op);
        let kind = KINDS.iter().position(|kind| *kind == name).unwrap_or(OTHER);
        Begun { measured: self, kind, at: Instant::now() }
    }

    /// Number of times that a caller's groups were read.
    pub(crate) fn group_reads(&self) -> &Arc<AtomicU64> {
        &self.group_reads
    }

    /// Adds the counters to a page.
    pub fn tell(&self, page: &mut Page) {
        let mut samples = page.family(&MOUNT_TIME);
        for (kind, times) in KINDS.iter().zip(&self.times) {
            samples.times(&[kind], &times.times());
        }
        let mut samples = page.family(&MOUNT_FAILURES);
        for (kind, failures) in KINDS.iter().zip(&self.failures) {
            samples.number(&[kind], failures.load(Relaxed));
        }
        page.number(&MOUNT_IN_PROGRESS, self.in_progress.load(Relaxed));
        page.number(&MOUNT_GROUP_READS, self.group_reads.load(Relaxed));
    }
}

impl Begun<'_> {
    /// Another thread serves the operation, and counts it.
    pub(crate) fn handed_on(mut self) {
        self.kind = usize::MAX;
    }

    /// Counts a failure. Most errors are ordinary results (a name that does not exist) and do not
    /// count.
    pub(crate) fn failed(&self, errno: Errno) {
        if [libc::EIO, libc::ETIMEDOUT, libc::ENOSPC, libc::ESTALE].contains(&errno.0)
            && let Some(failures) = self.measured.failures.get(self.kind)
        {
            failures.fetch_add(1, Relaxed);
        }
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        self.measured.in_progress.fetch_sub(1, Relaxed);
        if let Some(times) = self.measured.times.get(self.kind) {
            times.add(self.at.elapsed());
        }
    }
}

fn kind_of(op: &Op<'_>) -> &'static str {
    match op {
        Op::Lookup { .. } => "lookup",
        Op::GetAttr { .. } | Op::Statx { .. } | Op::Access { .. } => "getattr",
        Op::SetAttr(_) => "setattr",
        Op::OpenDir { .. } | Op::ReadDir { .. } | Op::ReleaseDir { .. } => "readdir",
        Op::Open(_) => "open",
        Op::Create { .. } | Op::TmpFile { .. } => "create",
        Op::Flush { .. } | Op::Release { .. } => "close",
        Op::Read { .. } => "read",
        Op::Write { .. } => "write",
        Op::Fsync { .. } | Op::FsyncDir { .. } | Op::SyncFs => "fsync",
        Op::Fallocate { .. } => "allocate",
        Op::CopyFileRange { .. } => "copy",
        Op::MkNod { .. }
        | Op::MkDir { .. }
        | Op::Symlink { .. }
        | Op::ReadLink
        | Op::Link { .. }
        | Op::Unlink { .. }
        | Op::RmDir { .. }
        | Op::Rename { .. } => "names",
        Op::GetXattr { .. }
        | Op::SetXattr { .. }
        | Op::ListXattr { .. }
        | Op::RemoveXattr { .. } => "xattr",
        Op::GetLk(_) | Op::SetLk { .. } => "lock",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_counted_by_kind_and_only_real_failures_as_such() {
        let measured = Measured::default();
        let lookup = measured.begin(&Op::Lookup { name: b"x" });
        lookup.failed(Errno::ENOENT);
        let sync = measured.begin(&Op::SyncFs);
        sync.failed(Errno::EIO);
        drop(sync);
        let mut page = Page::default();
        measured.tell(&mut page);
        let text = page.into_text();
        for line in [
            "weir_mount_operation_duration_seconds_count{op=\"fsync\"} 1",
            "weir_mount_operation_duration_seconds_count{op=\"lookup\"} 0",
            "weir_mount_operation_failures_total{op=\"fsync\"} 1",
            "weir_mount_operation_failures_total{op=\"lookup\"} 0",
            "weir_mount_operations_in_progress 1",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} not in {text}");
        }
        drop(lookup);
    }
}
