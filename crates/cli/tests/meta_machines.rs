//! Metadata servers on several machines, set up as `docs/high-availability.md` says. A machine here
//! has a network, a name and mounts of its own.

use crate::harness::{Place, Running, eventually, root};
use crate::machines::Machine;
use crate::metas;
use std::process::Stdio;
use weir_testbed::{ETHERNET_QUEUE, Network};

/// Bytes a second of each link.
const LINK: u64 = 1 << 30;

/// Starts a member of etcd on each machine.
fn start_etcd(machines: &[Machine<'_>], at: &[String]) -> Vec<Running> {
    let peers: Vec<String> =
        (1..).zip(at).map(|(n, at)| format!("m{n}=http://{at}:2380")).collect();
    let start = |(n, (machine, at)): (usize, (&Machine<'_>, &String))| {
        let [client, peer] = [2379, 2380].map(|port| format!("http://{at}:{port}"));
        let (name, data) = (format!("m{}", n + 1), machine.path("etcd"));
        let mut etcd = machine.command(
            "etcd",
            &[
                ["--name", &name, "--data-dir", data.to_str().unwrap()],
                ["--listen-client-urls", &client, "--advertise-client-urls", &client],
                ["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer],
                ["--initial-cluster", &peers.join(","), "--log-level", "error"],
            ]
            .concat(),
        );
        etcd.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Running(etcd.spawn().unwrap())
    };
    machines.iter().zip(at).enumerate().map(start).collect()
}

/// Where a machine has its clusters.
fn state(machine: &Machine<'_>) -> String {
    machine.path("state/weir").display().to_string()
}

#[test]
fn metadata_servers_on_three_machines_are_set_up_by_command_and_one_machine_may_fail() {
    if !root() || !metas::etcd() {
        return;
    }
    if let Some(missing) = weir_testbed::missing_for_networks() {
        eprintln!("skipped: {missing}");
        return;
    }
    let place = Place::new();
    let network =
        Network::make(&format!("weir-m{}", std::process::id()), &[LINK; 3], ETHERNET_QUEUE)
            .unwrap();
    let machines = [1, 2, 3].map(|number| Machine::new(&place, &network, number));
    let at = [1, 2, 3].map(|number| network.address(number).to_string());
    let mut etcd = start_etcd(&machines, &at);
    let [first, second, third] = &machines;

    // A cluster of two machines with data servers. The third one gets a metadata server alone.
    let up = ["up", "--listen", &at[0], "--port", "7700", "--targets", "1", "--protection", "data"];
    first.weir(&up).ok();
    second.join(&first.weir(&["invite"]).ok(), &[]).ok();
    first.weir(&["mkdir", "/before"]).ok();
    let on = format!("{}:7710,{}:7710", at[1], at[2]);
    first.weir(&["meta", "add", "--on", &on]).fails(&["the cluster is in use", "weir down"]);
    second.weir(&["meta", "add", "--on", &on]).fails(&["first metadata server", "another machine"]);
    for machine in [first, second] {
        machine.weir(&["down"]).ok();
    }
    first.weir(&["meta", "add", "--on", &on]).fails(&["needs --etcd", "etcd"]);
    let urls = at.each_ref().map(|at| format!("http://{at}:2379")).join(",");
    let refused = [
        ("127.0.0.1:7710".to_owned(), "no other machine reaches"),
        ("0.0.0.0:7710".to_owned(), "no other machine reaches"),
        (format!("{on},{}:7710", at[1]), "twice"),
        (format!("{}:7700", at[0]), "first metadata server has that address"),
    ];
    for (on, why) in refused {
        first.weir(&["meta", "add", "--on", &on, "--etcd", &urls]).fails(&["--on", why]);
    }
    let line = first.path("line").display().to_string();
    let add = ["meta", "add", "--on", &on, "--etcd", &urls, "--output", &line];
    eventually("etcd answers", || first.weir(&add).code == Some(0));
    // The line goes to the others by a secret way.
    let secret = first.run("cat", &[&line]);
    for machine in [second, third] {
        let script = "umask 077; printf %s \"$1\" > \"$0\"";
        let line = machine.path("line").display().to_string();
        machine.run("sh", &["-c", script, &line, &secret]);
        machine.weir(&["meta", "join", "--invitation", &line]).ok();
        let mode = machine.run("sh", &["-c", "stat -c %a $0/*/keys/*", &state(machine)]);
        assert!(mode.lines().all(|mode| mode == "600"), "{mode}");
        let level =
            machine.run("sh", &["-c", "grep -h ^protection $0/*/meta-?.toml", &state(machine)]);
        assert_eq!(level, "protection = \"data\"\n", "none that takes over lowers it");
    }
    for machine in &machines {
        machine.weir(&["up"]).ok();
    }
    eventually("all stand by", || {
        let status = first.weir(&["status", "--json"]).json();
        let metas = status["metadata_servers"].as_array().cloned().unwrap_or_default();
        let behind = |meta: &serde_json::Value| meta["behind"].as_u64().unwrap() < 100;
        metas.len() == 3 && metas.iter().all(behind)
    });
    assert_eq!(third.weir(&["ls", "/"]).ok(), "before\n");

    // The first machine fails with all that is on it.
    drop(etcd.remove(0));
    first.weir(&["down", "--force"]).ok();
    eventually("another one leads", || second.weir(&["mkdir", "/after"]).code == Some(0));
    assert_eq!(third.weir(&["ls", "/"]).ok(), "after\nbefore\n");
    first.weir(&["up"]).ok();
    assert_eq!(first.weir(&["ls", "/"]).ok(), "after\nbefore\n");

    // The third metadata server is taken away again.
    for machine in &machines {
        machine.weir(&["down"]).ok();
    }
    let said = first.weir(&["meta", "remove", "3"]).ok();
    assert!(said.contains("weir meta remove 3") && said.contains("weir meta join"), "{said}");
    second.weir(&["meta", "remove", "2"]).fails(&["still a metadata server", "first machine"]);
    third.weir(&["meta", "remove", "3"]).ok();
    assert!(!third.run("sh", &["-c", "ls $0/*/keys", &state(third)]).contains("master"));
    for machine in [first, second] {
        machine.weir(&["up"]).ok();
    }
    assert_eq!(first.weir(&["ls", "/"]).ok(), "after\nbefore\n");
    for machine in [first, second] {
        machine.weir(&["down"]).ok();
    }
    let said = first.weir(&["meta", "remove", "2"]).ok();
    assert!(said.contains("needs etcd no more") && said.contains("etcdctl"), "{said}");
    // The journal has ended, and says that the second one was removed.
    second.weir(&["meta", "remove", "2"]).ok();
    for machine in [first, second] {
        machine.weir(&["up"]).ok();
    }
    assert_eq!(second.weir(&["ls", "/"]).ok(), "after\nbefore\n");
}
