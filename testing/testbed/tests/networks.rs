//! Links have their set speed, and are removed at the end.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};
use weir_testbed::{
    ETHERNET_QUEUE, MYRINET_QUEUE, Network, missing_for_delays, missing_for_networks, send_through,
};

/// A low rate, which even a busy machine carries.
const RATE: u64 = 2_500_000;
const BYTES: u64 = 4_000_000;
/// Bytes that pass at once after a pause.
const BURST: u64 = 128 << 10;
const TRIES: u32 = 20;
const PATIENCE: Duration = Duration::from_secs(60);

/// Minimum seconds for this many bytes; the kernel counts time in steps.
fn least(bytes: u64, rate: u64) -> f64 {
    0.98 * (bytes - BURST) as f64 / rate as f64
}

/// Sends bytes from one node to another by one connection, and returns the duration.
fn transfer(network: &Network, from: u32, to: u32, bytes: u64) -> Duration {
    let listener = network.within(to, || TcpListener::bind((network.address(to), 0))).unwrap();
    let listener = listener.unwrap();
    let at = listener.local_addr().unwrap();
    // A connection belongs to the network in which it was made, whoever uses it.
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
    let network = Network::make(&name, &[RATE, RATE, RATE / 5], ETHERNET_QUEUE).unwrap();
    Network::make(&name, &[RATE], ETHERNET_QUEUE).unwrap_err();

    // Never faster. It may be slower because the machine is busy; then it is tried again.
    let ideal = BYTES as f64 / RATE as f64;
    let is_near = |_| {
        let took = transfer(&network, 1, 2, BYTES).as_secs_f64();
        assert!(took > least(BYTES, RATE), "{took} s, {ideal} at the rate that is set");
        took < 3.0 * ideal
    };
    assert!((0..TRIES).any(is_near));
    let (from, to) = (network.counts(1).unwrap(), network.counts(2).unwrap());
    assert!(from.out_bytes >= BYTES && to.in_bytes >= BYTES, "{from:?} {to:?}");
    assert!(from.in_bytes < from.out_bytes / 4, "{from:?}");
    assert!(to.out_bytes < to.in_bytes / 4, "{to:?}");

    // Both directions at once take less time than one after the other: links are full duplex.
    let are_at_once = |_| {
        let both = scope(|scope| {
            let there = scope.spawn(|| transfer(&network, 1, 2, BYTES));
            let back = transfer(&network, 2, 1, BYTES);
            there.join().unwrap().max(back).as_secs_f64()
        });
        assert!(both > least(BYTES, RATE), "{both}");
        both < 2.0 * least(BYTES, RATE)
    };
    assert!((0..TRIES).any(are_at_once));
    // The slower link counts.
    let slow = transfer(&network, 1, 3, BYTES / 4).as_secs_f64();
    assert!(slow > least(BYTES / 4, RATE / 5), "{slow}");

    // TCP uses a loss-based algorithm, whatever this machine is set to.
    let routes = network.command(1, OsStr::new("ip")).arg("route").output().unwrap();
    assert!(String::from_utf8_lossy(&routes.stdout).contains("congctl cubic"), "{routes:?}");

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
    let network = Network::make(&name, &[RATE], ETHERNET_QUEUE).unwrap();
    let (stopped, begin) = (AtomicBool::new(false), Instant::now());
    let counted = || network.counts(1).unwrap().out_bytes;
    let came = scope(|scope| {
        let sender = scope.spawn(|| send_through(&network, 1, RATE / 2, &stopped));
        while counted() < RATE && begin.elapsed() < PATIENCE {
            sleep(Duration::from_millis(20));
        }
        stopped.store(true, Relaxed);
        sender.join().unwrap().unwrap()
    });
    let (counted, seconds) = (counted(), begin.elapsed().as_secs_f64());
    assert!(counted >= came && counted >= RATE, "{came} came, {counted} by the kernel's count");
    // Some pieces are under way at once.
    let most = (RATE / 2) as f64 * seconds + (1 << 20) as f64;
    assert!(came > 0 && (came as f64) < most, "{came} in {seconds} s");
}

#[test]
fn links_of_myrinet_lose_nothing_that_those_of_ethernet_lose() {
    if let Some(what) = missing_for_networks() {
        println!("skipped: needs {what}");
        return;
    }
    // All send to one node: more than the queue of an Ethernet link holds.
    let lost = |kind: &str, queue_bytes| {
        let name = format!("weir-{kind}{}", std::process::id());
        let network =
            Network::make(&name, &[8 * RATE, 8 * RATE, 8 * RATE, RATE], queue_bytes).unwrap();
        scope(|scope| {
            let network = &network;
            (1..=3).for_each(|from| _ = scope.spawn(move || transfer(network, from, 4, 2 << 20)));
        });
        let mut tc = network.command(0, OsStr::new("tc"));
        let said = tc.args(["-s", "-j", "qdisc", "show", "dev", "node4"]).output().unwrap();
        let said: serde_json::Value = serde_json::from_slice(&said.stdout).unwrap();
        said[0]["drops"].as_u64().unwrap()
    };
    assert!(lost("e", ETHERNET_QUEUE / 8) > 0);
    assert_eq!(lost("m", MYRINET_QUEUE), 0);
}

#[test]
fn all_nodes_send_by_the_rule_that_is_set() {
    if let Some(what) = missing_for_delays() {
        println!("skipped: needs {what}");
        return;
    }
    let name = format!("weir-r{}", std::process::id());
    let network = Network::make(&name, &[RATE; 2], ETHERNET_QUEUE).unwrap();
    let rule = |node| {
        let read = || std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control");
        network.within(node, read).unwrap().unwrap().trim().to_owned()
    };
    network.congestion("reno").unwrap();
    assert_eq!([rule(1), rule(2)], ["reno", "reno"]);
    let refused = network.congestion("none-such").unwrap_err().to_string();
    assert!(refused.contains("none-such") && refused.contains("reno"), "{refused}");
}

#[test]
fn what_passes_a_link_with_a_delay_takes_it_each_way_and_comes_whole() {
    if let Some(what) = missing_for_delays() {
        println!("skipped: needs {what}");
        return;
    }
    let name = format!("weir-d{}", std::process::id());
    let network = Network::make(&name, &[100 * RATE; 2], ETHERNET_QUEUE).unwrap();
    let link = network.delay(1, 100 * RATE, ETHERNET_QUEUE).unwrap();
    let listener = network.within(2, || TcpListener::bind((network.address(2), 0))).unwrap();
    let listener = listener.unwrap();
    let at = listener.local_addr().unwrap();
    let mut near = network.within(1, || TcpStream::connect(at)).unwrap().unwrap();
    let (mut far, _) = listener.accept().unwrap();
    near.set_nodelay(true).unwrap();
    far.set_nodelay(true).unwrap();
    let mut byte = [0];
    let mut there_and_back = || {
        let begin = Instant::now();
        near.write_all(&[7]).unwrap();
        far.read_exact(&mut byte).unwrap();
        far.write_all(&byte).unwrap();
        near.read_exact(&mut byte).unwrap();
        begin.elapsed()
    };
    let both = Duration::from_millis(60);
    link.set(both / 2);
    assert!(there_and_back() >= both);
    let sent: Vec<u8> =
        (0..BYTES as u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let came = scope(|scope| {
        scope.spawn(|| near.write_all(&sent).unwrap());
        let mut came = vec![0; sent.len()];
        far.read_exact(&mut came).unwrap();
        came
    });
    assert!(came == sent);
    assert!(network.counts(1).unwrap().out_bytes >= BYTES);
}
