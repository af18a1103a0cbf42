//! Files that are used while their copies move, and unused ones: nothing acknowledged is lost, no
//! call waits too long, and in the end all copies are the same.

use crate::harness::{Cluster, eventually, noise};
use crate::library::client;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weir_client::{Client, Context, CreateOptions, File};
use weir_types::{FileId, LayoutSpec};

/// A server is missed after 3 to 5 s; but a restarted metadata server first waits for its clients,
/// and this machine may be slow.
const LONGEST: Duration = Duration::from_secs(25);
/// Where the data of an object begins in its file (docs/format-store.md).
const DATA_START: usize = 32 * 4096;
const FILE_BYTES: usize = 1 << 20;

/// A thread that writes to a file, and reads what it has written.
pub struct User {
    stop: Arc<AtomicBool>,
    calls: Arc<AtomicU64>,
    thread: JoinHandle<(Vec<u8>, Duration)>,
}

impl User {
    pub fn start(cluster: &Cluster<'_>, name: &str, copies: u8, seed: u64) -> Self {
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
    pub fn end(self) -> Vec<u8> {
        self.stop.store(true, Ordering::Relaxed);
        let (data, longest) = self.thread.join().unwrap();
        assert!(longest < LONGEST, "a call took {longest:?}");
        data
    }
}

pub fn create(client: &Client, name: &str, copies: u8) -> File {
    create_of(client, name, LayoutSpec { copies, ..LayoutSpec::default() })
}

pub fn create_of(client: &Client, name: &str, layout: LayoutSpec) -> File {
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
        let took = begin.elapsed();
        longest = longest.max(took);
        if took > LONGEST / 2 {
            eprintln!("call {call} of seed {seed}, kind {}: {took:?}", dice[3] % 4);
        }
        // Two cores serve this, the cluster, and other tests.
        std::thread::sleep(Duration::from_millis(3));
    }
    file.sync(&ctx).unwrap();
    file.close(&ctx).unwrap();
    (data, longest)
}

/// Files in use, and others that lie there.
pub struct Files<'a> {
    pub cluster: &'a Cluster<'a>,
    pub users: Vec<(String, User)>,
    pub others: Vec<(String, Vec<u8>)>,
}

impl<'a> Files<'a> {
    /// `single`: some of one copy, too.
    pub fn new(cluster: &'a Cluster<'a>, single: bool) -> Self {
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

    pub fn names(&self) -> Vec<String> {
        let used = self.users.iter().map(|(name, _)| name.clone());
        used.chain(self.others.iter().map(|(name, _)| name.clone())).collect()
    }

    /// All users make some more calls.
    pub fn go_on(&self) {
        let calls = |user: &User| user.calls.load(Ordering::Relaxed);
        let before: Vec<u64> = self.users.iter().map(|(_, user)| calls(user)).collect();
        eventually("they go on", || {
            let ended = self.users.iter().any(|(_, user)| user.thread.is_finished());
            ended || self.users.iter().zip(&before).all(|((_, u), before)| calls(u) > before + 5)
        });
    }

    pub fn objects(&self) -> Vec<Object> {
        self.names().iter().flat_map(|name| objects(self.cluster, name)).collect()
    }

    /// All is online, and as many copies as there should be.
    pub fn are_whole(&self, copies: impl Fn(&str) -> usize) -> bool {
        self.names().iter().all(|name| {
            let objects = objects(self.cluster, name);
            let mut columns = BTreeMap::<u64, usize>::new();
            objects.iter().for_each(|o| *columns.entry(o.column).or_default() += 1);
            objects.iter().all(|o| o.online) && columns.values().all(|n| *n == copies(name))
        })
    }

    /// Ends the users; all bytes are those that were written, in each copy.
    pub fn end(self) {
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
            let same = |at: &usize| found[*at] == data[*at];
            let differs = (0..data.len()).find(|at| !same(at));
            let last = (0..data.len()).rfind(|at| !same(at));
            assert_eq!((differs, last), (None, None), "first and last byte of {name} that differ");
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
pub struct Object {
    pub name: String,
    pub column: u64,
    pub target: u64,
    pub online: bool,
}

pub fn objects(cluster: &Cluster<'_>, name: &str) -> Vec<Object> {
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

pub fn copies_agree(cluster: &Cluster<'_>, name: &str) -> bool {
    let mut columns = BTreeMap::<u64, BTreeSet<Vec<u8>>>::new();
    for object in objects(cluster, name) {
        let data = data_of(&cluster.dir(), &object);
        columns.entry(object.column).or_default().insert(data);
    }
    columns.values().all(|copies| copies.len() == 1)
}

/// What an object is kept in; `None`: it is not there.
pub fn data_file(dir: &Path, object: &Object) -> Option<Vec<u8>> {
    let hashes = fs::read_dir(dir.join(format!("targets/{}/objects", object.target))).unwrap();
    let mut paths = hashes.map(|hash| hash.unwrap().path().join(&object.name));
    paths.find_map(|path| fs::read(path).ok())
}

/// The bytes of an object of less than a section, up to the last that is not zero.
pub fn data_of(dir: &Path, object: &Object) -> Vec<u8> {
    let bytes = data_file(dir, object).unwrap_or_default();
    let data = bytes.get(DATA_START..).unwrap_or_default();
    let end = data.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
    data[..end].to_vec()
}

/// Sets something at the top of a daemon's configuration.
pub fn configure(cluster: &Cluster<'_>, daemon: &str, setting: &str) {
    let path = cluster.dir().join(format!("{daemon}.toml"));
    let name = setting.split(' ').next().unwrap();
    let text = fs::read_to_string(&path).unwrap();
    let lines = text.lines().filter(|line| line.split(' ').next() != Some(name));
    let rest: Vec<&str> = lines.collect();
    fs::write(path, format!("{setting}\n{}\n", rest.join("\n"))).unwrap();
}

pub fn filling(cluster: &Cluster<'_>) -> u64 {
    moving(cluster)["filling"].as_u64().unwrap_or(0)
}

/// Whether targets are being evened out; so said of one that does not answer.
#[allow(dead_code)] // Not each test program asks.
pub fn is_rebalancing(cluster: &Cluster<'_>) -> bool {
    moving(cluster)["rebalancing"].as_bool().unwrap_or(true)
}

fn moving(cluster: &Cluster<'_>) -> serde_json::Value {
    let said = cluster.weir(&["status", "--json"]);
    let status: serde_json::Value = serde_json::from_str(&said.out).unwrap_or_default();
    status["copies"].clone()
}
