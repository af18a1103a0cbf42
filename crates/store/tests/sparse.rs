//! Long objects with little data: every pass over one depends on the bytes on disk, however long
//! the object is.

use crate::support::*;
use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;
use weir_simhost::disk::{SimDisk, with_disk};
use weir_store::{
    Damage, Finding, Object, Opening, RecoveryProgress, RecoveryReport, ScrubCursor, Target,
    TargetOptions,
};
use weir_types::ErrorKind;

/// Nearly the longest file of local file systems.
const LONG: u64 = 15 << 40;
const DIR: &str = "/disk/target";
const BLOCKS: usize = 300;

/// Scattered blocks in an object of this length, including its last block.
fn places(len: u64, count: usize, seed: u64) -> BTreeSet<u64> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut places: BTreeSet<u64> = [len / BLOCK - 1].into();
    while places.len() < count {
        places.insert(rng.u64(0..len / BLOCK));
    }
    places
}

fn fill(object: &Object, places: &BTreeSet<u64>) {
    for &block in places {
        write(object, block * BLOCK, &pattern(block, 4096));
    }
}

fn check(object: &Object, places: &BTreeSet<u64>) {
    for &block in places {
        assert_eq!(read(object, block * BLOCK, BLOCK), pattern(block, 4096), "block {block}");
    }
}

fn scrub(target: &Target, step_bytes: u64) -> (u64, Vec<Finding>) {
    let (mut cursor, mut bytes, mut findings) = (Some(ScrubCursor::default()), 0, Vec::new());
    while let Some(at) = cursor {
        let step = target.scrub(&at, step_bytes).unwrap();
        bytes += step.bytes;
        findings.extend(step.findings);
        cursor = step.next;
    }
    (bytes, findings)
}

#[test]
fn after_a_kill_what_takes_room_is_examined_and_no_hole() {
    let mut test = TestTarget::new();
    let young = places(LONG, BLOCKS, 1);
    fill(&test.target.object_or_create(object_id(1)).unwrap(), &young);
    test = test.kill_and_reopen();
    let RecoveryReport { unclean, objects, bytes, failed, .. } = *test.target.recovery();
    assert_eq!((unclean, objects, failed), (true, 1, 0));
    assert_eq!(bytes, BLOCKS as u64 * BLOCK, "of a young object");
    test.target.sync_all().unwrap();
    // So scattered that marks become coarse.
    let object = test.target.object(object_id(1)).unwrap().unwrap();
    let more = places(LONG, 2 * BLOCKS, 2);
    fill(&object, &more);
    drop(object);
    test = test.kill_and_reopen();
    let RecoveryReport { objects, bytes, .. } = *test.target.recovery();
    let all: BTreeSet<u64> = young.union(&more).copied().collect();
    assert_eq!(objects, 1);
    assert!(bytes >= more.len() as u64 * BLOCK && bytes <= all.len() as u64 * BLOCK, "{bytes}");
    check(&test.target.object(object_id(1)).unwrap().unwrap(), &all);
}

#[test]
fn scrubbing_reads_what_takes_room_in_steps_of_any_size() {
    let test = TestTarget::new();
    let blocks = places(LONG, BLOCKS, 3);
    fill(&test.target.object_or_create(object_id(1)).unwrap(), &blocks);
    for step_bytes in [10_000, 1_000_000, u64::MAX] {
        assert_eq!(scrub(&test.target, step_bytes), (BLOCKS as u64 * BLOCK, Vec::new()));
    }
}

#[test]
fn everything_that_goes_through_an_object_skips_its_holes() {
    let disk = SimDisk::new(1);
    with_disk(&disk, 0, || {
        Target::create(DIR, IDENTITY).unwrap();
        let target = Target::open(DIR).unwrap();
        let object = target.object_or_create(object_id(1)).unwrap();
        let blocks = places(LONG, BLOCKS, 4);
        fill(&object, &blocks);
        let bytes = BLOCKS as u64 * BLOCK;
        assert_eq!(scrub(&target, u64::MAX), (bytes, Vec::new()));
        assert_eq!(object.damaged(&(0..LONG)), []);
        let (mut at, mut found) = (0, BTreeSet::new());
        while let Some(data) = object.next_data(at).unwrap() {
            found.insert(data / BLOCK);
            at = object.next_hole(data).unwrap();
        }
        assert!(found.is_subset(&blocks));
        drop(object);
        target.drop_unclosed();
        let target = Target::open(DIR).unwrap();
        assert_eq!(target.recovery().bytes, bytes);
        let object = target.object(object_id(1)).unwrap().unwrap();
        check(&object, &blocks);
        // Punched except for the first and the last allocated block.
        let (first, last) = (*blocks.first().unwrap(), *blocks.last().unwrap());
        let start = (first + 1) * BLOCK;
        object.punch(start, last * BLOCK - start, G0).unwrap();
        check(&object, &[first, last].into());
        assert_eq!(object.next_data(start).unwrap(), Some(last * BLOCK));
        assert_eq!(scrub(&target, u64::MAX), (2 * BLOCK, Vec::new()));
        object.truncate(BLOCK, weir_types::Generation(1)).unwrap();
        assert_eq!(scrub(&target, u64::MAX).1, []);
    });
}

/// A block at each end of a hole, and one alone.
const EDGES: [u64; 4] = [5, 1 << 20, (1 << 20) + 1, (1 << 28) + 32_639];

/// The position of a block's data, and of its checksum.
fn positions(block: u64) -> (u64, u64) {
    let slot = block + 128;
    let section = slot / 32_768;
    let start = (section * 32_800).saturating_sub(if section > 0 { 128 } else { 0 });
    let first = (section * 32_768).saturating_sub(128);
    ((start + 32 + block - first) * BLOCK, start * BLOCK + slot % 32_768 * 4)
}

#[test]
fn what_is_torn_beside_a_hole_is_found() {
    let test = TestTarget::new();
    fill(&test.target.object_or_create(object_id(1)).unwrap(), &EDGES.into());
    let path = test.only_file();
    let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
    let test = test.reopen();
    let object = test.target.object(object_id(1)).unwrap().unwrap();
    // Allocated data without a checksum, a checksum without data, and nothing at all.
    let holes = [6, (1 << 20) + 2, (1 << 27) + 77];
    for block in EDGES.into_iter().chain(holes) {
        let (data, slot) = positions(block);
        for at in [data, data + BLOCK - 1, slot] {
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
            let range = block * BLOCK..(block + 1) * BLOCK;
            let only = vec![range.clone()];
            let (_, findings) = scrub(&test.target, u64::MAX);
            let found: Vec<_> = findings.iter().map(|f| (f.damage, f.offset, f.len)).collect();
            assert_eq!(found, [(Damage::Block, range.start, BLOCK)], "byte {at}");
            assert_eq!(object.damaged(&(0..LONG)), only);
            assert_eq!(object.damaged(&range), only);
            file.write_all_at(&byte, at).unwrap();
        }
    }
    assert_eq!(scrub(&test.target, u64::MAX).1, []);
}

#[test]
fn what_was_torn_beside_a_hole_is_repaired_after_a_kill_if_it_was_marked() {
    let test = TestTarget::new();
    fill(&test.target.object_or_create(object_id(1)).unwrap(), &EDGES.into());
    test.target.sync_all().unwrap();
    let object = test.target.object(object_id(1)).unwrap().unwrap();
    // The blocks and their following neighbours are marked.
    for block in EDGES {
        write(&object, block * BLOCK, &pattern(9, 4096));
    }
    let file = std::fs::File::options().write(true).open(test.only_file()).unwrap();
    let torn = [EDGES[0], EDGES[0] + 1, EDGES[2], EDGES[3]];
    for block in torn {
        file.write_all_at(&[0x5a; 512], positions(block).0 + 1024).unwrap();
    }
    // A block that has lost its data, but not its checksum.
    let lost = positions(EDGES[1]).0;
    file.write_all_at(&[0; 4096], lost).unwrap();
    drop(object);
    let test = test.kill_and_reopen();
    assert_eq!(test.target.recovery().blocks, torn.len() as u64 + 1);
    assert_eq!(scrub(&test.target, u64::MAX).1, []);
}

/// Small steps.
const OPTIONS: TargetOptions = TargetOptions {
    max_open_objects: 8,
    max_log_sectors: 64,
    recovery_save_bytes: 40_000,
    recovery_syncs: 16,
};

/// A target that was killed, with blocks in some objects.
fn killed(disk: &SimDisk, count: usize) -> BTreeSet<u64> {
    let blocks = places(LONG, count, 5);
    with_disk(disk, 0, || {
        Target::create(DIR, IDENTITY).unwrap();
        let target = Target::open_with(DIR, OPTIONS).unwrap();
        for file in 1..4 {
            fill(&target.object_or_create(object_id(file)).unwrap(), &blocks);
        }
        target.drop_unclosed();
    });
    blocks
}

fn is_whole(disk: &SimDisk, target: &Target, blocks: &BTreeSet<u64>) {
    with_disk(disk, 0, || {
        for file in 1..4 {
            check(&target.object(object_id(file)).unwrap().unwrap(), blocks);
        }
        assert_eq!(scrub(target, u64::MAX), (3 * blocks.len() as u64 * BLOCK, Vec::new()));
    });
}

#[test]
fn a_recovery_that_is_stopped_goes_on_where_it_was() {
    /// Number of blocks of each object. It bounds the steps: each block is in a section of its own,
    /// which has 32 pages of checksums.
    const COUNT: usize = 10;
    const STEPS: usize = COUNT * 33 + 2;
    let disk = SimDisk::new(2);
    let blocks = killed(&disk, COUNT);
    let mut stops = 0;
    let target = with_disk(&disk, 0, || {
        loop {
            // Stopped before it has begun: it does one step and saves that.
            let progress = RecoveryProgress::default();
            progress.stop();
            match Opening::begin(DIR, OPTIONS).unwrap().finish(&progress) {
                Ok(target) => break target,
                Err(error) => assert_eq!(error.kind, ErrorKind::Interrupted, "{error}"),
            }
            stops += 1;
            assert!(stops < 3 * STEPS, "it begins at nothing each time");
        }
    });
    assert!(stops >= 3 * COUNT, "{stops}");
    is_whole(&disk, &target, &blocks);
    // The next one has no saved progress.
    with_disk(&disk, 0, || {
        for file in 1..4 {
            fill(&target.object(object_id(file)).unwrap().unwrap(), &blocks);
        }
        target.drop_unclosed();
        let again = Target::open(DIR).unwrap();
        assert!(again.recovery().bytes >= 3 * COUNT as u64 * BLOCK);
    });
}

#[test]
fn a_recovery_that_is_killed_again_and_again_goes_on_where_it_was() {
    let disk = SimDisk::new(3);
    let blocks = killed(&disk, BLOCKS);
    let total = 3 * BLOCKS as u64 * BLOCK;
    let mut kills = 0;
    let target = loop {
        disk.crash_after(30);
        let opened = with_disk(&disk, 0, || Target::open_with(DIR, OPTIONS));
        disk.thaw();
        match opened {
            Ok(target) => break target,
            Err(_) => kills += 1,
        }
        assert!(kills < 1000, "it begins at nothing each time");
    };
    let last = target.recovery().bytes;
    assert!(kills > 3 && last < total / 2, "{kills} kills, {last} of {total} bytes at last");
    is_whole(&disk, &target, &blocks);
}
