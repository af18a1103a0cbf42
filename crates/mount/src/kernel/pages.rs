//! What the kernel may hold in its page cache of one open file.
//!
//! Pure: it is told of every read, write and size between the kernel and the client, and says which
//! pages have to be dropped first.
//!
//! Invariants, from which follows that no program sees zeros or old bytes within a size that was
//! shown:
//!
//! - **Nothing unknown.** Every page that the kernel has is in `cached`, or about to be. (A page
//!   filled by a write that has not arrived yet holds the bytes of that write.) So nothing else
//!   needs to be dropped.
//! - **Size before pages.** A page that was filled when the file was shorter holds zeros behind the
//!   old end. Under leases those are right as long as the page may be kept, because a writer
//!   elsewhere recalls the lease first. But a write of the own mount that bypasses the page cache
//!   recalls nothing: the pages at its place are dropped before it returns, and, while it is being
//!   served, also before the kernel is told a greater size. Without leases they always are.
//! - **Own writes.** The kernel puts the bytes of a buffered write into its pages before it sends
//!   them. If such a page is dropped and read again before the write has taken effect, it holds the
//!   old bytes: it is dropped once more before the write returns.
//!
//! Each event gets a number. A drop undoes what began before it, because the kernel waits for pages
//! that are being read.

use crate::kernel::size::KernelSize;
use std::ops::Range;

/// The kernel's page size, bytes.
pub(crate) const PAGE_BYTES: u64 = 4096;
/// The most remembered reads after a drop.
const MAX_RECENT: usize = 32;
/// The most remembered ranges of cached pages. Beyond it they are merged into one.
const MAX_CACHED: usize = 32;

/// A read of pages in progress.
#[derive(Debug)]
struct Read {
    number: u64,
    pages: Range<u64>,
    /// The reading thread.
    by: u32,
    /// Whether it has the lease.
    entered: bool,
}

/// A write from the page cache in progress.
#[derive(Debug)]
struct Write {
    number: u64,
    bytes: Range<u64>,
    /// Pages that a read may have filled with old bytes.
    met: Option<Range<u64>>,
}

/// The pages of one open file; see the top of the file.
#[derive(Debug)]
pub(crate) struct FilePages {
    next: u64,
    /// Whether no other client writes to shown pages before they are dropped.
    leased: bool,
    /// The size as the kernel knows it.
    pub(crate) size: KernelSize,
    /// Pages that the kernel may hold, with the number of the event that filled them.
    cached: Vec<(u64, Range<u64>)>,
    reads: Vec<Read>,
    writes: Vec<Write>,
    /// Number of writes in progress that bypass the page cache.
    passing: usize,
    /// Pages read since the last drop, while that is recent: a write may have filled them before
    /// the drop, and not have arrived yet.
    recent: Vec<Range<u64>>,
}

/// A drop that is needed, or under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Drop {
    /// Bytes whose pages are dropped.
    pub(crate) bytes: Range<u64>,
    /// Events up to this number are undone.
    upto: u64,
}

/// The pages that contain any of these bytes, as a byte range.
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

impl FilePages {
    /// The pages of a file that is opened at this size, with or without leases.
    pub(crate) fn new(leased: bool, size: u64) -> Self {
        Self {
            next: 0,
            leased,
            size: KernelSize::new(size),
            cached: Vec::new(),
            reads: Vec::new(),
            writes: Vec::new(),
            passing: 0,
            recent: Vec::new(),
        }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Records an open at this size after which the kernel keeps its pages.
    pub(crate) fn kept(&mut self, size: u64) {
        let number = self.number();
        self.fills(number, pages_of(&(0..size)));
    }

    fn fills(&mut self, number: u64, pages: Range<u64>) {
        if pages.is_empty() {
            return;
        }
        // Reads in order become one.
        if let Some(last) = self.cached.last_mut()
            && last.1.start <= pages.start
            && pages.start <= last.1.end
        {
            *last = (last.0.max(number), last.1.start..last.1.end.max(pages.end));
            return;
        }
        self.cached.push((number, pages));
        if self.cached.len() > MAX_CACHED {
            let one = |(a, x): (u64, Range<u64>), (b, y): (u64, Range<u64>)| {
                (a.max(b), x.start.min(y.start)..x.end.max(y.end))
            };
            self.cached = self.cached.drain(..).reduce(one).into_iter().collect();
        }
    }

    /// Whether the kernel may show any of these bytes without asking, now or after a read in
    /// progress is answered.
    pub(crate) fn may_show(&self, bytes: &Range<u64>) -> bool {
        let pages = pages_of(bytes);
        // Also one that has no lease yet: it may get it before it has said so.
        let reads = self.reads.iter().map(|read| &read.pages);
        self.cached.iter().map(|(_, cached)| cached).chain(reads).any(|p| meet(p, &pages).is_some())
    }

    /// Begins a read of a thread.
    pub(crate) fn read_begins(&mut self, by: u32, bytes: &Range<u64>) -> u64 {
        let number = self.number();
        let pages = pages_of(bytes);
        for write in &mut self.writes {
            write.met = join(write.met.take(), meet(&pages_of(&write.bytes), &pages));
        }
        if self.recent.len() == MAX_RECENT {
            let all = self.recent.drain(..).fold(None, |all, one| join(all, Some(one)));
            self.recent.extend(all);
        }
        self.recent.push(pages.clone());
        self.reads.push(Read { number, pages, by, entered: false });
        number
    }

    /// Records that a read has the lease, and sees present bytes; or, with `entered` false, that it
    /// has to get a lease again.
    pub(crate) fn read_enters(&mut self, number: u64, entered: bool) {
        if let Some(read) = self.reads.iter_mut().find(|read| read.number == number) {
            read.entered = entered;
        }
    }

    /// Ends a read that returned the bytes up to here (the file ends there if more was asked for).
    /// Returns the pages to drop again as soon as it is answered.
    pub(crate) fn read_ends(&mut self, number: u64, asked: u64, brought: u64) -> Option<Drop> {
        let index = self.reads.iter().position(|read| read.number == number)?;
        let read = self.reads.swap_remove(index);
        let number = self.number();
        self.fills(number, read.pages.clone());
        if brought < asked {
            self.size.ends(brought);
        }
        let zeroed = self.size.may_cut(read.by, &read.pages, brought);
        zeroed.then(|| self.drop_begins(read.pages))
    }

    /// Begins a write through the page cache. `drops_are_recent` says that pages of the file were
    /// dropped a moment ago.
    pub(crate) fn write_begins(&mut self, bytes: Range<u64>, drops_are_recent: bool) -> u64 {
        let number = self.number();
        let pages = pages_of(&bytes);
        // Of a page that it fills in part the kernel shows nothing, but it has it: reads that
        // go over it are cut in two, and if both end short, it believes only the first to come.
        self.fills(number, pages.clone());
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

    /// Records that a write has taken effect, or failed. Returns what to drop before it returns.
    pub(crate) fn write_works(&mut self, number: u64) -> Option<Drop> {
        let write = self.writes.iter_mut().find(|write| write.number == number)?;
        let met = write.met.take();
        met.map(|bytes| Drop { bytes, upto: self.next })
    }

    /// Ends a write.
    pub(crate) fn write_ends(&mut self, number: u64) {
        self.writes.retain(|write| write.number != number);
    }

    /// What to drop before the kernel is told a greater size than it knows.
    pub(crate) fn before_growth(&self) -> Option<Drop> {
        let bytes = self.size.least() / PAGE_BYTES * PAGE_BYTES..u64::MAX;
        let drop = (!self.leased || self.passing > 0) && self.may_show(&bytes);
        drop.then_some(Drop { bytes, upto: self.next })
    }

    /// A byte of the file at this size within `distance` of the end, in a page that no request in
    /// progress holds locked, if there is one.
    pub(crate) fn quiet_byte(&self, size: u64, distance: u64) -> u64 {
        let last = size.saturating_sub(1);
        let mut busy: Vec<Range<u64>> = self.reads.iter().map(|read| read.pages.clone()).collect();
        busy.extend(self.writes.iter().map(|write| pages_of(&write.bytes)));
        busy.sort_by_key(|pages| std::cmp::Reverse(pages.end));
        let mut byte = last;
        for pages in busy {
            if pages.contains(&byte) {
                match pages.start.checked_sub(1) {
                    Some(before) => byte = before,
                    None => return last,
                }
            }
        }
        if size - byte <= distance { byte } else { last }
    }

    /// Begins a write that bypasses the page cache.
    pub(crate) fn passes(&mut self) {
        self.passing += 1;
    }

    /// Records that such a write has taken effect on these bytes, or failed. Returns what to drop
    /// before it returns.
    pub(crate) fn passed(&mut self, bytes: &Range<u64>) -> Option<Drop> {
        self.may_show(bytes).then(|| self.drop_begins(bytes.clone()))
    }

    /// Ends such a write.
    pub(crate) fn pass_ends(&mut self) {
        self.passing -= 1;
    }

    /// Begins a drop of these bytes.
    pub(crate) fn drop_begins(&mut self, bytes: Range<u64>) -> Drop {
        self.recent.clear();
        self.size.drops();
        Drop { bytes: pages_of(&bytes), upto: self.number() }
    }

    /// Records that the kernel has completed a drop.
    pub(crate) fn dropped(&mut self, drop: &Drop) {
        for (number, bytes) in std::mem::take(&mut self.cached) {
            let left = match meet(&bytes, &drop.bytes) {
                Some(both) if number <= drop.upto => without(&bytes, &[both]),
                _ => vec![bytes],
            };
            self.cached.extend(left.into_iter().map(|left| (number, left)));
        }
    }

    /// Pages in this range that requests in progress may hold locked while they wait for the very
    /// lease that is being given up. A locked page shows nothing to any program. For a write it is
    /// the last page, if that is not filled: it is read again afterwards. For a read without a
    /// lease it is all its pages: it will see present bytes when it has the lease.
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

/// The rest of a range without these ascending ranges.
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
    use crate::kernel::size::{Answer, Tell};
    use proptest::prelude::*;
    use std::time::Instant;

    fn leased() -> FilePages {
        FilePages::new(true, 1 << 20)
    }

    #[test]
    fn without_leases_a_greater_size_waits_for_the_page_that_held_the_old_end() {
        let mut pages = FilePages::new(false, 5000);
        assert_eq!(pages.before_growth(), None, "there is none");
        let read = pages.read_begins(2, &(4096..8192));
        // In flight it counts already.
        assert_eq!(pages.before_growth().unwrap().bytes, 4096..u64::MAX);
        assert_eq!(pages.read_ends(read, 8192, 5000), None);
        let drop = pages.before_growth().unwrap();
        pages.dropped(&drop);
        assert_eq!(pages.before_growth(), None);
    }

    #[test]
    fn under_leases_zeros_behind_the_end_stay_unless_a_write_passes_them() {
        let mut pages = FilePages::new(true, 5000);
        let read = pages.read_begins(2, &(4096..8192));
        pages.read_enters(read, true);
        pages.read_ends(read, 8192, 5000);
        assert_eq!(pages.before_growth(), None);
        pages.passes();
        assert_eq!(pages.before_growth().unwrap().bytes, 4096..u64::MAX);
        assert_eq!(pages.passed(&(8192..9000)), None);
        let drop = pages.passed(&(5000..5100)).unwrap();
        assert_eq!(drop.bytes, 4096..8192);
        pages.dropped(&drop);
        assert_eq!(pages.passed(&(5000..5100)), None);
        pages.pass_ends();
    }

    #[test]
    fn only_what_the_kernel_may_show_is_dropped() {
        let mut pages = leased();
        let all = 0..u64::MAX;
        assert!(!pages.may_show(&all));
        let write = pages.write_begins(4100..8192, false);
        assert!(pages.may_show(&(4096..4097)) && !pages.may_show(&(0..4096)));
        pages.write_ends(write);
        assert!(pages.may_show(&(8191..9000)));
        let drop = pages.drop_begins(0..u64::MAX);
        pages.dropped(&drop);
        assert!(!pages.may_show(&all));
        let read = pages.read_begins(2, &(0..10));
        assert!(pages.may_show(&(4000..4001)), "when it is answered");
        pages.read_ends(read, 10, 10);
        assert!(pages.may_show(&(4000..4001)) && !pages.may_show(&(4096..u64::MAX)));
        let mut pages = leased();
        pages.kept(4097);
        assert!(pages.may_show(&(8191..8192)) && !pages.may_show(&(8192..u64::MAX)));
        for i in 0..2 * MAX_CACHED as u64 {
            let read = pages.read_begins(2, &(i << 20..(i << 20) + 1));
            pages.read_ends(read, 1, 1);
        }
        assert!(pages.cached.len() <= MAX_CACHED && pages.may_show(&(5 << 20..(5 << 20) + 1)));
    }

    #[test]
    fn a_drop_does_not_undo_what_began_after_it() {
        let mut pages = leased();
        let drop = pages.drop_begins(0..u64::MAX);
        let read = pages.read_begins(2, &(0..4096));
        pages.read_ends(read, 4096, 4096);
        pages.dropped(&drop);
        assert!(pages.may_show(&(0..1)));
    }

    #[test]
    fn a_page_that_was_read_under_a_write_is_dropped_after_it() {
        let mut pages = leased();
        let write = pages.write_begins(0..8192, false);
        let read = pages.read_begins(2, &(4096..16_384));
        pages.read_ends(read, 16_384, 16_384);
        assert_eq!(pages.write_works(write).unwrap().bytes, 4096..8192);
        pages.write_ends(write);
        // The same if the read was there first, or came just before, after a drop.
        let read = pages.read_begins(2, &(0..4096));
        let write = pages.write_begins(0..8192, false);
        pages.read_ends(read, 4096, 4096);
        assert_eq!(pages.write_works(write).unwrap().bytes, 0..4096);
        pages.write_ends(write);
        pages.drop_begins(0..u64::MAX);
        let read = pages.read_begins(2, &(0..4096));
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
        let mut pages = leased();
        let all = 0..u64::MAX;
        let whole = pages.write_begins(0..8192, false);
        assert!(pages.held(&all).is_empty());
        pages.write_ends(whole);
        pages.write_begins(100..8200, false);
        pages.write_begins(5..4096, false);
        assert_eq!(pages.held(&all), [0..4096, 8192..12_288]);
        let read = pages.read_begins(2, &(12_288..20_480));
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
    fn the_size_is_raised_where_no_page_is_locked() {
        let mut pages = leased();
        assert_eq!(pages.quiet_byte(10_000, 1 << 20), 9999);
        let read = pages.read_begins(2, &(8192..12_288));
        assert_eq!(pages.quiet_byte(10_000, 1 << 20), 8191);
        assert_eq!(pages.quiet_byte(10_000, 1000), 9999, "too far");
        pages.write_begins(5000..6000, false);
        assert_eq!(pages.quiet_byte(10_000, 1 << 20), 4095);
        pages.write_begins(0..1, false);
        assert_eq!(pages.quiet_byte(10_000, 1 << 20), 9999, "there is none");
        pages.read_ends(read, 12_288, 12_288);
        assert_eq!(pages.quiet_byte(10_000, 1 << 20), 9999);
    }

    #[test]
    fn pages_that_the_kernel_may_zero_late_are_dropped_when_they_have_been_read() {
        let mut pages = FilePages::new(true, 6000);
        let mark = Some(pages.size.mark());
        let told = pages.size.tell(1, 5000, mark, Answer::Attributes, Instant::now());
        assert_eq!(told, Tell::Now);
        let read = pages.read_begins(2, &(4096..8192));
        assert_eq!(pages.read_ends(read, 8192, 7000).unwrap().bytes, 4096..8192);
        let read = pages.read_begins(1, &(4096..8192));
        assert_eq!(pages.read_ends(read, 8192, 7000), None, "it has zeroed what it would");
    }

    /// A kernel with one page, and a file that grows within it.
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
            let now = Instant::now();
            let mut pages = FilePages::new(leased, 10);
            let mut size = 10u64;
            // Of the kernel: its size, what it has heard of the file, up to where its page is
            // right, and an answer that it has not acted upon with what it had heard when it asked.
            let (mut believed, mut version) = (10u64, 0u64);
            let mut good: Option<u64> = None;
            let mut reading: Option<(u64, u64)> = None;
            let mut told: Option<(u64, u64)> = None;
            for step in steps {
                match step {
                    Step::Append(n) if size + n < 4096 => {
                        // The lease on the page is recalled: the kernel waits for the page
                        // that is being read, and drops it.
                        if leased && pages.may_show(&(0..4096)) {
                            let drop = pages.drop_begins(0..4096);
                            if let Some((number, brought)) = reading.take() {
                                pages.read_ends(number, 4096, brought);
                            }
                            (good, version) = (None, version + 1);
                            pages.dropped(&drop);
                        }
                        size += n;
                    }
                    Step::Append(_) => {}
                    Step::Read if reading.is_none() && good.is_none() => {
                        let number = pages.read_begins(2, &(0..4096));
                        pages.read_enters(number, true);
                        reading = Some((number, size));
                    }
                    Step::Install => {
                        if let Some((number, brought)) = reading.take() {
                            pages.read_ends(number, 4096, brought);
                            good = Some(brought);
                        }
                    }
                    Step::Show if told.is_none() => {
                        let asked = version;
                        let mark = Some(pages.size.mark());
                        let tell = pages.size.tell(1, size, mark, Answer::Attributes, now);
                        prop_assert!(tell != Tell::AskAgain);
                        if tell == Tell::Raise {
                            if let Some(drop) = pages.before_growth() {
                                if let Some((number, brought)) = reading.take() {
                                    pages.read_ends(number, 4096, brought);
                                }
                                (good, version) = (None, version + 1);
                                pages.dropped(&drop);
                            }
                            if size > believed {
                                (believed, version) = (size, version + 1);
                            }
                            pages.size.raised(Some(size));
                        }
                        told = Some((size, asked));
                    }
                    Step::Learn => {
                        if let Some((told, asked)) = told.take()
                            && version <= asked
                            && told != believed
                        {
                            (believed, version) = (told, version + 1);
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
