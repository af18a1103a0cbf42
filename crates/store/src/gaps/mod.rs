//! What copies lack: a set of gaps for each object and target that was away,
//! or has not confirmed, when the object was changed. The target that is
//! behind may be this one: then its own copy lacks what others have.
//!
//! Invariants
//! - A gap is durable before the change that makes it is begun.
//! - A gap goes only when the copy that lacks it has got the bytes. Losing the
//!   record of that is harmless: they are sent once more.
//! - After an unclean stop everything that was suspect is a gap of this target
//!   before the intent log forgets that it was.
//! - A log that has vanished or is damaged is not taken for one that says
//!   nothing: the superblock says that there is one, and the new one says what
//!   is not known until [`Gaps::found`].
//! - The state is never locked across I/O: readers of objects ask it.
//!
//! The log only grows; when most of it is history it is written anew.

mod log;
mod ranges;
pub(crate) mod record;
mod start;
mod table;
mod told;

pub use ranges::RangeSet;
pub(crate) use start::Suspects;

use crate::site::Site;
use crate::superblock::{self, TargetIdentity};
use log::Log;
use record::Record;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use table::{ALL_FILES, Table, parts_in};
use weir_host::fs::Directory;
use weir_host::plant::{Bug, planted};
use weir_host::sync::{Condvar, Mutex, MutexGuard};
use weir_types::{CopyIndex, ErrorKind, ObjectId, Result, TargetId};

/// Gaps are noted in parts of this size, so that a stream is noted seldom.
const PART_BYTES: u64 = 1 << 20;
/// The most objects with gaps: 1 KiB of memory each at the most. Beyond that
/// writes without the other copy fail.
const MAX_OBJECTS: usize = 1 << 20;
/// The most ranges of all gaps together. Beyond that whole objects are noted.
const MAX_ALL_RANGES: usize = 1 << 22;

/// What one copy lacks of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The object here.
    pub object: ObjectId,
    /// Which copy lacks it.
    pub copy: CopyIndex,
    /// What it lacks.
    pub bytes: RangeSet,
}

impl Gap {
    /// Its parts of 1 MiB; what goes on to the end of all that there can be is one.
    pub fn parts(&self) -> u64 {
        parts_in(&self.bytes)
    }
}

/// Bytes of an object that one copy is going to lack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The object here.
    pub object: ObjectId,
    /// The target of the copy that lacks them.
    pub behind: TargetId,
    /// Which copy that is.
    pub copy: CopyIndex,
    /// The bytes.
    pub bytes: Range<u64>,
}

/// The gap log of one target.
pub struct Gaps {
    site: Arc<Site>,
    root: Directory,
    identity: TargetIdentity,
    /// The present run of the machine, if it says.
    run: Option<u128>,
    /// Sectors of history that the log lets be.
    history: usize,
    /// The superblock says that there is a log.
    kept: AtomicBool,
    /// Something is lacking. Set after it is in the table.
    any: AtomicBool,
    state: Mutex<State>,
    written: Condvar,
}

#[derive(Default)]
struct State {
    table: Table,
    /// What waits to be written.
    batch: Batch,
    /// What those who lack it have got, and not made durable. Bounded by what they
    /// lack.
    sent: BTreeMap<(TargetId, ObjectId), RangeSet>,
    /// What those who lack it have noted themselves. Bounded by what they lack.
    told: BTreeMap<(TargetId, ObjectId), RangeSet>,
    /// Of what was told, the parts of which they have been sent something since: they have
    /// struck that out, and nobody here knows how much. Bounded as `told`.
    begun: BTreeMap<(TargetId, ObjectId), RangeSet>,
    /// Of what was told, the parts of which only the copy that lacks them has said so: what it
    /// said may be older than what it has been sent since. Bounded as `told`.
    said: BTreeMap<(TargetId, ObjectId), RangeSet>,
    /// Of gaps of which all parts were noted by [`Gaps::put_off`]: the very bytes that
    /// have not got there. No gap has more than is lacking by this. Bounded as `sent`.
    left: BTreeMap<(TargetId, ObjectId), RangeSet>,
    /// See [`Gaps::in_run`].
    runs: BTreeMap<TargetId, u64>,
    /// Notes of other kinds that are not in the table yet.
    notes: usize,
    /// Those of them of which the copies that lack it have not heard. No more than
    /// threads that note something.
    untold_notes: BTreeMap<(TargetId, ObjectId), usize>,
    /// Clears that are not in the table yet.
    clears: usize,
    /// Someone writes to the log.
    busy: bool,
    /// `None` until there is something to note, while someone writes to it, and
    /// when it has to be written anew.
    log: Option<Log>,
}

/// Records that are written together.
#[derive(Default)]
struct Batch {
    records: Vec<Record>,
    /// They are the last that there is to say: they may use the reserve.
    last: bool,
    /// They are to be durable, whatever they say.
    durable: bool,
    outcome: Arc<OnceLock<Result<()>>>,
}

/// Stands for this target where it lacks what another copy has for certain, because
/// that has said so. What it notes of itself may be had by nobody: it is only not
/// known to be the same everywhere.
pub const ELSEWHERE: TargetId = TargetId::NONE;

/// Stands for this target where it has lost its notes of what it lacked, and the other copies
/// have not said yet what they had noted. All of it is noted as [`ELSEWHERE`], too.
pub const UNHEARD: TargetId = TargetId(TargetId::NONE.0 - 1);

impl Gaps {
    /// Whether changes of these bytes may be put off: of what both sides note, all of their
    /// parts, this one lacks nothing that is elsewhere. Else each could come to believe
    /// that the other has it.
    pub fn may_put_off(&self, object: ObjectId, bytes: &Range<u64>) -> bool {
        !self.lacks(object, ELSEWHERE, &gap_parts(bytes))
    }

    /// Notes, durably, that another copy gets these bytes of a change later. It has noted
    /// that it lacks them: them, and all of their parts. Which bytes those are is
    /// remembered until a restart: see [`Gaps::left`].
    pub fn put_off(
        &self,
        object: ObjectId,
        behind: TargetId,
        copy: CopyIndex,
        bytes: &Range<u64>,
    ) -> Result<()> {
        let note = Note { object, behind, copy, bytes: bytes.clone() };
        let mut state = self.state.lock();
        state.put_off(&note);
        state.tells((behind, object), bytes);
        let noted = self.note_records(state, std::slice::from_ref(&note));
        if noted.is_err() {
            let (mut state, key) = (self.state.lock(), (behind, object));
            state.told.remove(&key);
            state.left.remove(&key);
        }
        noted
    }

    /// Something of these bytes is sent now to the copy that lacks them, which strikes it out
    /// at once: what it has noted itself is not known any more.
    pub fn begins(&self, object: ObjectId, behind: TargetId, bytes: &Range<u64>) {
        let (mut state, key) = (self.state.lock(), (behind, object));
        if state.told.contains_key(&key) {
            state.begun.entry(key).or_default().insert(gap_parts(bytes));
        }
    }

    /// As [`Gaps::put_off`] if both have noted it already: returns whether that is so.
    /// Nothing of it may have been sent meanwhile, since that is forgotten soon; and that copy
    /// must have noted it for us: what it said itself may have been under way for long.
    pub fn put_off_again(&self, object: ObjectId, behind: TargetId, bytes: &Range<u64>) -> bool {
        let (mut state, key) = (self.state.lock(), (behind, object));
        let known = state.clears == 0
            && state.table.get(behind, object).is_some_and(|(_, set)| set.covers(bytes))
            && state.told.get(&key).is_some_and(|told| told.covers(bytes))
            && !state.begun.get(&key).is_some_and(|begun| begun.touches(&gap_parts(bytes)))
            && !state.said.get(&key).is_some_and(|said| said.touches(&gap_parts(bytes)))
            && !state.sent.get(&key).is_some_and(|sent| sent.touches(&gap_parts(bytes)));
        if known && let Some(left) = state.left.get_mut(&key) {
            left.insert(bytes.clone());
        }
        known
    }

    /// The machine of another copy has this run now. In another one it may have lost whatever it
    /// had got and not made durable: all of its gaps are to be brought.
    pub fn in_run(&self, behind: TargetId, run: u64) {
        let mut state = self.state.lock();
        if state.runs.insert(behind, run) != Some(run) {
            state.left.retain(|(of, _), _| *of != behind);
            state.sent.retain(|(of, _), _| *of != behind);
        }
    }

    /// What was put off has got there, but for what was put off since. The gap stays
    /// until it is cleared.
    pub fn got(&self, object: ObjectId, behind: TargetId, bytes: &[(u64, u64)]) {
        if let Some(left) = self.state.lock().left.get_mut(&(behind, object)) {
            bytes.iter().for_each(|&(start, len)| left.remove(&(start..start + len)));
        }
    }

    /// The bytes of a gap that have not got there, if that is known more exactly than
    /// what the gap says.
    pub fn left(&self, object: ObjectId, behind: TargetId) -> Option<RangeSet> {
        self.state.lock().left.get(&(behind, object)).cloned()
    }

    /// Notes, durably, that another copy will not have what is going to be
    /// written here. Costs nothing when that is noted already.
    ///
    /// Errors: `NoSpace`, `Io`: nothing may be written then.
    pub fn note(
        &self,
        object: ObjectId,
        behind: TargetId,
        copy: CopyIndex,
        bytes: &Range<u64>,
    ) -> Result<()> {
        self.note_all(&[Note { object, behind, copy, bytes: bytes.clone() }])
    }

    /// As [`Gaps::note`], several with one sync.
    pub fn note_all(&self, notes: &[Note]) -> Result<()> {
        self.write_notes(notes, false)
    }

    fn write_notes(&self, notes: &[Note], told: bool) -> Result<()> {
        let mut state = self.state.lock();
        for note in notes {
            let key = (note.behind, note.object);
            // Of an untold gap the whole object counts, and of one that was not put off.
            if !told {
                state.told.remove(&key);
                *state.untold_notes.entry(key).or_default() += 1;
            }
            state.left.remove(&key);
        }
        state.notes += 1;
        let noted = self.note_records(state, notes);
        let mut state = self.state.lock();
        state.notes -= 1;
        if !told {
            notes.iter().for_each(|note| state.untold_is_noted((note.behind, note.object)));
        }
        noted
    }

    fn note_records(&self, mut state: MutexGuard<'_, State>, notes: &[Note]) -> Result<()> {
        if planted(Bug::SkipGapNote) {
            return Ok(());
        }
        notes.iter().for_each(|n| state.forget_sent((n.behind, n.object), &n.bytes));
        let records: Vec<Record> = notes.iter().filter_map(|note| state.record_of(note)).collect();
        if records.is_empty() {
            return Ok(());
        }
        let unknown = notes.iter().filter(|n| state.table.get(n.behind, n.object).is_none());
        if state.table.objects() + unknown.count() > MAX_OBJECTS {
            let what = format!(
                "copies on other targets lack parts of {MAX_OBJECTS} objects, which is all that \
                 is remembered: bring them back, or replace them"
            );
            return Err(self.site.error(ErrorKind::Io, what));
        }
        self.submit(state, records, false)
    }

    /// The copy that lacked these bytes has got them. No error if nothing was
    /// lacking. Not durable at once.
    pub fn clear(&self, object: ObjectId, behind: TargetId, bytes: &Range<u64>) -> Result<()> {
        let state = self.state.lock();
        match state.table.get(behind, object) {
            Some((copy, set)) if set.touches(bytes) => {
                let (copy, bytes) = (*copy, bytes.clone());
                self.submit(state, vec![Record::Clear { object, behind, copy, bytes }], false)
            }
            _ => Ok(()),
        }
    }

    /// What another copy had of a range, and this one lacks, is lost for good, and
    /// somebody has accepted that: what this copy has counts. Durable.
    pub fn accept(&self, object: ObjectId, bytes: &Range<u64>) -> Result<()> {
        let mut state = self.state.lock();
        let Some(&(copy, _)) = state.table.get(ELSEWHERE, object) else { return Ok(()) };
        state.batch.durable = true;
        let (behind, bytes) = (ELSEWHERE, bytes.clone());
        self.submit(state, vec![Record::Clear { object, behind, copy, bytes }], false)
    }

    /// The copy that lacks these bytes has got them, and may lose them again until
    /// it has made them durable: see [`Gaps::clear_sent`]. What is noted anew
    /// meanwhile has not been sent.
    pub fn sent(&self, object: ObjectId, behind: TargetId, bytes: &Range<u64>) {
        let mut state = self.state.lock();
        if state.table.get(behind, object).is_some_and(|(_, set)| set.touches(bytes)) {
            // Beyond what is remembered exactly it is sent once more.
            state.sent.entry((behind, object)).or_default().insert_if_room(bytes.clone());
        }
    }

    /// It was not sent after all.
    pub fn not_sent(&self, object: ObjectId, behind: TargetId, bytes: &Range<u64>) {
        self.state.lock().forget_sent((behind, object), bytes);
    }

    /// What was sent is durable where it was lacking.
    pub fn clear_sent(&self, object: ObjectId, behind: TargetId) -> Result<()> {
        let mut state = self.state.lock();
        let Some(sent) = state.sent.remove(&(behind, object)) else { return Ok(()) };
        let Some(&(copy, _)) = state.table.get(behind, object) else { return Ok(()) };
        let clear = |bytes| Record::Clear { object, behind, copy, bytes };
        let records = sent.iter().map(clear).collect();
        self.submit(state, records, false)
    }

    /// Nobody needs an object any more.
    pub(crate) fn forget(&self, object: ObjectId) -> Result<()> {
        if !self.any.load(Ordering::Acquire) {
            return Ok(());
        }
        let state = self.state.lock();
        let all = |(behind, copy)| Record::Clear { object, behind, copy, bytes: 0..u64::MAX };
        let records: Vec<Record> = state.table.behind(object).into_iter().map(all).collect();
        if records.is_empty() { Ok(()) } else { self.submit(state, records, false) }
    }

    /// Whether the copy on a target lacks anything of a range, as far as is
    /// known here. Of this target's own copies that is also said of those of
    /// which nothing is known, see [`Gaps::lost`]. For event loops: never waits
    /// for the disk, and takes no lock where there are no gaps at all.
    pub fn lacks(&self, object: ObjectId, of: TargetId, range: &Range<u64>) -> bool {
        if !self.any.load(Ordering::Acquire) {
            return false;
        }
        let state = self.state.lock();
        let file = object.file.0;
        let lacks = |of| state.table.get(of, object).is_some_and(|(_, set)| set.touches(range));
        let own = of == self.identity.target;
        let unknown = || state.table.lost().touches(&(file..file.saturating_add(1)));
        lacks(of) || own && (lacks(ELSEWHERE) || unknown())
    }

    /// Whether it is noted here that a copy on another target lacks anything of these bytes, or of
    /// their parts.
    pub fn knows_of_others(&self, object: ObjectId, bytes: &Range<u64>) -> bool {
        if !self.any.load(Ordering::Acquire) {
            return false;
        }
        let (own, parts) = (self.identity.target, gap_parts(bytes));
        let state = self.state.lock();
        let behind = state.table.behind(object).into_iter().map(|(behind, _)| behind);
        let mut others = behind.filter(|behind| ![own, ELSEWHERE, UNHEARD].contains(behind));
        others.any(|behind| {
            state.table.get(behind, object).is_some_and(|(_, set)| set.touches(&parts))
        })
    }

    /// Whether a whole range is noted as lacking. [`Gaps::note`] would note all of the
    /// parts that it touches.
    pub fn is_noted(&self, object: ObjectId, of: TargetId, range: &Range<u64>) -> bool {
        let state = self.state.lock();
        // What is being cleared is still in the table.
        state.clears == 0 && state.table.get(of, object).is_some_and(|(_, set)| set.covers(range))
    }

    /// What the copy of an object on a target lacks, as far as is known here.
    pub fn of(&self, object: ObjectId, behind: TargetId) -> Option<RangeSet> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        self.state.lock().table.get(behind, object).map(|(_, set)| set.clone())
    }

    /// Whether the target does not know what its copies lack, or those of
    /// others, because its gap log was lost or its machine has lost new objects:
    /// all its copies of [`Gaps::lost_files`] have to be compared.
    pub fn lost(&self) -> bool {
        self.any.load(Ordering::Acquire) && !self.state.lock().table.lost().is_empty()
    }

    /// Whether it is not known either what others lack: the gap log was lost.
    pub fn lost_others(&self) -> bool {
        self.any.load(Ordering::Acquire) && self.state.lock().table.lost().covers(&ALL_FILES)
    }

    /// The files, by ranges of their numbers, whose copies here have to be
    /// compared.
    pub fn lost_files(&self) -> Vec<Range<u64>> {
        self.state.lock().table.lost().iter().collect()
    }

    /// Everything that was lost is known again: gaps are noted for it.
    pub fn found(&self) -> Result<()> {
        if self.lost() {
            self.submit(self.state.lock(), vec![Record::Found], false)
        } else {
            Ok(())
        }
    }

    /// Targets that lack something, each with the number of objects.
    pub fn counts(&self) -> Vec<(TargetId, u64)> {
        self.state.lock().table.counts()
    }

    /// What a target lacks of the first object after this one.
    pub fn next(&self, behind: TargetId, after: Option<ObjectId>) -> Option<Gap> {
        self.state.lock().table.next(behind, after)
    }

    /// Sees to it that the target has a gap log, and says so, durably: to be called
    /// before anything is changed of which there are several copies. Only then an
    /// unclean stop leaves gaps behind. Costs nothing from the second time on.
    pub fn keep(&self) -> Result<()> {
        if self.kept.load(Ordering::Acquire) {
            return Ok(());
        }
        self.submit(self.state.lock(), Vec::new(), false)
    }

    /// Whoever comes first writes for all who have come meanwhile.
    fn submit<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        records: Vec<Record>,
        last: bool,
    ) -> Result<()> {
        state.clears += records.iter().filter(|r| is_clear(r)).count();
        state.batch.records.extend(records);
        state.batch.last |= last;
        let outcome = state.batch.outcome.clone();
        loop {
            if let Some(outcome) = outcome.get() {
                return outcome.clone();
            }
            state = if state.busy { self.written.wait(state) } else { self.flush(state) };
        }
    }

    /// Writes the open batch.
    fn flush<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let mut batch = std::mem::take(&mut state.batch);
        let log = state.log.take();
        if log.is_none() && state.table.run().is_none() {
            batch.records.extend(self.run.map(|id| Record::Run { id }));
        }
        let all = log.is_none().then(|| state.table.records().chain(batch.records.clone()));
        let all: Vec<Record> = all.into_iter().flatten().collect();
        state.busy = true;
        drop(state);
        let (log, result) = self.write(log, &batch, &all);
        let mut state = self.state.lock();
        state.log = log;
        state.clears -= batch.records.iter().filter(|r| is_clear(r)).count();
        if result.is_ok() {
            batch.records.iter().for_each(|record| state.table.apply(record));
            batch.records.iter().for_each(|record| state.forget_cleared(record));
            self.any.store(!state.table.is_empty(), Ordering::Release);
        }
        // Nobody else ever sets it.
        let _ = batch.outcome.set(result);
        state = self.tidy(state);
        state.busy = false;
        self.written.notify_all();
        state
    }

    /// Writes a batch to the log, or one with `all` if there is none; returns
    /// the log if it may be written to again.
    fn write(&self, log: Option<Log>, batch: &Batch, all: &[Record]) -> (Option<Log>, Result<()>) {
        if let Err(e) = self.site.in_service() {
            return (log, Err(e));
        }
        let Some(mut log) = log else {
            return match self.create(all) {
                Ok(log) => (Some(log), Ok(())),
                Err(e) => (None, Err(e)),
            };
        };
        if let Err(e) = log.make_room(&self.site, batch.records.len(), batch.last) {
            return (Some(log), Err(e));
        }
        // The loss of the others costs work and nothing else.
        let says_more = |r: &Record| !is_clear(r) && *r != Record::Found;
        let sync = batch.durable || batch.records.iter().any(says_more);
        match log.append(&self.site, &batch.records, sync) {
            Ok(()) => (Some(log), Ok(())),
            Err(e) => (None, Err(e)),
        }
    }

    fn create(&self, records: &[Record]) -> Result<Log> {
        let log = Log::create(&self.site, &self.root, self.identity, records, self.history)?;
        if !self.kept.load(Ordering::Acquire) {
            superblock::replace(&self.root, self.identity, true)
                .map_err(|e| self.site.failed_change("write the superblock", e))?;
            self.kept.store(true, Ordering::Release);
        }
        Ok(log)
    }

    /// Writes the log anew, with nothing but what counts, if most of it is
    /// history.
    fn tidy<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let Some(log) = state.log.take_if(|log| log.wants_tidying()) else { return state };
        let records: Vec<Record> = state.table.records().collect();
        drop(state);
        let new = self.create(&records);
        let mut state = self.state.lock();
        state.log = Some(new.unwrap_or_else(|e| {
            // The old one goes on, unless the disk has failed altogether.
            tracing::warn!("{e}");
            log.later()
        }));
        state
    }
}

impl State {
    /// These very bytes are lacking. As long as nothing else is, that is remembered.
    fn put_off(&mut self, note: &Note) {
        let key = (note.behind, note.object);
        let first = self.notes == 0 && self.table.get(note.behind, note.object).is_none();
        match self.left.get_mut(&key) {
            Some(left) => left.insert(note.bytes.clone()),
            None if first => self.left.entry(key).or_default().insert(note.bytes.clone()),
            None => {}
        }
    }

    /// Of a gap that is not there any more nothing is remembered.
    fn forget_cleared(&mut self, record: &Record) {
        let Record::Clear { object, behind, .. } = record else { return };
        if self.table.get(*behind, *object).is_none() {
            let key = (*behind, *object);
            self.sent.remove(&key);
            self.told.remove(&key);
            self.begun.remove(&key);
            self.said.remove(&key);
            self.left.remove(&key);
        }
    }

    /// What was sent of its parts before is not what counts now.
    fn forget_sent(&mut self, key: (TargetId, ObjectId), bytes: &Range<u64>) {
        if let Some(sent) = self.sent.get_mut(&key) {
            sent.forget(&gap_parts(bytes));
            if sent.is_empty() {
                self.sent.remove(&key);
            }
        }
    }

    /// What has to be written for a note.
    fn record_of(&self, note: &Note) -> Option<Record> {
        let Note { object, behind, copy, bytes } = note;
        if bytes.is_empty() {
            return None;
        }
        let mut bytes = gap_parts(bytes);
        let known = self.table.get(*behind, *object);
        // What is being cleared is still in the table, and not for long.
        if self.clears == 0 && known.is_some_and(|(_, set)| set.covers(&bytes)) {
            return None;
        }
        if self.table.ranges() >= MAX_ALL_RANGES {
            bytes = 0..u64::MAX;
        }
        Some(Record::Note { object: *object, behind: *behind, copy: *copy, bytes })
    }
}

/// The parts that these bytes touch: gaps are noted in whole ones.
pub fn gap_parts(bytes: &Range<u64>) -> Range<u64> {
    let end = bytes.end.checked_next_multiple_of(PART_BYTES).unwrap_or(u64::MAX);
    bytes.start / PART_BYTES * PART_BYTES..end
}

fn is_clear(record: &Record) -> bool {
    matches!(record, Record::Clear { .. })
}
