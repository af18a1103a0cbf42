//! The file of the gap log: its head, appended records, and preallocated sectors. Thanks to the
//! preallocated sectors a note does not change the file's length, and the last record fits even on
//! a full disk.

use super::record::{Contents, Record, SECTOR, SECTOR_RECORDS, head, read, sector};
use crate::site::Site;
use crate::superblock::TargetIdentity;
use rustix::io::Errno;
use weir_host::fs::{Directory, File, OpenHow};
use weir_types::Result;

/// Name of the file.
pub(super) const GAPS: &str = "gaps";
const TEMPORARY: &str = "gaps.tmp";
/// Sectors of zeros that are preallocated at a time.
const ROOM: usize = 128;
/// Preallocated sectors that are reserved for the record that must not fail.
const SPARE: usize = 8;
/// The largest log that is read, bytes. No log of this program grows that large.
const MAX_LOG_BYTES: usize = 1 << 30;

/// A gap log that is open for writing.
pub(super) struct Log {
    file: File,
    /// Number of sectors with records, including the head.
    used: usize,
    /// Number of sectors in the file.
    room: usize,
    /// Records of the last sector, if it has space for more.
    tail: Vec<Record>,
    /// Number of obsolete sectors that do not yet cause a rewrite.
    history: usize,
    /// The log is rewritten when more sectors than this are used.
    tidy_at: usize,
}

impl Log {
    /// Reads the log. Returns `None` if there is no log. On a read-only disk, or if the file cannot
    /// be read, returns the contents without a log to write to. An unreadable file counts as
    /// damaged.
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

    /// Replaces the log, durably, by one with these records.
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

    /// Whether the log has grown enough to be rewritten.
    pub(super) fn wants_tidying(&self) -> bool {
        self.used > self.tidy_at
    }

    /// Postpones the rewrite after a failed attempt.
    pub(super) fn later(self) -> Self {
        Self { tidy_at: 2 * self.used + self.history, ..self }
    }

    /// Preallocates sectors for this many records. Unless `last` is set, the reserve stays free as
    /// well. On failure the log is unchanged.
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

    /// Appends records for which [`Log::make_room`] has made space. After a failure the end of the
    /// log is unknown, and the log has to be rewritten.
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
