//! Every sync is needed: leaving out any of them is noticed.

use crate::crash::{Settings, history, mirror, search, setting, sites_of};
use std::collections::BTreeSet;

/// Number of images within which a missing sync must be noticed.
const MAX_IMAGES: u64 = 6_000;

#[test]
fn leaving_out_any_sync_loses_something() {
    let first = setting("WEIR_SEED").unwrap_or(1);
    let mut sites = BTreeSet::new();
    for seed in first..first + 20 {
        sites.extend(sites_of(seed));
    }
    assert!(sites.len() >= 10, "{sites:?}");
    let mut unnoticed = Vec::new();
    for site in sites {
        let settings = Settings { skip_site: Some(site.to_string()) };
        match search(first, MAX_IMAGES, &settings) {
            Some((images, seed, what)) => {
                println!("{site}: noticed after {images} images (seed {seed}: {what})");
                assert!(history(seed, &Settings::default()).is_ok(), "seed {seed} fails anyway");
            }
            None => unnoticed.push(site),
        }
    }
    assert!(unnoticed.is_empty(), "nobody notices when these are left out: {unnoticed:?}");
}

#[test]
fn leaving_out_any_sync_of_a_recovery_is_noticed() {
    let first = setting("WEIR_SEED").unwrap_or(1);
    for site in ["recovery", "recovered-object"] {
        let settings = Settings { skip_site: Some(site.to_string()) };
        let (images, seed, what) = search(first, MAX_IMAGES, &settings).expect(site);
        println!("{site}: noticed after {images} images (seed {seed}: {what})");
        assert!(history(seed, &Settings::default()).is_ok(), "seed {seed} fails anyway");
    }
}

#[test]
fn leaving_out_any_sync_of_the_gap_log_is_noticed() {
    let first = setting("WEIR_SEED").unwrap_or(1);
    let mut sites = BTreeSet::new();
    for seed in first..first + 20 {
        sites.extend(mirror::sites_of(seed));
    }
    for site in ["gap-log", "gap-log-directory", "new-gap-log", "superblock"] {
        assert!(sites.contains(site), "{site} is not among {sites:?}");
        let settings = Settings { skip_site: Some(site.to_string()) };
        match mirror::search(first, MAX_IMAGES, &settings) {
            Some((images, seed, what)) => {
                println!("{site}: noticed after {images} images (seed {seed}: {what})");
            }
            None => panic!("nobody notices when {site} is left out"),
        }
    }
}
