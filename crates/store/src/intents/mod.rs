//! The intent log: which parts of which objects may not match their checksums if the target stops
//! now. `docs/format-store.md` has the bytes and the reasons.
//!
//! Invariants
//! - A part of an object is marked durably before it is first changed. Young objects are excepted:
//!   they were born in this era, and the window of their file ids is marked.
//! - A mark is removed only after everything that it covers is durable. [`Intents::checkpoint`]
//!   begins an era, syncs, and then forgets the marks that the new era did not need again. Every
//!   change holds the gate from before it looks up the marks until it ends, so that no change falls
//!   between two eras.
//! - A pledged change (one that is under way on other copies too) stays marked. A checkpoint marks
//!   it in the new era, even if its object was young.
//! - Lock order: gate, object, state. The state is never locked across I/O.

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

/// The most marks that one change asks for. Beyond it the change marks everything from the first to
/// the last.
const MAX_WANTED: usize = 64;
/// The fewest sectors per area that the log works with.
const MIN_SECTORS: usize = 3;

/// The intent log of one target.
pub(crate) struct Intents {
    site: Arc<Site>,
    identity: TargetIdentity,
    file: File,
    /// Number of sectors of an area that may be filled.
    sectors: usize,
    /// The present era. Every change of an object holds a read lock on it.
    gate: RwLock<u64>,
    state: Mutex<State>,
    flushed: Condvar,
    /// Held during a checkpoint.
    checkpoint: Mutex<()>,
}

struct State {
    table: Table,
    /// Marks of the open batch, which are not durable yet.
    pending: Vec<Record>,
    /// The number of the open batch.
    batch: u64,
    /// The last batch that ended, with success or not.
    finished: u64,
    last_error: Option<Error>,
    /// Whether a thread is writing to the file.
    busy: bool,
    area: usize,
    /// Number of written sectors in the area.
    used: usize,
    sequence: u64,
    /// The present era.
    era: u64,
    /// The era in the log: everything from before it is durable. It is one lower than the present
    /// era while a checkpoint runs.
    since: u64,
    /// Changes that are under way on several copies.
    pledges: Pledges,
}

/// A planned write of sectors.
struct Plan {
    area: usize,
    at: usize,
    bytes: Vec<u8>,
    batch: u64,
    records: Vec<Record>,
    since: u64,
}

impl Intents {
    /// Begins the log of a target that has just been recovered, without marks. An area is filled up
    /// to `sectors` before the other one is used.
    ///
    /// Nothing is synced here. The first mark is synced together with the head of its area, and no
    /// change before that needs a mark.
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
            // The rest of the area is overwritten with zeros.
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

    /// Begins a change of an object and returns a guard with the present era. The change ends when
    /// the guard is dropped.
    pub(crate) fn enter(&self) -> ReadGuard<'_, u64> {
        self.gate.read()
    }

    /// Waits until every change that has begun has ended.
    pub(crate) fn enter_alone(&self) -> WriteGuard<'_, u64> {
        self.gate.write()
    }

    /// Whether the log needs a checkpoint before it can take more marks.
    pub(crate) fn is_full(&self) -> bool {
        self.state.lock().table.len() >= self.capacity() / 2
    }

    /// Number of marks that an area can hold.
    fn capacity(&self) -> usize {
        (self.sectors - 1) * SECTOR_RECORDS
    }

    /// Marks the pieces `(offset, length)` of an object that are about to be changed. The object is
    /// not young and has `len` bytes.
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

    /// Waits until the marks are durable. The first thread to come writes for all that come
    /// meanwhile.
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

    /// Plans the other area with all present marks. Everything from before the era `since` is
    /// durable.
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
            // This write only removes marks. If it is lost, the previous area counts. A head with
            // marks behind it must be complete before the other area is used again.
            return Ok(());
        }
        let site = if plan.at > 0 { "intent-mark" } else { "intent-rewrite" };
        self.file.sync(site).map_err(|e| self.site.failed_sync("sync the intent log", e))
    }

    /// Makes everything durable with `sync`, and removes the marks of changes from before this
    /// checkpoint.
    pub(crate) fn checkpoint(&self, sync: impl FnOnce() -> Result<()>) -> Result<()> {
        let _one = self.checkpoint.lock();
        {
            let mut era = self.gate.write();
            let mut state = self.state.lock();
            // Repeated if the previous checkpoint failed: the era is at most one ahead of the log.
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
        // At once, so that no change relies on a mark that the new area lacks.
        state.table.forget_before(era);
        let plan = self.rewritten(&mut state, era);
        self.carry_out(state, plan).1
    }

    /// Keeps existing marks of pieces `(offset, length)` over every checkpoint, until
    /// [`Intents::release`] is called with the returned number. The object has `len` bytes. To be
    /// called within the era of the marks.
    ///
    /// Errors: `Overloaded` if the pledges need more marks than an area can hold.
    pub(crate) fn pledge(&self, id: ObjectId, pieces: &[(u64, u64)], len: u64) -> Result<u64> {
        let mut state = self.state.lock();
        let era = state.era;
        let number = state.pledges.add(id, pieces, len, era, self.capacity() / 4);
        number.ok_or_else(|| {
            let what = "too many changes are under way on several copies";
            self.site.error(ErrorKind::Overloaded, what)
        })
    }

    /// Ends a pledge, because its change is done.
    pub(crate) fn release(&self, number: u64) {
        self.state.lock().pledges.remove(number);
    }

    /// Whether any pledge exists.
    pub(crate) fn is_pledged(&self) -> bool {
        !self.state.lock().pledges.is_empty()
    }

    /// Whether there are no marks.
    pub(crate) fn is_empty(&self) -> bool {
        let state = self.state.lock();
        state.table.is_empty() && state.pending.is_empty()
    }

    /// Records that everything is durable and that nothing will change any more. Not synced: if the
    /// record is lost, the next opening recovers and finds nothing.
    pub(crate) fn mark_clean(&self) -> Result<()> {
        let mut state = self.state.lock();
        state.sequence += 1;
        let bytes = area::snapshot(self.identity, state.sequence, state.era, true, &[]);
        let area = 1 - state.area;
        drop(state);
        write(&self.site, &self.file, area, 0, &bytes)
    }

    /// The bytes of the file, for verifying them.
    pub(crate) fn bytes(&self) -> rustix::io::Result<Vec<u8>> {
        let mut state = self.state.lock();
        while state.busy {
            state = self.flushed.wait(state);
        }
        // Keeps other threads from writing, so that no sector is read half written.
        state.busy = true;
        drop(state);
        let bytes = read_bytes(&self.file);
        self.state.lock().busy = false;
        self.flushed.notify_all();
        bytes
    }
}

impl State {
    /// Marks pledged pieces from earlier eras in this era, too.
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

/// Reads the file, up to a little more than its right length.
pub(crate) fn read_bytes(file: &File) -> rustix::io::Result<Vec<u8>> {
    let mut bytes = vec![0; area::FILE_BYTES + 1];
    let len = file.read_full(&mut bytes, 0)?;
    bytes.truncate(len);
    Ok(bytes)
}

/// Writes sectors of an area, from sector number `at` on.
fn write(site: &Site, file: &File, area: usize, at: usize, bytes: &[u8]) -> Result<()> {
    let position = (area * AREA_BYTES + at * SECTOR) as u64;
    file.write_full(bytes, position).map_err(|e| site.failed_change("write the intent log", e))
}

/// One mark from the first of these marks to the last.
fn all_between(id: ObjectId, wanted: &[Record]) -> Record {
    let (mut first, mut end) = (u64::MAX, 0);
    for record in wanted {
        if let Record::Range { first: from, end: to, .. } = record {
            (first, end) = (first.min(*from), end.max(*to));
        }
    }
    Record::Range { id, first, end }
}
