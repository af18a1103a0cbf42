//! Clusters come, show themselves, go, and leave nothing behind.

use crate::harness::{self, Place, Running, eventually, eventually_within, is_ours, root};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::path::Path;
use std::time::Duration;

#[test]
fn a_cluster_comes_up_shows_itself_and_goes_down() {
    let place = Place::new();
    let cluster = place.up("one", &["--targets", "3"]);
    let status = cluster.weir(&["status", "--json", "--counters"]).json();
    assert_eq!(status["daemons"].as_array().unwrap().len(), 4);
    assert_eq!(status["targets"].as_array().unwrap().len(), 3);
    assert_eq!(status["trouble"].as_array().unwrap().len(), 0, "{status}");
    assert!(status["servers"]["data-2"]["counters"].is_object());
    let text = cluster.weir(&["status"]).ok();
    assert!(text.contains("data-3") && text.contains("All is well"), "{text}");

    let pids = cluster.pids();
    assert_eq!(pids.len(), 4);
    // Up again changes nothing.
    assert!(cluster.weir(&["up"]).ok().contains("running already"));
    assert_eq!(cluster.pids().len(), 4);

    cluster.weir(&["down"]).ok();
    assert!(!pids.iter().any(|pid| is_ours(*pid)), "a daemon runs on");
    cluster.weir(&["status"]).fails(&[]);
    assert!(cluster.weir(&["down"]).ok().contains("was not running"));
}

#[test]
fn a_mount_has_the_size_of_the_disk_and_not_of_a_disk_for_each_target() {
    if !root() {
        return;
    }
    let place = Place::new();
    let cluster = place.up("one", &["--targets", "4", "--targets-per-server", "2"]);
    let mount = cluster.mount("mounted", "rw");
    let space = |at: &Path| {
        let space = rustix::fs::statvfs(at).unwrap();
        (space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize, space.f_files)
    };
    let ((size, free, files), (disk_size, disk_free, disk_files)) =
        (space(&mount), space(&cluster.dir()));
    assert_eq!((size >> 20, files), (disk_size >> 20, disk_files));
    // Others use the disk, too.
    assert!(free.abs_diff(disk_free) < disk_size / 20, "{free} free, {disk_free} on the disk");

    let text = cluster.weir(&["df"]).ok();
    let sum: Vec<&str> = text.lines().last().unwrap().split_whitespace().collect();
    assert_eq!(sum[..4], ["all", "on", "1", "disk"], "{text}");
    assert_eq!(sum[4].parse::<u64>().unwrap() >> 10, disk_size >> 20, "{text}");
    let targets = cluster.weir(&["df", "--json"]).json();
    let disk = &targets[0]["disk"];
    assert!(disk.is_string(), "{targets}");
    assert!(targets.as_array().unwrap().iter().all(|t| t["disk"] == *disk), "{targets}");
    let servers = cluster.weir(&["server", "list", "--json"]).json();
    assert_eq!(servers[1]["total_bytes"].as_u64().unwrap() >> 20, disk_size >> 20, "{servers}");
}

#[test]
fn another_address_for_a_cluster_that_exists_is_refused_with_how_to_move_it() {
    let place = Place::new();
    let cluster = place.up("one", &["--targets", "1", "--listen", "127.0.0.1"]);
    cluster.weir(&["mkdir", "/kept"]).ok();
    cluster.weir(&["up", "--listen", "127.0.0.1"]).ok();
    let moved = ["up", "--listen", "127.0.0.7"];
    cluster.weir(&moved).fails(&["listens on 127.0.0.1:", "cannot change", ".toml", "weir down"]);
    // As it says.
    cluster.weir(&["down"]).ok();
    for entry in std::fs::read_dir(cluster.dir()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            let text = std::fs::read_to_string(&path).unwrap();
            std::fs::write(&path, text.replace("127.0.0.1:", "127.0.0.7:")).unwrap();
        }
    }
    let text = cluster.weir(&moved).ok();
    assert!(text.contains("metadata server at 127.0.0.7:"), "{text}");
    assert_eq!(cluster.weir(&["ls", "/"]).ok(), "kept\n");
    eventually("all is well", || cluster.weir(&["status"]).code == Some(0));
}

#[test]
fn what_has_died_is_named_and_started_again() {
    let place = Place::new();
    let cluster = place.up("one", &["--targets", "2"]);
    cluster.weir(&["mkdir", "/kept"]).ok();
    cluster.kill("data-2");
    let status = cluster.weir(&["status"]);
    assert!(status.out.contains("data-2 does not run"), "{}", status.out);
    assert_eq!(status.code, Some(1));
    cluster.kill("meta");
    cluster.weir(&["up"]).ok();
    assert_eq!(cluster.weir(&["ls", "/"]).ok(), "kept\n");
    // The servers find each other again.
    eventually("all is well", || cluster.weir(&["status"]).code == Some(0));
}

#[test]
fn a_data_server_that_cannot_start_stops_no_other() {
    let place = Place::new();
    let cluster = place.up("one", &["--targets", "3"]);
    cluster.weir(&["down"]).ok();
    // Like a disk that did not come back after a restart of the machine.
    let target = cluster.dir().join("targets/2");
    std::fs::rename(&target, place.path("away")).unwrap();
    let mount = place.path("mnt").display().to_string();
    let up = if root() { vec!["up", "--mount", &mount] } else { vec!["up"] };
    let names = ["is missing (is its disk mounted?)", "goes on without data-2", "target replace"];
    cluster.weir(&up).fails(&names);
    let alive = ["meta", "data-1", "data-3"];
    assert!(alive.iter().all(|daemon| cluster.runs(daemon)) && !cluster.runs("data-2"));
    let pids = || alive.map(|daemon| cluster.pid(daemon));
    let before = pids();
    cluster.weir(&["mkdir", "/made"]).ok();
    if root() {
        assert!(place.path("mnt/made").is_dir(), "it is mounted");
    }
    // Once more, as its unit does it.
    cluster.weir(&up).fails(&names);
    assert_eq!(pids(), before);
    std::fs::rename(place.path("away"), &target).unwrap();
    cluster.weir(&up).ok();
    assert_eq!(pids(), before);
    eventually("all is well", || cluster.weir(&["status"]).code == Some(0));
}

#[test]
fn a_metadata_server_that_is_stopped_is_waited_for_and_what_has_died_is_started() {
    let place = Place::new();
    let cluster = place.up("one", &["--targets", "2"]);
    let stopped = cluster.stopped(&["meta"]);
    cluster.kill("data-2");
    let said = place.path("said");
    let mut command = cluster.command(&["up"]);
    command.stderr(std::fs::File::create(&said).unwrap());
    let mut up = Running(command.spawn().unwrap());
    eventually("what has died is started", || cluster.runs("data-2"));
    let remedy = format!("kill -CONT {}", cluster.pid("meta"));
    eventually("it says whom it waits for", || {
        std::fs::read_to_string(&said).unwrap().contains(&remedy)
    });
    // Longer than a client waits for an answer when it connects.
    std::thread::sleep(Duration::from_secs(7));
    assert!(up.0.try_wait().unwrap().is_none(), "it has given up");
    drop(stopped);
    eventually_within(Duration::from_secs(60), "the cluster is up", || {
        up.0.try_wait().unwrap().is_some_and(|status| status.success())
    });
    assert!(cluster.runs("data-2"));
}

#[test]
fn connections_that_prove_nothing_keep_nobody_out() {
    let place = Place::new();
    let cluster = place.up("one", &["--targets", "1"]);
    let text = place.path("text");
    std::fs::write(&text, "text").unwrap();
    let wanted = 8192;
    let limit = getrlimit(Resource::Nofile);
    let is_enough = limit.current.is_none_or(|current| current >= wanted);
    if !is_enough && setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..limit }).is_err()
    {
        eprintln!("skipped: needs {wanted} descriptors");
        return;
    }
    let address = |file: &str, key: &str| {
        let text = std::fs::read_to_string(cluster.dir().join(file)).unwrap();
        let config: toml::Table = text.parse().unwrap();
        let one = std::slice::from_ref(&config[key]);
        let all = config[key].as_array().map_or(one, Vec::as_slice);
        // Not the path of a Unix socket.
        let found = all.iter().filter_map(|it| it.as_str()).find(|it| !it.starts_with('/'));
        found.unwrap().to_owned()
    };
    let servers = [address("meta.toml", "listen"), address("data-1.toml", "listen")];
    // More unauthenticated connections than a server accepts, and more with each command.
    let mut silent: Vec<std::net::TcpStream> = Vec::new();
    for round in 0..4 {
        for server in &servers {
            silent.extend((0..800).map(|_| std::net::TcpStream::connect(server).unwrap()));
        }
        cluster.weir(&["cp", "text", &format!("weir:/text{round}")]).ok();
        assert_eq!(cluster.weir(&["cat", &format!("/text{round}")]).ok(), "text");
    }
}

#[test]
fn a_stopped_cluster_keeps_its_files() {
    let place = Place::new();
    let cluster = place.up("one", &["--targets", "4", "--targets-per-server", "2"]);
    assert_eq!(cluster.pids().len(), 3);
    let bytes = harness::noise(3_000_000, 1);
    std::fs::write(place.path("data"), &bytes).unwrap();
    cluster.weir(&["cp", "data", "weir:/data"]).ok();
    cluster.weir(&["down"]).ok();
    cluster.weir(&["up"]).ok();
    cluster.weir(&["cp", "weir:/data", "back"]).ok();
    assert!(std::fs::read(place.path("back")).unwrap() == bytes);
}

#[test]
fn two_clusters_side_by_side_do_not_mix() {
    let place = Place::new();
    let one = place.up("one", &["--targets", "1"]);
    let two = place.up("two", &["--targets", "2"]);
    std::fs::write(place.path("text"), "of one").unwrap();
    one.weir(&["cp", "text", "weir:/text"]).ok();
    assert_eq!(two.weir(&["ls", "/"]).ok(), "");
    // From one to the other, by name.
    place.weir(&["cp", "weir://one/text", "weir://two/copy"]).ok();
    assert_eq!(two.weir(&["cat", "/copy"]).ok(), "of one");
    // The credential of one does not open the other.
    one.weir(&["down"]).ok();
    assert_eq!(two.weir(&["cat", "/copy"]).ok(), "of one");
    assert_eq!(two.weir(&["df", "--json"]).json().as_array().unwrap().len(), 2);
}

#[test]
fn purge_asks_and_then_leaves_nothing_behind() {
    let place = Place::new();
    let cluster = place.up("one", &["--targets", "2"]);
    cluster.weir(&["mkdir", "/a"]).ok();
    let pids = cluster.pids();
    cluster.weir(&["down", "--purge"]).fails(&["deletes cluster one", "--yes"]);
    assert_eq!(cluster.pids().len(), 3, "an unanswered question changes nothing");
    cluster.weir(&["down", "--purge", "--yes"]).ok();
    assert!(!pids.iter().any(|pid| is_ours(*pid)));
    assert!(!place.path("state/weir").exists());
    cluster.weir(&["status"]).fails(&["there is no cluster", "weir up"]);
}

#[test]
fn a_failed_up_takes_back_what_it_made() {
    let place = Place::new();
    let cluster = place.cluster("one");
    // A file is no mountpoint: everything else has been made and started by then.
    std::fs::write(place.path("file"), "").unwrap();
    cluster.weir(&["up", "--mount", "file"]).fails(&["file", "Not a directory"]);
    assert!(!cluster.dir().exists());
    assert!(!place.path("state/weir").exists());
}

#[test]
fn a_cluster_keeps_its_shape() {
    let place = Place::new();
    let cluster = place.up("one", &["--targets", "1"]);
    cluster.weir(&["up", "--targets", "2"]).fails(&["has 1 targets", "--targets"]);
    cluster.weir(&["status"]).ok();
}

#[test]
fn credentials_are_made_listed_and_work_at_once() {
    let place = Place::new();
    let cluster = place.up("one", &["--targets", "1"]);
    cluster.weir(&["mkdir", "/seen"]).ok();
    cluster.weir(&["key", "new", "--output", "new.toml", "--note", "a guest's"]).ok();
    assert_eq!(place.weir(&["ls", "--credential", "new.toml", "/"]).ok(), "seen\n");
    let credential = std::fs::read_to_string(place.path("new.toml")).unwrap();
    assert!(credential.contains("a guest's"), "{credential}");
    cluster.weir(&["key", "new", "--note", "for a test"]).ok();
    let list = cluster.weir(&["key", "list", "--json"]).json();
    let notes: Vec<_> = list.as_array().unwrap().iter().map(|row| &row["note"]).collect();
    assert!(notes.len() == 2 && notes.iter().any(|note| **note == "for a test"), "{list}");
    assert!(cluster.weir(&["key", "list"]).ok().contains("for a test"));
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(place.path("new.toml")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_data_server_of_another_machine_joins() {
    let place = Place::new();
    let cluster = place.up("one", &["--targets", "1"]);
    let said = cluster
        .weir(&[
            "key",
            "server",
            "--server",
            "9",
            "--targets",
            "90,91",
            "-o",
            "node",
            "--listen",
            "127.0.0.1:0",
        ])
        .ok();
    for line in said.lines().filter(|line| line.contains("weir target create")) {
        let mut create = place.command(&line.split_whitespace().skip(1).collect::<Vec<_>>());
        harness::said({
            create.current_dir(place.path("node"));
            create
        })
        .ok();
    }
    let mut server = place.command(&["data", "--config", "data-9.toml"]);
    server.current_dir(place.path("node")).stderr(std::process::Stdio::null());
    let mut server = server.spawn().unwrap();
    let joined = || cluster.weir(&["df", "--json"]).json().as_array().unwrap().len() == 3;
    eventually("its targets are in the map", joined);
    std::process::Command::new("kill").arg(server.id().to_string()).status().unwrap();
    assert!(server.wait().unwrap().success(), "SIGTERM ends a server in order");
}
