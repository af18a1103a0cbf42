//! Flags and keys of which no other test shows what they do (`effects.txt` has them all).

use crate::harness::{self, Cluster, Place, Running, WEIR, eventually, noise, root, said};
use crate::library;
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Changes the settings of a daemon and restarts it.
fn set(cluster: &Cluster<'_>, daemon: &str, values: &[(&str, toml::Value)]) {
    let path = cluster.dir().join(format!("{daemon}.toml"));
    let mut settings: toml::Table = fs::read_to_string(&path).unwrap().parse().unwrap();
    for (key, value) in values {
        settings.insert((*key).into(), value.clone());
    }
    fs::write(&path, settings.to_string()).unwrap();
    if cluster.runs(daemon) {
        cluster.kill(daemon);
    }
    cluster.weir(&["up"]).ok();
}

fn number(n: i64) -> toml::Value {
    toml::Value::Integer(n)
}

/// What `weir reliability` computes.
fn rows(place: &Place, arguments: &str) -> Value {
    let words: Vec<&str> = arguments.split_whitespace().collect();
    place.weir(&[&["reliability", "--json"], words.as_slice()].concat()).json()["rows"].clone()
}

#[test]
fn each_assumption_of_reliability_changes_what_is_computed() {
    let place = Place::new();
    let usual = "--layout mirrored,random --copies 2 --protocol server-async --unreadable 1e-15";
    let (base, plain) = (rows(&place, usual), rows(&place, ""));
    for more in [
        "--nodes 24",
        "--disks-per-node 8",
        "--mttf 1y",
        "--afr 10%",
        "--node-mttf 30d",
        "--node-repair 1d",
        "--capacity 8TB",
        "--rebuild 50MB/s",
        "--detect 1h",
        "--segment 4TB",
        "--write-every 10s",
        "--write-size 64MB",
        "--duplicate-in 500ms",
        "--mission 5y",
    ] {
        assert_ne!(rows(&place, &format!("{usual} {more}")), base, "{more}");
    }
    for other in ["--layout chained", "--copies 3", "--code 4+2", "--unreadable 1e-14 --copies 2"] {
        assert_ne!(rows(&place, other), plain, "{other}");
    }
    assert_ne!(rows(&place, "--copies 2 --protocol client-async"), rows(&place, "--copies 2"));
}

#[test]
fn simulations_are_chosen_repeated_broken_and_explained() {
    if !cfg!(debug_assertions) {
        println!("skipped: bugs are planted in builds with debug assertions");
        return;
    }
    let place = Place::new();
    let sim = |more: &[&str]| {
        let mut command = place.command(&[&["sim", "--duration", "2s"], more].concat());
        command.env("TMPDIR", place.path(""));
        said(command)
    };
    let one = sim(&["--seed", "5", "--json"]).json();
    assert_eq!((&one["seed"], &one["violations"]), (&5.into(), &Value::Array(Vec::new())));
    assert_ne!(one["trace_hash"], sim(&["--seed", "6", "--json"]).json()["trace_hash"]);
    let mut told = place.command(&["sim", "--duration", "2s", "--json"]);
    told.env("TMPDIR", place.path("")).env("WEIR_SEED", "5");
    assert_eq!(said(told).json()["trace_hash"], one["trace_hash"]);
    let mut longer = place.command(&["sim", "--seed", "5", "--json", "--duration", "4s"]);
    longer.env("TMPDIR", place.path(""));
    assert_ne!(said(longer).json()["trace_hash"], one["trace_hash"]);
    assert!(sim(&["--seed", "5", "--verify-determinism"]).ok().contains("seed 5 ok"));

    // Some seeds find a bug; with --keep-going all are run.
    assert!(sim(&["--list-bugs"]).ok().contains("half-rename"));
    let broken = ["--seed", "1", "--seeds", "8", "--plant", "half-rename"];
    let totals = |said: &harness::Said| {
        // The last of several values.
        let at = said.out.rfind("\n{").map_or(0, |at| at + 1);
        serde_json::from_str::<Value>(&said.out[at..]).unwrap()
    };
    let all = sim(&[&broken[..], &["--keep-going", "--jobs", "2", "--json"]].concat());
    assert_eq!((all.code, &totals(&all)["runs"]), (Some(1), &8.into()), "{}", all.err);
    let failed = totals(&all)["failed"].as_array().unwrap().clone();
    assert!(!failed.is_empty() && failed.len() < 8, "{failed:?}");
    let first = sim(&[&broken[..], &["--jobs", "1", "--json"]].concat());
    assert!(totals(&first)["runs"].as_u64().unwrap() < 8, "{}", first.out);

    // As it is, and made smaller, to be run again.
    let seed = failed[0].to_string();
    let failing = ["--seed", &seed, "--plant", "half-rename"];
    let raw = sim(&[&failing[..], &["--no-shrink"]].concat());
    assert!(raw.code == Some(1) && !raw.err.contains("--plan "), "{}", raw.err);
    let small = sim(&failing);
    assert_eq!(small.code, Some(1));
    let plan = small.err.split("--plan ").nth(1).unwrap().split_whitespace().next().unwrap();
    assert_eq!(sim(&["--plant", "half-rename", "--plan", plan]).code, Some(1));
    assert_eq!(sim(&["--plan", plan]).code, Some(0), "without the bug it is well");
}

#[test]
fn small_flags_of_small_commands_do_what_they_say() {
    let place = Place::new();
    let cluster = place.up("small", &["--targets", "4", "--targets-per-server", "2"]);
    let servers = cluster.weir(&["server", "list", "--json"]).json();
    assert_eq!(servers.as_array().unwrap().len(), 2, "{servers}");
    fs::write(place.path("f"), noise(3 << 20, 1)).unwrap();
    cluster.weir(&["cp", "f", "weir:/f"]).ok();
    assert!(cluster.weir(&["ls", "-l", "--human-readable", "/f"]).ok().contains(" 3.0M "));
    assert!(cluster.weir(&["ls", "-l", "/f"]).ok().contains(" 3145728 "));
    let sizes = |flags: &[&str]| {
        let text = cluster.weir(&[&["df"], flags].concat()).ok();
        text.lines().nth(1).unwrap().contains(['G', 'T', 'M'])
    };
    assert!(sizes(&["--human-readable"]) && !sizes(&[]));
    let top = cluster.weir(&["top", "--json", "-n", "1", "-d", "0.1"]).json();
    assert_eq!(top.as_array().unwrap().len(), 4, "{top}");
    let begin = Instant::now();
    cluster.weir(&["top", "--json", "-n", "1", "--interval", "1.5"]).ok();
    assert!(begin.elapsed() >= Duration::from_millis(1500), "{:?}", begin.elapsed());
    assert_eq!(cluster.weir(&["target", "list", "--json"]).json().as_array().unwrap().len(), 4);
    for what in ["server", "target", "key", "quota"] {
        let help = |word: &str| cluster.weir(&[what, word, "--help"]).ok();
        assert_eq!(help("ls"), help("list"));
        assert_eq!(help("rm"), help("remove"));
        cluster.weir(&[what, "ls"]).ok();
    }
    let up = cluster.weir(&["up", "--json"]).json();
    assert_eq!((&up["name"], &up["started"]), (&"small".into(), &0.into()), "{up}");

    // Layouts of directories.
    cluster.weir(&["mkdir", "/d"]).ok();
    let usual = cluster.weir(&["setlayout", "weir:/d"]).ok();
    cluster.weir(&["setlayout", "weir:/d", "--sizes", "1M,2M"]).ok();
    let pieces = cluster.weir(&["setlayout", "weir:/d"]).ok();
    assert!(pieces != usual && pieces.contains("fragments"), "{pieces}");
    cluster.weir(&["setlayout", "weir:/d", "--inherit"]).ok();
    assert_eq!(cluster.weir(&["setlayout", "weir:/d"]).ok(), usual);

    // Records.
    fs::write(place.path("lines"), "one\ntwo\n").unwrap();
    cluster.weir(&["spread", "--writer", "me", "--credits", "1", "weir:/out", "lines"]).ok();
    let names = cluster.weir(&["ls", "/out"]).ok();
    assert!(names.lines().all(|name| name.starts_with("part-me-")) && !names.is_empty());
    let refused = cluster.weir(&["spread", "--credits", "17", "weir:/out", "lines"]);
    assert!(refused.code == Some(2) && refused.err.contains("1..=16"), "{}", refused.err);

    // Servers and targets.
    let port = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port().to_string()
    };
    cluster.weir(&["server", "add", "--port", &port]).ok();
    let map = library::client(&cluster, false).cluster_map().unwrap();
    assert!(map.servers.iter().any(|server| server.tcp.ends_with(&format!(":{port}"))), "{map:?}");
    let keys = ["key", "server", "--server", "9", "--targets", "9", "-o", "nine"];
    cluster.weir(&[&keys[..], &["--domain", "rack-7"]].concat()).ok();
    let text = fs::read_dir(place.path("nine")).unwrap().flatten();
    let text: String = text.filter_map(|file| fs::read_to_string(file.path()).ok()).collect();
    assert!(text.contains("rack-7"), "{text}");
    let id = "00112233445566778899aabbccddeeff";
    let create = ["target", "create", "--target", "12", "--server", "3", "--cluster-id", id, "t12"];
    cluster.weir(&create).ok();
    let made = place.path("t12");
    assert!(fs::read_dir(&made).unwrap().count() > 0);
    cluster.weir(&create).fails(&["t12"]);
}

/// More than the cluster of the next test needs.
const PORTS: u16 = 8;

/// The first of this many free ports, below the range from which the kernel by default takes ports
/// for outgoing connections.
fn free_ports(count: u16) -> u16 {
    let width = 32_700 - 20_000 - count;
    // Elsewhere than another process that looks for some.
    let begin = std::process::id() as u16 % width;
    let bind = |port| std::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, port));
    let is_free = |base: &u16| (*base..base + count).all(|port| bind(port).is_ok());
    let mut bases = (0..width).map(|n| 20_000 + (begin + n) % width);
    bases.find(is_free).expect("there are free ports")
}

#[test]
fn the_configuration_file_has_defaults_that_flags_and_the_environment_win_over() {
    if !root() {
        return;
    }
    let place = Place::new();
    let file = place.path("config/weir/config.toml");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    let port = free_ports(PORTS);
    let text = format!(
        "cluster = \"filed\"\n[up]\ntargets = 3\ntargets_per_server = 3\nport = {port}\n\
         unit = \"16K\"\nmetrics = \"127.0.0.1\"\nmount = \"{}\"\n[mount]\noptions = [\"ro\"]\n",
        place.path("m").display()
    );
    fs::write(&file, text).unwrap();
    // Its name is that of the file, so that it is gone in the end.
    let cluster = place.cluster("filed");
    place.weir(&["up"]).ok();
    let status = place.weir(&["status", "--json"]).json();
    assert!(cluster.runs("data-1") && !cluster.runs("data-2"), "{status}");
    assert!(status["daemons"][0]["metrics"].is_string(), "{status}");
    let map = library::client(&cluster, false).cluster_map().unwrap();
    assert_eq!(map.servers[0].targets.len(), 3);
    let ports: Vec<u16> =
        map.servers.iter().filter_map(|s| s.tcp.rsplit(':').next()?.parse().ok()).collect();
    assert!(ports.iter().all(|p| (port..port + PORTS).contains(p)), "{ports:?} {port}");
    assert!(place.weir(&["setlayout", "weir:/"]).ok().contains("16K"));
    let error = fs::write(place.path("m/f"), "x").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EROFS), "it is mounted with the options");
    let mut other = place.command(&["status"]);
    other.env("WEIR_CLUSTER", "another");
    said(other).fails(&["another"]);

    // Another file: a directory, or a credential.
    let dir = cluster.dir();
    fs::write(place.path("dir.toml"), format!("dir = \"{}\"\n", dir.display())).unwrap();
    let credential = dir.join("client.toml");
    let text = format!("credential = \"{}\"\n", credential.display());
    fs::write(place.path("credential.toml"), text).unwrap();
    for config in ["dir.toml", "credential.toml"] {
        place.weir(&["df", "--config", config]).ok();
    }
    place.weir(&["df", "--dir", dir.to_str().unwrap()]).ok();
    place.weir(&["df", "--credential", credential.to_str().unwrap()]).ok();
    place.weir(&["df", "--name", "filed"]).ok();
    place.weir(&["df", "--credential", "none.toml"]).fails(&["none.toml"]);
}

/// What root mounts is as any other file system in that: `suid` and `dev` need not be said.
fn devices_and_setuid_programs_work_unless_told_otherwise(cluster: &Cluster, usual: &Path) {
    let made = script(
        "cp /usr/bin/id $0/id && chmod 4755 $0/id && mknod -m 666 $0/null c 1 3 && chmod 755 $0 $0/..",
        usual,
    );
    assert_eq!(made, (String::new(), true));
    let told_nothing = cluster.mount("told-nothing", "rw");
    let careful = cluster.mount("careful", "nosuid,nodev");
    for (at, effective, opens) in
        [(usual, "0\n", true), (&told_nothing, "0\n", true), (&careful, "65534\n", false)]
    {
        let as_nobody = "setpriv --reuid=65534 --regid=65534 --clear-groups $0/id -u";
        assert_eq!(script(as_nobody, at), (effective.into(), true), "{at:?}");
        assert_eq!(script("echo 2> /dev/null > $0/null", at).1, opens, "{at:?}");
    }
}

/// What a line for the shell prints that finds the directory in `$0`, and whether it succeeds.
fn script(line: &str, at: &Path) -> (String, bool) {
    let output = Command::new("sh").args(["-c", line]).arg(at).output().unwrap();
    (String::from_utf8(output.stdout).unwrap(), output.status.success())
}

#[test]
fn mount_options_are_what_the_kernel_shows_and_does() {
    if !root() {
        return;
    }
    let place = Place::new();
    let cluster = place.up("options", &["--targets", "1"]);
    let shown = |at: &Path| {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let line = mounts.lines().find(|line| line.split(' ').nth(1) == at.to_str()).unwrap();
        line.split(' ').nth(3).unwrap().split(',').map(str::to_owned).collect::<Vec<_>>()
    };
    let usual = cluster.mount("usual", "rw,suid,dev,exec,default_permissions");
    let strict = cluster.mount("strict", "ro,nosuid,nodev,noexec,allow_root_only");
    let (usual_options, strict_options) = (shown(&usual), shown(&strict));
    for option in ["ro", "nosuid", "nodev", "noexec"] {
        assert!(strict_options.iter().any(|o| o == option), "{strict_options:?}");
        assert!(usual_options.iter().all(|o| o != option), "{usual_options:?}");
    }
    for option in ["rw", "allow_other"] {
        assert!(usual_options.iter().any(|o| o == option), "{usual_options:?}");
    }
    // Whether the option is given explicitly or not.
    for options in [&usual_options, &strict_options] {
        assert!(options.iter().any(|o| o == "default_permissions"), "{options:?}");
    }
    assert!(strict_options.iter().all(|o| o != "allow_other"), "{strict_options:?}");
    assert_eq!(fs::write(strict.join("f"), "").unwrap_err().raw_os_error(), Some(libc::EROFS));
    // By a program: had this process it open to write, so would whatever another test has just
    // started, for a moment, and nobody could execute it.
    assert_eq!(script("cp /bin/true $0/true", &usual), (String::new(), true));
    assert!(Command::new(usual.join("true")).status().unwrap().success());
    assert!(Command::new(strict.join("true")).status().is_err());
    devices_and_setuid_programs_work_unless_told_otherwise(&cluster, &usual);

    // How large requests of the kernel are, and that it keeps no pages.
    let small = cluster.mount("small", "max_io=128K,direct_io,nocache");
    assert!(shown(&small).contains(&"max_read=131072".to_owned()), "{:?}", shown(&small));
    fs::write(small.join("f"), noise(1 << 20, 2)).unwrap();
    let client = library::client(&cluster, false);
    let counted = |what: &str| {
        let status = client.data_status(weir_types::TargetId(1), 5000).unwrap();
        status.counters.iter().find(|(name, _)| name == what).map_or(0, |(_, n)| *n)
    };
    for (at, bytes) in [(&small, 2 << 20), (&usual, 1 << 20)] {
        let before = counted("bytes.read");
        for _ in 0..2 {
            assert!(fs::read(at.join("f")).unwrap() == noise(1 << 20, 2));
        }
        assert_eq!(counted("bytes.read") - before, bytes, "{}", at.display());
    }
    // The kernel lets root alone say how much it reads ahead.
    if rustix::process::geteuid().is_root() {
        let far = rustix::fs::stat(cluster.mount("far", "read_ahead=16M")).unwrap().st_dev;
        let (major, minor) = (rustix::fs::major(far), rustix::fs::minor(far));
        let path = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
        assert_eq!(fs::read_to_string(path).unwrap().trim(), "16384");
    }
    // What a call has written is there when it returns, and else later.
    let bare = cluster.mount("bare", "nocache");
    for (at, bytes) in [(&bare, 4096), (&usual, 0)] {
        let mut file = fs::File::create(at.join("g")).unwrap();
        let before = counted("bytes.written");
        file.write_all(&[7; 4096]).unwrap();
        assert_eq!(counted("bytes.written") - before, bytes, "{}", at.display());
    }
}

/// How many threads of a daemon have a name that begins so.
fn threads(cluster: &Cluster<'_>, daemon: &str, name: &str) -> usize {
    let tasks = fs::read_dir(format!("/proc/{}/task", cluster.pid(daemon))).unwrap().flatten();
    let named = |task: &fs::DirEntry| {
        fs::read_to_string(task.path().join("comm")).is_ok_and(|is| is.starts_with(name))
    };
    tasks.filter(named).count()
}

#[test]
fn keys_of_data_servers_do_what_operating_md_says() {
    let place = Place::new();
    let cluster = place.up("data", &["--targets", "1"]);
    let tasks = |cluster: &Cluster<'_>| threads(cluster, "data-1", "");
    let usual = tasks(&cluster);
    set(&cluster, "data-1", &[("disk_threads_per_target", number(32))]);
    assert!(tasks(&cluster) > usual, "{usual}");
    let more = tasks(&cluster);
    set(&cluster, "data-1", &[("event_loops", number(7))]);
    assert!(tasks(&cluster) > more, "{more}");

    let server = || library::client(&cluster, false).cluster_map().unwrap().servers[0].clone();
    let address = server().tcp;
    let port = address.rsplit(':').next().unwrap();
    let socket = place.path("elsewhere.sock");
    let advertised = format!("localhost:{port}");
    set(
        &cluster,
        "data-1",
        &[
            ("advertise", advertised.clone().into()),
            ("unix", socket.to_str().unwrap().into()),
            ("domain", "row-3".into()),
        ],
    );
    eventually("it has registered anew", || server().tcp == advertised);
    let found = server();
    assert_eq!((found.unix.as_str(), found.domain.as_str()), (socket.to_str().unwrap(), "row-3"));
    assert!(socket.exists());
    fs::write(place.path("f"), "f").unwrap();
    cluster.weir(&["cp", "f", "weir:/f"]).ok();
    assert_eq!(cluster.weir(&["cat", "/f"]).ok(), "f");

    // Keys are where it says.
    let path = cluster.dir().join("data-1.toml");
    let mut settings: toml::Table = fs::read_to_string(&path).unwrap().parse().unwrap();
    let (of_server, of_target) = (place.path("server.key"), place.path("target.key"));
    fs::rename(cluster.dir().join("keys/server-1.key"), &of_server).unwrap();
    fs::rename(cluster.dir().join("keys/target-1.key"), &of_target).unwrap();
    settings["targets"][0]["key_file"] = of_target.to_str().unwrap().into();
    fs::write(&path, settings.to_string()).unwrap();
    set(&cluster, "data-1", &[("server_key_file", of_server.to_str().unwrap().into())]);
    eventually("it serves", || cluster.weir(&["cat", "/f"]).out == "f");

    // No more connections than these.
    set(&cluster, "data-1", &[("max_connections", number(2))]);
    let ctx = weir_client::Context::root();
    let read = |client: &weir_client::Client| {
        let file = client.resolve(&ctx, b"/f", true)?.file;
        let (file, _) = client.open(&ctx, file, weir_wire::Rights::READ)?;
        file.read_at(&ctx, 0, &mut [0; 1])
    };
    let connect = |_| {
        let config = library::config(&cluster);
        let config = weir_client::ClientConfig { request_timeout_ms: 2000, ..config };
        weir_client::Client::connect(config).unwrap()
    };
    let clients: Vec<_> = (0..4).map(connect).collect();
    assert!(clients.iter().any(|client| read(client).is_err()), "all have come in");
}

#[test]
fn a_disk_is_read_for_its_speed_unless_probe_disks_says_no() {
    let place = Place::new();
    let cluster = place.up("probe", &["--targets", "2"]);
    // A probe reads a file that it makes for itself.
    let probe = |target: u32| cluster.dir().join(format!("targets/{target}/probe"));
    cluster.weir(&["down"]).ok();
    let _ = (fs::remove_file(probe(1)), fs::remove_file(probe(2)));
    set(&cluster, "data-1", &[("probe_disks", false.into())]);
    eventually("a disk is probed", || probe(2).exists());
    // Both servers came up together, and look at their disks before each report.
    assert!(!probe(1).exists());
    set(&cluster, "data-1", &[("probe_disks", true.into())]);
    eventually("so is the other", || probe(1).exists());
}

#[test]
fn a_data_server_belongs_to_the_metadata_server_that_metadata_names() {
    let place = Place::new();
    let cluster = place.up("belongs", &["--targets", "1"]);
    let log = || cluster.weir(&["log", "data-1"]).ok();
    let registered = || log().matches("registered with metadata server").count();
    eventually("it has found its own", || registered() == 1);
    let path = cluster.dir().join("data-1.toml");
    let right = fs::read_to_string(&path).unwrap();
    let mut settings: toml::Table = right.parse().unwrap();
    settings.insert("metadata".into(), toml::Value::Array(vec!["127.0.0.1:1".into()]));
    fs::write(&path, settings.to_string()).unwrap();
    cluster.kill("data-1");
    cluster.weir(&["up"]).ok();
    eventually("it asks there", || log().contains("127.0.0.1:1: cannot connect"));
    assert_eq!(registered(), 1, "{}", log());
    fs::write(&path, right).unwrap();
    cluster.kill("data-1");
    cluster.weir(&["up"]).ok();
    eventually("it has found its own again", || registered() == 2);
}

#[test]
fn what_was_written_before_the_last_checkpoint_is_not_examined_after_a_crash() {
    let place = Place::new();
    let cluster = place.up("checkpoint", &["--targets", "1"]);
    fs::write(place.path("f"), noise(100_000, 1)).unwrap();
    // How many objects a start has examined after one was written, and the server was killed.
    let examined = |checkpoint_ms: i64| {
        set(&cluster, "data-1", &[("checkpoint_ms", number(checkpoint_ms))]);
        cluster.weir(&["cp", "f", "weir:/f"]).ok();
        cluster.kill("data-1");
        cluster.weir(&["up"]).ok();
        let log = cluster.weir(&["log", "data-1"]).ok();
        let (_, last) = log.rsplit_once("recovered: ").unwrap();
        last.split(' ').next().unwrap().parse::<u64>().unwrap()
    };
    assert!(examined(3_600_000) > 0);
    eventually("there was a checkpoint between the two", || examined(1) == 0);
}

#[test]
fn metadata_that_fits_into_cache_bytes_is_read_from_its_disk_once() {
    let place = Place::new();
    let cluster = place.up("cache", &["--targets", "1"]);
    let files = place.path("files");
    fs::create_dir(&files).unwrap();
    (0..300).for_each(|n| fs::write(files.join(format!("{n}")), "").unwrap());
    cluster.weir(&["cp", "-r", files.to_str().unwrap(), "weir:/files"]).ok();
    // What the metadata server reads of files while all is listed once more.
    let read_again = |cache_bytes: i64| {
        set(&cluster, "meta", &[("cache_bytes", number(cache_bytes))]);
        let read = || {
            let text = fs::read_to_string(format!("/proc/{}/io", cluster.pid("meta"))).unwrap();
            let bytes = text.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap();
            bytes.parse::<u64>().unwrap()
        };
        let list = || cluster.weir(&["ls", "-l", "weir:/files"]).ok();
        list();
        let before = read();
        list();
        read() - before
    };
    let (with, without) = (read_again(64 << 20), read_again(0));
    assert!(without > 2 * with + 100_000, "with a cache {with} bytes, without {without}");
}

#[test]
fn keys_of_the_metadata_server_do_what_operating_md_says() {
    let place = Place::new();
    let cluster = place.up("meta", &["--targets", "1"]);
    // No more connections than these: the data server's, and one or two of clients.
    set(&cluster, "meta", &[("max_connections", number(2))]);
    let many: Vec<_> = (0..4)
        .map(|_| {
            weir_client::Client::connect(weir_client::ClientConfig {
                connect_timeout_ms: 1000,
                ..library::config(&cluster)
            })
        })
        .collect();
    assert!(many.iter().any(Result::is_err), "all have come in");
    drop(many);
    set(&cluster, "meta", &[("max_connections", number(100))]);
    eventually("it serves", || cluster.weir(&["ls"]).code == Some(0));
    // It listens, and its key is, where it says.
    let (key, port) = (place.path("master.key"), {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    });
    fs::rename(cluster.dir().join("keys/master.key"), &key).unwrap();
    let path = cluster.dir().join("meta.toml");
    let settings: toml::Table = fs::read_to_string(&path).unwrap().parse().unwrap();
    let mut listen = settings["listen"].as_array().unwrap().clone();
    listen.push(format!("127.0.0.1:{port}").into());
    let key_file = key.to_str().unwrap().into();
    set(&cluster, "meta", &[("listen", listen.into()), ("master_key_file", key_file)]);
    std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    eventually("it serves", || cluster.weir(&["ls"]).code == Some(0));
    // It keeps to the cluster that it is to serve.
    cluster.weir(&["down"]).ok();
    let mut settings: toml::Table = fs::read_to_string(&path).unwrap().parse().unwrap();
    settings.insert("cluster".into(), toml::Value::Array(vec![number(7); 16]));
    fs::write(&path, settings.to_string()).unwrap();
    assert_eq!(cluster.weir(&["up"]).code, Some(1));
}

/// What a command shows on a terminal of its own; nothing if there is no `script`.
fn on_terminal(cluster: &Cluster<'_>, command: &str) -> Option<String> {
    Command::new("script").arg("--version").output().ok()?;
    let environment = cluster.command(&["unused"]);
    let mut script = Command::new("script");
    for (name, value) in environment.get_envs() {
        match value {
            Some(value) => script.env(name, value),
            None => script.env_remove(name),
        };
    }
    script.args(["-q", "-e", "-c", command, "/dev/null"]).env("TERM", "xterm");
    script.current_dir(cluster.place.path("")).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut running = Running(script.spawn().ok()?);
    drop(running.0.stdin.take());
    let mut shown = Vec::new();
    std::io::Read::read_to_end(running.0.stdout.as_mut()?, &mut shown).ok()?;
    Some(String::from_utf8_lossy(&shown).into_owned())
}

#[test]
fn progress_is_shown_on_a_terminal_unless_it_is_to_be_quiet() {
    let place = Place::new();
    let cluster = place.up("quiet", &["--targets", "1"]);
    fs::write(place.path("big"), noise(200 << 20, 1)).unwrap();
    cluster.weir(&["cp", "big", "weir:/big"]).ok();
    let is_drawn = |command: &str| {
        let shown = on_terminal(&cluster, &format!("{WEIR} {command}"))?;
        Some(shown.contains('\u{2588}') || shown.contains('\r') && shown.contains("\u{1b}["))
    };
    if on_terminal(&cluster, "true").is_none() {
        println!("skipped: needs script, of bsdutils");
        return;
    }
    for command in ["cp big weir:/again", "scrub", "fsck", "spread weir:/out big"] {
        assert_eq!(is_drawn(&format!("{command} --quiet")), Some(false), "{command}");
    }
    for command in ["cp big weir:/again", "scrub", "fsck", "spread weir:/out2 big"] {
        assert_eq!(is_drawn(command), Some(true), "{command}");
    }
    fs::create_dir(place.path("many")).unwrap();
    for n in 0..400 {
        fs::write(place.path(&format!("many/{n}")), "x").unwrap();
    }
    cluster.weir(&["cp", "-r", "many", "weir:/many"]).ok();
    assert_eq!(cluster.weir(&["meta", "export", "names"]).err, "");
    for command in ["meta export names", "meta import --dir restored names", "rebalance --wait"] {
        assert_eq!(is_drawn(command), Some(true), "{command}");
    }
    // Nothing in a log does anything to a terminal.
    let path = cluster.dir().join("log/evil.log");
    let mut log = fs::File::create(path).unwrap();
    log.write_all(b"2999-01-01T00:00:00Z  INFO \x1b[2Jgone\n").unwrap();
    let shown = on_terminal(&cluster, &format!("{WEIR} log evil")).unwrap();
    assert!(shown.contains("\\u{1b}[2Jgone"), "{shown:?}");
    for command in ["rm -r weir:/many", "down --purge --yes"] {
        assert_eq!(is_drawn(command), Some(true), "{command}");
    }
}
