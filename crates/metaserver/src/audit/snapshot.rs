//! Converts a snapshot to facts, record after record in ascending order of keys.

use super::fact::Fact;
use super::problem::{Kind, Problem};
use super::quotas::QuotaSums;
use crate::keys::WorkingKeys;
use crate::schema::{
    self, ClientRecord, DeadList, Dentry, Inode, ListEntry, Orphan, QuotaRecord, SegmentPage,
    ServerRecord, SessionRecord, SlotRecord, WrittenPage, key,
};
use crate::target_keys::TargetKeys;
use std::collections::BTreeSet;
use weir_types::{Epoch, Error, ErrorKind, FileId, FileKind, Result, TargetId};

/// The most directories whose ancestors are checked for loops. With more none are checked.
const MAX_DIRECTORIES: usize = 8 << 20;
/// The most problems of single records that are kept.
const MAX_PROBLEMS: usize = 10_000;

/// Turns a snapshot into facts, and finds problems of single records.
#[derive(Debug, Default)]
pub struct SnapshotReader {
    /// Number of records so far.
    records: u64,
    ids_end: u64,
    highest_id: u64,
    sessions: BTreeSet<FileId>,
    removed: BTreeSet<TargetId>,
    /// Every directory with its parent, by id; `None` if there are too many.
    parents: Option<Vec<(FileId, FileId)>>,
    /// The directory whose names are being read, and its number of subdirectories so far.
    holding: Option<(FileId, u64)>,
    /// The directory whose listing is being read, and its last cookie so far.
    listing: Option<(FileId, u64)>,
    problems: Vec<Problem>,
    quotas: QuotaSums,
}

impl SnapshotReader {
    /// Starts without records.
    pub fn new() -> Self {
        Self { parents: Some(Vec::new()), ..Self::default() }
    }

    /// Records read so far.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// The first file id that was never reserved, once it was read.
    pub fn ids_end(&self) -> u64 {
        self.ids_end
    }

    /// Targets that were removed from the cluster, once they were read.
    pub fn removed(&self) -> &BTreeSet<TargetId> {
        &self.removed
    }

    /// Adds the next record; keys ascend.
    pub fn record(&mut self, key: &[u8], value: &[u8], emit: &mut dyn FnMut(Fact)) {
        self.records += 1;
        if let Err(error) = self.take_apart(key, value, emit) {
            let shown = String::from_utf8_lossy(key.get(..2).unwrap_or(key)).into_owned();
            let rest: String = key.iter().skip(2).map(|byte| format!("{byte:02x}")).collect();
            self.problem(Kind::Record, format!("record {shown}{rest}: {error}"));
        }
    }

    /// Ends the snapshot: emits the last facts, and returns problems of the snapshot as a whole.
    pub fn finish(mut self, emit: &mut dyn FnMut(Fact)) -> Vec<Problem> {
        self.end_directory(emit);
        self.end_listing(emit);
        if self.highest_id >= self.ids_end {
            let (id, end) = (self.highest_id, self.ids_end);
            let what = format!(
                "id {id} is in use, but ids from {end} on are to be given to new files: stop the \
                 metadata server, and restore the metadata from a good copy"
            );
            self.problem(Kind::Record, what);
        }
        let parents = self.parents.as_deref();
        self.problems.extend(std::mem::take(&mut self.quotas).judge(parents));
        self.find_loops();
        self.problems
    }

    fn problem(&mut self, kind: Kind, what: String) {
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(Problem::of_no_file(kind, what));
        }
    }

    fn take_apart(&mut self, key: &[u8], value: &[u8], emit: &mut dyn FnMut(Fact)) -> Result<()> {
        match key.first_chunk::<2>() {
            Some(b"i/") => self.inode(key, value, emit)?,
            Some(b"d/") => self.name(key, value, emit)?,
            Some(b"c/") => self.listed(key, value, emit)?,
            Some(b"s/") => {
                let (file, list, start) = key::list_page(key)?;
                let page: SegmentPage = schema::decode(value, "of segments")?;
                emit(Fact::Segments { file, list, start, page });
            }
            Some(b"w/") => {
                let (file, list, start) = key::list_page(key)?;
                let page: WrittenPage = schema::decode(value, "of written columns")?;
                emit(Fact::Written { file, list, start, page });
            }
            Some(b"x/") => {
                let (file, name) = key::owner_and_rest(key)?;
                emit(Fact::Xattr { file, name_bytes: name.len() as u32 });
            }
            Some(b"l/") => {
                let (file, _) = key::owner_and_rest(key)?;
                emit(Fact::Link { file, len: value.len() as u64 });
            }
            Some(b"b/") => {
                let (file, dir) = key::file_and_directory(key)?;
                let names: u32 = schema::decode(value, "of a directory of a file")?;
                emit(Fact::InDirectory { file, dir, names });
            }
            Some(b"o/") => {
                let file = key::orphan_file(key)?;
                let orphan: Orphan = schema::decode(value, "of a file without a name")?;
                self.quotas.orphan(file, &orphan);
                emit(Fact::Orphan { file });
            }
            Some(b"q/") => {
                let (file, list) = key::dead_list(key)?;
                schema::decode::<DeadList>(value, "of a dead list")?;
                emit(Fact::Dead { file, list });
            }
            Some(b"g/") => {
                let (target, object) = (key::garbage_target(key)?, key::garbage_object(key)?);
                emit(Fact::Garbage { target, object });
            }
            _ => self.of_the_cluster(key, value)?,
        }
        Ok(())
    }

    fn inode(&mut self, key: &[u8], value: &[u8], emit: &mut dyn FnMut(Fact)) -> Result<()> {
        let (file, _) = key::owner_and_rest(key)?;
        self.highest_id = self.highest_id.max(file.0);
        let inode: Inode = schema::decode(value, "of an inode")?;
        if inode.kind == FileKind::Directory
            && let Some(parents) = &mut self.parents
        {
            parents.push((file, inode.parent));
            if parents.len() > MAX_DIRECTORIES {
                self.parents = None;
            }
        }
        self.quotas.inode(file, &inode);
        emit(Fact::Inode { file, inode: Box::new(inode) });
        Ok(())
    }

    fn name(&mut self, key: &[u8], value: &[u8], emit: &mut dyn FnMut(Fact)) -> Result<()> {
        let (dir, name) = key::owner_and_rest(key)?;
        let Dentry { file, kind, cookie } = schema::decode(value, "of a name")?;
        if self.holding.is_none_or(|(holding, _)| holding != dir) {
            self.end_directory(emit);
            self.holding = Some((dir, 0));
        }
        if let Some((_, subdirs)) = &mut self.holding {
            *subdirs += u64::from(kind == FileKind::Directory);
        }
        emit(Fact::Named { file, dir, kind, name: name.into() });
        emit(Fact::ByName { dir, name: name.into(), file, kind, cookie });
        Ok(())
    }

    fn listed(&mut self, key: &[u8], value: &[u8], emit: &mut dyn FnMut(Fact)) -> Result<()> {
        let ((dir, _), cookie) = (key::owner_and_rest(key)?, key::listing_cookie(key)?);
        let ListEntry { name, file, kind } = schema::decode(value, "of a listing")?;
        if self.listing.is_none_or(|(listing, _)| listing != dir) {
            self.end_listing(emit);
        }
        self.listing = Some((dir, cookie));
        emit(Fact::ByCookie { dir, cookie, name, file, kind });
        Ok(())
    }

    fn end_directory(&mut self, emit: &mut dyn FnMut(Fact)) {
        if let Some((dir, subdirs)) = self.holding.take() {
            emit(Fact::Holds { dir, subdirs });
        }
    }

    fn end_listing(&mut self, emit: &mut dyn FnMut(Fact)) {
        if let Some((dir, last_cookie)) = self.listing.take() {
            emit(Fact::Listed { dir, last_cookie });
        }
    }

    fn of_the_cluster(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        match key {
            key::IDS => {
                let bytes = value.try_into();
                self.ids_end = bytes.map(u64::from_le_bytes).map_err(|_| {
                    Error::new(ErrorKind::Corrupt, "the record of reserved ids is not 8 bytes")
                })?;
            }
            key::FORMAT => drop(schema::decode_format(value)?),
            key::MAP_EPOCH | key::DIRECTORY_MOVES | key::MIRRORED => {
                schema::decode::<Epoch>(value, "of a counter")?;
            }
            key::WORKING_KEYS => drop(schema::decode::<WorkingKeys>(value, "of working keys")?),
            key::TARGET_KEYS => {
                schema::decode::<TargetKeys>(value, "of targets' keys")?;
            }
            key::JOURNAL => drop(schema::decode::<[u8; 16]>(value, "of the journal")?),
            key::REVOKED | key::LASTED => drop(schema::decode::<u64>(value, "of revocations")?),
            _ => match key.first_chunk::<2>() {
                Some(b"n/") => {
                    let session = key::session_id(key)?;
                    self.highest_id = self.highest_id.max(session.0);
                    self.sessions.insert(FileId(session.0));
                    schema::decode::<SessionRecord>(value, "of a session")?;
                }
                Some(b"r/") => {
                    let (session, _) = key::owner_and_rest(key)?;
                    schema::decode::<SlotRecord>(value, "of a slot")?;
                    // Keys ascend: the sessions have been read.
                    if !self.sessions.contains(&session) {
                        let what = format!("the last mutation of session {session}, which is gone");
                        self.problem(Kind::Leftover, what);
                    }
                }
                Some(b"u/") => {
                    schema::decode::<Epoch>(value, "of a target that was removed")?;
                    self.removed.insert(key::removed_target_id(key)?);
                }
                Some(b"y/") => {
                    schema::decode::<Epoch>(value, "of a data server that was removed")?;
                    key::server_id(key)?;
                }
                Some(b"t/") => drop(schema::decode::<ServerRecord>(value, "of a data server")?),
                Some(b"p/") => {
                    let record: QuotaRecord = schema::decode(value, "of a quota")?;
                    self.quotas.record(key::quota_subject(key)?, record);
                }
                Some(b"v/") => drop(key::distrust_object(key)?),
                Some(b"k/") => drop(schema::decode::<ClientRecord>(value, "of a client")?),
                _ => return Err(Error::new(ErrorKind::Corrupt, "no record has such a key")),
            },
        }
        Ok(())
    }

    /// Finds directories without a path to the root.
    fn find_loops(&mut self) {
        let Some(parents) = self.parents.take() else { return };
        let at = |dir: FileId| parents.binary_search_by_key(&dir, |(d, _)| *d).ok();
        let mut reaches = vec![false; parents.len()];
        let mut visited = vec![usize::MAX; parents.len()];
        for start in 0..parents.len() {
            let mut way = Vec::new();
            let mut here = start;
            let lost = loop {
                let (dir, parent) = parents[here];
                if reaches[here] || dir == FileId::ROOT {
                    break None;
                }
                if visited[here] == start {
                    break Some(dir);
                }
                // An earlier walk came by and did not get there: it was told of.
                if visited[here] != usize::MAX {
                    way.clear();
                    break None;
                }
                visited[here] = start;
                way.push(here);
                match at(parent) {
                    Some(next) => here = next,
                    // That its parent is missing is told of with its name.
                    None => {
                        way.clear();
                        break None;
                    }
                }
            };
            match lost {
                None => way.into_iter().for_each(|step| reaches[step] = true),
                Some(dir) => {
                    let what = "the directories above it form a loop";
                    self.problems.push(Problem::new(Kind::Name, dir, what));
                }
            }
        }
    }
}
