//! How many events a simulation does in a second of a processor:
//! `cargo run --release -p weir-simhost --example speed`.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)] // It measures, in real time.

use std::io::IoSlice;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_host::net::{Events, Interest, Poller, Socket};
use weir_host::sync::{Condvar, Mutex};
use weir_host::thread;
use weir_simhost::disk::SimDisk;
use weir_simhost::{Options, Simulation};

const EVENTS: u64 = 5_000_000;

fn measure(what: &str, start: impl FnOnce(&mut Simulation)) {
    let mut sim = Simulation::new(1, Options::default());
    start(&mut sim);
    let begin = Instant::now();
    while sim.events() < EVENTS && sim.step() {}
    let took = begin.elapsed().as_secs_f64();
    println!(
        "{what}: {:.2} million events/s, {:.1} simulated seconds/s, {:.0} MB/s sent, trace {:016x}",
        sim.events() as f64 / took / 1e6,
        sim.now().as_secs_f64() / took,
        sim.network().sent_bytes() as f64 / took / 1e6,
        sim.trace_hash(),
    );
}

fn sleepers(sim: &mut Simulation) {
    let node = sim.node("a", SimDisk::new(1));
    for i in 0..100 {
        sim.start(node, "sleeper", move || {
            loop {
                thread::sleep(Duration::from_micros(900 + i));
            }
        });
    }
}

fn hand_over(sim: &mut Simulation) {
    let node = sim.node("a", SimDisk::new(1));
    for _ in 0..10 {
        sim.start(node, "pair", move || {
            let shared = Arc::new((Mutex::new(0u64), Condvar::new()));
            let turn = |own: u64| {
                let shared = shared.clone();
                move || loop {
                    let mut value = shared.0.lock();
                    while *value % 2 != own {
                        value = shared.1.wait_timeout(value, Duration::from_secs(1));
                    }
                    *value += 1;
                    drop(value);
                    shared.1.notify_one();
                }
            };
            drop(thread::spawn("other", turn(1)));
            turn(0)();
        });
    }
}

fn ping_pong(sim: &mut Simulation, bytes: usize) {
    let node = sim.node("server", SimDisk::new(1));
    sim.start(node, "server", move || {
        let listener = Socket::listen_simulated("0.0.0.0:7").unwrap().unwrap();
        let (poller, mut events) = (Poller::new().unwrap(), Events::with_capacity(64));
        poller.add_socket(&listener, 0, Interest::READ).unwrap();
        let mut sockets = Vec::new();
        let mut buffer = vec![0; 1 << 20];
        loop {
            poller.wait(&mut events, Duration::from_secs(1)).unwrap();
            for event in events.list() {
                if event.token == 0 {
                    let socket = listener.accept().unwrap();
                    sockets.push(socket);
                    let socket = sockets.last().unwrap();
                    poller.add_socket(socket, sockets.len() as u64, Interest::READ).unwrap();
                } else {
                    let socket = &sockets[event.token as usize - 1];
                    let count = socket.receive_one(&mut buffer).unwrap();
                    socket.send(&[IoSlice::new(&buffer[..count])], false).unwrap();
                }
            }
        }
    });
    for i in 0..20 {
        let node = sim.node(&format!("client{i}"), SimDisk::new(i));
        sim.start(node, "client", move || {
            thread::sleep(Duration::from_millis(1));
            let socket = Socket::connect_simulated("server:7").unwrap().unwrap();
            socket.wait(Interest::WRITE, Duration::from_secs(9), None).unwrap();
            let mut buffer = vec![1; bytes];
            loop {
                socket.send(&[IoSlice::new(&buffer)], false).unwrap();
                let mut received = 0;
                while received < bytes {
                    socket.wait(Interest::READ, Duration::from_secs(9), None).unwrap();
                    received += socket.receive_one(&mut buffer).unwrap();
                }
            }
        });
    }
}

fn main() {
    measure("100 sleepers", sleepers);
    measure("20 threads that hand a value over", hand_over);
    measure("20 clients, messages of 100 bytes", |sim| ping_pong(sim, 100));
    measure("20 clients, messages of 32 KiB", |sim| ping_pong(sim, 32 << 10));
}
