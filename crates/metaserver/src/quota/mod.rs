//! Quotas: what users, groups and directories have, counted in the very transactions that
//! change it, and what clients may write before they ask again.
//!
//! Invariants
//! - What the record of a quota says is used is the sum over all inodes with numbers below its
//!   `counted_to`, in every commit ([`charge`] looks at what a transaction writes, whichever
//!   operation did): so no crash makes it drift, and `weir fsck` can compare.
//! - A file counts in the directories above it; one without a name in those that its record
//!   says (`Orphan::counted_in`). All names of a file are below the same directories with
//!   quotas, but for names from before the quota was set.
//! - Where there is no quota nothing is looked at.

mod account;
mod count;
mod grants;

pub(crate) use account::{Charge, charge};
pub(crate) use count::count;
pub(crate) use grants::{Grants, RoomNews};

use crate::ops::{Context, Fault, Outcome};
use crate::schema::{self, ALL_COUNTED, Body, Inode, Orphan, QuotaRecord, key};
use std::collections::BTreeMap;
use weir_metastore::{Engine, Tx, key_after};
use weir_types::{Error, ErrorKind, FileId, FileKind, FsUsage, Result};
use weir_wire::quota::{QuotaLimits, QuotaSubject};

/// The most quotas that there may be.
pub const MAX_QUOTAS: usize = 65_536;
/// Directories with quotas that may be above one another: each is one more record to change
/// in every transaction.
pub const MAX_ABOVE: usize = 16;
/// The deepest directory from which the way up is followed.
const MAX_DEPTH: usize = 8192;
/// Keys read at a time.
const PAGE: usize = 1024;
/// A file may grow ahead of its writer by this part of what its quotas leave,
const AHEAD_PART: u64 = 16;
/// and by so much at the most.
pub const MAX_AHEAD_BYTES: u64 = 64 << 20;

/// What is known of quotas without asking the store.
#[derive(Debug, Default)]
pub struct Quotas {
    limits: BTreeMap<QuotaSubject, QuotaLimits>,
    /// How many of them are of directories.
    directories: usize,
    /// So many of them are above one another, or fewer; `None`: nobody has looked yet. Moves
    /// change nothing of it: whatever has a quota, or is in front of one, stays below the same
    /// directories with quotas ([`charge`]).
    deepest: Option<usize>,
    /// Quotas whose files have not all been counted, and how far each is.
    counting: BTreeMap<QuotaSubject, FileId>,
    /// Something cannot be read that is to be counted.
    is_stuck: bool,
    /// What clients may write.
    pub(crate) grants: Grants,
}

/// What an inode counts for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Share {
    /// Every quota that concerns it.
    pub subjects: Vec<QuotaSubject>,
    /// Those among them that are of directories.
    pub directories: Vec<FileId>,
    /// What it counts in each, besides one file.
    pub bytes: u64,
}

impl Quotas {
    /// Reads what is stored.
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

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.limits.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.limits.len()
    }

    /// Whether files are still to be counted.
    pub fn is_counting(&self) -> bool {
        !self.counting.is_empty() && !self.is_stuck
    }

    /// There is something that cannot be read: no more is counted until the next start.
    pub fn cannot_count(&mut self) {
        self.is_stuck = true;
    }

    /// Whether somebody has a quota.
    pub fn has(&self, subject: QuotaSubject) -> bool {
        self.limits.contains_key(&subject)
    }

    /// All that have a quota, in order, behind one of them.
    pub fn behind(&self, after: Option<QuotaSubject>) -> impl Iterator<Item = QuotaSubject> + '_ {
        use std::ops::Bound::{Excluded, Unbounded};
        let start = after.map_or(Unbounded, Excluded);
        self.limits.range((start, Unbounded)).map(|(subject, _)| *subject)
    }

    /// A record has been stored.
    pub fn set(&mut self, subject: QuotaSubject, record: &QuotaRecord) {
        let new = self.limits.insert(subject, record.limits).is_none();
        self.directories += usize::from(new && is_directory(subject));
        match record.counted_to {
            ALL_COUNTED => self.counting.remove(&subject),
            from => self.counting.insert(subject, from),
        };
    }

    /// A record has been removed.
    pub fn forget(&mut self, subject: QuotaSubject) {
        let known = self.limits.remove(&subject).is_some();
        self.directories -= usize::from(known && is_directory(subject));
        self.counting.remove(&subject);
        self.grants.forget(subject);
    }

    /// So many directories with quotas are above one another at the most, as far as is known.
    pub fn deepest(&self) -> Option<usize> {
        self.deepest
    }

    /// No more than so many are, from now on.
    pub fn deepest_is(&mut self, most: usize) {
        self.deepest = Some(most);
    }

    fn limits_bytes(&self, subject: QuotaSubject) -> bool {
        self.limits.get(&subject).is_some_and(|limits| limits.bytes.is_some())
    }
}

fn is_directory(subject: QuotaSubject) -> bool {
    matches!(subject, QuotaSubject::Directory(_))
}

/// What the bytes of an inode count: the size of a regular file, holes included.
pub(crate) fn bytes_of(inode: &Inode) -> u64 {
    if matches!(inode.body, Body::File(_)) { inode.size } else { 0 }
}

/// The inode of a file as the transaction sees it. Nothing is checked to stay, as with all that
/// is read on the way up: the machine takes one request at a time.
pub(crate) fn peek(tx: &mut Tx<'_>, file: FileId) -> Outcome<Option<Inode>> {
    match tx.peek(&key::inode(file))? {
        Some(bytes) => Ok(Some(schema::decode(&bytes, "of an inode")?)),
        None => Ok(None),
    }
}

/// The record of a quota; `None`: there is none.
pub(crate) fn record(tx: &mut Tx<'_>, subject: QuotaSubject) -> Outcome<Option<QuotaRecord>> {
    match tx.peek(&key::quota(subject))? {
        Some(bytes) => Ok(Some(schema::decode(&bytes, "of a quota")?)),
        None => Ok(None),
    }
}

/// The directories from `dir` upwards, itself first.
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

/// Those among them that have quotas.
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

/// The answer to this request is about a file: whoever writes it learns whether a quota limits
/// it, and what he may write is counted against what the quota says now.
pub(crate) fn note(
    tx: &mut Tx<'_>,
    ctx: &mut Context<'_>,
    file: FileId,
    inode: &Inode,
    up_to: Option<u64>,
) -> Outcome<()> {
    if ctx.quotas.is_empty() || !matches!(inode.body, Body::File(_)) {
        return Ok(());
    }
    let mut subjects = share(tx, ctx.quotas, file, inode)?.subjects;
    subjects.retain(|subject| ctx.quotas.limits_bytes(*subject));
    ctx.effects.room_limited = !subjects.is_empty();
    ctx.effects.room = Some(RoomNews { file, size: inode.size, subjects, up_to });
    Ok(())
}

/// How far a file may grow for a writer who is about to write up to `end`; `None`: no quota
/// limits it. It is noted that he may.
///
/// # Errors
/// `QuotaExceeded`.
pub(crate) fn room(
    tx: &mut Tx<'_>,
    ctx: &mut Context<'_>,
    (file, inode): (FileId, &Inode),
    end: u64,
) -> Outcome<Option<u64>> {
    if ctx.quotas.is_empty() {
        return Ok(None);
    }
    let mut subjects = share(tx, ctx.quotas, file, inode)?.subjects;
    subjects.retain(|subject| ctx.quotas.limits_bytes(*subject));
    if subjects.is_empty() {
        return Ok(None);
    }
    let (mut left, mut tightest) = (u128::MAX, None);
    for subject in &subjects {
        let Some(record) = record(tx, *subject)? else { continue };
        let Some(limit) = record.limits.bytes else { continue };
        let taken = record.used_bytes + ctx.quotas.grants.by_others(*subject, file);
        let free = u128::from(limit).saturating_sub(taken);
        if free < left {
            (left, tightest) = (free, Some((*subject, limit)));
        }
    }
    let left = u64::try_from(left).unwrap_or(u64::MAX);
    // What others may write of the file already costs nothing more.
    let may = inode.size.saturating_add(left);
    let end = end.max(inode.size);
    let up_to = match tightest {
        _ if end <= may => end + ((may - end) / AHEAD_PART).min(MAX_AHEAD_BYTES),
        _ if end == inode.size || is_exempt(ctx) => end,
        Some((subject, limit)) => return Err(exceeded(subject, &format!("{limit} bytes"))),
        None => end,
    };
    ctx.effects.room_limited = true;
    ctx.effects.room = Some(RoomNews { file, size: inode.size, subjects, up_to: Some(up_to) });
    Ok(Some(up_to))
}

/// Nothing is refused to the superuser, as on Linux (`CAP_SYS_RESOURCE`); but it is counted.
pub(crate) fn is_exempt(ctx: &Context<'_>) -> bool {
    crate::ops::access::is_root(ctx.caller)
}

fn exceeded(subject: QuotaSubject, limit: &str) -> Fault {
    let message = format!(
        "the quota of {subject}, {limit}, is used up: remove something, or ask the administrator \
         for more (`weir quota` shows it)"
    );
    Error::new(ErrorKind::QuotaExceeded, message).into()
}

/// The space of the file system as it is seen in a directory with a quota above it.
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
