//! Everything that a user can get wrong has a message that says what to do.

use crate::harness::{self, Cluster, Place, noise, root};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// A credential file with these contents, mode 0600.
fn credential(place: &Place, name: &str, key: &str, address: &str) {
    let text =
        format!("cluster = \"one\"\nclient = 1\nkey = \"{key}\"\nmetadata = [\"{address}\"]\n");
    fs::write(place.path(name), text).unwrap();
    fs::set_permissions(place.path(name), fs::Permissions::from_mode(0o600)).unwrap();
}

/// An address on which nothing listens.
fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

#[test]
fn wrong_usage_is_exit_code_2() {
    let place = Place::new();
    for arguments in [&["frobnicate"][..], &["cp", "one"], &["up", "--targets", "0"], &["ls", "-z"]]
    {
        let said = place.weir(arguments);
        assert_eq!(said.code, Some(2), "{arguments:?}: {said:?}");
        assert!(said.err.contains("Usage") || said.err.contains("--help"), "{said:?}");
    }
    let version = place.weir(&["--version"]).ok();
    let protocol = format!("protocol {}", weir_wire::frame::VERSION);
    assert!(version.contains(&protocol) && version.contains("format 2"), "{version}");
}

#[test]
fn no_cluster_at_all() {
    let place = Place::new();
    for arguments in [&["ls", "/"][..], &["down"], &["status"], &["df"], &["key", "list"]] {
        place.weir(arguments).fails(&["there is no cluster in", "weir up"]);
    }
    // Commands that change a cluster make nothing where there is none.
    let add_target = ["target", "add", "--server", "1"];
    for arguments in [&["server", "add"][..], &add_target, &["target", "replace", "1"], &["invite"]]
    {
        let said = place.weir(&[arguments, &["--name", "mistyped"]].concat());
        said.fails(&["there is no cluster in", "mistyped"]);
        assert!(!place.path("state/weir/mistyped").exists(), "{arguments:?}");
    }
}

#[test]
fn nothing_is_listening() {
    let place = Place::new();
    let address = free_address();
    credential(&place, "c.toml", &"ab".repeat(32), &address);
    place.weir(&["ls", "--credential", "c.toml", "/"]).fails(&[&address, "weir up", "weir status"]);
    let status = place.weir(&["status", "--credential", "c.toml"]);
    assert!(status.out.contains("TROUBLE") && status.out.contains(&address), "{status:?}");
}

#[test]
fn the_key_is_wrong() {
    let place = Place::new();
    let cluster = place.up("one", &["--targets", "1"]);
    let address = address_of(&cluster);
    credential(&place, "c.toml", &"ab".repeat(32), &address);
    let message = place.weir(&["ls", "--credential", "c.toml", "/"]).fails(&["key"]);
    assert!(!message.contains("abababab"), "a secret in a message: {message}");
}

#[test]
fn the_key_is_missing_damaged_or_open_to_all() {
    let place = Place::new();
    let cluster = place.up("one", &["--targets", "1"]);
    place.weir(&["ls", "--credential", "nowhere.toml"]).fails(&["nowhere.toml", "credential"]);

    let file = cluster.dir().join("client.toml");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    cluster.weir(&["ls", "/"]).fails(&["client.toml", "anyone", "chmod 600"]);
    fs::remove_file(&file).unwrap();
    cluster.weir(&["ls", "/"]).fails(&["client.toml", "credential"]);
    credential(&place, "c.toml", "0123", "127.0.0.1:1");
    place.weir(&["ls", "--credential", "c.toml"]).fails(&["c.toml", "64 hex"]);

    // A server's key.
    cluster.weir(&["down"]).ok();
    fs::remove_file(cluster.dir().join("keys/server-1.key")).unwrap();
    cluster.weir(&["up"]).fails(&["data-1", "server-1.key", "weir key"]);
}

#[test]
fn the_server_speaks_another_version() {
    let place = Place::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    // Answers every connection with a frame of another version of the protocol.
    let others = weir_wire::frame::VERSION + 1;
    let server = std::thread::spawn(move || {
        for _ in 0..1 {
            let (mut stream, _) = listener.accept().unwrap();
            let mut hello = [0; 80];
            stream.read_exact(&mut hello).unwrap();
            let mut answer =
                weir_wire::handshake::refusal(&weir_types::ErrorKind::VersionMismatch.into());
            answer[4..6].copy_from_slice(&others.to_le_bytes());
            stream.write_all(&answer).unwrap();
        }
    });
    credential(&place, "c.toml", &"ab".repeat(32), &address);
    let own = format!("version {}", weir_wire::frame::VERSION);
    let theirs = format!("version {others}");
    place.weir(&["ls", "--credential", "c.toml"]).fails(&[&theirs, &own, "same release"]);
    server.join().unwrap();
}

#[test]
fn a_port_is_taken() {
    let place = Place::new();
    let holder = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = holder.local_addr().unwrap().port().to_string();
    let cluster = place.cluster("one");
    cluster.weir(&["up", "--port", &port]).fails(&[&format!("port {port}"), "--port"]);
    assert!(!cluster.dir().exists());

    // Or by the time it starts again.
    cluster.weir(&["up", "--targets", "1"]).ok();
    let address = address_of(&cluster);
    cluster.weir(&["down"]).ok();
    let _holder = TcpListener::bind(&address).unwrap();
    cluster.weir(&["up"]).fails(&["meta", &address]);
}

#[test]
fn a_target_directory_is_missing() {
    let place = Place::new();
    let cluster = place.up("one", &["--targets", "2"]);
    cluster.weir(&["down"]).ok();
    let target = cluster.dir().join("targets/2");
    fs::rename(&target, place.path("taken away")).unwrap();
    cluster.weir(&["up"]).fails(&[
        "data-2",
        "target 2",
        "targets/2 is missing",
        "is its disk mounted?",
    ]);
    assert!(cluster.runs("data-1") && !cluster.runs("data-2"), "what can serve does");
    fs::rename(place.path("taken away"), &target).unwrap();
    cluster.weir(&["up"]).ok();
}

#[test]
fn a_target_is_not_served() {
    let place = Place::new();
    let cluster = place.up("one", &["--targets", "2"]);
    fs::write(place.path("data"), noise(1 << 20, 1)).unwrap();
    cluster.weir(&["cp", "data", "weir:/data"]).ok();
    cluster.kill("data-2");
    let begin = std::time::Instant::now();
    cluster.weir(&["cat", "/data"]).fails(&["weir:/data", "server 2"]);
    assert!(begin.elapsed().as_secs() < 60, "waits are bounded");
    let status = cluster.weir(&["status"]);
    let told = "TROUBLE: data-2 does not run\n  -> `weir up` starts it";
    assert!(status.out.contains(told), "{}", status.out);
}

#[test]
fn a_target_is_full_or_read_only() {
    if !root() {
        return;
    }
    let place = Place::new();
    let cluster = place.up("one", &["--targets", "1"]);
    cluster.weir(&["down"]).ok();
    let small = SmallDisk::under(&cluster.dir().join("targets/1"));
    cluster.weir(&["up"]).ok();
    fs::write(place.path("data"), noise(20 << 20, 1)).unwrap();
    cluster.weir(&["cp", "data", "weir:/data"]).fails(&["weir:/data", "space", "weir df"]);
    cluster.weir(&["rm", "-f", "/data"]).ok();

    cluster.weir(&["down"]).ok();
    small.mount(&["-o", "remount,ro"]);
    cluster.weir(&["up"]).ok();
    fs::write(place.path("small"), "x").unwrap();
    cluster.weir(&["cp", "small", "weir:/small"]).fails(&["weir:/small", "ead-only"]);
}

#[test]
fn an_option_or_a_setting_is_unknown() {
    let place = Place::new();
    fs::create_dir_all(place.path("config/weir")).unwrap();
    fs::write(place.path("config/weir/config.toml"), "[up]\ntragets = 4\n").unwrap();
    place.weir(&["up"]).fails(&["config.toml", "tragets"]);
    fs::write(place.path("config/weir/config.toml"), "cluster = \"of-the-file\"\n").unwrap();
    place.weir(&["ls"]).fails(&["of-the-file"]);
    let mut command = place.command(&["ls"]);
    command.env("WEIR_CLUSTER", "of-the-environment");
    harness::said(command).fails(&["of-the-environment"]);
    let mut command = place.command(&["ls", "--name", "of-the-flag"]);
    command.env("WEIR_CLUSTER", "of-the-environment");
    harness::said(command).fails(&["of-the-flag"]);
}

fn address_of(cluster: &Cluster<'_>) -> String {
    let text = fs::read_to_string(cluster.dir().join("cluster.toml")).unwrap();
    let line = text.lines().find(|line| line.starts_with("metadata")).unwrap();
    line.split('"').nth(1).unwrap().to_owned()
}

/// A file system of 16 MiB in place of a directory, with what was in it.
struct SmallDisk {
    dir: std::path::PathBuf,
}

impl SmallDisk {
    fn under(dir: &Path) -> Self {
        let kept = dir.with_extension("kept");
        fs::rename(dir, &kept).unwrap();
        fs::create_dir(dir).unwrap();
        let disk = Self { dir: dir.to_owned() };
        disk.mount(&["-t", "tmpfs", "-o", "size=16m", "weir-test"]);
        let status = Command::new("cp").arg("-a").arg(kept.join(".")).arg(dir).status().unwrap();
        assert!(status.success());
        disk
    }

    fn mount(&self, arguments: &[&str]) {
        let status = Command::new("mount").args(arguments).arg(&self.dir).status().unwrap();
        assert!(status.success());
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.dir).status();
    }
}
