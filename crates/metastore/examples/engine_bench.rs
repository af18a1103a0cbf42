//! How fast the embedded engine is, in one thread: `cargo run --release -p
//! weir-metastore --example engine_bench [directory]`.

#![expect(clippy::disallowed_methods, reason = "real time is measured")]

use std::path::Path;
use std::time::Instant;
use weir_metastore::{Embedded, EmbeddedConfig, Engine, transact};
use weir_types::{Error, Result};

const FILES: u64 = 200_000;
const READS: u64 = 1_000_000;
const VALUE: [u8; 120] = [7; 120];

fn main() -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let given = std::env::args_os().nth(1);
    let dir = given.as_ref().map_or(scratch.path(), |dir| Path::new(dir));
    let mut engine = Embedded::open(dir, EmbeddedConfig::default(), || {})?;

    report("commits (1 read, 2 puts), a flush each", FILES, || {
        for n in 0..FILES {
            create(&mut engine, n)?;
            engine.flush()?;
            engine.poll()?;
        }
        Ok(())
    })?;
    report("commits, a flush for 16", FILES, || {
        for n in FILES..2 * FILES {
            create(&mut engine, n)?;
            if n % 16 == 0 {
                engine.flush()?;
                engine.poll()?;
            }
        }
        Ok(())
    })?;
    report("gets while redb takes the last commits in", READS, || gets(&engine))?;
    report("close (everything into redb)", 1, || engine.close())?;

    let engine = Embedded::open(dir, EmbeddedConfig::default(), || {})?;
    report("gets from redb, first touch", READS, || gets(&engine))?;
    report("gets from redb", READS, || gets(&engine))?;
    report("ranges of 100 keys", READS / 100, || {
        for n in 0..READS / 100 {
            let start = key(b'd', scattered(n));
            assert!(!engine.range(&start, b"e", 100).map_err(failed)?.is_empty());
        }
        Ok(())
    })?;
    let mut engine = engine;
    report("commits, each synced", 500, || {
        for n in 0..500 {
            create(&mut engine, 3 * FILES + n)?;
            engine.sync()?;
        }
        Ok(())
    })?;
    engine.close()
}

fn report(what: &str, count: u64, run: impl FnOnce() -> Result<()>) -> Result<()> {
    let begin = Instant::now();
    run()?;
    let seconds = begin.elapsed().as_secs_f64();
    println!(
        "{what:<44} {:>10.0} /s  {:>8.2} us each",
        count as f64 / seconds,
        seconds * 1e6 / count as f64
    );
    Ok(())
}

fn key(kind: u8, n: u64) -> [u8; 9] {
    let mut key = [kind; 9];
    key[1..].copy_from_slice(&n.to_be_bytes());
    key
}

/// Numbers that are the same in every run and in no particular order.
fn scattered(n: u64) -> u64 {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (2 * FILES)
}

/// Writes the keys of the smallest create: the parent, the entry and the inode.
fn create(engine: &mut Embedded, n: u64) -> Result<()> {
    transact::<_, Error>(engine, |tx| {
        tx.get(&key(b'i', 0))?;
        tx.put(&key(b'd', n), &n.to_le_bytes())?;
        tx.put(&key(b'i', n), &VALUE)?;
        Ok(())
    })?;
    Ok(())
}

fn gets(engine: &Embedded) -> Result<()> {
    for n in 0..READS {
        assert!(engine.get(&key(b'i', scattered(n))).map_err(failed)?.is_some());
    }
    Ok(())
}

fn failed(e: weir_types::Error) -> Error {
    Error::new(weir_types::ErrorKind::Io, e.to_string())
}
