//! Links are as fast as they are set to be, and gone in the end.
#![allow(clippy::unwrap_used)] // A panic is how a test fails.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};
use weir_testbed::{Network, missing_for_networks, send_through};

const RATE: u64 = 12_500_000;
const BYTES: u64 = 20_000_000;

/// Sends so many bytes from one node to another by one connection; how long that took.
fn transfer(network: &Network, from: u32, to: u32, bytes: u64) -> Duration {
    let listener = network.within(to, || TcpListener::bind((network.address(to), 0))).unwrap();
    let listener = listener.unwrap();
    let at = listener.local_addr().unwrap();
    // A connection is of the network in which it was made, whoever uses it.
    let mut sender = network.within(from, || TcpStream::connect(at)).unwrap().unwrap();
    let (mut receiver, _) = listener.accept().unwrap();
    let begin = Instant::now();
    scope(|scope| {
        scope.spawn(move || sender.write_all(&vec![0x5a; bytes as usize]).unwrap());
        let (mut came, mut memory) = (0, vec![0; 256 << 10]);
        while came < bytes {
            came += receiver.read(&mut memory).unwrap() as u64;
        }
    });
    begin.elapsed()
}

#[test]
fn a_link_carries_its_rate_each_way_and_the_kernel_counts_it() {
    if let Some(what) = missing_for_networks() {
        println!("skipped: needs {what}");
        return;
    }
    let name = format!("weir-n{}", std::process::id());
    let network = Network::make(&name, &[RATE, RATE, RATE / 5]).unwrap();
    Network::make(&name, &[RATE]).unwrap_err();

    let took = || transfer(&network, 1, 2, BYTES).as_secs_f64();
    // Less only because others keep this machine busy: then once more.
    let least = BYTES as f64 / RATE as f64;
    let took = (0..4).map(|_| took()).find(|took| *took < least / 0.9).unwrap();
    assert!(took > least / 1.05, "{took} s, {least} at the rate that is set");
    let (from, to) = (network.counts(1).unwrap(), network.counts(2).unwrap());
    assert!(from.out_bytes >= BYTES && to.in_bytes >= BYTES, "{from:?} {to:?}");
    assert!(from.in_bytes < BYTES / 4 && to.out_bytes < BYTES / 4, "{from:?} {to:?}");

    // Both ways at once take as long as one: the links are full duplex.
    let both = scope(|scope| {
        let there = scope.spawn(|| transfer(&network, 1, 2, BYTES / 2));
        let back = transfer(&network, 2, 1, BYTES / 2);
        there.join().unwrap().max(back).as_secs_f64()
    });
    assert!(both < took, "{both} s for half as much each way, {took} s one way");
    // The slower link counts.
    let slow = transfer(&network, 1, 3, BYTES / 10).as_secs_f64();
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
