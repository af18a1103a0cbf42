//! The sums and records of a log. No I/O.

use crate::file::Slotted;
use crate::tally::Hasher;
use crate::{Event, Sum};
use std::collections::{BTreeSet, BinaryHeap, HashMap, VecDeque};
use weir_types::ClientId;
use weir_wire::audit::{AuditPage, AuditRecord, MAX_AUDIT_PAGE};

/// The most sums that are not records yet.
pub(crate) const MAX_OPEN: usize = 1024;
/// A sum becomes a record when nothing was added to it for this time, milliseconds.
const IDLE_MS: u64 = 10_000;
/// A sum becomes a record after this time in any case, milliseconds.
const LONG_MS: u64 = 60_000;

/// The most sums of a client in an interval that tell all of an event; further ones are coarse.
const MAX_OF_CLIENT: usize = 256;
/// The most users of a client whose coarse sums name them.
const MAX_USERS: usize = 4;

/// The sums and records.
#[derive(Debug)]
pub(crate) struct Book {
    capacity: usize,
    open: HashMap<Event, Sum, Hasher>,
    /// What each client has had in this interval, of [`LONG_MS`].
    had: HashMap<ClientId, Had, Hasher>,
    since_unix_ms: u64,
    records: VecDeque<Kept>,
    /// The slots of the file that no record has.
    free: BTreeSet<usize>,
    next: u64,
    /// Number of the last record that was handed out to be written.
    written: u64,
}

/// The sums of a client.
#[derive(Debug, Default)]
struct Had {
    sums: usize,
    users: Vec<u32>,
}

#[derive(Debug)]
struct Kept {
    /// Its slot in the file. A record has one as soon as it is known that it stays.
    slot: Option<usize>,
    record: AuditRecord,
}

impl Book {
    /// A book for this many records, with those that are on disk, by ascending number.
    pub fn new(capacity: usize, found: Vec<Slotted>) -> Self {
        let last = found.last().map_or(0, |(_, record)| record.number);
        let mut free: BTreeSet<usize> = (0..capacity).collect();
        let kept = |(slot, record): Slotted| Kept { slot: free.take(&slot), record };
        let records = found.into_iter().map(kept).collect();
        let mut book = Self {
            capacity,
            open: HashMap::default(),
            had: HashMap::default(),
            since_unix_ms: 0,
            records,
            free,
            next: last + 1,
            written: last,
        };
        book.evict();
        book
    }

    /// Has all records written again.
    pub fn write_anew(&mut self) {
        self.written = 0;
    }

    /// Adds to a sum.
    pub fn add(&mut self, event: Event, sum: Sum) {
        let event = if self.open.contains_key(&event) { event } else { self.told(event) };
        if self.open.len() >= MAX_OPEN && !self.open.contains_key(&event) {
            let open = self.open.keys().map(|event| event.client);
            if let Some(most) = counts(open).into_iter().max().map(|(_, client)| client) {
                self.close(|event, _| event.client == most);
            }
        }
        self.open.entry(event).and_modify(|old| old.add(sum)).or_insert(sum);
    }

    /// As much of an event as is told: less if its client has had many in this interval.
    fn told(&mut self, event: Event) -> Event {
        if self.had.len() >= MAX_OPEN && !self.had.contains_key(&event.client) {
            self.had.clear();
        }
        let had = self.had.entry(event.client).or_default();
        if !had.users.contains(&event.user) && had.users.len() < MAX_USERS {
            had.users.push(event.user);
        }
        had.sums += 1;
        if had.sums <= MAX_OF_CLIENT {
            return event;
        }
        let knows_user = had.users.contains(&event.user);
        event.coarse(knows_user)
    }

    /// Makes records of what has ended, or has gone on for long.
    pub fn settle(&mut self, now_unix_ms: u64) {
        self.close(|_, sum| {
            now_unix_ms.saturating_sub(sum.last_unix_ms) >= IDLE_MS
                || now_unix_ms.saturating_sub(sum.first_unix_ms) >= LONG_MS
        });
        if now_unix_ms.abs_diff(self.since_unix_ms) >= LONG_MS {
            self.since_unix_ms = now_unix_ms;
            self.had.clear();
        }
    }

    /// Makes records of all sums.
    pub fn close_all(&mut self) {
        self.close(|_, _| true);
    }

    fn close(&mut self, ends: impl Fn(&Event, &Sum) -> bool) {
        let ended = self.open.extract_if(|event, sum| ends(event, sum));
        let mut ended: Vec<(Event, Sum)> = ended.collect();
        ended.sort_by_key(|(_, sum)| (sum.first_unix_ms, sum.last_unix_ms));
        for (event, sum) in ended {
            self.records.push_back(Kept { slot: None, record: event.record(self.next, sum) });
            self.next += 1;
        }
        self.evict();
    }

    /// Removes the oldest records of the clients that have most, so that there are no more than there
    /// is room for; and gives a slot to each of the others.
    fn evict(&mut self) {
        let excess = self.records.len().saturating_sub(self.capacity);
        let mut gone: HashMap<ClientId, usize, Hasher> = HashMap::default();
        if excess > 0 {
            let mut most = counts(self.records.iter().map(|kept| kept.record.client));
            for _ in 0..excess {
                if let Some(mut top) = most.peek_mut() {
                    top.0 -= 1;
                    *gone.entry(top.1).or_default() += 1;
                }
            }
        }
        let free = &mut self.free;
        self.records.retain(|kept| match gone.get_mut(&kept.record.client) {
            Some(left) if *left > 0 => {
                *left -= 1;
                free.extend(kept.slot);
                false
            }
            _ => true,
        });
        for kept in self.records.iter_mut().filter(|kept| kept.slot.is_none()) {
            kept.slot = free.pop_first();
        }
    }

    fn later_than(&self, number: u64) -> impl ExactSizeIterator<Item = &Kept> {
        let from = self.records.partition_point(|kept| kept.record.number <= number);
        self.records.range(from..)
    }

    /// A page of the records after a number. The first one makes records of all sums.
    pub fn page(&mut self, after: u64) -> AuditPage {
        if after == 0 {
            self.close_all();
        }
        let later = self.later_than(after);
        let more = later.len() > MAX_AUDIT_PAGE;
        let records = later.take(MAX_AUDIT_PAGE).map(|kept| kept.record.clone()).collect();
        AuditPage { records, more }
    }

    /// The records that are not on disk, with their slots. They count as written from now on.
    pub fn take_unwritten(&mut self) -> Vec<Slotted> {
        let later = self.later_than(self.written);
        let records = later.filter_map(|kept| Some((kept.slot?, kept.record.clone()))).collect();
        self.written = self.next - 1;
        records
    }

    /// Has these records written again, from this number on.
    pub fn not_written(&mut self, from: u64) {
        self.written = self.written.min(from - 1);
    }
}

/// How many each client has, with the most at the top.
fn counts(clients: impl Iterator<Item = ClientId>) -> BinaryHeap<(usize, ClientId)> {
    let mut counts: HashMap<ClientId, usize, Hasher> = HashMap::default();
    clients.for_each(|client| *counts.entry(client).or_default() += 1);
    counts.into_iter().map(|(client, count)| (count, client)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_types::codec::Bytes;
    use weir_types::{ErrorKind, FileId, SessionId};
    use weir_wire::audit::UNKNOWN_USER;
    use weir_wire::{Op, Rights};

    fn read(file: u64) -> Event {
        Event {
            client: ClientId(1),
            session: SessionId(2),
            user: 1000,
            file: FileId(file),
            op: Op::Read,
            rights: Rights::NONE,
            status: None,
            about: Bytes::default(),
        }
    }

    #[test]
    fn requests_that_are_alike_are_one_record_until_they_end_or_a_minute_is_over() {
        let mut book = Book::new(10, Vec::new());
        for now in 0..5 {
            book.add(read(7), Sum::one(100, now * 1000));
        }
        book.settle(13_999);
        assert!(book.take_unwritten().is_empty(), "it may go on");
        book.settle(14_000);
        let [(0, record)] = &book.take_unwritten()[..] else { panic!("not one record") };
        assert_eq!((record.number, record.count, record.bytes), (1, 5, 500));
        assert_eq!((record.first_unix_ms, record.last_unix_ms), (0, 4000));
        assert!(book.take_unwritten().is_empty(), "it is written once");

        (0..61).for_each(|second| book.add(read(8), Sum::one(1, 20_000 + second * 1000)));
        book.settle(80_000);
        assert_eq!(book.page(1).records[0].count, 61, "it goes on for long");
    }

    #[test]
    fn memory_is_bounded_and_the_latest_stay() {
        let mut book = Book::new(1500, Vec::new());
        (0..10_000).for_each(|file| book.add(read(file), Sum::one(1, file)));
        assert!(book.open.len() <= MAX_OPEN && book.records.len() <= 1500);
        let first = book.page(0);
        assert!(first.more && first.records.len() == MAX_AUDIT_PAGE);
        let rest = book.page(first.records.last().unwrap().number);
        assert!(!rest.more);
        let files: Vec<u64> =
            first.records.iter().chain(&rest.records).map(|record| record.file.0).collect();
        assert_eq!(files, (8500..10_000).collect::<Vec<_>>());
    }

    #[test]
    fn what_could_not_be_written_is_written_the_next_time() {
        let mut book = Book::new(10, Vec::new());
        (0..3).for_each(|file| book.add(read(file), Sum::one(1, file)));
        book.settle(60_000);
        assert_eq!(book.take_unwritten().len(), 3);
        book.not_written(2);
        let numbers: Vec<u64> = book.take_unwritten().iter().map(|it| it.1.number).collect();
        assert_eq!(numbers, [2, 3]);
    }

    /// The records of a client that are still there.
    fn of(book: &mut Book, client: u64) -> Vec<AuditRecord> {
        let (mut all, mut after) = (Vec::new(), 0);
        loop {
            let page = book.page(after);
            after = page.records.last().map_or(after, |record| record.number);
            all.extend(page.records.into_iter().filter(|it| it.client == ClientId(client)));
            if !page.more {
                return all;
            }
        }
    }

    #[test]
    fn a_client_that_names_many_users_and_sessions_has_few_records() {
        let mut book = Book::new(10_000, Vec::new());
        for user in 0..4096 {
            book.add(Event { user, ..read(7) }, Sum::one(100, 1));
            book.add(Event { session: SessionId(user.into()), ..read(8) }, Sum::one(100, 1));
        }
        let all = of(&mut book, 1);
        assert!(all.len() <= MAX_OF_CLIENT + 2 * (MAX_USERS + 1), "{}", all.len());
        for file in [7, 8] {
            let of_file = all.iter().filter(|it| it.file == FileId(file));
            assert_eq!(of_file.map(|it| it.count).sum::<u64>(), 4096, "each is counted");
        }
        assert!(all.iter().any(|it| it.user == UNKNOWN_USER && !it.about.is_empty()));
        // The next interval.
        book.settle(100_000);
        book.add(Event { user: 5000, ..read(7) }, Sum::one(1, 100_000));
        assert_eq!(of(&mut book, 1).last().unwrap().user, 5000);
    }

    #[test]
    fn refusals_without_end_are_summed_up_and_what_was_done_still_names_its_file() {
        let mut book = Book::new(10_000, Vec::new());
        for n in 0..5000 {
            let about = Event::about(format!("name {n}").as_bytes());
            let status = Some(ErrorKind::AccessDenied);
            book.add(Event { about, status, ..read(n) }, Sum::one(0, n));
        }
        book.add(read(77), Sum::one(9, 6000));
        let all = of(&mut book, 1);
        assert!(all.len() <= MAX_OF_CLIENT + 2, "{}", all.len());
        let last = all.last().unwrap();
        assert_eq!((last.file, last.user, last.bytes), (FileId(77), 1000, 9));
        assert_eq!(all.iter().map(|it| it.count).sum::<u64>(), 5001);
    }

    #[test]
    fn a_client_with_very_many_records_pushes_only_its_own_out() {
        let mut book = Book::new(1000, Vec::new());
        let of_other = |file| Event { client: ClientId(2), ..read(file) };
        (0..400).for_each(|file| book.add(of_other(file), Sum::one(1, file)));
        book.settle(100_000);
        let slots: Vec<Slotted> = book.take_unwritten();
        for file in 0..20_000 {
            book.add(read(file), Sum::one(1, 200_000 + file));
        }
        assert_eq!(of(&mut book, 2).len(), 400);
        let own = of(&mut book, 1);
        assert_eq!((own.len(), own.last().unwrap().file), (600, FileId(19_999)), "the latest stay");
        let mut on_disk: HashMap<usize, AuditRecord> = slots.into_iter().collect();
        on_disk.extend(book.take_unwritten());
        // On disk too: none has taken a slot of the other client.
        let mut found: Vec<Slotted> = on_disk.into_iter().collect();
        found.sort_by_key(|(_, record)| record.number);
        let mut again = Book::new(1000, found);
        assert_eq!((of(&mut again, 2).len(), of(&mut again, 1).len()), (400, 600));
    }
}
