//! Daemons under a service manager.

use crate::harness::{Place, Running, WEIR, eventually, said};
use std::ffi::OsStr;
use std::fs;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

fn said_to(socket: &UnixDatagram) -> String {
    let mut message = [0; 1000];
    let bytes = socket.recv(&mut message).unwrap();
    String::from_utf8_lossy(&message[..bytes]).into_owned()
}

#[test]
fn systemd_is_told_when_a_daemon_serves() {
    let place = Place::new();
    let cluster = place.up("one", &["--targets", "1"]);
    cluster.weir(&["down"]).ok();
    // A socket with a name that is no file, as systemd in a container has it, and one that is.
    let name = format!("weir-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let abstract_one = UnixDatagram::bind_addr(&address).unwrap();
    let file = place.path("notify");
    let plain_one = UnixDatagram::bind(&file).unwrap();
    let start = |daemon: &str, config: &str, socket: &OsStr| {
        let config = cluster.dir().join(config);
        let mut command = cluster.command(&[daemon, "--config", config.to_str().unwrap()]);
        Running(command.env("NOTIFY_SOCKET", socket).stderr(Stdio::null()).spawn().unwrap())
    };

    let mut meta = start("meta", "meta.toml", format!("@{name}").as_ref());
    abstract_one.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let ready = said_to(&abstract_one);
    assert!(ready.starts_with("READY=1\nSTATUS=the metadata server serves on"), "{ready}");
    let mut data = start("data", "data-1.toml", file.as_os_str());
    plain_one.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let ready = said_to(&plain_one);
    assert!(ready.starts_with("READY=1\nSTATUS=data server 1 serves on"), "{ready}");
    eventually("files can be made", || cluster.weir(&["mkfile", "weir:/f"]).code == Some(0));

    // SIGTERM, as systemd sends it, ends the daemon cleanly.
    for daemon in [&mut data, &mut meta] {
        Command::new("kill").arg(daemon.0.id().to_string()).status().unwrap();
        assert!(daemon.0.wait().unwrap().success());
    }
    // A daemon that cannot start sends no notification.
    let mut failing = start("data", "nowhere.toml", file.as_os_str());
    assert_eq!(failing.0.wait().unwrap().code(), Some(1));
    plain_one.set_nonblocking(true).unwrap();
    assert!(plain_one.recv(&mut [0; 10]).is_err());
}

#[test]
fn the_journal_is_told_how_grave_each_line_is() {
    let place = Place::new();
    let file = fs::File::create(place.path("journal")).unwrap();
    let is = file.metadata().unwrap();
    let run = |stream: &str| {
        let mut command = place.command(&["meta", "--config", "nowhere.toml"]);
        command.env("JOURNAL_STREAM", stream).stderr(file.try_clone().unwrap());
        assert_eq!(command.status().unwrap().code(), Some(1));
        fs::read_to_string(place.path("journal")).unwrap()
    };
    let said = run(&format!("{}:{}", is.dev(), is.ino()));
    assert!(said.starts_with("<3>weir: "), "{said}");
    assert!(said.lines().all(|line| line.starts_with("<3>")), "{said}");
    // The journal's stream is another file, so this one is an ordinary file.
    let said = run("1:1");
    assert!(said.lines().any(|line| line.starts_with("weir: ")), "{said}");
}

#[test]
fn what_weir_up_starts_tells_whoever_waits_for_weir_up_nothing() {
    let place = Place::new();
    let cluster = place.cluster("one");
    let file = place.path("notify");
    let socket = UnixDatagram::bind(&file).unwrap();
    let mut up = cluster.command(&["up", "--targets", "1"]);
    up.env("NOTIFY_SOCKET", &file).env("KEPT", "1");
    said(up).ok();
    socket.set_nonblocking(true).unwrap();
    assert!(socket.recv(&mut [0; 10]).is_err(), "a daemon has told it");
    for pid in cluster.pids() {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap();
        let environment = String::from_utf8_lossy(&environment);
        assert!(environment.contains("KEPT=1") && !environment.contains("NOTIFY_SOCKET"));
    }
}

#[test]
fn units_are_what_systemd_understands() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        eprintln!("skipped: needs systemd-analyze");
        return;
    }
    let place = Place::new();
    let units = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/systemd");
    let mut analyze = Command::new("systemd-analyze");
    analyze.args(["--man=no", "verify"]);
    for unit in fs::read_dir(units).unwrap() {
        let unit = unit.unwrap().path();
        let name = unit.file_name().unwrap().to_str().unwrap().replace('@', "@7");
        // It looks whether the program is there.
        let text = fs::read_to_string(&unit).unwrap().replace("/usr/bin/weir", WEIR);
        fs::write(place.path(&name), text).unwrap();
        analyze.arg(place.path(&name));
    }
    let verified = said(analyze);
    // It also complains of whatever else is wrong on this machine.
    let of_ours = |line: &&str| line.contains("weir");
    let wrong: Vec<&str> = verified.err.lines().filter(of_ours).collect();
    assert!(wrong.is_empty() && verified.code == Some(0), "{verified:?}");
}
