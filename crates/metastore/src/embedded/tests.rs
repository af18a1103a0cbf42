//! States left behind by a killed process, a power cut, and disk rot.

use super::*;
use crate::tx::transact;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use tempfile::TempDir;
use weir_types::ErrorKind;

/// Syncs and applies only when a test asks.
fn idle() -> EmbeddedConfig {
    EmbeddedConfig {
        sync_delay_ms: 3_600_000,
        apply_delay_ms: 3_600_000,
        cache_bytes: 4 << 20,
        ..EmbeddedConfig::default()
    }
}

fn try_open(dir: &Path) -> Result<Embedded> {
    Embedded::open(dir, idle(), || {})
}

fn open(dir: &Path) -> Embedded {
    try_open(dir).unwrap()
}

/// Writes `key{n}` for each number, one commit each, without a flush.
fn put(engine: &mut Embedded, numbers: std::ops::RangeInclusive<u32>) {
    for n in numbers {
        transact::<_, Error>(engine, |tx| {
            Ok(tx.put(format!("key{n:05}").as_bytes(), &n.to_be_bytes())?)
        })
        .unwrap();
    }
}

/// Number of keys of [`put`] that exist, counted from the first.
fn count(engine: &Embedded) -> u32 {
    let rows = engine.range(b"key", b"kez", 1_000_000).unwrap();
    for (n, (key, row)) in (1u32..).zip(&rows) {
        assert_eq!(**key, *format!("key{n:05}").as_bytes(), "a gap in what survived");
        assert_eq!(*row.value, n.to_be_bytes());
    }
    rows.len() as u32
}

/// A copy of the files as a kill would leave them; the engine goes on.
fn files_after_kill(dir: &Path) -> TempDir {
    let copy = TempDir::new().unwrap();
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    copy
}

fn log_files(dir: &Path) -> Vec<PathBuf> {
    let segments = Home::open_or_make(dir).unwrap().segments().unwrap();
    segments.into_iter().map(|s| dir.join(s.name)).collect()
}

fn flip(path: &Path, offset: u64) {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], offset).unwrap();
}

/// Makes the last segment look as if an earlier boot had written it.
fn as_before_a_power_cut(path: &Path) {
    let bytes = std::fs::read(path).unwrap();
    let header = crate::record::SegmentHeader::decode(&bytes).unwrap();
    let earlier = crate::record::SegmentHeader { boot: [9; 16], ..header };
    OpenOptions::new().write(true).open(path).unwrap().write_all_at(&earlier.encode(), 0).unwrap();
}

/// A file of `/dev`.
fn device(name: &str) -> weir_host::fs::File {
    let dev = weir_host::fs::Directory::open(Path::new("/dev")).unwrap();
    dev.open_file(name, weir_host::fs::OpenHow::WRITE).unwrap()
}

fn apply_all(engine: &mut Embedded) {
    engine.flush().unwrap();
    engine.wait_for_applier().unwrap();
    engine.hand_over().unwrap();
    engine.wait_for_applier().unwrap();
}

#[test]
fn conforms() {
    let mut dirs = Vec::new();
    let current = std::cell::RefCell::new(PathBuf::new());
    let open = || {
        let quick = EmbeddedConfig { sync_delay_ms: 1, apply_delay_ms: 1, ..idle() };
        Embedded::open(&current.borrow(), quick, || {}).unwrap()
    };
    let mut turn = 0;
    crate::conformance::run(
        || {
            let dir = TempDir::new().unwrap();
            current.replace(dir.path().to_owned());
            dirs.push(dir);
            open()
        },
        |mut engine| {
            turn += 1;
            match turn % 4 {
                0 => apply_all(&mut engine),
                1 => engine.poll().unwrap(),
                2 => {
                    engine.close().unwrap();
                    return open();
                }
                _ => {
                    drop(engine);
                    return open();
                }
            }
            engine
        },
    );
}

#[test]
fn what_was_flushed_survives_a_kill_and_what_was_not_is_gone() {
    let dir = TempDir::new().unwrap();
    let mut engine = open(dir.path());
    put(&mut engine, 1..=50);
    apply_all(&mut engine);
    put(&mut engine, 51..=80);
    engine.flush().unwrap();
    put(&mut engine, 81..=90);
    let copy = files_after_kill(dir.path());
    let engine = open(copy.path());
    assert_eq!(count(&engine), 80);
    assert_eq!(engine.sequence(), Sequence(80));
    // And again after the replay itself is killed.
    let copy = files_after_kill(copy.path());
    assert_eq!(count(&open(copy.path())), 80);
}

#[test]
fn a_generation_that_redb_is_taking_in_survives_a_kill() {
    let dir = TempDir::new().unwrap();
    let mut engine = open(dir.path());
    put(&mut engine, 1..=20);
    engine.flush().unwrap();
    // As `hand_over` does, but the applier never gets the job.
    let _retired = engine.log.rotate(Sequence(21)).unwrap();
    engine.committing = Some(Arc::new(std::mem::take(&mut engine.active)));
    put(&mut engine, 21..=30);
    engine.flush().unwrap();
    assert_eq!(count(&engine), 30);
    let copy = files_after_kill(dir.path());
    assert_eq!(log_files(copy.path()).len(), 2);
    assert_eq!(count(&open(copy.path())), 30);
}

#[test]
fn a_torn_last_record_is_cut_wherever_it_is_torn() {
    let dir = TempDir::new().unwrap();
    let mut engine = open(dir.path());
    put(&mut engine, 1..=9);
    engine.flush().unwrap();
    let before = engine.log.segment_bytes();
    put(&mut engine, 10..=10);
    engine.flush().unwrap();
    let after = engine.log.segment_bytes();
    for len in before..after {
        let copy = files_after_kill(dir.path());
        let log = &log_files(copy.path())[0];
        OpenOptions::new().write(true).open(log).unwrap().set_len(len).unwrap();
        let mut engine = open(copy.path());
        assert_eq!(count(&engine), 9, "cut to {len} bytes");
        put(&mut engine, 10..=12);
        engine.close().unwrap();
        assert_eq!(count(&open(copy.path())), 12);
    }
}

#[test]
fn damage_before_the_end_is_an_error_that_names_file_and_offset() {
    let dir = TempDir::new().unwrap();
    let mut engine = open(dir.path());
    put(&mut engine, 1..=5);
    engine.flush().unwrap();
    let sixth = engine.log.segment_bytes();
    put(&mut engine, 6..=10);
    engine.flush().unwrap();
    let copy = files_after_kill(dir.path());
    let log = &log_files(copy.path())[0];
    flip(log, sixth + 40);
    let error = try_open(copy.path()).err().unwrap();
    assert_eq!(error.kind, ErrorKind::Corrupt);
    let place = format!("{}: damaged at byte {sixth}", log.display());
    assert!(error.message.starts_with(&place), "{error}");
    // Opening has not made the damage worse.
    flip(log, sixth + 40);
    assert_eq!(count(&open(copy.path())), 10);
}

#[test]
fn a_damaged_segment_header_or_a_missing_segment_is_an_error() {
    let dir = TempDir::new().unwrap();
    let mut engine = open(dir.path());
    put(&mut engine, 1..=5);
    engine.flush().unwrap();
    let copy = files_after_kill(dir.path());
    flip(&log_files(copy.path())[0], 20);
    assert_eq!(try_open(copy.path()).err().unwrap().kind, ErrorKind::Corrupt);
    std::fs::remove_file(&log_files(copy.path())[0]).unwrap();
    let error = try_open(copy.path()).err().unwrap();
    assert!(error.message.contains("begins with operation 1 is missing"), "{error}");
}

#[test]
fn after_a_power_cut_a_hole_in_the_unsynced_part_ends_the_log() {
    let dir = TempDir::new().unwrap();
    let mut engine = open(dir.path());
    put(&mut engine, 1..=5);
    engine.sync().unwrap();
    let sixth = engine.log.segment_bytes();
    put(&mut engine, 6..=10);
    engine.flush().unwrap();
    let copy = files_after_kill(dir.path());
    let log = &log_files(copy.path())[0];
    flip(log, sixth);
    as_before_a_power_cut(log);
    assert_eq!(count(&open(copy.path())), 5);
}

#[test]
fn after_a_power_cut_a_hole_in_the_synced_part_is_damage() {
    let dir = TempDir::new().unwrap();
    let mut engine = open(dir.path());
    put(&mut engine, 1..=4);
    engine.flush().unwrap();
    let fifth = engine.log.segment_bytes();
    put(&mut engine, 5..=5);
    engine.sync().unwrap();
    put(&mut engine, 6..=10);
    engine.flush().unwrap();
    let copy = files_after_kill(dir.path());
    let log = &log_files(copy.path())[0];
    flip(log, fifth);
    as_before_a_power_cut(log);
    let error = try_open(copy.path()).err().unwrap();
    assert!(error.message.contains(&format!("damaged at byte {fifth}")), "{error}");
}

#[test]
fn after_a_power_cut_segments_beyond_a_lost_tail_go_with_it() {
    let dir = TempDir::new().unwrap();
    let mut engine = open(dir.path());
    put(&mut engine, 1..=5);
    engine.flush().unwrap();
    let whole = engine.log.segment_bytes();
    put(&mut engine, 6..=8);
    engine.flush().unwrap();
    engine.log.rotate(Sequence(9)).unwrap();
    put(&mut engine, 9..=12);
    engine.flush().unwrap();
    let copy = files_after_kill(dir.path());
    let logs = log_files(copy.path());
    OpenOptions::new().write(true).open(&logs[0]).unwrap().set_len(whole).unwrap();
    // Without a restart of the machine no power cut can explain it.
    assert_eq!(try_open(copy.path()).err().unwrap().kind, ErrorKind::Corrupt);
    as_before_a_power_cut(&logs[0]);
    as_before_a_power_cut(&logs[1]);
    let mut engine = open(copy.path());
    assert_eq!(count(&engine), 5);
    put(&mut engine, 6..=20);
    engine.close().unwrap();
    assert_eq!(count(&open(copy.path())), 20);
}

#[test]
fn the_log_rotates_and_applied_segments_are_deleted() {
    let dir = TempDir::new().unwrap();
    let config = EmbeddedConfig { generation_bytes: 4096, ..idle() };
    let mut engine = Embedded::open(dir.path(), config, || {}).unwrap();
    for round in 0..20 {
        put(&mut engine, round * 100 + 1..=round * 100 + 100);
        engine.flush().unwrap();
        engine.wait_for_applier().unwrap();
        engine.poll().unwrap();
        assert!(log_files(dir.path()).len() <= 2);
    }
    engine.close().unwrap();
    assert_eq!(log_files(dir.path()).len(), 1);
    assert_eq!(count(&open(dir.path())), 2000);
}

#[test]
fn commits_wait_for_redb_rather_than_grow_without_bound() {
    let dir = TempDir::new().unwrap();
    let config = EmbeddedConfig { max_generation_bytes: 16 << 10, ..idle() };
    let mut engine = Embedded::open(dir.path(), config, || {}).unwrap();
    for n in 1..=2000 {
        put(&mut engine, n..=n);
        assert!(engine.log.segment_bytes() < (16 << 10) + 256);
    }
    engine.flush().unwrap();
    assert_eq!(count(&engine), 2000);
}

#[test]
fn reads_see_every_commit_while_redb_takes_generations_in() {
    let dir = TempDir::new().unwrap();
    let config = EmbeddedConfig { apply_delay_ms: 0, sync_delay_ms: 0, ..idle() };
    let mut engine = Embedded::open(dir.path(), config, || {}).unwrap();
    for n in 1..=300 {
        put(&mut engine, n..=n);
        engine.flush().unwrap();
        engine.poll().unwrap();
        assert_eq!(count(&engine), n);
    }
}

#[test]
fn a_second_process_is_refused() {
    let dir = TempDir::new().unwrap();
    let engine = open(dir.path());
    let error = try_open(dir.path()).err().unwrap();
    assert_eq!(error.kind, ErrorKind::Busy);
    let expected =
        format!("metadata directory {} is already in use by another process", dir.path().display());
    assert_eq!(error.message, expected);
    drop(engine);
    open(dir.path());
}

#[test]
fn an_unknown_format_is_refused_and_left_alone() {
    let dir = TempDir::new().unwrap();
    open(dir.path()).close().unwrap();
    let newer =
        format!("weir-metastore 7 {:08x}\n", weir_types::checksum::crc32c(b"weir-metastore 7"));
    for (text, version) in [("weir-metastore 1\n", 1), (&*newer, 7)] {
        std::fs::write(dir.path().join("format"), text).unwrap();
        let error = try_open(dir.path()).err().unwrap();
        assert_eq!(error.kind, ErrorKind::Unsupported);
        let expected = format!("has format {version}; this program knows only 2");
        assert!(error.message.contains(&expected), "{error}");
    }
    std::fs::write(dir.path().join("format"), "something else").unwrap();
    assert_eq!(try_open(dir.path()).err().unwrap().kind, ErrorKind::Corrupt);
}

#[test]
fn making_the_directory_can_be_interrupted_but_contents_are_never_made_anew() {
    let dir = TempDir::new().unwrap();
    let mut engine = open(dir.path());
    // As after a kill just before the last step of making the directory.
    let copy = files_after_kill(dir.path());
    std::fs::remove_file(copy.path().join("format")).unwrap();
    assert_eq!(count(&open(copy.path())), 0);

    put(&mut engine, 1..=3);
    engine.flush().unwrap();
    let copy = files_after_kill(dir.path());
    std::fs::remove_file(copy.path().join("format")).unwrap();
    let error = try_open(copy.path()).err().unwrap();
    assert!(error.message.contains("lost its file `format`"), "{error}");
}

#[test]
fn after_a_failed_append_nothing_more_is_taken() {
    let dir = TempDir::new().unwrap();
    let mut engine = open(dir.path());
    put(&mut engine, 1..=3);
    engine.flush().unwrap();
    put(&mut engine, 4..=4);
    engine.log.redirect(device("full"));
    assert_eq!(engine.flush().unwrap_err().kind, ErrorKind::NoSpace);
    let again = transact::<_, Error>(&mut engine, |tx| Ok(tx.put(b"x", b"v")?)).unwrap_err();
    assert!(again.message.contains("failed earlier, restart the server"), "{again}");
    assert!(engine.flush().is_err());
    assert!(engine.poll().is_err());
    assert_eq!(count(&open(files_after_kill(dir.path()).path())), 3);
}

#[test]
fn after_a_failed_sync_nothing_more_is_taken() {
    let dir = TempDir::new().unwrap();
    let woken = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&woken);
    let notify = move || {
        counter.fetch_add(1, Ordering::SeqCst);
    };
    let mut engine = Embedded::open(dir.path(), idle(), notify).unwrap();
    // A file that accepts writes and cannot be synced.
    let null = engine.log.redirect(device("null"));
    engine.shared.rotated(null);
    put(&mut engine, 1..=1);
    assert!(engine.sync().is_err());
    assert!(woken.load(Ordering::SeqCst) > 0, "the owner is told");
    let again = transact::<_, Error>(&mut engine, |tx| Ok(tx.put(b"x", b"v")?)).unwrap_err();
    assert!(again.message.contains("failed earlier"), "{again}");
    assert_eq!(engine.synced(), Sequence::ZERO);
}

#[test]
fn a_sync_happens_by_itself_and_on_request_and_tells_the_owner() {
    let dir = TempDir::new().unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    let config = EmbeddedConfig { sync_delay_ms: 20, ..idle() };
    let notify = move || {
        let _ = tell.send(());
    };
    let mut engine = Embedded::open(dir.path(), config, notify).unwrap();
    put(&mut engine, 1..=3);
    engine.request_sync(Sequence(3));
    assert_eq!(engine.synced(), Sequence::ZERO, "what is not flushed cannot be synced");
    engine.flush().unwrap();
    told.recv_timeout(Duration::from_secs(10)).unwrap();
    assert_eq!(engine.synced(), Sequence(3));
    put(&mut engine, 4..=5);
    engine.flush().unwrap();
    told.recv_timeout(Duration::from_secs(10)).unwrap();
    assert_eq!(engine.synced(), Sequence(5), "without being asked");
}

#[test]
fn a_file_that_is_no_log_segment_is_left_alone() {
    let dir = TempDir::new().unwrap();
    open(dir.path()).close().unwrap();
    File::create(dir.path().join("log.txt")).unwrap();
    open(dir.path()).close().unwrap();
    assert!(dir.path().join("log.txt").exists());
}

#[test]
fn an_engine_may_be_made_in_one_thread_and_owned_by_another() {
    let dir = TempDir::new().unwrap();
    let mut engine = open(dir.path());
    put(&mut engine, 1..=2);
    let counted = std::thread::spawn(move || count(&engine)).join().unwrap();
    assert_eq!(counted, 2);
}

#[test]
fn a_segment_that_cannot_be_begun_stops_nothing_until_the_log_is_full() {
    let dir = TempDir::new().unwrap();
    let config = EmbeddedConfig { generation_bytes: 1024, max_generation_bytes: 8192, ..idle() };
    let mut engine = Embedded::open(dir.path(), config, || {}).unwrap();
    // All names of the following segments are taken.
    for n in 2..2000 {
        std::fs::create_dir(dir.path().join(crate::log::segment_name(Sequence(n)))).unwrap();
    }
    let mut done = 0;
    let error = loop {
        let operation = |tx: &mut crate::Tx<'_>| Ok(tx.put(b"a", &[1; 100])?);
        match transact::<_, Error>(&mut engine, operation) {
            Ok(_) => done += 1,
            Err(e) => break e,
        }
        engine.flush().unwrap();
    };
    assert!((20..200).contains(&done), "{done} commits");
    assert!(error.message.contains("log.0"), "{error}");
    for n in 2..2000 {
        std::fs::remove_dir(dir.path().join(crate::log::segment_name(Sequence(n)))).unwrap();
    }
    put(&mut engine, 1..=5);
    engine.close().unwrap();
    assert_eq!(count(&open(dir.path())), 5);
}
