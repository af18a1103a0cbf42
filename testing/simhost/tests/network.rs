//! Streams, pollers and partitions on the simulated network.

use rustix::io::Errno;
use std::cell::{Cell, RefCell};
use std::io::IoSlice;
use std::rc::Rc;
use std::time::Duration;
use weir_host::net::{Events, Interest, Poller, Signal, Socket, Woken};
use weir_host::{clock, thread};
use weir_simhost::disk::SimDisk;
use weir_simhost::{NodeId, Options, Simulation};

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(3000);

fn two_nodes(seed: u64, options: Options) -> (Simulation, NodeId, NodeId) {
    let mut sim = Simulation::new(seed, options);
    let (a, b) = (sim.node("a", SimDisk::new(1)), sim.node("b", SimDisk::new(2)));
    (sim, a, b)
}

fn connect(address: &str) -> Result<Socket, Errno> {
    let socket = Socket::connect_simulated(address).unwrap()?;
    assert_eq!(socket.wait(Interest::WRITE, LONG, None), Ok(Woken::Ready));
    socket.take_error().map(|()| socket)
}

fn accept(listener: &Socket) -> Socket {
    assert_eq!(listener.wait(Interest::READ, LONG, None), Ok(Woken::Ready));
    listener.accept().unwrap()
}

fn listen() -> Socket {
    Socket::listen_simulated("0.0.0.0:7").unwrap().unwrap()
}

struct Peer {
    socket: Socket,
    unsent: Vec<u8>,
    finished: bool,
}

/// Sends back what comes, for several connections, by edges or levels, until
/// the signal is raised.
fn echo_server(edge: bool, connections: usize) {
    let (listener, poller) = (listen(), Poller::new().unwrap());
    let mut peers: Vec<Option<Peer>> = Vec::new();
    let mut events = Events::with_capacity(4);
    let mut ended = 0;
    poller.add_socket(&listener, 0, Interest::READ).unwrap();
    while ended < connections {
        poller.wait(&mut events, LONG).unwrap();
        assert!(!events.list().is_empty(), "the server hangs");
        for event in events.list() {
            if event.token == 0 {
                let socket = listener.accept().unwrap();
                let interest = if edge { Interest::EDGES } else { Interest::READ };
                poller.add_socket(&socket, peers.len() as u64 + 1, interest).unwrap();
                peers.push(Some(Peer { socket, unsent: Vec::new(), finished: false }));
                continue;
            }
            let slot = &mut peers[event.token as usize - 1];
            let peer = slot.as_mut().unwrap();
            echo(peer, edge);
            if !edge {
                let interest = Interest {
                    readable: !peer.finished && peer.unsent.is_empty(),
                    writable: !peer.unsent.is_empty(),
                    edge: false,
                };
                poller.modify_socket(&peer.socket, event.token, interest).unwrap();
            }
            if peer.finished && peer.unsent.is_empty() {
                *slot = None;
                ended += 1;
            }
        }
    }
}

fn echo(peer: &mut Peer, drain: bool) {
    let mut bytes = [0; 5000];
    loop {
        while !peer.unsent.is_empty() {
            match peer.socket.send(&[IoSlice::new(&peer.unsent)], false) {
                Ok(n) => drop(peer.unsent.drain(..n)),
                Err(e) => {
                    assert_eq!(e, Errno::AGAIN);
                    return;
                }
            }
        }
        match peer.socket.receive_one(&mut bytes) {
            Ok(0) => peer.finished = true,
            Ok(n) => peer.unsent.extend_from_slice(&bytes[..n]),
            Err(e) => {
                assert_eq!(e, Errno::AGAIN);
                return;
            }
        }
        if peer.finished || (!drain && peer.unsent.is_empty()) {
            return;
        }
    }
}

/// Sends random bytes in random portions and expects them back.
fn echo_client(seed: u64, total: usize) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let sent: Vec<u8> = std::iter::repeat_with(|| rng.u8(..)).take(total).collect();
    let (mut out, mut back) = (0, Vec::new());
    let socket = connect("a:7").unwrap();
    let mut bytes = vec![0; 70_000];
    while back.len() < total {
        if out < total {
            let end = total.min(out + rng.usize(1..100_000));
            match socket.send(&[IoSlice::new(&sent[out..end])], false) {
                Ok(n) => out += n,
                Err(e) => assert_eq!(e, Errno::AGAIN, "seed {seed}"),
            }
            if out == total {
                socket.shut_down().unwrap();
            }
        }
        match socket.receive_one(&mut bytes) {
            Ok(0) => panic!("seed {seed}: the stream ended after {}", back.len()),
            Ok(n) => back.extend_from_slice(&bytes[..n]),
            Err(Errno::AGAIN) => {
                let interest = Interest { readable: true, writable: out < total, edge: false };
                assert_eq!(socket.wait(interest, LONG, None), Ok(Woken::Ready), "seed {seed}");
            }
            Err(e) => panic!("seed {seed}: {e}"),
        }
    }
    assert!(sent == back, "seed {seed}: bytes differ");
    socket.wait(Interest::READ, LONG, None).unwrap();
    assert_eq!(socket.receive_one(&mut bytes), Ok(0));
}

#[test]
fn a_mebibyte_comes_back_unharmed_from_an_echo_server() {
    for seed in 0..20 {
        let split_ppm = if seed % 3 == 0 { 900_000 } else { 100_000 };
        let (mut sim, a, b) = two_nodes(seed, Options { split_ppm, ..Options::default() });
        let server = sim.start(a, "server", move || echo_server(seed % 2 == 0, 3));
        for client in 0..3 {
            sim.start(b, "client", move || {
                thread::sleep(MS);
                echo_client(seed * 10 + client, if client == 0 { 1 << 20 } else { 50_000 });
            });
        }
        let over = sim.run_until(LONG / 2, |sim| !sim.is_running(server));
        assert!(over, "seed {seed}: {:#?}", sim.threads());
        sim.run_for(SECOND);
        assert!(sim.panics().is_empty(), "{:?}", sim.panics());
        assert_eq!(sim.network().connections(), 0);
    }
}

/// Answers each byte with a byte.
fn ping_server() {
    let listener = listen();
    loop {
        let socket = accept(&listener);
        drop(thread::spawn("connection", move || {
            let mut bytes = [0; 10];
            loop {
                match socket.receive_one(&mut bytes) {
                    Ok(0) => return,
                    Ok(n) => drop(socket.send(&[IoSlice::new(&bytes[..n])], false)),
                    Err(Errno::AGAIN) => drop(socket.wait(Interest::READ, LONG, None)),
                    Err(_) => return,
                }
            }
        }));
    }
}

/// Pings until the connection fails; keeps the time of each reply.
fn pinger(log: Rc<RefCell<Vec<Duration>>>, end: Rc<Cell<Option<Errno>>>) {
    thread::sleep(MS);
    let socket = connect("a:7").unwrap();
    loop {
        if let Err(e) = socket.send(&[IoSlice::new(b"x")], false) {
            end.set(Some(e));
            return;
        }
        socket.wait(Interest::READ, LONG, None).unwrap();
        match socket.receive_one(&mut [0; 10]) {
            Ok(_) => log.borrow_mut().push(clock::uptime()),
            Err(e) => {
                end.set(Some(e));
                return;
            }
        }
        thread::sleep(MS);
    }
}

struct Pings {
    sim: Simulation,
    a: NodeId,
    b: NodeId,
    log: Rc<RefCell<Vec<Duration>>>,
    end: Rc<Cell<Option<Errno>>>,
}

fn start_pings(seed: u64) -> Pings {
    let (mut sim, a, b) = two_nodes(seed, Options::default());
    let (log, end) = (Rc::default(), Rc::new(Cell::new(None)));
    sim.start(a, "server", ping_server);
    let (seen, ended) = (Rc::clone(&log), end.clone());
    sim.start(b, "client", move || pinger(seen, ended));
    sim.run_for(SECOND);
    assert!(log.borrow().len() > 100);
    Pings { sim, a, b, log, end }
}

impl Pings {
    fn replies_in(&mut self, time: Duration) -> usize {
        let before = self.log.borrow().len();
        self.sim.run_for(time);
        self.log.borrow().len() - before
    }
}

#[test]
fn a_partition_holds_messages_and_healing_lets_them_go_on() {
    for (seed, one_way) in [(1, false), (2, true), (3, true)] {
        let mut pings = start_pings(seed);
        if one_way {
            let (from, to) = if seed == 2 { (pings.a, pings.b) } else { (pings.b, pings.a) };
            pings.sim.network().partition_one_way(from, to, true);
        } else {
            pings.sim.network().partition(pings.a, pings.b, true);
        }
        // One reply may have arrived already.
        assert!(pings.replies_in(10 * SECOND) <= 1);
        pings.sim.network().heal_all();
        assert!(pings.replies_in(SECOND) > 100);
        assert_eq!(pings.end.get(), None);
    }
}

#[test]
fn a_connection_made_during_a_partition_stands_when_it_is_healed() {
    let (mut sim, a, b) = two_nodes(1, Options::default());
    sim.start(a, "server", ping_server);
    sim.run_for(SECOND);
    sim.network().isolate(b, true);
    let connected = Rc::new(Cell::new(false));
    let seen = connected.clone();
    sim.start(b, "client", move || seen.set(connect("a:7").is_ok()));
    sim.run_for(10 * SECOND);
    assert!(!connected.get());
    sim.network().isolate(b, false);
    sim.run_for(SECOND);
    assert!(connected.get());
}

#[test]
fn a_broken_connection_is_reset_at_both_ends() {
    let mut pings = start_pings(1);
    assert_eq!(pings.sim.network().break_connections(pings.b, pings.a), 1);
    assert_eq!(pings.replies_in(SECOND), 0);
    assert!(matches!(pings.end.get(), Some(Errno::CONNRESET | Errno::PIPE)));
    assert_eq!(pings.sim.network().connections(), 0);
}

#[test]
fn a_black_hole_swallows_a_connection_for_ever_but_no_new_one() {
    let mut pings = start_pings(1);
    assert_eq!(pings.sim.network().black_hole(pings.a, pings.b), 1);
    assert!(pings.replies_in(100 * SECOND) <= 1);
    assert_eq!(pings.end.get(), None);
    let (log, end) = (pings.log.clone(), pings.end.clone());
    pings.sim.start(pings.b, "again", move || pinger(log, end));
    assert!(pings.replies_in(SECOND) > 100);
}

#[test]
fn connections_break_by_chance_if_they_are_told_to() {
    let mut pings = start_pings(1);
    pings.sim.network().set_reset_rate(100_000);
    pings.replies_in(SECOND);
    assert!(pings.end.get().is_some());
}

#[test]
fn delays_of_links_are_kept() {
    let mut pings = start_pings(1);
    let network = pings.sim.network();
    network.set_link_delay(pings.a, pings.b, Some(40 * MS..41 * MS));
    network.set_extra_delay(pings.b, pings.a, 10 * MS);
    let replies = pings.replies_in(10 * SECOND);
    assert!((150..210).contains(&replies), "{replies}");
}

#[test]
fn nobody_answers_at_names_and_ports_that_are_not_there() {
    let (mut sim, a, _) = two_nodes(1, Options::default());
    let process = sim.start(a, "client", || {
        assert_eq!(Socket::connect_simulated("c:1").unwrap().unwrap_err(), Errno::HOSTUNREACH);
        assert_eq!(connect("b:1").unwrap_err(), Errno::CONNREFUSED);
        assert_eq!(connect("127.0.0.1:1").unwrap_err(), Errno::CONNREFUSED);
        let other = Socket::listen_simulated("b:1").unwrap();
        assert_eq!(other.unwrap_err(), Errno::ADDRNOTAVAIL);
        let listener = Socket::listen_simulated("127.0.0.1:0").unwrap().unwrap();
        let address = listener.simulated_address().unwrap();
        assert!(address.starts_with("a:"), "{address}");
        assert!(Socket::listen_simulated(&address).unwrap().is_err());
        let client = connect(&address).unwrap();
        let server = accept(&listener);
        assert_eq!(listener.accept().unwrap_err(), Errno::AGAIN);
        server.send(&[IoSlice::new(b"last "), IoSlice::new(b"words")], false).unwrap();
        drop(server);
        // All that was sent arrives before the end.
        let mut all = Vec::new();
        loop {
            client.wait(Interest::READ, LONG, None).unwrap();
            let mut bytes = [0; 3];
            match client.receive_one(&mut bytes).unwrap() {
                0 => break,
                n => all.extend_from_slice(&bytes[..n]),
            }
        }
        assert_eq!(all, b"last words");
        drop(listener);
        assert_eq!(connect(&address).unwrap_err(), Errno::CONNREFUSED);
    });
    assert!(sim.run_until(LONG, |sim| !sim.is_running(process)));
    assert!(sim.panics().is_empty(), "{:?}", sim.panics());
}

#[test]
fn a_sender_finds_no_room_until_the_receiver_takes_some() {
    let (mut sim, a, b) = two_nodes(1, Options::default());
    sim.start(a, "server", || {
        let socket = accept(&listen());
        thread::sleep(10 * SECOND);
        while socket.receive_one(&mut [0; 4096]) != Ok(0) {
            socket.wait(Interest::READ, LONG, None).unwrap();
        }
    });
    let client = sim.start(b, "client", || {
        thread::sleep(MS);
        let socket = connect("a:7").unwrap();
        let piece = [7; 10_000];
        let mut sent = 0;
        while let Ok(n) = socket.send(&[IoSlice::new(&piece)], false) {
            sent += n;
        }
        assert!((64 << 10..=256 << 10).contains(&sent), "{sent}");
        assert_eq!(socket.send(&[IoSlice::new(&piece)], false), Err(Errno::AGAIN));
        assert_eq!(socket.wait(Interest::WRITE, SECOND, None), Ok(Woken::TimeOver));
        assert_eq!(socket.wait(Interest::WRITE, LONG, None), Ok(Woken::Ready));
        assert!(socket.send(&[IoSlice::new(&piece)], false).is_ok());
    });
    assert!(sim.run_until(LONG, |sim| !sim.is_running(client)));
    assert!(sim.panics().is_empty(), "{:?}", sim.panics());
}

#[test]
fn pollers_tell_edges_once_and_levels_as_long_as_they_last() {
    let (mut sim, a, _) = two_nodes(1, Options::default());
    let process = sim.start(a, "p", || {
        let listener = listen();
        let (client, server) = (connect("a:7").unwrap(), accept(&listener));
        let (edges, levels) = (Poller::new().unwrap(), Poller::new().unwrap());
        let mut events = Events::with_capacity(8);
        edges.add_socket(&server, 1, Interest::EDGES).unwrap();
        edges.wait(&mut events, SECOND).unwrap();
        let first = events.list()[0];
        assert_eq!((first.token, first.readable, first.writable), (1, false, true));
        edges.wait(&mut events, MS).unwrap();
        assert!(events.list().is_empty());
        assert_eq!(edges.add_socket(&server, 1, Interest::READ), Err(Errno::EXIST));
        assert_eq!(levels.modify_socket(&server, 1, Interest::READ), Err(Errno::NOENT));
        levels.add_socket(&server, 2, Interest::READ).unwrap();
        for _ in 0..2 {
            client.send(&[IoSlice::new(b"x")], false).unwrap();
            edges.wait(&mut events, SECOND).unwrap();
            assert!(events.list()[0].readable);
            edges.wait(&mut events, MS).unwrap();
            assert!(events.list().is_empty(), "an edge was told twice");
            for _ in 0..3 {
                levels.wait(&mut events, SECOND).unwrap();
                assert_eq!((events.list()[0].token, events.list()[0].writable), (2, false));
            }
        }
        assert_eq!(server.receive_one(&mut [0; 8]), Ok(2));
        levels.wait(&mut events, MS).unwrap();
        assert!(events.list().is_empty());
        levels.modify_socket(&server, 3, Interest::NONE).unwrap();
        client.shut_down().unwrap();
        edges.wait(&mut events, SECOND).unwrap();
        assert!(events.list()[0].hangup && events.list()[0].readable);
        levels.wait(&mut events, MS).unwrap();
        assert!(events.list().is_empty(), "told of what it did not ask for");
        drop(server);
        edges.wait(&mut events, MS).unwrap();
        assert!(events.list().is_empty(), "told of a socket that is closed");
    });
    assert!(sim.run_until(LONG, |sim| !sim.is_running(process)));
    assert!(sim.panics().is_empty(), "{:?}", sim.panics());
}

#[test]
fn signals_end_waits_of_threads_and_pollers() {
    let (mut sim, a, _) = two_nodes(1, Options::default());
    let process = sim.start(a, "p", || {
        let signal = Signal::new().unwrap();
        assert_eq!(signal.wait(Some(MS)), Ok(false));
        let other = signal.clone();
        let raiser = thread::spawn("raiser", move || {
            thread::sleep(SECOND);
            other.raise();
        });
        let poller = Poller::new().unwrap();
        let mut events = Events::with_capacity(1);
        poller.add_signal(&signal, 9).unwrap();
        for _ in 0..2 {
            poller.wait(&mut events, LONG).unwrap();
            assert_eq!(events.list()[0].token, 9);
        }
        assert_eq!(signal.wait(None), Ok(true));
        signal.clear();
        poller.wait(&mut events, Duration::ZERO).unwrap();
        assert!(events.list().is_empty());
        raiser.unwrap().join().unwrap();
    });
    assert!(sim.run_until(LONG, |sim| !sim.is_running(process)));
    assert!(sim.panics().is_empty(), "{:?}", sim.panics());
}

fn trace_of(seed: u64) -> (u64, u64) {
    let mut pings = start_pings(seed);
    pings.sim.network().partition(pings.a, pings.b, true);
    pings.sim.run_for(SECOND);
    pings.sim.network().heal_all();
    pings.sim.run_for(SECOND);
    (pings.sim.trace_hash(), pings.sim.events())
}

#[test]
fn equal_seeds_make_equal_histories_and_others_do_not() {
    let first: Vec<_> = (0..10).map(trace_of).collect();
    let second: Vec<_> = (0..10).map(trace_of).collect();
    assert_eq!(first, second);
    let mut hashes: Vec<_> = first.iter().map(|(hash, _)| *hash).collect();
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), 10);
}
