//! Runs: a reader stays with a copy for some MiB before it chooses again. A disk that serves long
//! runs loses little by being shared, whatever the size of a call (2.12, 1.N1).

use crate::Micros;

/// Bytes of a column that are read from one copy before another is considered.
pub const RUN_BYTES: u64 = 4 << 20;
/// A run ends when its choice is older than this. A reader at a slow disk so chooses again sooner,
/// with newer measurements.
const MAX_AGE_US: Micros = 250_000;
/// The most runs that are remembered. A new run replaces the oldest.
const MAX_RUNS: usize = 64;

#[derive(Clone, Copy, Debug)]
struct Run<K> {
    column: K,
    number: u64,
    copy: usize,
    left_bytes: u64,
    begun: Micros,
}

/// The runs of the readers of one file. `K` names a column.
#[derive(Clone, Debug)]
pub struct Runs<K> {
    /// The runs, the oldest first.
    runs: Vec<Run<K>>,
}

impl<K> Default for Runs<K> {
    fn default() -> Self {
        Self { runs: Vec::new() }
    }
}

impl<K: Copy + Eq> Runs<K> {
    /// The number of the run that contains a byte of a column.
    pub fn number(offset: u64) -> u64 {
        offset / RUN_BYTES
    }

    /// The copy of the run at this offset, if the run has begun.
    pub fn look(&self, column: K, offset: u64, now: Micros) -> Option<usize> {
        let number = Self::number(offset);
        let goes_on = |run: &&Run<K>| {
            let is_new = now.saturating_sub(run.begun) <= MAX_AGE_US;
            (run.column, run.number) == (column, number) && is_new && run.left_bytes > 0
        };
        self.runs.iter().find(goes_on).map(|run| run.copy)
    }

    /// The copy of the run at this offset, if the run has begun. Counts `len_bytes` as read.
    pub fn go_on(&mut self, column: K, offset: u64, len_bytes: u64, now: Micros) -> Option<usize> {
        let number = Self::number(offset);
        let at = self.runs.iter().position(|r| r.column == column && r.number == number)?;
        let run = &mut self.runs[at];
        if now.saturating_sub(run.begun) > MAX_AGE_US || run.left_bytes == 0 {
            self.runs.remove(at);
            return None;
        }
        run.left_bytes = run.left_bytes.saturating_sub(len_bytes);
        Some(run.copy)
    }

    /// Begins a run at an offset, after `copy` was chosen for its first `len_bytes`. The run has
    /// `run_bytes` in all, at most [`RUN_BYTES`].
    pub fn begin(
        &mut self,
        column: K,
        (offset, len_bytes, run_bytes): (u64, u64, u64),
        copy: usize,
        now: Micros,
    ) {
        let number = Self::number(offset);
        self.runs.retain(|run| run.column != column || run.number != number);
        if self.runs.len() >= MAX_RUNS {
            self.runs.remove(0);
        }
        let left_bytes = run_bytes.min(RUN_BYTES).saturating_sub(len_bytes);
        self.runs.push(Run { column, number, copy, left_bytes, begun: now });
    }

    /// Ends the runs at a copy of a column that has failed.
    pub fn end(&mut self, column: K, copy: usize) {
        self.runs.retain(|run| run.column != column || run.copy != copy);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CALL: u64 = 256 << 10;

    #[test]
    fn a_run_stays_with_its_copy_to_its_end_and_no_longer() {
        let mut runs = Runs::default();
        runs.begin('a', (RUN_BYTES, CALL, RUN_BYTES), 1, 0);
        let inside = (1..RUN_BYTES / CALL).map(|n| runs.go_on('a', RUN_BYTES + n * CALL, CALL, 0));
        assert!(inside.collect::<Vec<_>>().iter().all(|copy| *copy == Some(1)));
        assert_eq!(runs.go_on('a', 2 * RUN_BYTES, CALL, 0), None, "the next one");
        assert_eq!(runs.go_on('b', RUN_BYTES, CALL, 0), None, "another column");
        assert_eq!(runs.go_on('a', RUN_BYTES, CALL, 0), None, "read again");
    }

    #[test]
    fn who_reads_here_and_there_thinks_again_after_a_while() {
        let mut runs = Runs::default();
        runs.begin('a', (0, 1, RUN_BYTES), 1, 0);
        assert_eq!(runs.go_on('a', 9, 1, MAX_AGE_US), Some(1));
        assert_eq!(runs.go_on('a', 9, 1, MAX_AGE_US + 1), None);
    }

    #[test]
    fn what_was_begun_on_a_copy_that_has_failed_goes_on_elsewhere() {
        let mut runs = Runs::default();
        runs.begin('a', (0, 1, RUN_BYTES), 1, 0);
        runs.begin('b', (0, 1, RUN_BYTES), 1, 0);
        runs.end('a', 1);
        assert_eq!((runs.go_on('a', 0, 1, 0), runs.go_on('b', 0, 1, 0)), (None, Some(1)));
    }

    proptest! {
        #[test]
        fn memory_is_bounded_and_no_more_than_a_run_is_read_without_thinking(
            reads in prop::collection::vec((0u8..4, 0u64..64, 1u64..(8 << 20), 0usize..3), 1..400)
        ) {
            let mut runs = Runs::default();
            let mut since = std::collections::BTreeMap::new();
            for (column, number, len, copy) in reads {
                let offset = number * RUN_BYTES;
                let bytes = since.entry((column, number)).or_insert(0u64);
                match runs.go_on(column, offset, len, 0) {
                    Some(_) => {
                        prop_assert!(*bytes < RUN_BYTES);
                        *bytes += len;
                    }
                    None => {
                        *bytes = len;
                        runs.begin(column, (offset, len, RUN_BYTES), copy, 0);
                    }
                }
                prop_assert!(runs.runs.len() <= MAX_RUNS);
            }
        }
    }
}
