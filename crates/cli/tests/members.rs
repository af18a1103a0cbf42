//! Data servers and targets come and go while files are used: added, drained, removed,
//! replaced, and all of that though commands and servers are killed in the middle.

use crate::harness::{self, Cluster, Place, eventually, noise};
use crate::library::client;
use crate::moved_files::{Files, configure, create_of, filling};
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, Stdio};
use std::time::Duration;
use weir_client::Context;
use weir_types::LayoutSpec;

/// The servers with their targets, as `weir server list` has them.
fn members(cluster: &Cluster<'_>) -> BTreeMap<u64, Vec<u64>> {
    let list = cluster.weir(&["server", "list", "--json"]).json();
    let numbers = |server: &serde_json::Value| {
        let targets = server["targets"].as_array().unwrap().iter();
        targets.map(|target| target["target"].as_u64().unwrap()).collect()
    };
    let all = list.as_array().unwrap().iter();
    all.map(|server| (server["server"].as_u64().unwrap(), numbers(server))).collect()
}

fn is(cluster: &Cluster<'_>, target: u64, state: &str) -> bool {
    let views = cluster.weir(&["targets", "--json"]).json();
    views.as_array().unwrap().iter().any(|v| v["target"] == target && v["state"] == state)
}

/// As [`Files::new`] makes them with some of one copy.
fn some_single(name: &str) -> usize {
    if name.starts_with(['u', 'l']) && name.ends_with(['1', '3', '5']) { 1 } else { 2 }
}

/// A server with the configuration and the keys that it had; it ends when dropped.
struct Returned(Child);

impl Returned {
    /// From copies of them.
    fn start(cluster: &Cluster<'_>, log: &std::path::Path) -> Self {
        let config = cluster.place.path("saved/data.toml").display().to_string();
        let mut command = cluster.place.command(&["data", "--config", &config]);
        Self(command.stderr(fs::File::create(log).unwrap()).spawn().unwrap())
    }

    /// Saves what a server of `weir up` has.
    fn save(cluster: &Cluster<'_>, server: u32) {
        let (dir, saved) = (cluster.dir(), cluster.place.path("saved"));
        fs::create_dir(&saved).unwrap();
        for key in fs::read_dir(dir.join("keys")).unwrap().flatten() {
            fs::copy(key.path(), saved.join(key.file_name())).unwrap();
        }
        let text = fs::read_to_string(dir.join(format!("data-{server}.toml"))).unwrap();
        let keys = dir.join("keys").display().to_string();
        assert!(text.contains(&keys), "{text}");
        fs::write(saved.join("data.toml"), text.replace(&keys, &saved.display().to_string()))
            .unwrap();
    }
}

impl Drop for Returned {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn a_cluster_grows_and_shrinks_while_it_is_used() {
    let place = Place::new();
    let cluster = place.up("grows", &["--targets", "2"]);
    let files = Files::new(&cluster, true);
    cluster.weir(&["server", "add", "--targets", "2"]).ok();
    let disk = place.path("disk").display().to_string();
    cluster.weir(&["target", "add", "--server", "1", "--target-dir", &disk]).ok();
    let grown = BTreeMap::from([(1, vec![1, 5]), (2, vec![2]), (3, vec![3, 4])]);
    assert_eq!(members(&cluster), grown);
    files.go_on();
    cluster.weir(&["server", "remove", "2"]).fails(&["in use", "weir server drain 2"]);
    let said = cluster.weir(&["server", "drain", "2", "--wait"]).ok();
    assert!(said.contains("nothing is left on target 2"), "{said}");
    assert!(files.objects().iter().all(|o| o.target != 2));
    Returned::save(&cluster, 2);
    cluster.weir(&["server", "remove", "2"]).ok();
    assert!(!cluster.runs("data-2"));
    let shrunk = BTreeMap::from([(1, vec![1, 5]), (3, vec![3, 4])]);
    assert_eq!(members(&cluster), shrunk);
    // It is not let in again, though it has all that it had.
    let log = place.path("log");
    let returned = Returned::start(&cluster, &log);
    let refused = || fs::read_to_string(&log).unwrap().contains("removed from the cluster");
    eventually("it is refused", refused);
    drop(returned);
    assert_eq!(members(&cluster), shrunk);
    // Numbers do not come back either.
    cluster.weir(&["server", "add"]).ok();
    assert_eq!(members(&cluster)[&4], [6]);
    files.go_on();
    eventually("all is whole", || files.are_whole(some_single));
    cluster.weir(&["up"]).ok();
    assert!(cluster.weir(&["status"]).ok().contains("All is well"));
    files.end();
    cluster.weir(&["down"]).ok();
    cluster.weir(&["up"]).ok();
    assert_eq!(members(&cluster).values().flatten().count(), 5);
}

#[test]
fn what_cannot_be_done_with_servers_is_said() {
    let place = Place::new();
    let cluster = place.up("refused", &["--targets", "1"]);
    for command in ["drain", "undrain", "remove"] {
        cluster.weir(&["server", command, "9"]).fails(&["no data server 9", "weir server list"]);
    }
    cluster.weir(&["target", "add", "--server", "9"]).fails(&["no data server 9"]);
    cluster.weir(&["server", "remove", "1"]).fails(&["last one", "weir server add"]);
    cluster.weir(&["server", "drain", "1"]).fails(&["nothing could take", "weir server add"]);
    cluster.weir(&["up", "--targets", "2"]).fails(&["weir server add", "weir target add"]);
    cluster.weir(&["server", "add"]).ok();
    // A file that is on the second one only, and cannot go anywhere.
    let writer = client(&cluster, false);
    let layout = LayoutSpec { count: 1, base: Some(1), ..LayoutSpec::default() };
    let file = create_of(&writer, "single", layout);
    file.write_at(&Context::root(), 0, b"here").unwrap();
    file.close(&Context::root()).unwrap();
    cluster.kill("data-1");
    eventually("it is missed", || is(&cluster, 1, "offline"));
    cluster.weir(&["server", "drain", "2"]).ok();
    cluster.weir(&["server", "remove", "2"]).fails(&["1 files have copies", "--force"]);
    cluster.weir(&["server", "remove", "2", "--force"]).fails(&["target 2", "stop it first"]);
    cluster.weir(&["server", "undrain", "2"]).ok();
    // One that is away for good: what is lost with it is named.
    cluster.weir(&["up"]).ok();
    cluster.kill("data-2");
    eventually("it is missed", || is(&cluster, 2, "offline"));
    let asked = cluster.weir(&["server", "remove", "2", "--force"]);
    assert!(asked.out.contains("weir:/single"), "{asked:?}");
    asked.fails(&["--yes"]);
    assert_eq!(members(&cluster).len(), 2, "nothing was changed");
    cluster.weir(&["server", "remove", "2", "--force", "--yes"]).ok();
    assert_eq!(members(&cluster), BTreeMap::from([(1, vec![1])]));
    cluster.weir(&["rm", "weir:/single"]).ok();
    cluster.weir(&["fsck"]).ok();
}

#[test]
fn adding_that_is_killed_is_finished_or_taken_back() {
    const ROUNDS: u64 = 14;
    let place = Place::new();
    let cluster = place.up("interrupted", &["--targets", "2"]);
    let data = noise(700_000, 5);
    let writer = client(&cluster, false);
    let file = create_of(&writer, "file", LayoutSpec { copies: 2, ..LayoutSpec::default() });
    file.write_at(&Context::root(), 0, &data).unwrap();
    file.close(&Context::root()).unwrap();
    for round in 0..ROUNDS {
        let disk = place.path(&format!("disk{round}")).display().to_string();
        let order = match round % 2 {
            0 => vec!["target", "add", "--server", "1", "--target-dir", &disk],
            _ => vec!["server", "add", "--target-dir", &disk],
        };
        let mut command = cluster.command(&order);
        let mut adding = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(round * 12));
        adding.kill().unwrap();
        adding.wait().unwrap();
        cluster.weir(&["up"]).ok();
        let text = fs::read_to_string(cluster.dir().join("cluster.toml")).unwrap();
        assert!(!text.contains("adding"), "{text}");
        // What is described is there, is served, and nothing else.
        let described: toml::Table = text.parse().unwrap();
        let servers = described["server"].as_array().unwrap().iter();
        let mut numbers: Vec<i64> = servers
            .flat_map(|server| server["targets"].as_array().unwrap())
            .map(|target| target.as_integer().unwrap())
            .collect();
        numbers.sort_unstable();
        for target in &numbers {
            eventually("it is online", || is(&cluster, *target as u64, "online"));
        }
        let known = members(&cluster).into_values().flatten();
        let mut known: Vec<i64> = known.map(|target| target as i64).collect();
        known.sort_unstable();
        assert_eq!(known, numbers, "round {round}");
        let keys = fs::read_dir(cluster.dir().join("keys")).unwrap().flatten();
        let keys = keys.filter(|key| key.file_name().to_string_lossy().starts_with("target-"));
        assert_eq!(keys.count(), numbers.len());
    }
    assert!(members(&cluster).values().flatten().count() > 3, "some were finished");
    let copy = place.path("copy").display().to_string();
    cluster.weir(&["cp", "weir:/file", &copy]).ok();
    assert!(fs::read(copy).unwrap() == data);
    cluster.weir(&["fsck"]).ok();
}

#[test]
fn a_target_whose_disk_has_failed_is_replaced() {
    let place = Place::new();
    let cluster = place.up("replaced", &["--targets", "4"]);
    let files = Files::new(&cluster, false);
    let writer = client(&cluster, false);
    let single = LayoutSpec { count: 1, base: Some(1), ..LayoutSpec::default() };
    let file = create_of(&writer, "single", single);
    file.write_at(&Context::root(), 0, b"only there").unwrap();
    file.close(&Context::root()).unwrap();
    let disk = place.path("disk").display().to_string();
    let replace = ["target", "replace", "2", "--target-dir", &disk];
    cluster.weir(&replace).fails(&["in use", "weir target drain 2 --wait"]);
    cluster.kill("data-2");
    fs::remove_dir_all(cluster.dir().join("targets/2")).unwrap();
    eventually("it is missed", || is(&cluster, 2, "offline"));
    let asked = cluster.weir(&replace);
    assert!(asked.out.contains("weir:/single") && !asked.out.contains("lies"), "{asked:?}");
    asked.fails(&["1 files", "--yes"]);
    assert!(!place.path("disk").exists(), "nothing was changed");
    files.go_on();
    cluster.weir(&[&replace[..], &["--yes"]].concat()).ok();
    assert_eq!(members(&cluster)[&2], [5]);
    files.go_on();
    eventually("all is whole", || files.are_whole(|_| 2));
    assert!(files.objects().iter().any(|o| o.target == 5), "the new one has got something");
    // Once more: there is nothing to do.
    cluster.weir(&replace).fails(&["target 2 is not of this machine"]);
    cluster.weir(&["rm", "weir:/single"]).ok();
    files.end();
}

/// The disk of the only target of server 2 fails.
fn lose_disk(cluster: &Cluster<'_>, target: u64) {
    cluster.kill("data-2");
    fs::remove_dir_all(cluster.dir().join(format!("targets/{target}"))).unwrap();
    eventually("it is missed", || is(cluster, target, "offline"));
}

#[test]
fn replacing_that_is_interrupted_is_finished_by_the_same_command() {
    let place = Place::new();
    let cluster = place.up("again", &["--targets", "3"]);
    let data = noise(700_000, 5);
    let writer = client(&cluster, false);
    let file = create_of(&writer, "file", LayoutSpec { copies: 2, ..LayoutSpec::default() });
    file.write_at(&Context::root(), 0, &data).unwrap();
    file.close(&Context::root()).unwrap();
    let text = fs::read_to_string(cluster.dir().join("cluster.toml")).unwrap();
    let described: toml::Table = text.parse().unwrap();
    let address = described["server"][1]["address"].as_str().unwrap().to_owned();
    lose_disk(&cluster, 2);
    // The new target is made, and its server cannot be started.
    let in_the_way = TcpListener::bind(&address).unwrap();
    cluster.weir(&["target", "replace", "2", "--yes"]).fails(&["data-2"]);
    drop(in_the_way);
    let elsewhere = place.path("disk").display().to_string();
    let other = ["target", "replace", "2", "--yes", "--target-dir", &elsewhere];
    cluster.weir(&other).fails(&["target 4 was made to replace target 2", "--target-dir"]);
    assert_eq!(members(&cluster)[&2], [2], "nobody has heard of it yet");
    cluster.weir(&["target", "replace", "2", "--yes"]).ok();
    assert_eq!(members(&cluster)[&2], [4]);
    cluster.weir(&["target", "replace", "2", "--yes"]).fails(&["target 2 is not of this machine"]);
    // Once more, and the server has had the new target before it goes again.
    let is_whole = || cluster.weir(&["status"]).out.contains("All is well");
    eventually("all is whole", is_whole);
    lose_disk(&cluster, 4);
    let in_the_way = TcpListener::bind(&address).unwrap();
    cluster.weir(&["target", "replace", "4", "--yes"]).fails(&["data-2"]);
    drop(in_the_way);
    cluster.weir(&["up"]);
    eventually("the new one is there", || is(&cluster, 5, "online"));
    cluster.kill("data-2");
    cluster.weir(&["target", "replace", "4", "--yes"]).ok();
    assert_eq!(members(&cluster)[&2], [5]);
    assert!(cluster.runs("data-2"));
    eventually("it is up to date", || is(&cluster, 5, "online"));
    let text = fs::read_to_string(cluster.dir().join("cluster.toml")).unwrap();
    assert!(!text.contains("replacing"), "{text}");
    let copy = place.path("copy").display().to_string();
    cluster.weir(&["cp", "weir:/file", &copy]).ok();
    assert!(fs::read(copy).unwrap() == data);
    eventually("all is whole", is_whole);
    cluster.weir(&["fsck"]).ok();
}

/// A data server that `weir up` knows nothing of; it ends when dropped.
struct Elsewhere(Child);

impl Elsewhere {
    fn start(place: &Place) -> Self {
        let mut command = place.command(&["data", "--config", "data-10.toml"]);
        command.current_dir(place.path("node")).stderr(Stdio::null());
        Self(command.spawn().unwrap())
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// The commands that are printed are carried out where the server runs.
fn obey(place: &Place, printed: &str) {
    for line in printed.lines().filter(|line| line.contains("weir target create")) {
        let words: Vec<&str> = line.split_whitespace().skip(1).collect();
        let mut command = place.command(&words);
        command.current_dir(place.path("node"));
        harness::said(command).ok();
    }
}

#[test]
fn a_server_of_another_machine_gets_a_target_as_is_printed() {
    let place = Place::new();
    let cluster = place.up("elsewhere", &["--targets", "1"]);
    let new = ["key", "server", "--server", "10", "--targets", "10", "-o", "node"];
    let printed = cluster.weir(&[&new[..], &["--listen", "127.0.0.1:0"]].concat()).ok();
    obey(&place, &printed);
    let server = Elsewhere::start(&place);
    eventually("it has joined", || is(&cluster, 10, "online"));
    let add = ["target", "add", "--server", "10", "--target-dir", "disk", "--target-dir", "other"];
    cluster.weir(&add).fails(&["not made here", "--output"]);
    let printed = cluster.weir(&[&add[..], &["--output", "keys"]].concat()).ok();
    for key in fs::read_dir(place.path("keys")).unwrap().flatten() {
        fs::copy(key.path(), place.path("node").join(key.file_name())).unwrap();
    }
    obey(&place, &printed);
    let (_, entries) = printed.split_once("add to the end of data-10.toml\n").unwrap();
    let entries: String =
        entries.lines().filter(|line| line.starts_with("  ")).map(|l| format!("{l}\n")).collect();
    let config = place.path("node/data-10.toml");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text + &entries).unwrap();
    drop(server);
    let _server = Elsewhere::start(&place);
    eventually("both are there", || is(&cluster, 11, "online") && is(&cluster, 12, "online"));
    assert_eq!(members(&cluster)[&10], [10, 11, 12]);
}

#[test]
fn a_daemon_of_which_nobody_knows_ends() {
    let place = Place::new();
    let cluster = place.up("unknown", &["--targets", "1"]);
    cluster.kill("data-1");
    let config = cluster.dir().join("data-1.toml").display().to_string();
    let mut command = place.command(&["data", "--detached", "--config", &config]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut daemon = Elsewhere(command.spawn().unwrap());
    // The starting command is killed before it could record the process, and still takes its
    // reports.
    let report = daemon.0.stdout.take().unwrap();
    drop(daemon.0.stdin.take());
    let mut said = String::new();
    BufReader::new(report).read_line(&mut said).unwrap();
    assert_eq!(said, "", "it has begun");
    assert!(daemon.0.wait().unwrap().success(), "in order");
    cluster.weir(&["up"]).ok();
}

/// Whether `weir status` says for a target what is being made there, as documented.
fn is_told_of_filling(cluster: &Cluster<'_>) -> bool {
    let said = cluster.weir(&["status", "--json", "--counters"]);
    let status: serde_json::Value = serde_json::from_str(&said.out).unwrap_or_default();
    let counters = &status["servers"]["meta"]["counters"];
    let Some(targets) = status["targets"].as_array() else { return false };
    targets.iter().any(|target| {
        let counter = |name: &str| counters[format!("target.{}.{name}", target["target"])].as_u64();
        let names =
            ["filling_copies", "filling_bytes", "filling_bytes_per_s", "filling_expected_s"];
        let all = names.iter().all(|name| {
            let told = target[name].as_u64();
            told.is_some() && told == counter(name)
        });
        all && target["filling_copies"].as_u64() > Some(0)
    })
}

#[test]
fn a_server_is_drained_though_all_of_them_die_again_and_again() {
    let place = Place::new();
    let cluster = place.up("killed", &["--targets", "6", "--targets-per-server", "2"]);
    cluster.weir(&["down"]).ok();
    for server in 1..=3 {
        // So slowly that servers die meanwhile. But a file whose only copy moves away cannot be
        // used as long as that one is brought up to date (docs/copies.md): up to 27 s at 400 kB/s.
        configure(&cluster, &format!("data-{server}"), "resync_bytes_per_s = 600000");
    }
    cluster.weir(&["up"]).ok();
    let mut files = Files::new(&cluster, true);
    let writer = client(&cluster, false);
    for number in 0..8 {
        let (name, data) = (format!("heavy{number}"), noise(1_500_000, number));
        let layout = LayoutSpec { copies: 2, ..LayoutSpec::default() };
        let file = create_of(&writer, &name, layout);
        file.write_at(&Context::root(), 0, &data).unwrap();
        file.close(&Context::root()).unwrap();
        files.others.push((name, data));
    }
    drop(writer);
    cluster.weir(&["server", "drain", "2"]).ok();
    eventually("what targets get is told", || is_told_of_filling(&cluster));
    // The deciding, the sending and the receiving server; each of them twice.
    let mut kills = 0;
    for daemon in ["meta", "data-2", "data-1", "meta", "data-3", "data-2"] {
        let done = || files.objects().iter().all(|o| ![3, 4].contains(&o.target));
        eventually("copies are made", || filling(&cluster) > 0 || done());
        if done() {
            break;
        }
        cluster.kill(daemon);
        cluster.weir(&["up"]).ok();
        kills += 1;
        files.go_on();
    }
    assert!(kills >= 3, "it was over after {kills}");
    cluster.weir(&["server", "drain", "2", "--wait"]).ok();
    eventually("all is whole", || files.are_whole(some_single));
    // The command is killed, too, and given again.
    let mut command = cluster.command(&["server", "remove", "2"]);
    let mut removing = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(60));
    removing.kill().unwrap();
    removing.wait().unwrap();
    let again = cluster.weir(&["server", "remove", "2"]);
    assert!(again.code == Some(0) || again.err.contains("no data server 2"), "{again:?}");
    assert_eq!(members(&cluster).into_keys().collect::<Vec<_>>(), [1, 3]);
    assert!(!cluster.runs("data-2") && !cluster.dir().join("data-2.toml").exists());
    cluster.weir(&["up"]).ok();
    files.go_on();
    files.end();
}
