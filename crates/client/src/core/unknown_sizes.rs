//! Files whose writer died and whose size could not be determined, because a server is away or this
//! client has no permission. They are remembered so that not every `stat` waits for that in vain.

use std::collections::BTreeMap;
use std::time::Duration;
use weir_types::FileId;

/// Pause before another attempt.
const PAUSE: Duration = Duration::from_secs(30);
/// The most files that are remembered.
const MAX_FILES: usize = 1024;

/// Files with the time of the last failed attempt.
#[derive(Debug, Default)]
pub struct UnknownSizes {
    failed: BTreeMap<FileId, Duration>,
}

impl UnknownSizes {
    /// Whether to make an attempt now.
    pub fn try_now(&self, file: FileId, now: Duration) -> bool {
        self.failed.get(&file).is_none_or(|failed| now.saturating_sub(*failed) >= PAUSE)
    }

    /// Records a failed attempt.
    pub fn failed(&mut self, file: FileId, now: Duration) {
        if self.failed.len() >= MAX_FILES {
            self.failed.clear();
        }
        self.failed.insert(file, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_is_tried_again_after_a_while() {
        let mut sizes = UnknownSizes::default();
        let (file, begin) = (FileId(7), Duration::from_secs(5));
        assert!(sizes.try_now(file, begin));
        sizes.failed(file, begin);
        assert!(!sizes.try_now(file, begin + PAUSE / 2) && sizes.try_now(FileId(8), begin));
        assert!(sizes.try_now(file, begin + PAUSE));
        (0..10_000).for_each(|file| sizes.failed(FileId(file), begin));
        assert!(sizes.failed.len() <= MAX_FILES);
    }
}
