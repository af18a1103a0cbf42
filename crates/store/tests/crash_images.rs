//! Crash images: after a power cut or `kill -9` a target has everything that was synced, has
//! nothing wrong, and no block fails its checksum.
//!
//! `WEIR_CRASH_IMAGES=n` checks more images, `WEIR_SEED=s` those of one history.

use crate::crash::{Settings, history, mirror, setting};

const DEFAULT_IMAGES: u64 = 2_000;
const FIRST_SEED: u64 = 1;

#[test]
fn what_was_synced_survives_every_power_cut_and_kill() {
    let settings = Settings::default();
    let wanted = setting("WEIR_CRASH_IMAGES").unwrap_or(DEFAULT_IMAGES);
    let only = setting("WEIR_SEED");
    let (mut images, mut seed) = (0, only.unwrap_or(FIRST_SEED));
    while images < wanted {
        match history(seed, &settings) {
            Ok(n) => images += n,
            Err((_, what)) => panic!("{what}\nrun this history again with WEIR_SEED={seed}"),
        }
        if only.is_some() {
            break;
        }
        seed += 1;
    }
    println!("{images} images");
}

#[test]
fn a_copy_that_differs_from_others_after_a_stop_knows_it() {
    let wanted = setting("WEIR_CRASH_IMAGES").unwrap_or(DEFAULT_IMAGES);
    let first = setting("WEIR_SEED").unwrap_or(FIRST_SEED);
    if let Some((images, seed, what)) = mirror::search(first, wanted, &Settings::default()) {
        panic!("image {images}: {what}\nrun this history again with WEIR_SEED={seed}");
    }
}
