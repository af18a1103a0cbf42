//! A model of the journal of several metadata servers, as etcd provides it, on simulated time.
//! Leases expire or are lost early, appends lose their replies whether or not they were done,
//! members are cut off, and truncated records are gone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use weir_host::clock;
use weir_host::thread::sleep;
use weir_metastore::{Batch, Begun, Extent, Held, Journal, Sequence};
use weir_types::{Error, ErrorKind, Result};

/// Duration of a lead without renewal, and the shorter time for which the holder trusts it.
const LEASE: Duration = Duration::from_millis(4000);
const BELIEVED: Duration = Duration::from_millis(3500);
/// Timeout of a request without an answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// Pause before an append is sent again.
const PAUSE: Duration = Duration::from_millis(20);
/// The most batches of a read.
const BATCHES_PER_READ: usize = 8;
/// Probability per 1000 requests that an append loses its reply, or a lease is lost early.
const NO_ANSWER: u32 = 20;
const LOST_EARLY: u32 = 4;

struct Leader {
    number: u64,
    address: String,
    until: Duration,
}

struct State {
    rng: fastrand::Rng,
    leader: Option<Leader>,
    term: u64,
    begun: Option<Begun>,
    head: Option<Sequence>,
    batches: BTreeMap<Sequence, Vec<u8>>,
    members: BTreeMap<String, (Sequence, u64)>,
    removed: BTreeSet<String>,
    reports: u64,
    cut_off: Vec<bool>,
}

impl State {
    fn extent(&self) -> Option<Extent> {
        self.head.map(|head| Extent { begun: self.begun, head })
    }

    fn expire(&mut self) {
        let now = clock::since_boot();
        self.leader.take_if(|leader| leader.until <= now);
    }
}

/// The journal, for all members.
#[derive(Clone)]
pub(crate) struct JournalModel {
    state: Arc<Mutex<State>>,
}

impl JournalModel {
    pub fn new(seed: u64, members: usize) -> Self {
        let state = State {
            rng: fastrand::Rng::with_seed(seed),
            leader: None,
            term: 0,
            begun: None,
            head: None,
            batches: BTreeMap::new(),
            members: BTreeMap::new(),
            removed: BTreeSet::new(),
            reports: 0,
            cut_off: vec![false; members],
        };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Cuts a member off from the journal, or connects it again.
    pub fn cut_off(&self, member: usize, on: bool) {
        self.lock().cut_off[member] = on;
    }

    /// Address of the leader, whether or not it knows that it leads. Asked from outside of the
    /// machines, so that an expired lead may still be named.
    pub fn leader(&self) -> Option<String> {
        self.lock().leader.as_ref().map(|leader| leader.address.clone())
    }

    /// The view of one member, for one run of its process.
    pub fn of(&self, member: usize) -> MemberJournal {
        MemberJournal { model: self.clone(), member, lead: Mutex::new(None) }
    }

    /// Never held while a simulated thread waits.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The journal as one member sees it.
pub(crate) struct MemberJournal {
    model: JournalModel,
    member: usize,
    /// Number of the member's lead, and until when the member trusts it.
    lead: Mutex<Option<(u64, Duration)>>,
}

impl MemberJournal {
    fn lead(&self) -> MutexGuard<'_, Option<(u64, Duration)>> {
        self.lead.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The round trip to the journal.
    fn reach(&self) -> Result<()> {
        let (cut_off, way) = {
            let mut state = self.model.lock();
            (state.cut_off[self.member], Duration::from_micros(state.rng.u64(200..3000)))
        };
        sleep(if cut_off { PATIENCE } else { way });
        let mut state = self.model.lock();
        state.expire();
        match state.cut_off[self.member] {
            true => Err(Error::new(ErrorKind::TimedOut, "the journal does not answer")),
            false => Ok(()),
        }
    }

    fn fence(&self) -> Result<u64> {
        match *self.lead() {
            Some((number, until)) if clock::since_boot() < until => Ok(number),
            _ => Err(Error::new(ErrorKind::NotLeader, "this member does not lead")),
        }
    }

    /// The state, if this member leads according to the journal.
    fn leading(&self, number: u64) -> Result<MutexGuard<'_, State>> {
        let state = self.model.lock();
        match &state.leader {
            Some(leader) if leader.number == number => Ok(state),
            _ => Err(Error::new(ErrorKind::NotLeader, "another member has taken the lead")),
        }
    }

    fn try_append(&self, number: u64, previous: Sequence, batch: &Batch) -> Result<()> {
        self.reach()?;
        let mut state = self.leading(number)?;
        match state.head {
            Some(head) if head == batch.last => return Ok(()),
            Some(head) if head == previous => {}
            _ => return Err(Error::new(ErrorKind::Corrupt, "the journal goes on elsewhere")),
        }
        let dice = state.rng.u32(0..1000);
        if dice >= NO_ANSWER / 2 {
            state.batches.insert(batch.last, batch.records.clone());
            state.head = Some(batch.last);
        }
        match dice < NO_ANSWER {
            true => Err(Error::new(ErrorKind::TimedOut, "no answer to an append")),
            false => Ok(()),
        }
    }
}

impl Journal for MemberJournal {
    fn leader(&self) -> Result<Option<String>> {
        self.reach()?;
        Ok(self.model.leader())
    }

    fn extent(&self) -> Result<Option<Extent>> {
        self.reach()?;
        Ok(self.model.lock().extent())
    }

    fn acquire(&self, address: &str, begin: Option<Begun>) -> Result<Option<u64>> {
        let sent = clock::since_boot();
        self.reach()?;
        let mut state = self.model.lock();
        if state.leader.is_some() {
            return Ok(None);
        }
        let found = state.extent();
        let log = Extent::led(found, begin).ok_or(ErrorKind::NotFound)?;
        if found.is_none() {
            state.removed.clear();
        }
        (state.begun, state.head) = (log.begun, Some(log.head));
        state.term += 1;
        let (number, address) = (state.term, address.to_owned());
        let until = clock::since_boot() + LEASE;
        state.leader = Some(Leader { number, address, until });
        *self.lead() = Some((number, sent + BELIEVED));
        Ok(Some(number))
    }

    fn read(&self, after: Sequence) -> Result<Vec<Batch>> {
        self.reach()?;
        let state = self.model.lock();
        let batches = state.batches.range(after.next()..).take(BATCHES_PER_READ);
        Ok(batches.map(|(last, records)| Batch { last: *last, records: records.clone() }).collect())
    }

    fn append(&self, previous: Sequence, batch: &Batch) -> Result<()> {
        loop {
            let number = self.fence()?;
            match self.try_append(number, previous, batch) {
                Err(error) if error.kind == ErrorKind::TimedOut => sleep(PAUSE),
                Err(error) => {
                    *self.lead() = None;
                    return Err(error);
                }
                Ok(()) => return Ok(()),
            }
        }
    }

    fn renew(&self) -> Result<()> {
        let (number, sent) = (self.fence()?, clock::since_boot());
        self.reach()?;
        let mut state = self.leading(number)?;
        if state.rng.u32(0..1000) < LOST_EARLY {
            *self.lead() = None;
            return Err(Error::new(ErrorKind::NotLeader, "the lease was lost early"));
        }
        let until = clock::since_boot() + LEASE;
        if let Some(leader) = &mut state.leader {
            leader.until = until;
        }
        *self.lead() = Some((number, sent + BELIEVED));
        Ok(())
    }

    fn check(&self) -> Result<()> {
        self.fence().map(drop)
    }

    fn resign(&self) {
        let lead = self.lead().take();
        if let Some((number, _)) = lead
            && self.reach().is_ok()
        {
            self.model.lock().leader.take_if(|leader| leader.number == number);
        }
    }

    fn report(&self, member: &str, upto: Sequence) -> Result<()> {
        self.reach()?;
        let mut state = self.model.lock();
        state.reports += 1;
        let stamp = state.reports;
        state.members.insert(member.to_owned(), (upto, stamp));
        Ok(())
    }

    fn forget(&self, member: &str) -> Result<()> {
        self.reach()?;
        self.model.lock().members.remove(member);
        Ok(())
    }

    fn remove(&self, member: &str) -> Result<()> {
        let number = self.fence()?;
        self.reach()?;
        let mut state = self.leading(number)?;
        state.members.remove(member);
        state.removed.insert(member.to_owned());
        Ok(())
    }

    fn removed(&self) -> Result<Vec<String>> {
        self.reach()?;
        Ok(self.model.lock().removed.iter().cloned().collect())
    }

    fn end(&self) -> Result<()> {
        let number = self.fence()?;
        self.reach()?;
        let mut state = self.leading(number)?;
        (state.begun, state.head) = (None, None);
        state.batches.clear();
        state.members.clear();
        Ok(())
    }

    fn members(&self) -> Result<Vec<Held>> {
        self.reach()?;
        let state = self.model.lock();
        let held = |(member, (upto, stamp)): (&String, &(Sequence, u64))| Held {
            member: member.clone(),
            upto: *upto,
            stamp: *stamp,
        };
        Ok(state.members.iter().map(held).collect())
    }

    fn cut(&self, upto: Sequence) -> Result<()> {
        let number = self.fence()?;
        self.reach()?;
        let mut state = self.leading(number)?;
        state.batches = state.batches.split_off(&upto.next());
        Ok(())
    }

    fn compact(&self) -> Result<()> {
        let number = self.fence()?;
        self.reach()?;
        self.leading(number).map(drop)
    }
}
