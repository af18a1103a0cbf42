//! Flipped bits and lost files are noticed or have no effect. They are never served.

use crate::history::{History, Unlike};
use crate::images::number_from;
use crate::room::{DIR, after_kill, after_power_cut, config, new_disk, open, work};
use std::cell::RefCell;
use std::path::Path;
use weir_metastore::{Embedded, EmbeddedConfig, Engine as _};
use weir_simhost::disk::SimDisk;
use weir_types::{Error, ErrorKind};

const META: &str = "cluster/node/meta";

/// Opens an image. `Ok(None)`: everything is as before. An error: the engine noticed damage.
fn examine(seed: u64, disk: &SimDisk, history: &History) -> Result<Option<Error>, String> {
    weir_simhost::run(seed, disk, || {
        let engine = match open() {
            Ok(engine) => engine,
            Err(error) => return Ok(Some(error)),
        };
        match history.check(&engine, history.last()) {
            Ok(_) => Ok(None),
            Err(Unlike::Fails(error)) => Ok(Some(error)),
            Err(Unlike::Lies(what)) => Err(what),
        }
    })
}

fn named(error: &Error, path: &str) -> Result<(), String> {
    let file = path.rsplit('/').next().unwrap_or(path);
    let names_it = error.message.contains(file) || error.message.contains("log segment");
    if error.kind == ErrorKind::Corrupt && names_it && error.message.contains("weir meta import") {
        return Ok(());
    }
    Err(format!("damage of {path} is reported as: {error:?}"))
}

/// A disk with an engine that was stopped or killed after a flush, and its history.
fn settled(seed: u64, close: bool) -> (SimDisk, History) {
    let disk = new_disk(seed);
    let history = RefCell::new(History::default());
    // Long enough for a tree with several levels, and several segments.
    work(seed, &disk, &history, 400).expect("all is well");
    weir_simhost::run(seed, &disk, || {
        let mut engine = open().expect("open");
        history.borrow_mut().cut(engine.sequence().0);
        for n in 0..30u32 {
            let key = format!("t{n:02}").into_bytes();
            weir_metastore::transact::<_, Error>(&mut engine, |tx| Ok(tx.put(&key, &[7; 60])?))
                .expect("commit");
            history.borrow_mut().committed(vec![(key, Some(vec![7; 60]))]);
            engine.flush().expect("flush");
        }
        if close {
            engine.close().expect("close");
        }
    });
    (disk, history.into_inner())
}

fn flips(seed: u64) -> Result<(u64, u64), String> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let (disk, history) = settled(seed, rng.bool());
    let files: Vec<_> =
        disk.files().into_iter().filter(|(p, n)| p.starts_with(META) && *n > 0).collect();
    let (mut noticed, mut harmless) = (0, 0);
    for _ in 0..60 {
        let image = after_kill(&disk);
        let (path, bytes) = rng.choice(&files).expect("there are files").clone();
        // Half of the bits are at the beginning of the file: headers and roots.
        let byte = if rng.bool() { rng.u64(0..bytes.min(9000)) } else { rng.u64(0..bytes) };
        let context = |what| format!("seed {seed}, bit of {path} at {byte}: {what}");
        image.flip_bit(&path, byte, rng.u32(0..8)).expect("there is a file");
        match examine(rng.u64(..), &image, &history).map_err(context)? {
            None => harmless += 1,
            Some(error) => {
                named(&error, &path).map_err(context)?;
                noticed += 1;
            }
        }
    }
    Ok((noticed, harmless))
}

#[test]
fn a_flipped_bit_is_noticed_or_changes_nothing() {
    let (first, count) = match number_from("WEIR_SEED") {
        Some(seed) => (seed, 1),
        None => (1, 40),
    };
    let (mut noticed, mut harmless) = (0, 0);
    for seed in first..first + count {
        let (n, h) = flips(seed).expect("rerun with WEIR_SEED");
        (noticed, harmless) = (noticed + n, harmless + h);
    }
    println!("{noticed} flipped bits were noticed, {harmless} changed nothing");
    assert!(noticed > count * 10, "{noticed}");
}

#[test]
fn a_bit_that_flips_while_the_engine_runs_stops_it() {
    let (mut noticed, seeds) = (0, 60);
    for seed in 1..=seeds {
        let (disk, history) = settled(seed, true);
        let mut rng = fastrand::Rng::with_seed(seed);
        weir_simhost::run(seed, &disk, || {
            // Without a cache: in a debug build redb reads everything when it opens.
            let config = EmbeddedConfig { cache_bytes: 0, ..config() };
            let mut engine = Embedded::open(Path::new(DIR), config, || {}).expect("open");
            let path = format!("{META}/tree.redb");
            let tree = disk.read_file(&path).expect("there is a tree");
            let pages = tree.chunks(4096).enumerate().skip(3);
            let used: Vec<_> = pages.filter(|(_, page)| page.iter().any(|&b| b != 0)).collect();
            for _ in 0..30 {
                let (page, _) = rng.choice(&used).expect("it is not empty");
                let byte = *page as u64 * 4096 + rng.u64(0..4096);
                disk.flip_bit(&path, byte, rng.u32(0..8)).expect("there is a tree");
            }
            match history.check(&engine, history.last()) {
                Ok(_) => {}
                Err(Unlike::Lies(what)) => panic!("seed {seed}: {what}"),
                Err(Unlike::Fails(error)) => {
                    named(&error, &path).expect("the error tells");
                    assert!(error.message.contains("damaged at byte"), "{error}");
                    assert!(engine.poll().is_err(), "the server is told to stop");
                    noticed += 1;
                }
            }
        });
    }
    assert!(noticed > seeds / 2, "{noticed}");
}

#[test]
fn a_file_that_is_gone_or_cut_is_missed() {
    for seed in 1..=30 {
        let (disk, history) = settled(seed, seed % 2 == 0);
        for (path, bytes) in disk.files() {
            let irrelevant = ["/lock", "/reserve", ".new"].iter().any(|end| path.ends_with(end));
            if !path.starts_with(META) || irrelevant {
                continue;
            }
            let image = after_kill(&disk);
            image.remove_file(&path).expect("it was there");
            let error = examine(seed, &image, &history).expect("no wrong answer");
            match error {
                Some(error) => named(&error, &path).expect("the error tells"),
                // redb holds the records of this segment already.
                None => assert!(path.contains("/log."), "seed {seed}: nobody misses {path}"),
            }
            let image = after_kill(&disk);
            image.truncate_file(&path, bytes / 2).expect("it was there");
            if let Err(what) = examine(seed, &image, &history) {
                // Truncated in the middle of a record, with nothing durable lost, as after a kill.
                // If the record was durable, that is damage.
                assert!(path.contains("/log.") && bytes / 2 > 72, "seed {seed}: {path}: {what}");
            }
        }
    }
}

#[test]
fn after_a_power_cut_rot_in_what_was_long_durable_is_noticed() {
    let mut noticed = 0;
    for seed in 1..=200 {
        let disk = new_disk(seed);
        let history = RefCell::new(History::default());
        work(seed, &disk, &history, 100).expect("all is well");
        // One more durable record, and a sync that makes its mark durable.
        let (path, end) = weir_simhost::run(seed, &disk, || {
            let mut engine = open().expect("open");
            let log = disk.files().into_iter().find(|(path, _)| path.contains("/log."));
            for key in [b"a", b"b"] {
                weir_metastore::transact::<_, Error>(&mut engine, |tx| Ok(tx.put(key, &[7; 90])?))
                    .expect("commit");
                engine.sync().expect("sync");
            }
            log.expect("there is a log")
        });
        let mut rng = fastrand::Rng::with_seed(seed);
        let image = after_power_cut(&disk, &mut rng);
        // The bit is in the first of the two records.
        if !image.flip_bit(&path, end + rng.u64(0..140), 3).unwrap_or(false) {
            continue;
        }
        let error = weir_simhost::run(seed, &image, || open().err());
        named(&error.expect("an error"), &path).expect("the error tells");
        noticed += 1;
    }
    assert!(noticed > 100, "{noticed}");
}
