//! Quotas: counts of the files of users, groups and directories, updated in the same transactions
//! as the files, and space granted to clients in advance.
//!
//! Invariants
//! - The count in a quota's record is the sum over all inodes with ids below its `counted_to`, in
//!   every commit ([`charge`] looks at the writes of each transaction, whichever operation made
//!   them). So no crash makes it drift, and `weir fsck` can compare.
//! - A file counts in the directories above it; one without a name in those of its record
//!   (`Orphan::counted_in`). All names of a file are below the same directories with quotas, except
//!   names from before the quota was set.
//! - Without quotas nothing is counted.

mod account;
mod count;
mod grants;

pub(crate) use account::{Charge, charge};
pub(crate) use count::count;
pub(crate) use grants::{Grants, RoomNews};

use crate::fault::{Fault, Outcome};
use crate::schema::{self, ALL_COUNTED, Body, Inode, Orphan, QuotaRecord, key};
use std::collections::BTreeMap;
use weir_metastore::{Engine, Tx, key_after};
use weir_types::{Error, ErrorKind, FileId, FileKind, FsUsage, Result};
use weir_wire::quota::{QuotaLimits, QuotaSubject};

/// The most quotas.
pub const MAX_QUOTAS: usize = 65_536;
/// The most nested directories with quotas: each is another record to change in every transaction.
pub const MAX_ABOVE: usize = 16;
/// The deepest directory whose ancestors are followed.
const MAX_DEPTH: usize = 8192;
/// Keys read at a time.
const PAGE: usize = 1024;
/// A file may grow ahead of its writer by this part of what its quotas leave.
pub(crate) const AHEAD_PART: u64 = 16;
/// The most bytes by which a file may grow ahead of its writer.
pub const MAX_AHEAD_BYTES: u64 = 64 << 20;

/// Facts about quotas in memory.
#[derive(Debug, Default)]
pub struct Quotas {
    limits: BTreeMap<QuotaSubject, QuotaLimits>,
    /// Number of quotas of directories.
    directories: usize,
    /// Upper limit of nested directories with quotas; `None` before the first count. Moves do not
    /// change it: everything that has a quota, or is above one, stays below the same directories
    /// with quotas ([`charge`]).
    deepest: Option<usize>,
    /// Quotas whose files are not all counted, and the progress of each.
    counting: BTreeMap<QuotaSubject, FileId>,
    /// Whether counting has stopped at something unreadable.
    is_stuck: bool,
    /// Space granted to clients.
    pub(crate) grants: Grants,
}

/// What an inode counts for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Share {
    /// All quotas that count it.
    pub subjects: Vec<QuotaSubject>,
    /// Directories among them.
    pub directories: Vec<FileId>,
    /// Its bytes in each; it counts as one file.
    pub bytes: u64,
}

impl Quotas {
    /// Loads the stored quotas.
    pub fn load(engine: &dyn Engine) -> Result<Self> {
        let mut quotas = Self::default();
        let (mut start, end) = key::quotas();
        loop {
            let page = Tx::new(engine).range(&start, &end, PAGE)?;
            for (at, bytes) in &page {
                let record: QuotaRecord = schema::decode(bytes, "of a quota")?;
                quotas.set(key::quota_subject(at)?, &record);
            }
            match page.last() {
                Some((last, _)) if page.len() == PAGE => start = key_after(last).into_vec(),
                _ => return Ok(quotas),
            }
        }
    }

    /// Whether there are no quotas.
    pub fn is_empty(&self) -> bool {
        self.limits.is_empty()
    }

    /// Number of quotas.
    pub fn len(&self) -> usize {
        self.limits.len()
    }

    /// Whether files still have to be counted.
    pub fn is_counting(&self) -> bool {
        !self.counting.is_empty() && !self.is_stuck
    }

    /// Stops counting until the next start, because something is unreadable.
    pub fn cannot_count(&mut self) {
        self.is_stuck = true;
    }

    /// Whether there is a quota for a subject.
    pub fn has(&self, subject: QuotaSubject) -> bool {
        self.limits.contains_key(&subject)
    }

    /// Subjects with quotas after `after`, ascending.
    pub fn behind(&self, after: Option<QuotaSubject>) -> impl Iterator<Item = QuotaSubject> + '_ {
        use std::ops::Bound::{Excluded, Unbounded};
        let start = after.map_or(Unbounded, Excluded);
        self.limits.range((start, Unbounded)).map(|(subject, _)| *subject)
    }

    /// Records a stored quota.
    pub fn set(&mut self, subject: QuotaSubject, record: &QuotaRecord) {
        let new = self.limits.insert(subject, record.limits).is_none();
        self.directories += usize::from(new && is_directory(subject));
        match record.counted_to {
            ALL_COUNTED => self.counting.remove(&subject),
            from => self.counting.insert(subject, from),
        };
    }

    /// Records a removed quota.
    pub fn forget(&mut self, subject: QuotaSubject) {
        let known = self.limits.remove(&subject).is_some();
        self.directories -= usize::from(known && is_directory(subject));
        self.counting.remove(&subject);
        self.grants.forget(subject);
    }

    /// Upper limit of nested directories with quotas, if known.
    pub fn deepest(&self) -> Option<usize> {
        self.deepest
    }

    /// Sets that limit.
    pub fn deepest_is(&mut self, most: usize) {
        self.deepest = Some(most);
    }

    pub(crate) fn limits_bytes(&self, subject: QuotaSubject) -> bool {
        self.limits.get(&subject).is_some_and(|limits| limits.bytes.is_some())
    }
}

fn is_directory(subject: QuotaSubject) -> bool {
    matches!(subject, QuotaSubject::Directory(_))
}

/// Bytes of an inode for quotas: the size of a regular file, holes included.
pub(crate) fn bytes_of(inode: &Inode) -> u64 {
    if matches!(inode.body, Body::File(_)) { inode.size } else { 0 }
}

/// The inode of a file in the transaction, outside of its conflict checks, like everything read on
/// the way up: the machine handles one request at a time.
pub(crate) fn peek(tx: &mut Tx<'_>, file: FileId) -> Outcome<Option<Inode>> {
    match tx.peek(&key::inode(file))? {
        Some(bytes) => Ok(Some(schema::decode(&bytes, "of an inode")?)),
        None => Ok(None),
    }
}

/// The record of a quota, if there is one.
pub(crate) fn record(tx: &mut Tx<'_>, subject: QuotaSubject) -> Outcome<Option<QuotaRecord>> {
    match tx.peek(&key::quota(subject))? {
        Some(bytes) => Ok(Some(schema::decode(&bytes, "of a quota")?)),
        None => Ok(None),
    }
}

/// `dir` and its ancestors.
pub(crate) fn way_up(tx: &mut Tx<'_>, dir: FileId) -> Outcome<Vec<FileId>> {
    let mut way = vec![dir];
    let mut here = dir;
    while here != FileId::ROOT && way.len() < MAX_DEPTH {
        let Some(inode) = peek(tx, here)? else { break };
        here = inode.parent;
        way.push(here);
    }
    Ok(way)
}

/// Those among them with quotas.
pub(crate) fn above(tx: &mut Tx<'_>, quotas: &Quotas, dir: FileId) -> Outcome<Vec<FileId>> {
    if quotas.directories == 0 {
        return Ok(Vec::new());
    }
    let mut way = way_up(tx, dir)?;
    way.retain(|dir| quotas.has(QuotaSubject::Directory(*dir)));
    Ok(way)
}

/// What an inode counts for.
pub(crate) fn share(
    tx: &mut Tx<'_>,
    quotas: &Quotas,
    file: FileId,
    inode: &Inode,
) -> Outcome<Share> {
    let directories = match (quotas.directories, inode.kind, inode.nlink) {
        (0, ..) => Vec::new(),
        (_, FileKind::Directory, _) => above(tx, quotas, file)?,
        (_, _, 0) => {
            let mut counted_in = orphan(tx, file)?.counted_in;
            counted_in.retain(|dir| quotas.has(QuotaSubject::Directory(*dir)));
            counted_in
        }
        _ => above(tx, quotas, inode.parent)?,
    };
    let owners = [QuotaSubject::User(inode.uid), QuotaSubject::Group(inode.gid)];
    let owners = owners.into_iter().filter(|subject| quotas.has(*subject));
    let subjects = owners.chain(directories.iter().map(|dir| QuotaSubject::Directory(*dir)));
    Ok(Share { subjects: subjects.collect(), bytes: bytes_of(inode), directories })
}

fn orphan(tx: &mut Tx<'_>, file: FileId) -> Outcome<Orphan> {
    match tx.peek(&key::orphan(file))? {
        Some(bytes) => Ok(schema::decode(&bytes, "of a file without a name")?),
        None => Ok(Orphan::default()),
    }
}

pub(crate) fn exceeded(subject: QuotaSubject, limit: &str) -> Fault {
    let message = format!(
        "the quota of {subject}, {limit}, is used up: remove something, or ask the administrator \
         for more (`weir quota` shows it)"
    );
    Error::new(ErrorKind::QuotaExceeded, message).into()
}

/// The space of the file system as seen in a directory below a quota.
pub(crate) fn space(
    tx: &mut Tx<'_>,
    quotas: &Quotas,
    file: FileId,
    mut usage: FsUsage,
) -> Outcome<FsUsage> {
    if quotas.directories == 0 {
        return Ok(usage);
    }
    let Some(inode) = peek(tx, file)? else { return Ok(usage) };
    for dir in share(tx, quotas, file, &inode)?.directories {
        let Some(record) = record(tx, QuotaSubject::Directory(dir))? else { continue };
        if let Some(limit) = record.limits.bytes {
            let left = u128::from(limit).saturating_sub(record.used_bytes);
            usage.free_bytes = usage.free_bytes.min(u64::try_from(left).unwrap_or(u64::MAX));
            usage.total_bytes = usage.total_bytes.min(limit);
        }
        if let Some(limit) = record.limits.files {
            usage.free_files = usage.free_files.min(limit.saturating_sub(record.used_files));
            usage.total_files = usage.total_files.min(limit);
        }
    }
    Ok(usage)
}
