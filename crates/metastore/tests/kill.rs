//! A process that is killed with SIGKILL at any moment loses nothing that it
//! acknowledged. The child is this test binary, told so by its environment.

#![expect(clippy::disallowed_methods, reason = "tests look from outside")]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use weir_metastore::{Embedded, EmbeddedConfig, Engine, IdAllocator, transact};
use weir_types::Error;

const CHILD_DIR: &str = "WEIR_METASTORE_KILL_TEST_DIR";

fn open(dir: &Path) -> Embedded {
    // Syncs, rotations and group commits happen all the time.
    let config = EmbeddedConfig {
        sync_delay_ms: 1,
        apply_delay_ms: 5,
        generation_bytes: 64 << 10,
        ..EmbeddedConfig::default()
    };
    Embedded::open(dir, config, || {}).expect("open")
}

/// Commits until it is killed. Each transaction writes key n, the counter and an id; a line with n
/// and the id follows when it is acknowledged.
fn child(dir: &Path) {
    let mut engine = open(dir);
    let mut ids = IdAllocator::open(&mut engine, b"ids", 1, 64).expect("ids");
    let mut out = std::io::stdout().lock();
    loop {
        ids.upkeep(&mut engine).expect("upkeep");
        engine.poll().expect("poll");
        let Some(id) = ids.take() else {
            engine.flush().expect("flush");
            continue;
        };
        let (n, _) = transact::<_, Error>(&mut engine, |tx| {
            let n = tx
                .get(b"count")?
                .map_or(0, |v| u32::from_le_bytes((*v).try_into().expect("4 bytes")))
                + 1;
            tx.put(b"count", &n.to_le_bytes())?;
            tx.put(format!("key{n:08}").as_bytes(), &id.to_le_bytes())?;
            Ok(n)
        })
        .expect("commit");
        engine.flush().expect("flush");
        writeln!(out, "acknowledged {n} {id}").expect("parent reads");
    }
}

#[test]
fn what_was_acknowledged_survives_sigkill_and_no_id_comes_twice() {
    if let Some(dir) = std::env::var_os(CHILD_DIR) {
        return child(Path::new(&dir));
    }
    let dir = tempfile::tempdir().expect("directory");
    let mut seen = std::collections::BTreeSet::new();
    for round in 0..8u64 {
        let mut process = Command::new(std::env::current_exe().expect("own path"))
            .args(["--nocapture", "--exact"])
            .arg("what_was_acknowledged_survives_sigkill_and_no_id_comes_twice")
            .env(CHILD_DIR, dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .expect("child");
        let stdout = process.stdout.take().expect("piped");
        let reader = std::thread::spawn(move || {
            let lines = BufReader::new(stdout).lines().map_while(Result::ok);
            let numbers = lines.filter_map(|line| {
                // The harness may print on the same line.
                let rest = line.split("acknowledged ").nth(1)?;
                let (n, id) = rest.split_once(' ')?;
                Some((n.parse::<u32>().ok()?, id.parse::<u64>().ok()?))
            });
            numbers.collect::<Vec<_>>()
        });
        std::thread::sleep(Duration::from_millis(150 + 37 * round));
        process.kill().expect("kill");
        process.wait().expect("wait");
        let mut acknowledged = reader.join().expect("reader");
        // The kill may have cut the last line short.
        acknowledged.pop();
        let Some((last, _)) = acknowledged.last() else { continue };
        assert!(acknowledged.iter().all(|(_, id)| seen.insert(*id)), "an id came twice");

        let engine = open(dir.path());
        let rows = engine.range(b"key", b"kez", usize::MAX).expect("range");
        assert!(rows.len() as u32 >= *last, "{} of {last} survived", rows.len());
        let ids: Vec<u64> = rows
            .iter()
            .map(|(_, row)| u64::from_le_bytes((*row.value).try_into().expect("8 bytes")))
            .collect();
        for (n, id) in &acknowledged {
            assert_eq!(ids[*n as usize - 1], *id, "operation {n} of round {round}");
        }
        let count = engine.get(b"count").expect("get").expect("there");
        assert_eq!(*count.value, (rows.len() as u32).to_le_bytes(), "a commit is whole or absent");
    }
    assert!(seen.len() > 100, "the children did next to nothing");
}
