//! An engine in memory, for tests and the simulator: the same trait, and faults
//! on demand.

use crate::engine::{
    Commit, CommitOutcome, Engine, Key, Sequence, Snapshot, Versioned, Write, checks_hold,
};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use weir_types::{Error, ErrorKind, Result};

/// A fault for the next commit that has something to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Injection {
    /// The commit meets a conflict and changes nothing.
    Conflict,
    /// The commit is applied, but the reply is lost: the caller gets `TimedOut`.
    AppliedReplyLost,
    /// The request is lost: the caller gets `TimedOut`, and nothing is changed.
    RequestLost,
}

/// What is needed to undo one commit.
struct Undo {
    sequence: Sequence,
    before: Vec<(Key, Option<Versioned>)>,
}

/// An ordered transactional engine in memory. Deterministic: no clock, no
/// threads, no randomness. Commits become durable when [`Engine::poll`] runs
/// after [`Engine::request_sync`], or at [`Engine::sync`]; until then
/// [`ModelEngine::power_cut`] takes them back.
#[derive(Default)]
pub struct ModelEngine {
    rows: BTreeMap<Key, Versioned>,
    sequence: Sequence,
    wanted: Sequence,
    synced: Sequence,
    unsynced: VecDeque<Undo>,
    injections: VecDeque<Injection>,
}

impl ModelEngine {
    /// An empty engine.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a fault; each is used up by one commit, in the order given.
    pub fn inject(&mut self, injection: Injection) {
        self.injections.push_back(injection);
    }

    /// Undoes every commit that is not durable, as a power cut does.
    pub fn power_cut(&mut self) {
        while let Some(undo) = self.unsynced.pop_back() {
            for (key, before) in undo.before {
                match before {
                    Some(row) => self.rows.insert(key, row),
                    None => self.rows.remove(&key),
                };
            }
        }
        self.sequence = self.synced;
        self.wanted = self.synced;
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    fn apply(&mut self, writes: Vec<Write>) {
        self.sequence = self.sequence.next();
        let mut before = Vec::with_capacity(writes.len());
        for Write { key, value } in writes {
            let old = match value {
                Some(value) => {
                    self.rows.insert(key.clone(), Versioned { value, version: self.sequence })
                }
                None => self.rows.remove(&key),
            };
            before.push((key, old));
        }
        self.unsynced.push_back(Undo { sequence: self.sequence, before });
    }

    fn mark_synced(&mut self, upto: Sequence) {
        self.synced = self.synced.max(upto.min(self.sequence));
        while self.unsynced.front().is_some_and(|undo| undo.sequence <= self.synced) {
            self.unsynced.pop_front();
        }
    }
}

impl Engine for ModelEngine {
    fn sequence(&self) -> Sequence {
        self.sequence
    }

    fn get(&self, key: &[u8]) -> Result<Option<Versioned>> {
        Ok(self.rows.get(key).cloned())
    }

    fn range(&self, start: &[u8], end: &[u8], limit: usize) -> Result<Vec<(Key, Versioned)>> {
        if start >= end {
            return Ok(Vec::new());
        }
        let rows = self.rows.range::<[u8], _>((Bound::Included(start), Bound::Excluded(end)));
        Ok(rows.take(limit).map(|(key, row)| (key.clone(), row.clone())).collect())
    }

    fn commit(&mut self, commit: Commit) -> Result<CommitOutcome> {
        commit.validate()?;
        if !checks_hold(self, &commit)? {
            return Ok(CommitOutcome::Conflict);
        }
        if commit.writes.is_empty() {
            return Ok(CommitOutcome::Committed(self.sequence));
        }
        let lost = Error::new(ErrorKind::TimedOut, "no answer from the metadata engine");
        match self.injections.pop_front() {
            Some(Injection::Conflict) => return Ok(CommitOutcome::Conflict),
            Some(Injection::RequestLost) => return Err(lost),
            Some(Injection::AppliedReplyLost) => {
                self.apply(commit.writes);
                return Err(lost);
            }
            None => self.apply(commit.writes),
        }
        Ok(CommitOutcome::Committed(self.sequence))
    }

    fn flush(&mut self) -> Result<Sequence> {
        Ok(self.sequence)
    }

    fn request_sync(&mut self, upto: Sequence) {
        self.wanted = self.wanted.max(upto);
    }

    fn synced(&self) -> Sequence {
        self.synced
    }

    fn poll(&mut self) -> Result<()> {
        self.mark_synced(self.wanted);
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        self.mark_synced(self.sequence);
        Ok(())
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        let (rows, sequence) = (self.rows.clone(), self.sequence);
        Ok(Box::new(ModelSnapshot(Self { rows, sequence, ..Self::default() })))
    }
}

/// A copy of an engine, which nobody writes to.
struct ModelSnapshot(ModelEngine);

impl Snapshot for ModelSnapshot {
    fn sequence(&self) -> Sequence {
        self.0.sequence
    }

    fn range(&self, start: &[u8], end: &[u8], limit: usize) -> Result<Vec<(Key, Versioned)>> {
        self.0.range(start, end, limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tx::transact;

    fn put(engine: &mut ModelEngine, key: &[u8]) -> Result<Sequence> {
        transact(engine, |tx| tx.put(key, b"v").map_err(Error::from)).map(|((), at)| at)
    }

    #[test]
    fn conforms() {
        crate::conformance::run(ModelEngine::new, |engine| engine);
    }

    #[test]
    fn a_power_cut_takes_back_what_was_not_synced_and_nothing_else() {
        let mut engine = ModelEngine::new();
        let first = put(&mut engine, b"a").unwrap();
        put(&mut engine, b"b").unwrap();
        engine.request_sync(first);
        engine.poll().unwrap();
        engine.power_cut();
        assert!(engine.get(b"a").unwrap().is_some());
        assert!(engine.get(b"b").unwrap().is_none());
        assert_eq!(engine.sequence(), first);
    }

    #[test]
    fn injected_faults_do_what_they_say_once() {
        let mut engine = ModelEngine::new();
        engine.inject(Injection::Conflict);
        engine.inject(Injection::RequestLost);
        engine.inject(Injection::AppliedReplyLost);
        // The conflict is retried and then meets the lost request.
        assert_eq!(put(&mut engine, b"a").unwrap_err().kind, ErrorKind::TimedOut);
        assert!(engine.is_empty());
        assert_eq!(put(&mut engine, b"a").unwrap_err().kind, ErrorKind::TimedOut);
        assert_eq!(engine.len(), 1);
        put(&mut engine, b"b").unwrap();
    }
}
