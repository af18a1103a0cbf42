//! What other copies lack of what is here: a set of gaps for each object and
//! target that was away, or has not confirmed, when the object was changed.
//!
//! Invariants
//! - A gap is durable before the change that makes it is begun.
//! - A gap goes only when the other copy has confirmed the bytes. Losing the
//!   record of that is harmless: they are sent once more.
//!
//! The log only grows; when most of it is history it is written anew.

mod ranges;
mod record;

pub use ranges::RangeSet;

use crate::site::Site;
use crate::superblock::TargetIdentity;
use record::{HEAD_BYTES, Kind, RECORD_BYTES, Record, head, read};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use weir_host::fs::{Directory, File, OpenHow};
use weir_host::sync::{Mutex, MutexGuard};
use weir_types::{CopyIndex, ErrorKind, ObjectId, Result, TargetId};

const GAPS: &str = "gaps";
const TEMPORARY: &str = "gaps.tmp";
/// Gaps are noted in parts of this size, so that a stream is noted seldom.
const PART_BYTES: u64 = 1 << 20;
/// Records of history that are let be.
const MAX_HISTORY: usize = 4096;
/// The most objects with gaps: 1 KiB of memory each at the most. Beyond that
/// writes without the other copy fail.
const MAX_OBJECTS: usize = 1 << 20;
/// The largest log that is read: far more than there can be.
const MAX_LOG_BYTES: usize = 1 << 30;

/// What one copy elsewhere lacks of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The object here.
    pub object: ObjectId,
    /// Which copy the other one is.
    pub copy: CopyIndex,
    /// What it lacks.
    pub bytes: RangeSet,
}

/// The gap log of one target.
pub struct Gaps {
    site: Arc<Site>,
    root: Directory,
    identity: TargetIdentity,
    state: Mutex<State>,
}

struct State {
    /// `None` until there is something to note.
    file: Option<File>,
    /// Bytes of the file in use.
    used: usize,
    gaps: BTreeMap<(TargetId, ObjectId), (CopyIndex, RangeSet)>,
    live: usize,
}

impl Gaps {
    /// Reads the log of a target.
    ///
    /// Errors: `Corrupt` if it is damaged: then it is not known what other
    /// copies lack.
    pub(crate) fn open(site: Arc<Site>, root: Directory, identity: TargetIdentity) -> Result<Self> {
        let mut state = State { file: None, used: 0, gaps: BTreeMap::new(), live: 0 };
        match root.open_file(GAPS, OpenHow::READ) {
            Err(Errno::NOENT) => {}
            Err(e) => return Err(site.os_error(format!("open `{GAPS}`"), e)),
            Ok(file) => {
                let bytes = load(&file).map_err(|e| site.os_error(format!("read `{GAPS}`"), e))?;
                let (records, used) = read(&bytes, identity).ok_or_else(|| {
                    let what = format!(
                        "the gap log `{GAPS}` is damaged, so that it is not known what other \
                         copies lack: restore it, or replace the target"
                    );
                    site.error(ErrorKind::Corrupt, what)
                })?;
                state.used = used;
                records.into_iter().for_each(|record| state.apply(record));
                state.file = match root.open_file(GAPS, OpenHow::CREATE) {
                    Ok(file) => Some(file),
                    Err(Errno::ROFS) => None,
                    Err(e) => return Err(site.os_error(format!("open `{GAPS}`"), e)),
                };
            }
        }
        Ok(Self { site, root, identity, state: Mutex::new(state) })
    }

    /// Notes, durably, that another copy will not have what is going to be
    /// written here.
    ///
    /// Errors: `NoSpace`, `Io`: nothing may be written then.
    pub fn note(
        &self,
        object: ObjectId,
        behind: TargetId,
        copy: CopyIndex,
        bytes: &Range<u64>,
    ) -> Result<()> {
        let part = |at: u64| at / PART_BYTES * PART_BYTES;
        let end = bytes.end.checked_next_multiple_of(PART_BYTES).unwrap_or(u64::MAX);
        let bytes = part(bytes.start)..end;
        let mut state = self.lock();
        let known = state.gaps.get(&(behind, object));
        if known.is_some_and(|(_, gap)| gap.covers(&bytes)) {
            return Ok(());
        }
        self.site.in_service()?;
        if known.is_none() && state.gaps.len() >= MAX_OBJECTS {
            let what = format!(
                "target {behind} lacks parts of {MAX_OBJECTS} objects, which is all that is \
                 remembered: bring it back, or replace it"
            );
            return Err(self.site.error(ErrorKind::Io, what));
        }
        let record = Record { kind: Kind::Note, object, behind, copy, bytes };
        self.append(&mut state, &record)?;
        state.apply(record);
        Ok(())
    }

    /// Another copy has these bytes now.
    pub fn clear(&self, object: ObjectId, behind: TargetId, bytes: &Range<u64>) -> Result<()> {
        let mut state = self.lock();
        let Some(&(copy, _)) = state.gaps.get(&(behind, object)) else { return Ok(()) };
        let record = Record { kind: Kind::Clear, object, behind, copy, bytes: bytes.clone() };
        if let Some(file) = &state.file {
            // Not durable: it is sent once more then.
            file.write_full(&record.to_disk(), state.used as u64)
                .map_err(|e| self.site.failed_change("write the gap log", e))?;
            state.used += RECORD_BYTES;
        }
        state.apply(record);
        self.tidy(&mut state)
    }

    /// Nobody needs an object any more.
    pub(crate) fn forget(&self, object: ObjectId) -> Result<()> {
        let behind: Vec<TargetId> = {
            let state = self.lock();
            let of_it = state.gaps.keys().filter(|(_, gap)| *gap == object);
            of_it.map(|(target, _)| *target).collect()
        };
        behind.into_iter().try_for_each(|target| self.clear(object, target, &(0..u64::MAX)))
    }

    /// Targets that lack something, each with the number of objects.
    pub fn counts(&self) -> Vec<(TargetId, u64)> {
        let mut counts: BTreeMap<TargetId, u64> = BTreeMap::new();
        self.lock().gaps.keys().for_each(|(target, _)| *counts.entry(*target).or_default() += 1);
        counts.into_iter().collect()
    }

    /// What a target lacks of the first object after this one.
    pub fn next(&self, behind: TargetId, after: Option<ObjectId>) -> Option<Gap> {
        use std::ops::Bound::{Excluded, Included, Unbounded};
        let state = self.lock();
        let from = match after {
            Some(object) => Excluded((behind, object)),
            None => match state.gaps.keys().find(|(target, _)| *target == behind) {
                Some(first) => Included(*first),
                None => return None,
            },
        };
        let ((target, object), (copy, bytes)) = state.gaps.range((from, Unbounded)).next()?;
        let gap = Gap { object: *object, copy: *copy, bytes: bytes.clone() };
        (*target == behind).then_some(gap)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn append(&self, state: &mut State, record: &Record) -> Result<()> {
        if state.file.is_none() {
            self.rewrite(state)?;
        }
        let Some(file) = &state.file else { return Err(ErrorKind::Internal.into()) };
        file.write_full(&record.to_disk(), state.used as u64)
            .map_err(|e| self.site.failed_change("write the gap log", e))?;
        state.used += RECORD_BYTES;
        file.sync("gap-log").map_err(|e| self.site.failed_sync("sync the gap log", e))
    }

    fn tidy(&self, state: &mut State) -> Result<()> {
        let records = (state.used.saturating_sub(HEAD_BYTES)) / RECORD_BYTES;
        if records > 2 * state.live + MAX_HISTORY { self.rewrite(state) } else { Ok(()) }
    }

    /// Writes the log anew, with nothing but what counts.
    fn rewrite(&self, state: &mut State) -> Result<()> {
        let mut bytes = head(self.identity).to_vec();
        for ((behind, object), (copy, ranges)) in &state.gaps {
            for range in ranges.iter() {
                let (kind, behind, copy) = (Kind::Note, *behind, *copy);
                let record = Record { kind, object: *object, behind, copy, bytes: range };
                bytes.extend_from_slice(&record.to_disk());
            }
        }
        let write = || -> rustix::io::Result<File> {
            let file = self.root.open_file(TEMPORARY, OpenHow::REPLACE)?;
            file.write_full(&bytes, 0)?;
            file.sync("new-gap-log")?;
            self.root.rename(TEMPORARY, GAPS)?;
            self.root.sync("gap-log-directory")?;
            Ok(file)
        };
        let file = write().map_err(|e| self.site.failed_change("write the gap log anew", e))?;
        (state.file, state.used) = (Some(file), bytes.len());
        Ok(())
    }
}

impl State {
    fn apply(&mut self, record: Record) {
        let key = (record.behind, record.object);
        let (_, ranges) = self.gaps.entry(key).or_insert((record.copy, RangeSet::default()));
        self.live -= ranges.len();
        match record.kind {
            Kind::Note => ranges.insert(record.bytes),
            Kind::Clear => ranges.remove(&record.bytes),
        }
        self.live += ranges.len();
        if ranges.is_empty() {
            self.gaps.remove(&key);
        }
    }
}

fn load(file: &File) -> rustix::io::Result<Vec<u8>> {
    let len = usize::try_from(file.size()?).unwrap_or(usize::MAX);
    if len > MAX_LOG_BYTES {
        return Err(Errno::FBIG);
    }
    let mut bytes = vec![0; len];
    let read = file.read_full(&mut bytes, 0)?;
    bytes.truncate(read);
    Ok(bytes)
}
