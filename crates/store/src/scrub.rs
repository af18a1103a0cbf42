//! Scrubbing: verifies each block of a target against its checksum, each header, and the files
//! around the objects, before a client reads them.

use crate::backing::Backing;
use crate::blocks::{Slots, next_used, slots_behind_end};
use crate::directories::{HASH_DIRECTORIES, hash_directory, parse_name};
use crate::geometry::Run;
use crate::intents::area;
use crate::object::Object;
use crate::superblock;
use std::sync::Arc;
use weir_types::limits::BLOCK;
use weir_types::{Error, ErrorKind, ObjectId, Result};

/// Budget that an object, a page of checksums or a directory costs beside its bytes of data. So a
/// step ends even if all of them are empty.
const OVERHEAD_BYTES: u64 = BLOCK;
/// The most unknown files of one directory that are reported one by one.
const MAX_STRANGERS: usize = 256;

/// Position of a scrub. The default is the beginning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubCursor {
    /// Index of the hash directory, of [`crate::HASH_DIRECTORIES`].
    pub hash: usize,
    /// Objects of the hash directory up to this one are verified.
    pub done: Option<ObjectId>,
    /// Verified bytes of the object after `done`.
    pub offset: u64,
}

/// Kind of damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Damage {
    /// Data does not match its checksums (or the checksums have rotted).
    Block,
    /// The header is damaged, or is that of another object.
    Header,
    /// Checksums behind the end of the object are not zero.
    BehindEnd,
    /// The place cannot be read.
    Unreadable,
    /// A file among the objects is not an object.
    Stranger,
    /// The superblock is damaged.
    Superblock,
    /// The intent log is damaged.
    IntentLog,
}

/// One place that does not verify.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The object, if the place belongs to one.
    pub object: Option<ObjectId>,
    /// Path of the file, relative to the target directory.
    pub path: String,
    /// First byte of the place. For blocks it is an offset in the object, else in the file.
    pub offset: u64,
    /// Length of the place, bytes.
    pub len: u64,
    /// Kind of damage.
    pub damage: Damage,
    /// Description for messages.
    pub what: String,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.object {
            Some(id) => write!(f, "object {id}, {} bytes at {}", self.len, self.offset)?,
            None => f.write_str(&self.path)?,
        }
        write!(f, ": {}", self.what)
    }
}

/// Result of one step of scrubbing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubStep {
    /// Where the next step begins; `None` at the end.
    pub next: Option<ScrubCursor>,
    /// Number of objects finished in this step.
    pub objects: u64,
    /// Verified bytes of objects. Holes do not count.
    pub bytes: u64,
    /// Places that do not verify.
    pub findings: Vec<Finding>,
}

/// Function that opens objects for a scrub.
type OpenObject<'a> = dyn Fn(ObjectId) -> Result<Option<Arc<Object>>> + 'a;

/// Scrubs from `cursor` on for about `budget_bytes`, and at least one run.
pub(crate) fn step(
    backing: &Backing,
    open: &OpenObject<'_>,
    cursor: &ScrubCursor,
    budget_bytes: u64,
) -> Result<ScrubStep> {
    let step = ScrubStep::default();
    let mut scrub = Scrub { backing, budget: budget_bytes, spent: 0, step };
    if *cursor == ScrubCursor::default() {
        scrub.superblock();
        scrub.intent_log();
    }
    let (hashes, strangers) = backing.directories.hashes()?;
    if *cursor == ScrubCursor::default() {
        for name in strangers.iter().take(MAX_STRANGERS) {
            scrub.stranger(name);
        }
    }
    let mut at = cursor.clone();
    for hash in hashes.into_iter().filter(|&hash| hash >= cursor.hash) {
        if hash > at.hash {
            at = ScrubCursor { hash, ..ScrubCursor::default() };
        }
        if at.done.is_none() && at.offset == 0 {
            scrub.strangers(at.hash)?;
        }
        let ids = backing.directories.objects(at.hash)?;
        let done = at.done;
        for id in ids.into_iter().filter(|&id| done.is_none_or(|done| id > done)) {
            if scrub.spent >= scrub.budget {
                scrub.step.next = Some(at);
                return Ok(scrub.step);
            }
            scrub.spent += OVERHEAD_BYTES;
            let from = std::mem::take(&mut at.offset);
            match scrub.object(open, id, from)? {
                Some(offset) => {
                    scrub.step.next = Some(ScrubCursor { offset, ..at });
                    return Ok(scrub.step);
                }
                None => at.done = Some(id),
            }
        }
        at = ScrubCursor { hash: hash + 1, ..ScrubCursor::default() };
        scrub.spent += OVERHEAD_BYTES;
        if scrub.spent >= scrub.budget && at.hash < HASH_DIRECTORIES {
            scrub.step.next = Some(at);
            return Ok(scrub.step);
        }
    }
    Ok(scrub.step)
}

struct Scrub<'a> {
    backing: &'a Backing,
    budget: u64,
    /// Spent part of the budget, bytes.
    spent: u64,
    step: ScrubStep,
}

impl Scrub<'_> {
    fn superblock(&mut self) {
        if let Err(e) = superblock::read(&self.backing.root) {
            self.file_finding(superblock::SUPERBLOCK, 0, Damage::Superblock, e.to_string());
        }
    }

    fn intent_log(&mut self) {
        let Some(log) = self.backing.log() else { return };
        match log.bytes() {
            Ok(bytes) => {
                if bytes.len() != area::FILE_BYTES {
                    let what = format!("has {} bytes instead of {}", bytes.len(), area::FILE_BYTES);
                    self.file_finding(crate::target::INTENTS, 0, Damage::IntentLog, what);
                }
                for position in area::damaged_positions(&bytes) {
                    let what = format!("the sector at {position} does not match its checksum");
                    self.file_finding(crate::target::INTENTS, position, Damage::IntentLog, what);
                }
            }
            Err(e) => {
                let what = format!("cannot be read: {e}");
                self.file_finding(crate::target::INTENTS, 0, Damage::Unreadable, what);
            }
        }
    }

    /// Reports entries of a hash directory that are not objects of it.
    fn strangers(&mut self, hash: usize) -> Result<()> {
        let directories = &self.backing.directories;
        let mut found = 0;
        for name in directories.entries(hash)?.into_iter().flatten() {
            let name = name.map_err(|e| directories.failed_listing(&format!("{hash:03x}"), e))?;
            let name = String::from_utf8_lossy(&name);
            if parse_name(&name).is_none_or(|id| hash_directory(id.file) != hash) {
                found += 1;
                if found <= MAX_STRANGERS {
                    self.stranger(&format!("{hash:03x}/{name}"));
                }
            }
        }
        if found > MAX_STRANGERS {
            let what = format!("{} more files are not those of objects", found - MAX_STRANGERS);
            self.file_finding(&format!("objects/{hash:03x}"), 0, Damage::Stranger, what);
        }
        Ok(())
    }

    fn stranger(&mut self, path: &str) {
        let what = "is not the file of an object".to_string();
        self.file_finding(&format!("objects/{path}"), 0, Damage::Stranger, what);
    }

    fn file_finding(&mut self, path: &str, offset: u64, damage: Damage, what: String) {
        let (object, path) = (None, path.to_string());
        self.step.findings.push(Finding { object, path, offset, len: 0, damage, what });
    }

    fn finding(&mut self, id: ObjectId, (offset, end): (u64, u64), damage: Damage, what: String) {
        let path = format!("objects/{}", crate::directories::path(id));
        let (object, len) = (Some(id), end - offset);
        self.step.findings.push(Finding { object, path, offset, len, damage, what });
    }

    /// Verifies an object from byte `from` on. If the budget ends before the object, returns where
    /// to continue.
    fn object(
        &mut self,
        open: &OpenObject<'_>,
        id: ObjectId,
        mut from: u64,
    ) -> Result<Option<u64>> {
        let object = match open(id) {
            Ok(Some(object)) => object,
            Ok(None) => return Ok(None),
            Err(e) => {
                let damage = match e.kind {
                    ErrorKind::Corrupt | ErrorKind::Unsupported => Damage::Header,
                    ErrorKind::Io => Damage::Unreadable,
                    _ => return Err(e),
                };
                self.finding(id, (0, 0), damage, e.to_string());
                return Ok(None);
            }
        };
        if from == 0 {
            self.around(&object);
        }
        loop {
            // Writers wait for one run at a time.
            let _lock = object.lock_for_reading();
            let len = object.len();
            let used = next_used(&object.file, from, len);
            let Some(run) = used.map_err(|e| object.os_error("scrub", e))? else { break };
            self.run(&object, run, len);
            self.spent += OVERHEAD_BYTES;
            from = run.end;
            if self.spent >= self.budget {
                return Ok(Some(from));
            }
        }
        self.step.objects += 1;
        Ok(None)
    }

    /// Verifies the header on disk, and the slots behind the end.
    fn around(&mut self, object: &Object) {
        let _lock = object.lock_for_reading();
        if let Err(e) = object.check_header() {
            self.finding(object.id(), (0, 0), Damage::Header, e.to_string());
        }
        match slots_behind_end(&object.file, object.len()) {
            Ok(None) => {}
            Ok(Some(_)) => {
                let what = "checksums behind its end are not zero".to_string();
                let end = object.len();
                self.finding(object.id(), (end, end), Damage::BehindEnd, what);
            }
            Err(e) => {
                let e: Error = object.os_error("read its checksums", e);
                self.finding(object.id(), (0, 0), Damage::Unreadable, e.to_string());
            }
        }
    }

    fn run(&mut self, object: &Object, run: Run, len: u64) {
        match Slots::read(&object.file, run, len) {
            Ok(slots) => {
                self.step.bytes += slots.data_bytes;
                self.spent += slots.data_bytes;
                for block in slots.mismatches() {
                    let what = "does not match its checksum".to_string();
                    let range = (block * BLOCK, ((block + 1) * BLOCK).min(len));
                    self.finding(object.id(), range, Damage::Block, what);
                }
            }
            Err(_) if run.block_count() > 1 => {
                // Determines which blocks are damaged.
                for block in run.first_block()..=run.last_block() {
                    let (start, end) = (block * BLOCK, ((block + 1) * BLOCK).min(run.end));
                    self.run(object, Run { start, end }, len);
                }
            }
            Err(e) => {
                let what = format!("cannot be read: {e}");
                self.finding(object.id(), (run.start, run.end), Damage::Unreadable, what);
            }
        }
    }
}
