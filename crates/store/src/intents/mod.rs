//! The intent log: which parts of which objects may not match their checksums
//! if the target stops now. `docs/format-store.md` has the bytes and the
//! reasons.
//!
//! Invariants
//! - A part of an object is marked durably before it is first changed, unless
//!   the object is young: born in this era, with its window of file ids marked.
//! - A mark goes only after everything that it covered has become durable:
//!   [`Intents::checkpoint`] begins an era, syncs, and then forgets what the
//!   new era did not need again. Every change holds the gate from before its
//!   look at the marks until it is done, so that none falls between two eras.
//! - What is pledged (a change that is under way on other copies too) stays
//!   marked: a checkpoint marks it in the new era, also what was young.
//! - Locks in this order: gate, object, state. The state is never locked
//!   across I/O.

pub(crate) mod area;
mod pledges;
pub(crate) mod sector;
pub(crate) mod table;

use crate::site::Site;
use crate::superblock::TargetIdentity;
use area::{AREA_BYTES, AREA_SECTORS, sectors_of};
use pledges::Pledges;
pub(crate) use sector::Record;
use sector::{SECTOR, SECTOR_RECORDS};
use std::sync::Arc;
use table::{Table, window};
use weir_host::fs::File;
use weir_host::plant::{Bug, planted};
use weir_host::sync::{Condvar, Mutex, MutexGuard, ReadGuard, RwLock, WriteGuard};
use weir_types::{Error, ErrorKind, ObjectId, Result};

/// Marks, at most, that one change asks for; beyond that it marks everything
/// from the first to the last.
const MAX_WANTED: usize = 64;
/// The fewest sectors of an area that the log can do with.
const MIN_SECTORS: usize = 3;

/// The intent log of one target.
pub(crate) struct Intents {
    site: Arc<Site>,
    identity: TargetIdentity,
    file: File,
    /// Sectors of an area that are used.
    sectors: usize,
    /// The era. Every change of an object holds it for reading.
    gate: RwLock<u64>,
    state: Mutex<State>,
    flushed: Condvar,
    /// Held by whoever makes a checkpoint.
    checkpoint: Mutex<()>,
}

struct State {
    table: Table,
    /// Marks that wait to be made durable, in the batch that is open.
    pending: Vec<Record>,
    /// The number of the open batch.
    batch: u64,
    /// The last batch that was dealt with, well or badly.
    finished: u64,
    last_error: Option<Error>,
    /// Someone writes to the file.
    busy: bool,
    area: usize,
    /// Sectors of the area that are written.
    used: usize,
    sequence: u64,
    /// The present era.
    era: u64,
    /// The era that the log says: everything from before it is durable. One
    /// lower than the present one while a checkpoint is made.
    since: u64,
    /// Changes under way on several copies.
    pledges: Pledges,
}

/// What is to be written where.
struct Plan {
    area: usize,
    at: usize,
    bytes: Vec<u8>,
    batch: u64,
    records: Vec<Record>,
    since: u64,
}

impl Intents {
    /// The log of a target that has just been recovered: nothing is marked. It
    /// fills an area up to so many `sectors` before it begins the other.
    ///
    /// Nothing is synced: the first mark is synced together with the head of
    /// its area, and before that nothing is changed that would need one.
    pub(crate) fn begin(
        site: Arc<Site>,
        identity: TargetIdentity,
        file: File,
        sectors: usize,
        contents: &area::Contents,
        era: u64,
    ) -> Result<Self> {
        let sequence = contents.max_sequence + 1;
        let area = contents.newest.map_or(0, |newest| 1 - newest.area);
        let mut bytes = area::snapshot(identity, sequence, era, false, &[]);
        if contents.damaged {
            // Whatever else is there goes.
            bytes.resize(AREA_BYTES, 0);
            write(&site, &file, 1 - area, 0, &vec![0; AREA_BYTES])?;
        }
        write(&site, &file, area, 0, &bytes)?;
        let state = State {
            table: Table::default(),
            pending: Vec::new(),
            batch: 1,
            finished: 0,
            last_error: None,
            busy: false,
            area,
            used: 1,
            sequence,
            era,
            since: era,
            pledges: Pledges::default(),
        };
        Ok(Self {
            site,
            identity,
            file,
            sectors: sectors.clamp(MIN_SECTORS, AREA_SECTORS),
            gate: RwLock::new(era),
            state: Mutex::new(state),
            flushed: Condvar::new(),
            checkpoint: Mutex::new(()),
        })
    }

    /// Begins a change of an object; it ends when the guard is dropped. The
    /// value is the era.
    pub(crate) fn enter(&self) -> ReadGuard<'_, u64> {
        self.gate.read()
    }

    /// Waits for every change that has begun.
    pub(crate) fn enter_alone(&self) -> WriteGuard<'_, u64> {
        self.gate.write()
    }

    /// Whether a checkpoint is needed before there is room for more marks.
    pub(crate) fn is_full(&self) -> bool {
        self.state.lock().table.len() >= self.capacity() / 2
    }

    /// Marks that an area holds.
    fn capacity(&self) -> usize {
        (self.sectors - 1) * SECTOR_RECORDS
    }

    /// Marks where an object that is not young will be changed: pieces
    /// `(offset, length)`; `len` is its length.
    pub(crate) fn cover(&self, id: ObjectId, pieces: &[(u64, u64)], len: u64) -> Result<()> {
        if planted(Bug::SkipIntentMark) {
            return Ok(());
        }
        let mut state = self.state.lock();
        let era = state.era;
        let mut wanted = Vec::new();
        for &(start, bytes) in pieces.iter().filter(|piece| piece.1 > 0) {
            let end = start + bytes;
            wanted.extend(state.table.plan(id, (start, end), end > len, era));
        }
        wanted.sort_unstable();
        wanted.dedup();
        if wanted.len() > MAX_WANTED.min(self.capacity() / 4) {
            wanted = vec![all_between(id, &wanted)];
        }
        if wanted.is_empty() { Ok(()) } else { self.make_durable(state, &wanted) }
    }

    /// Marks the window of an object that is about to be born.
    pub(crate) fn cover_young(&self, id: ObjectId) -> Result<()> {
        let mut state = self.state.lock();
        let (era, record) = (state.era, Record::Window(window(id.file)));
        if state.table.holds(&record, era) {
            return Ok(());
        }
        self.make_durable(state, &[record])
    }

    /// Whoever comes first writes for all who have come meanwhile.
    fn make_durable<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        wanted: &[Record],
    ) -> Result<()> {
        state.pending.extend(wanted);
        let batch = state.batch;
        while state.finished < batch {
            state = if state.busy { self.flushed.wait(state) } else { self.flush(state).0 };
        }
        let era = state.era;
        if wanted.iter().all(|record| state.table.holds(record, era)) {
            return Ok(());
        }
        let error = state.last_error.clone();
        Err(error.unwrap_or_else(|| {
            self.site.error(ErrorKind::Internal, "a mark of the intent log was lost")
        }))
    }

    /// Makes the open batch durable.
    fn flush<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
    ) -> (MutexGuard<'a, State>, Result<()>) {
        let room = self.sectors.saturating_sub(state.used);
        let plan = if sectors_of(state.pending.len()) <= room {
            let (batch, records) = state.close_batch();
            let (area, at, since) = (state.area, state.used, state.since);
            let bytes = area::append(state.sequence, at, &records);
            Plan { area, at, bytes, batch, records, since }
        } else {
            let since = state.since;
            self.rewritten(&mut state, since)
        };
        self.carry_out(state, plan)
    }

    /// The other area, with all that is marked now. Everything from before the
    /// era `since` is durable.
    fn rewritten(&self, state: &mut State, since: u64) -> Plan {
        let (batch, records) = state.close_batch();
        state.sequence += 1;
        let all: Vec<Record> = state.table.records().chain(records.iter().copied()).collect();
        let bytes = area::snapshot(self.identity, state.sequence, since, false, &all);
        Plan { area: 1 - state.area, at: 0, bytes, batch, records, since }
    }

    fn carry_out<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        plan: Plan,
    ) -> (MutexGuard<'a, State>, Result<()>) {
        state.busy = true;
        drop(state);
        let result = self.write_plan(&plan);
        let mut state = self.state.lock();
        state.busy = false;
        state.finished = plan.batch;
        match &result {
            Ok(()) => {
                let era = state.era;
                for &record in &plan.records {
                    state.table.insert(record, era);
                }
                state.area = plan.area;
                state.since = plan.since;
                state.used = plan.at + plan.bytes.len() / SECTOR;
            }
            Err(e) => state.last_error = Some(e.clone()),
        }
        self.flushed.notify_all();
        (state, result)
    }

    fn write_plan(&self, plan: &Plan) -> Result<()> {
        let sectors = plan.bytes.len() / SECTOR;
        if plan.at + sectors > AREA_SECTORS {
            let what = format!("{sectors} sectors of marks do not fit into the intent log");
            return Err(self.site.error(ErrorKind::Overloaded, what));
        }
        write(&self.site, &self.file, plan.area, plan.at, &plan.bytes)?;
        if plan.at == 0 && sectors == 1 {
            // It only forgets. Should it be lost, what was before it counts. (A
            // head with marks behind it must be whole before the other area is
            // touched again.)
            return Ok(());
        }
        let site = if plan.at > 0 { "intent-mark" } else { "intent-rewrite" };
        self.file.sync(site).map_err(|e| self.site.failed_sync("sync the intent log", e))
    }

    /// Makes everything durable with `sync`, and forgets what is marked but
    /// for changes since it began.
    pub(crate) fn checkpoint(&self, sync: impl FnOnce() -> Result<()>) -> Result<()> {
        let _one = self.checkpoint.lock();
        {
            let mut era = self.gate.write();
            let mut state = self.state.lock();
            // Once more, if the checkpoint before this one failed: the era is
            // never more than one ahead of what the log says.
            *era = state.since + 1;
            state.era = *era;
        }
        sync()?;
        let mut state = self.state.lock();
        while state.busy {
            state = self.flushed.wait(state);
        }
        let era = state.era;
        state.keep_pledged(era);
        // At once, so that nobody relies on a mark that the new area lacks.
        state.table.forget_before(era);
        let plan = self.rewritten(&mut state, era);
        self.carry_out(state, plan).1
    }

    /// Keeps the marks of pieces `(offset, length)` of an object of length
    /// `len`, which are there, over every checkpoint until they are released by
    /// this number. To be called within the era of the marks.
    ///
    /// Errors: `Overloaded` if there are more than an area has room for.
    pub(crate) fn pledge(&self, id: ObjectId, pieces: &[(u64, u64)], len: u64) -> Result<u64> {
        let mut state = self.state.lock();
        let era = state.era;
        let number = state.pledges.add(id, pieces, len, era, self.capacity() / 4);
        number.ok_or_else(|| {
            let what = "too many changes are under way on several copies";
            self.site.error(ErrorKind::Overloaded, what)
        })
    }

    /// The change is done.
    pub(crate) fn release(&self, number: u64) {
        self.state.lock().pledges.remove(number);
    }

    /// Whether changes are under way on several copies.
    pub(crate) fn is_pledged(&self) -> bool {
        !self.state.lock().pledges.is_empty()
    }

    /// Whether nothing is marked.
    pub(crate) fn is_empty(&self) -> bool {
        let state = self.state.lock();
        state.table.is_empty() && state.pending.is_empty()
    }

    /// Says that everything is durable and nothing will change any more. Not
    /// synced: if it is lost, the next opening recovers, and finds nothing.
    pub(crate) fn mark_clean(&self) -> Result<()> {
        let mut state = self.state.lock();
        state.sequence += 1;
        let bytes = area::snapshot(self.identity, state.sequence, state.era, true, &[]);
        let area = 1 - state.area;
        drop(state);
        write(&self.site, &self.file, area, 0, &bytes)
    }

    /// The bytes of the file, for checking.
    pub(crate) fn bytes(&self) -> rustix::io::Result<Vec<u8>> {
        let mut state = self.state.lock();
        while state.busy {
            state = self.flushed.wait(state);
        }
        // Nobody writes meanwhile, so no sector is seen half written.
        state.busy = true;
        drop(state);
        let bytes = read_bytes(&self.file);
        self.state.lock().busy = false;
        self.flushed.notify_all();
        bytes
    }
}

impl State {
    /// What is pledged since before this era will be marked in it.
    fn keep_pledged(&mut self, era: u64) {
        if planted(Bug::ForgetPledge) {
            return;
        }
        for record in self.pledges.since_before(era) {
            if !self.table.holds(&record, era) {
                self.pending.push(record);
            }
        }
    }

    fn close_batch(&mut self) -> (u64, Vec<Record>) {
        self.batch += 1;
        (self.batch - 1, std::mem::take(&mut self.pending))
    }
}

/// The file, at most as long as it should be and a little longer.
pub(crate) fn read_bytes(file: &File) -> rustix::io::Result<Vec<u8>> {
    let mut bytes = vec![0; area::FILE_BYTES + 1];
    let len = file.read_full(&mut bytes, 0)?;
    bytes.truncate(len);
    Ok(bytes)
}

/// Writes sectors from number `at` of an area on.
fn write(site: &Site, file: &File, area: usize, at: usize, bytes: &[u8]) -> Result<()> {
    let position = (area * AREA_BYTES + at * SECTOR) as u64;
    file.write_full(bytes, position).map_err(|e| site.failed_change("write the intent log", e))
}

/// One mark for everything from the first of these to the last.
fn all_between(id: ObjectId, wanted: &[Record]) -> Record {
    let (mut first, mut end) = (u64::MAX, 0);
    for record in wanted {
        if let Record::Range { first: from, end: to, .. } = record {
            (first, end) = (first.min(*from), end.max(*to));
        }
    }
    Record::Range { id, first, end }
}
