//! What files take (`st_blocks`) that were changed on two mounts at once: soon the same on both.

use crate::coherence_io::{Two, open, two};
use crate::harness::{Place, eventually_ok, noise, root};
use rustix::fs::{FallocateFlags, fallocate};
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use weir_conformance::Random;

/// Changes files at random through one of two mounts that do it at once.
fn change_at_random(at: &Path, files: usize, rounds: usize, seed: u64) {
    const MOST: u64 = 1 << 20;
    let mut random = Random::new(seed);
    let (keep, punch) = (FallocateFlags::KEEP_SIZE, FallocateFlags::PUNCH_HOLE);
    for _ in 0..rounds {
        let name = format!("f{}", random.below(files as u64));
        let file = open(&at.join(name));
        for _ in 0..1 + random.below(4) {
            let (place, len) = (random.below(MOST), 1 + random.below(100_000));
            match random.below(7) {
                0 | 1 => file.write_all_at(&noise(len as usize, place), place).unwrap(),
                2 => file.set_len(place).unwrap(),
                3 => fallocate(&file, keep | punch, place, len).unwrap(),
                4 => fallocate(&file, FallocateFlags::empty(), place, len).unwrap(),
                5 => fallocate(&file, keep, place, len).unwrap(),
                _ => fallocate(&file, FallocateFlags::ZERO_RANGE | keep, place, len).unwrap(),
            }
        }
    }
}

#[test]
fn two_mounts_that_changed_the_same_files_agree_on_what_each_takes() {
    const FILES: usize = 50;
    if !root() {
        return;
    }
    let place = Place::new();
    let Two { cluster: _cluster, a, b } = two(&place, "agree", "");
    let seed = Random::seed_of_run();
    std::thread::scope(|scope| {
        for (at, seed) in [(&a, seed), (&b, seed.wrapping_add(1))] {
            scope.spawn(move || change_at_random(at, FILES, 300, seed));
        }
    });
    let both = |n: usize| [&a, &b].map(|at| fs::metadata(at.join(format!("f{n}"))));
    let there = (0..FILES).filter(|n| both(*n).iter().all(Result::is_ok)).count();
    assert!(there > FILES / 2, "only {there} files");
    let differ = || -> Vec<String> {
        let told = |n: usize| both(n).map(|meta| meta.map_or((0, 0), |m| (m.size(), m.blocks())));
        let differing = (0..FILES).map(|n| (n, told(n))).filter(|(_, [here, there])| here != there);
        differing.map(|(n, told)| format!("f{n}: {told:?}")).collect()
    };
    eventually_ok("both tell the same sizes and blocks", || {
        let differing = differ();
        if differing.is_empty() { Ok(()) } else { Err(differing) }
    });
}
