//! What an earlier release has made, and its programs, meet today's: each works, or is refused
//! with a message that says what to do, and what is refused is left as it was.
//!
//! `make test` has data and messages that the program of commit c6c1f85 (the last release, 0.1.0:
//! protocol 1, formats 1) has made (`upgrade/record.sh`); `make upgrade-test` builds that
//! program, and lets both meet.

use crate::harness::{self, Cluster, Place, Running, Said, WEIR, eventually, said};
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use weir_wire::frame::VERSION;

/// The version of the protocol that the old program speaks.
const OLD: u16 = 1;
/// Where the cluster was when it was packed.
const PACKED_AT: &str = "/tmp/weir-format-1/weir/one";
const WHAT_TO_DO: &str = "install the same release";

fn recorded(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/upgrade").join(name)
}

/// The old program's cluster, where today's program looks for one named `one`.
fn unpack(place: &Place) -> Cluster<'_> {
    let cluster = place.cluster("one");
    fs::create_dir_all(place.path("state/weir")).unwrap();
    let mut tar = Command::new("tar");
    tar.arg("-xzf").arg(recorded("format-1.tar.gz")).arg("-C").arg(place.path("state/weir"));
    said(tar).ok();
    let now_at = cluster.dir().display().to_string();
    // Other tests run servers of it as well.
    let address = place.address().to_string();
    for name in ["client.toml", "meta.toml", "data-1.toml", "data-2.toml", "cluster.toml"] {
        let path = cluster.dir().join(name);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(PACKED_AT) || name == "cluster.toml", "{name}");
        let text = text.replace(PACKED_AT, &now_at).replace("127.0.0.1", &address);
        fs::write(&path, text).unwrap();
    }
    cluster
}

/// Every file below some directories with its bytes.
fn contents(dirs: &[PathBuf]) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut left = dirs.to_vec();
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display())) {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => left.push(path),
                false => drop(files.insert(path.clone(), fs::read(&path).unwrap())),
            }
        }
    }
    assert!(!files.is_empty(), "{dirs:?}");
    files
}

/// Nothing came, went or changed.
#[track_caller]
fn is_untouched(before: &BTreeMap<PathBuf, Vec<u8>>, dirs: &[PathBuf]) {
    let after = contents(dirs);
    let names = |of: &BTreeMap<PathBuf, Vec<u8>>| of.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(before), names(&after));
    for (path, bytes) in before {
        assert!(after[path] == *bytes, "{} was changed", path.display());
    }
}

/// The cluster's data: metadata, and what is on its targets.
fn data_of(cluster: &Cluster<'_>) -> [PathBuf; 3] {
    ["meta", "targets/1", "targets/2"].map(|name| cluster.dir().join(name))
}

/// A program in the foreground that ends by itself, as one does that refuses its data.
fn ends(place: &Place, program: &str, arguments: &[&str]) -> Said {
    let mut command = Command::new("timeout");
    place.prepare(command.arg("60").arg(program).args(arguments));
    said(command)
}

fn config(cluster: &Cluster<'_>, name: &str) -> String {
    cluster.dir().join(name).display().to_string()
}

/// Address of the cluster's metadata server.
fn metadata(cluster: &Cluster<'_>) -> String {
    let text = fs::read_to_string(cluster.dir().join("cluster.toml")).unwrap();
    let text: toml::Table = text.parse().unwrap();
    text["metadata"].as_str().unwrap().to_owned()
}

/// Both versions, and what to do.
#[track_caller]
fn names_both_versions(said: &Said) {
    let (old, new) = (format!("version {OLD}"), format!("version {VERSION}"));
    let text = format!("{}{}", said.out, said.err);
    for words in [old.as_str(), new.as_str(), WHAT_TO_DO] {
        assert!(text.contains(words), "no {words:?} in: {text}");
    }
    assert_eq!(said.code, Some(1), "{said:?}");
}

#[test]
fn metadata_of_the_first_format_is_refused_and_left_as_it_is() {
    let place = Place::new();
    let cluster = unpack(&place);
    let dirs = data_of(&cluster);
    let before = contents(&dirs);
    let words = ["metadata directory", "has format 1", "knows only 2", "use the version of weir"];
    cluster.weir(&["up"]).fails(&words);
    ends(&place, WEIR, &["meta", "--config", &config(&cluster, "meta.toml")]).fails(&words);
    is_untouched(&before, &dirs);
}

#[test]
fn a_target_of_the_first_format_is_brought_up_to_date_with_all_its_objects() {
    let place = Place::new();
    let cluster = unpack(&place);
    let target = cluster.dir().join("targets/1");
    let version = || fs::read(target.join("superblock")).unwrap()[8..12].to_vec();
    let objects = [target.join("objects")];
    let before = contents(&objects);
    assert_eq!(version(), 1u32.to_le_bytes());
    let config = config(&cluster, "data-1.toml");
    let serve = || {
        let mut command = place.command(&["data", "--config", &config]);
        let log = fs::File::create(place.path("log")).unwrap();
        let mut server = Running(command.stderr(log).spawn().unwrap());
        let log = || fs::read_to_string(place.path("log")).unwrap();
        eventually("it serves", || log().contains("serves 1 targets"));
        let pid = server.0.id().to_string();
        assert!(Command::new("kill").arg(pid).status().unwrap().success());
        assert!(server.0.wait().unwrap().success(), "{}", log());
    };
    serve();
    assert_eq!(version(), 2u32.to_le_bytes());
    is_untouched(&before, &objects);
    // As any other one from then on.
    serve();
    is_untouched(&before, &objects);
}

#[test]
fn an_old_client_is_told_which_versions_met_and_the_servers_go_on() {
    let place = Place::new();
    let cluster = place.up("now", &["--targets", "1"]);
    cluster.weir(&["mkdir", "/kept"]).ok();
    let hello = fs::read(recorded("hello-1.bin")).unwrap();
    assert_eq!(hello[4..6], OLD.to_le_bytes());
    let data = cluster.weir(&["server", "list", "--json"]).json()[0]["address"].clone();
    for address in [metadata(&cluster), data.as_str().unwrap().to_owned()] {
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(&hello).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        // Where every version has them: the magic, and the version that is spoken here.
        assert_eq!(answer[..4], hello[..4], "{address}");
        assert_eq!(answer[4..6], VERSION.to_le_bytes(), "{address}");
    }
    assert_eq!(cluster.weir(&["ls", "/"]).ok(), "kept\n");
}

#[test]
fn a_client_is_told_which_versions_met_by_what_an_old_server_says() {
    let place = Place::new();
    let cluster = place.up("now", &["--targets", "1"]);
    let refusal = fs::read(recorded("refusal-1.bin")).unwrap();
    assert_eq!(refusal[4..6], OLD.to_le_bytes());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut hello = [0; 4096];
            let _ = stream.read(&mut hello).unwrap();
            // It says so, and closes.
            stream.write_all(&refusal).unwrap();
        }
    });
    names_both_versions(&cluster.weir(&[
        "ls",
        "--credential",
        &credential(&cluster, &address),
        "/",
    ]));
    let status = cluster.weir(&["status", "--credential", &credential(&cluster, &address)]);
    names_both_versions(&status);
    assert!(
        status.out.contains("TROUBLE: ") && status.out.contains("weir --version"),
        "{status:?}"
    );
}

/// The credential of a cluster, for a metadata server at this address alone.
fn credential(cluster: &Cluster<'_>, address: &str) -> String {
    let path = cluster.place.path("elsewhere.toml");
    let text = fs::read_to_string(cluster.dir().join("client.toml")).unwrap();
    let mut text: toml::Table = text.parse().unwrap();
    text.insert("metadata".to_owned(), vec![address.to_owned()].into());
    fs::write(&path, text.to_string()).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(&path, mode).unwrap();
    path.display().to_string()
}

/// The old program, as `scripts/upgrade-test.sh` has built it.
fn old_program() -> String {
    std::env::var("WEIR_OLD").expect("WEIR_OLD: the old program; `make upgrade-test` builds it")
}

/// A command of the old program for a cluster, by its name.
fn old(cluster: &Cluster<'_>, arguments: &[&str]) -> Command {
    let mut command = Command::new(old_program());
    cluster.place.prepare(command.args(arguments));
    command.env("WEIR_CLUSTER", &cluster.name);
    command
}

#[test]
#[ignore = "needs the old program: make upgrade-test"]
fn old_clients_and_todays_servers_refuse_each_other() {
    let place = Place::new();
    let cluster = place.up("now", &["--targets", "2"]);
    cluster.weir(&["mkdir", "/kept"]).ok();
    let at = credential(&cluster, &metadata(&cluster));
    names_both_versions(&said(old(&cluster, &["ls", "--credential", &at, "/"])));
    fs::create_dir(place.path("m")).unwrap();
    names_both_versions(&said(old(&cluster, &["mount", "--credential", &at, "m"])));
    assert_eq!(cluster.weir(&["ls", "/"]).ok(), "kept\n");
}

#[test]
#[ignore = "needs the old program: make upgrade-test"]
fn todays_clients_and_old_servers_refuse_each_other() {
    let place = Place::new();
    let cluster = place.cluster("then");
    let (up, down) = (["up", "--targets", "2"], ["down", "--purge", "--yes"]);
    said(old(&cluster, &up)).ok();
    let done = std::panic::catch_unwind(AssertUnwindSafe(|| {
        said(old(&cluster, &["mkdir", "weir:/kept"])).ok();
        let at = credential(&cluster, &metadata(&cluster));
        names_both_versions(&place.weir(&["ls", "--credential", &at, "/"]));
        fs::create_dir(place.path("m")).unwrap();
        names_both_versions(&place.weir(&["mount", "--credential", &at, "m"]));
        assert_eq!(said(old(&cluster, &["ls", "weir:/"])).ok(), "kept\n");
    }));
    // Its processes are no programs of ours that the harness would know.
    said(old(&cluster, &down)).ok();
    done.unwrap();
}

#[test]
#[ignore = "needs the old program: make upgrade-test"]
fn old_servers_refuse_todays_data_and_leave_it_as_it_is() {
    let place = Place::new();
    let cluster = place.up("now", &["--targets", "2"]);
    fs::write(place.path("f"), harness::noise(1 << 20, 1)).unwrap();
    cluster.weir(&["cp", "f", "weir:/f"]).ok();
    cluster.weir(&["down"]).ok();
    // What the old program reads, of the places that today's has.
    let then = unpack(&place);
    let (dir, here) = (then.dir().display().to_string(), cluster.dir().display().to_string());
    for name in ["meta.toml", "data-1.toml"] {
        let text = fs::read_to_string(then.dir().join(name)).unwrap().replace(&dir, &here);
        fs::write(then.dir().join(name), text).unwrap();
    }
    // The cluster's identity is another one.
    let meta = fs::read_to_string(then.dir().join("meta.toml")).unwrap();
    let kept: Vec<&str> = meta.lines().filter(|line| !line.starts_with("cluster")).collect();
    fs::write(then.dir().join("meta.toml"), kept.join("\n")).unwrap();
    let dirs = data_of(&cluster);
    let before = contents(&dirs);
    let run = |what: &str, file: &str| {
        ends(&place, &old_program(), &[what, "--config", &config(&then, file)])
    };
    let refused = run("meta", "meta.toml");
    assert!(refused.code == Some(1) && refused.err.contains("format"), "{refused:?}");
    let refused = run("data", "data-1.toml");
    assert!(refused.code == Some(1) && refused.err.contains("version 2"), "{refused:?}");
    is_untouched(&before, &dirs);
    cluster.weir(&["up"]).ok();
    assert!(cluster.weir(&["cp", "weir:/f", "back"]).code == Some(0));
    assert!(fs::read(place.path("back")).unwrap() == fs::read(place.path("f")).unwrap());
}

#[test]
#[ignore = "needs the old program: make upgrade-test"]
fn what_was_refused_is_served_by_the_old_program_as_before() {
    let place = Place::new();
    let cluster = unpack(&place);
    cluster.weir(&["up"]).fails(&["has format 1"]);
    said(old(&cluster, &["up"])).ok();
    let done = std::panic::catch_unwind(AssertUnwindSafe(|| {
        let numbers = said(old(&cluster, &["cat", "weir:/numbers"])).ok();
        assert!(numbers.lines().map(|line| line.parse::<u32>().unwrap()).eq(1..=40_000));
        assert_eq!(said(old(&cluster, &["cat", "weir:/d/word"])).ok(), "kept\n");
    }));
    said(old(&cluster, &["down"])).ok();
    done.unwrap();
}

/// What a cluster is by its state directory: descriptions, configurations and keys.
fn described(cluster: &Cluster<'_>) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = contents(&[cluster.dir().join("keys")]);
    let top = fs::read_dir(cluster.dir()).unwrap().map(|entry| entry.unwrap().path());
    let files_of_it = top.filter(|path| path.is_file());
    files.extend(files_of_it.map(|path| (path.clone(), fs::read(path).unwrap())));
    files
}

fn pids(cluster: &Cluster<'_>) -> Vec<i32> {
    let mut pids = cluster.pids();
    pids.sort_unstable();
    pids
}

#[test]
#[ignore = "needs the old program: make upgrade-test"]
fn old_commands_for_a_cluster_of_today_change_nothing_of_it() {
    let place = Place::new();
    let cluster = place.up("now", &["--targets", "2"]);
    fs::write(place.path("f"), harness::noise(1 << 20, 1)).unwrap();
    cluster.weir(&["cp", "f", "weir:/f"]).ok();
    let is_there = || {
        cluster.weir(&["cp", "weir:/f", "back"]).ok();
        assert!(fs::read(place.path("back")).unwrap() == fs::read(place.path("f")).unwrap());
    };
    let (before, running) = (described(&cluster), pids(&cluster));
    let is_as_before = || assert!(described(&cluster) == before, "its description was changed");
    // While it runs: it is seen that it does, and nothing more.
    names_both_versions(&said(old(&cluster, &["status"])));
    let up = said(old(&cluster, &["up"])).ok();
    assert!(up.contains("Everything was running already"), "{up}");
    assert_eq!(pids(&cluster), running);
    is_as_before();
    is_there();
    // While it does not.
    cluster.weir(&["down"]).ok();
    let dirs = data_of(&cluster);
    let data = contents(&dirs);
    let status = said(old(&cluster, &["status"]));
    assert!(status.code == Some(1) && status.out.contains("meta does not run"), "{status:?}");
    // The old one does not know what is set there, and starts nothing.
    said(old(&cluster, &["up"])).fails(&["meta.toml", "unknown field"]);
    assert!(pids(&cluster).is_empty());
    is_as_before();
    is_untouched(&data, &dirs);
    cluster.weir(&["up"]).ok();
    is_there();
    // It ends daemons that its pid files name, as today's does.
    said(old(&cluster, &["down"])).ok();
    assert!(pids(&cluster).is_empty());
    is_as_before();
    cluster.weir(&["up"]).ok();
    is_there();
}

/// A data server in the foreground with a configuration of its own, and what it logs.
fn data_server(place: &Place, program: &str, config: &Path) -> (Running, PathBuf) {
    let log = place.path("server.log");
    let mut command = Command::new(program);
    place.prepare(command.arg("data").arg("--config").arg(config));
    let to = fs::File::create(&log).unwrap();
    (Running(command.stderr(to).spawn().unwrap()), log)
}

/// Says, sooner or later, which versions met.
fn logs_both_versions(log: &Path) {
    let text = || fs::read_to_string(log).unwrap();
    let words = [format!("version {OLD}"), format!("version {VERSION}"), WHAT_TO_DO.to_owned()];
    eventually("both versions are logged", || words.iter().all(|word| text().contains(word)));
}

/// The configuration of the first data server of a cluster, with another metadata server.
fn config_for(cluster: &Cluster<'_>, metadata: &str) -> PathBuf {
    let text = fs::read_to_string(cluster.dir().join("data-1.toml")).unwrap();
    let mut table: toml::Table = text.parse().unwrap();
    table.insert("metadata".to_owned(), vec![metadata.to_owned()].into());
    let path = cluster.place.path("data-elsewhere.toml");
    fs::write(&path, table.to_string()).unwrap();
    path
}

#[test]
#[ignore = "needs the old program: make upgrade-test"]
fn an_old_data_server_does_not_join_a_cluster_of_today() {
    let place = Place::new();
    let cluster = place.up("now", &["--targets", "2"]);
    cluster.weir(&["mkdir", "/kept"]).ok();
    let targets = || cluster.weir(&["targets", "--json"]).json().as_array().unwrap().len();
    let then = unpack(&place);
    let objects = [then.dir().join("targets/1/objects")];
    let before = contents(&objects);
    let config = config_for(&then, &metadata(&cluster));
    let (server, log) = data_server(&place, &old_program(), &config);
    logs_both_versions(&log);
    assert_eq!(targets(), 2);
    cluster.weir(&["status"]).ok();
    assert_eq!(cluster.weir(&["ls", "/"]).ok(), "kept\n");
    drop(server);
    is_untouched(&before, &objects);
}

#[test]
#[ignore = "needs the old program: make upgrade-test"]
fn a_data_server_of_today_does_not_join_an_old_cluster() {
    let place = Place::new();
    let cluster = place.up("now", &["--targets", "1"]);
    fs::write(place.path("f"), harness::noise(1 << 20, 1)).unwrap();
    cluster.weir(&["cp", "f", "weir:/f"]).ok();
    cluster.weir(&["down"]).ok();
    let then = unpack(&place);
    said(old(&then, &["up"])).ok();
    let done = std::panic::catch_unwind(AssertUnwindSafe(|| {
        let objects = [cluster.dir().join("targets/1/objects")];
        let before = contents(&objects);
        let (server, log) = data_server(&place, WEIR, &config_for(&cluster, &metadata(&then)));
        logs_both_versions(&log);
        let status = said(old(&then, &["status"])).ok();
        assert!(status.contains("data-1") && status.contains("data-2"), "{status}");
        assert_eq!(said(old(&then, &["cat", "weir:/d/word"])).ok(), "kept\n");
        drop(server);
        is_untouched(&before, &objects);
    }));
    said(old(&then, &["down"])).ok();
    done.unwrap();
    cluster.weir(&["up"]).ok();
    cluster.weir(&["cp", "weir:/f", "back"]).ok();
    assert!(fs::read(place.path("back")).unwrap() == fs::read(place.path("f")).unwrap());
}
