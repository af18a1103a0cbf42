//! Fills the directory of a member with a snapshot of another member.
//!
//! Invariants
//! - The old contents of the directory stay until all of the snapshot is on disk.
//! - An interruption leaves one of three states: the old directory; a directory without `format`,
//!   which no engine opens and which is filled again; or the new directory.

use crate::directory::Home;
use crate::engine::{Key, MAX_KEY_BYTES, MAX_REQUEST_BYTES, Sequence, Value};
use crate::log::{LogWriter, segment_first};
use crate::overlay::Overlay;
use crate::tree::Tree;
use std::path::Path;
use weir_host::fs::Lock;
use weir_host::plant::{Bug, planted};
use weir_types::{Error, ErrorKind, Result};

/// Rows are written in pieces of this many bytes, which bounds the memory.
const PIECE_BYTES: usize = 16 << 20;
/// Bytes of redb's cache while the snapshot is written.
const CACHE_BYTES: usize = 32 << 20;

/// A snapshot that is being written.
pub struct Reception {
    tree: Tree,
    sequence: Sequence,
    rows: Overlay,
    bytes: usize,
    last: Option<Key>,
    home: Home,
    _lock: Lock,
}

impl Reception {
    /// Begins to receive a snapshot as of this commit. Rows of an earlier attempt are removed.
    ///
    /// # Errors
    /// `Busy` (in use by another process), `Exists` (there are files that are no engine's), those of
    /// the disk.
    pub fn begin(dir: &Path, sequence: Sequence) -> Result<Self> {
        let home = Home::open_or_make(dir)?;
        if let Some(name) = home.names()?.into_iter().find(|name| !is_ours(name)) {
            let what = format!("{} is not of a metadata directory", home.display(&name));
            return Err(Error::new(ErrorKind::Exists, what));
        }
        let lock = home.lock()?;
        home.check_poison()?;
        home.fill_reserve()?;
        let tree = Tree::create_beside(&home, CACHE_BYTES)?;
        let rows = Overlay::default();
        Ok(Self { tree, sequence, rows, bytes: 0, last: None, home, _lock: lock })
    }

    /// Takes the next row. Rows come in ascending order of their keys.
    ///
    /// # Errors
    /// `Corrupt` for what no engine holds, those of the disk.
    pub fn row(&mut self, key: Key, value: Vec<u8>) -> Result<()> {
        let is_row = (1..=MAX_KEY_BYTES).contains(&key.len()) && value.len() <= MAX_REQUEST_BYTES;
        if !is_row || self.last.as_ref().is_some_and(|last| *last >= key) {
            return Err(Error::new(ErrorKind::Corrupt, "rows of a snapshot are out of order"));
        }
        self.bytes += key.len() + value.len();
        self.last = Some(key.clone());
        // Every later commit is newer, and nothing else is asked of a version.
        self.rows.write(key, Some(Value::from(value)), self.sequence);
        if self.bytes >= PIECE_BYTES { self.write(Sequence::ZERO) } else { Ok(()) }
    }

    fn write(&mut self, upto: Sequence) -> Result<()> {
        self.tree.apply(&self.rows, upto)?;
        self.rows = Overlay::default();
        self.bytes = 0;
        Ok(())
    }

    /// Replaces the contents of the directory by the complete snapshot. The directory follows a
    /// journal from then on.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn finish(mut self) -> Result<()> {
        if planted(Bug::SnapshotSkips) {
            self.sequence = self.sequence.next();
        }
        self.write(self.sequence)?;
        let Self { tree, sequence, home, _lock, .. } = self;
        if home.exists("format")? {
            home.remove("format")?;
            home.sync("meta-received-begin")?;
        }
        for segment in home.segments()? {
            home.remove(&segment.name)?;
        }
        tree.take_place(&home)?;
        drop(LogWriter::create(&home, sequence.next())?);
        home.mark_replicated()?;
        home.write_format()?;
        home.sync("meta-received")
    }
}

/// Whether an engine uses this file name.
fn is_ours(name: &str) -> bool {
    // A mount point has `lost+found`.
    matches!(
        name,
        "." | ".." | "lost+found" | "alive" | "audit" | "lock" | "reserve" | "replicated"
    ) || ["format", "tree.redb", "poisoned."].iter().any(|ours| name.starts_with(ours))
        || segment_first(name.trim_end_matches(".new")).is_some()
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests look from outside")]
mod tests {
    use super::*;
    use crate::embedded::{Embedded, EmbeddedConfig};
    use crate::engine::Engine;
    use crate::tx::transact;

    fn open(dir: &Path) -> Embedded {
        Embedded::open_member(dir, EmbeddedConfig::default(), || {}).unwrap()
    }

    fn rows(engine: &Embedded) -> Vec<(Key, Vec<u8>)> {
        let all = engine.range(&[0], &[0xff; 9], usize::MAX).unwrap();
        all.into_iter().map(|(key, row)| (key, row.value.to_vec())).collect()
    }

    fn filled(dir: &Path, rows: u32) -> Embedded {
        let mut engine = Embedded::open(dir, EmbeddedConfig::default(), || {}).unwrap();
        for n in 0..rows {
            let put = |tx: &mut crate::Tx<'_>| tx.put(&n.to_be_bytes(), &vec![n as u8; 100_000]);
            transact(&mut engine, |tx| Ok::<_, Error>(put(tx)?)).unwrap();
        }
        engine.flush().unwrap();
        engine
    }

    fn receive(from: &Embedded, to: &Path) -> Result<()> {
        let snapshot = from.snapshot()?;
        let mut reception = Reception::begin(to, snapshot.sequence())?;
        for (key, value) in rows(from) {
            reception.row(key, value)?;
        }
        reception.finish()
    }

    #[test]
    fn a_snapshot_takes_the_place_of_what_there_was_and_has_its_sequence() {
        let [from, to] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let leader = filled(from.path(), 400);
        // A member that was away and still has rows that the leader has removed.
        let mut late = filled(to.path(), 3);
        transact(&mut late, |tx| Ok::<_, Error>(tx.put(b"\xfe", b"old")?)).unwrap();
        late.close().unwrap();
        receive(&leader, to.path()).unwrap();
        let mut member = open(to.path());
        assert!(member.is_replicated().unwrap());
        assert_eq!((member.sequence(), rows(&member)), (leader.sequence(), rows(&leader)));
        assert_eq!(member.get(&[0; 4]).unwrap().unwrap().version, leader.sequence());
        // The member continues from there.
        member.sync().unwrap();
        drop(member);
        assert_eq!(open(to.path()).sequence(), leader.sequence());
    }

    #[test]
    fn a_snapshot_that_is_not_whole_changes_nothing() {
        let [from, to] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let leader = filled(from.path(), 400);
        filled(to.path(), 3).close().unwrap();
        let mut reception = Reception::begin(to.path(), leader.sequence()).unwrap();
        for (key, value) in rows(&leader).into_iter().take(300) {
            reception.row(key, value).unwrap();
        }
        let (first, value) = rows(&leader).remove(0);
        assert_eq!(reception.row(first, value).unwrap_err().kind, ErrorKind::Corrupt);
        assert_eq!(
            Embedded::open_member(to.path(), EmbeddedConfig::default(), || {})
                .map(drop)
                .unwrap_err()
                .kind,
            ErrorKind::Busy,
            "nobody opens it meanwhile"
        );
        drop(reception);
        assert_eq!(open(to.path()).sequence(), Sequence(3));
        receive(&leader, to.path()).unwrap();
        assert_eq!(rows(&open(to.path())), rows(&leader));
    }

    #[test]
    fn an_interrupted_exchange_leaves_a_directory_that_is_filled_anew() {
        let [from, to] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let leader = filled(from.path(), 20);
        filled(to.path(), 3).close().unwrap();
        std::fs::remove_file(to.path().join("format")).unwrap();
        assert!(Embedded::open_member(to.path(), EmbeddedConfig::default(), || {}).is_err());
        receive(&leader, to.path()).unwrap();
        assert_eq!(rows(&open(to.path())), rows(&leader));
    }

    #[test]
    fn a_directory_with_other_things_is_left_alone() {
        let [from, to] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let leader = filled(from.path(), 2);
        std::fs::write(to.path().join("thesis.tex"), "").unwrap();
        assert_eq!(receive(&leader, to.path()).unwrap_err().kind, ErrorKind::Exists);
        assert_eq!(std::fs::read_dir(to.path()).unwrap().count(), 1);
    }
}
