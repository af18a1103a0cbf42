//! Links are as fast as they are set to be, and gone in the end.
#![allow(clippy::unwrap_used)] // A panic is how a test fails.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{scope, sleep};
use std::time::Duration;
use weir_testbed::{Network, missing_for_networks, send_through, transfer};

const RATE: u64 = 12_500_000;
const BYTES: u64 = 20_000_000;

#[test]
fn a_link_carries_its_rate_each_way_and_the_kernel_counts_it() {
    if let Some(what) = missing_for_networks() {
        println!("skipped: needs {what}");
        return;
    }
    let name = format!("weir-n{}", std::process::id());
    let network = Network::make(&name, &[RATE, RATE, RATE / 5]).unwrap();
    Network::make(&name, &[RATE]).unwrap_err();

    let took = || transfer(&network, 1, 2, BYTES).unwrap().as_secs_f64();
    // Less only because others keep this machine busy: then once more.
    let least = BYTES as f64 / RATE as f64;
    let took = (0..4).map(|_| took()).find(|took| *took < least / 0.9).unwrap();
    assert!(took > least / 1.05, "{took} s, {least} at the rate that is set");
    let (from, to) = (network.counts(1).unwrap(), network.counts(2).unwrap());
    assert!(from.out_bytes >= BYTES && to.in_bytes >= BYTES, "{from:?} {to:?}");
    assert!(from.in_bytes < BYTES / 4 && to.out_bytes < BYTES / 4, "{from:?} {to:?}");

    // Both ways at once take as long as one: the links are full duplex.
    let both = scope(|scope| {
        let there = scope.spawn(|| transfer(&network, 1, 2, BYTES / 2).unwrap());
        let back = transfer(&network, 2, 1, BYTES / 2).unwrap();
        there.join().unwrap().max(back).as_secs_f64()
    });
    assert!(both < took, "{both} s for half as much each way, {took} s one way");
    // The slower link counts.
    let slow = transfer(&network, 1, 3, BYTES / 10).unwrap().as_secs_f64();
    assert!(slow > BYTES as f64 / 10.0 / (RATE as f64 / 5.0) * 0.9, "{slow}");

    drop(network);
    assert!(!Path::new("/run/netns").join(&name).exists());
    assert!(!Path::new("/run/netns").join(format!("{name}-1")).exists());
}

#[test]
fn who_loads_a_link_takes_what_it_is_to_take() {
    if let Some(what) = missing_for_networks() {
        println!("skipped: needs {what}");
        return;
    }
    let name = format!("weir-s{}", std::process::id());
    let network = Network::make(&name, &[RATE]).unwrap();
    let stopped = AtomicBool::new(false);
    let came = scope(|scope| {
        let sender = scope.spawn(|| send_through(&network, 1, RATE / 2, &stopped));
        sleep(Duration::from_secs(1));
        stopped.store(true, Relaxed);
        sender.join().unwrap().unwrap()
    });
    let counted = network.counts(1).unwrap().out_bytes;
    assert!(counted >= came && came > RATE / 5, "{came} came, {counted} by the kernel's count");
    assert!(came < RATE * 3 / 4, "{came}");
}
