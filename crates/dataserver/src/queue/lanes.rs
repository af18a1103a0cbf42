//! The queue of one target's disk: reads in the order of the policy ([`DiskQueue`]), and all other
//! operations in order of arrival, since a change may wait for an earlier one. The two lanes take
//! turns, by bytes.

use super::{Arrival, Order};
use weir_policy::{DiskQueue, Limits, Micros, RUN_BYTES, Request};
use weir_wire::frame::REQUEST_COST_BYTES;

/// Bytes after which a lane gives the disk to the other one, if that has waiting operations.
const TURN_BYTES: u64 = 1 << 20;

/// Lane of an entry.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lane {
    /// A read. The policy decides its turn.
    Read(Request),
    /// Another operation, of this many bytes.
    Other(u64),
}

/// Both lanes.
#[derive(Debug)]
pub(crate) struct Lanes<T> {
    reads: DiskQueue<(u64, T)>,
    others: Arrival<(u64, T)>,
    /// Whether the reads have the disk; `had_bytes` counts what the lane has received.
    reads_have: bool,
    had_bytes: u64,
}

impl<T> Default for Lanes<T> {
    fn default() -> Self {
        // How many may wait is decided in front of both lanes; a stream is served for as long as
        // its client goes on with a copy.
        let limits = Limits { requests: usize::MAX, run_bytes: RUN_BYTES, ..Limits::default() };
        let others = Arrival::default();
        Self { reads: DiskQueue::new(limits), others, reads_have: false, had_bytes: 0 }
    }
}

impl<T> Order for Lanes<T> {
    type Entry = (Lane, T);
    type Item = T;

    fn push(&mut self, now: Micros, (lane, what): (Lane, T)) {
        match lane {
            Lane::Read(request) => {
                let entry = (request.len_bytes.into(), what);
                // One that is refused is an entry like others.
                if let Err(full) = self.reads.push(now, request, entry) {
                    self.others.push(now, full.0);
                }
            }
            Lane::Other(bytes) => self.others.push(now, (bytes, what)),
        }
    }

    fn pop(&mut self, now: Micros) -> Option<T> {
        let reads = match (self.reads.is_empty(), self.others.is_empty()) {
            (true, true) => return None,
            (false, false) => self.reads_have ^ (self.had_bytes >= TURN_BYTES),
            (no_reads, _) => !no_reads,
        };
        if reads != self.reads_have {
            (self.reads_have, self.had_bytes) = (reads, 0);
        }
        let (bytes, what) = match reads {
            true => self.reads.pop(now)?,
            false => self.others.pop(now)?,
        };
        // One without bytes takes its time, too.
        self.had_bytes = self.had_bytes.saturating_add(bytes + REQUEST_COST_BYTES);
        Some(what)
    }

    fn len(&self) -> usize {
        self.reads.len() + self.others.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use weir_policy::{JobKey, Progress, StreamKey};

    const MIB: u32 = 1 << 20;

    fn read(stream: u64, done_bytes: u64, offset: u64) -> Lane {
        let progress = Some(Progress { done_bytes, work_bytes: 1 << 30 });
        let (job, stream) = (JobKey(1), StreamKey(stream));
        Lane::Read(Request { job, stream, progress, offset, len_bytes: MIB })
    }

    fn all(lanes: &mut Lanes<u32>) -> Vec<u32> {
        std::iter::from_fn(|| lanes.pop(0)).collect()
    }

    #[test]
    fn who_is_furthest_behind_reads_first_and_changes_keep_their_order() {
        let mut lanes = Lanes::default();
        for n in 0..3 {
            lanes.push(0, (read(1, 600 << 20, n << 20), n as u32));
            lanes.push(0, (read(2, 300 << 20, n << 20), 10 + n as u32));
            lanes.push(0, (Lane::Other(100), 20 + n as u32));
        }
        let order = all(&mut lanes);
        let of = |lane: std::ops::Range<u32>| order.iter().filter(move |n| lane.contains(n));
        assert!(of(0..20).eq(&[10, 11, 12, 0, 1, 2]));
        assert!(of(20..30).eq(&[20, 21, 22]));
    }

    #[test]
    fn neither_waits_for_more_than_a_turn_of_the_other() {
        let mut lanes = Lanes::default();
        for n in 0..100 {
            lanes.push(0, (read(1, 0, u64::from(n)), n));
            lanes.push(0, (Lane::Other(u64::from(MIB)), 1_000 + n));
        }
        let order = all(&mut lanes);
        let longest = order.chunk_by(|a, b| (*a < 1_000) == (*b < 1_000)).map(<[u32]>::len).max();
        assert_eq!((order.len(), longest), (200, Some(1)));
    }

    #[test]
    fn a_read_does_not_wait_until_nothing_else_comes() {
        let mut lanes = Lanes::default();
        lanes.push(0, (Lane::Other(0), 0));
        assert_eq!(lanes.pop(0), Some(0));
        lanes.push(0, (read(1, 0, 0), 1_000));
        let waits = (1..100).find(|n| {
            lanes.push(0, (Lane::Other(0), *n));
            lanes.pop(0) == Some(1_000)
        });
        assert!(waits.is_some_and(|n| n <= 17), "{waits:?}");
    }

    proptest! {
        #[test]
        fn everything_comes_out_once(
            steps in prop::collection::vec((any::<bool>(), any::<bool>(), 0u64..4), 1..200),
        ) {
            let (mut lanes, mut out) = (Lanes::default(), Vec::new());
            for (n, (reads, pops, stream)) in steps.iter().enumerate() {
                let lane = if *reads { read(*stream, *stream << 20, n as u64) } else { Lane::Other(9) };
                lanes.push(n as u64, (lane, n as u32));
                prop_assert!(!lanes.is_empty());
                if *pops {
                    out.extend(lanes.pop(n as u64));
                }
            }
            out.extend(all(&mut lanes));
            prop_assert_eq!(lanes.len(), 0);
            out.sort_unstable();
            prop_assert_eq!(out, (0..steps.len() as u32).collect::<Vec<_>>());
        }
    }
}
