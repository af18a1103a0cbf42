//! The history of commits, and the states that may be found later.

use std::collections::{BTreeMap, BTreeSet};
use weir_metastore::Engine;
use weir_types::Error;

pub type Bytes = Vec<u8>;
/// Key → value and the commit that wrote it.
pub type Rows = BTreeMap<Bytes, (Bytes, u64)>;
/// The writes of one commit.
pub type Writes = Vec<(Bytes, Option<Bytes>)>;

/// How an engine's rows differ from what they should be.
#[derive(Debug)]
pub enum Unlike {
    /// The engine returns an error.
    Fails(Error),
    /// The engine gives a wrong answer.
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

/// All commits that an engine was given, in order.
#[derive(Clone, Default)]
pub struct History {
    /// The first element is commit 1.
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

    /// The present rows.
    pub fn rows(&self) -> &Rows {
        &self.rows
    }

    /// Notes an accepted commit.
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

    /// Notes that a crash took all commits after `upto`. The others are durable.
    pub fn cut(&mut self, upto: u64) {
        self.commits.truncate(upto as usize);
        self.rows = self.rows_at(upto);
        (self.flushed, self.synced) = (upto, upto);
    }

    /// Checks that the engine has exactly the rows after some commit from `at_least` on, and
    /// returns that commit.
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
