//! Several metadata servers by command: `weir up --meta`, `weir meta add`, `weir meta remove`.

use crate::harness::{Cluster, Place, eventually, is_ours};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

/// Whether there is etcd.
pub fn etcd() -> bool {
    let is_there = Command::new("etcd").arg("--version").stdout(Stdio::null()).status().is_ok();
    if !is_there {
        println!("skipped: needs etcd");
    }
    is_there
}

fn names(cluster: &Cluster<'_>) -> Vec<String> {
    let mut names: Vec<String> = cluster
        .weir(&["ls", "/"])
        .ok()
        .lines()
        .map(|line| line.trim_end_matches('/').rsplit([' ', '/']).next().unwrap().to_owned())
        .collect();
    names.sort();
    names
}

/// The name of the metadata server that leads, as soon as there is one.
pub fn leader(cluster: &Cluster<'_>) -> String {
    let mut leads = None;
    eventually("one leads", || {
        // It also fails if something else is wrong.
        let said = cluster.weir(&["status", "--json"]).out;
        let status: serde_json::Value = serde_json::from_str(&said).unwrap();
        let metas = status["metadata_servers"].as_array().cloned().unwrap_or_default();
        let found = metas.iter().find(|meta| meta["leads"] == true);
        leads = found.map(|meta| meta["name"].as_str().unwrap().to_owned());
        leads.is_some()
    });
    leads.unwrap()
}

/// Checks that a member of etcd listens on no port, and that only its owner gets at its sockets.
fn is_out_of_reach(cluster: &Cluster<'_>, member: &str) {
    let dir = cluster.dir().join("etcd");
    assert_eq!(std::fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700);
    let pid = cluster.pid(member);
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let open: Vec<String> = open
        .filter_map(|entry| std::fs::read_link(entry.path()).ok())
        .map(|link| link.display().to_string())
        .collect();
    let listens = |table: &str| -> bool {
        let text = std::fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap();
        text.lines().skip(1).any(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            fields[3] == "0A" && open.contains(&format!("socket:[{}]", fields[9]))
        })
    };
    assert!(!listens("tcp") && !listens("tcp6"), "{member} listens on a port");
}

#[test]
fn several_metadata_servers_come_up_go_on_without_any_of_them_and_go_down() {
    if !etcd() {
        return;
    }
    let place = Place::new();
    let cluster = place.up("three", &["--targets", "2", "--copies", "2", "--meta", "3"]);
    let status = cluster.weir(&["status", "--json"]).json();
    let daemons = status["daemons"].as_array().unwrap();
    assert_eq!(daemons.len(), 8, "{status}");
    assert_eq!(status["trouble"].as_array().unwrap().len(), 0, "{status}");
    assert_eq!(cluster.pids().len(), 8);
    cluster.weir(&["mkdir", "/of-all"]).ok();
    is_out_of_reach(&cluster, "etcd-1");
    // The leader and the up-to-date members are shown, and reported to Prometheus.
    eventually("all stand by", || {
        let status = cluster.weir(&["status", "--json"]).json();
        let metas = status["metadata_servers"].as_array().unwrap();
        // A question opens a session, which is a change: standbys are always a little behind.
        let is_heard = |meta: &&serde_json::Value| {
            meta["behind"].is_u64() && meta["silent_ms"].as_u64().unwrap() < 20_000
        };
        metas.iter().filter(|meta| meta["leads"] == true).count() == 1
            && metas.iter().filter(is_heard).count() == 3
    });
    let text = cluster.weir(&["status"]).ok();
    assert!(text.contains("leads") && text.contains("stands by"), "{text}");
    cluster.weir(&["up", "--meta", "2"]).fails(&["has 3 metadata servers", "weir meta remove"]);

    // Whichever leads, and a member of etcd.
    for (killed, name) in [("meta", "a"), ("meta-2", "b"), ("meta-3", "c"), ("etcd-1", "d")] {
        cluster.kill(killed);
        let mkdir = ["mkdir", &format!("/{name}")];
        eventually("another one leads", || cluster.weir(&mkdir).code == Some(0));
        let said = cluster.weir(&["status"]);
        let told = said.out.contains(&format!("{killed} does not run"));
        assert!(said.code == Some(1) && told, "{said:?}");
        cluster.weir(&["up"]).ok();
    }
    eventually("all is well again", || cluster.weir(&["status"]).code == Some(0));
    assert_eq!(names(&cluster), ["a", "b", "c", "d", "of-all"]);

    let pids = cluster.pids();
    assert_eq!(pids.len(), 8);
    cluster.weir(&["down"]).ok();
    assert!(!pids.iter().any(|pid| is_ours(*pid)), "a daemon runs on");
    cluster.weir(&["up"]).ok();
    assert_eq!(names(&cluster), ["a", "b", "c", "d", "of-all"]);
    cluster.weir(&["down", "--purge", "--yes"]).ok();
    assert!(!cluster.dir().exists());
}

#[test]
fn a_cluster_moves_to_several_metadata_servers_and_back() {
    if !etcd() {
        return;
    }
    let place = Place::new();
    let cluster = place.up("one", &["--targets", "1"]);
    cluster.weir(&["mkdir", "/alone"]).ok();
    cluster.weir(&["meta", "add"]).fails(&["in use: meta", "weir down"]);
    cluster.weir(&["down"]).ok();
    let told = cluster.weir(&["meta", "add", "--count", "2"]).ok();
    assert!(told.contains("3 metadata servers") && told.contains("meta-3 at"), "{told}");
    cluster.weir(&["up"]).ok();
    cluster.weir(&["mkdir", "/together"]).ok();
    // The first one is not needed for what was made without it, not even later on.
    cluster.kill("meta");
    eventually("another one leads", || cluster.weir(&["mkdir", "/later"]).code == Some(0));
    cluster.weir(&["down"]).ok();

    cluster.weir(&["meta", "remove", "1"]).fails(&["the one that stays"]);
    cluster.weir(&["meta", "remove", "4"]).fails(&["no metadata server 4", "2, 3"]);
    cluster.weir(&["meta", "remove", "2"]).ok();
    let told = cluster.weir(&["meta", "remove", "3"]).ok();
    assert!(told.contains("1 metadata server, and needs etcd no more"), "{told}");
    for gone in ["meta-2", "meta-2.toml", "meta-3", "meta-3.toml", "etcd", "meta/replicated"] {
        assert!(!cluster.dir().join(gone).exists(), "{gone}");
    }
    cluster.weir(&["up"]).ok();
    assert_eq!(cluster.pids().len(), 2);
    assert_eq!(names(&cluster), ["alone", "later", "together"]);
    cluster.weir(&["mkdir", "/alone-again"]).ok();

    // And once more, with nothing of the first time.
    cluster.weir(&["down"]).ok();
    cluster.weir(&["meta", "add"]).ok();
    cluster.weir(&["up"]).ok();
    assert_eq!(names(&cluster), ["alone", "alone-again", "later", "together"]);

    // The first one begins another journal, and has not run alone meanwhile.
    let all = names(&cluster);
    cluster.weir(&["down"]).ok();
    cluster.weir(&["meta", "remove", "2"]).ok();
    cluster.weir(&["meta", "add"]).ok();
    for _ in 0..2 {
        cluster.weir(&["up"]).ok();
        assert_eq!(names(&cluster), all);
        cluster.weir(&["down"]).ok();
    }
}

#[test]
fn without_etcd_it_is_said_how_to_install_it() {
    let place = Place::new();
    let mut up = place.command(&["up", "--name", "none", "--meta", "2"]);
    up.env("PATH", place.path("nowhere"));
    crate::harness::said(up)
        .fails(&["etcd, which is not installed", "apt-get install etcd-server"]);
    assert!(!place.cluster("none").dir().exists());
    let cluster = place.up("one", &["--targets", "1"]);
    cluster.weir(&["down"]).ok();
    let mut add = cluster.command(&["meta", "add"]);
    add.env("PATH", place.path("nowhere"));
    crate::harness::said(add).fails(&["apt-get install etcd-server"]);
    cluster.weir(&["up"]).ok();
}
