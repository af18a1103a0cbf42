//! The speed of a process of a job, and whether the disk of its first copies alone suffices for it.

use weir_policy::{CopyView, Micros, Progress};
use weir_wire::frame::REQUEST_COST_BYTES;

/// Bytes after which the speed of a reader is known.
const LEAST_LOOK_BYTES: u64 = 4 << 20;
/// Longest time over which the speed is measured.
const MAX_LOOK_US: Micros = 60_000_000;
/// A reader without requests for this long has done something else.
const PAUSE_US: Micros = 1_000_000;
/// A disk keeps up with a reader if it takes at most this many times as long.
const KEEPS_UP: f64 = 1.1;
/// A disk goes on to keep up until it takes this many times as long: measured speeds fluctuate.
const STILL_KEEPS_UP: f64 = 1.2;

/// Begin of the measurement, the reader's progress at that time, and the time of the last look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Look {
    begun: Option<(Micros, u64)>,
    last: (Micros, u64),
    /// Whether the disk of the first copies keeps up with the reader.
    keeps_up: bool,
}

impl Look {
    /// Records the progress of the reader. Pauses do not count as reading time, and a reader that
    /// starts again is measured anew. In a long read the later half counts.
    pub(super) fn note(&mut self, done_bytes: u64, now: Micros) {
        let has_paused = now.saturating_sub(self.last.0) > PAUSE_US;
        let is_anew = done_bytes.saturating_add(LEAST_LOOK_BYTES) < self.last.1;
        self.last = (now, done_bytes);
        if has_paused || is_anew {
            self.begun = None;
        }
        let (at, done) = *self.begun.get_or_insert((now, done_bytes));
        let (us, bytes) = (now.saturating_sub(at), done_bytes.saturating_sub(done));
        if us > MAX_LOOK_US {
            self.begun = Some((at + us / 2, done + bytes / 2));
        }
    }

    /// Whether the disk of a first copy would suffice for the reader if it helped no other reader.
    /// It must be as fast as this reader has been, and as the readers whose disks have the copies
    /// have been (where several disks are slow, a disk can be as slow as its own reader for want of
    /// help). It does not keep up if other readers of the job have first copies there, since its
    /// speed is for all of them. `len_bytes` is the length that the views are for.
    pub(super) fn keeps_up(
        &mut self,
        (own, len_bytes): (Progress, u64),
        views: &[CopyView],
        now: Micros,
    ) -> bool {
        let Some(((begun, done_bytes), first)) = self.begun.zip(views.first()) else {
            return false;
        };
        let disk_us = first.service_us / (len_bytes as f64 + REQUEST_COST_BYTES as f64);
        let of_peer = |peer: Progress| (peer.share() * own.work_bytes as f64) as u64;
        let furthest = views.iter().filter_map(|view| view.peer).map(of_peer).max();
        let had = |done: u64| done.saturating_sub(done_bytes);
        let most = had(furthest.unwrap_or(0).max(own.done_bytes)) as f64;
        let us = now.saturating_sub(begun) as f64;
        let times = if self.keeps_up { STILL_KEEPS_UP } else { KEEPS_UP };
        let is_alone = first.is_usable && first.peer.is_none();
        self.keeps_up =
            is_alone && had(own.done_bytes) >= LEAST_LOOK_BYTES && most * disk_us < us * times;
        self.keeps_up
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::pace::Paces;
    use weir_types::TargetId;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_disk_keeps_up_that_gives_what_readers_have() {
        const SECOND: Micros = 1_000_000;
        let progress = |mib: u64| Progress { done_bytes: mib * MIB, work_bytes: 80 * MIB };
        let view = |mib_per_s: f64, peer: Option<u64>| {
            let service_us =
                SECOND as f64 / mib_per_s * (MIB + REQUEST_COST_BYTES) as f64 / MIB as f64;
            CopyView {
                peer: peer.map(progress),
                service_us,
                ..Paces::default().view(TargetId(1), true, (MIB, None), 0)
            }
        };
        // Since it had 20 MiB of 80, a second ago; what it has now, and the one at the other disk.
        let keeps_up = |(own, peer): (u64, u64), mib_per_s: f64, did: bool, shares: bool| {
            let mut look = Look { keeps_up: did, ..Look::default() };
            look.note(20 * MIB, SECOND);
            let views = [view(mib_per_s, shares.then_some(40)), view(20.0, Some(peer))];
            look.keeps_up((progress(own), MIB), &views, 2 * SECOND)
        };
        assert!(keeps_up((39, 39), 20.0, false, false), "a little less than the disk gives");
        assert!(!keeps_up((39, 39), 10.0, true, false), "others give half");
        assert!(!keeps_up((30, 39), 10.0, true, false), "as slow as its disk for want of help");
        assert!(keeps_up((30, 30), 10.0, false, false), "all are as slow");
        assert!(!keeps_up((23, 23), 20.0, false, false), "it has only begun");
        assert!(!keeps_up((39, 39), 16.5, false, false) && keeps_up((39, 39), 16.5, true, false));
        assert!(!keeps_up((39, 39), 20.0, true, true), "others of the job read there, too");
    }

    #[test]
    fn how_fast_a_reader_is_goes_by_the_time_in_which_it_reads() {
        const STEP: Micros = PAUSE_US / 2;
        let mut look = Look::default();
        look.note(5 * MIB, 0);
        (1..=120).for_each(|n| look.note((5 + n) * MIB, n * STEP));
        assert_eq!(look.begun, Some((0, 5 * MIB)));
        look.note(126 * MIB, 121 * STEP);
        assert_eq!(look.begun, Some((121 * STEP / 2, 65 * MIB + MIB / 2)), "the later half");
        look.note(127 * MIB, 121 * STEP + PAUSE_US + 1);
        assert_eq!(look.begun, Some((121 * STEP + PAUSE_US + 1, 127 * MIB)), "it has paused");
        look.note(125 * MIB, 123 * STEP + 1);
        assert_eq!(look.begun, Some((121 * STEP + PAUSE_US + 1, 127 * MIB)), "hardly less");
        look.note(MIB, 124 * STEP);
        assert_eq!(look.begun, Some((124 * STEP, MIB)), "it reads again");
    }
}
