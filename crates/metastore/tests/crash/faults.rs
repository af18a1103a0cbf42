//! A failing disk: the engine stops, and keeps everything that it has reported as flushed or
//! durable.

use crate::history::History;
use crate::images::number_from;
use crate::room::{after_kill, after_power_cut, check, new_disk, open, work};
use rustix::io::Errno;
use std::cell::RefCell;
use weir_simhost::disk::{Operation, SimDisk};
use weir_types::{Error, ErrorKind};

/// One run in which one operation fails, or every operation from some point on.
fn run_into_a_fault(seed: u64) -> Result<Option<Error>, String> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let disk = new_disk(seed);
    let history = RefCell::new(History::default());
    work(rng.u64(..), &disk, &history, 60)?;
    let (operation, errno) = match rng.u8(0..7) {
        0 => (Operation::Sync, Errno::IO),
        1 => (Operation::Sync, Errno::NOSPC),
        2 => (Operation::SyncDirectory, Errno::IO),
        3 => (Operation::Write, Errno::NOSPC),
        4 => (Operation::Write, Errno::IO),
        5 => (Operation::SetLen, Errno::NOSPC),
        _ => (Operation::Create, Errno::NOSPC),
    };
    let after = rng.u64(0..120);
    if rng.bool() {
        disk.fail_next(operation, errno, after);
    } else {
        disk.fail_from(operation, errno, after);
    }
    let context =
        |what: String| format!("seed {seed}, {operation:?} {errno} after {after}: {what}");
    let error = work(rng.u64(..), &disk, &history, 400).map_err(context)?;
    disk.heal();
    let told = history.into_inner();
    for number in 0..3 {
        let image = after_power_cut(&disk, &mut rng);
        check(rng.u64(..), &image, &told, told.synced)
            .map_err(|what| context(format!("power cut {number}: {what}")))?;
    }
    // Without a restart of the machine the engine opens only if no sync failed. Then its promises
    // must hold.
    let image = after_kill(&disk);
    match weir_simhost::run(rng.u64(..), &image, || open().err()) {
        Some(refused) if image.files().iter().any(|(path, _)| path.contains("/poisoned.")) => {
            if !refused.message.contains("restart the machine") {
                return Err(context(format!("refused with: {refused}")));
            }
        }
        _ => {
            let last = check(rng.u64(..), &image, &told, told.flushed).map_err(context)?;
            let cut = after_power_cut(&image, &mut rng);
            check(rng.u64(..), &cut, &told, last)
                .map_err(|what| context(format!("opened again, then a power cut: {what}")))?;
        }
    }
    Ok(error)
}

#[test]
fn a_failing_disk_stops_the_engine_and_takes_nothing_that_was_promised() {
    let (first, count) = match number_from("WEIR_SEED") {
        Some(seed) => (seed, 1),
        None => (1, number_from("WEIR_CRASH_IMAGES").map_or(300, |images| images / 100)),
    };
    let mut stopped = 0;
    for seed in first..first + count {
        stopped += u64::from(run_into_a_fault(seed).expect("rerun with WEIR_SEED").is_some());
    }
    println!("{stopped} of {count} runs from seed {first} met the fault");
    assert!(count == 1 || stopped > count / 2, "{stopped}");
}

/// A disk with an open engine that has some commits. From here on `operation` fails.
fn broken(operation: Operation, errno: Errno, then: impl Fn(&mut weir_metastore::Embedded)) {
    use weir_metastore::Engine as _;
    let disk: SimDisk = new_disk(7);
    weir_simhost::run(7, &disk, || {
        let mut engine = open().expect("open");
        let put = |engine: &mut weir_metastore::Embedded| {
            weir_metastore::transact::<_, Error>(engine, |tx| Ok(tx.put(b"a", b"v")?))
        };
        put(&mut engine).expect("commit");
        engine.sync().expect("sync");
        put(&mut engine).expect("commit");
        disk.fail_from(operation, errno, 0);
        then(&mut engine);
        disk.heal();
        assert!(engine.flush().is_err(), "flush");
        assert!(engine.sync().is_err(), "sync");
        assert!(engine.poll().is_err(), "poll");
        let again = put(&mut engine).expect_err("commit");
        assert!(again.message.contains("failed earlier, restart the server"), "{again}");
        assert!(engine.get(b"a").is_ok(), "what is in memory can be read");
    });
}

#[test]
fn after_a_failed_append_or_sync_nothing_more_is_taken_though_the_disk_works_again() {
    use weir_metastore::Engine as _;
    broken(Operation::Write, Errno::NOSPC, |engine| {
        assert_eq!(engine.flush().expect_err("flush").kind, ErrorKind::NoSpace);
    });
    broken(Operation::Sync, Errno::IO, |engine| {
        assert_eq!(engine.sync().expect_err("sync").kind, ErrorKind::Io);
    });
}
