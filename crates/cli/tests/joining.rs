//! `weir invite` and `weir join`, on one machine: what they refuse, and what they leave.

use crate::harness::{self, Cluster, Place, Said, eventually, said};
use std::fs;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Joins as the cluster of another name, with an invitation from a file.
fn join(place: &Place, name: &str, invitation: &str, more: &[&str]) -> Said {
    let file = place.path("invitation");
    fs::write(&file, invitation).unwrap();
    fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    let fixed = ["join", "--name", name, "--invitation", file.to_str().unwrap()];
    said(place.command(&[&fixed, more].concat()))
}

/// Where its metadata server listens.
fn address(cluster: &Cluster<'_>) -> SocketAddr {
    let text = fs::read_to_string(cluster.dir().join("cluster.toml")).unwrap();
    let text: toml::Table = text.parse().unwrap();
    text["metadata"].as_str().unwrap().parse().unwrap()
}

/// What an invitation says.
fn contents(line: &str) -> serde_json::Value {
    let digits = line.trim().split(':').nth(1).unwrap();
    let pairs = digits.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
    let bytes: Vec<u8> = pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect();
    serde_json::from_slice(&bytes).unwrap()
}

#[test]
fn an_invitation_is_for_one_machine_and_what_fails_leaves_nothing() {
    let place = Place::new();
    let first = place.up("one", &["--targets", "1"]);
    first.weir(&["invite"]).fails(&["no other machine reaches this cluster", "--address 127."]);
    let here = address(&first).ip().to_string();
    let invite = ["invite", "--address", &here];
    let said = first.weir(&invite);
    assert!(said.err.contains("no other machine reaches 127."), "{said:?}");
    let invitation = said.ok();
    let data = place.path("disk");
    let with_data = ["--data", data.to_str().unwrap()];

    join(&place, "two", &invitation, &[]).fails(&["for 1 targets, and 0 directories"]);
    let half = &invitation[..invitation.len() / 2];
    let refused = join(&place, "two", half, &with_data).fails(&["not an invitation", "cut off"]);
    assert!(!refused.contains(&half[40..80]), "a secret was shown");
    join(&place, "one", &invitation, &with_data).fails(&[
        "there is a cluster in",
        "--name",
        "weir down --purge",
    ]);
    fs::write(&data, "mine").unwrap();
    join(&place, "two", &invitation, &with_data).fails(&["disk"]);
    assert_eq!(fs::read(&data).unwrap(), b"mine");
    fs::remove_file(&data).unwrap();
    assert!(!place.path("state/weir/two").exists());

    let second = place.cluster("two");
    join(&place, "two", &invitation, &with_data).ok();
    eventually("all is well", || second.weir(&["status"]).code == Some(0));
    first.weir(&["mkdir", "/seen"]).ok();
    assert_eq!(second.weir(&["ls", "/"]).ok(), "seen\n");
    second.weir(&["invite"]).fails(&["cannot invite"]);
    join(&place, "three", &invitation, &with_data).fails(&["has been used", "weir invite"]);
    // Whatever has come meanwhile, no number is given twice.
    first.weir(&["server", "add"]).ok();
    let only_mounts = first.weir(&[&invite[..], &["--targets", "0"]].concat()).ok();
    let (with_server, without) = (contents(&invitation), contents(&only_mounts));
    assert!(with_server["server_key"].is_string() && with_server["server"] != 0);
    assert!(without["client_key"].is_string() && without["server"] == 0);
    assert!(without.get("server_key").is_none(), "a key of a server for one that only mounts");
    let third = place.cluster("three");
    join(&place, "three", &only_mounts, &[]).ok();
    assert_eq!(third.weir(&["ls", "/"]).ok(), "seen\n");
    third.weir(&["down", "--purge", "--yes"]).ok();

    // It is stopped and started as one of `weir up`, and goes with its keys, but not its data.
    second.weir(&["down"]).ok();
    second.weir(&["up"]).ok();
    eventually("all is well", || first.weir(&["status"]).code == Some(0));
    second.weir(&["down", "--purge", "--yes"]).ok();
    assert!(!second.dir().exists() && data.join("superblock").exists());

    let invitation = first.weir(&invite).ok();
    first.weir(&["down"]).ok();
    let again = place.path("again");
    let refused = join(&place, "two", &invitation, &["--data", again.to_str().unwrap()]);
    refused.fails(&["cannot be reached at", "weir status"]);
    assert!(!place.path("state/weir/two").exists() && !again.exists());
}

#[test]
fn who_joins_says_where_it_listens_and_what_fails_with_it() {
    let place = Place::new();
    let first = place.up("one", &["--targets", "1"]);
    let file = place.path("for-two");
    let here = address(&first).ip().to_string();
    let invite = ["invite", "--address", &here, "--output", file.to_str().unwrap()];
    assert_eq!(first.weir(&invite).ok(), "");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    // It was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.2:0").unwrap().local_addr().unwrap().port();
    let (data, number) = (place.path("disk"), port.to_string());
    let where_to = ["--listen", "127.0.0.2", "--port", &number, "--domain", "rack-7"];
    let with_data = ["--data", data.to_str().unwrap()];
    let invitation = fs::read_to_string(&file).unwrap();
    join(&place, "two", &invitation, &[&where_to[..], &with_data].concat()).ok();
    let second = place.cluster("two");
    eventually("all is well", || second.weir(&["status"]).code == Some(0));
    let servers = first.weir(&["server", "list", "--json"]).json().to_string();
    assert!(
        servers.contains(&format!("127.0.0.2:{port}")) && servers.contains("rack-7"),
        "{servers}"
    );
    second.weir(&["down", "--purge", "--yes"]).ok();
}

#[test]
fn a_cluster_that_listens_everywhere_invites_to_an_address_that_is_given() {
    let place = Place::new();
    let first = place.cluster("one");
    let up = place.weir(&["up", "--name", "one", "--targets", "1", "--listen", "0.0.0.0"]).ok();
    assert!(!up.contains("weir invite"), "{up}");
    first.weir(&["invite"]).fails(&["no other machine can connect to 0.0.0.0", "--address"]);
    first.weir(&["invite", "--address", "0.0.0.0"]).fails(&["0.0.0.0", "--address"]);
    let invitation = first.weir(&["invite", "--address", "127.0.0.1"]).ok();
    assert!(contents(&invitation)["metadata"].as_str().unwrap().starts_with("127.0.0.1:"));
    let data = place.path("disk");
    let second = place.cluster("two");
    join(&place, "two", &invitation, &["--data", data.to_str().unwrap()]).ok();
    eventually("all is well", || second.weir(&["status"]).code == Some(0));
    second.weir(&["down", "--purge", "--yes"]).ok();
}

/// Another way to a metadata server, which is cut while this is so.
fn way_to(metadata: SocketAddr, is_cut: impl Fn() -> bool + Send + 'static) {
    let listener = TcpListener::bind(("127.0.0.9", metadata.port())).unwrap();
    let pass = |mut from: TcpStream, mut to: TcpStream| {
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Both);
        });
    };
    std::thread::spawn(move || {
        for near in listener.incoming().flatten() {
            // Whom it is cut for is closed at once.
            if is_cut() {
                continue;
            }
            let Ok(far) = TcpStream::connect(metadata) else { continue };
            pass(near.try_clone().unwrap(), far.try_clone().unwrap());
            pass(far, near);
        }
    });
}

#[test]
fn who_cannot_reach_the_cluster_any_more_keeps_what_was_made_and_goes_on() {
    let place = Place::new();
    let first = place.up("one", &["--targets", "1"]);
    let invitation = first.weir(&["invite", "--address", "127.0.0.9"]).ok();
    let metadata = address(&first);
    // It is cut as soon as everything was made.
    let made = place.path("state/weir/two/cluster.toml");
    let is_back = Arc::new(AtomicBool::new(false));
    let back = is_back.clone();
    way_to(metadata, move || made.exists() && !back.load(Ordering::SeqCst));
    let data = place.path("disk");
    let with_data = ["--data", data.to_str().unwrap()];
    let second = place.cluster("two");
    let failed = join(&place, "two", &invitation, &with_data);
    let said = failed.fails(&["has not joined yet", "do not join again", "weir up"]);
    assert!(!said.contains("this machine has joined"), "nobody has taken it yet: {said}");
    let server = format!("data-{}", contents(&invitation)["server"]);
    assert!(second.runs(&server));
    second.kill(&server);
    is_back.store(true, Ordering::SeqCst);
    join(&place, "two", &invitation, &with_data).fails(&["there is a cluster in", "weir up"]);
    second.weir(&["up"]).ok();
    eventually("all is well", || second.weir(&["status"]).code == Some(0));
    assert_eq!(first.weir(&["server", "list", "--json"]).json().as_array().unwrap().len(), 2);
    second.weir(&["down", "--purge", "--yes"]).ok();
}

#[test]
fn an_invitation_is_refused_after_its_server_was_removed_and_its_machine_says_what_to_run() {
    let place = Place::new();
    let first = place.up("one", &["--targets", "1"]);
    let here = address(&first).ip().to_string();
    let invite = ["invite", "--address", &here];
    let invitation = first.weir(&invite).ok();
    let (data, other) = (place.path("disk"), place.path("other"));
    let with_data = ["--data", data.to_str().unwrap()];
    let second = place.cluster("two");
    assert!(join(&place, "two", &invitation, &with_data).ok().contains("Joined cluster one"));
    eventually("all is well", || second.weir(&["status"]).code == Some(0));
    let server = contents(&invitation)["server"].to_string();
    first.weir(&["server", "drain", &server, "--wait"]).ok();
    first.weir(&["server", "remove", &server]).ok();

    // Its machine, with the data server running and without.
    for runs in [true, false] {
        if !runs {
            second.kill(&format!("data-{server}"));
        }
        let status = second.weir(&["status"]);
        assert_eq!(status.code, Some(1), "{status:?}");
        let what = format!("data-{server}, of this machine, was removed from the cluster");
        assert!(status.out.contains(&what), "{status:?}");
        assert!(status.out.contains("weir down --purge"), "{status:?}");
        assert!(!status.out.contains("All is well") && !status.out.contains("does not run"));
    }
    // The invitation, here and elsewhere.
    let with_other = ["--data", other.to_str().unwrap()];
    let refused = join(&place, "three", &invitation, &with_other);
    refused.fails(&["the invitation is good no more", "removed from the cluster", "weir invite"]);
    assert!(!place.path("state/weir/three").exists() && !other.exists());
    // It comes again when it has let go of what it was.
    let invitation = first.weir(&invite).ok();
    join(&place, "two", &invitation, &with_data).fails(&["weir down --purge"]);
    second.weir(&["down", "--purge", "--yes"]).ok();
    join(&place, "two", &invitation, &with_data).fails(&["is target", "delete what is in it"]);
    assert!(!place.path("state/weir/two").exists() && data.join("superblock").exists());
    fs::remove_dir_all(&data).unwrap();
    join(&place, "two", &invitation, &with_data).ok();
    eventually("all is well", || second.weir(&["status"]).code == Some(0));
    second.weir(&["down", "--purge", "--yes"]).ok();
}

/// The disk of the only target of the data server of a machine fails.
fn lose_disk(machine: &Cluster<'_>, server: &str, disk: &std::path::Path) {
    machine.kill(server);
    fs::remove_dir_all(disk).unwrap();
    machine.weir(&["up"]).fails(&["is missing (is its disk mounted?)"]);
}

/// Which targets there are, and their states.
fn targets(cluster: &Cluster<'_>) -> Vec<(u64, String)> {
    let all = cluster.weir(&["targets", "--json"]).json();
    let state = |t: &serde_json::Value| t["state"].as_str().unwrap().to_owned();
    all.as_array().unwrap().iter().map(|t| (t["target"].as_u64().unwrap(), state(t))).collect()
}

#[test]
fn the_failed_disk_of_a_machine_that_has_joined_is_replaced_as_status_says() {
    let place = Place::new();
    let first = place.up("one", &["--targets", "1"]);
    let here = address(&first).ip().to_string();
    let [a, b, c, bytes, back] =
        ["a", "b", "c", "bytes", "back"].map(|name| place.path(name).display().to_string());
    let second = place.cluster("two");
    let invitation = first.weir(&["invite", "--address", &here]).ok();
    join(&place, "two", &invitation, &["--data", &a]).ok();
    first.weir(&["setlayout", "--copies", "2", "--count", "1", "weir:/"]).ok();
    fs::write(&bytes, harness::noise(3 << 20, 5)).unwrap();
    first.weir(&["cp", &bytes, "weir:/file"]).ok();
    let is_whole = |target: u64| {
        eventually("all is whole", || {
            let (one, two) = (first.weir(&["status"]), second.weir(&["status"]));
            one.code == Some(0) && two.code == Some(0)
        });
        let online = "online".to_owned();
        assert_eq!(targets(&first), [(1, online.clone()), (target, online)]);
        first.weir(&["fsck"]).ok();
    };
    let replace = ["invite", "--address", &here, "--replace", "2"];
    first.weir(&replace).fails(&["target 2 is in use"]);
    first.weir(&["invite", "--address", &here, "--replace", "1"]).fails(&["target replace 1"]);
    first.weir(&["invite", "--address", &here, "--replace", "9"]).fails(&["no target 9"]);

    lose_disk(&second, "data-2", &place.path("a"));
    let out = || targets(&first).contains(&(2, "offline".to_owned()));
    eventually("it is missed", out);
    let advice = "`weir invite --replace 2 | ssh ";
    let said = first.weir(&["status"]).out;
    assert!(said.contains(advice) && !said.contains("target replace"), "{said}");
    let said = second.weir(&["status"]).out;
    assert!(said.contains("on the machine of the metadata server") && said.contains(advice));
    first.weir(&["target", "replace", "2"]).fails(&["not of this machine", advice]);
    second.weir(&["target", "replace", "2"]).fails(&["this machine has joined", advice]);
    // No machine joins: the invitation stays valid.
    let nobody = std::process::Stdio::null;
    let mut alone = first.command(&[&replace[..], &["--yes"]].concat());
    alone.stderr(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut alone = alone.stdin(nobody()).spawn().unwrap();
    drop(alone.stdout.take());
    assert_eq!(alone.wait_with_output().unwrap().status.code(), Some(1));
    assert_eq!(targets(&first).len(), 2, "nothing was changed");

    // As it was said, from one machine to the other.
    let mut inviting = first.command(&[&replace[..], &["--yes"]].concat());
    let inviting = inviting.stdout(std::process::Stdio::piped());
    let mut inviting = inviting.stderr(std::process::Stdio::piped()).spawn().unwrap();
    let mut joining = second.command(&["join", "--data", &b]);
    joining.stdin(inviting.stdout.take().unwrap());
    let said = harness::said(joining).ok();
    assert!(said.contains("data-2 serves target 3") && said.contains("target 2 is not served"));
    let output = inviting.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && said.contains("target 2 is removed"), "{said}");
    is_whole(3);
    first.weir(&[&replace[..], &["--yes"]].concat()).fails(&["no target 2"]);

    // By a file, and only on that machine.
    lose_disk(&second, "data-2", &place.path("b"));
    let out = || targets(&first).contains(&(3, "offline".to_owned()));
    eventually("it is missed", out);
    let file = place.path("for-two");
    let replace = ["invite", "--address", &here, "--replace", "3", "--yes"];
    let output = ["--output", file.to_str().unwrap()];
    let said = first.weir(&[&replace[..], &output].concat());
    assert!(said.err.contains("`weir invite --replace 3` once more"), "{said:?}");
    said.ok();
    let invitation = fs::read_to_string(&file).unwrap();
    let with_data = ["--data", &c];
    for wrong in ["one", "three"] {
        join(&place, wrong, &invitation, &with_data).fails(&["machine of data-2 alone"]);
    }
    join(&place, "two", &invitation, &["--data", &c, "--port", "1"]).fails(&["leave out"]);
    join(&place, "two", &invitation, &with_data).ok();
    // Given once more it changes nothing.
    join(&place, "two", &invitation, &with_data).ok();
    first.weir(&replace).ok();
    is_whole(4);
    first.weir(&["cp", "weir:/file", &back]).ok();
    assert!(fs::read(&back).unwrap() == fs::read(&bytes).unwrap());
    second.weir(&["down"]).ok();
    second.weir(&["up"]).ok();
    is_whole(4);
    second.weir(&["down", "--purge", "--yes"]).ok();
}
