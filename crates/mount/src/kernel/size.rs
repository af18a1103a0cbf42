//! The size of an open file, as the kernel knows it.
//!
//! Pure: it is told what the kernel is told, and says what has to happen first.
//!
//! Before the kernel uses a size (for a read past its known end, for `SEEK_END`), it asks for
//! attributes. But it ignores the size in the reply if pages of the file were dropped, or if it got
//! other news of the file, between its request and its handling of the reply. It would then read
//! nothing where there are bytes. So growth is not left to replies.
//!
//! Invariants:
//!
//! - **Never too small.** The kernel's size is at least [`KernelSize::least`]. It is made to raise
//!   its size before it is told a greater one.
//! - **In order.** Sizes are told in the order in which they were true. A reply that was fetched
//!   before another size was told is fetched again, and no reply is sent while the kernel is
//!   raising its size.
//! - **No bytes of others are cut.** After a failed direct write past its end the kernel truncates
//!   the file to its known size. Only the next request of the same thread can be that. A program
//!   may ask for the same size: it is never told that this was done when it was not.

use std::ops::Range;
use std::time::{Duration, Instant};

/// A thread of the kernel handles a reply within this time.
const ACTS: Duration = Duration::from_secs(2);
/// The most remembered replies that the kernel may still handle; beyond it only the least.
const MAX_UNSETTLED: usize = 16;

/// The kernel takes a failed write back within this time after its last piece.
const TAKES_BACK: Duration = Duration::from_secs(30);
/// The most remembered failed writes.
const MAX_FAILED: usize = 16;

/// Time at which a request for a size began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark(u64);

/// Kind of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// A reply to a request for attributes.
    Attributes,
    /// A reply to a change of attributes. The kernel always uses the size in it.
    Change,
    /// A reply without attributes.
    Other,
}

/// What to do with a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tell {
    /// Tell it.
    Now,
    /// Make the kernel raise its size, report that with [`KernelSize::raised`], and tell it.
    Raise,
    /// Fetch it again: it may be old.
    AskAgain,
}

/// A size in a reply that makes the file shorter, or in a reply to a change.
#[derive(Clone, Copy, Debug)]
struct Unsettled {
    by: u32,
    size: u64,
    at: Instant,
}

/// A failed write that bypassed the page cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failed {
    /// Its thread.
    pub(crate) by: u32,
    /// Its handle.
    pub(crate) fh: u64,
    /// The size that the kernel knew then; `None` if unknown.
    pub(crate) size: Option<u64>,
}

impl Failed {
    /// Whether setting this size may be the kernel taking the write back: the size is never less
    /// than the kernel knew. (It may be more than the end of the write, because the kernel may have
    /// been told since of writes of others.)
    fn may_be_taken_back(&self, size: u64) -> bool {
        self.size.is_none_or(|was| size >= was)
    }
}

/// The size of one open file; see the top of the file.
#[derive(Debug)]
pub(crate) struct KernelSize {
    floor: u64,
    /// Whether the kernel was told a size before the file was open, at the lookup, so that its
    /// least size is not assured.
    granted: bool,
    last: u64,
    /// Incremented with each different size that is told.
    number: u64,
    raising: bool,
    /// A write of a thread up to here, after which that thread raises the size.
    written: Option<(u32, u64)>,
    /// The end of the last write that bypassed the pages, if the kernel knows of it and was told no
    /// smaller size since.
    passed: Option<u64>,
    unsettled: Vec<Unsettled>,
    /// Failed writes that the kernel may take back, with the time of the last reply to a piece.
    failed: Vec<(Failed, Instant)>,
}

impl KernelSize {
    /// For a file that is opened with this size.
    pub(crate) fn new(size: u64) -> Self {
        Self {
            floor: size,
            granted: true,
            last: size,
            number: 0,
            raising: false,
            written: None,
            passed: None,
            unsettled: Vec::new(),
            failed: Vec::new(),
        }
    }

    /// The kernel's size is at least this.
    pub(crate) fn least(&self) -> u64 {
        self.unsettled.iter().map(|told| told.size).fold(self.floor, u64::min)
    }

    /// Whether the kernel is raising its size.
    pub(crate) fn is_raising(&self) -> bool {
        self.raising
    }

    /// A mark, to be taken before a size is fetched.
    pub(crate) fn mark(&self) -> Mark {
        Mark(self.number)
    }

    /// Records a request of a thread, which has handled its earlier reply.
    pub(crate) fn asks(&mut self, by: u32, now: Instant) {
        // Nobody knows which thread 0 is.
        if let Some((_, end)) = self.written.take_if(|(writer, _)| by != 0 && *writer == by) {
            self.floor = self.floor.max(end);
        }
        let settled = |told: &Unsettled| by != 0 && told.by == by || now > told.at + ACTS;
        self.unsettled.retain(|told| !settled(told));
        self.failed.retain(|(failed, _)| by == 0 || failed.by != by);
    }

    /// Records a failed write that bypassed the pages: the next size that its thread sets may be
    /// the kernel's.
    pub(crate) fn fails(&mut self, failed: Failed, now: Instant) {
        self.failed.retain(|(known, at)| known.by != failed.by && now <= *at + TAKES_BACK);
        if self.failed.len() == MAX_FAILED {
            self.failed.remove(0);
        }
        self.failed.push((failed, now));
    }

    /// Records the reply to a write of this thread that bypassed the pages, possibly another piece
    /// of a failing one.
    pub(crate) fn passes(&mut self, by: u32, end: u64, now: Instant) {
        self.passed = Some(end);
        for (_, at) in self.failed.iter_mut().filter(|(failed, _)| failed.by == by) {
            *at = now;
        }
    }

    /// Whether the kernel, which appends at its known end, has no unserved append before this
    /// offset.
    pub(crate) fn appends_here(&self, offset: u64) -> bool {
        offset <= self.least() || (self.passed == Some(offset) && self.unsettled.is_empty())
    }

    /// Whether a size that this thread sets through this handle may be the kernel taking a failed
    /// write back. It does so once: a later size is a program's.
    pub(crate) fn may_take_back(&mut self, by: u32, fh: u64, size: u64, now: Instant) -> bool {
        let index = self.failed.iter().position(|(failed, _)| failed.by == by && failed.fh == fh);
        let (failed, at) = match index {
            Some(index) => self.failed.swap_remove(index),
            None => return false,
        };
        now <= at + TAKES_BACK && failed.may_be_taken_back(size)
    }

    /// What to do before a thread of the kernel is told this size, which was fetched at that mark
    /// (`None` if unknown). Not while the size is being raised.
    pub(crate) fn tell(
        &mut self,
        by: u32,
        size: u64,
        asked: Option<Mark>,
        to: Answer,
        now: Instant,
    ) -> Tell {
        self.asks(by, now);
        if size != self.last && asked != Some(self.mark()) {
            return Tell::AskAgain;
        }
        self.passed.take_if(|end| *end > size);
        if size != self.last {
            self.number += 1;
            self.last = size;
        }
        if to == Answer::Change {
            self.sets(by, size, now);
        } else if size > self.least() {
            self.raising = true;
            return Tell::Raise;
        } else if size < self.floor && to == Answer::Attributes {
            self.sets(by, size, now);
        }
        Tell::Now
    }

    /// Whether this size is no news to the kernel.
    pub(crate) fn tells_nothing_new(&mut self, by: u32, size: u64, now: Instant) -> bool {
        self.asks(by, now);
        size == self.last && size == self.floor && size == self.least()
    }

    /// Records that the kernel will use this size when it handles the reply.
    fn sets(&mut self, by: u32, size: u64, now: Instant) {
        if self.unsettled.len() == MAX_UNSETTLED {
            let least = self.unsettled.drain(..).map(|told| told.size).fold(size, u64::min);
            self.unsettled.push(Unsettled { by: 0, size: least, at: now });
        }
        self.unsettled.push(Unsettled { by, size, at: now });
        if size > self.floor {
            self.written = Some((by, size));
        }
        self.ends(size);
    }

    /// Records that the kernel has raised its size (or that this has failed).
    pub(crate) fn raised(&mut self, size: Option<u64>) {
        if let Some(size) = size {
            self.floor = self.floor.max(size);
            self.granted = false;
        }
        self.raising = false;
        self.number += 1;
    }

    /// Records that the kernel finds the file's end here.
    pub(crate) fn ends(&mut self, at: u64) {
        self.floor = self.floor.min(at);
        self.written.take_if(|(_, end)| *end > at);
        self.passed.take_if(|end| *end > at);
    }

    /// Records the reply to a write of this thread up to here.
    pub(crate) fn writes(&mut self, by: u32, end: u64) {
        if end > self.floor {
            self.written = Some((by, end));
        }
    }

    /// Records a drop of pages: the kernel ignores sizes in replies under way.
    pub(crate) fn drops(&mut self) {
        if self.granted {
            self.floor = 0;
        }
    }

    /// Whether the kernel may still put zeros over bytes that a thread has read up to there into
    /// these pages, because it was told a smaller size.
    pub(crate) fn may_cut(&self, by: u32, pages: &Range<u64>, brought: u64) -> bool {
        self.unsettled.iter().any(|told| {
            (told.by != by || by == 0) && pages.contains(&told.size) && told.size < brought
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ASKED: Answer = Answer::Attributes;

    #[test]
    fn a_size_that_grew_elsewhere_is_raised_before_it_is_told() {
        let now = Instant::now();
        let mut size = KernelSize::new(100);
        assert_eq!(size.tell(1, 100, None, ASKED, now), Tell::Now);
        assert_eq!(size.tell(1, 200, Some(size.mark()), ASKED, now), Tell::Raise);
        assert!(size.is_raising());
        size.raised(Some(200));
        assert_eq!(size.tell(1, 200, None, ASKED, now), Tell::Now);
        assert_eq!(size.tell(1, 50, Some(size.mark()), ASKED, now), Tell::Now);
        assert_eq!(size.tell(1, 60, Some(size.mark()), ASKED, now), Tell::Raise);
        // In vain.
        size.raised(None);
        assert_eq!(size.tell(1, 60, None, ASKED, now), Tell::Raise);
    }

    #[test]
    fn who_asked_before_another_size_was_told_asks_again() {
        let now = Instant::now();
        let mut size = KernelSize::new(100);
        let mark = Some(size.mark());
        assert_eq!(size.tell(1, 50, mark, ASKED, now), Tell::Now);
        assert_eq!(size.tell(2, 120, mark, ASKED, now), Tell::AskAgain);
        assert_eq!(size.tell(2, 50, mark, ASKED, now), Tell::Now);
        let mark = Some(size.mark());
        assert_eq!(size.tell(2, 120, mark, ASKED, now), Tell::Raise);
        let mark = Some(size.mark());
        size.raised(Some(120));
        assert_eq!(size.tell(3, 70, mark, ASKED, now), Tell::AskAgain, "asked while it rose");
        assert_eq!(size.tell(3, 70, None, ASKED, now), Tell::AskAgain);
    }

    #[test]
    fn what_its_own_thread_wrote_or_set_need_not_be_raised() {
        let now = Instant::now();
        let mut size = KernelSize::new(0);
        size.writes(1, 10);
        assert_eq!(size.tell(1, 10, Some(size.mark()), ASKED, now), Tell::Now);
        size.writes(1, 20);
        // Another's may come before the writer's thread has.
        assert_eq!(size.tell(2, 20, Some(size.mark()), ASKED, now), Tell::Raise);
        size.raised(Some(20));
        assert_eq!(size.tell(1, 30, Some(size.mark()), Answer::Change, now), Tell::Now);
        assert_eq!(size.tell(1, 30, None, ASKED, now), Tell::Now);
        // A write that a cut has undone.
        size.writes(1, 40);
        assert_eq!(size.tell(2, 5, Some(size.mark()), Answer::Change, now), Tell::Now);
        size.asks(1, now);
        assert_eq!(size.tell(2, 40, Some(size.mark()), ASKED, now), Tell::Raise);
    }

    #[test]
    fn an_answer_that_cuts_counts_until_its_thread_comes_back() {
        let now = Instant::now();
        let mut size = KernelSize::new(100);
        assert_eq!(size.tell(1, 50, Some(size.mark()), ASKED, now), Tell::Now);
        assert_eq!(size.tell(2, 80, Some(size.mark()), ASKED, now), Tell::Raise);
        size.raised(Some(80));
        assert_eq!(size.least(), 50);
        assert_eq!(size.tell(2, 80, None, ASKED, now), Tell::Raise, "it may have cut since");
        size.raised(Some(80));
        assert!(size.may_cut(2, &(0..4096), 80));
        assert!(!size.may_cut(1, &(0..4096), 80) && !size.may_cut(2, &(0..4096), 50));
        size.asks(1, now);
        assert_eq!(size.tell(2, 80, None, ASKED, now), Tell::Now);
        // Of thread 0 nobody knows, but it does not take for ever.
        assert_eq!(size.tell(0, 50, Some(size.mark()), ASKED, now), Tell::Now);
        size.asks(0, now);
        assert_eq!(size.tell(2, 80, Some(size.mark()), ASKED, now), Tell::Raise);
        size.raised(Some(80));
        let later = now + ACTS + Duration::from_millis(1);
        assert_eq!(size.tell(2, 80, None, ASKED, later), Tell::Now);
    }

    #[test]
    fn what_was_told_before_the_open_is_not_relied_upon_after_a_drop() {
        let now = Instant::now();
        let mut size = KernelSize::new(100);
        size.drops();
        assert_eq!(size.tell(1, 100, None, ASKED, now), Tell::Raise);
        size.raised(Some(100));
        size.drops();
        assert_eq!(size.tell(1, 100, None, ASKED, now), Tell::Now);
    }

    #[test]
    fn only_what_the_kernel_sets_after_a_failed_write_takes_that_back() {
        let (now, mib) = (Instant::now(), 1 << 20);
        let failed = |size| Failed { by: 1, fh: 7, size };
        let mut size = KernelSize::new(0);
        let sets = |size: &mut KernelSize, was, by, fh, to, at: Instant| {
            size.fails(failed(was), now);
            size.may_take_back(by, fh, to, at)
        };
        assert!(sets(&mut size, Some(mib), 1, 7, mib, now));
        assert!(!size.may_take_back(1, 7, mib, now), "it does so once");
        // It knew of more than there is, or heard later of what others wrote: anywhere.
        assert!(sets(&mut size, Some(mib), 1, 7, 2 * mib, now));
        assert!(sets(&mut size, Some(mib), 1, 7, 640 * mib, now));
        assert!(!sets(&mut size, Some(mib), 1, 7, 0, now), "a program cuts");
        assert!(!sets(&mut size, Some(mib), 2, 7, mib, now));
        assert!(!sets(&mut size, Some(mib), 1, 8, mib, now));
        assert!(sets(&mut size, None, 1, 7, 0, now));
        let late = now + TAKES_BACK + Duration::from_millis(1);
        assert!(!sets(&mut size, Some(mib), 1, 7, mib, late));
        // Its other pieces may be answered later.
        size.fails(failed(Some(mib)), now);
        size.passes(1, 65 * mib, late);
        assert!(size.may_take_back(1, 7, 64 * mib, late));
        // The thread goes on.
        size.fails(failed(Some(mib)), now);
        size.asks(1, now);
        assert!(!size.may_take_back(1, 7, mib, now));
    }

    #[test]
    fn many_answers_under_way_are_remembered_by_their_least() {
        let now = Instant::now();
        let mut size = KernelSize::new(1000);
        for i in 0..100 {
            let to = 999 - u64::from(i);
            assert_eq!(size.tell(i + 1, to, Some(size.mark()), ASKED, now), Tell::Now);
        }
        assert!(size.unsettled.len() <= MAX_UNSETTLED);
        assert_eq!(size.least(), 900);
    }

    /// One thread asks while others change the file and pages are dropped at any
    /// moment.
    #[derive(Clone, Debug)]
    enum Step {
        Change(u64),
        Drop,
        Ask,
        Hear,
        Tell,
        Act,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0u64..1000).prop_map(Step::Change),
            Just(Step::Drop),
            Just(Step::Ask),
            Just(Step::Hear),
            Just(Step::Tell),
            Just(Step::Act),
        ]
    }

    proptest! {
        #[test]
        fn whoever_asks_finds_the_file_no_shorter_than_it_was_since(
            steps in proptest::collection::vec(step(), 1..200)
        ) {
            let now = Instant::now();
            let mut mount = KernelSize::new(10);
            let mut file = 10u64;
            // Of the kernel: its size, and what it has heard of the file.
            let (mut believed, mut version) = (10u64, 0u64);
            // The question under way: what the kernel had heard, the least size since; what
            // the mount has found, at what mark; what it was told.
            let mut question: Option<(u64, u64)> = None;
            let mut found: Option<(u64, Mark)> = None;
            let mut told: Option<u64> = None;
            for step in steps {
                match step {
                    Step::Change(size) => file = size,
                    Step::Drop => {
                        version += 1;
                        mount.drops();
                    }
                    Step::Ask if question.is_none() => question = Some((version, file)),
                    Step::Hear if question.is_some() && told.is_none() => {
                        found = Some((file, mount.mark()));
                    }
                    Step::Tell => {
                        if let Some((size, mark)) = found.take() {
                            match mount.tell(1, size, Some(mark), ASKED, now) {
                                Tell::AskAgain => continue,
                                Tell::Raise => {
                                    if size > believed {
                                        (believed, version) = (size, version + 1);
                                    }
                                    mount.raised(Some(size));
                                }
                                Tell::Now => {}
                            }
                            told = Some(size);
                        }
                    }
                    Step::Act => {
                        if let (Some(size), Some((heard, least))) = (told, question) {
                            if version <= heard {
                                (believed, version) = (size, version + 1);
                            }
                            prop_assert!(believed >= least, "{believed} of {least}");
                            (told, question) = (None, None);
                        }
                    }
                    Step::Ask | Step::Hear => {}
                }
                if let Some((_, least)) = &mut question {
                    *least = (*least).min(file);
                }
            }
        }
    }
}
