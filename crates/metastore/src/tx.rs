//! The view through which a metadata operation reads and writes.

use crate::engine::{
    Check, Commit, CommitOutcome, Engine, Key, MAX_OPERATIONS, MAX_REQUEST_BYTES,
    OPERATION_OVERHEAD_BYTES, Sequence, Value, Versioned, Write, is_key, key_after,
};
use std::collections::BTreeMap;
use weir_types::{Error, ErrorKind};

/// How often [`transact`] runs an operation that meets conflicts.
const MAX_ATTEMPTS: usize = 16;

/// Why an operation has to stop.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TxError {
    /// The operation has more than [`MAX_OPERATIONS`] checks or writes.
    #[error("more than {MAX_OPERATIONS} operations in one metadata transaction")]
    TooManyOperations,
    /// The operation exceeds [`MAX_REQUEST_BYTES`], or a key is empty or too long.
    #[error("metadata transaction or key is too large")]
    TooLarge,
    /// The engine cannot read.
    #[error(transparent)]
    Failed(Error),
}

impl From<Error> for TxError {
    fn from(e: Error) -> Self {
        TxError::Failed(e)
    }
}

/// For callers that answer a client: an exceeded limit becomes `TooBig`.
impl From<TxError> for Error {
    fn from(e: TxError) -> Self {
        let kind = match e {
            TxError::TooManyOperations | TxError::TooLarge => ErrorKind::TooBig,
            TxError::Failed(e) => return e,
        };
        Error::new(kind, e.to_string())
    }
}

/// A transaction under construction. Reads see the state as of one commit plus the transaction's
/// own writes. Nothing changes until the result of [`Tx::into_commit`] is passed to
/// [`Engine::commit`].
pub struct Tx<'a> {
    engine: &'a dyn Engine,
    read_at: Sequence,
    reads: BTreeMap<Key, Sequence>,
    ranges: Vec<Check>,
    writes: BTreeMap<Key, Option<Value>>,
    write_bytes: usize,
}

impl<'a> Tx<'a> {
    /// Begins at the engine's last commit.
    pub fn new(engine: &'a dyn Engine) -> Self {
        Self {
            engine,
            read_at: engine.sequence(),
            reads: BTreeMap::new(),
            ranges: Vec::new(),
            writes: BTreeMap::new(),
            write_bytes: 0,
        }
    }

    /// The value of a key. The commit checks that the key has not changed.
    pub fn get(&mut self, key: &[u8]) -> Result<Option<Value>, TxError> {
        if let Some(own) = self.writes.get(key) {
            return Ok(own.clone());
        }
        Ok(self.read(key)?.map(|v| v.value))
    }

    /// As [`Tx::get`], with the version. The transaction's own writes are ignored, because they
    /// have no version yet.
    pub fn get_versioned(&mut self, key: &[u8]) -> Result<Option<Versioned>, TxError> {
        self.read(key)
    }

    /// As [`Tx::get`], but without a check at commit. For a key that can change only together with
    /// another one that is checked.
    pub fn peek(&mut self, key: &[u8]) -> Result<Option<Value>, TxError> {
        if let Some(own) = self.writes.get(key) {
            return Ok(own.clone());
        }
        Ok(self.engine.get(key)?.map(|v| v.value))
    }

    fn read(&mut self, key: &[u8]) -> Result<Option<Versioned>, TxError> {
        let found = self.engine.get(key)?;
        let version = found.as_ref().map_or(Sequence::ZERO, |v| v.version);
        self.reads.insert(key.into(), version);
        Ok(found)
    }

    /// The first `limit` keys of `start..end`. The commit checks that nothing in the range up to
    /// the last key seen was written, added or deleted. Fewer than `limit` means that there are no
    /// more.
    ///
    /// If the transaction also writes, every key found counts against
    /// [`MAX_OPERATIONS`]; a transaction that only reads has no such limit.
    pub fn range(
        &mut self,
        start: &[u8],
        end: &[u8],
        limit: usize,
    ) -> Result<Vec<(Key, Value)>, TxError> {
        self.look_at(start, end, limit, true)
    }

    /// As [`Tx::range`], but without a check at commit. For keys that can change only together with
    /// another one that is checked.
    pub fn peek_range(
        &mut self,
        start: &[u8],
        end: &[u8],
        limit: usize,
    ) -> Result<Vec<(Key, Value)>, TxError> {
        self.look_at(start, end, limit, false)
    }

    fn look_at(
        &mut self,
        start: &[u8],
        end: &[u8],
        limit: usize,
        check: bool,
    ) -> Result<Vec<(Key, Value)>, TxError> {
        if start >= end || limit == 0 {
            return Ok(Vec::new());
        }
        let own: Vec<(Key, Option<Value>)> = self
            .writes
            .range::<[u8], _>((std::ops::Bound::Included(start), std::ops::Bound::Excluded(end)))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        // Each own deletion may hide one key, so ask for that many more.
        let deletions = own.iter().filter(|(_, value)| value.is_none()).count();
        let asked = limit.saturating_add(deletions);
        let stored = self.engine.range(start, end, asked)?;
        if check {
            self.record_range(start, end, asked, &stored);
        }
        if own.is_empty() {
            return Ok(stored.into_iter().map(|(key, v)| (key, v.value)).collect());
        }
        let mut merged: BTreeMap<Key, Option<Value>> =
            stored.into_iter().map(|(key, v)| (key, Some(v.value))).collect();
        merged.extend(own);
        Ok(merged.into_iter().filter_map(|(key, v)| Some((key, v?))).take(limit).collect())
    }

    fn record_range(
        &mut self,
        start: &[u8],
        end: &[u8],
        asked: usize,
        stored: &[(Key, Versioned)],
    ) {
        let looked_at_end = match stored.last() {
            Some((last, _)) if stored.len() >= asked => key_after(last),
            _ => end.into(),
        };
        let found = stored.iter().map(|(key, v)| (key.clone(), v.version)).collect();
        self.ranges.push(Check::Range { start: start.into(), end: looked_at_end, found });
    }

    /// Sets a key.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), TxError> {
        self.write(key, Some(value.into()))
    }

    /// Removes a key; nothing happens if it does not exist.
    pub fn delete(&mut self, key: &[u8]) -> Result<(), TxError> {
        self.write(key, None)
    }

    fn write(&mut self, key: &[u8], value: Option<Value>) -> Result<(), TxError> {
        let cost = |v: &Option<Value>| {
            key.len() + v.as_ref().map_or(0, |v| v.len()) + OPERATION_OVERHEAD_BYTES
        };
        let (new, old) = (cost(&value), self.writes.get(key).map(cost));
        let total = self.write_bytes + new - old.unwrap_or(0);
        if !is_key(key) || total > MAX_REQUEST_BYTES {
            return Err(TxError::TooLarge);
        }
        if old.is_none() && self.writes.len() == MAX_OPERATIONS {
            return Err(TxError::TooManyOperations);
        }
        self.writes.insert(key.into(), value);
        self.write_bytes = total;
        Ok(())
    }

    /// The transaction's own writes to keys of `start..end`, in order of the keys. `None`: the key
    /// is deleted.
    pub fn written(&self, start: &[u8], end: &[u8]) -> Vec<(Key, Option<Value>)> {
        let range = (std::ops::Bound::Included(start), std::ops::Bound::Excluded(end));
        let own = self.writes.range::<[u8], _>(range);
        own.map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    /// Whether the transaction has written nothing.
    pub fn is_read_only(&self) -> bool {
        self.writes.is_empty()
    }

    /// Number of further keys that can be written.
    pub fn writes_left(&self) -> usize {
        MAX_OPERATIONS - self.writes.len()
    }

    /// The finished transaction. A transaction without writes needs no checks: all of its reads saw
    /// one state.
    pub fn into_commit(self) -> Result<Commit, TxError> {
        if self.writes.is_empty() {
            return Ok(Commit { read_at: self.read_at, ..Commit::default() });
        }
        let keys = self.reads.into_iter().map(|(key, version)| Check::Key { key, version });
        let checks: Vec<Check> = keys.chain(self.ranges).collect();
        if checks.iter().map(Check::operations).sum::<usize>() > MAX_OPERATIONS {
            return Err(TxError::TooManyOperations);
        }
        let check_bytes: usize = checks.iter().map(Check::request_bytes).sum();
        if check_bytes + self.write_bytes > MAX_REQUEST_BYTES {
            return Err(TxError::TooLarge);
        }
        let writes = self.writes.into_iter().map(|(key, value)| Write { key, value }).collect();
        Ok(Commit { read_at: self.read_at, checks, writes })
    }
}

/// Runs an operation and commits its writes; repeats it after a conflict, up to 16 times (then
/// `Busy`). Returns its result and the commit after which the result may be acknowledged: its own
/// commit, or the last one before it if it wrote nothing.
pub fn transact<T, X>(
    engine: &mut dyn Engine,
    mut operation: impl FnMut(&mut Tx<'_>) -> Result<T, X>,
) -> Result<(T, Sequence), X>
where
    X: From<TxError> + From<Error>,
{
    for _ in 0..MAX_ATTEMPTS {
        let mut tx = Tx::new(engine);
        let result = operation(&mut tx)?;
        if tx.is_read_only() {
            return Ok((result, engine.sequence()));
        }
        let commit = tx.into_commit()?;
        if let CommitOutcome::Committed(sequence) = engine.commit(commit)? {
            return Ok((result, sequence));
        }
    }
    Err(Error::new(ErrorKind::Busy, "metadata transaction met too many conflicts").into())
}
