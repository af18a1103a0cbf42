//! Processes that are killed, stopped and lose their power.

use rustix::io::Errno;
use std::cell::{Cell, RefCell};
use std::io::IoSlice;
use std::rc::Rc;
use std::time::Duration;
use weir_host::fs::{Directory, OpenHow};
use weir_host::net::{Interest, Socket};
use weir_host::thread;
use weir_simhost::disk::SimDisk;
use weir_simhost::{Exit, Options, Simulation, Trace};

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

fn simulation(seed: u64) -> Simulation {
    Simulation::new(seed, Options::default())
}

fn open_root() -> Directory {
    Directory::open("/".as_ref()).unwrap()
}

/// Accepts one connection at port 1 and never answers.
fn silent_server() {
    let listener = Socket::listen_simulated("0.0.0.0:1").unwrap().unwrap();
    assert!(listener.wait(Interest::READ, 100 * SECOND, None).is_ok());
    let _connection = listener.accept().unwrap();
    thread::sleep(1000 * SECOND);
}

fn connect(address: &str, timeout: Duration) -> Result<Socket, Errno> {
    let socket = Socket::connect_simulated(address).unwrap()?;
    match socket.wait(Interest::WRITE, timeout, None)? {
        weir_host::net::Woken::Ready => socket.take_error().map(|()| socket),
        _ => Err(Errno::TIMEDOUT),
    }
}

/// Connects, sends a little or nothing and reports how the connection ends.
fn client_of(server: &'static str, sends: bool, seen: Rc<Cell<Option<Result<usize, Errno>>>>) {
    thread::sleep(10 * MS);
    let socket = connect(server, SECOND).unwrap();
    if sends {
        assert_eq!(socket.send(&[IoSlice::new(b"hello")], false), Ok(5));
    }
    socket.wait(Interest::READ, 500 * SECOND, None).unwrap();
    seen.set(Some(socket.receive_one(&mut [0; 10])));
}

#[test]
fn a_killed_process_leaves_its_peers_with_the_end_or_a_reset() {
    let mut ends = [0, 0];
    for seed in 0..40 {
        let mut sim = simulation(seed);
        let (a, b) = (sim.node("a", SimDisk::new(1)), sim.node("b", SimDisk::new(2)));
        let server = sim.start(a, "server", silent_server);
        let seen = Rc::new(Cell::new(None));
        let result = seen.clone();
        let client = sim.start(b, "client", move || client_of("a:1", seed % 4 == 0, result));
        sim.run_for(SECOND);
        assert!(seen.get().is_none());
        sim.kill(server);
        assert_eq!(sim.exit(server), Some(Exit::Killed));
        let over = sim.run_until(2 * SECOND, |sim| !sim.is_running(client));
        assert!(over, "seed {seed}: the client hangs");
        match seen.get().unwrap() {
            Ok(0) => ends[0] += 1,
            Err(Errno::CONNRESET) => ends[1] += 1,
            other => panic!("seed {seed}: {other:?}"),
        }
        assert_eq!(sim.network().connections(), 0);
    }
    assert!(ends[0] > 5 && ends[1] > 10, "{ends:?}");
}

#[test]
fn nobody_listens_after_a_kill_and_connecting_is_refused() {
    let mut sim = simulation(1);
    let node = sim.node("a", SimDisk::new(1));
    let other = sim.node("b", SimDisk::new(2));
    let server = sim.start(node, "server", silent_server);
    sim.run_for(SECOND);
    sim.kill(server);
    let refused = Rc::new(Cell::new(None));
    let seen = refused.clone();
    sim.start(other, "client", move || seen.set(Some(connect("a:1", SECOND).err())));
    sim.run_for(SECOND);
    assert_eq!(refused.get(), Some(Some(Errno::CONNREFUSED)));
    // Its port is free for the next one.
    let next = sim.start(node, "server", silent_server);
    sim.run_for(SECOND);
    assert!(sim.is_running(next));
}

#[test]
fn a_power_cut_is_silent_until_the_node_is_back() {
    for seed in 0..20 {
        let mut sim = simulation(seed);
        let (a, b) = (sim.node("a", SimDisk::new(1)), sim.node("b", SimDisk::new(2)));
        sim.start(a, "server", silent_server);
        let log = Rc::new(RefCell::new(Vec::new()));
        let (seen, late) = (log.clone(), log.clone());
        sim.start(b, "client", move || {
            thread::sleep(10 * MS);
            let socket = connect("a:1", SECOND).unwrap();
            thread::sleep(SECOND);
            // Into the void.
            assert_eq!(socket.send(&[IoSlice::new(b"hello")], false), Ok(5));
            socket.wait(Interest::READ, 500 * SECOND, None).unwrap();
            seen.borrow_mut().push(socket.receive_one(&mut [0; 10]));
        });
        sim.start(b, "late", move || {
            thread::sleep(SECOND);
            let refused = connect("a:1", 100 * SECOND).err();
            late.borrow_mut().push(Err(refused.unwrap()));
        });
        sim.run_for(SECOND / 2);
        sim.power_cut(a);
        assert!(sim.running_on(a).is_empty());
        sim.run_for(10 * SECOND);
        assert!(log.borrow().is_empty(), "seed {seed}: somebody heard something");
        sim.start(a, "other", || thread::sleep(100 * SECOND));
        sim.run_for(10 * SECOND);
        let mut seen = log.borrow().clone();
        seen.sort_by_key(|result| result.err().map(Errno::raw_os_error));
        let mut expected = [Err(Errno::CONNRESET), Err(Errno::CONNREFUSED)];
        expected.sort_by_key(|result: &Result<usize, _>| result.err().map(Errno::raw_os_error));
        assert_eq!(seen, expected, "seed {seed}");
    }
}

#[test]
fn a_power_cut_takes_what_was_not_synced_and_a_kill_does_not() {
    let write = || {
        let root = open_root();
        let file = root.open_file("f", OpenHow::CREATE).unwrap();
        file.write_full(b"data", 0).unwrap();
        thread::sleep(100 * SECOND);
    };
    let mut lost = 0;
    for seed in 0..20 {
        let mut sim = simulation(seed);
        let node = sim.node("a", SimDisk::new(seed));
        let process = sim.start(node, "p", write);
        sim.run_for(SECOND);
        sim.kill(process);
        assert_eq!(sim.disk(node).read_file("f").unwrap(), b"data");
        sim.power_cut(node);
        lost += u32::from(sim.disk(node).read_file("f").ok().as_deref() != Some(b"data"));
    }
    assert!(lost > 0);
}

#[test]
fn the_file_locks_of_a_killed_process_are_free() {
    let mut sim = simulation(1);
    let node = sim.node("a", SimDisk::new(1));
    let got = Rc::new(Cell::new(0));
    let locker = || {
        let got = got.clone();
        move || {
            if let Ok(_lock) = open_root().lock("lock") {
                got.set(got.get() + 1);
                thread::sleep(100 * SECOND);
            }
        }
    };
    let first = sim.start(node, "first", locker());
    sim.run_for(MS * 50);
    let second = sim.start(node, "second", locker());
    sim.run_for(MS * 50);
    assert_eq!((got.get(), sim.exit(second)), (1, Some(Exit::Returned)));
    sim.kill(first);
    sim.start(node, "third", locker());
    sim.run_for(MS * 50);
    assert_eq!(got.get(), 2);
}

#[test]
fn a_stopped_process_does_nothing_until_it_goes_on() {
    let mut sim = simulation(1);
    let node = sim.node("a", SimDisk::new(1));
    let count = Rc::new(Cell::new(0));
    let counter = count.clone();
    let process = sim.start(node, "p", move || {
        loop {
            thread::sleep(MS);
            counter.set(counter.get() + 1);
        }
    });
    sim.run_for(100 * MS);
    let before = count.get();
    assert!(before > 50);
    sim.stop(process);
    sim.run_for(SECOND);
    assert_eq!(count.get(), before);
    assert!(sim.is_running(process));
    sim.cont(process);
    sim.run_for(100 * MS);
    assert!(count.get() > before + 50);
}

#[test]
fn a_process_ends_with_its_main_thread() {
    let mut sim = simulation(1);
    let node = sim.node("a", SimDisk::new(1));
    let process = sim.start(node, "p", || {
        drop(thread::spawn("endless", || {
            loop {
                thread::sleep(MS);
            }
        }));
        thread::sleep(10 * MS);
    });
    assert!(sim.run_until(SECOND, |sim| !sim.is_running(process)));
    assert!(sim.threads().is_empty());
    while sim.step() {}
    assert!(sim.now() < SECOND);
}

#[test]
fn the_last_lines_of_a_history_tell_who_ran_and_what_the_driver_did() {
    let options = Options { trace: Trace::Last(5), ..Options::default() };
    let mut sim = Simulation::new(1, options);
    let node = sim.node("a", SimDisk::new(1));
    let process = sim.start(node, "p", || {
        loop {
            thread::sleep(MS);
        }
    });
    sim.run_for(SECOND);
    sim.kill(process);
    sim.note("the end");
    let lines = sim.trace_lines();
    assert_eq!(lines.len(), 5);
    assert!(lines[2].ends_with("a/p#0 main runs"), "{lines:?}");
    assert!(lines[3].contains("driver: kill 0"), "{lines:?}");
    assert!(lines[4].ends_with("the end"), "{lines:?}");
}

#[test]
fn on_a_machine_that_is_too_fast_more_time_passes_and_waits_are_shorter() {
    let mut sim = simulation(1);
    let fast = sim.node("fast", SimDisk::new(1));
    let seen = Rc::new(RefCell::new(Vec::new()));
    sim.run_for(SECOND);
    sim.set_pace(fast, 250_000);
    let slept = seen.clone();
    sim.start(fast, "sleeper", move || {
        let begun = weir_host::clock::since_boot();
        thread::sleep(10 * SECOND);
        slept.borrow_mut().push(weir_host::clock::since_boot() - begun);
        // A wait that has begun stays as it is when the driver sets it right.
        thread::sleep(10 * SECOND);
        slept.borrow_mut().push(weir_host::clock::since_boot() - begun);
    });
    assert!(sim.run_until(20 * SECOND, |_| seen.borrow().len() == 1));
    let elapsed = sim.now() - SECOND;
    assert!(elapsed >= 8 * SECOND && elapsed < 8 * SECOND + 10 * MS, "{elapsed:?}");
    sim.set_pace(fast, 0);
    assert!(sim.run_until(30 * SECOND, |_| seen.borrow().len() == 2));
    let seen = seen.borrow();
    assert!(seen[0] >= 10 * SECOND && seen[0] < 10 * SECOND + 10 * MS, "{seen:?}");
    assert!(seen[1] >= 18 * SECOND && seen[1] < 18 * SECOND + 10 * MS, "{seen:?}");
}
