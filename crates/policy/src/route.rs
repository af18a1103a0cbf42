//! The choice of the copy from which a reader takes its next block.
//!
//! ```text
//! primary            the first copy
//! halves             all copies in turn, block by block (CEFT-PVFS, 2.12)
//! skip-hot           halves, without a copy that is predicted to take twice as long (2.14)
//! graduated          all copies at once, each as fast as it can (graduated declustering, 1.08)
//! graduated-primary  the first copy; another while that disk's own reader is ahead (1.19)
//! proportional       the first copy; another while it is sooner, or its own reader is ahead
//! ```
//! Invariants: an unusable copy is never chosen; the last usable copy is never skipped (2.15); a
//! copy that is full is never chosen.

use crate::queue::run_bytes;
use crate::{Diverting, Progress, Watermarks};

/// How reads choose among copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadPolicy {
    /// Reads the first copy.
    Primary,
    /// Reads all copies in turn, block by block.
    Halves,
    /// Reads the copies in turn, block by block, without hot copies.
    SkipHot,
    /// Reads all copies at once.
    Graduated,
    /// Reads the first copy, and others according to the watermarks.
    GraduatedPrimary,
    /// Reads the first copy, and others when they are sooner or their own readers are ahead. The
    /// default.
    Proportional,
}

impl ReadPolicy {
    /// Policies that use knowledge of the copies alone and not of a job.
    pub const OF_ANY_READER: [Self; 5] =
        [Self::Proportional, Self::Primary, Self::Halves, Self::SkipHot, Self::Graduated];

    /// All policies.
    pub const ALL: [Self; 6] = [
        Self::Proportional,
        Self::Primary,
        Self::Halves,
        Self::SkipHot,
        Self::Graduated,
        Self::GraduatedPrimary,
    ];

    /// The name in options and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::Halves => "halves",
            Self::SkipHot => "skip-hot",
            Self::Graduated => "graduated",
            Self::GraduatedPrimary => "graduated-primary",
            Self::Proportional => "proportional",
        }
    }
}

/// What a reader knows of one copy when it asks for a block.
#[derive(Clone, Copy, Debug)]
pub struct CopyView {
    /// Whether the copy is current and its server reachable.
    pub is_usable: bool,
    /// Whether this reader has its maximum of requests outstanding at the copy.
    pub is_full: bool,
    /// Whether the copy has as many requests of this reader as one copy should have, though it may
    /// take more.
    pub has_enough: bool,
    /// Number of outstanding requests of this reader.
    pub in_flight: u32,
    /// Number of requests of other readers at its disk, as last reported.
    pub queued: u32,
    /// Whether the disk has reported an empty queue a moment ago.
    pub is_idle: bool,
    /// Number of further requests to expect, because other readers see the same state as this
    /// reader.
    pub to_come: u32,
    /// Measured service time of a block, microseconds; 0 if unknown.
    pub service_us: f64,
    /// Time for the rest of the run that follows if this copy is chosen, microseconds, if no other
    /// reader uses the disk.
    pub rest_us: f64,
    /// Cost of moving to this copy, microseconds.
    pub turn_us: f64,
    /// Progress of the reader whose own disk this is, if it belongs to the same job.
    pub peer: Option<Progress>,
    /// Whether it is still unknown if the disk has an own reader.
    pub may_be_owned: bool,
    /// Whether this reader itself reads first copies on the disk: for another column of a striped
    /// file, or for another file.
    pub is_mine: bool,
    /// Whether the disk would suffice for this reader if the disk served no other readers.
    pub keeps_up: bool,
}

impl CopyView {
    /// Time until a block that is requested now arrives, after all requests before it,
    /// microseconds.
    pub fn answer_us(&self) -> f64 {
        let before = self.in_flight.saturating_add(self.queued);
        self.service_us * f64::from(before.saturating_add(1))
    }

    /// Whether the disk has the first copies of other readers of the same job, and not of this
    /// reader, as far as is known. A disk of a file striped over all disks belongs to all readers:
    /// each waits for the slowest disk, and a disk that is behind is helped if readers use other
    /// copies.
    pub fn is_owned(&self) -> bool {
        !self.is_mine && (self.peer.is_some() || self.may_be_owned)
    }

    /// Whether this copy is worth reading in addition to another copy that has enough requests.
    /// That holds if no other reader wants it, or if it is sooner and not owned by another reader
    /// of the job. The cost of moving is not counted, because the reader has requests at the other
    /// copy meanwhile. On disks where moves cost much, the measured speed shows it.
    pub fn helps(&self, other: &Self) -> bool {
        let there_us = |of: &Self| Self { turn_us: 0.0, ..*of }.done_us();
        let is_sooner = !self.is_owned() && there_us(self) < there_us(other);
        let has_time = self.is_idle && (self.is_mine || !self.may_be_owned);
        self.service_us < other.service_us * HOT && (has_time || is_sooner)
    }

    /// Time until the block and the rest of its run arrive, while other readers go on using the
    /// disk, microseconds.
    fn done_us(&self) -> f64 {
        let (queued, to_come) = (f64::from(self.queued), f64::from(self.to_come));
        let shared = 1.0 + (queued + to_come) / OTHERS_OUTSTANDING;
        self.answer_us() + self.service_us * to_come + (self.rest_us + self.turn_us) * shared
    }

    /// As [`Self::done_us`], if the other readers let this reader go first because it is behind
    /// them.
    fn done_first_us(&self) -> f64 {
        Self { queued: 0, to_come: 0, ..*self }.done_us()
    }
}

/// Assumed number of outstanding requests of another reader at a disk.
const OTHERS_OUTSTANDING: f64 = 4.0;
/// For the last requests of its work, this many, a reader considers all copies alike.
pub const LAST_REQUESTS: u64 = 4;
/// A copy becomes hot at this multiple of the best copy's service time.
const HOT: f64 = 2.0;
/// A hot copy stays hot down to this multiple.
const NOT_HOT: f64 = 1.5;
/// Another copy must need less than this share of the first copy's time. So no other copy is used
/// without need: requests that alternate at a disk cost seeks.
const SOONER: f64 = 0.75;
/// The same share for a copy that is owned by readers of the same job.
const SOONER_THAN_OWNERS: f64 = 0.5;
/// Another disk may be sooner than the chosen copy by this many of its requests. Beyond that the
/// reader does not request the block yet: it reads from front to back, and a late block would delay
/// all later ones.
const HELD_UP_REQUESTS: f64 = 2.0;
/// A copy that serves a block within this time is not left: it serves from memory, or nearly so,
/// and another copy would have to read its disk.
pub const SOON_US: f64 = 1_000.0;

/// Number of requests of `block_bytes` that a reader with this progress keeps outstanding at each
/// copy, within `window_bytes`. At least two, so that a disk has the next request when it has done
/// one.
pub fn window(window_bytes: u64, block_bytes: u64, own: Progress) -> u32 {
    let bytes = 2 * run_bytes(window_bytes / 2, Some(own));
    u32::try_from(bytes / block_bytes.max(1)).unwrap_or(u32::MAX).max(2)
}

/// Stands for an unknown number of remaining requests.
pub const UNKNOWN: u64 = u64::MAX;

/// Chooses copies for one reader and one column. It remembers which copies are in use.
#[derive(Clone, Debug)]
pub struct Router {
    policy: ReadPolicy,
    marks: Watermarks,
    diverting: Vec<Diverting>,
    hot: Vec<bool>,
}

impl Router {
    /// Makes a router for this many copies.
    pub fn new(policy: ReadPolicy, copies: usize, marks: Watermarks) -> Self {
        let diverting = vec![Diverting::default(); copies];
        Self { policy, marks, diverting, hot: vec![false; copies] }
    }

    /// Whether several copies are read at the same time, so that runs should be shorter.
    pub fn uses_several(&self) -> bool {
        self.policy == ReadPolicy::Graduated || self.diverting.iter().any(|d| d.is_on())
    }

    /// Chooses the copy for block number `block`. Returns `None` if the reader should ask again
    /// after a reply or after new information. `own` is the reader's progress. `left` is the number
    /// of requests that were not sent to any copy yet, this one included, or [`UNKNOWN`]. `copies`
    /// are in the order of the layout, as many as the router was made for.
    pub fn choose(
        &mut self,
        block: u64,
        (own, left): (Progress, u64),
        copies: &[CopyView],
    ) -> Option<usize> {
        let first = copies.iter().position(|copy| copy.is_usable)?;
        let has_room = |n: &usize| copies[*n].is_usable && !copies[*n].is_full;
        match self.policy {
            ReadPolicy::Primary => Some(first).filter(has_room),
            ReadPolicy::Halves => in_turn(block, copies, |n| copies[n].is_usable).filter(has_room),
            ReadPolicy::SkipHot => {
                self.find_hot(copies);
                let hot = &self.hot;
                in_turn(block, copies, |n| copies[n].is_usable && !hot[n]).filter(has_room)
            }
            ReadPolicy::Graduated => {
                (0..copies.len()).filter(has_room).min_by_key(|n| copies[*n].in_flight)
            }
            ReadPolicy::GraduatedPrimary => {
                self.divert(own, first, copies);
                self.soonest(first, left, copies, |_| false)
            }
            ReadPolicy::Proportional => {
                self.divert(own, first, copies);
                let is_sooner = |n: usize| {
                    // A reader that is ahead of the disk's own readers waits, so that it does not
                    // delay them.
                    let leads = copies[n].peer.is_some_and(|peer| own > peer);
                    if leads && !copies[n].is_mine {
                        return false;
                    }
                    let (own, other) = (&copies[first], &copies[n]);
                    let helps = own.has_enough && other.helps(own);
                    // If readers of the same job have not progressed further, the disk counts as
                    // theirs, unless it is clearly sooner.
                    let clearly = if other.is_owned() { SOONER_THAN_OWNERS } else { SOONER };
                    own.service_us >= SOON_US
                        && (helps || other.done_us() < own.done_us() * clearly)
                };
                self.soonest(first, left, copies, is_sooner)
            }
        }
    }

    /// The copy that is done first, among the first copy, the copies whose own readers are ahead,
    /// and the copies that `may` allows.
    fn soonest(
        &self,
        first: usize,
        left: u64,
        copies: &[CopyView],
        may: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        // No later request waits behind the last ones.
        let ends = left <= LAST_REQUESTS;
        let is_used = |n: &usize| *n == first || self.diverting[*n].is_on() || ends || may(*n);
        let done_us = |n: usize| match self.diverting[n].is_on() && !ends {
            true => copies[n].done_first_us(),
            false => copies[n].done_us(),
        };
        let sooner = |a: &usize, b: &usize| {
            let of = |n: usize| copies[n].in_flight;
            done_us(*a).total_cmp(&done_us(*b)).then_with(|| of(*a).cmp(&of(*b)))
        };
        let used = || (first..copies.len()).filter(|n| copies[*n].is_usable && is_used(n));
        let chosen = used().filter(|n| !copies[*n].is_full).min_by(sooner)?;
        // The reader is delayed at its own slow disk if requests of others come first there.
        let is_held_up = |n: usize| {
            let sooner_us = HELD_UP_REQUESTS * copies[n].service_us;
            self.diverting[n].is_on() && done_us(n) + sooner_us < done_us(chosen)
        };
        if !ends && used().any(is_held_up) {
            return None;
        }
        // Near the end, the other copies might serve all remaining requests before this one is
        // done.
        let rest = left.saturating_sub(1) as f64;
        let is_late = |n: usize| {
            let all_us = done_us(n) + rest * copies[n].service_us;
            all_us < done_us(chosen)
        };
        (!used().any(is_late)).then_some(chosen)
    }

    /// Updates which other copies are in use, from the progress of their own readers.
    fn divert(&mut self, own: Progress, first: usize, copies: &[CopyView]) {
        let is_long = self.policy == ReadPolicy::Proportional && copies[first].keeps_up;
        let marks = match is_long {
            true => self.marks.for_long_runs(own.work_bytes),
            false => self.marks.for_work(own.work_bytes),
        };
        for (n, copy) in copies.iter().enumerate() {
            match copy.peer.filter(|_| copy.is_usable && n != first) {
                Some(peer) => _ = self.diverting[n].update(&marks, own, peer),
                None => self.diverting[n] = Diverting::default(),
            }
        }
    }

    fn find_hot(&mut self, copies: &[CopyView]) {
        let known = |copy: &&CopyView| copy.is_usable && copy.service_us > 0.0;
        let best = copies.iter().filter(known).map(predicted_us).min_by(f64::total_cmp);
        let Some(best) = best else { return self.hot.fill(false) };
        for (hot, copy) in self.hot.iter_mut().zip(copies) {
            let times = predicted_us(copy) / best;
            *hot = copy.service_us > 0.0 && times > if *hot { NOT_HOT } else { HOT };
        }
    }
}

/// Predicted time of a block, without this reader's own requests, which follow from its earlier
/// choices.
fn predicted_us(copy: &CopyView) -> f64 {
    copy.service_us * f64::from(copy.queued.saturating_add(1))
}

fn in_turn(block: u64, copies: &[CopyView], may: impl Fn(usize) -> bool) -> Option<usize> {
    let able: Vec<usize> = (0..copies.len()).filter(|n| may(*n)).collect();
    let turn = block.checked_rem(able.len() as u64)?;
    able.get(turn as usize).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OWN: Progress = Progress { done_bytes: 500 << 20, work_bytes: 1 << 30 };

    fn router(policy: ReadPolicy, copies: usize) -> Router {
        Router::new(policy, copies, Watermarks::default())
    }

    fn copy(service_us: f64) -> CopyView {
        CopyView {
            is_usable: true,
            is_full: false,
            has_enough: false,
            in_flight: 0,
            queued: 0,
            to_come: 0,
            is_idle: false,
            service_us,
            rest_us: 0.0,
            turn_us: 0.0,
            peer: None,
            may_be_owned: false,
            is_mine: false,
            keeps_up: false,
        }
    }

    fn choices(policy: ReadPolicy, copies: &[CopyView]) -> Vec<Option<usize>> {
        let mut router = router(policy, copies.len());
        (0..6).map(|block| router.choose(block, (OWN, UNKNOWN), copies)).collect()
    }

    #[test]
    fn halves_take_turns_and_go_on_with_what_is_there() {
        let mut copies = [copy(1.0), copy(1.0)];
        let turns = [Some(0), Some(1), Some(0), Some(1), Some(0), Some(1)];
        assert_eq!(choices(ReadPolicy::Halves, &copies), turns);
        copies[0].is_usable = false;
        assert_eq!(choices(ReadPolicy::Halves, &copies), [Some(1); 6]);
    }

    #[test]
    fn a_hot_copy_is_skipped_until_it_is_clearly_cooler_and_never_both() {
        let mut router = router(ReadPolicy::SkipHot, 2);
        let mut uses_first = |first: f64, second: f64| {
            let copies = [copy(first), copy(second)];
            (0..4).any(|block| router.choose(block, (OWN, UNKNOWN), &copies) == Some(0))
        };
        assert!(uses_first(190.0, 100.0));
        assert!(!uses_first(210.0, 100.0));
        assert!(!uses_first(160.0, 100.0));
        assert!(uses_first(140.0, 100.0));
        // Both copies are slow, so neither is slow compared with the other.
        assert!(uses_first(900.0, 900.0));
    }

    #[test]
    fn without_a_job_the_first_copy_serves_unless_another_is_clearly_sooner() {
        let policy = ReadPolicy::Proportional;
        assert_eq!(choices(policy, &[copy(10_000.0), copy(9_000.0)]), [Some(0); 6]);
        assert_eq!(choices(policy, &[copy(20_000.0), copy(10_000.0)]), [Some(1); 6]);
        let queued = CopyView { queued: 4, ..copy(10_000.0) };
        assert_eq!(choices(policy, &[queued, copy(10_000.0)]), [Some(1); 6]);
        // Moving to the other copy costs more than it saves.
        let far = CopyView { turn_us: 6_000.0, ..copy(10_000.0) };
        assert_eq!(choices(policy, &[copy(20_000.0), far]), [Some(0); 6]);
        // The copy is served from memory.
        assert_eq!(choices(policy, &[copy(200.0), copy(100.0)]), [Some(0); 6]);
        // Nothing was measured on either copy yet.
        assert_eq!(choices(policy, &[copy(0.0), copy(0.0)]), [Some(0); 6]);
    }

    #[test]
    fn who_has_enough_at_the_first_copy_goes_where_the_queue_is_shorter() {
        let own =
            CopyView { in_flight: 2, queued: 8, is_full: true, has_enough: true, ..copy(10_000.0) };
        // Moving costs as much as the whole queue.
        let of = |queued| CopyView { queued, turn_us: 90_000.0, ..copy(10_000.0) };
        let choose = |own, other| choices(ReadPolicy::Proportional, &[own, other])[0];
        assert_eq!((choose(own, of(9)), choose(own, of(10))), (Some(1), None));
        let peer = Some(OWN);
        let theirs = CopyView { peer, ..of(6) };
        let nobodys = CopyView { may_be_owned: true, is_idle: true, ..of(0) };
        assert_eq!(choose(own, nobodys), None, "it may be somebody's, who is about to begin");
        assert_eq!(choose(own, theirs), None, "others of the job are to read there");
        let slow = CopyView { service_us: 20_000.0, ..of(0) };
        assert_eq!(choose(own, slow), None, "it is not to hold up what comes after it");
        // A copy that is not full gives the same choice.
        let more = CopyView { is_full: false, ..own };
        let full = CopyView { in_flight: 2, has_enough: true, is_idle: true, ..copy(10_000.0) };
        assert_eq!(choose(CopyView { queued: 0, in_flight: 3, ..more }, full), Some(1));
    }

    #[test]
    fn what_is_asked_for_last_is_not_left_to_a_slow_disk() {
        let mut router = router(ReadPolicy::Proportional, 2);
        let peer = Some(OWN);
        let slow = CopyView { in_flight: 1, ..copy(100_000.0) };
        let quick = CopyView { in_flight: 2, is_full: true, peer, ..copy(60_000.0) };
        let mut choose = |left, copies: [CopyView; 2]| router.choose(0, (OWN, left), &copies);
        assert_eq!(choose(UNKNOWN, [slow, quick]), Some(0));
        assert_eq!(choose(1, [slow, quick]), None, "the other one has done it before");
        let room = CopyView { in_flight: 1, is_full: false, ..quick };
        assert_eq!(choose(1, [slow, room]), Some(1));
        assert_eq!(choose(UNKNOWN, [slow, room]), Some(0), "its own reader is no further");
    }

    #[test]
    fn nothing_is_asked_of_a_slow_disk_that_would_hold_up_what_another_one_has() {
        let mut router = router(ReadPolicy::Proportional, 2);
        let ahead = Progress { done_bytes: 600 << 20, ..OWN };
        // Other readers have requests at the reader's own disk, and the other copy is full.
        let queued = |queued| CopyView { queued, ..copy(100_000.0) };
        let full = |peer| CopyView { in_flight: 2, is_full: true, peer, ..copy(50_000.0) };
        let mut choose = |queued, other| router.choose(0, (OWN, UNKNOWN), &[queued, other]);
        assert_eq!(choose(queued(2), full(Some(ahead))), None, "300 ms, where it is 150");
        assert_eq!(choose(queued(1), full(Some(ahead))), Some(0), "200 ms, where it is 150");
        assert_eq!(choose(queued(2), full(Some(OWN))), Some(0), "its own reader needs that one");
        let room = CopyView { in_flight: 1, is_full: false, ..full(Some(ahead)) };
        assert_eq!(choose(queued(2), room), Some(1));
    }

    #[test]
    fn who_needs_another_copy_for_little_turns_to_it_seldom() {
        const MIB: u64 = 1 << 20;
        let own = Progress { done_bytes: 40 * MIB, work_bytes: 80 * MIB };
        let choose = |router: &mut Router, lead_mib: u64, keeps_up: bool| {
            let first = CopyView { keeps_up, in_flight: 1, ..copy(10_000.0) };
            let peer = Some(Progress { done_bytes: own.done_bytes + lead_mib * MIB, ..own });
            let other = CopyView { peer, ..copy(10_000.0) };
            router.choose(0, (own, UNKNOWN), &[first, other])
        };
        let fresh = || router(ReadPolicy::Proportional, 2);
        assert_eq!(choose(&mut fresh(), 2, false), Some(1), "it needs it all the time");
        let mut seldom = fresh();
        assert_eq!(choose(&mut seldom, 2, true), Some(0));
        assert_eq!(choose(&mut seldom, 3, true), Some(1), "half of a sixteenth at half its way");
        assert_eq!(choose(&mut seldom, 1, true), Some(1), "a long run");
        assert_eq!(choose(&mut seldom, 0, true), Some(0));
    }

    #[test]
    fn who_is_ahead_leaves_a_disk_to_its_own_readers_however_slow_his_own_is() {
        let choose = |done_mib: u64| {
            let peer = Some(Progress { done_bytes: done_mib << 20, ..OWN });
            let mut router = router(ReadPolicy::Proportional, 2);
            let own = CopyView { queued: 6, is_full: true, has_enough: true, ..copy(20_000.0) };
            let other = CopyView { peer, ..copy(10_000.0) };
            router.choose(0, (OWN, UNKNOWN), &[own, other])
        };
        assert_eq!(choose(500), Some(1), "they are as far, and so is all that both read");
        assert_eq!(choose(499), None);
    }

    #[test]
    fn of_a_striped_file_each_disk_is_everybodys() {
        let peer = |mib: u64| Some(Progress { done_bytes: mib << 20, ..OWN });
        let own = CopyView { queued: 8, is_full: true, has_enough: true, ..copy(10_000.0) };
        let mine = CopyView { is_mine: true, peer: peer(490), turn_us: 50_000.0, ..copy(10_000.0) };
        let choose = |other| choices(ReadPolicy::Proportional, &[own, other])[0];
        assert_eq!(choose(mine), Some(1), "whoever is behind waits for the slow disk, too");
        assert_eq!(choose(CopyView { may_be_owned: true, ..mine }), Some(1));
        assert_eq!(choose(CopyView { queued: 9, ..mine }), None, "it is no sooner there");
        assert_eq!(choose(CopyView { is_mine: false, ..mine }), None);
    }

    #[test]
    fn requests_are_shared_in_proportion_to_the_speeds_of_disks() {
        let (mut router, mut counts) = (router(ReadPolicy::Proportional, 2), [0u32; 2]);
        // Each copy answers as fast as it can; the first one needs three times as long.
        let (mut copies, mut left) = ([copy(30_000.0), copy(10_000.0)], [0u64; 2]);
        for _ in 0..40_000 {
            while let Some(n) = router.choose(0, (OWN, UNKNOWN), &copies) {
                copies[n].in_flight += 1;
                copies[n].is_full = copies[n].in_flight >= 16;
                counts[n] += 1;
            }
            for n in 0..2 {
                left[n] += 1_000;
                if left[n] as f64 >= copies[n].service_us {
                    left[n] = 0;
                    copies[n].in_flight = copies[n].in_flight.saturating_sub(1);
                    copies[n].is_full = false;
                }
            }
        }
        let share = f64::from(counts[1]) / f64::from(counts[0] + counts[1]);
        assert!((0.70..0.80).contains(&share), "{counts:?}");
    }

    proptest! {
        #[test]
        fn no_two_copies_that_others_read_help_each_other(
            of in prop::collection::vec((0u32..40, 0u32..9, 1f64..1e6, 0f64..1e6, 0f64..1e6), 2)
        ) {
            let view = |n: usize| {
                let (in_flight, queued, service_us, rest_us, turn_us) = of[n];
                CopyView { in_flight, queued, rest_us, turn_us, ..copy(service_us) }
            };
            prop_assert!(!(view(0).helps(&view(1)) && view(1).helps(&view(0))));
        }

        #[test]
        fn no_unusable_copy_is_chosen_none_beyond_its_window_and_the_last_one_always(
            blocks in prop::collection::vec(
                (0u64..9, prop::collection::vec((any::<bool>(), 0u32..40, 0u32..9, 0f64..1e6, prop::option::of(0u64..1 << 30)), 3)),
                1..30,
            ),
            policy in prop::sample::select(&ReadPolicy::ALL),
        ) {
            let mut router = router(policy, 3);
            for (block, (left, copies)) in blocks.iter().enumerate() {
                let copies: Vec<_> = copies.iter().map(|(is_usable, in_flight, queued, service_us, peer)| {
                    let peer = peer.map(|done_bytes| Progress { done_bytes, ..OWN });
                    let (in_flight, queued) = (*in_flight, *queued);
                    CopyView { is_full: in_flight >= 20, in_flight, queued, peer, ..CopyView { is_usable: *is_usable, ..copy(*service_us) } }
                }).collect();
                let usable: Vec<_> = (0..3).filter(|n| copies[*n].is_usable).collect();
                match router.choose(block as u64, (OWN, *left), &copies) {
                    Some(n) => prop_assert!(copies[n].is_usable && !copies[n].is_full),
                    None if usable.len() == 1 => prop_assert!(copies[usable[0]].is_full),
                    None => {}
                }
            }
        }
    }
}
