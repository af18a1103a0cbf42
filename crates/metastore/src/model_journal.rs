//! A journal in memory, for tests. Leads end on demand, and the outcome of an append can stay
//! unknown to its caller.

use crate::engine::Sequence;
use crate::journal::{Batch, Begun, Extent, Held, Journal};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use weir_host::sync::{Condvar, Mutex, MutexGuard};
use weir_types::{Error, ErrorKind, Result};

/// A fault of the next append: the caller gets `TimedOut`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LostAppend {
    /// The batch is in the journal.
    Appended,
    /// The batch is not in the journal.
    NotAppended,
}

#[derive(Default)]
struct Shared {
    /// Number and address of the server that leads, and its term.
    leader: Option<(usize, String)>,
    term: u64,
    begun: Option<Begun>,
    head: Option<Sequence>,
    batches: BTreeMap<Sequence, Vec<u8>>,
    members: BTreeMap<String, (Sequence, u64)>,
    removed: BTreeSet<String>,
    reports: u64,
    servers: usize,
    fault: Option<LostAppend>,
    /// Whether appends wait.
    held: bool,
}

impl Shared {
    fn extent(&self) -> Option<Extent> {
        self.head.map(|head| Extent { begun: self.begun, head })
    }
}

/// One server's view of a journal in memory.
#[derive(Default)]
pub struct ModelJournal {
    shared: Arc<Mutex<Shared>>,
    released: Arc<Condvar>,
    server: usize,
}

impl ModelJournal {
    /// The view of another server.
    #[must_use]
    pub fn another(&self) -> Self {
        let mut shared = self.shared.lock();
        shared.servers += 1;
        self.view_of(shared.servers)
    }

    /// The view of the server that leads.
    #[must_use]
    pub fn leading(&self) -> Self {
        let server = self.shared.lock().leader.as_ref().map_or(self.server, |(server, _)| *server);
        self.view_of(server)
    }

    fn view_of(&self, server: usize) -> Self {
        let (shared, released) = (Arc::clone(&self.shared), Arc::clone(&self.released));
        Self { shared, released, server }
    }

    /// Makes appends wait, or go on.
    pub fn hold_appends(&self, on: bool) {
        self.shared.lock().held = on;
        self.released.notify_all();
    }

    /// Ends the lead of whoever has it.
    pub fn end_lead(&self) {
        self.shared.lock().leader = None;
    }

    /// Makes the next append fail.
    pub fn lose_append(&self, how: LostAppend) {
        self.shared.lock().fault = Some(how);
    }

    /// Makes it a log that an older version of Weir has begun.
    pub fn forget_id(&self) {
        self.shared.lock().begun = None;
    }

    fn lead(&self) -> Result<MutexGuard<'_, Shared>> {
        let shared = self.shared.lock();
        match &shared.leader {
            Some((server, _)) if *server == self.server => Ok(shared),
            _ => Err(ErrorKind::NotLeader.into()),
        }
    }
}

impl Journal for ModelJournal {
    fn leader(&self) -> Result<Option<String>> {
        Ok(self.shared.lock().leader.as_ref().map(|(_, address)| address.clone()))
    }

    fn extent(&self) -> Result<Option<Extent>> {
        Ok(self.shared.lock().extent())
    }

    fn acquire(&self, address: &str, begin: Option<Begun>) -> Result<Option<u64>> {
        let mut shared = self.shared.lock();
        if shared.leader.is_some() {
            return Ok(None);
        }
        let found = shared.extent();
        let log = Extent::led(found, begin).ok_or(ErrorKind::NotFound)?;
        if found.is_none() {
            shared.removed.clear();
        }
        (shared.begun, shared.head) = (log.begun, Some(log.head));
        shared.term += 1;
        shared.leader = Some((self.server, address.to_owned()));
        Ok(Some(shared.term))
    }

    fn read(&self, after: Sequence) -> Result<Vec<Batch>> {
        let shared = self.shared.lock();
        let batches = shared.batches.range(after.next()..).take(2);
        Ok(batches.map(|(last, records)| Batch { last: *last, records: records.clone() }).collect())
    }

    fn append(&self, previous: Sequence, batch: &Batch) -> Result<()> {
        let mut held = self.shared.lock();
        while held.held {
            held = self.released.wait(held);
        }
        drop(held);
        let mut shared = self.lead()?;
        if shared.head != Some(previous) {
            return Err(Error::new(ErrorKind::Corrupt, "the journal goes on elsewhere"));
        }
        let fault = shared.fault.take();
        if fault != Some(LostAppend::NotAppended) {
            shared.batches.insert(batch.last, batch.records.clone());
            shared.head = Some(batch.last);
        }
        fault.map_or(Ok(()), |_| Err(Error::new(ErrorKind::TimedOut, "no answer of the journal")))
    }

    fn renew(&self) -> Result<()> {
        self.lead().map(drop)
    }

    fn check(&self) -> Result<()> {
        self.lead().map(drop)
    }

    fn resign(&self) {
        if let Ok(mut shared) = self.lead() {
            shared.leader = None;
        }
    }

    fn report(&self, member: &str, upto: Sequence) -> Result<()> {
        let mut shared = self.shared.lock();
        shared.reports += 1;
        let stamp = shared.reports;
        shared.members.insert(member.to_owned(), (upto, stamp));
        Ok(())
    }

    fn forget(&self, member: &str) -> Result<()> {
        self.shared.lock().members.remove(member);
        Ok(())
    }

    fn remove(&self, member: &str) -> Result<()> {
        let mut shared = self.lead()?;
        shared.members.remove(member);
        shared.removed.insert(member.to_owned());
        Ok(())
    }

    fn removed(&self) -> Result<Vec<String>> {
        Ok(self.shared.lock().removed.iter().cloned().collect())
    }

    fn end(&self) -> Result<()> {
        let mut shared = self.lead()?;
        (shared.begun, shared.head) = (None, None);
        shared.batches.clear();
        shared.members.clear();
        Ok(())
    }

    fn members(&self) -> Result<Vec<Held>> {
        let shared = self.shared.lock();
        let held = |(member, (upto, stamp)): (&String, &(Sequence, u64))| Held {
            member: member.clone(),
            upto: *upto,
            stamp: *stamp,
        };
        Ok(shared.members.iter().map(held).collect())
    }

    fn cut(&self, upto: Sequence) -> Result<()> {
        let mut shared = self.lead()?;
        shared.batches = shared.batches.split_off(&upto.next());
        Ok(())
    }

    fn compact(&self) -> Result<()> {
        self.lead().map(drop)
    }
}
