//! The journal on real processes of etcd.
#![allow(clippy::unwrap_used)] // A panic is how a test fails.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rustix::process::{Pid, Signal, kill_process};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use weir_etcd::{EtcdJournal, LEASE_S};
use weir_metastore::journal_conformance::{Pair, run, run_without_id};
use weir_metastore::{Batch, Begun, Journal, MAX_BATCH_BYTES, Sequence};
use weir_types::ErrorKind;

/// Processes of etcd, killed when the test ends.
struct Etcd {
    members: Vec<Child>,
    endpoints: Vec<String>,
    _dir: TempDir,
}

impl Etcd {
    /// `None` where etcd is not installed.
    fn start(members: usize) -> Option<Self> {
        Self::start_with(members, &[])
    }

    /// As [`Etcd::start`], with more arguments.
    fn start_with(members: usize, more: &[&str]) -> Option<Self> {
        let urls = |ports: Vec<u16>| -> Vec<String> {
            ports.iter().map(|port| format!("http://127.0.0.1:{port}")).collect()
        };
        let (clients, peers) = (urls(free_ports(members)), urls(free_ports(members)));
        let dir = tempfile::tempdir().unwrap();
        Self::start_at(dir, clients.clone(), clients, peers, more)
    }

    /// As [`Etcd::start`], with sockets in a directory whose path is longer than an address of a
    /// socket.
    fn start_by_sockets(members: usize) -> Option<Self> {
        let dir = tempfile::Builder::new().prefix(&"long".repeat(40)).tempdir().unwrap();
        let names = |of: &str| (0..members).map(|n| format!("{of}-{n}:1")).collect::<Vec<_>>();
        let urls = |of| names(of).iter().map(|name| format!("unix://{name}")).collect();
        let socket = |name: &String| format!("unix:{}", dir.path().join(name).display());
        let endpoints = names("client").iter().map(socket).collect();
        Self::start_at(dir, endpoints, urls("client"), urls("peer"), &[])
    }

    fn start_at(
        dir: TempDir,
        endpoints: Vec<String>,
        clients: Vec<String>,
        peers: Vec<String>,
        more: &[&str],
    ) -> Option<Self> {
        if Command::new("etcd").arg("--version").stdout(Stdio::null()).status().is_err() {
            eprintln!("skipped: needs etcd");
            return None;
        }
        let cluster: Vec<String> =
            peers.iter().enumerate().map(|(n, peer)| format!("m{n}={peer}")).collect();
        let start = |n: usize| {
            let data = dir.path().join(format!("m{n}"));
            let mut command = Command::new("etcd");
            command
                .current_dir(dir.path())
                .args(["--name", &format!("m{n}"), "--data-dir", data.to_str().unwrap()])
                .args(["--listen-client-urls", &clients[n], "--advertise-client-urls", &clients[n]])
                .args(["--listen-peer-urls", &peers[n], "--initial-advertise-peer-urls", &peers[n]])
                .args(["--initial-cluster", &cluster.join(","), "--log-level", "error"]);
            command.args(more).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
        };
        let members = (0..clients.len()).map(start).collect();
        let etcd = Self { members, endpoints, _dir: dir };
        eventually("etcd answers", || etcd.journal([0; 16]).head().is_ok());
        Some(etcd)
    }

    fn journal(&self, cluster: [u8; 16]) -> EtcdJournal {
        EtcdJournal::new(&self.endpoints, cluster).unwrap()
    }

    fn delete(&self, key: &str) {
        let body = serde_json::json!({"key": BASE64_STANDARD.encode(key)}).to_string();
        let url = format!("{}/v3/kv/deleterange", self.endpoints[0]);
        let mut reply = ureq::post(&url).send(body.as_str()).unwrap();
        let told = reply.body_mut().read_to_string().unwrap();
        assert!(told.contains("\"deleted\":\"1\""), "{told}");
    }

    fn signal(&self, member: usize, signal: Signal) {
        let pid = Pid::from_child(&self.members[member]);
        kill_process(pid, signal).unwrap();
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        for member in &mut self.members {
            let _ = member.kill();
            let _ = member.wait();
        }
    }
}

fn free_ports(count: usize) -> Vec<u16> {
    let held: Vec<_> = (0..count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    held.iter().map(|listener| listener.local_addr().unwrap().port()).collect()
}

fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(60), "not within a minute: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn batch(last: u64, bytes: usize) -> Batch {
    Batch { last: Sequence(last), records: vec![last as u8; bytes] }
}

/// How a log is begun behind an operation.
fn begun(at: u64) -> Begun {
    Begun { id: [at as u8 + 1; 16], at: Sequence(at), from: None, adopted: false }
}

#[test]
fn etcd_is_a_journal() {
    let Some(etcd) = Etcd::start(1) else { return };
    let (a, b) = (etcd.journal([1; 16]), etcd.journal([1; 16]));
    // The lease expires without renewal.
    let ended = || {
        eventually("the lease ends", || etcd.journal([1; 16]).leader().unwrap().is_none());
    };
    run(&Pair { a, b }, ended);
    // Another cluster has a journal of its own.
    assert_eq!(etcd.journal([2; 16]).head().unwrap(), None);
    let (a, b) = (etcd.journal([2; 16]), etcd.journal([2; 16]));
    run_without_id(&Pair { a, b }, || etcd.delete(&format!("/weir/{}/begun", "02".repeat(16))));
}

#[test]
fn the_largest_batches_are_taken_and_read_again() {
    let Some(etcd) = Etcd::start(1) else { return };
    largest_batches(&etcd);
}

#[test]
fn etcd_is_reached_by_sockets_and_one_that_hangs_or_is_gone_is_left_for_another() {
    let Some(mut etcd) = Etcd::start_by_sockets(3) else { return };
    largest_batches(&etcd);
    let journal = etcd.journal([2; 16]);
    journal.acquire("a", Some(begun(0))).unwrap().unwrap();
    let append = |last: u64| {
        // An election in etcd may take longer than a renewal waits.
        let _ = journal.renew();
        journal.append(Sequence(last - 1), &batch(last, 100)).unwrap();
    };
    append(1);
    etcd.signal(0, Signal::STOP);
    append(2);
    etcd.signal(0, Signal::CONT);
    append(3);
    etcd.members[1].kill().unwrap();
    etcd.members[1].wait().unwrap();
    append(4);
    assert_eq!(etcd.journal([2; 16]).head().unwrap(), Some(Sequence(4)));
}

fn largest_batches(etcd: &Etcd) {
    let journal = etcd.journal([1; 16]);
    journal.acquire("a", Some(begun(0))).unwrap().unwrap();
    for last in 1..=20 {
        journal.append(Sequence(last - 1), &batch(last, MAX_BATCH_BYTES)).unwrap();
        journal.renew().unwrap();
    }
    let mut after = Sequence::ZERO;
    while let Some(last) = journal.read(after).unwrap().last() {
        assert_eq!(*last, batch(last.last.0, MAX_BATCH_BYTES));
        after = last.last;
    }
    assert_eq!(after, Sequence(20));
}

#[test]
fn a_lead_lasts_as_long_as_it_is_renewed_and_ends_here_before_it_ends_in_etcd() {
    let Some(etcd) = Etcd::start(1) else { return };
    let (a, b) = (etcd.journal([1; 16]), etcd.journal([1; 16]));
    a.acquire("a", Some(begun(0))).unwrap().unwrap();
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(2 * LEASE_S) {
        a.renew().unwrap();
        a.check().unwrap();
        assert_eq!(b.acquire("b", None).unwrap(), None);
        std::thread::sleep(Duration::from_millis(200));
    }
    eventually("the other one leads", || b.acquire("b", None).unwrap().is_some());
    assert!(a.check().is_err() && a.renew().is_err());
    assert!(a.append(Sequence(0), &batch(1, 10)).is_err());
    b.append(Sequence(0), &batch(1, 10)).unwrap();
}

#[test]
fn appends_go_on_when_a_member_of_etcd_is_killed_or_stopped_and_none_is_lost() {
    let Some(etcd) = Etcd::start(3) else { return };
    let journal = etcd.journal([1; 16]);
    eventually("etcd has a leader", || {
        journal.acquire("a", Some(begun(0))).is_ok_and(|t| t.is_some())
    });
    let mut last = 0;
    let mut append = |count: u64| {
        for _ in 0..count {
            // An election in etcd may take longer than a renewal waits. The lead survives that.
            let _ = journal.renew();
            journal.append(Sequence(last), &batch(last + 1, 100)).unwrap();
            last += 1;
        }
        last
    };
    append(20);
    etcd.signal(0, Signal::STOP);
    append(20);
    etcd.signal(0, Signal::CONT);
    append(20);
    etcd.signal(1, Signal::KILL);
    let last = append(20);
    let mut after = Sequence::ZERO;
    let mut found = 0;
    while let Some(end) = journal.read(after).unwrap().last() {
        found += journal.read(after).unwrap().len() as u64;
        after = end.last;
    }
    assert_eq!((after, found), (Sequence(last), last));
}

#[test]
fn without_a_quorum_the_lead_ends_and_nothing_is_confirmed() {
    let Some(etcd) = Etcd::start(3) else { return };
    let journal = etcd.journal([1; 16]);
    eventually("etcd has a leader", || {
        journal.acquire("a", Some(begun(0))).is_ok_and(|t| t.is_some())
    });
    journal.append(Sequence(0), &batch(1, 10)).unwrap();
    etcd.signal(0, Signal::STOP);
    etcd.signal(1, Signal::STOP);
    assert!(journal.append(Sequence(1), &batch(2, 10)).is_err());
    assert!(journal.check().is_err());
    etcd.signal(0, Signal::CONT);
    etcd.signal(1, Signal::CONT);
    // An append without a reply may have happened or not. It never happened twice or in part.
    let other = etcd.journal([1; 16]);
    eventually("another one leads", || other.acquire("b", None).is_ok_and(|t| t.is_some()));
    let all = other.read(Sequence::ZERO).unwrap();
    assert_eq!(other.head().unwrap(), all.last().map(|batch| batch.last));
    assert!(all == [batch(1, 10)] || all == [batch(1, 10), batch(2, 10)]);
}

#[test]
fn what_was_cut_takes_no_room_once_the_leader_has_compacted() {
    let Some(etcd) = Etcd::start_with(1, &["--quota-backend-bytes", "33554432"]) else { return };
    let journal = etcd.journal([1; 16]);
    journal.acquire("a", Some(begun(0))).unwrap().unwrap();
    // Appends twice as much as etcd's quota in total, with little of it stored at a time.
    for last in 1..=1024 {
        journal.renew().unwrap();
        journal.append(Sequence(last - 1), &batch(last, 64 << 10)).unwrap();
        if last % 64 == 0 {
            journal.cut(Sequence(last - 8)).unwrap();
            journal.compact().unwrap();
        }
    }
    assert_eq!(journal.read(Sequence(1016)).unwrap().len(), 8);
}

#[test]
fn etcd_that_is_full_says_what_to_do_and_confirms_nothing_more() {
    let Some(etcd) = Etcd::start_with(1, &["--quota-backend-bytes", "16777216"]) else { return };
    let journal = etcd.journal([1; 16]);
    journal.acquire("a", Some(begun(0))).unwrap().unwrap();
    let mut last = 0;
    let error = loop {
        journal.renew().unwrap();
        match journal.append(Sequence(last), &batch(last + 1, MAX_BATCH_BYTES)) {
            Ok(()) => last += 1,
            Err(error) => break error,
        }
        assert!(last < 64, "it takes everything");
    };
    assert_eq!(error.kind, ErrorKind::NoSpace, "{error}");
    for word in ["full", "--quota-backend-bytes", "etcdctl alarm disarm"] {
        assert!(error.message.contains(word), "{error}");
    }
    assert!(journal.check().is_err(), "it leads no more");
    let other = etcd.journal([1; 16]);
    assert_eq!(other.head().unwrap(), Some(Sequence(last)), "what was confirmed is there");
}
