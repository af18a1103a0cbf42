//! Copies are moved and made anew while their files are in use: targets are drained and
//! removed, lost ones rebuilt elsewhere, and servers die meanwhile. Nothing that was
//! acknowledged is lost, nobody waits longer than a server is missed, and all copies are
//! the same afterwards.

#![allow(clippy::unwrap_used)] // A panic is how a test fails.

mod harness;
mod library;

use harness::{Cluster, Place, eventually, noise, root, said};
use library::client;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weir_client::{Client, Context, CreateOptions, File};
use weir_types::{FileId, LayoutSpec};

/// A server is missed after 5 s; but a metadata server that is started anew waits for
/// its clients first, and this machine may be slow.
const LONGEST: Duration = Duration::from_secs(25);
/// Where the data of an object begins in its file (docs/format-store.md).
const DATA_START: usize = 32 * 4096;
const FILE_BYTES: usize = 1 << 20;

/// A thread that writes to a file, and reads what it has written.
struct User {
    stop: Arc<AtomicBool>,
    calls: Arc<AtomicU64>,
    thread: JoinHandle<(Vec<u8>, Duration)>,
}

impl User {
    fn start(cluster: &Cluster<'_>, name: &str, copies: u8, seed: u64) -> Self {
        let (stop, calls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (ends, counts) = (stop.clone(), calls.clone());
        let client = client(cluster, false);
        let file = create(&client, name, copies);
        let thread = std::thread::spawn(move || {
            let used = use_file(file, seed, &ends, &counts);
            drop(client);
            used
        });
        Self { stop, calls, thread }
    }

    /// What the file has in the end.
    fn end(self) -> Vec<u8> {
        self.stop.store(true, Ordering::Relaxed);
        let (data, longest) = self.thread.join().unwrap();
        assert!(longest < LONGEST, "a call took {longest:?}");
        data
    }
}

fn create(client: &Client, name: &str, copies: u8) -> File {
    create_of(client, name, LayoutSpec { copies, ..LayoutSpec::default() })
}

fn create_of(client: &Client, name: &str, layout: LayoutSpec) -> File {
    let options = CreateOptions { layout: Some(layout), ..CreateOptions::default() };
    client.create(&Context::root(), FileId::ROOT, name.as_bytes(), &options).unwrap().0
}

fn use_file(file: File, seed: u64, stop: &AtomicBool, calls: &AtomicU64) -> (Vec<u8>, Duration) {
    let (ctx, mut longest) = (Context::root(), Duration::ZERO);
    let mut data = noise(FILE_BYTES, seed);
    file.write_at(&ctx, 0, &data).unwrap();
    while !stop.load(Ordering::Relaxed) {
        let call = calls.fetch_add(1, Ordering::Relaxed);
        let dice = noise(8, seed << 32 | call);
        let at = usize::from(dice[0]) * 4000 + usize::from(dice[1]);
        let len = (1 + usize::from(dice[2]) * 300).min(FILE_BYTES - at);
        let begin = Instant::now();
        match dice[3] % 4 {
            0 | 1 => {
                let fresh = noise(len, call);
                file.write_at(&ctx, at as u64, &fresh).unwrap();
                data[at..at + len].copy_from_slice(&fresh);
            }
            2 => {
                let mut buffer = vec![0; len];
                assert_eq!(file.read_at(&ctx, at as u64, &mut buffer).unwrap(), len);
                assert!(buffer == data[at..at + len], "bytes {at}+{len} are not those written");
            }
            _ => file.sync(&ctx).unwrap(),
        }
        longest = longest.max(begin.elapsed());
        // Two cores serve this, the cluster, and other tests.
        std::thread::sleep(Duration::from_millis(3));
    }
    file.sync(&ctx).unwrap();
    file.close(&ctx).unwrap();
    (data, longest)
}

/// Files in use, and others that lie there.
struct Files<'a> {
    cluster: &'a Cluster<'a>,
    users: Vec<(String, User)>,
    others: Vec<(String, Vec<u8>)>,
}

impl<'a> Files<'a> {
    /// `single`: some of one copy, too.
    fn new(cluster: &'a Cluster<'a>, single: bool) -> Self {
        let copies = |number: u64| if single && number % 2 == 1 { 1 } else { 2 };
        let client = client(cluster, false);
        let mut others = Vec::new();
        for number in 0..6 {
            let (name, data) = (format!("lies{number}"), noise(700_000, number + 1));
            let file = create(&client, &name, copies(number));
            file.write_at(&Context::root(), 0, &data).unwrap();
            file.close(&Context::root()).unwrap();
            others.push((name, data));
        }
        let user = |number: u64| {
            let name = format!("used{number}");
            let user = User::start(cluster, &name, copies(number), number + 1);
            (name, user)
        };
        let files = Self { cluster, users: (0..4).map(user).collect(), others };
        files.go_on();
        files
    }

    fn names(&self) -> Vec<String> {
        let used = self.users.iter().map(|(name, _)| name.clone());
        used.chain(self.others.iter().map(|(name, _)| name.clone())).collect()
    }

    /// All users make some more calls.
    fn go_on(&self) {
        let calls = |user: &User| user.calls.load(Ordering::Relaxed);
        let before: Vec<u64> = self.users.iter().map(|(_, user)| calls(user)).collect();
        eventually("they go on", || {
            let ended = self.users.iter().any(|(_, user)| user.thread.is_finished());
            ended || self.users.iter().zip(&before).all(|((_, u), before)| calls(u) > before + 5)
        });
    }

    fn objects(&self) -> Vec<Object> {
        self.names().iter().flat_map(|name| objects(self.cluster, name)).collect()
    }

    /// All is online, and as many copies as there should be.
    fn are_whole(&self, copies: impl Fn(&str) -> usize) -> bool {
        self.names().iter().all(|name| {
            let objects = objects(self.cluster, name);
            let mut columns = BTreeMap::<u64, usize>::new();
            objects.iter().for_each(|o| *columns.entry(o.column).or_default() += 1);
            objects.iter().all(|o| o.online) && columns.values().all(|n| *n == copies(name))
        })
    }

    /// Ends the users; all bytes are those that were written, in each copy.
    fn end(self) {
        let Self { cluster, users, others } = self;
        let ended = users.into_iter().map(|(name, user)| (name, user.end()));
        let all: Vec<(String, Vec<u8>)> = ended.chain(others).collect();
        let reader = client(cluster, false);
        for (name, data) in &all {
            let file = reader.lookup(&Context::root(), FileId::ROOT, name.as_bytes()).unwrap();
            let rights = weir_wire::Rights::READ;
            let (file, _) = reader.open(&Context::root(), file.file, rights).unwrap();
            let mut found = vec![0; data.len() + 1];
            assert_eq!(file.read_at(&Context::root(), 0, &mut found).unwrap(), data.len());
            assert!(found[..data.len()] == **data, "{name} differs");
            file.close(&Context::root()).unwrap();
        }
        drop(reader);
        for (name, _) in &all {
            eventually("all copies are the same", || copies_agree(cluster, name));
        }
        // What was being moved when servers died may be found for a while.
        eventually("fsck finds nothing", || {
            let said = cluster.weir(&["fsck"]);
            if said.code != Some(0) {
                eprintln!("{}{}", said.out, said.err);
            }
            said.code == Some(0)
        });
    }
}

/// A copy of a column.
struct Object {
    name: String,
    column: u64,
    target: u64,
    online: bool,
}

fn objects(cluster: &Cluster<'_>, name: &str) -> Vec<Object> {
    let layout = cluster.weir(&["layout", "--json", &format!("weir:/{name}")]).json();
    let objects = layout[0]["segments"][0]["objects"].as_array().unwrap().clone();
    let object = |o: &serde_json::Value| Object {
        name: format!("f{}", o["object"].as_str().unwrap()),
        column: o["column"].as_u64().unwrap(),
        target: o["target"].as_u64().unwrap(),
        online: o["state"] == "online",
    };
    objects.iter().map(object).collect()
}

fn copies_agree(cluster: &Cluster<'_>, name: &str) -> bool {
    let mut columns = BTreeMap::<u64, BTreeSet<Vec<u8>>>::new();
    for object in objects(cluster, name) {
        let data = data_of(&cluster.dir(), &object);
        columns.entry(object.column).or_default().insert(data);
    }
    columns.values().all(|copies| copies.len() == 1)
}

/// The bytes of an object of less than a section, up to the last that is not zero.
fn data_of(dir: &Path, object: &Object) -> Vec<u8> {
    let hashes = fs::read_dir(dir.join(format!("targets/{}/objects", object.target))).unwrap();
    let mut paths = hashes.map(|hash| hash.unwrap().path().join(&object.name));
    let bytes = paths.find_map(|path| fs::read(path).ok()).unwrap_or_default();
    let data = bytes.get(DATA_START..).unwrap_or_default();
    let end = data.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
    data[..end].to_vec()
}

/// Sets something at the top of a daemon's configuration.
fn configure(cluster: &Cluster<'_>, daemon: &str, setting: &str) {
    let path = cluster.dir().join(format!("{daemon}.toml"));
    let name = setting.split(' ').next().unwrap();
    let text = fs::read_to_string(&path).unwrap();
    let lines = text.lines().filter(|line| line.split(' ').next() != Some(name));
    let rest: Vec<&str> = lines.collect();
    fs::write(path, format!("{setting}\n{}\n", rest.join("\n"))).unwrap();
}

fn filling(cluster: &Cluster<'_>) -> u64 {
    let said = cluster.weir(&["status", "--json"]);
    let status: serde_json::Value = serde_json::from_str(&said.out).unwrap_or_default();
    status["copies"]["filling"].as_u64().unwrap_or(0)
}

#[test]
fn a_target_that_is_drained_gives_its_copies_away_and_can_be_removed() {
    let place = Place::new();
    let cluster = place.up("drained", &["--targets", "4"]);
    let files = Files::new(&cluster, true);
    let single = |name: &str| if name.ends_with(['1', '3', '5']) { 1 } else { 2 };
    cluster.weir(&["target", "remove", "2"]).fails(&["drain"]);
    cluster.weir(&["target", "drain", "2"]).ok();
    eventually("nothing is there", || files.objects().iter().all(|o| o.target != 2));
    eventually("all is whole", || files.are_whole(single));
    files.go_on();
    cluster.weir(&["target", "remove", "2"]).ok();
    files.go_on();
    files.end();
}

#[test]
fn copies_of_a_lost_server_are_made_anew_though_others_die_meanwhile() {
    let place = Place::new();
    let cluster = place.up("lost", &["--targets", "4"]);
    cluster.weir(&["down"]).ok();
    configure(&cluster, "meta", "rebuild_after_ms = 2000");
    for server in 1..=4 {
        configure(&cluster, &format!("data-{server}"), "resync_bytes_per_s = 500000");
    }
    cluster.weir(&["up"]).ok();
    let files = Files::new(&cluster, false);
    cluster.kill("data-2");
    cluster.forget(2);
    eventually("copies are made", || filling(&cluster) > 0);
    cluster.kill("meta");
    cluster.weir(&["up"]).ok();
    files.go_on();
    cluster.kill("data-3");
    cluster.weir(&["up"]).ok();
    let gone = || files.objects().iter().all(|o| o.target != 2);
    eventually("they are made", || gone() && files.are_whole(|_| 2));
    files.go_on();
    // About as many on each of the others.
    let mut on = BTreeMap::<u64, usize>::new();
    files.objects().iter().for_each(|o| *on.entry(o.target).or_default() += 1);
    let mean = files.objects().len() / 3;
    assert!(on.values().all(|n| n.abs_diff(mean) <= 1 + mean / 10), "{on:?}");
    cluster.weir(&["target", "remove", "2"]).ok();
    files.end();
}

/// A small disk of its own for a target; gone when dropped.
struct Disk(PathBuf);

impl Disk {
    fn of(cluster: &Cluster<'_>, target: u32) -> Self {
        let at = cluster.dir().join(format!("targets/{target}"));
        let script = "cp -a $0 $0.was && mount -t tmpfs -o size=192m weir-test $0 && \
                      cp -a $0.was/. $0/ && rm -r $0.was";
        let mut command = Command::new("sh");
        command.args(["-c", script]).arg(&at);
        said(command).ok();
        Self(at)
    }

    /// In percent.
    fn used(&self) -> u64 {
        let usage = rustix::fs::statvfs(&self.0).unwrap();
        (usage.f_blocks - usage.f_bfree) * 100 / usage.f_blocks
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn targets_are_evened_out_while_files_are_used_and_servers_die() {
    if !root() {
        return;
    }
    let place = Place::new();
    let cluster = place.up("uneven", &["--targets", "3"]);
    cluster.weir(&["down"]).ok();
    for server in 1..=3 {
        configure(&cluster, &format!("data-{server}"), "resync_bytes_per_s = 12000000");
    }
    let disks: Vec<Disk> = (1..=3).map(|target| Disk::of(&cluster, target)).collect();
    cluster.weir(&["up"]).ok();
    let mut files = Files::new(&cluster, false);
    let client = client(&cluster, false);
    // All on the first two.
    for number in 0..30 {
        let (name, data) = (format!("heavy{number}"), noise(1_500_000, number));
        let layout = LayoutSpec { copies: 2, count: 1, base: Some(0), ..LayoutSpec::default() };
        let file = create_of(&client, &name, layout);
        file.write_at(&Context::root(), 0, &data).unwrap();
        file.sync(&Context::root()).unwrap();
        file.close(&Context::root()).unwrap();
        files.others.push((name, data));
    }
    drop(client);
    let uneven = || {
        let used = disks.iter().map(Disk::used);
        used.clone().max().unwrap() - used.min().unwrap()
    };
    assert!(uneven() > 15, "{}", uneven());
    // Whoever has to do with it dies in the middle.
    cluster.weir(&["rebalance", "--within", "4"]).ok();
    eventually("copies move", || filling(&cluster) > 0);
    cluster.kill("meta");
    cluster.weir(&["up"]).ok();
    files.go_on();
    for server in ["data-1", "data-3"] {
        cluster.weir(&["rebalance", "--within", "4"]).ok();
        eventually("copies move", || filling(&cluster) > 0);
        cluster.kill(server);
        cluster.weir(&["up"]).ok();
        files.go_on();
    }
    // Once more if the last heartbeats did not tell of all yet.
    eventually("they are even", || {
        cluster.weir(&["rebalance", "--within", "4", "--wait"]).ok();
        uneven() <= 8
    });
    eventually("all is whole", || files.are_whole(|_| 2));
    files.go_on();
    files.end();
}

#[test]
fn more_and_fewer_copies_of_files_in_use() {
    let place = Place::new();
    let cluster = place.up("wished", &["--targets", "4"]);
    let files = Files::new(&cluster, false);
    for copies in ["3", "1", "2"] {
        for name in files.names() {
            cluster.weir(&["setlayout", &format!("weir:/{name}"), "--copies", copies]).ok();
        }
        let copies = copies.parse().unwrap();
        eventually("there are as many", || files.are_whole(|_| copies));
        files.go_on();
    }
    files.end();
}

/// A data server of another machine, with target 10, which `weir up` knows nothing of.
struct Added<'a> {
    cluster: &'a Cluster<'a>,
    process: Option<Child>,
}

impl<'a> Added<'a> {
    fn new(cluster: &'a Cluster<'a>) -> Self {
        let new = ["key", "server", "--server", "10", "--targets", "10", "-o", "node"];
        let said = cluster.weir(&[&new[..], &["--listen", "127.0.0.1:0"]].concat()).ok();
        let line = said.lines().find(|line| line.contains("weir target create")).unwrap();
        let mut create: Vec<String> = line.split_whitespace().skip(1).map(str::to_owned).collect();
        // Among the others, where its objects are looked for.
        let dir = cluster.dir().join("targets/10").display().to_string();
        *create.iter_mut().find(|word| *word == "target-10").unwrap() = dir.clone();
        cluster.place.weir(&create).ok();
        let config = cluster.place.path("node/data-10.toml");
        let text = fs::read_to_string(&config).unwrap();
        assert!(text.contains("\"target-10\""), "{text}");
        fs::write(&config, text.replace("\"target-10\"", &format!("{dir:?}"))).unwrap();
        let mut added = Self { cluster, process: None };
        added.start();
        added
    }

    fn start(&mut self) {
        let mut server = self.cluster.place.command(&["data", "--config", "data-10.toml"]);
        server.current_dir(self.cluster.place.path("node")).stderr(Stdio::null());
        self.process = Some(server.spawn().unwrap());
    }

    /// SIGKILL.
    fn kill(&mut self) {
        let Some(mut process) = self.process.take() else { return };
        process.kill().unwrap();
        process.wait().unwrap();
    }
}

impl Drop for Added<'_> {
    fn drop(&mut self) {
        self.kill();
    }
}

#[test]
fn a_server_is_replaced_by_another_though_all_of_them_die_meanwhile() {
    let place = Place::new();
    let cluster = place.up("replaced", &["--targets", "3"]);
    cluster.weir(&["down"]).ok();
    for server in 1..=3 {
        configure(&cluster, &format!("data-{server}"), "resync_bytes_per_s = 500000");
    }
    cluster.weir(&["up"]).ok();
    let files = Files::new(&cluster, true);
    let single = |name: &str| if name.ends_with(['1', '3', '5']) { 1 } else { 2 };
    let mut added = Added::new(&cluster);
    let is_there = |target: u64| {
        let views = cluster.weir(&["targets", "--json"]).json();
        let mut views = views.as_array().unwrap().iter();
        views.any(|view| view["target"] == target && view["state"] == "online")
    };
    eventually("it has joined", || is_there(10));
    cluster.weir(&["target", "drain", "2"]).ok();
    let mut kill = |daemon: &str| {
        eventually("copies are made", || filling(&cluster) > 0);
        match daemon {
            "data-10" => {
                added.kill();
                added.start();
            }
            daemon => cluster.kill(daemon),
        }
        cluster.weir(&["up"]).ok();
        eventually("it is back", || is_there(10));
    };
    // Who decides, who gives, who gets.
    ["meta", "data-2", "data-10"].iter().for_each(|daemon| kill(daemon));
    files.go_on();
    eventually("nothing is there", || files.objects().iter().all(|o| o.target != 2));
    eventually("all is whole", || files.are_whole(single));
    assert!(files.objects().iter().any(|o| o.target == 10), "the new one has got something");
    cluster.weir(&["target", "remove", "2"]).ok();
    cluster.kill("data-2");
    cluster.forget(2);
    files.go_on();
    files.end();
}
