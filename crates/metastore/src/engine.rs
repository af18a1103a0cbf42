//! The trait that every engine implements, and the types it speaks.

use std::fmt;
use std::sync::Arc;
use weir_types::{Error, Result};

/// A key: 1 to [`MAX_KEY_BYTES`] bytes, ordered byte by byte.
pub type Key = Box<[u8]>;
/// A value. Cloning it copies no bytes.
pub type Value = Arc<[u8]>;

/// The most operations of one transaction, counted as etcd counts them
/// (`--max-txn-ops`): checks and writes each, not their sum.
pub const MAX_OPERATIONS: usize = 128;
/// The most bytes of one transaction (etcd: `--max-request-bytes`).
pub const MAX_REQUEST_BYTES: usize = 1536 * 1024;
/// The longest key.
pub const MAX_KEY_BYTES: usize = 1024;
/// Bytes that each check or write adds to a request besides its key and value: tags, lengths and
/// the version, rounded up.
pub(crate) const OPERATION_OVERHEAD_BYTES: usize = 32;

const _: () = {
    assert!(MAX_KEY_BYTES <= u16::MAX as usize);
    assert!(MAX_OPERATIONS <= u16::MAX as usize);
    assert!(MAX_OPERATIONS * (MAX_KEY_BYTES + OPERATION_OVERHEAD_BYTES) < MAX_REQUEST_BYTES);
    assert!(weir_types::limits::MAX_XATTR_BYTES + MAX_KEY_BYTES < MAX_REQUEST_BYTES);
};

/// The place of a commit in the order of all commits, from 1; grows by one
/// (etcd: the revision). The version of a key is the sequence of the commit
/// that last wrote it; a key that does not exist has version 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sequence(pub u64);

impl Sequence {
    /// Before the first commit; the version of a key that does not exist.
    pub const ZERO: Sequence = Sequence(0);

    /// The next sequence.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A value and the commit that wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versioned {
    /// The value.
    pub value: Value,
    /// The commit that wrote it.
    pub version: Sequence,
}

/// Something that a transaction saw and that must still hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Check {
    /// The key has this version (0: it does not exist).
    Key {
        /// The key.
        key: Key,
        /// Its version.
        version: Sequence,
    },
    /// The range holds exactly these keys with these versions.
    Range {
        /// First key of the range.
        start: Key,
        /// The key after the last of the range.
        end: Key,
        /// The keys that the transaction found, in key order.
        found: Vec<(Key, Sequence)>,
    },
}

impl Check {
    /// Its share of [`MAX_OPERATIONS`].
    pub fn operations(&self) -> usize {
        match self {
            Check::Key { .. } => 1,
            Check::Range { found, .. } => 1 + found.len(),
        }
    }

    /// Its share of [`MAX_REQUEST_BYTES`].
    pub fn request_bytes(&self) -> usize {
        match self {
            Check::Key { key, .. } => key.len() + OPERATION_OVERHEAD_BYTES,
            Check::Range { start, end, found } => {
                let keys: usize =
                    found.iter().map(|(key, _)| key.len() + OPERATION_OVERHEAD_BYTES).sum();
                start.len() + end.len() + OPERATION_OVERHEAD_BYTES + keys
            }
        }
    }
}

/// One change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The key.
    pub key: Key,
    /// Its new value; `None` deletes it (no error if it does not exist).
    pub value: Option<Value>,
}

impl Write {
    /// Its share of [`MAX_REQUEST_BYTES`].
    pub fn request_bytes(&self) -> usize {
        self.key.len() + self.value.as_ref().map_or(0, |v| v.len()) + OPERATION_OVERHEAD_BYTES
    }
}

/// A complete transaction: all of it is applied, or nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Commit {
    /// [`Engine::sequence`] when the first read was made. While it still is the
    /// engine's sequence, every check holds.
    pub read_at: Sequence,
    /// What must still hold.
    pub checks: Vec<Check>,
    /// The changes; each key at most once.
    pub writes: Vec<Write>,
}

/// The outcome of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitOutcome {
    /// Applied, as this commit. Acknowledge it after [`Engine::flush`].
    Committed(Sequence),
    /// Nothing was changed: a check does not hold. Run the operation again.
    Conflict,
}

/// An ordered transactional key-value engine with one caller. Its calls do not wait for a disk,
/// except those that say so.
pub trait Engine {
    /// The last commit; 0 before the first.
    fn sequence(&self) -> Sequence;

    /// The value of a key as of the last commit.
    fn get(&self, key: &[u8]) -> Result<Option<Versioned>>;

    /// The first `limit` keys of `start..end` in order. Fewer than `limit`
    /// means that there are no more. An `end` at or before `start` is empty.
    fn range(&self, start: &[u8], end: &[u8], limit: usize) -> Result<Vec<(Key, Versioned)>>;

    /// Applies a transaction if its checks hold. The next read sees it.
    ///
    /// Errors: `InvalidArgument` (a key that is empty, too long or written
    /// twice), `TooBig` (over a limit), `NoSpace` (nothing has changed then, and
    /// there may be room later), and whatever broke the engine; after such a
    /// failure it is not known whether the commit survives a restart.
    fn commit(&mut self, commit: Commit) -> Result<CommitOutcome>;

    /// Makes every commit so far survive the death of this process, and
    /// returns the last. Call it once per turn, then acknowledge. An error
    /// means that no commit since the last flush may be acknowledged.
    fn flush(&mut self) -> Result<Sequence>;

    /// Begins what [`Engine::flush`] does, and returns the last commit for which it is done. For
    /// later commits it goes on in the background: the engine notifies its owner when it is done for
    /// more of them, and the next call tells. Nothing that depends on a later commit may be
    /// acknowledged, not even a read.
    fn begin_flush(&mut self) -> Result<Sequence> {
        self.flush()
    }

    /// Asks for every commit up to `upto` to be made durable soon. Returns at
    /// once; [`Engine::synced`] tells when it has happened.
    fn request_sync(&mut self, upto: Sequence);

    /// The last commit that survives a power cut.
    fn synced(&self) -> Sequence;

    /// Takes in what background work has finished. Call it when notified, and
    /// about once a second. Fails when background work has failed.
    fn poll(&mut self) -> Result<()>;

    /// Flushes, and waits until every commit is durable. Blocks: for start-up,
    /// shutdown and tests.
    fn sync(&mut self) -> Result<()>;

    /// Whether commits go to a journal, without which none of them may become known.
    fn has_journal(&self) -> bool {
        false
    }

    /// Whether other servers may have continued after this engine's last state. Then only they know
    /// the outcome of commits that were not acknowledged.
    fn is_deposed(&self) -> bool {
        false
    }

    /// Whether a reply to a read may be sent. Does not wait.
    ///
    /// Errors: those of an engine that is deposed, or is about to be.
    fn check_lead(&self) -> Result<()> {
        Ok(())
    }

    /// Whether the disk has space for commits that need some. If not, only commits that free space
    /// should be made, for which some is reserved. Looks at the disk from time to time.
    fn has_room(&mut self) -> bool {
        true
    }

    /// The state after the last commit, for a long read during which the engine goes on: later
    /// commits do not show in it. It costs memory and disk space while it is kept.
    fn snapshot(&self) -> Result<Box<dyn Snapshot>>;

    /// Compares a part of the disk's contents with its checksums, from `place` on (0: the
    /// beginning), even if it is cached. Damage that is found here does not stop the engine: only a
    /// read of it fails.
    fn verify(&mut self, _place: u64) -> Result<Verified> {
        Ok(Verified::default())
    }
}

/// The result of one step of [`Engine::verify`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// The damage, with file and offset.
    pub damage: Vec<String>,
    /// Bytes that were verified.
    pub bytes: u64,
    /// Where to continue; `None`: the end was reached.
    pub next: Option<u64>,
}

/// The rows of an engine after one commit.
pub trait Snapshot: Send {
    /// The sequence of that commit.
    fn sequence(&self) -> Sequence;

    /// As [`Engine::range`].
    fn range(&self, start: &[u8], end: &[u8], limit: usize) -> Result<Vec<(Key, Versioned)>>;
}

impl Commit {
    /// Refuses a commit that exceeds the limits of every engine. Every engine calls it first.
    pub fn validate(&self) -> Result<()> {
        use weir_types::ErrorKind::{InvalidArgument, TooBig};
        let checks: usize = self.checks.iter().map(Check::operations).sum();
        if checks > MAX_OPERATIONS || self.writes.len() > MAX_OPERATIONS {
            let what = format!(
                "metadata transaction of {checks} checks and {} writes; the limit is {MAX_OPERATIONS}",
                self.writes.len()
            );
            return Err(Error::new(TooBig, what));
        }
        let bytes: usize = self.checks.iter().map(Check::request_bytes).sum::<usize>()
            + self.writes.iter().map(Write::request_bytes).sum::<usize>();
        if bytes > MAX_REQUEST_BYTES {
            let what =
                format!("metadata transaction of {bytes} bytes; the limit is {MAX_REQUEST_BYTES}");
            return Err(Error::new(TooBig, what));
        }
        if !self.writes.iter().all(|w| is_key(&w.key)) {
            return Err(Error::new(InvalidArgument, "metadata key is empty or too long"));
        }
        if has_duplicates(&self.writes) {
            return Err(Error::new(InvalidArgument, "metadata transaction writes a key twice"));
        }
        Ok(())
    }
}

fn has_duplicates(writes: &[Write]) -> bool {
    // `Tx` gives sorted writes, so that this is one pass without allocation.
    if writes.windows(2).all(|w| w[0].key < w[1].key) {
        return false;
    }
    let mut keys: Vec<&[u8]> = writes.iter().map(|w| &*w.key).collect();
    keys.sort_unstable();
    keys.windows(2).any(|w| w[0] == w[1])
}

/// Whether these bytes may be written as a key.
pub(crate) fn is_key(key: &[u8]) -> bool {
    (1..=MAX_KEY_BYTES).contains(&key.len())
}

/// Whether every check of a commit holds at present. Reads only as much of a range as needed.
pub(crate) fn checks_hold<E: Engine + ?Sized>(engine: &E, commit: &Commit) -> Result<bool> {
    if commit.read_at == engine.sequence() {
        return Ok(true);
    }
    for check in &commit.checks {
        let holds = match check {
            Check::Key { key, version } => {
                engine.get(key)?.map_or(Sequence::ZERO, |v| v.version) == *version
            }
            Check::Range { start, end, found } => {
                let now = engine.range(start, end, found.len() + 1)?;
                now.len() == found.len()
                    && now
                        .iter()
                        .zip(found)
                        .all(|(now, then)| now.0 == then.0 && now.1.version == then.1)
            }
        };
        if !holds {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The smallest key after this one.
pub fn key_after(key: &[u8]) -> Key {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    next.into()
}

/// The key after the last that begins with `prefix`: the `end` of its range.
/// `None` if there is none (a prefix of 0xff bytes only, or empty).
pub fn prefix_end(prefix: &[u8]) -> Option<Key> {
    let last = prefix.iter().rposition(|&b| b != 0xff)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_prefix_skips_trailing_ones() {
        assert_eq!(prefix_end(b"ab").as_deref(), Some(&b"ac"[..]));
        assert_eq!(prefix_end(b"a\xff\xff").as_deref(), Some(&b"b"[..]));
        assert_eq!(prefix_end(b"\xff"), None);
        assert_eq!(prefix_end(b""), None);
    }

    #[test]
    fn nothing_lies_between_a_key_and_the_key_after_it() {
        assert_eq!(&*key_after(b"ab"), b"ab\0");
    }
}
