//! The gap log: for each object, which bytes the copy on another target lacks, because that target
//! was away or did not confirm a change. A gap may also name this target: then its own copy lacks
//! bytes that other copies have.
//!
//! Invariants
//! - A gap is durable before the change that causes it begins.
//! - A gap is cleared only after the copy that lacks the bytes has received them. Losing the record
//!   of that is harmless: the bytes are sent once more.
//! - After an unclean stop every suspect part is noted as a gap of this target before the intent
//!   log forgets it.
//! - A missing or damaged log is not taken for an empty one: the superblock says that there must be
//!   a log. The new log records which files are unknown until [`Gaps::found`].
//! - No lock on the state is held across I/O, because readers of objects query the state.
//!
//! The log only grows; when most of it is obsolete it is rewritten.

mod log;
mod lost;
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
use table::{Table, parts_in};
use weir_host::fs::Directory;
use weir_host::plant::{Bug, planted};
use weir_host::sync::{Condvar, Mutex, MutexGuard};
use weir_types::limits::MAX_FILE_BYTES;
use weir_types::{CopyIndex, ErrorKind, ObjectId, Result, TargetId};

/// Gaps are rounded to parts of this many bytes, so that a sequential write notes one seldom.
const PART_BYTES: u64 = 1 << 20;
/// The most objects with gaps, at up to 1 KiB of memory each. When the table is full, writes that a
/// copy would miss fail.
const MAX_OBJECTS: usize = 1 << 20;
/// The most ranges of all gaps together. Beyond it a new gap covers its whole object.
const MAX_ALL_RANGES: usize = 1 << 22;

/// The bytes of an object that one copy lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The object, by the id of the copy on this target.
    pub object: ObjectId,
    /// Index of the copy that lacks the bytes.
    pub copy: CopyIndex,
    /// The missing bytes.
    pub bytes: RangeSet,
}

impl Gap {
    /// Number of parts of 1 MiB. A range that is open to the end of the object counts as one part.
    pub fn parts(&self) -> u64 {
        parts_in(&self.bytes)
    }
}

/// A gap to be noted: bytes of an object that one copy is going to lack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The object, by the id of the copy on this target.
    pub object: ObjectId,
    /// The target of the copy that will lack the bytes.
    pub behind: TargetId,
    /// Index of that copy.
    pub copy: CopyIndex,
    /// The bytes that the copy will lack.
    pub bytes: Range<u64>,
}

/// The gap log of one target.
pub struct Gaps {
    site: Arc<Site>,
    root: Directory,
    identity: TargetIdentity,
    /// Id of the machine's present run, if the machine has one.
    run: Option<u128>,
    /// Number of obsolete sectors that do not yet cause a rewrite of the log.
    history: usize,
    /// Whether the superblock says that the target has a gap log.
    kept: AtomicBool,
    /// Whether there may be any gap. Set after the gap is in the table.
    any: AtomicBool,
    state: Mutex<State>,
    written: Condvar,
}

#[derive(Default)]
struct State {
    table: Table,
    /// Records that wait to be written.
    batch: Batch,
    /// Bytes that were sent to the copies that lack them and that are not durable there yet.
    /// Bounded by the gaps.
    sent: BTreeMap<(TargetId, ObjectId), RangeSet>,
    /// Parts that the copies behind have noted themselves. Bounded by the gaps.
    told: BTreeMap<(TargetId, ObjectId), RangeSet>,
    /// Parts of `told` of which something was sent since. The copy has cleared what it received,
    /// and this target does not know how much that is. Bounded as `told`.
    begun: BTreeMap<(TargetId, ObjectId), RangeSet>,
    /// Parts of `told` that are known from the copy behind alone. Its statement may be older than
    /// what was sent to it since. Bounded as `told`.
    said: BTreeMap<(TargetId, ObjectId), RangeSet>,
    /// The exact missing bytes of gaps that consist only of calls of [`Gaps::put_off`]. They are a
    /// subset of the gap. Bounded as `sent`.
    left: BTreeMap<(TargetId, ObjectId), RangeSet>,
    /// See [`Gaps::in_run`].
    runs: BTreeMap<TargetId, u64>,
    /// Number of notes by other calls that are not in the table yet.
    notes: usize,
    /// Number of those notes of which the copies behind have not heard. At most the number of
    /// threads that note something.
    untold_notes: BTreeMap<(TargetId, ObjectId), usize>,
    /// Number of clears that are not in the table yet.
    clears: usize,
    /// Whether a thread notes gaps under another name.
    turning: bool,
    /// Whether a thread is writing to the log.
    busy: bool,
    /// `None` before the first note, while a thread writes to the log, and when the log has to be
    /// rewritten.
    log: Option<Log>,
}

/// Records that are written together.
#[derive(Default)]
struct Batch {
    records: Vec<Record>,
    /// Whether the batch may use the reserve, because it is the last one.
    last: bool,
    /// Whether the batch has to be synced, whatever its records are.
    durable: bool,
    outcome: Arc<OnceLock<Result<()>>>,
}

/// Stands for this target in gaps of bytes that another copy certainly has, because that copy has
/// said so. A gap under this target's own id is weaker: perhaps no copy has other bytes.
pub const ELSEWHERE: TargetId = TargetId::NONE;

/// Stands for this target after it has lost its own notes, until the other copies have reported
/// theirs. What it is in doubt about is noted under [`ELSEWHERE`] or its own id, too: see [`HELD`].
pub const UNHEARD: TargetId = TargetId(TargetId::NONE.0 - 1);

/// Noted under [`UNHEARD`] for a held object: all of its bytes in doubt are noted under
/// [`ELSEWHERE`]. Lies behind the end of every object. A gap under the target's own id is newer
/// then.
pub const HELD: Range<u64> = MAX_FILE_BYTES..MAX_FILE_BYTES + PART_BYTES;

impl Gaps {
    /// Whether changes of these bytes may be postponed: this target lacks nothing of the parts
    /// around them that another copy has. Otherwise each of the two copies could come to believe
    /// that the other has the bytes.
    pub fn may_put_off(&self, object: ObjectId, bytes: &Range<u64>) -> bool {
        !self.lacks(object, ELSEWHERE, &gap_parts(bytes))
    }

    /// Notes, durably, that another copy gets these bytes of a change later. That copy has noted
    /// the whole parts around them as its own gap. The exact bytes are remembered until a restart:
    /// see [`Gaps::left`].
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

    /// Records that a transfer of some of these bytes to the copy behind begins. The copy clears
    /// its own note at once, so its note is unknown from now on.
    pub fn begins(&self, object: ObjectId, behind: TargetId, bytes: &Range<u64>) {
        let (mut state, key) = (self.state.lock(), (behind, object));
        if state.told.contains_key(&key) {
            state.begun.entry(key).or_default().insert(gap_parts(bytes));
        }
    }

    /// As [`Gaps::put_off`], without a write, if both sides have noted the bytes already. Returns
    /// whether that is so. It is false if any of their parts was sent meanwhile, since the copy
    /// clears what it receives. It is also false if this target knows of the note from the copy
    /// alone, since that statement may be old.
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

    /// Records the present run of another copy's machine. When the run changes, that copy may have
    /// lost what it had received and not synced, so all bytes of its gaps have to be sent again.
    pub fn in_run(&self, behind: TargetId, run: u64) {
        let mut state = self.state.lock();
        if state.runs.insert(behind, run) != Some(run) {
            state.left.retain(|(of, _), _| *of != behind);
            state.sent.retain(|(of, _), _| *of != behind);
        }
    }

    /// Records that postponed bytes have arrived at the copy behind. The gap stays until it is
    /// cleared.
    pub fn got(&self, object: ObjectId, behind: TargetId, bytes: &[(u64, u64)]) {
        if let Some(left) = self.state.lock().left.get_mut(&(behind, object)) {
            bytes.iter().for_each(|&(start, len)| left.remove(&(start..start + len)));
        }
    }

    /// The missing bytes of a gap, if they are known more exactly than the gap itself.
    pub fn left(&self, object: ObjectId, behind: TargetId) -> Option<RangeSet> {
        self.state.lock().left.get(&(behind, object)).cloned()
    }

    /// Notes, durably, that another copy will lack bytes that are about to be written here. Costs
    /// nothing if they are noted already.
    ///
    /// Errors: `NoSpace`, `Io`: the caller must not write then.
    pub fn note(
        &self,
        object: ObjectId,
        behind: TargetId,
        copy: CopyIndex,
        bytes: &Range<u64>,
    ) -> Result<()> {
        self.note_all(&[Note { object, behind, copy, bytes: bytes.clone() }])
    }

    /// As [`Gaps::note`], for several gaps with one sync.
    pub fn note_all(&self, notes: &[Note]) -> Result<()> {
        self.write_notes(notes, false)
    }

    fn write_notes(&self, notes: &[Note], told: bool) -> Result<()> {
        let mut state = self.state.lock();
        for note in notes {
            let key = (note.behind, note.object);
            // For an untold gap, or one that was not postponed, the whole object counts.
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

    /// Clears a gap after the copy behind has received the bytes. No error if there is no gap. Not
    /// durable at once.
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

    /// Records that the copy behind has received these bytes and has not synced them yet: see
    /// [`Gaps::clear_sent`]. Bytes that are noted again meanwhile do not count as sent.
    pub fn sent(&self, object: ObjectId, behind: TargetId, bytes: &Range<u64>) {
        let mut state = self.state.lock();
        if state.table.get(behind, object).is_some_and(|(_, set)| set.touches(bytes)) {
            // Bytes that cannot be remembered exactly are sent once more.
            state.sent.entry((behind, object)).or_default().insert_if_room(bytes.clone());
        }
    }

    /// Takes back [`Gaps::sent`].
    pub fn not_sent(&self, object: ObjectId, behind: TargetId, bytes: &Range<u64>) {
        self.state.lock().forget_sent((behind, object), bytes);
    }

    /// Clears what was sent, once it is durable on the copy behind.
    pub fn clear_sent(&self, object: ObjectId, behind: TargetId) -> Result<()> {
        let mut state = self.state.lock();
        let Some(sent) = state.sent.remove(&(behind, object)) else { return Ok(()) };
        let Some(&(copy, _)) = state.table.get(behind, object) else { return Ok(()) };
        let clear = |bytes| Record::Clear { object, behind, copy, bytes };
        let records = sent.iter().map(clear).collect();
        self.submit(state, records, false)
    }

    /// Removes all gaps of an object that was removed.
    pub(crate) fn forget(&self, object: ObjectId) -> Result<()> {
        if !self.any.load(Ordering::Acquire) {
            return Ok(());
        }
        let state = self.state.lock();
        let all = |(behind, copy)| Record::Clear { object, behind, copy, bytes: 0..u64::MAX };
        let records: Vec<Record> = state.table.behind(object).into_iter().map(all).collect();
        if records.is_empty() { Ok(()) } else { self.submit(state, records, false) }
    }

    /// Whether the copy on a target lacks anything of a range, as far as this target knows. For its
    /// own copies the answer is also true while their gaps are unknown, see [`Gaps::lost`]. For
    /// event loops: never waits for the disk, and takes no lock while there are no gaps at all.
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

    /// Whether this target knows of a copy on another target that lacks any of these bytes, or any
    /// of the parts around them.
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

    /// Whether a whole range is noted as lacking. [`Gaps::note`] would note all of the parts that
    /// the range touches.
    pub fn is_noted(&self, object: ObjectId, of: TargetId, range: &Range<u64>) -> bool {
        let state = self.state.lock();
        // A range that is being cleared is still in the table.
        state.clears == 0 && state.table.get(of, object).is_some_and(|(_, set)| set.covers(range))
    }

    /// The bytes that the copy of an object on a target lacks, as far as this target knows.
    pub fn of(&self, object: ObjectId, behind: TargetId) -> Option<RangeSet> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        self.state.lock().table.get(behind, object).map(|(_, set)| set.clone())
    }

    /// Targets that lack something, each with its number of objects with gaps.
    pub fn counts(&self) -> Vec<(TargetId, u64)> {
        self.state.lock().table.counts()
    }

    /// The gap of a target with the lowest object id after `after`.
    pub fn next(&self, behind: TargetId, after: Option<ObjectId>) -> Option<Gap> {
        self.state.lock().table.next(behind, after)
    }

    /// Makes sure, durably, that the target has a gap log and that the superblock says so. To be
    /// called before any object with several copies is changed: without the log an unclean stop
    /// leaves no gaps behind. Costs nothing from the second time on.
    pub fn keep(&self) -> Result<()> {
        if self.kept.load(Ordering::Acquire) {
            return Ok(());
        }
        self.submit(self.state.lock(), Vec::new(), false)
    }

    /// Adds records to the open batch and waits until it is written. The first thread to come
    /// writes for all that come meanwhile.
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
        // No other thread sets the outcome.
        let _ = batch.outcome.set(result);
        state = self.tidy(state);
        state.busy = false;
        self.written.notify_all();
        state
    }

    /// Writes a batch to the log. If there is no log, writes a new one with the records `all`.
    /// Returns the log if it can take more records.
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
        // Losing the other records costs work only.
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

    /// Rewrites the log with the valid records alone, if most of it is obsolete.
    fn tidy<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let Some(log) = state.log.take_if(|log| log.wants_tidying()) else { return state };
        let records: Vec<Record> = state.table.records().collect();
        drop(state);
        let new = self.create(&records);
        let mut state = self.state.lock();
        state.log = Some(new.unwrap_or_else(|e| {
            // The old log stays in use, unless the disk has failed altogether.
            tracing::warn!("{e}");
            log.later()
        }));
        state
    }
}

impl State {
    /// Remembers the exact bytes of a postponed change, unless the gap has other causes too.
    fn put_off(&mut self, note: &Note) {
        let key = (note.behind, note.object);
        let first = self.notes == 0 && self.table.get(note.behind, note.object).is_none();
        match self.left.get_mut(&key) {
            Some(left) => left.insert(note.bytes.clone()),
            None if first => self.left.entry(key).or_default().insert(note.bytes.clone()),
            None => {}
        }
    }

    /// Drops what is remembered of a gap that has been cleared.
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

    /// Drops what was sent of the parts around these bytes: newer bytes are missing there.
    fn forget_sent(&mut self, key: (TargetId, ObjectId), bytes: &Range<u64>) {
        if let Some(sent) = self.sent.get_mut(&key) {
            sent.forget(&gap_parts(bytes));
            if sent.is_empty() {
                self.sent.remove(&key);
            }
        }
    }

    /// The record to write for a note; `None` if the table covers the note already.
    fn record_of(&self, note: &Note) -> Option<Record> {
        let Note { object, behind, copy, bytes } = note;
        if bytes.is_empty() {
            return None;
        }
        let mut bytes = gap_parts(bytes);
        let known = self.table.get(*behind, *object);
        // A range that is being cleared is still in the table, for a short time.
        if self.clears == 0 && known.is_some_and(|(_, set)| set.covers(&bytes)) {
            return None;
        }
        // Under UNHEARD an object has at most two ranges, which have another meaning.
        if self.table.ranges() >= MAX_ALL_RANGES && *behind != UNHEARD {
            bytes = 0..u64::MAX;
        }
        Some(Record::Note { object: *object, behind: *behind, copy: *copy, bytes })
    }
}

/// The whole parts that these bytes touch. Gaps are noted in whole parts.
pub fn gap_parts(bytes: &Range<u64>) -> Range<u64> {
    let end = bytes.end.checked_next_multiple_of(PART_BYTES).unwrap_or(u64::MAX);
    bytes.start / PART_BYTES * PART_BYTES..end
}

fn is_clear(record: &Record) -> bool {
    matches!(record, Record::Clear { .. })
}
