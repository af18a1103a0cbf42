//! Two metadata servers with a journal on etcd, all of them real processes: when the one that leads
//! is killed or stopped, the other one goes on with everything that was acknowledged.

use crate::harness::{Place, Running, eventually, kill_and_wait, noise};
use crate::library;
use crate::link::Link;
use crate::several_metas::{Metas, daemon, free_address, list, set};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use weir_client::{Client, ClientConfig, Context, CreateOptions};
use weir_testbed::{Disk, missing};
use weir_types::{ErrorKind, FileId};
use weir_wire::Rights;

const LEASE_MS: i64 = 25_000;

/// What is needed for a test of failover, or `None` where there is no etcd.
struct Pair<'a> {
    place: &'a Place,
    metas: Metas,
    members: [Option<Running>; 2],
    _data: Vec<Running>,
    _etcd: Running,
}

impl<'a> Pair<'a> {
    /// Makes a cluster as `weir up` does, and turns it into one with two metadata servers.
    fn start(place: &'a Place) -> Option<Self> {
        if Command::new("etcd").arg("--version").stdout(Stdio::null()).status().is_err() {
            println!("skipped: needs etcd");
            return None;
        }
        let cluster = place.up("pair", &["--targets", "2", "--copies", "2"]);
        cluster.down(&[]);
        let from = cluster.dir();
        let dir = place.path("pair");
        fs::rename(&from, &dir).unwrap();
        drop(cluster);

        let (client, peer) =
            (format!("http://{}", free_address()), format!("http://{}", free_address()));
        let etcd = Command::new("etcd")
            .args(["--name", "m", "--data-dir", place.path("etcd").to_str().unwrap()])
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("m={peer}"), "--log-level", "error"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let etcd = Running(etcd.unwrap());

        // The second member begins with a copy of the metadata.
        fs::create_dir(dir.join("meta-b")).unwrap();
        for entry in fs::read_dir(dir.join("meta")).unwrap().flatten() {
            fs::copy(entry.path(), dir.join("meta-b").join(entry.file_name())).unwrap();
        }
        let addresses = [free_address(), free_address()];
        let keys = dir.join("keys");
        for (member, address) in ["a", "b"].iter().zip(&addresses) {
            let path = dir.join(format!("{member}.toml"));
            fs::copy(dir.join("meta.toml"), &path).unwrap();
            let own = if *member == "a" { "meta" } else { "meta-b" };
            let journal: toml::Table =
                format!("etcd = [\"{client}\"]\nmember = \"{member}\"").parse().unwrap();
            set(
                &path,
                &[
                    ("dir", dir.join(own).to_str().unwrap().into()),
                    ("listen", list(std::slice::from_ref(address))),
                    ("master_key_file", keys.join("master.key").to_str().unwrap().into()),
                    ("journal", journal.into()),
                    // However slow this machine is, another one leads before leases are lost.
                    ("lease_ms", LEASE_MS.into()),
                    ("grace_ms", LEASE_MS.into()),
                ],
            );
        }
        set(&dir.join("client.toml"), &[("metadata", list(&addresses))]);
        let metas = Metas { dir, addresses: addresses.into() };
        let data = metas.start_data(place, &from);
        let mut pair = Self { place, metas, members: [None, None], _data: data, _etcd: etcd };
        pair.begin(0);
        pair.metas.all_online(2);
        pair.begin(1);
        Some(pair)
    }

    /// Starts a member.
    fn begin(&mut self, member: usize) {
        let path = self.metas.dir.join(["a.toml", "b.toml"][member]);
        self.members[member] = Some(daemon(self.place, "meta", &path));
    }

    fn pid(&self, member: usize) -> i32 {
        self.members[member].as_ref().unwrap().0.id() as i32
    }

    fn signal(&self, member: usize, signal: Signal) {
        kill_process(Pid::from_raw(self.pid(member)).unwrap(), signal).unwrap();
    }

    fn kill(&mut self, member: usize) {
        kill_and_wait(self.pid(member));
        self.members[member] = None;
    }
}

/// What a writer knows to be done: contents by name.
#[derive(Default)]
pub struct Told {
    files: Mutex<BTreeMap<String, Vec<u8>>>,
    /// When something was acknowledged last, and the longest time between two.
    stalls: Mutex<(Option<Instant>, Duration)>,
    stop: AtomicBool,
}

impl Told {
    pub fn count(&self) -> usize {
        self.files.lock().unwrap().len()
    }

    /// The longest time between two acknowledgements.
    pub fn longest_stall(&self) -> Duration {
        self.stalls.lock().unwrap().1
    }

    fn acknowledged(&self) {
        let mut stalls = self.stalls.lock().unwrap();
        let now = Instant::now();
        let stall = stalls.0.replace(now).map_or(Duration::ZERO, |last| now - last);
        stalls.1 = stalls.1.max(stall);
    }

    /// Writes file after file. Nothing fails, whatever happens to a server.
    fn write(&self, client: &Client, writer: usize) {
        for n in 0.. {
            if self.stop.load(Ordering::SeqCst) {
                return;
            }
            let name = format!("w{writer}-{n}");
            let bytes = noise(20_000 + n, n as u64);
            write_file(client, &name, &bytes);
            self.files.lock().unwrap().insert(name, bytes);
            self.acknowledged();
        }
    }

    /// Every name that was acknowledged is there, with its bytes.
    pub fn check(&self, client: &Client) {
        let files = self.files.lock().unwrap();
        for (name, bytes) in files.iter() {
            assert!(read_file(client, name) == *bytes, "{name}");
        }
    }
}

fn write_file(client: &Client, name: &str, bytes: &[u8]) {
    let ctx = Context::root();
    let options = CreateOptions { exclusive: true, ..CreateOptions::default() };
    let made = client.create(&ctx, FileId::ROOT, name.as_bytes(), &options);
    let (file, _) = made.unwrap_or_else(|error| panic!("create {name}: {error}"));
    let done = file.write_at(&ctx, 0, bytes).and_then(|()| file.sync(&ctx));
    done.and_then(|()| file.close(&ctx)).unwrap_or_else(|error| panic!("write {name}: {error}"));
}

fn read_file(client: &Client, name: &str) -> Vec<u8> {
    let ctx = Context::root();
    let found = client.lookup(&ctx, FileId::ROOT, name.as_bytes());
    let found = found.unwrap_or_else(|error| panic!("{name}: {error}"));
    let (file, attr) = client.open(&ctx, found.file, Rights::READ).unwrap();
    let mut bytes = vec![0; attr.size as usize];
    let read = file.read_at(&ctx, 0, &mut bytes).unwrap();
    bytes.truncate(read);
    file.close(&ctx).unwrap();
    bytes
}

/// Two writers go on while `during` runs, and after it.
fn with_writers(pair: &mut Pair<'_>, during: impl FnOnce(&mut Pair<'_>, &Told)) -> Told {
    let told = Told::default();
    let clients = [0, 1].map(|_| pair.metas.client());
    told_while(&told, &clients, || during(pair, &told));
    told
}

/// A writer for each client goes on while `during` runs, and after it.
pub fn told_while(told: &Told, clients: &[Client], during: impl FnOnce()) {
    std::thread::scope(|scope| {
        for (writer, client) in clients.iter().enumerate() {
            scope.spawn(move || told.write(client, writer));
        }
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            eventually("they write", || told.count() > 20);
            during();
            let before = told.count();
            eventually("they go on", || told.count() > before + 20);
        }));
        told.stop.store(true, Ordering::SeqCst);
        if let Err(panic) = done {
            std::panic::resume_unwind(panic);
        }
    });
}

#[test]
fn the_standby_goes_on_with_all_that_was_acknowledged_when_the_leader_is_killed() {
    let place = Place::new();
    let Some(mut pair) = Pair::start(&place) else { return };
    eventually("the standby says who leads", || {
        let refused = pair.metas.asks(1).map(drop).unwrap_err();
        refused.kind == ErrorKind::NotLeader && refused.message.contains(&pair.metas.addresses[0])
    });
    let told = with_writers(&mut pair, |pair, told| {
        pair.kill(0);
        let before = told.count();
        eventually("they write at the standby", || told.count() > before + 10);
        // What was killed comes back as the standby, and is needed at once.
        pair.begin(0);
        eventually("it follows", || pair.metas.stands_by(0));
        pair.kill(1);
    });
    told.check(&pair.metas.client());
    // A new client sees the same.
    pair.begin(1);
    pair.kill(0);
    told.check(&pair.metas.client());
}

#[test]
fn a_leader_that_was_stopped_acknowledges_nothing_when_it_goes_on() {
    let place = Place::new();
    let Some(mut pair) = Pair::start(&place) else { return };
    let late = |name: &str, client: &Client| {
        client.mkdir(&Context::root(), FileId::ROOT, name.as_bytes(), 0o755).map(drop)
    };
    // A client that knows only the first server has no other one to ask.
    let metadata = vec![pair.metas.addresses[0].clone()];
    let faithful = Client::connect(ClientConfig {
        metadata,
        request_timeout_ms: 20_000,
        ..pair.metas.config()
    });
    let faithful = faithful.unwrap();
    late("early", &faithful).unwrap();
    let told = with_writers(&mut pair, |pair, told| {
        std::thread::scope(|scope| {
            pair.signal(0, Signal::STOP);
            // It lies in the socket of the stopped server.
            let asking = scope.spawn(|| late("late", &faithful));
            eventually("the other one leads", || pair.metas.asks(1).is_ok());
            let before = told.count();
            eventually("they write there", || told.count() > before + 10);
            pair.signal(0, Signal::CONT);
            // It stands by from then on.
            let stands_by = || pair.metas.stands_by(0);
            eventually("it follows", stands_by);
            assert!(asking.join().unwrap().is_err(), "acknowledged by who does not lead");
        });
    });
    let client = pair.metas.client();
    told.check(&client);
    let found = |name: &str| client.lookup(&Context::root(), FileId::ROOT, name.as_bytes());
    found("early").unwrap();
    assert_eq!(found("late").unwrap_err().kind, ErrorKind::NotFound);
}

#[test]
fn a_leader_whose_disk_hangs_gives_the_lead_up_and_stands_by_when_it_answers_again() {
    if let Some(what) = missing() {
        println!("skipped: needs {what}");
        return;
    }
    let place = Place::new();
    let disk = Disk::make(&place.path("image"), &place.path("disk"), 160 << 20).unwrap();
    let Some(mut pair) = Pair::start(&place) else { return };
    pair.kill(0);
    let (dir, there) = (pair.metas.dir.join("meta"), disk.path().join("meta"));
    assert!(Command::new("cp").arg("-a").args([&dir, &there]).status().unwrap().success());
    fs::remove_dir_all(&dir).unwrap();
    std::os::unix::fs::symlink(there, dir).unwrap();
    eventually("the other one leads", || pair.metas.asks(1).is_ok());
    pair.begin(0);
    eventually("it follows", || pair.metas.stands_by(0));
    pair.kill(1);
    eventually("the one on that disk leads", || pair.metas.asks(0).is_ok());
    pair.begin(1);
    eventually("the other one follows", || pair.metas.stands_by(1));
    let told = with_writers(&mut pair, |pair, told| {
        let frozen = disk.freeze().unwrap();
        eventually("the other one leads", || pair.metas.asks(1).is_ok());
        let before = told.count();
        eventually("they write there", || told.count() > before + 10);
        drop(frozen);
        eventually("it follows", || pair.metas.stands_by(0));
        pair.kill(1);
    });
    told.check(&pair.metas.client());
}

/// Bytes of the server in a handshake: the challenge and the welcome.
const WELCOMED: u64 = 128 + 116;

#[test]
fn a_server_that_hangs_after_its_welcome_is_not_waited_for_when_there_is_another() {
    let place = Place::new();
    let cluster = place.up("one", &["--targets", "1"]);
    let config = library::config_in(&cluster.dir());
    let direct = config.metadata.last().unwrap().clone();
    let hangs = Link::that_hangs_after(direct.clone(), WELCOMED);
    let metadata = vec![hangs.address.clone(), direct];
    let (connect_timeout_ms, request_timeout_ms) = (60_000, 60_000);
    let config = ClientConfig { metadata, connect_timeout_ms, request_timeout_ms, ..config };
    let client = Client::connect(config).unwrap();
    client.mkdir(&Context::root(), FileId::ROOT, b"made", 0o755).unwrap();
    assert!(hangs.has_hung(), "it was welcomed");
}
