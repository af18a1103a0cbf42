//! `weir invite` and `weir join`, on one machine: what they refuse, and what they leave.
#![allow(clippy::unwrap_used)] // A failed helper fails the test.

mod harness;

use harness::{Place, Said, eventually, said};
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// Joins as the cluster of another name, with an invitation from a file.
fn join(place: &Place, name: &str, invitation: &str, more: &[&str]) -> Said {
    let file = place.path("invitation");
    fs::write(&file, invitation).unwrap();
    fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    let fixed = ["join", "--name", name, "--invitation", file.to_str().unwrap()];
    said(place.command(&[&fixed, more].concat()))
}

#[test]
fn an_invitation_is_for_one_machine_and_what_fails_leaves_nothing() {
    let place = Place::new();
    let first = place.up("one", &["--targets", "1"]);
    let said = first.weir(&["invite"]);
    assert!(said.err.contains("no other machine reaches this cluster"), "{said:?}");
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
    let only_mounts = first.weir(&["invite", "--targets", "0"]).ok();
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

    let invitation = first.weir(&["invite"]).ok();
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
    assert_eq!(first.weir(&["invite", "--output", file.to_str().unwrap()]).ok(), "");
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
