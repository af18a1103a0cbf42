//! fio writes blocks that prove themselves, and reads them back, on a mount.

use crate::harness::{Place, root};
use crate::mounted::{Mounts, sh};
use std::path::Path;

/// Two jobs on files of their own; every block is written once, in random
/// order among reads, and all are verified in the end and by a second run.
fn verified(at: &Path, engine: &str, more: &str) {
    let job = format!(
        "fio --name={engine} --directory=. --ioengine={engine} --rw=randrw --rwmixread=40 \
         --bsrange=4k-64k --bs_unaligned=0 --size=8m --numjobs=2 --thread --randseed=7 \
         --verify=crc32c --verify_fatal=1 --verify_dump=0 --output-format=terse {more}"
    );
    sh(at, &format!("{job} --do_verify=1"));
    sh(at, &format!("{job} --verify_only --invalidate=1"));
}

fn with(engine: &str, more: &str) {
    if !root() {
        return;
    }
    let place = Place::new();
    let mounts = Mounts::new(&place, "fio", 1);
    verified(&mounts.at[0], engine, more);
}

#[test]
fn fio_finds_every_block_that_pwrite_wrote() {
    with("psync", "--fsync=50");
}

#[test]
fn fio_finds_every_block_that_mmap_wrote() {
    with("mmap", "--fsync=50");
}
