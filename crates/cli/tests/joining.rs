//! `weir invite` and `weir join`, on one machine: what they refuse, and what they leave.
#![allow(clippy::unwrap_used)] // A failed helper fails the test.

mod harness;

use harness::{Cluster, Place, Said, eventually, said};
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
    join(&place, "one", &invitation, &with_data).fails(&["there is a cluster in", "--name"]);
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
fn who_cannot_reach_the_cluster_any_more_has_joined_and_goes_on() {
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
    failed.fails(&["this machine has joined", "do not join again", "weir up"]);
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
