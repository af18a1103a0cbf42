//! Recovery after an unclean stop: the checksums of all marked parts are recomputed from the data
//! on disk. That data is complete, or it was never acknowledged as durable.
//!
//! Invariants
//! - Nothing outside of a mark is repaired. A mismatch there is rot, and stays a mismatch.
//! - Holes are skipped: the duration depends on the bytes that take disk space.
//! - Progress is saved only after all earlier work is durable. Saved progress is valid only for the
//!   marks with which the recovery began.

use crate::blocks::{Slots, next_used, slots_behind_end, tidy};
use crate::directories::Directories;
use crate::gaps::Suspects;
use crate::geometry::{HEADER_BYTES, object_bytes};
use crate::header::{BadHeader, Header};
use crate::intents::Record;
use crate::intents::area::Contents;
use crate::intents::table::{GRANULE, files_of, window};
use crate::recovery_progress::{Cursor, RecoveryProgress};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use weir_host::fs::File;
use weir_host::plant::{Bug, planted};
use weir_types::limits::{BLOCK, MAX_FILE_BYTES};
use weir_types::{Error, ErrorKind, Generation, ObjectId, Result};

/// Result of opening a target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Whether the target had not been closed and was recovered.
    pub unclean: bool,
    /// Number of objects whose checksums might not have matched.
    pub objects: u64,
    /// Bytes of these objects that were examined. Holes do not count.
    pub bytes: u64,
    /// Number of blocks whose checksum was replaced.
    pub blocks: u64,
    /// Number of headers of new objects that had not reached the disk and were written again.
    pub headers: u64,
    /// Number of objects that could not be read completely. They are unchanged; blocks that do not
    /// verify are not served.
    pub failed: u64,
    /// Whether the intent log was damaged, so that marks may be missing. Then everything was
    /// verified, and nothing was repaired except what was still marked.
    pub log_damaged: bool,
    /// With a damaged log: number of places that do not verify.
    pub findings: u64,
}

/// The marked bytes of one object.
type Marked = Vec<(u64, u64)>;

/// Parameters of a recovery.
pub(crate) struct Recover<'a> {
    pub(crate) directories: &'a Directories,
    pub(crate) contents: &'a Contents,
    pub(crate) progress: &'a RecoveryProgress,
    /// Progress is saved each time this many bytes have been examined.
    pub(crate) save_bytes: u64,
    /// With more objects or directories than this, the whole file system is synced at once.
    pub(crate) syncs: usize,
}

/// The parts of one object that have to be examined.
struct Task {
    id: ObjectId,
    ranges: Marked,
    /// Size of the object's file, bytes, as a weight for the progress.
    weight: u64,
}

impl Recover<'_> {
    /// Recovers, durably, a target that was not closed. No other thread may use the target yet.
    /// Suspect parts are added to `suspects`, if it is given.
    ///
    /// Errors: `Interrupted` if the recovery was told to stop. The next recovery continues there.
    pub(crate) fn run(&self, mut suspects: Option<&mut Suspects>) -> Result<RecoveryReport> {
        let log_damaged = self.contents.damaged;
        let mut report = RecoveryReport { unclean: true, log_damaged, ..RecoveryReport::default() };
        if planted(Bug::SkipRecovery) {
            return Ok(report);
        }
        let (mut marked, mut windows) = (BTreeMap::<ObjectId, Marked>::new(), BTreeSet::new());
        for record in &self.contents.records {
            match *record {
                Record::Window(window) => {
                    windows.insert(window);
                }
                Record::Range { id, first, end } => {
                    let bytes = |granule: u64| granule.saturating_mul(GRANULE).min(MAX_FILE_BYTES);
                    marked.entry(id).or_default().push((bytes(first), bytes(end)));
                }
            }
        }
        if let Some(suspects) = &mut suspects {
            suspects.young = windows.iter().copied().map(files_of).collect();
            suspects.unknown = log_damaged;
        }
        let tasks = self.find(marked, &windows, suspects, &mut report)?;
        let before = if log_damaged { None } else { self.saved() };
        self.progress.begin(tasks.iter().map(|task| task.weight).sum());
        let first = before.map_or(0, |before| tasks.partition_point(|task| task.id < before.id));
        self.progress.has_done(tasks[..first].iter().map(|task| task.weight).sum());
        let report_to = &mut report;
        let mut examining = Examining {
            recover: self,
            report: report_to,
            before,
            tasks: &tasks,
            first,
            unsaved: 0,
        };
        (first..tasks.len()).try_for_each(|at| examining.object(at))?;
        let first = examining.first;
        let hashes = self.directories.hashes()?.0;
        if hashes.len() > self.syncs {
            self.sync_all()?;
        } else {
            self.sync(&tasks[first..])?;
            self.directories.sync_names(&hashes)?;
        }
        Ok(report)
    }

    /// Finds all objects that have to be examined, in ascending order. The result is the same each
    /// time as long as there are no new marks.
    fn find(
        &self,
        mut marked: BTreeMap<ObjectId, Marked>,
        windows: &BTreeSet<u64>,
        mut suspects: Option<&mut Suspects>,
        report: &mut RecoveryReport,
    ) -> Result<Vec<Task>> {
        let era = self.contents.newest.map_or(u64::MAX, |newest| newest.era);
        let mut tasks = Vec::new();
        let mut look = |id: ObjectId, marked: Option<Marked>| -> Result<()> {
            self.progress.has_looked();
            // A young object may be marked as well: it was made again under its old name.
            let young = windows.contains(&window(id.file));
            let found = self.look(id, if young { era } else { u64::MAX }, report)?;
            let ranges = match found.young {
                true => vec![(0, MAX_FILE_BYTES)],
                false => marked.unwrap_or_default(),
            };
            if let Some(suspects) = &mut suspects {
                suspects.objects.extend(ranges.iter().map(|&(start, end)| (id, start..end)));
            }
            if let Some(weight) = found.weight.filter(|_| !ranges.is_empty()) {
                tasks.push(Task { id, ranges, weight });
            }
            Ok(())
        };
        if !windows.is_empty() {
            for hash in self.directories.hashes()?.0 {
                for id in self.directories.objects(hash)? {
                    if windows.contains(&window(id.file)) && !marked.contains_key(&id) {
                        look(id, None)?;
                    }
                }
            }
        }
        while let Some((id, ranges)) = marked.pop_first() {
            look(id, Some(ranges))?;
        }
        tasks.sort_unstable_by_key(|task| task.id);
        Ok(tasks)
    }

    /// Reads the header of an object. The object is young if it was born in `era` or later. An
    /// unreadable object is counted and left unchanged.
    fn look(&self, id: ObjectId, era: u64, report: &mut RecoveryReport) -> Result<Found> {
        let Some((file, _)) = self.directories.open(id, false)? else {
            return Ok(Found { young: false, weight: None });
        };
        // Assumed until the header has been read.
        let mut found = Found { young: era < u64::MAX, weight: None };
        self.settle(id, found.look(&file, id, era, report), report)?;
        Ok(found)
    }

    fn settle(
        &self,
        id: ObjectId,
        result: Result<(), Failed>,
        report: &mut RecoveryReport,
    ) -> Result<()> {
        let failed = |e| self.directories.site().os_error(format!("recover object {id}"), e);
        match result {
            Ok(()) => Ok(()),
            Err(Failed::Read(e)) => {
                report.failed += 1;
                tracing::error!("{}", failed(e));
                Ok(())
            }
            // The object stays marked for the next recovery.
            Err(Failed::Write(e)) => Err(failed(e)),
            Err(Failed::Ended(e)) => Err(e),
        }
    }

    /// The saved progress of an earlier recovery.
    fn saved(&self) -> Option<Cursor> {
        let cursor = Cursor::load(self.directories.target(), self.contents.max_sequence)?;
        let site = self.directories.site();
        tracing::info!("{site}: the recovery goes on behind object {}", cursor.id);
        Some(cursor)
    }

    /// Makes these objects durable. A small number is synced one by one, which does not wait for
    /// other dirty data of the disk.
    fn sync(&self, tasks: &[Task]) -> Result<()> {
        if self.contents.damaged || tasks.len() > self.syncs {
            return self.sync_all();
        }
        for Task { id, .. } in tasks {
            let Some((file, _)) = self.directories.open(*id, false)? else { continue };
            let site = self.directories.site();
            let failed = |e| site.failed_sync(format!("object {id}: sync after recovery"), e);
            file.sync("recovered-object").map_err(failed)?;
            self.progress.has_looked();
        }
        Ok(())
    }

    fn sync_all(&self) -> Result<()> {
        let (site, root) = (self.directories.site(), self.directories.target());
        self.progress.syncs(true);
        let synced = root.sync_file_system("recovery");
        self.progress.syncs(false);
        synced.map_err(|e| site.failed_sync("sync after recovery", e))
    }

    /// Makes these tasks durable and saves that they, and all before them, need not be done again.
    fn save(&self, tasks: &[Task], cursor: &Cursor) -> Result<()> {
        self.sync(tasks)?;
        let (site, root) = (self.directories.site(), self.directories.target());
        if let Err(e) = cursor.save(root, self.contents.max_sequence) {
            tracing::warn!("{site}: if it is stopped, recovery does some of it again: {e}");
        }
        Ok(())
    }
}

/// Result of examining the header of an object.
struct Found {
    /// Whether the object is young, or may be.
    young: bool,
    /// Size of the object's file, bytes; `None` if nothing can be examined.
    weight: Option<u64>,
}

impl Found {
    fn look(
        &mut self,
        file: &File,
        id: ObjectId,
        era: u64,
        report: &mut RecoveryReport,
    ) -> Result<(), Failed> {
        if file.size()? == 0 {
            return Ok(());
        }
        let mut bytes = [0; HEADER_BYTES];
        file.read_full(&mut bytes, 0)?;
        self.young = match Header::from_disk(&bytes) {
            Ok(header) if header.id == id => header.born >= era,
            // The header never reached the disk, so the object was never synced.
            Err(BadHeader::Empty) if era < u64::MAX => {
                report.headers += 1;
                let header = Header { id, generation: Generation(0), born: era, untidy: false };
                file.write_full(&header.to_disk(), 0).map_err(Failed::Write)?;
                true
            }
            // Damage, which is reported when the object is opened.
            _ => {
                report.failed += 1;
                return Ok(());
            }
        };
        self.weight = Some(file.allocated()?);
        Ok(())
    }
}

/// Why a recovery cannot go on with an object.
enum Failed {
    /// A read failed. Unreadable blocks are not served.
    Read(Errno),
    /// A write failed. A later attempt may succeed.
    Write(Errno),
    Ended(Error),
}

impl From<Errno> for Failed {
    fn from(errno: Errno) -> Self {
        Self::Read(errno)
    }
}

/// The second phase of a recovery: the examination of objects.
struct Examining<'a> {
    recover: &'a Recover<'a>,
    report: &'a mut RecoveryReport,
    /// Everything up to this point is done already.
    before: Option<Cursor>,
    tasks: &'a [Task],
    /// The first task with changes that may not be durable.
    first: usize,
    /// Bytes examined since the last save.
    unsaved: u64,
}

impl Examining<'_> {
    fn object(&mut self, at: usize) -> Result<()> {
        let (recover, task) = (self.recover, &self.tasks[at]);
        let before = self.before.filter(|before| before.id == task.id);
        let from = before.map_or(0, |before| before.offset);
        if from < Cursor::ALL
            && let Some((file, _)) = recover.directories.open(task.id, false)?
        {
            let examined = self.file(&file, at, from);
            recover.settle(task.id, examined, self.report)?;
            self.step(at, Cursor::ALL, BLOCK)?;
        }
        recover.progress.has_done(task.weight);
        Ok(())
    }

    fn file(&mut self, file: &File, number: usize, from: u64) -> Result<(), Failed> {
        let task = &self.tasks[number];
        self.report.objects += 1;
        if file.size()? < BLOCK {
            file.set_len(BLOCK).map_err(Failed::Write)?;
        }
        let len = object_bytes(file.size()?);
        let mut done = 0;
        for &(start, end) in &task.ranges {
            let (mut at, end) = (start.max(from), end.min(len));
            while let Some(run) = next_used(file, at, end)? {
                let slots = Slots::read(file, run, len)?;
                self.report.bytes += slots.data_bytes;
                self.report.blocks += slots.repair(file).map_err(Failed::Write)?;
                at = run.end;
                done += slots.data_bytes;
                self.recover.progress.has_looked();
                self.recover.progress.is_at(done.min(task.weight));
                self.step(number, at, slots.data_bytes + BLOCK).map_err(Failed::Ended)?;
            }
        }
        // Checks that the file can be read before anything is changed.
        slots_behind_end(file, len)?;
        tidy(file, len).map_err(Failed::Write)?;
        Ok(())
    }

    /// Adds examined bytes, up to an offset of this task.
    fn step(&mut self, at: usize, offset: u64, bytes: u64) -> Result<()> {
        self.unsaved += bytes;
        let stopped = self.recover.progress.is_stopped();
        if stopped || self.unsaved >= self.recover.save_bytes {
            let id = self.tasks[at].id;
            self.recover.save(&self.tasks[self.first..=at], &Cursor { id, offset })?;
            (self.first, self.unsaved) = (at, 0);
        }
        if stopped {
            let what = "the recovery was told to stop; it goes on from here the next time";
            return Err(self.recover.directories.site().error(ErrorKind::Interrupted, what));
        }
        Ok(())
    }
}

/// The highest era of birth of any object. Used when no log has the era.
pub(crate) fn highest_era(directories: &Directories) -> Result<u64> {
    let mut highest = 0;
    for hash in directories.hashes()?.0 {
        for id in directories.objects(hash)? {
            let Some((file, _)) = directories.open(id, false)? else { continue };
            let mut bytes = [0; HEADER_BYTES];
            if file.read_full(&mut bytes, 0).is_ok()
                && let Ok(header) = Header::from_disk(&bytes)
            {
                highest = highest.max(header.born);
            }
        }
    }
    Ok(highest)
}
