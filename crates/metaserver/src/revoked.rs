//! Rights that end before their time: which capabilities and sessions data servers have to refuse,
//! and which servers know. In memory only: after a start within the time that capabilities last, all
//! capabilities of before are void, and clients fetch new ones. The store says until when that is so
//! (`m/revoked`).

use crate::schema::{self, key};
use std::collections::BTreeMap;
use weir_metastore::{Tx, TxError};
use weir_types::{ClientId, FileId, ServerId};
use weir_wire::peer::{Revocation, Revocations};
use weir_wire::revoked::RevocationTable;

/// Revocations are kept for longer than capabilities last, because clocks differ.
const MARGIN_MS: u64 = 600_000;
/// The default validity of capabilities and tickets: a cluster may have had it before.
pub const LEAST_MS: u64 = 3_600_000;
/// Interval at which what has run out is removed.
const TIDY_MS: u64 = 60_000;

/// What was revoked.
#[derive(Debug)]
pub struct Revoked {
    table: RevocationTable,
    /// Time until everything of before a revocation has run out, milliseconds.
    lasts_ms: u64,
    /// Until when the store says that there may be revocations, milliseconds since 1970.
    marked_until_ms: u64,
    /// Up to which number each data server knows them.
    known: BTreeMap<ServerId, u64>,
    /// Time of the last removal of what has run out, on the same clock.
    tidied_ms: u64,
}

impl Revoked {
    /// As a server starts. `lasts_ms` is the longer validity of capabilities and tickets,
    /// `marked_until_ms` the record in the store. `number` is greater than any of before.
    pub fn new(lasts_ms: u64, marked_until_ms: u64, number: u64, now_unix_ms: u64) -> Self {
        let lasts_ms = lasts_ms.max(LEAST_MS).saturating_add(MARGIN_MS);
        let mut revoked = Self {
            table: <_>::default(),
            lasts_ms,
            marked_until_ms,
            known: <_>::default(),
            tidied_ms: 0,
        };
        if now_unix_ms < marked_until_ms {
            revoked.add((None, None), number, now_unix_ms);
        }
        revoked
    }

    /// Writes in the transaction of a revocation that there may be some, if the store does not say
    /// so. Returns the new value for [`Revoked::marked`]. It lasts for later revocations, too, so
    /// that it is seldom written.
    pub fn mark(&self, tx: &mut Tx<'_>, now_unix_ms: u64) -> Result<Option<u64>, TxError> {
        let Some(until_ms) = self.new_mark(now_unix_ms) else { return Ok(None) };
        tx.put(key::REVOKED, &schema::encode(&until_ms))?;
        Ok(Some(until_ms))
    }

    fn new_mark(&self, now_unix_ms: u64) -> Option<u64> {
        let needed = self.lasts_until(now_unix_ms);
        (self.marked_until_ms < needed).then(|| needed.saturating_add(MARGIN_MS))
    }

    /// When everything that is made now has run out, on any clock.
    pub fn lasts_until(&self, now_unix_ms: u64) -> u64 {
        now_unix_ms.saturating_add(self.lasts_ms)
    }

    /// Records that the store has this value.
    pub fn marked(&mut self, until_ms: u64) {
        self.marked_until_ms = until_ms;
    }

    /// Ends the sessions of a client that were made before.
    pub fn client(&mut self, client: ClientId, number: u64, now_unix_ms: u64) {
        self.add((Some(client), None), number, now_unix_ms);
    }

    /// Voids the capabilities for a file that were made before.
    pub fn file(&mut self, file: FileId, number: u64, now_unix_ms: u64) {
        self.add((None, Some(file)), number, now_unix_ms);
    }

    fn add(&mut self, what: (Option<ClientId>, Option<FileId>), number: u64, now_unix_ms: u64) {
        let (client, file) = what;
        let until_unix_ms = self.lasts_until(now_unix_ms);
        self.table.add(Revocation { number, client, file, until_unix_ms });
    }

    /// Removes what has run out by itself, once in a while: the table may be long.
    pub fn forget_old(&mut self, now_unix_ms: u64) {
        if !self.table.is_empty() && now_unix_ms.abs_diff(self.tidied_ms) >= TIDY_MS {
            self.table.forget_old(now_unix_ms);
            self.tidied_ms = now_unix_ms;
        }
    }

    /// What to tell a data server that knows all up to `known`. `last` is the last number.
    pub fn tell(&mut self, server: ServerId, known: u64, last: u64) -> Revocations {
        self.known.insert(server, known);
        self.table.page(known, last)
    }

    /// Number of these servers that do not know of all clients whose sessions were ended.
    pub fn lacking<'a>(&self, servers: impl Iterator<Item = &'a ServerId>) -> u64 {
        let last = self.table.last_of_clients();
        let knows = |server: &ServerId| self.known.get(server).is_some_and(|it| *it >= last);
        servers.filter(|server| last > 0 && !knows(server)).count() as u64
    }

    /// Forgets a server that was removed from the cluster.
    pub fn removed(&mut self, server: ServerId) {
        self.known.remove(&server);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_700_000_000_000;

    #[test]
    fn after_a_start_everything_is_void_while_there_may_be_revocations() {
        let mut quiet = Revoked::new(1000, 0, 9, NOW);
        assert_eq!(quiet.tell(ServerId(1), 0, 9).list, []);
        let until = quiet.new_mark(NOW).unwrap();
        quiet.marked(until);
        assert_eq!(quiet.new_mark(NOW + MARGIN_MS), None, "it is seldom written");
        assert!(quiet.new_mark(NOW + MARGIN_MS + 1).is_some());
        let mut later = Revoked::new(1000, until, 20, until - 1);
        let told = later.tell(ServerId(1), 0, 20);
        assert_eq!((told.list[0].number, told.list[0].client, told.list[0].file), (20, None, None));
        assert_eq!(Revoked::new(1000, until, 20, until).tell(ServerId(1), 0, 20).list, []);
    }

    #[test]
    fn it_is_known_which_servers_have_not_heard_of_a_revoked_client() {
        let mut revoked = Revoked::new(1000, 0, 9, NOW);
        let servers = [ServerId(1), ServerId(2)];
        assert_eq!(revoked.lacking(servers.iter()), 0);
        revoked.client(ClientId(5), 10, NOW);
        assert_eq!(revoked.lacking(servers.iter()), 2);
        let told = revoked.tell(ServerId(1), 0, 10);
        assert_eq!((told.list.len(), told.upto, revoked.lacking(servers.iter())), (1, 10, 2));
        assert_eq!(revoked.tell(ServerId(1), told.upto, 10).list, []);
        assert_eq!(revoked.lacking(servers.iter()), 1);
        revoked.file(FileId(7), 11, NOW);
        revoked.tell(ServerId(2), 10, 11);
        assert_eq!(revoked.lacking(servers.iter()), 0, "only clients are waited for");
        revoked.removed(ServerId(2));
        revoked.forget_old(NOW + revoked.lasts_ms);
        assert_eq!(revoked.lacking(servers.iter()), 0);
    }

    #[test]
    fn after_a_start_servers_have_still_to_hear_of_a_client_that_was_revoked_before() {
        let mut revoked = Revoked::new(1000, NOW + 1, 20, NOW);
        assert_eq!(revoked.lacking([ServerId(1)].iter()), 1);
        revoked.tell(ServerId(1), 0, 20);
        revoked.tell(ServerId(1), 20, 20);
        assert_eq!(revoked.lacking([ServerId(1)].iter()), 0);
    }
}
