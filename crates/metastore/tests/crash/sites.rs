//! Every sync is needed: without it some crash loses data.

use crate::history::History;
use crate::images::{lives, number_from};
use crate::room::{new_disk, work};
use std::cell::RefCell;

/// A missing sync must be noticed within this many images.
const MAX_IMAGES: u64 = 20_000;

#[test]
fn without_any_one_of_the_syncs_a_crash_is_noticed() {
    let disk = new_disk(1);
    let history = RefCell::new(History::default());
    work(1, &disk, &history, 2000).expect("all is well");
    // The syncs of the reserve matter on a full disk only: `full.rs` tests them.
    let of_reserve = |site: &&str| site.starts_with("meta-reserve");
    let sites: Vec<&'static str> =
        disk.sites().into_keys().filter(|site| !of_reserve(site)).collect();
    assert!(sites.len() >= 7, "{sites:?}");
    let first = number_from("WEIR_SEED").unwrap_or(1);
    std::panic::set_hook(Box::new(|_| {}));
    let results: Vec<_> = std::thread::scope(|scope| {
        let run = |site: &'static str| lives(first, MAX_IMAGES, &|disk| disk.skip_site(Some(site)));
        let threads: Vec<_> =
            sites.iter().map(|&site| (site, scope.spawn(move || run(site)))).collect();
        threads.into_iter().map(|(site, thread)| (site, thread.join())).collect()
    });
    let _ = std::panic::take_hook();
    let mut needless = Vec::new();
    for (site, result) in results {
        let (images, result) = result.expect("it counts");
        println!("{site:<22} {images:>6} images: {result:?}");
        if result.is_ok() {
            needless.push(site);
        }
    }
    assert!(needless.is_empty(), "nobody misses {needless:?}");
}
