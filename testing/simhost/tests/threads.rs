//! Threads, locks and time on a simulated machine.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use weir_host::sync::{Condvar, Mutex, RwLock};
use weir_host::{clock, thread};
use weir_simhost::disk::SimDisk;
use weir_simhost::{ClockSkew, Exit, Options, Simulation, run, run_until_death};

const MS: Duration = Duration::from_millis(1);

fn disk() -> SimDisk {
    SimDisk::new(1)
}

/// A bounded queue of one between two threads.
#[derive(Default)]
struct Slot {
    value: Mutex<Option<u32>>,
    changed: Condvar,
}

#[test]
fn two_threads_hand_values_over_in_order() {
    for seed in 0..50 {
        let sum = run(seed, &disk(), || {
            let slot = Arc::new(Slot::default());
            let other = slot.clone();
            let producer = thread::spawn("producer", move || {
                for i in 0..100 {
                    let mut value = other.value.lock();
                    while value.is_some() {
                        value = other.changed.wait(value);
                    }
                    *value = Some(i);
                    drop(value);
                    other.changed.notify_all();
                }
            });
            let mut sum = 0;
            for expected in 0..100 {
                let mut value = slot.value.lock();
                while value.is_none() {
                    value = slot.changed.wait_timeout(value, MS);
                }
                assert_eq!(value.take(), Some(expected), "seed {seed}");
                sum += expected;
                drop(value);
                slot.changed.notify_all();
            }
            producer.unwrap().join().unwrap();
            sum
        });
        assert_eq!(sum, 4950);
    }
}

#[test]
fn sleepers_wake_in_the_order_of_their_times_and_no_real_time_passes() {
    let order = run(3, &disk(), || {
        let order = Arc::new(Mutex::new(Vec::new()));
        let start = clock::now();
        let sleepers: Vec<_> = [30, 10, 20u64]
            .map(|hours| {
                let order = order.clone();
                thread::spawn("sleeper", move || {
                    thread::sleep(Duration::from_secs(3600 * hours));
                    order.lock().push((hours, clock::elapsed(start).as_secs() / 3600));
                })
                .unwrap()
            })
            .into();
        for sleeper in sleepers {
            sleeper.join().unwrap();
        }
        let order = order.lock();
        order.clone()
    });
    assert_eq!(order, [(10, 10), (20, 20), (30, 30)]);
}

#[test]
fn locks_exclude_each_other_while_their_holders_sleep() {
    for seed in 0..20 {
        run(seed, &disk(), || {
            let shared = Arc::new((Mutex::new(0), RwLock::new(0), AtomicUsize::new(0)));
            let threads: Vec<_> = (0..8)
                .map(|i| {
                    let shared = shared.clone();
                    thread::spawn("worker", move || {
                        for _ in 0..10 {
                            let mut counter = shared.0.lock();
                            let before = *counter;
                            thread::sleep(Duration::from_micros(10 + i));
                            *counter = before + 1;
                            drop(counter);
                            let readers = shared.1.read();
                            shared.2.fetch_add(1, Relaxed);
                            thread::sleep(Duration::from_micros(5));
                            shared.2.fetch_sub(1, Relaxed);
                            drop(readers);
                            let mut written = shared.1.write();
                            assert_eq!(shared.2.load(Relaxed), 0, "seed {seed}");
                            *written += 1;
                        }
                    })
                    .unwrap()
                })
                .collect();
            for thread in threads {
                thread.join().unwrap();
            }
            assert_eq!((*shared.0.lock(), *shared.1.read()), (80, 80), "seed {seed}");
        });
    }
}

/// Two threads read and write a counter under a lock that they give back in
/// between: a lost update.
#[test]
fn a_race_between_two_locks_is_found() {
    let lost = |seed| {
        run(seed, &disk(), || {
            let counter = Arc::new(Mutex::new(0));
            let add = |counter: &Mutex<u32>| {
                let before = *counter.lock();
                *counter.lock() = before + 1;
            };
            let other = counter.clone();
            let thread = thread::spawn("other", move || add(&other));
            add(&counter);
            thread.unwrap().join().unwrap();
            *counter.lock() != 2
        })
    };
    let found = (0..2000).filter(|&seed| lost(seed)).count();
    assert!(found > 0, "2,000 seeds did not find it");
}

#[test]
fn a_wait_with_a_time_ends_with_it() {
    run(1, &disk(), || {
        let (mutex, condvar) = (Mutex::new(()), Condvar::new());
        let start = clock::now();
        drop(condvar.wait_timeout(mutex.lock(), 10 * MS));
        let took = clock::elapsed(start);
        assert!(took >= 10 * MS && took < 20 * MS, "{took:?}");
    });
}

/// A notification must not be spent on a thread whose time was over first.
#[test]
fn no_notification_is_lost_to_a_thread_whose_time_is_over() {
    for seed in 0..300 {
        run(seed, &disk(), || {
            let shared = Arc::new((Mutex::new(0u32), Condvar::new()));
            let spawn = |timeout: Option<Duration>| {
                let shared = shared.clone();
                thread::spawn("waiter", move || {
                    let mut tickets = shared.0.lock();
                    match timeout {
                        Some(time) => tickets = shared.1.wait_timeout(tickets, time),
                        None => {
                            while *tickets == 0 {
                                tickets = shared.1.wait(tickets);
                            }
                        }
                    }
                    *tickets = tickets.saturating_sub(1);
                })
                .unwrap()
            };
            let impatient = spawn(Some(MS));
            thread::sleep(MS / 2);
            let patient = spawn(None);
            thread::sleep(MS / 2);
            // Two: one may go to either.
            for _ in 0..2 {
                *shared.0.lock() += 1;
                shared.1.notify_one();
            }
            impatient.join().unwrap();
            patient.join().unwrap();
        });
    }
}

#[test]
fn nobody_runs_while_a_thread_is_uninterrupted_and_the_time_passes_all_the_same() {
    run(5, &disk(), || {
        let inside = Arc::new(AtomicBool::new(false));
        let seen = inside.clone();
        let watcher = thread::spawn("watcher", move || {
            for _ in 0..200 {
                assert!(!seen.load(Relaxed), "ran in the middle");
                thread::sleep(MS / 10);
            }
        });
        let start = clock::now();
        for _ in 0..5 {
            thread::uninterrupted(|| {
                inside.store(true, Relaxed);
                thread::uninterrupted(|| thread::sleep(MS));
                thread::sleep(MS);
                inside.store(false, Relaxed);
            });
        }
        assert!(clock::elapsed(start) >= 10 * MS);
        watcher.unwrap().join().unwrap();
    });
}

#[test]
fn a_panic_ends_its_thread_alone_and_is_reported() {
    let mut sim = Simulation::new(1, Options::default());
    let node = sim.node("a", disk());
    let joined = Rc::new(RefCell::new(None));
    let seen = joined.clone();
    let process = sim.start(node, "p", move || {
        let bad = thread::spawn("bad", || panic!("number {}", 7)).unwrap();
        *seen.borrow_mut() = Some(bad.join().is_err());
    });
    assert!(sim.run_until(MS, |sim| !sim.is_running(process)));
    assert_eq!(sim.exit(process), Some(Exit::Returned));
    assert_eq!(*joined.borrow(), Some(true));
    let panics = sim.panics();
    assert_eq!((panics.len(), &*panics[0].thread, &*panics[0].message), (1, "a/p/bad", "number 7"));

    let process = sim.start(node, "q", || panic!("main"));
    assert!(sim.run_until(2 * MS, |sim| !sim.is_running(process)));
    assert_eq!(sim.exit(process), Some(Exit::Panicked));
}

#[test]
fn a_run_reports_panics_of_all_threads_and_deadlocks() {
    let message = |body: fn()| {
        let payload = catch_unwind(AssertUnwindSafe(|| run(1, &disk(), body))).unwrap_err();
        let text = payload.downcast_ref::<&str>().map(|s| (*s).to_owned());
        text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap()
    };
    assert_eq!(message(|| panic!("in main")), "in main");
    let of_thread = message(|| {
        assert!(thread::spawn("t", || panic!("in a thread")).unwrap().join().is_err());
    });
    assert!(of_thread.contains("in a thread"), "{of_thread}");
    let deadlock = message(|| {
        let mutex = Mutex::new(());
        let _held = mutex.lock();
        drop(mutex.lock());
    });
    assert!(deadlock.contains("main waits for a lock"), "{deadlock}");
}

#[test]
fn a_run_takes_and_returns_what_its_caller_has() {
    let names = ["a".to_owned(), "b".to_owned()];
    let joined = run(1, &disk(), || names.concat());
    assert_eq!(joined, "ab");
}

#[test]
fn a_process_can_die_at_any_point_and_nothing_of_it_is_dropped() {
    struct Noisy(Rc<RefCell<u32>>);
    impl Drop for Noisy {
        fn drop(&mut self) {
            *self.0.borrow_mut() += 1;
        }
    }
    let drops = Rc::new(RefCell::new(0));
    let noisy = Noisy(drops.clone());
    let ended: Option<()> = run_until_death(1, &disk(), || {
        let _noisy = noisy;
        weir_simhost::die();
    });
    assert_eq!((ended, *drops.borrow()), (None, 0));
}

#[test]
fn clocks_of_nodes_go_wrong_as_they_are_told() {
    let mut sim = Simulation::new(1, Options::default());
    let (a, b) = (sim.node("a", disk()), sim.node("b", disk()));
    sim.set_clock(b, ClockSkew { offset_ms: -5000, drift_ppm: 1000 });
    assert_eq!(sim.unix_now(a) - sim.unix_now(b), Duration::from_secs(5));
    sim.run_for(Duration::from_secs(6000));
    assert_eq!(sim.now(), Duration::from_secs(6000));
    assert_eq!(sim.unix_now(b) - sim.unix_now(a), Duration::from_secs(1));
}

#[test]
fn a_loop_that_only_looks_at_the_clock_comes_to_its_end() {
    run(1, &disk(), || {
        let start = clock::now();
        while clock::elapsed(start) < MS {}
    });
}

#[test]
fn random_bytes_come_from_the_seed() {
    let bytes = |seed| {
        run(seed, &disk(), || {
            let mut bytes = [0; 40];
            weir_host::fill_random(&mut bytes).unwrap();
            bytes
        })
    };
    assert_eq!(bytes(1), bytes(1));
    assert_ne!(bytes(1), bytes(2));
}
