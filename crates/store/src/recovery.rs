//! After an unclean stop: the checksums of everything that was marked are made
//! those of the data on disk. That data was not acknowledged as durable, or it
//! is whole; either way it is what there is.
//!
//! Invariant: nothing outside of a mark is repaired. A mismatch there is rot,
//! and stays one.

use crate::blocks::{Slots, next_used, slots_behind_end, tidy};
use crate::directories::Directories;
use crate::gaps::Suspects;
use crate::geometry::{BLOCK, HEADER_BYTES, Run, object_bytes, section_end};
use crate::header::{BadHeader, Header};
use crate::intents::Record;
use crate::intents::area::Contents;
use crate::intents::table::{GRANULE, files_of, window};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use weir_host::fs::File;
use weir_host::plant::{Bug, planted};
use weir_types::limits::MAX_FILE_BYTES;
use weir_types::{Generation, ObjectId, Result};

/// What the opening of a target found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// The target had not been closed: it was recovered.
    pub unclean: bool,
    /// Objects that might have had checksums that do not match.
    pub objects: u64,
    /// Bytes of them that were examined.
    pub bytes: u64,
    /// Checksums that were made those of the data, one for each block.
    pub blocks: u64,
    /// Headers of new objects that had not reached the disk and were made anew.
    pub headers: u64,
    /// Objects of which something could not be read. They are as they were;
    /// what does not verify is not served.
    pub failed: u64,
    /// The intent log was damaged, so that marks may be missing: everything was
    /// verified, and nothing repaired but what was still marked.
    pub log_damaged: bool,
    /// (With a damaged log) places that do not verify.
    pub findings: u64,
}

/// The marked bytes of one object.
type Marked = Vec<(u64, u64)>;

/// Recovers a target that was not closed. Nobody else uses it yet. Nothing of
/// it is durable before the file system is synced. Says what is suspect, if
/// somebody wants to know.
pub(crate) fn recover(
    directories: &Directories,
    contents: &Contents,
    mut suspects: Option<&mut Suspects>,
) -> Result<RecoveryReport> {
    let log_damaged = contents.damaged;
    let mut report = RecoveryReport { unclean: true, log_damaged, ..RecoveryReport::default() };
    if planted(Bug::SkipRecovery) {
        return Ok(report);
    }
    let (mut marked, mut windows) = (BTreeMap::<ObjectId, Marked>::new(), BTreeSet::new());
    for record in &contents.records {
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
    let mut suspect = |id, young: bool, marked: &[(u64, u64)]| {
        let Some(suspects) = &mut suspects else { return };
        let whole = [(0, MAX_FILE_BYTES)];
        let ranges = if young { &whole } else { marked };
        suspects.objects.extend(ranges.iter().map(|&(start, end)| (id, start..end)));
    };
    let era = contents.newest.map_or(u64::MAX, |newest| newest.era);
    if !windows.is_empty() {
        for hash in directories.hashes()?.0 {
            for id in directories.objects(hash)? {
                if windows.contains(&window(id.file)) && !marked.contains_key(&id) {
                    let young = recover_object(directories, id, None, era, &mut report)?;
                    suspect(id, young, &[]);
                }
            }
        }
    }
    for (id, marked) in marked {
        // It may be young as well: made anew under its old name.
        let young = windows.contains(&window(id.file));
        let era = if young { era } else { u64::MAX };
        let young = recover_object(directories, id, Some(&marked), era, &mut report)?;
        suspect(id, young, &marked);
    }
    Ok(report)
}

/// Recovers one object: what is marked of it, or all of it if it is young
/// (born in `era` or later). What cannot be read is counted and left as it is.
/// Returns whether it is young, or may be.
fn recover_object(
    directories: &Directories,
    id: ObjectId,
    marked: Option<&[(u64, u64)]>,
    era: u64,
    report: &mut RecoveryReport,
) -> Result<bool> {
    let Some((file, _)) = directories.open(id, false)? else { return Ok(false) };
    let failed = |e| directories.site().os_error(format!("recover object {id}"), e);
    // Until its header says otherwise.
    let mut recovery = Recovery { file: &file, id, era, report, young: era < u64::MAX };
    match recovery.run(marked) {
        Ok(()) => {}
        Err(Failed::Read(e)) => {
            recovery.report.failed += 1;
            tracing::error!("{}", failed(e));
        }
        // It is still marked, for the next time.
        Err(Failed::Write(e)) => return Err(failed(e)),
    }
    Ok(recovery.young)
}

/// What of the disk does not work.
enum Failed {
    /// What cannot be read is not served either.
    Read(Errno),
    /// The disk takes no changes: perhaps it will later.
    Write(Errno),
}

impl From<Errno> for Failed {
    fn from(errno: Errno) -> Self {
        Self::Read(errno)
    }
}

struct Recovery<'a> {
    file: &'a File,
    id: ObjectId,
    era: u64,
    report: &'a mut RecoveryReport,
    /// It is young, or may be.
    young: bool,
}

impl Recovery<'_> {
    fn run(&mut self, marked: Option<&[(u64, u64)]>) -> Result<(), Failed> {
        if self.file.size()? == 0 {
            return Ok(());
        }
        let mut bytes = [0; HEADER_BYTES];
        self.file.read_full(&mut bytes, 0)?;
        self.young = match Header::from_disk(&bytes) {
            Ok(header) if header.id == self.id => header.born >= self.era,
            // It never reached the disk, so the object was never synced.
            Err(BadHeader::Empty) if self.era < u64::MAX => {
                self.write_header().map_err(Failed::Write)?;
                true
            }
            // Damage, which opening the object tells of.
            _ => {
                self.report.failed += 1;
                return Ok(());
            }
        };
        let suspects = match marked {
            _ if self.young => &[(0, MAX_FILE_BYTES)],
            Some(suspects) => suspects,
            None => return Ok(()),
        };
        self.report.objects += 1;
        if self.file.size()? < BLOCK {
            self.file.set_len(BLOCK).map_err(Failed::Write)?;
        }
        let len = object_bytes(self.file.size()?);
        for &(start, end) in suspects {
            self.examine(start, end.min(len), len)?;
        }
        // Whether it can be read is known before anything is changed.
        slots_behind_end(self.file, len)?;
        tidy(self.file, len).map_err(Failed::Write)?;
        Ok(())
    }

    fn write_header(&mut self) -> rustix::io::Result<()> {
        self.report.headers += 1;
        let (id, generation) = (self.id, Generation(0));
        let header = Header { id, generation, born: self.era, untidy: false }.to_disk();
        self.file.write_full(&header, 0)
    }

    fn examine(&mut self, start: u64, end: u64, len: u64) -> Result<(), Failed> {
        let mut from = start;
        while let Some(at) = next_used(self.file, from)?.filter(|&at| at < end) {
            from = section_end(at / BLOCK) * BLOCK;
            for run in Run::split(at, end.min(from)) {
                let slots = Slots::read(self.file, run, len)?;
                self.report.bytes += run.end - run.start;
                self.report.blocks += slots.repair(self.file).map_err(Failed::Write)?;
            }
        }
        Ok(())
    }
}

/// The highest era that an object was born in: when no log says it.
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
