//! What the kernel may hold in its page cache of one open file.
//!
//! Pure: it is told of every read, write and size on its way between the
//! kernel and the client, and says which pages have to be dropped first.
//!
//! Invariants, from which it follows that nobody sees zeros or old bytes
//! within a size that was shown:
//!
//! - **Size before pages.** A page that was filled when the file was shorter
//!   holds zeros behind the end of then. So does one that was cached when the
//!   kernel was told a smaller size. Each such *tail* is noted.
//!   Under leases those zeros are right as long as the page may be kept (who
//!   writes there recalls it first), except if a write of this mount passes the
//!   pages, or if the kernel may act on a smaller size after the page was filled:
//!   such a tail is *hot*. Beyond a hot tail a greater size is shown only after its
//!   page has been dropped. No other is dropped then: the kernel ignores the size in
//!   answers to what it asked before a drop, so who asked for it could read nothing there.
//! - **Own writes.** The kernel puts the bytes of a buffered write into its
//!   pages before it sends them. If such a page is dropped and read again before
//!   the write has taken effect, it holds what was there before: it is dropped
//!   once more before the write returns.
//!
//! - **One teacher.** A write past the pages tells the kernel the new size when it
//!   returns. An answer with attributes that told it before, or at the same time, would
//!   make it zero its page behind that size, some time later, when there may be more in
//!   it already. So the kernel is made to ignore the size in such answers.
//!
//! Everything that begins gets a number. A drop undoes what began before it,
//! because the kernel waits for pages that are being read.

use std::ops::Range;

/// The size of a page of the kernel.
pub(crate) const PAGE_BYTES: u64 = 4096;
/// Tails remembered of a file; more are taken for one at the least of them.
const MAX_TAILS: usize = 16;
/// Reads remembered that came after a drop.
const MAX_RECENT: usize = 32;
/// Ranges remembered that were read; more are taken for one that holds them all.
const MAX_FILLED: usize = 32;

/// A page may hold zeros from here on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tail {
    number: u64,
    at: u64,
    hot: bool,
    /// The thread that the kernel may yet let act on this size: one that asks
    /// for something else has done it.
    told: Option<u32>,
}

/// A read of pages that is being served.
#[derive(Debug)]
struct Read {
    number: u64,
    pages: Range<u64>,
    /// For this thread.
    by: u32,
    /// Where it ends if the file does not grow and it reaches so far.
    known_end: Option<u64>,
    /// It has the lease.
    entered: bool,
}

/// A write out of the page cache of a program that is being served.
#[derive(Debug)]
struct Write {
    number: u64,
    bytes: Range<u64>,
    /// Pages that a read may have filled with what was there before.
    met: Option<Range<u64>>,
}

/// See the top of the file.
#[derive(Debug, Default)]
pub(crate) struct FilePages {
    next: u64,
    /// Nobody else writes to what the pages show before they are dropped.
    leased: bool,
    tails: Vec<Tail>,
    /// What reads have put into pages, with their numbers.
    filled: Vec<(u64, Range<u64>)>,
    reads: Vec<Read>,
    writes: Vec<Write>,
    /// Writes past the pages: where the kernel thought the file to end before,
    /// and where it does when the last has returned.
    taught: Range<u64>,
    /// Such writes that are being served.
    passing: usize,
    /// Pages read since the last drop, while it is recent: a write may have
    /// filled them before that, and not have arrived yet.
    recent: Vec<Range<u64>>,
}

/// A drop that has to be done, or is being done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Drop {
    /// The bytes whose pages go.
    pub(crate) bytes: Range<u64>,
    /// What began up to here is undone.
    upto: u64,
}

/// The pages that hold any of these bytes, as bytes.
pub(crate) fn pages_of(bytes: &Range<u64>) -> Range<u64> {
    let start = bytes.start / PAGE_BYTES * PAGE_BYTES;
    start..bytes.end.checked_next_multiple_of(PAGE_BYTES).unwrap_or(u64::MAX)
}

fn meet(a: &Range<u64>, b: &Range<u64>) -> Option<Range<u64>> {
    let both = a.start.max(b.start)..a.end.min(b.end);
    (!both.is_empty()).then_some(both)
}

fn join(a: Option<Range<u64>>, b: Option<Range<u64>>) -> Option<Range<u64>> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.start.min(b.start)..a.end.max(b.end)),
        (a, b) => a.or(b),
    }
}

impl Tail {
    /// Whether the kernel may zero this page, which that read fills, after it.
    fn zeroes_under(&self, read: &Read) -> bool {
        self.told.is_some_and(|told| told != read.by || told == 0) && read.pages.contains(&self.at)
    }
}

impl FilePages {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Pages of a file that is used under leases, or not.
    pub(crate) fn new(leased: bool) -> Self {
        Self { leased, ..Self::default() }
    }

    /// The file was opened at this size, and the kernel keeps its pages.
    pub(crate) fn kept(&mut self, size: u64) {
        let number = self.number();
        self.fills(number, 0..size);
        self.push_tail(Tail { number, at: size, hot: !self.leased, told: None });
    }

    /// This mount has cut the file: the kernel zeroes what it has beyond.
    pub(crate) fn cut(&mut self, size: u64) {
        for (_, bytes) in &mut self.filled {
            bytes.end = bytes.end.min(size);
        }
        self.filled.retain(|(_, bytes)| !bytes.is_empty());
    }

    fn fills(&mut self, number: u64, bytes: Range<u64>) {
        if bytes.is_empty() {
            return;
        }
        // Reads in order become one.
        if let Some(last) = self.filled.last_mut()
            && last.1.start <= bytes.start
            && bytes.start <= last.1.end
        {
            *last = (last.0.max(number), last.1.start..last.1.end.max(bytes.end));
            return;
        }
        self.filled.push((number, bytes));
        if self.filled.len() > MAX_FILLED {
            let one = |(a, x): (u64, Range<u64>), (b, y): (u64, Range<u64>)| {
                (a.max(b), x.start.min(y.start)..x.end.max(y.end))
            };
            self.filled = self.filled.drain(..).reduce(one).into_iter().collect();
        }
    }

    /// A read begins for a thread; `size`: of the file, as far as known now.
    pub(crate) fn read_begins(&mut self, by: u32, bytes: Range<u64>, size: u64) -> u64 {
        let number = self.number();
        self.acted(by);
        let known_end = (bytes.end > size).then_some(size.max(bytes.start));
        let pages = pages_of(&bytes);
        for write in &mut self.writes {
            write.met = join(write.met.take(), meet(&pages_of(&write.bytes), &pages));
        }
        if self.recent.len() == MAX_RECENT {
            let all = self.recent.drain(..).fold(None, |all, one| join(all, Some(one)));
            self.recent.extend(all);
        }
        self.recent.push(pages.clone());
        self.reads.push(Read { number, pages, by, known_end, entered: false });
        number
    }

    /// It has the lease, and is going to see what is there now; or it has to get one
    /// anew.
    pub(crate) fn read_enters(&mut self, number: u64, entered: bool) {
        if let Some(read) = self.reads.iter_mut().find(|read| read.number == number) {
            read.entered = entered;
        }
    }

    /// It brought the bytes up to here (of which there are none beyond, if it
    /// was asked for more).
    pub(crate) fn read_ends(&mut self, number: u64, asked: u64, brought: u64) {
        let Some(index) = self.reads.iter().position(|read| read.number == number) else { return };
        let read = self.reads.swap_remove(index);
        self.fills(number, read.pages.start..brought);
        for tail in &mut self.tails {
            // The kernel may yet act on that size.
            tail.hot |= tail.zeroes_under(&read) && brought > tail.at;
        }
        if brought < asked {
            self.push_tail(Tail { number, at: brought, hot: !self.leased, told: None });
        }
    }

    /// A write that went through the kernel's pages begins to be served.
    /// `drops_are_recent`: pages of the file were dropped a moment ago.
    pub(crate) fn write_begins(&mut self, bytes: Range<u64>, drops_are_recent: bool) -> u64 {
        let number = self.number();
        let pages = pages_of(&bytes);
        let mut met = None;
        for read in &self.reads {
            met = join(met, meet(&pages, &read.pages));
        }
        if !drops_are_recent {
            self.recent.clear();
        }
        for read in &self.recent {
            met = join(met, meet(&pages, read));
        }
        self.writes.push(Write { number, bytes, met });
        number
    }

    /// It has taken effect, or failed. What to drop before it returns.
    pub(crate) fn write_works(&mut self, number: u64) -> Option<Drop> {
        let write = self.writes.iter_mut().find(|write| write.number == number)?;
        // What it put over the zeros of a tail is in the page.
        let (bytes, met) = (write.bytes.clone(), write.met.take());
        let mut moved = false;
        self.tails.retain(|tail| {
            let over = tail.number < number && bytes.contains(&tail.at);
            moved |= over && tail.at / PAGE_BYTES == bytes.end / PAGE_BYTES;
            !over
        });
        if moved {
            self.push_tail(Tail { number, at: bytes.end, hot: !self.leased, told: None });
        }
        met.map(|bytes| Drop { bytes, upto: self.next })
    }

    /// It returns.
    pub(crate) fn write_ends(&mut self, number: u64) {
        self.writes.retain(|write| write.number != number);
    }

    /// What to drop before the kernel is told this size (or finds it out: an
    /// append has made the file so long).
    pub(crate) fn before(&self, size: u64) -> Option<Drop> {
        // What passes the pages recalls no lease of its own mount.
        let all = !self.leased || self.passing > 0;
        let fills = |tail: &Tail| self.reads.iter().any(|read| tail.zeroes_under(read));
        let counts = |tail: &&Tail| all || tail.hot || fills(tail);
        let tails = self.tails.iter().filter(counts).map(|tail| tail.at);
        let ends = self.reads.iter().filter(|_| all).filter_map(|read| read.known_end);
        let least = tails.chain(ends).filter(|at| *at < size).min()?;
        let bytes = least / PAGE_BYTES * PAGE_BYTES..u64::MAX;
        Some(Drop { bytes, upto: self.next })
    }

    /// A thread of the kernel is being told this size: it zeroes what it has beyond.
    pub(crate) fn shown(&mut self, by: u32, size: u64) {
        self.acted(by);
        if self.tails.iter().any(|tail| tail.at == size) {
            self.tails.retain(|tail| tail.at != size);
        }
        // The pages may be newer than the answer.
        let newer = self.filled.iter().any(|(_, bytes)| bytes.contains(&size));
        let (number, hot) = (self.number(), newer || !self.leased);
        self.push_tail(Tail { number, at: size, hot, told: Some(by) });
    }

    /// A thread asks: it is done with what it was told before.
    fn acted(&mut self, by: u32) {
        // Nobody knows which thread 0 is.
        for tail in self.tails.iter_mut().filter(|_| by != 0) {
            tail.told.take_if(|told| *told == by);
        }
    }

    /// A write past the kernel's pages begins to be served; the kernel believes
    /// that these are its bytes.
    pub(crate) fn passes(&mut self, bytes: &Range<u64>) {
        self.taught.start = self.taught.start.max(bytes.start);
        self.taught.end = self.taught.end.max(bytes.end);
        self.passing += 1;
    }

    /// It has been served.
    pub(crate) fn passed(&mut self) {
        self.passing -= 1;
    }

    /// The kernel knows all that it was taught, or never will: it may be told
    /// other sizes.
    pub(crate) fn learned(&mut self) {
        if self.passing == 0 {
            self.taught = 0..0;
        }
    }

    /// Whether the kernel is finding out this size by itself.
    pub(crate) fn finds_out(&self, size: u64) -> bool {
        self.taught.start < size && size <= self.taught.end
    }

    fn push_tail(&mut self, tail: Tail) {
        if tail.at.is_multiple_of(PAGE_BYTES) {
            return;
        }
        self.tails.push(tail);
        if self.tails.len() > MAX_TAILS {
            // Each kind becomes one, at the least of its places. Too many threads: the
            // kernel may zero late for any.
            for tail in &mut self.tails {
                tail.hot |= tail.told.is_some();
            }
            let mut kinds: [Option<Tail>; 2] = [None, None];
            for tail in self.tails.drain(..) {
                let kind = &mut kinds[usize::from(tail.hot)];
                let known = kind.unwrap_or(tail);
                let (number, at) = (known.number.max(tail.number), known.at.min(tail.at));
                *kind = Some(Tail { number, at, ..tail });
            }
            self.tails.extend(kinds.into_iter().flatten());
        }
    }

    /// A drop of these bytes begins.
    pub(crate) fn drop_begins(&mut self, bytes: Range<u64>) -> Drop {
        self.recent.clear();
        Drop { bytes: pages_of(&bytes), upto: self.number() }
    }

    /// The kernel has done it.
    pub(crate) fn dropped(&mut self, drop: &Drop) {
        self.tails.retain(|tail| tail.number > drop.upto || !drop.bytes.contains(&tail.at));
        for (number, bytes) in std::mem::take(&mut self.filled) {
            let left = match meet(&bytes, &drop.bytes) {
                Some(both) if number <= drop.upto => without(&bytes, &[both]),
                _ => vec![bytes],
            };
            self.filled.extend(left.into_iter().map(|left| (number, left)));
        }
    }

    /// Pages among these that requests in progress may hold locked, while they wait
    /// for the very lease that is being given up. Locked, such a page shows nothing to
    /// anybody. Of a write it is the last page, if that is not filled: it is
    /// read anew afterwards. Of a read they are all, if it has no lease yet: it will see what
    /// is there when it has one.
    pub(crate) fn held(&self, bytes: &Range<u64>) -> Vec<Range<u64>> {
        let partial = self.writes.iter().filter_map(|write| {
            let last = write.bytes.end.saturating_sub(1) / PAGE_BYTES * PAGE_BYTES;
            let fills = write.bytes.end.is_multiple_of(PAGE_BYTES) && write.bytes.start <= last;
            (!fills).then_some(last..last.saturating_add(PAGE_BYTES))
        });
        let waiting = self.reads.iter().filter(|read| !read.entered).map(|read| read.pages.clone());
        let mut held: Vec<_> = partial.chain(waiting).filter_map(|one| meet(&one, bytes)).collect();
        held.sort_by_key(|one| one.start);
        let mut apart: Vec<Range<u64>> = Vec::with_capacity(held.len());
        for one in held {
            match apart.last_mut() {
                Some(last) if one.start <= last.end => last.end = last.end.max(one.end),
                _ => apart.push(one),
            }
        }
        apart
    }
}

/// What is left of a range without these (in order).
pub(crate) fn without(bytes: &Range<u64>, held: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut left = Vec::new();
    let mut from = bytes.start;
    for held in held {
        if from < held.start {
            left.push(from..held.start);
        }
        from = held.end;
    }
    if from < bytes.end {
        left.push(from..bytes.end);
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_greater_size_waits_for_the_page_that_held_the_old_end() {
        let mut pages = FilePages::default();
        let read = pages.read_begins(2, 4096..8192, 5000);
        // In flight it counts already.
        assert_eq!(pages.before(5001).unwrap().bytes, 4096..u64::MAX);
        pages.read_ends(read, 8192, 5000);
        assert_eq!(pages.before(5000), None);
        let drop = pages.before(5100).unwrap();
        pages.dropped(&drop);
        assert_eq!(pages.before(5100), None);
        // Shown, it is an end itself: the kernel zeroes what is beyond.
        pages.shown(1, 5100);
        assert!(pages.before(5200).is_some());
        assert_eq!(pages.before(5100), None);
    }

    #[test]
    fn a_drop_does_not_undo_what_began_after_it() {
        let mut pages = FilePages::default();
        pages.shown(1, 100);
        let drop = pages.drop_begins(0..u64::MAX);
        let read = pages.read_begins(2, 0..4096, 100);
        pages.read_ends(read, 4096, 150);
        pages.dropped(&drop);
        assert_eq!(pages.before(150), None);
        assert!(pages.before(151).is_some());
    }

    #[test]
    fn what_is_written_through_the_pages_needs_no_drop() {
        let mut pages = FilePages::default();
        pages.shown(1, 100);
        let write = pages.write_begins(100..300, false);
        assert_eq!(pages.write_works(write), None);
        pages.write_ends(write);
        assert_eq!(pages.before(300), None);
        assert!(pages.before(301).is_some(), "an append past it does");
        let write = pages.write_begins(300..9000, false);
        assert_eq!(pages.write_works(write), None);
        pages.write_ends(write);
        assert_eq!(pages.before(20_000), None);
    }

    #[test]
    fn a_page_that_was_read_under_a_write_is_dropped_after_it() {
        let mut pages = FilePages::default();
        let write = pages.write_begins(0..8192, false);
        let read = pages.read_begins(2, 4096..16_384, 1 << 20);
        pages.read_ends(read, 16_384, 16_384);
        assert_eq!(pages.write_works(write).unwrap().bytes, 4096..8192);
        pages.write_ends(write);
        // The same if the read was there first, or came just before, after a drop.
        let read = pages.read_begins(2, 0..4096, 1 << 20);
        let write = pages.write_begins(0..8192, false);
        pages.read_ends(read, 4096, 4096);
        assert_eq!(pages.write_works(write).unwrap().bytes, 0..4096);
        pages.write_ends(write);
        pages.drop_begins(0..u64::MAX);
        let read = pages.read_begins(2, 0..4096, 1 << 20);
        pages.read_ends(read, 4096, 4096);
        let write = pages.write_begins(10..20, true);
        assert_eq!(pages.write_works(write).unwrap().bytes, 0..4096);
        pages.write_ends(write);
        let write = pages.write_begins(10..20, false);
        assert_eq!(pages.write_works(write), None);
        pages.write_ends(write);
    }

    #[test]
    fn held_is_what_a_request_without_a_lease_may_have_locked() {
        let mut pages = FilePages::default();
        let all = 0..u64::MAX;
        let whole = pages.write_begins(0..8192, false);
        assert!(pages.held(&all).is_empty());
        pages.write_ends(whole);
        pages.write_begins(100..8200, false);
        pages.write_begins(5..4096, false);
        assert_eq!(pages.held(&all), [0..4096, 8192..12_288]);
        let read = pages.read_begins(2, 12_288..20_480, 1 << 20);
        assert_eq!(pages.held(&all), [0..4096, 8192..20_480]);
        pages.read_enters(read, true);
        assert_eq!(pages.held(&all), [0..4096, 8192..12_288]);
        pages.read_enters(read, false);
        assert_eq!(pages.held(&all), [0..4096, 8192..20_480]);
        pages.read_enters(read, true);
        assert_eq!(without(&(0..20_480), &pages.held(&all)), [4096..8192, 12_288..20_480]);
        assert_eq!(without(&(0..4096), &pages.held(&(0..4096))), Vec::<Range<u64>>::new());
    }

    #[test]
    fn the_kernel_learns_a_size_from_the_write_that_makes_it() {
        let mut pages = FilePages::default();
        assert!(!pages.finds_out(10));
        pages.passes(&(10..30));
        assert!(!pages.finds_out(10) && pages.finds_out(30));
        assert!(!pages.finds_out(31), "what others have appended it has to be told");
        pages.passes(&(30..50));
        assert!(!pages.finds_out(30) && pages.finds_out(50));
        pages.learned();
        assert!(pages.finds_out(50), "they are under way");
        pages.passed();
        pages.passed();
        pages.learned();
        assert!(!pages.finds_out(50));
    }

    #[test]
    fn under_leases_only_what_the_kernel_may_zero_late_is_dropped_before_a_size() {
        let mut pages = FilePages::new(true);
        pages.shown(1, 5000);
        let read = pages.read_begins(2, 4096..8192, 5000);
        pages.read_ends(read, 8192, 5000);
        assert_eq!(pages.before(6000), None, "zeros under a lease");
        // Others have written there since: recalled, and read anew.
        let drop = pages.drop_begins(4096..8192);
        pages.dropped(&drop);
        pages.shown(1, 5000);
        let read = pages.read_begins(2, 4096..8192, 6000);
        pages.read_ends(read, 8192, 6000);
        assert_eq!(pages.before(6000).unwrap().bytes, 4096..u64::MAX);
        // Whoever was told has come back since: no late answer.
        let drop = pages.drop_begins(4096..8192);
        pages.dropped(&drop);
        pages.shown(1, 5000);
        let read = pages.read_begins(1, 4096..8192, 6000);
        pages.read_ends(read, 8192, 6000);
        assert_eq!(pages.before(6000), None);
        let read = pages.read_begins(2, 4096..8192, 6000);
        pages.read_ends(read, 8192, 6000);
        assert_eq!(pages.before(6000), None);
        // Cut by this mount, and read by nobody since.
        pages.shown(1, 6000);
        let read = pages.read_begins(2, 4096..8192, 6000);
        pages.read_ends(read, 8192, 6000);
        pages.cut(4500);
        pages.shown(1, 4500);
        assert_eq!(pages.before(7000), None);
        // What passes the pages recalls nothing.
        pages.passes(&(4500..4600));
        assert!(pages.before(4600).is_some());
        pages.passed();
        // An answer from before what is in the page.
        let drop = pages.drop_begins(0..u64::MAX);
        pages.dropped(&drop);
        let read = pages.read_begins(2, 4096..8192, 4600);
        pages.read_ends(read, 8192, 4600);
        pages.shown(1, 4550);
        assert!(pages.before(4600).is_some());
    }

    /// A kernel with one page, and a file that grows within it. The kernel may
    /// take its time to act on each answer.
    #[derive(Clone, Debug)]
    enum Step {
        Append(u64),
        Read,
        Install,
        Show,
        Learn,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (1u64..50).prop_map(Step::Append),
            Just(Step::Read),
            Just(Step::Install),
            Just(Step::Show),
            Just(Step::Learn),
        ]
    }

    proptest! {
        #[test]
        fn no_zeros_are_seen_within_the_size_that_was_shown(
            leased in any::<bool>(),
            steps in proptest::collection::vec(step(), 1..200)
        ) {
            let mut pages = FilePages::new(leased);
            let mut size = 10u64;
            // Of the kernel: its size, up to where its page is right, answers that it
            // has not acted upon, and where it cuts the page when it gets at it.
            let mut believed = 10u64;
            let mut good: Option<u64> = None;
            let mut reading: Option<(u64, u64)> = None;
            let mut told: Option<(u64, bool)> = None;
            let mut cut = u64::MAX;
            pages.shown(1, 10);
            for step in steps {
                match step {
                    Step::Append(n) if size + n < 4096 => {
                        // The lease on the page is recalled: the kernel waits for the page
                        // that is being read, drops it, and ignores attributes asked for before.
                        if leased && (good.is_some() || reading.is_some()) {
                            let drop = pages.drop_begins(0..4096);
                            if let Some((number, brought)) = reading.take() {
                                pages.read_ends(number, 4096, brought);
                            }
                            (good, cut) = (None, u64::MAX);
                            told = told.map(|(size, _)| (size, false));
                            pages.dropped(&drop);
                        }
                        size += n;
                    }
                    Step::Append(_) => {}
                    Step::Read if reading.is_none() && good.is_none() => {
                        let number = pages.read_begins(2, 0..4096, size);
                        reading = Some((number, size));
                        cut = u64::MAX;
                    }
                    Step::Install => {
                        if let Some((number, brought)) = reading.take() {
                            pages.read_ends(number, 4096, brought);
                            good = Some(brought.min(cut));
                        }
                    }
                    Step::Show if told.is_none() => {
                        let mut fresh = true;
                        if let Some(drop) = pages.before(size) {
                            if let Some((number, brought)) = reading.take() {
                                pages.read_ends(number, 4096, brought);
                            }
                            (good, cut) = (None, u64::MAX);
                            fresh = false;
                            pages.dropped(&drop);
                        }
                        pages.shown(1, size);
                        told = Some((size, fresh));
                    }
                    Step::Learn => {
                        if let Some((told, true)) = told.take()
                            && told != believed
                        {
                            believed = told;
                            cut = told;
                            good = good.map(|good| good.min(told));
                        }
                    }
                    Step::Read | Step::Show => {}
                }
                if let Some(good) = good {
                    prop_assert!(good >= believed, "{good} of {believed}");
                }
            }
        }
    }
}
