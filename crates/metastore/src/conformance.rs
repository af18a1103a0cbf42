//! Conformance suite for engines. Each engine's tests call [`run`] with two functions: one makes an
//! empty engine, the other disturbs an engine with contents in a way that no caller may notice
//! (closes and opens it, flushes it to disk, or does nothing).

use crate::engine::{
    Check, Commit, CommitOutcome, Engine, Key, MAX_KEY_BYTES, MAX_OPERATIONS, MAX_REQUEST_BYTES,
    Sequence, Versioned, Write, key_after,
};
use crate::tx::{Tx, TxError, transact};
use std::collections::BTreeMap;
use weir_types::{Error, ErrorKind};

/// Runs every case; panics at the first that fails.
pub fn run<E: Engine>(mut fresh: impl FnMut() -> E, mut unsettle: impl FnMut(E) -> E) {
    keys_come_in_byte_order(fresh());
    a_transaction_reads_its_own_writes(fresh());
    a_range_is_paged_without_loss_through_deletions(fresh(), &mut unsettle);
    a_change_of_what_was_read_is_a_conflict(fresh(), &mut unsettle);
    a_change_in_a_range_that_was_read_is_a_conflict(fresh(), &mut unsettle);
    nothing_of_a_conflicting_commit_is_applied(fresh());
    versions_and_sequences_grow(fresh(), &mut unsettle);
    limits_are_those_of_etcd(fresh());
    what_is_just_within_the_limits_is_kept_whole(fresh(), &mut unsettle);
    malformed_commits_are_refused(fresh());
    any_bytes_are_in_order_in_both_layers(fresh(), &mut unsettle);
    a_big_deletion_is_done_in_pages(fresh(), &mut unsettle);
    synced_reaches_what_was_asked(fresh());
    a_snapshot_stays_what_it_was(fresh(), &mut unsettle);
    for seed in 0..4 {
        random_operations_agree_with_a_map(fresh(), &mut unsettle, seed);
    }
}

type AnyResult<T> = Result<T, Error>;

fn write<E: Engine>(engine: &mut E, writes: &[(&[u8], Option<&[u8]>)]) -> Sequence {
    let operation = |tx: &mut Tx<'_>| -> AnyResult<()> {
        for (key, value) in writes {
            match value {
                Some(value) => tx.put(key, value)?,
                None => tx.delete(key)?,
            }
        }
        Ok(())
    };
    let ((), at) = transact(engine, operation).expect("commit");
    engine.flush().expect("flush");
    at
}

fn get<E: Engine>(engine: &E, key: &[u8]) -> Option<Versioned> {
    engine.get(key).expect("get")
}

fn keys_of(rows: &[(Key, Versioned)]) -> Vec<&[u8]> {
    rows.iter().map(|(key, _)| &**key).collect()
}

fn keys_come_in_byte_order<E: Engine>(mut engine: E) {
    let keys: [&[u8]; 6] = [b"b", b"a", b"a\0", b"\xff", b"ab", b"\0"];
    for key in keys {
        write(&mut engine, &[(key, Some(key))]);
    }
    let rows = engine.range(b"\0", b"\xff\xff", 100).expect("range");
    let sorted: [&[u8]; 6] = [b"\0", b"a", b"a\0", b"ab", b"b", b"\xff"];
    assert_eq!(keys_of(&rows), sorted);
    let rows = engine.range(b"a", b"b", 100).expect("range");
    assert_eq!(keys_of(&rows), [&b"a"[..], b"a\0", b"ab"], "the end is not part of a range");
    assert!(engine.range(b"b", b"a", 100).expect("range").is_empty());
    assert!(engine.range(b"a", b"a", 100).expect("range").is_empty());
    assert!(engine.range(b"a", b"b", 0).expect("range").is_empty());
}

fn a_transaction_reads_its_own_writes<E: Engine>(mut engine: E) {
    write(&mut engine, &[(b"a", Some(b"1")), (b"b", Some(b"2")), (b"d", Some(b"4"))]);
    let mut tx = Tx::new(&engine);
    let check = |done: Result<(), TxError>| done.expect("within the limits");
    check(tx.put(b"c", b"3"));
    check(tx.delete(b"a"));
    check(tx.put(b"b", b"22"));
    assert_eq!(tx.get(b"a"), Ok(None));
    assert_eq!(tx.get(b"c").expect("get").as_deref(), Some(&b"3"[..]));
    let rows = tx.range(b"a", b"z", 2).expect("range");
    let rows: Vec<(&[u8], &[u8])> = rows.iter().map(|(k, v)| (&**k, &**v)).collect();
    assert_eq!(rows, [(&b"b"[..], &b"22"[..]), (b"c", b"3")]);
    drop(tx);
    assert!(get(&engine, b"a").is_some(), "nothing changes before the commit");
}

fn a_range_is_paged_without_loss_through_deletions<E: Engine>(
    engine: E,
    unsettle: &mut impl FnMut(E) -> E,
) {
    let mut engine = engine;
    let key = |n: u32| format!("k{n:03}").into_bytes();
    for n in 0..60 {
        write(&mut engine, &[(&key(n), Some(b"v"))]);
    }
    engine = unsettle(engine);
    for n in (0..60).filter(|n| n % 3 != 0) {
        write(&mut engine, &[(&key(n), None)]);
    }
    let (mut found, mut start) = (Vec::new(), Key::from(&b"k"[..]));
    loop {
        let page = engine.range(&start, b"l", 7).expect("range");
        found.extend(page.iter().map(|(key, _)| key.to_vec()));
        match page.last() {
            Some((last, _)) if page.len() == 7 => start = key_after(last),
            _ => break,
        }
    }
    let expected: Vec<Vec<u8>> = (0..60).step_by(3).map(key).collect();
    assert_eq!(found, expected);
}

/// Commits `operation` after `meanwhile` has committed.
fn race<E: Engine>(
    engine: &mut E,
    operation: impl Fn(&mut Tx<'_>) -> Result<(), TxError>,
    meanwhile: &[(&[u8], Option<&[u8]>)],
) -> CommitOutcome {
    let mut tx = Tx::new(engine);
    operation(&mut tx).expect("operation");
    let commit = tx.into_commit().expect("within the limits");
    write(engine, meanwhile);
    engine.commit(commit).expect("commit")
}

fn a_change_of_what_was_read_is_a_conflict<E: Engine>(
    engine: E,
    unsettle: &mut impl FnMut(E) -> E,
) {
    let mut engine = engine;
    write(&mut engine, &[(b"here", Some(b"1")), (b"other", Some(b"1"))]);
    engine = unsettle(engine);
    let read = |key: &'static [u8]| {
        move |tx: &mut Tx<'_>| {
            tx.get(key)?;
            tx.put(b"result", b"x")
        }
    };
    let same = race(&mut engine, read(b"here"), &[(b"other", Some(b"2"))]);
    assert!(matches!(same, CommitOutcome::Committed(_)), "other keys do not matter");
    let changed = race(&mut engine, read(b"here"), &[(b"here", Some(b"1"))]);
    assert_eq!(changed, CommitOutcome::Conflict, "written, even with the same value");
    let gone = race(&mut engine, read(b"here"), &[(b"here", None)]);
    assert_eq!(gone, CommitOutcome::Conflict, "deleted");
    let made = race(&mut engine, read(b"new"), &[(b"new", Some(b"1"))]);
    assert_eq!(made, CommitOutcome::Conflict, "created");
    let blind = race(&mut engine, |tx| tx.put(b"here", b"y"), &[(b"here", Some(b"z"))]);
    assert!(matches!(blind, CommitOutcome::Committed(_)), "a write alone checks nothing");
}

fn a_change_in_a_range_that_was_read_is_a_conflict<E: Engine>(
    engine: E,
    unsettle: &mut impl FnMut(E) -> E,
) {
    let mut engine = engine;
    write(&mut engine, &[(b"d1", Some(b"1")), (b"d5", Some(b"5")), (b"d7", Some(b"7"))]);
    engine = unsettle(engine);
    let read = |limit: usize| {
        move |tx: &mut Tx<'_>| {
            tx.range(b"d", b"e", limit)?;
            tx.put(b"result", b"x")
        }
    };
    let outside = race(&mut engine, read(9), &[(b"e", Some(b"1")), (b"c", Some(b"1"))]);
    assert!(matches!(outside, CommitOutcome::Committed(_)));
    let beyond = race(&mut engine, read(2), &[(b"d6", Some(b"1"))]);
    assert!(matches!(beyond, CommitOutcome::Committed(_)), "beyond what was looked at");
    assert_eq!(race(&mut engine, read(2), &[(b"d3", Some(b"1"))]), CommitOutcome::Conflict);
    assert_eq!(race(&mut engine, read(9), &[(b"d9", Some(b"1"))]), CommitOutcome::Conflict);
    assert_eq!(race(&mut engine, read(9), &[(b"d9", None)]), CommitOutcome::Conflict);
    assert_eq!(race(&mut engine, read(9), &[(b"d1", Some(b"9"))]), CommitOutcome::Conflict);
}

fn nothing_of_a_conflicting_commit_is_applied<E: Engine>(mut engine: E) {
    let at = write(&mut engine, &[(b"a", Some(b"1"))]);
    let operation = |tx: &mut Tx<'_>| {
        tx.get(b"a")?;
        tx.put(b"b", b"x")?;
        tx.delete(b"a")
    };
    let outcome = race(&mut engine, operation, &[(b"a", Some(b"2"))]);
    assert_eq!(outcome, CommitOutcome::Conflict);
    assert_eq!(engine.sequence(), at.next());
    assert!(get(&engine, b"b").is_none());
    assert_eq!(&*get(&engine, b"a").expect("still there").value, b"2");
}

fn versions_and_sequences_grow<E: Engine>(engine: E, unsettle: &mut impl FnMut(E) -> E) {
    let mut engine = engine;
    assert_eq!(engine.sequence(), Sequence::ZERO);
    for n in 1..=5 {
        let at = write(&mut engine, &[(b"a", Some(b"v")), (b"b", Some(b"v"))]);
        assert_eq!(at, Sequence(n));
        assert_eq!(get(&engine, b"a").map(|v| v.version), Some(at));
    }
    engine = unsettle(engine);
    assert_eq!(engine.sequence(), Sequence(5));
    assert_eq!(get(&engine, b"b").map(|v| v.version), Some(Sequence(5)));
    let empty = engine.commit(Commit { read_at: Sequence(5), ..Commit::default() });
    assert_eq!(empty, Ok(CommitOutcome::Committed(Sequence(5))), "no writes, no commit");
    write(&mut engine, &[(b"a", None)]);
    engine = unsettle(engine);
    assert!(get(&engine, b"a").is_none());
    let again = write(&mut engine, &[(b"a", Some(b"v"))]);
    assert_eq!(again, Sequence(7));
    assert_eq!(get(&engine, b"a").map(|v| v.version), Some(again));
    let rows = engine.range(b"a", b"c", 9).expect("range");
    let versions: Vec<u64> = rows.iter().map(|(_, v)| v.version.0).collect();
    assert_eq!(versions, [7, 5]);
}

fn limits_are_those_of_etcd<E: Engine>(mut engine: E) {
    let key = |n: usize| format!("k{n:05}").into_bytes();
    let mut tx = Tx::new(&engine);
    for n in 0..MAX_OPERATIONS {
        tx.put(&key(n), b"v").expect("within the limit");
    }
    assert_eq!(tx.put(&key(999), b"v"), Err(TxError::TooManyOperations));
    tx.put(&key(0), b"w").expect("a key counts once");
    let commit = tx.into_commit().expect("within the limit");
    engine.commit(commit).expect("commit");

    let mut tx = Tx::new(&engine);
    for n in 0..=MAX_OPERATIONS {
        tx.get(&key(n)).expect("reading alone has no limit");
    }
    tx.put(b"one", b"v").expect("within the limit");
    assert_eq!(tx.into_commit(), Err(TxError::TooManyOperations), "129 keys to check");

    let mut tx = Tx::new(&engine);
    let large = vec![7; MAX_REQUEST_BYTES - 4096];
    tx.put(b"large", &large).expect("within the limit");
    tx.put(b"large", &large).expect("only the last write of a key counts");
    assert_eq!(tx.put(b"more", &[0; 8192]), Err(TxError::TooLarge));
    assert_eq!(tx.put(b"", b"v"), Err(TxError::TooLarge));
    assert_eq!(tx.put(&[1; MAX_KEY_BYTES + 1], b"v"), Err(TxError::TooLarge));
    tx.put(&[1; MAX_KEY_BYTES], b"v").expect("within the limit");
    let commit = tx.into_commit().expect("within the limits");
    engine.commit(commit).expect("commit");
    engine.flush().expect("flush");
    assert_eq!(get(&engine, b"large").map(|v| v.value.len()), Some(large.len()));
}

fn what_is_just_within_the_limits_is_kept_whole<E: Engine>(
    engine: E,
    unsettle: &mut impl FnMut(E) -> E,
) {
    let mut engine = engine;
    // The largest possible value fits; one more byte does not.
    let room = MAX_REQUEST_BYTES - Write { key: b"v"[..].into(), value: None }.request_bytes();
    let put = |bytes: usize| {
        let value = Some(vec![5; bytes].into());
        Commit { writes: vec![Write { key: b"v"[..].into(), value }], ..Commit::default() }
    };
    assert_eq!(engine.commit(put(room + 1)).expect_err("too big").kind, ErrorKind::TooBig);
    engine.commit(put(room)).expect("just fits");
    // The maximum number of keys, read and written, each of maximum length.
    let key = |n: usize| {
        let mut key = vec![b'k'; MAX_KEY_BYTES];
        key[MAX_KEY_BYTES - 4..].copy_from_slice(format!("{n:04}").as_bytes());
        key
    };
    let operation = |tx: &mut Tx<'_>| -> AnyResult<()> {
        for n in 0..MAX_OPERATIONS {
            tx.get(&key(n))?;
            tx.put(&key(n), &n.to_le_bytes())?;
        }
        assert_eq!(tx.writes_left(), 0);
        Ok(())
    };
    transact(&mut engine, operation).expect("just fits");
    engine.flush().expect("flush");
    for _ in 0..4 {
        engine = unsettle(engine);
        let rows = engine.range(b"k", b"l", usize::MAX).expect("range");
        assert_eq!(rows.len(), MAX_OPERATIONS);
        assert!(
            rows.iter()
                .enumerate()
                .all(|(n, (k, v))| **k == *key(n) && *v.value == n.to_le_bytes())
        );
        assert_eq!(get(&engine, b"v").map(|v| v.value.len()), Some(room));
    }
    // A range counts for itself and for each key found in it.
    let look = |engine: &E, limit: usize| {
        let mut tx = Tx::new(engine);
        assert_eq!(tx.range(b"k", b"l", limit).map(|rows| rows.len()), Ok(limit));
        tx.put(b"w", b"v").expect("within the limit");
        tx.into_commit()
    };
    assert_eq!(look(&engine, MAX_OPERATIONS), Err(TxError::TooManyOperations));
    let commit = look(&engine, MAX_OPERATIONS - 1);
    // 127 keys of 1 KiB fit.
    engine.commit(commit.expect("within the limits")).expect("commit");
}

fn any_bytes_are_in_order_in_both_layers<E: Engine>(engine: E, unsettle: &mut impl FnMut(E) -> E) {
    let mut engine = engine;
    let mut choose = Choices(99);
    let mut expected = std::collections::BTreeSet::new();
    for round in 0..8 {
        for _ in 0..20 {
            let key: Vec<u8> = (0..1 + choose.below(6))
                .map(|_| [0, 1, 0x7f, 0x80, 0xfe, 0xff][choose.below(6) as usize])
                .collect();
            write(&mut engine, &[(&key, Some(&key))]);
            expected.insert(key);
        }
        if round % 2 == 0 {
            engine = unsettle(engine);
        }
        let end = [0xff; MAX_KEY_BYTES];
        let rows = engine.range(&[0], &end, usize::MAX).expect("range");
        let found: Vec<&[u8]> = keys_of(&rows);
        let expected: Vec<&[u8]> = expected.iter().map(|key| &key[..]).collect();
        assert_eq!(found, expected, "round {round}");
        assert!(rows.iter().all(|(key, row)| **key == *row.value));
    }
}

/// The metadata server deletes in this way when a deletion is larger than a transaction.
fn a_big_deletion_is_done_in_pages<E: Engine>(engine: E, unsettle: &mut impl FnMut(E) -> E) {
    let mut engine = engine;
    for n in 0..300u32 {
        write(&mut engine, &[(format!("f{n:04}").as_bytes(), Some(b"v"))]);
    }
    write(&mut engine, &[(b"g", Some(b"stays"))]);
    let mut pages = 0;
    loop {
        let operation = |tx: &mut Tx<'_>| -> AnyResult<usize> {
            let rows = tx.range(b"f", b"g", MAX_OPERATIONS - 1)?;
            for (key, _) in &rows {
                tx.delete(key)?;
            }
            Ok(rows.len())
        };
        let (deleted, _) = transact(&mut engine, operation).expect("commit");
        engine.flush().expect("flush");
        engine = unsettle(engine);
        pages += 1;
        if deleted < MAX_OPERATIONS - 1 {
            break;
        }
    }
    assert_eq!(pages, 3);
    assert_eq!(keys_of(&engine.range(b"a", b"z", 9).expect("range")), [b"g"]);
}

fn malformed_commits_are_refused<E: Engine>(mut engine: E) {
    let put = |key: &[u8]| Write { key: key.into(), value: Some(b"v".as_slice().into()) };
    let refused = |engine: &mut E, commit: Commit| engine.commit(commit).expect_err("refused").kind;
    let twice = Commit { writes: vec![put(b"a"), put(b"a")], ..Commit::default() };
    assert_eq!(refused(&mut engine, twice), ErrorKind::InvalidArgument);
    let empty = Commit { writes: vec![put(b"")], ..Commit::default() };
    assert_eq!(refused(&mut engine, empty), ErrorKind::InvalidArgument);
    let many = (0..=MAX_OPERATIONS as u32).map(|n| put(&n.to_be_bytes())).collect();
    let many = Commit { writes: many, ..Commit::default() };
    assert_eq!(refused(&mut engine, many), ErrorKind::TooBig);
    let check = Check::Key { key: b"a".as_slice().into(), version: Sequence::ZERO };
    let checks = Commit { checks: vec![check; MAX_OPERATIONS + 1], ..Commit::default() };
    assert_eq!(refused(&mut engine, checks), ErrorKind::TooBig);
    assert_eq!(engine.sequence(), Sequence::ZERO, "and the engine goes on");
    write(&mut engine, &[(b"a", Some(b"v"))]);
}

fn a_snapshot_stays_what_it_was<E: Engine>(engine: E, unsettle: &mut impl FnMut(E) -> E) {
    let mut engine = engine;
    for n in 0..200u32 {
        write(&mut engine, &[(format!("s{n:03}").as_bytes(), Some(b"old"))]);
        if n == 150 {
            engine = unsettle(engine);
        }
    }
    let snapshot = engine.snapshot().expect("snapshot");
    assert_eq!(snapshot.sequence(), engine.sequence());
    let before = engine.range(b"s", b"t", usize::MAX).expect("range");
    for n in 0..200u32 {
        let value: Option<&[u8]> = (n % 3 > 0).then_some(b"new");
        let new = format!("s{n:03}+").into_bytes();
        write(&mut engine, &[(format!("s{n:03}").as_bytes(), value), (&new, Some(b"new"))]);
        engine.poll().expect("poll");
        if n % 50 == 0 {
            assert!(snapshot.range(b"s", b"t", usize::MAX).expect("range") == before);
        }
    }
    // The same in pages.
    let (mut found, mut start) = (Vec::new(), Key::from(&b"s"[..]));
    loop {
        let page = snapshot.range(&start, b"t", 7).expect("range");
        let Some((last, _)) = page.last() else { break };
        start = key_after(last);
        found.extend(page);
    }
    assert!(found == before);
    assert_ne!(snapshot.sequence(), engine.sequence());
}

fn synced_reaches_what_was_asked<E: Engine>(mut engine: E) {
    let at = write(&mut engine, &[(b"a", Some(b"v"))]);
    engine.request_sync(at);
    let mut tries = 0;
    while engine.synced() < at {
        engine.poll().expect("poll");
        weir_host::thread::sleep(std::time::Duration::from_millis(1));
        tries += 1;
        assert!(tries < 10_000, "never synced");
    }
    let at = write(&mut engine, &[(b"b", Some(b"v"))]);
    engine.sync().expect("sync");
    assert_eq!(engine.synced(), at);
}

/// xorshift64*: enough to choose operations, and the same everywhere.
struct Choices(u64);

impl Choices {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % n
    }
}

fn random_operations_agree_with_a_map<E: Engine>(
    engine: E,
    unsettle: &mut impl FnMut(E) -> E,
    seed: u64,
) {
    let mut engine = engine;
    let mut choose = Choices(seed + 1);
    let mut map: BTreeMap<Vec<u8>, (Vec<u8>, Sequence)> = BTreeMap::new();
    for step in 0..400u32 {
        let context = format!("seed {seed}, step {step}");
        let key = |n: u64| format!("k{n:02}").into_bytes();
        match choose.below(10) {
            0 => engine = unsettle(engine),
            1 => engine.poll().expect("poll"),
            2 | 3 => {
                let (a, b) = (choose.below(40), choose.below(40));
                let limit = choose.below(12) as usize;
                let (start, end) = (key(a.min(b)), key(a.max(b)));
                let rows = engine.range(&start, &end, limit).expect("range");
                let expected = map.range(start..end).take(limit);
                let same = rows.iter().zip(expected.clone()).all(|((k, row), (key, value))| {
                    **k == **key && *row.value == *value.0 && row.version == value.1
                });
                assert!(same && rows.len() == expected.count(), "{context}");
            }
            _ => {
                let mut tx = Tx::new(&engine);
                let mut changes = Vec::new();
                for _ in 0..1 + choose.below(5) {
                    let key = key(choose.below(40));
                    let value = (choose.below(3) > 0).then(|| step.to_be_bytes().to_vec());
                    let seen = tx.get(&key).expect("get").map(|v| v.to_vec());
                    let own = changes.iter().rev().find(|(k, _)| *k == key).map(|(_, v)| v);
                    let expected = own.cloned().unwrap_or_else(|| {
                        map.get(&key).map(|(value, _): &(Vec<u8>, _)| value.clone())
                    });
                    assert_eq!(seen, expected, "{context}");
                    match &value {
                        Some(value) => tx.put(&key, value).expect("put"),
                        None => tx.delete(&key).expect("delete"),
                    }
                    changes.push((key, value));
                }
                let commit = tx.into_commit().expect("within the limits");
                let outcome = engine.commit(commit).expect("commit");
                engine.flush().expect("flush");
                let CommitOutcome::Committed(at) = outcome else { panic!("{context}: conflict") };
                for (key, value) in changes {
                    match value {
                        Some(value) => map.insert(key, (value, at)),
                        None => map.remove(&key),
                    };
                }
            }
        }
    }
}
