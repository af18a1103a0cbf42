//! Planted bugs of the store are found. A bug is planted in the whole process, so this is one test
//! in a process of its own.

use crate::crash::{self, Settings, mirror, search, setting};
use crate::support::alone;
use weir_host::plant::{Bug, plant};

/// Number of images within which a bug must be found.
const MAX_IMAGES: u64 = 6_000;

const BUGS: [Bug; 8] = [
    Bug::SkipIntentMark,
    Bug::SkipRecovery,
    Bug::ServeUnverified,
    Bug::SkipObjectSync,
    Bug::ForgetGeneration,
    Bug::SkipGapNote,
    Bug::ForgetPledge,
    Bug::LoseGapLog,
];

#[test]
fn every_planted_bug_is_found() {
    alone("planted_bugs::every_planted_bug_is_found", find_every_planted_bug);
}

fn find_every_planted_bug() {
    if !plant(None) {
        println!("skipped: no bugs can be planted in this build");
        return;
    }
    let first = setting("WEIR_SEED").unwrap_or(1);
    let mut missed = Vec::new();
    for bug in BUGS {
        plant(Some(bug));
        let found = match bug {
            // Serving wrong bytes shows only on a rotting disk.
            Bug::ServeUnverified => crash::search_rot(first, MAX_IMAGES),
            Bug::SkipGapNote | Bug::ForgetPledge => {
                mirror::search(first, MAX_IMAGES, &Settings::default())
            }
            Bug::LoseGapLog => mirror::search_damage(first, MAX_IMAGES),
            _ => search(first, MAX_IMAGES, &Settings::default()),
        };
        plant(None);
        match found {
            Some((images, seed, what)) => {
                println!("{bug:?}: found after {images} images (seed {seed}: {what})");
            }
            None => missed.push(bug),
        }
    }
    assert!(missed.is_empty(), "nobody finds {missed:?}");
}
