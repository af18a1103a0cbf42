//! What was committed, and what that means for what may be found later.

use std::collections::{BTreeMap, BTreeSet};
use weir_metastore::Engine;
use weir_types::Error;

pub type Bytes = Vec<u8>;
/// Key → value and the commit that wrote it.
pub type Rows = BTreeMap<Bytes, (Bytes, u64)>;
/// The writes of one commit.
pub type Writes = Vec<(Bytes, Option<Bytes>)>;

/// Why the rows could not be found as they should be.
#[derive(Debug)]
pub enum Unlike {
    /// The engine does not answer.
    Fails(Error),
    /// It gives a wrong answer.
    Lies(String),
}

impl std::fmt::Display for Unlike {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unlike::Fails(error) => write!(f, "reading fails: {error}"),
            Unlike::Lies(what) => f.write_str(what),
        }
    }
}

impl From<Error> for Unlike {
    fn from(e: Error) -> Self {
        Unlike::Fails(e)
    }
}

/// Everything that one engine was told, in order.
#[derive(Clone, Default)]
pub struct History {
    /// Commit 1 is the first.
    commits: Vec<Writes>,
    /// The rows after all of them.
    rows: Rows,
    /// The last commit of a successful flush.
    pub flushed: u64,
    /// The last commit that the engine called durable.
    pub synced: u64,
    /// Every id that was handed out, ever.
    pub ids: BTreeSet<u64>,
}

impl History {
    /// The last commit.
    pub fn last(&self) -> u64 {
        self.commits.len() as u64
    }

    /// The rows now.
    pub fn rows(&self) -> &Rows {
        &self.rows
    }

    /// A commit was accepted.
    pub fn committed(&mut self, writes: Writes) {
        self.commits.push(writes);
        let number = self.last();
        apply(&mut self.rows, &self.commits[number as usize - 1], number);
    }

    /// The rows after the commit `upto`.
    pub fn rows_at(&self, upto: u64) -> Rows {
        let mut rows = Rows::new();
        for (number, writes) in (1..=upto).zip(&self.commits) {
            apply(&mut rows, writes, number);
        }
        rows
    }

    /// A crash took what came after `upto`; what is left is durable.
    pub fn cut(&mut self, upto: u64) {
        self.commits.truncate(upto as usize);
        self.rows = self.rows_at(upto);
        (self.flushed, self.synced) = (upto, upto);
    }

    /// Whether the engine has just what it had after one of the commits from
    /// `at_least` on; which one.
    pub fn check(&self, engine: &dyn Engine, at_least: u64) -> Result<u64, Unlike> {
        let last = engine.sequence().0;
        if last < at_least || last > self.last() {
            return Err(Unlike::Lies(format!(
                "it ends with commit {last}; {at_least} was promised, {} was the last",
                self.last()
            )));
        }
        let found = engine.range(b"\0", b"\xff\xff", usize::MAX)?;
        let expected = if last == self.last() { self.rows.clone() } else { self.rows_at(last) };
        let same = found.iter().zip(&expected).all(|((key, row), (k, (value, version)))| {
            **key == **k && *row.value == **value && row.version.0 == *version
        });
        if !same || found.len() != expected.len() {
            return Err(Unlike::Lies(format!("it is not what commit {last} left")));
        }
        for (key, row) in found.iter().take(5) {
            if engine.get(key)?.as_ref() != Some(row) {
                return Err(Unlike::Lies("a row alone is not the row of a range".into()));
            }
        }
        Ok(last)
    }
}

fn apply(rows: &mut Rows, writes: &Writes, number: u64) {
    for (key, value) in writes {
        match value {
            Some(value) => rows.insert(key.clone(), (value.clone(), number)),
            None => rows.remove(key),
        };
    }
}
