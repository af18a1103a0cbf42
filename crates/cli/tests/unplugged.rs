//! The network between a mount and its servers is cut: the mount is in one
//! network namespace, the servers are in another, and two ends of a virtual
//! cable join them. Every call returns within its bound, and the mount works on
//! when the network is back.

use crate::fault_load::{CALLS, Program};
use crate::harness::{Cluster, Place, SOON, eventually, noise, root, said};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const SERVERS: &str = "10.213.7.1";
const CLIENT: &str = "10.213.7.2";

/// Two network namespaces and the cable between them; gone when dropped.
struct Network {
    servers: String,
    client: String,
}

/// How the network fails.
#[derive(Clone, Copy, Debug)]
enum Cut {
    /// The servers' end is unplugged: there is no carrier.
    Servers,
    /// The client's end is unplugged: there is no way anywhere.
    Client,
    /// Packets vanish on their way, without a word.
    BlackHole,
}

fn ip(arguments: &str) -> bool {
    let mut ip = Command::new("ip");
    ip.args(arguments.split(' '));
    let status = ip.output();
    status.is_ok_and(|output| output.status.success())
}

impl Network {
    /// Nothing where that is not allowed.
    fn new(name: &str) -> Option<Self> {
        if !root() {
            return None;
        }
        let id = format!("{}-{name}", std::process::id());
        let (servers, client) = (format!("weir-s-{id}"), format!("weir-c-{id}"));
        let network = Self { servers, client };
        let Self { servers, client } = &network;
        let done = ip(&format!("netns add {servers}"))
            && ip(&format!("netns add {client}"))
            && ip(&format!("-n {client} link add cable type veth peer name cable netns {servers}"))
            && ip(&format!("-n {servers} addr add {SERVERS}/24 dev cable"))
            && ip(&format!("-n {client} addr add {CLIENT}/24 dev cable"))
            && [servers, client].iter().all(|end| {
                ip(&format!("-n {end} link set cable up"))
                    && ip(&format!("-n {end} link set lo up"))
            });
        if !done {
            eprintln!("no network namespaces here: this test checks nothing");
        }
        done.then_some(network)
    }

    /// The command in a namespace (that of the network alone: what it mounts is
    /// to be seen here).
    fn inside(namespace: &str, command: &Command) -> Command {
        let mut inside = Command::new("nsenter");
        inside.arg(format!("--net=/run/netns/{namespace}"));
        inside.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => inside.env(name, value),
                None => inside.env_remove(name),
            };
        }
        inside.current_dir(command.get_current_dir().unwrap());
        inside
    }

    /// Fails, and is mended when what it returns is dropped.
    fn cut(&self, cut: Cut) -> Mend {
        let Self { servers, client } = self;
        let (fail, mend) = match cut {
            Cut::Servers => (
                format!("-n {servers} link set cable down"),
                format!("-n {servers} link set cable up"),
            ),
            Cut::Client => (
                format!("-n {client} link set cable down"),
                format!("-n {client} link set cable up"),
            ),
            Cut::BlackHole => (
                format!(
                    "-n {client} neigh replace {SERVERS} lladdr 02:00:00:00:00:99 dev cable nud \
                     permanent"
                ),
                format!("-n {client} neigh del {SERVERS} dev cable"),
            ),
        };
        assert!(ip(&fail), "{fail}");
        Mend(mend)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for namespace in [&self.servers, &self.client] {
            ip(&format!("netns del {namespace}"));
        }
    }
}

struct Mend(String);

impl Drop for Mend {
    fn drop(&mut self) {
        ip(&self.0);
    }
}

/// A cluster beyond the cable, mounted on this side.
fn mounted<'a>(
    place: &'a Place,
    network: &Network,
    name: &str,
    options: &str,
) -> (Cluster<'a>, PathBuf) {
    let cluster = place.cluster(name);
    let up = place.command(&["up", "--name", name, "--targets", "4", "--listen", SERVERS]);
    said(Network::inside(&network.servers, &up)).ok();
    // The metadata server, too, is at the other end of the cable only.
    let config = cluster.dir().join("client.toml");
    let mut client: toml::Table = fs::read_to_string(&config).unwrap().parse().unwrap();
    client["metadata"].as_array_mut().unwrap().retain(|at| !at.as_str().unwrap().starts_with('/'));
    fs::write(&config, client.to_string()).unwrap();
    let at = mount(place, &cluster, &network.client, options);
    (cluster, at)
}

/// Mounts on one side.
fn mount(place: &Place, cluster: &Cluster<'_>, side: &str, options: &str) -> PathBuf {
    let at = place.path(side);
    fs::create_dir(&at).unwrap();
    let mount = cluster.command(&["mount", at.to_str().unwrap(), "-o", options]);
    said(Network::inside(side, &mount)).ok();
    at
}

/// But for a page fault, whose failure ends a program with SIGBUS.
fn calls() -> &'static [&'static str] {
    &CALLS[..9]
}

fn programs(place: &Place, at: &Path) -> Vec<Program> {
    calls().iter().for_each(|call| Program::prepare(&at.join(call)));
    programs_in(place, at)
}

/// The same where their directories are prepared.
fn programs_in(place: &Place, at: &Path) -> Vec<Program> {
    let start = |call: &&'static str| {
        Program::start_in(call, &at.join(call), place.path(&format!("report-{call}")), false)
    };
    let all: Vec<Program> = calls().iter().map(start).collect();
    eventually("all programs work", || all.iter().all(|p| p.report().calls >= 3));
    all
}

fn work_on(programs: &[Program]) -> Duration {
    let begin = Instant::now();
    let before: Vec<_> = programs.iter().map(Program::report).collect();
    eventually("every program works on", || {
        let all = programs.iter().map(Program::report).zip(&before);
        all.map(|(now, then)| (now.calls - now.failed, then.calls - then.failed))
            .all(|(now, then)| now > then + 2)
    });
    begin.elapsed()
}

#[test]
fn a_network_that_is_away_for_a_moment_fails_no_call() {
    let Some(network) = Network::new("short") else { return };
    let place = Place::new();
    let (_cluster, at) = mounted(&place, &network, "short", "ttl=0,tcp");
    let programs = programs(&place, &at);
    for cut in [Cut::Servers, Cut::Client, Cut::BlackHole] {
        let mend = network.cut(cut);
        std::thread::sleep(Duration::from_secs(2));
        drop(mend);
        println!("{cut:?}: {:?} until all went on", work_on(&programs));
    }
    for program in &programs {
        assert_eq!(program.report().failed, 0, "{}: {}", program.call, program.log());
    }
}

#[test]
fn a_network_that_stays_away_fails_calls_in_time_and_the_mount_works_on_when_it_is_back() {
    let Some(network) = Network::new("long") else { return };
    let place = Place::new();
    let timeout = Duration::from_secs(2);
    let (cluster, at) = mounted(&place, &network, "long", "ttl=0,tcp,timeout=2");
    let synced = noise(3_000_000, 5);
    // Whatever is prepared may take longer than the timeout: it is done by another mount.
    let patient = mount(&place, &cluster, &network.servers, "ttl=0,tcp");
    fs::write(patient.join("synced"), &synced).unwrap();
    fs::File::open(patient.join("synced")).unwrap().sync_all().unwrap();
    calls().iter().for_each(|call| Program::prepare(&patient.join(call)));
    cluster.umount(&patient);
    let programs = programs_in(&place, &at);
    for cut in [Cut::Servers, Cut::Client, Cut::BlackHole] {
        let mend = network.cut(cut);
        std::thread::sleep(2 * timeout);
        drop(mend);
        println!("{cut:?}: {:?} until all went on", work_on(&programs));
        for program in &programs {
            let longest = Duration::from_millis(program.report().longest_ms);
            // See "How long a call waits" in `docs/semantics.md`; the rest is
            // for two busy cores.
            let bound = 3 * timeout + Duration::from_secs(3);
            assert!(longest < bound, "{cut:?}, {}: {longest:?}", program.call);
        }
    }
    drop(programs);
    assert!(fs::read(at.join("synced")).unwrap() == synced);
    cluster.umount(&at);
}

#[test]
fn a_program_that_waits_for_an_unplugged_server_can_be_killed() {
    let Some(network) = Network::new("kill") else { return };
    let place = Place::new();
    let (_cluster, at) = mounted(&place, &network, "kill", "ttl=0,tcp");
    let mut programs = programs(&place, &at);
    let _mend = network.cut(Cut::BlackHole);
    std::thread::sleep(Duration::from_secs(2));
    programs.iter_mut().for_each(|program| program.child.kill().unwrap());
    let begin = Instant::now();
    eventually("all are gone", || programs.iter_mut().all(Program::is_gone));
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
}

#[test]
fn who_is_cut_off_is_shown_nothing_that_others_have_changed() {
    let Some(network) = Network::new("old") else { return };
    let place = Place::new();
    let (cluster, cut_off) = mounted(&place, &network, "old", "tcp,timeout=30");
    let other = mount(&place, &cluster, &network.servers, "tcp,timeout=30");
    fs::write(cut_off.join("f"), [1; 8192]).unwrap();
    let file = fs::File::open(cut_off.join("f")).unwrap();
    file.sync_all().unwrap();
    let first = |file: &fs::File| {
        let mut byte = [0];
        file.read_exact_at(&mut byte, 4096).map(|()| byte[0])
    };
    assert_eq!(first(&file).unwrap(), 1);
    let changed = AtomicBool::new(false);
    let mend = network.cut(Cut::BlackHole);
    std::thread::scope(|scope| {
        // From the kernel's pages, as long as they may be shown.
        let reader = scope.spawn(|| {
            loop {
                let late = changed.load(Ordering::SeqCst);
                match first(&file) {
                    Ok(1) => assert!(!late, "others have changed it"),
                    // It is mended before the call fails.
                    Ok(byte) => return byte,
                    Err(error) => panic!("{error}"),
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        fs::write(other.join("f"), [2; 8192]).unwrap();
        fs::File::open(other.join("f")).unwrap().sync_all().unwrap();
        changed.store(true, Ordering::SeqCst);
        std::thread::sleep(Duration::from_secs(1));
        drop(mend);
        assert_eq!(reader.join().unwrap(), 2);
    });
}
