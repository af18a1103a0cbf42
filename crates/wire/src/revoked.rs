//! Revoked rights that have not expired by themselves yet. The metadata server keeps the table, and
//! each data server a copy. The table is bounded: an entry is needed only until the last affected
//! capability expires.
//!
//! Numbers of revocations, versions of capabilities and ids of sessions come from one sequence. So
//! a number tells which of them were made before it, and no clock decides what is revoked.

use crate::peer::{Revocation, Revocations};
use crate::ticket::OF_SERVERS;
use std::collections::BTreeMap;
use std::ops::Bound;
use weir_types::{ClientId, FileId, SessionId};

/// The most revocations in one reply to a data server.
pub const MAX_REVOCATIONS: usize = 1024;
/// The most entries for files. If there are more, the older half becomes one entry for all
/// capabilities; clients with a valid right then fetch a new one.
pub const MAX_REVOKED_FILES: usize = 65_536;
/// The most entries for clients. It equals the most clients that the metadata server has records
/// of. The oldest entries are removed first.
pub const MAX_REVOKED_CLIENTS: usize = 65_536;

/// The revocations in force.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RevocationTable {
    by_number: BTreeMap<u64, Revocation>,
    clients: BTreeMap<ClientId, u64>,
    files: BTreeMap<FileId, u64>,
    /// The last entry for all capabilities; 0 for none.
    everything: u64,
}

impl RevocationTable {
    /// Adds an entry for a client, for a file or for all capabilities. Earlier entries that it
    /// replaces are removed.
    pub fn add(&mut self, revocation: Revocation) {
        let Revocation { number, client, file, .. } = revocation;
        match (client, file) {
            (Some(client), _) if is_later(&self.clients, &client, number) => {
                let before = self.clients.insert(client, number);
                self.put(before, revocation);
            }
            (None, Some(file))
                if number > self.everything && is_later(&self.files, &file, number) =>
            {
                let before = self.files.insert(file, number);
                self.put(before, revocation);
            }
            (None, None) => self.revoke_all(revocation),
            _ => {}
        }
        self.bound();
    }

    fn put(&mut self, before: Option<u64>, revocation: Revocation) {
        before.and_then(|number| self.by_number.remove(&number));
        self.by_number.insert(revocation.number, revocation);
    }

    fn revoke_all(&mut self, revocation: Revocation) {
        let number = revocation.number;
        if number <= self.everything {
            return;
        }
        self.everything = number;
        self.files.retain(|_, of_file| *of_file > number);
        self.by_number.retain(|it, entry| entry.client.is_some() || *it > number);
        self.by_number.insert(number, revocation);
    }

    fn bound(&mut self) {
        if self.files.len() > MAX_REVOKED_FILES {
            let mut numbers: Vec<u64> = self.files.values().copied().collect();
            let middle = numbers.len() / 2;
            let number = *numbers.select_nth_unstable(middle).1;
            let until_unix_ms = self.by_number.values().map(|it| it.until_unix_ms).max();
            let until_unix_ms = until_unix_ms.unwrap_or(u64::MAX);
            self.revoke_all(Revocation { number, client: None, file: None, until_unix_ms });
        }
        if self.clients.len() > MAX_REVOKED_CLIENTS {
            let oldest = self.clients.iter().min_by_key(|(_, number)| **number);
            if let Some((client, number)) = oldest.map(|(client, number)| (*client, *number)) {
                self.clients.remove(&client);
                self.by_number.remove(&number);
            }
        }
    }

    /// Removes entries whose capabilities have all expired by themselves.
    pub fn forget_old(&mut self, now_unix_ms: u64) {
        self.by_number.retain(|_, it| it.until_unix_ms > now_unix_ms);
        let there = &self.by_number;
        self.clients.retain(|_, number| there.contains_key(number));
        self.files.retain(|_, number| there.contains_key(number));
        if !there.contains_key(&self.everything) {
            self.everything = 0;
        }
    }

    /// Whether a capability for a file, or an administrator's, was revoked.
    pub fn is_void(&self, file: FileId, version: u64) -> bool {
        let number = self.files.get(&file).copied().unwrap_or(0);
        version < number.max(self.everything)
    }

    /// Whether a session was ended by a revocation of its client's key. Not for sessions of data
    /// servers: their tickets use numbers that clients may have, too.
    pub fn is_over(&self, client: ClientId, session: SessionId) -> bool {
        let is_over = |number: &u64| session.0 <= *number;
        session != OF_SERVERS && self.clients.get(&client).is_some_and(is_over)
    }

    /// Whether nothing is revoked.
    pub fn is_empty(&self) -> bool {
        self.by_number.is_empty()
    }

    /// Number of the last entry for a client or for all capabilities, or 0. After a restart of the
    /// metadata server, an entry for all capabilities stands for those of clients.
    pub fn last_of_clients(&self) -> u64 {
        self.clients.values().copied().max().unwrap_or(0).max(self.everything)
    }

    /// The entries with greater numbers than `after`, as many as one message holds. `last` is the
    /// last number that was assigned, in this table or elsewhere.
    pub fn page(&self, after: u64, last: u64) -> Revocations {
        let rest = self.by_number.range((Bound::Excluded(after), Bound::Unbounded));
        let list: Vec<Revocation> = rest.take(MAX_REVOCATIONS).map(|(_, it)| it.clone()).collect();
        match list.last() {
            Some(end) if list.len() == MAX_REVOCATIONS => {
                Revocations { upto: end.number, list, more: true }
            }
            _ => Revocations { upto: last, list, more: false },
        }
    }
}

/// Whether a number is greater than that of the present entry.
fn is_later<T: Ord>(all: &BTreeMap<T, u64>, it: &T, number: u64) -> bool {
    all.get(it).is_none_or(|present| *present < number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_file(number: u64, file: u64) -> Revocation {
        Revocation { number, client: None, file: Some(FileId(file)), until_unix_ms: number + 100 }
    }
    fn of_client(number: u64, client: u64) -> Revocation {
        let client = Some(ClientId(client));
        Revocation { number, client, file: None, until_unix_ms: number + 100 }
    }
    fn of_all(number: u64) -> Revocation {
        Revocation { number, client: None, file: None, until_unix_ms: number + 100 }
    }

    #[test]
    fn what_was_made_before_is_void_and_what_was_made_later_is_not() {
        let mut table = RevocationTable::default();
        assert!(table.is_empty() && !table.is_void(FileId(7), 0));
        table.add(of_file(10, 7));
        assert!(table.is_void(FileId(7), 9) && !table.is_void(FileId(7), 10));
        assert!(!table.is_void(FileId(8), 9));
        table.add(of_client(11, 3));
        assert!(table.is_over(ClientId(3), SessionId(11)), "ids of sessions are never shared");
        assert!(!table.is_over(ClientId(3), SessionId(12)), "a session of after the change");
        assert!(!table.is_over(ClientId(4), SessionId(5)));
        table.add(of_all(12));
        assert!(table.is_void(FileId(8), 11) && table.is_void(FileId(0), 11));
        assert!(!table.is_void(FileId(8), 12));
        assert!(table.is_over(ClientId(3), SessionId(2)));
    }

    #[test]
    fn a_data_server_with_the_number_of_a_revoked_client_goes_on() {
        let mut table = RevocationTable::default();
        table.add(of_client(11, 1));
        assert!(table.is_over(ClientId(1), SessionId(5)));
        assert!(!table.is_over(ClientId(1), OF_SERVERS));
    }

    #[test]
    fn an_older_entry_that_comes_late_takes_nothing_back() {
        let mut table = RevocationTable::default();
        for entry in [of_file(20, 7), of_file(10, 7), of_client(21, 3), of_client(5, 3)] {
            table.add(entry);
        }
        assert!(table.is_void(FileId(7), 19) && table.is_over(ClientId(3), SessionId(20)));
        table.add(of_all(30));
        table.add(of_all(25));
        assert!(table.is_void(FileId(9), 29));
        assert_eq!(table.page(0, 30).list, [of_client(21, 3), of_all(30)]);
    }

    #[test]
    fn entries_go_when_what_they_revoke_has_run_out() {
        let mut table = RevocationTable::default();
        for entry in [of_file(10, 7), of_client(20, 3), of_all(5)] {
            table.add(entry);
        }
        table.forget_old(105);
        assert!(!table.is_void(FileId(8), 1) && table.is_void(FileId(7), 9));
        table.forget_old(110);
        assert!(!table.is_void(FileId(7), 1) && table.is_over(ClientId(3), SessionId(1)));
        assert_eq!(table.last_of_clients(), 20);
        table.forget_old(120);
        assert_eq!(table, RevocationTable::default());
    }

    #[test]
    fn the_table_is_bounded_and_forgets_no_revocation_for_that() {
        let mut table = RevocationTable::default();
        let count = MAX_REVOKED_FILES as u64 + 1;
        for number in 1..=count {
            table.add(of_file(number, number));
        }
        let entries = table.page(0, count).list.len() + table.files.len();
        assert!(entries <= MAX_REVOKED_FILES, "{entries}");
        for file in 1..=count {
            assert!(table.is_void(FileId(file), file - 1), "file {file}");
            // Repeated entries for the same file take no more space.
            table.add(of_file(count + file, 7));
        }
        assert!(table.by_number.len() <= MAX_REVOKED_FILES + 1);
        assert!(!table.is_void(FileId(count), count), "the last ones are told apart");
    }

    #[test]
    fn pages_add_up_to_the_table() {
        let mut table = RevocationTable::default();
        let count = 2 * MAX_REVOCATIONS as u64 + 5;
        (1..=count).for_each(|number| table.add(of_file(number, number)));
        let (mut copy, mut upto) = (RevocationTable::default(), 0);
        loop {
            let page = table.page(upto, count + 3);
            assert!(page.list.len() <= MAX_REVOCATIONS);
            page.list.into_iter().for_each(|entry| copy.add(entry));
            upto = page.upto;
            if !page.more {
                break;
            }
        }
        assert_eq!((copy, upto), (table.clone(), count + 3));
        assert_eq!(table.page(upto, count + 3).list, []);
    }
}
