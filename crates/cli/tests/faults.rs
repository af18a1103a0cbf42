//! Daemons are killed and stopped while programs use the mount: every call
//! returns within its bound or can be killed, and the mount works on when the
//! daemon is back, without being mounted again.

use crate::fault_load::{CALLS, Program, mounted};
use crate::harness::{Place, SOON, eventually, noise, root};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// Within 2 s is what `docs/semantics.md` says; the rest is for two busy cores.
const GONE: Duration = SOON;

const ALL: [&str; 5] = ["meta", "data-1", "data-2", "data-3", "data-4"];

fn signal(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

fn programs(place: &Place, at: &Path, calls: &[&'static str], handler: bool) -> Vec<Program> {
    calls.iter().for_each(|call| Program::prepare(&at.join(call)));
    programs_in(place, at, calls, handler)
}

/// The same where their directories are prepared.
fn programs_in(place: &Place, at: &Path, calls: &[&'static str], handler: bool) -> Vec<Program> {
    let start = |call: &&'static str| {
        Program::start_in(call, &at.join(call), place.path(&format!("report-{call}")), handler)
    };
    let all: Vec<Program> = calls.iter().map(start).collect();
    let begun = |p: &Program| p.report().calls >= 3;
    eventually("all programs work", || all.iter().all(begun));
    all
}

/// Waits until each (but those that never wait) is stuck in a call.
fn wait_until_stuck(programs: &[Program]) {
    let calls = || programs.iter().map(|p| p.report().calls).collect::<Vec<_>>();
    let is_stuck = |p: &Program, before: u64| p.call == "dirty" || p.report().calls == before;
    eventually("every program waits for a server", || {
        let before = calls();
        std::thread::sleep(Duration::from_millis(700));
        programs.iter().zip(before).all(|(p, before)| is_stuck(p, before))
    });
}

#[test]
fn a_killed_program_is_gone_at_once_whatever_call_it_waits_in() {
    if !root() {
        return;
    }
    let place = Place::new();
    let (cluster, at) = mounted(&place, "kill", "ttl=0");
    let mut programs = programs(&place, &at, &CALLS, false);
    let stopped = cluster.stopped(&ALL);
    wait_until_stuck(&programs);
    let begin = Instant::now();
    for program in &programs {
        // Ctrl-C ends a program like SIGKILL, unless it sees to that itself.
        signal(program.pid(), if program.call == "stat" { Signal::INT } else { Signal::KILL });
    }
    let mut late: Vec<&str> = programs.iter().map(|p| p.call).collect();
    while !late.is_empty() && begin.elapsed() < GONE {
        late = programs.iter_mut().filter_map(|p| (!p.is_gone()).then_some(p.call)).collect();
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(late.is_empty(), "not gone within {GONE:?}: {late:?}");
    drop(stopped);
    let begin = Instant::now();
    fs::write(at.join("after"), noise(3_000_000, 7)).unwrap();
    assert!(fs::read(at.join("after")).unwrap() == noise(3_000_000, 7));
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
    cluster.umount(&at);
}

#[test]
fn a_signal_that_a_program_handles_fails_no_call_as_on_a_local_disk() {
    if !root() {
        return;
    }
    let place = Place::new();
    let (cluster, at) = mounted(&place, "intr", "ttl=0");
    let calls = ["read", "stat", "open", "readdir", "unlink", "fsync", "close"];
    let mut programs = programs(&place, &at, &calls, true);
    let stopped = cluster.stopped(&ALL);
    wait_until_stuck(&programs);
    programs.iter().for_each(Program::interrupt);
    std::thread::sleep(Duration::from_millis(500));
    drop(stopped);
    work_on(&programs);
    for program in &programs {
        assert_eq!(program.report().failed, 0, "{}: {}", program.call, program.log());
    }
    // Killed after that signal, which is all that the kernel tells of.
    let stopped = cluster.stopped(&ALL);
    wait_until_stuck(&programs);
    programs.iter().for_each(Program::interrupt);
    std::thread::sleep(Duration::from_millis(500));
    programs.iter_mut().for_each(|program| program.child.kill().unwrap());
    let begin = Instant::now();
    eventually("all are gone", || programs.iter_mut().all(Program::is_gone));
    assert!(begin.elapsed() < GONE, "{:?}", begin.elapsed());
    drop(stopped);
}

#[test]
fn programs_that_wait_for_one_server_hold_up_nobody_who_needs_another() {
    if !root() {
        return;
    }
    let place = Place::new();
    let (cluster, at) = mounted(&place, "others", "ttl=0");
    for (dir, base) in [("two", "1"), ("three", "2")] {
        fs::create_dir(at.join(dir)).unwrap();
        let path = at.join(dir);
        let layout = ["setlayout", path.to_str().unwrap(), "--count", "1", "--base", base];
        cluster.weir(&layout).ok();
    }
    let start = |i| {
        let report = place.path(&format!("report-{i}"));
        Program::start("read", &at.join("two").join(format!("{i}")), report, false)
    };
    let mut programs: Vec<Program> = (0..48).map(start).collect();
    eventually("all programs work", || programs.iter().all(|p| p.report().calls > 0));
    let stopped = cluster.stopped(&["data-2"]);
    wait_until_stuck(&programs);
    let begin = Instant::now();
    let mut file = fs::File::create(at.join("three/file")).unwrap();
    std::io::Write::write_all(&mut file, &noise(3_000_000, 7)).unwrap();
    file.sync_all().unwrap();
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
    drop((file, stopped));
    programs.iter_mut().for_each(|program| program.child.kill().unwrap());
}

#[test]
fn a_read_is_waited_for_once_though_the_kernel_asks_twice() {
    if !root() {
        return;
    }
    let place = Place::new();
    let (cluster, at) = mounted(&place, "once", "ttl=0");
    cluster.weir(&["setlayout", at.to_str().unwrap(), "--count", "1", "--base", "1"]).ok();
    fs::write(at.join("file"), noise(300_000, 3)).unwrap();
    let timeout = Duration::from_secs(15);
    // It has no pages of the file.
    let other = cluster.mount("other", &format!("ttl=0,timeout={}", timeout.as_secs()));
    let file = fs::File::open(other.join("file")).unwrap();
    let stopped = cluster.stopped(&["data-2"]);
    let begin = Instant::now();
    let read = std::os::unix::fs::FileExt::read_at(&file, &mut [0; 1000], 0);
    let took = begin.elapsed();
    assert!(read.is_err() && took >= timeout, "{read:?} after {took:?}");
    assert!(took < 2 * timeout, "{took:?}");
    drop((stopped, file));
    assert!(fs::read(other.join("file")).unwrap() == noise(300_000, 3));
    cluster.umount(&other);
    cluster.umount(&at);
}

#[test]
fn of_two_servers_that_died_at_once_each_is_used_when_it_is_back() {
    if !root() {
        return;
    }
    let place = Place::new();
    // Nothing fails, however slow the machine is.
    let (cluster, at) = mounted(&place, "two", "ttl=0,timeout=300");
    let on = |dir: &str, base: &str, copies: &str| {
        let path = at.join(dir);
        fs::create_dir(&path).unwrap();
        let path = path.to_str().unwrap();
        let layout = ["setlayout", path, "--count", "1", "--base", base, "--copies", copies];
        cluster.weir(&layout).ok();
    };
    on("second", "1", "1");
    on("third", "2", "1");
    on("both", "1", "2");
    let start = |dir: &str| -> Vec<Program> {
        let start = |call: &&'static str| {
            let report = place.path(&format!("report-{dir}-{call}"));
            Program::start(call, &at.join(dir).join(call), report, false)
        };
        ["read", "write", "fsync"].iter().map(start).collect()
    };
    let (second, third, both) = (start("second"), start("third"), start("both"));
    let all = || second.iter().chain(&third).chain(&both);
    eventually("all programs work", || all().all(|p| p.report().calls >= 3));
    cluster.kill("data-2");
    cluster.kill("data-3");
    let description = fs::read(cluster.dir().join("cluster.toml")).unwrap();
    cluster.forget(3);
    // Both have been given up.
    eventually("two targets are away", || {
        let targets = cluster.weir(&["targets", "--json"]).json();
        let targets = targets.as_array().unwrap();
        targets.iter().filter(|target| target["state"] == "offline").count() == 2
    });
    cluster.weir(&["up"]).ok();
    work_on(&second);
    work_on(&both);
    assert!(!cluster.runs("data-3"));
    fs::write(cluster.dir().join("cluster.toml"), description).unwrap();
    cluster.weir(&["up"]).ok();
    work_on(&third);
    for program in all() {
        assert_eq!(program.report().failed, 0, "{}: {}", program.call, program.log());
    }
}

/// Seconds that a mount of these tests waits for a server in one step of a call.
const TIMEOUT_S: u64 = 2;
/// What a call may take with that: see "When something is away" in
/// `docs/semantics.md`. (The rest is for two busy cores.)
const BOUND: Duration = Duration::from_secs(3 * TIMEOUT_S + 3);

/// The load of the tests below: every call, and a file that is synced.
fn check_load(programs: &[Program]) {
    for program in programs {
        let report = program.report();
        let longest = Duration::from_millis(report.longest_ms);
        assert!(longest < BOUND, "{} took {longest:?}\n{}", program.call, program.log());
    }
}

fn work_on(programs: &[Program]) {
    let before: Vec<_> = programs.iter().map(Program::report).collect();
    eventually("every program works on", || {
        let all = programs.iter().zip(&before);
        all.map(|(p, b)| (p.report(), b))
            .all(|(now, b)| now.calls - now.failed > b.calls - b.failed + 2)
    });
}

#[test]
fn a_stopped_daemon_holds_no_call_beyond_the_bound_and_work_goes_on_when_it_is_back() {
    if !root() {
        return;
    }
    let place = Place::new();
    let (cluster, at) = mounted(&place, "stop", &format!("ttl=0,timeout={TIMEOUT_S}"));
    // Whatever is prepared may take longer than the timeout: it is done by another mount.
    let patient = cluster.mount("patient", "ttl=0");
    let synced: Vec<Vec<u8>> = (0..8).map(|i| noise(2_000_000, i)).collect();
    for (i, bytes) in synced.iter().enumerate() {
        fs::write(patient.join(format!("synced-{i}")), bytes).unwrap();
        fs::File::open(patient.join(format!("synced-{i}"))).unwrap().sync_all().unwrap();
    }
    // But for a page fault, whose failure ends a program with SIGBUS.
    let calls = &CALLS[..9];
    calls.iter().for_each(|call| Program::prepare(&patient.join(call)));
    cluster.umount(&patient);
    let programs = programs_in(&place, &at, calls, false);
    for daemons in [&["meta"][..], &["data-2"], &["meta", "data-1", "data-3"], &ALL] {
        let stopped = cluster.stopped(daemons);
        // Longer than the timeout: calls fail meanwhile.
        std::thread::sleep(Duration::from_secs(TIMEOUT_S + 1));
        drop(stopped);
        work_on(&programs);
        check_load(&programs);
    }
    drop(programs);
    for (i, bytes) in synced.iter().enumerate() {
        assert!(fs::read(at.join(format!("synced-{i}"))).unwrap() == *bytes, "file {i}");
    }
    cluster.umount(&at);
}

#[test]
fn a_daemon_that_is_killed_and_started_again_fails_no_call() {
    if !root() {
        return;
    }
    let place = Place::new();
    let (cluster, at) = mounted(&place, "again", "ttl=0");
    let programs = programs(&place, &at, &CALLS, false);
    for daemons in
        [&["meta"][..], &["data-1"], &["data-2", "data-3", "data-4"], &["meta", "data-1"]]
    {
        daemons.iter().for_each(|daemon| cluster.kill(daemon));
        std::thread::sleep(Duration::from_millis(300));
        cluster.place.weir(&["up", "--name", &cluster.name]).ok();
        work_on(&programs);
    }
    for program in &programs {
        let report = program.report();
        assert_eq!(report.failed, 0, "{}: {}", program.call, program.log());
    }
}
