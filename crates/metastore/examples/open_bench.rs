//! How long opening takes: `cargo run --release -p weir-metastore --example
//! open_bench [keys]`, after a clean stop and after a kill.

#![expect(clippy::disallowed_methods, reason = "real time is measured")]

use std::time::Instant;
use weir_metastore::{Embedded, EmbeddedConfig, Engine, transact};
use weir_types::{Error, Result};

/// About the size of an inode.
const VALUE: [u8; 120] = [7; 120];

fn main() -> Result<()> {
    let keys: u64 = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(1_000_000);
    let scratch = tempfile::tempdir()?;
    let open = || Embedded::open(scratch.path(), EmbeddedConfig::default(), || {});
    let mut engine = open()?;
    for n in 0..keys {
        put(&mut engine, n)?;
    }
    engine.close()?;
    let size = std::fs::metadata(scratch.path().join("tree.redb"))?.len();
    println!("{keys} keys, tree of {} MiB", size >> 20);

    let begin = Instant::now();
    let mut engine = open()?;
    println!("open after a clean stop   {:>8.1} ms", begin.elapsed().as_secs_f64() * 1e3);
    for n in 0..50_000 {
        put(&mut engine, keys + n)?;
    }
    engine.flush()?;
    drop(engine);
    let begin = Instant::now();
    let engine = open()?;
    println!("open, 50,000 to replay    {:>8.1} ms", begin.elapsed().as_secs_f64() * 1e3);
    let begin = Instant::now();
    let rows = engine
        .range(b"\0", b"\xff", usize::MAX)
        .map_err(|e| Error::new(weir_types::ErrorKind::Io, e.to_string()))?;
    let seconds = begin.elapsed().as_secs_f64();
    println!("read all {} rows    {:>8.1} ms", rows.len(), seconds * 1e3);
    engine.close()
}

fn put(engine: &mut Embedded, n: u64) -> Result<()> {
    let key = [&b"i"[..], &n.to_be_bytes()].concat();
    transact::<_, Error>(engine, |tx| Ok(tx.put(&key, &VALUE)?))?;
    if n.is_multiple_of(16) {
        engine.flush()?;
        engine.poll()?;
    }
    Ok(())
}
