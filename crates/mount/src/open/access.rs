//! Access times, with the choices of `mount(8)`, and those that are pending of an open file.

use std::sync::atomic::AtomicBool;
use std::time::{SystemTime, UNIX_EPOCH};
use weir_types::{Attr, Timestamp, access_is_due};

/// When a read changes the access time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessTimes {
    /// Never by reading (`noatime`).
    Never,
    /// If the access time is not later than the last change, or is a day old (`relatime`).
    #[default]
    Relative,
    /// By each read (`strictatime`).
    Always,
}

impl AccessTimes {
    /// Whether a read changes the access time of a file with these attributes.
    pub(crate) fn is_due(self, attr: &Attr) -> bool {
        match self {
            AccessTimes::Never => false,
            AccessTimes::Always => true,
            AccessTimes::Relative => {
                access_is_due(attr.atime, [attr.mtime, attr.ctime], Timestamp(now_ns()))
            }
        }
    }
}

/// The present time, nanoseconds since 1970.
pub(crate) fn now_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

/// Pending access times of an open file.
#[derive(Debug, Default)]
pub(crate) struct HandleAccess {
    /// Whether to record the next visible read.
    pub(crate) due: AtomicBool,
    /// Whether to record a read at the close, since reads may be invisible.
    pub(crate) unseen: AtomicBool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_types::{Extras, FileId, FileKind, Generation};

    #[test]
    fn relative_times_follow_a_change_or_a_day() {
        let now = now_ns();
        let attr = |read: i64, changed: i64| Attr {
            file: FileId(1),
            kind: FileKind::File,
            mode: 0o644,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: 1,
            atime: Timestamp(now - read),
            mtime: Timestamp(now - changed),
            ctime: Timestamp(now - changed),
            change: 1,
            generation: Generation(1),
            preferred_io_bytes: 4096,
            birth: None,
            extras: Extras::default(),
            sparse: false,
        };
        let hour = 3600 * 1_000_000_000;
        let due = |times: AccessTimes, read, changed| times.is_due(&attr(read, changed));
        assert!(!due(AccessTimes::Relative, hour, 2 * hour), "it was read since");
        assert!(due(AccessTimes::Relative, hour, hour), "at the same time");
        assert!(due(AccessTimes::Relative, 2 * hour, hour));
        assert!(due(AccessTimes::Relative, 25 * hour, 26 * hour), "a day ago");
        assert!(due(AccessTimes::Always, hour, 2 * hour));
        assert!(!due(AccessTimes::Never, 25 * hour, hour));
    }
}
