//! A bit that flips anywhere on a target is never served as valid, and scrubbing finds it.

use crate::crash::{rot, setting};

#[test]
fn a_flipped_bit_is_never_served_and_always_found() {
    let first = setting("WEIR_SEED").unwrap_or(1);
    let count = if setting("WEIR_SEED").is_some() { 1 } else { 300 };
    let mut regions = std::collections::BTreeMap::<&str, u64>::new();
    for seed in first..first + count {
        match rot(seed) {
            Ok(region) => *regions.entry(region).or_default() += 1,
            Err(what) => panic!("{what}\nrun this again with WEIR_SEED={seed}"),
        }
    }
    println!("{regions:?}");
    if count > 1 {
        for region in ["data", "checksums", "header", "intents", "superblock"] {
            assert!(regions.contains_key(region), "no bit of {region} was flipped");
        }
    }
}
