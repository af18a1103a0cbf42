//! What is said by variables of the environment (docs/operating.md, "Settings").

use crate::harness::{Cluster, Place, Running, Said, eventually, root, said};
use std::fs;
use std::process::Stdio;

/// Runs the program with one variable more.
fn with(place: &Place, variable: &str, value: &str, arguments: &[&str]) -> Said {
    let mut command = place.command(arguments);
    command.env(variable, value);
    said(command)
}

/// `weir meta` in the foreground, in place of the one that `weir up` started. What it says goes
/// to a file `said`.
fn metadata_server(cluster: &Cluster<'_>, arguments: &[&str], variables: &[(&str, &str)]) {
    let mut command = cluster.place.command(arguments);
    let log = fs::File::create(cluster.place.path("said")).unwrap();
    command.envs(variables.iter().copied()).stdout(Stdio::null()).stderr(log);
    let mut server = Running(command.spawn().unwrap());
    eventually("it serves", || cluster.weir(&["ls"]).code == Some(0));
    let pid = server.0.id().to_string();
    assert!(std::process::Command::new("kill").arg(pid).status().unwrap().success());
    assert!(server.0.wait().unwrap().success());
}

#[test]
fn up_makes_as_many_targets_and_mounts_where_the_environment_says() {
    if !root() {
        return;
    }
    let place = Place::new();
    let cluster = place.cluster("said");
    let mut up = place.command(&["up", "--name", "said"]);
    up.env("WEIR_TARGETS", "2").env("WEIR_MOUNT", place.path("m"));
    said(up).ok();
    assert_eq!(cluster.weir(&["targets", "--json"]).json().as_array().unwrap().len(), 2);
    fs::write(place.path("m/f"), "text").unwrap();
    assert_eq!(cluster.weir(&["cat", "/f"]).ok(), "text");
    with(&place, "WEIR_TARGETS", "5", &["up", "--name", "said"]).fails(&["has 2 targets"]);
    with(&place, "WEIR_TARGETS", "5", &["up", "--name", "said", "--targets", "2"]).ok();
}

#[test]
fn the_cluster_is_the_one_that_the_environment_names() {
    let place = Place::new();
    let cluster = place.up("named", &["--targets", "1"]);
    let dir = cluster.dir();
    let credential = dir.join("client.toml");
    fs::write(place.path("dir.toml"), format!("dir = \"{}\"\n", dir.display())).unwrap();
    place.weir(&["df"]).fails(&["default"]);
    for (variable, value, flag) in [
        ("WEIR_CLUSTER", "named", "--name"),
        ("WEIR_DIR", dir.to_str().unwrap(), "--dir"),
        ("WEIR_CONFIG", "dir.toml", "--config"),
        ("WEIR_CREDENTIAL", credential.to_str().unwrap(), "--credential"),
    ] {
        with(&place, variable, value, &["df"]).ok();
        with(&place, variable, "none", &["df"]).fails(&["none"]);
        with(&place, variable, "none", &["df", flag, value]).ok();
    }
    with(&place, "WEIR_TESTBED", "/no/testbed", &["testbed", "status"]).fails(&["/no/testbed"]);
}

#[test]
fn a_metadata_server_is_told_of_its_file_and_how_much_to_say() {
    let place = Place::new();
    let cluster = place.up("told", &["--targets", "1"]);
    cluster.kill("meta");
    let file = cluster.dir().join("meta.toml").display().to_string();
    let log = || fs::read_to_string(place.path("said")).unwrap();
    metadata_server(&cluster, &["meta", "--config", &file], &[]);
    assert!(log().contains("the metadata server serves on"), "{}", log());
    metadata_server(&cluster, &["meta"], &[("WEIR_CONFIG", &file), ("WEIR_LOG", "error")]);
    assert_eq!(log(), "", "that is no error");
}

#[test]
fn without_a_cluster_here_the_credential_of_the_user_or_the_machine_is_used() {
    let place = Place::new();
    let first = place.up("one", &["--targets", "1"]);
    place.weir(&["status"]).fails(&["there is no cluster in"]);
    let usual = place.path("config/weir");
    std::fs::create_dir_all(&usual).unwrap();
    // With its mode: other users may not read it.
    std::fs::copy(first.dir().join("client.toml"), usual.join("client.toml")).unwrap();
    first.weir(&["mkdir", "/seen"]).ok();
    let said = place.weir(&["status"]).ok();
    assert!(said.contains("Cluster one") && said.contains("All is well"), "{said}");
    assert_eq!(place.weir(&["ls", "weir:/"]).ok(), "seen\n");
    // One that is named, or that is here, comes first.
    place.weir(&["status", "--name", "other"]).fails(&["there is no cluster in"]);
    let _here = place.up("default", &["--targets", "1"]);
    assert!(place.weir(&["status"]).ok().contains("Cluster default"));
}
