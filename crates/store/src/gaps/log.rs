//! The file of the gap log: its head, what is appended, and room that is
//! written out ahead, so that a note costs no change of the file's length and
//! the last thing that has to be said finds room on a disk that is full.

use super::record::{Contents, Record, SECTOR, SECTOR_RECORDS, head, read, sector};
use crate::site::Site;
use crate::superblock::TargetIdentity;
use rustix::io::Errno;
use weir_host::fs::{Directory, File, OpenHow};
use weir_types::Result;

/// The file.
pub(super) const GAPS: &str = "gaps";
const TEMPORARY: &str = "gaps.tmp";
/// Sectors of zeros that are written out at a time.
const ROOM: usize = 128;
/// Sectors of them that are left for what must not fail.
const SPARE: usize = 8;
/// The largest log that is read: far more than there can be.
const MAX_LOG_BYTES: usize = 1 << 30;

/// A log that can be written to.
pub(super) struct Log {
    file: File,
    /// Sectors that are written.
    used: usize,
    /// Sectors of the file.
    room: usize,
    /// What the last sector holds, if more fits into it.
    tail: Vec<Record>,
    /// Sectors of history that are let be, beside as many as count.
    history: usize,
    /// It is written anew when more sectors are used.
    tidy_at: usize,
}

impl Log {
    /// Reads the log. `None` if there is none; no log beside what it says if it
    /// can only be read. What cannot be read is damage.
    pub(super) fn open(
        site: &Site,
        root: &Directory,
        identity: TargetIdentity,
        history: usize,
    ) -> Result<Option<(Option<Self>, Contents)>> {
        let failed = |e| site.os_error(format!("open `{GAPS}`"), e);
        let file = match root.open_file(GAPS, OpenHow::READ) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(None),
            Err(e) => return Err(failed(e)),
        };
        let bytes = match load(&file) {
            Ok(bytes) => bytes,
            Err(e) => {
                tracing::error!("{}", site.os_error(format!("read `{GAPS}`"), e));
                return Ok(Some((None, Contents { damaged: true, ..Contents::default() })));
            }
        };
        let contents = read(&bytes, identity);
        let file = match root.open_file(GAPS, OpenHow::CREATE) {
            Ok(file) => file,
            Err(Errno::ROFS) => return Ok(Some((None, contents))),
            Err(e) => return Err(failed(e)),
        };
        let (used, room) = (contents.used, bytes.len() / SECTOR);
        let log = Self { file, used, room, tail: Vec::new(), history, tidy_at: used + history };
        Ok(Some((Some(log), contents)))
    }

    /// Writes a log that says this in place of the one there is, durably.
    pub(super) fn create(
        site: &Site,
        root: &Directory,
        identity: TargetIdentity,
        records: &[Record],
        history: usize,
    ) -> Result<Self> {
        let mut bytes = head(identity).to_vec();
        for (i, chunk) in records.chunks(SECTOR_RECORDS).enumerate() {
            bytes.extend_from_slice(&sector(i as u32 + 1, chunk));
        }
        let used = bytes.len() / SECTOR;
        let room = used + ROOM;
        bytes.resize(room * SECTOR, 0);
        let write = || -> rustix::io::Result<File> {
            let file = root.open_file(TEMPORARY, OpenHow::REPLACE)?;
            file.write_full(&bytes, 0)?;
            file.sync("new-gap-log")?;
            root.rename(TEMPORARY, GAPS)?;
            root.sync("gap-log-directory")?;
            Ok(file)
        };
        let file = write().map_err(|e| site.failed_change("write the gap log anew", e))?;
        let tidy_at = 2 * used + history;
        Ok(Self { file, used, room, tail: Vec::new(), history, tidy_at })
    }

    /// Whether most of it may be history.
    pub(super) fn wants_tidying(&self) -> bool {
        self.used > self.tidy_at
    }

    /// It could not be written anew, and goes on for a while.
    pub(super) fn later(self) -> Self {
        Self { tidy_at: 2 * self.used + self.history, ..self }
    }

    /// Sees to it that so many records find room, and keeps some in reserve
    /// unless they are the last that there is to say. When this fails the log
    /// is as it was.
    pub(super) fn make_room(&mut self, site: &Site, records: usize, last: bool) -> Result<()> {
        let end = self.used + records.div_ceil(SECTOR_RECORDS);
        if end + if last { 0 } else { SPARE } <= self.room {
            return Ok(());
        }
        let room = end + ROOM;
        let zeros = vec![0; (room - self.room) * SECTOR];
        self.file
            .write_full(&zeros, (self.room * SECTOR) as u64)
            .map_err(|e| site.failed_change("make room in the gap log", e))?;
        self.room = room;
        Ok(())
    }

    /// Adds records that there is room for. When this fails nobody knows what
    /// the end of the log holds: it has to be written anew.
    pub(super) fn append(&mut self, site: &Site, records: &[Record], sync: bool) -> Result<()> {
        if records.is_empty() {
            return Ok(());
        }
        let at = if self.tail.is_empty() { self.used } else { self.used - 1 };
        let mut all = std::mem::take(&mut self.tail);
        all.extend_from_slice(records);
        let mut bytes = Vec::with_capacity(all.len().div_ceil(SECTOR_RECORDS) * SECTOR);
        for (i, chunk) in all.chunks(SECTOR_RECORDS).enumerate() {
            bytes.extend_from_slice(&sector((at + i) as u32, chunk));
        }
        self.file
            .write_full(&bytes, (at * SECTOR) as u64)
            .map_err(|e| site.failed_change("write the gap log", e))?;
        self.used = at + bytes.len() / SECTOR;
        self.tail = all.split_off(all.len() / SECTOR_RECORDS * SECTOR_RECORDS);
        if !sync {
            return Ok(());
        }
        self.file.sync("gap-log").map_err(|e| site.failed_sync("sync the gap log", e))
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
