//! `weir log`: what all daemons have said, in the order of time.

use crate::harness::{self, Cluster, Place, Running, eventually, eventually_within};
use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::process::Stdio;
use std::sync::mpsc;
use std::time::Duration;

/// What a daemon would say.
fn say(cluster: &Cluster<'_>, daemon: &str, line: &str) {
    let path = cluster.dir().join("log").join(format!("{daemon}.log"));
    let mut log = OpenOptions::new().create(true).append(true).open(path).unwrap();
    writeln!(log, "{line}").unwrap();
}

#[test]
fn what_real_daemons_say_is_merged_by_time() {
    let place = Place::new();
    let cluster = place.up("one", &["--targets", "2"]);
    // What a daemon says when it is ready may come a moment later.
    let mut all = String::new();
    eventually("all have logged", || {
        all = cluster.weir(&["log"]).ok();
        ["meta ", "the metadata server serves on", "data-2 ", "data server 2 serves on"]
            .iter()
            .all(|words| all.contains(words))
    });
    // To the second: threads of one daemon may write in another order than they looked at the time.
    assert!(all.lines().all(|line| line.get(26..28) == Some("Z ")), "{all}");
    assert!(all.lines().map(|line| &line[..19]).is_sorted(), "{all}");

    let one = cluster.weir(&["log", "data-1"]).ok();
    assert!(one.lines().all(|line| line.contains(" data-1 ")) && !one.is_empty(), "{one}");
    let both = cluster.weir(&["log", "data"]).ok();
    assert!(both.contains(" data-1 ") && both.contains(" data-2 ") && !both.contains(" meta "));
    cluster.weir(&["log", "data-7"]).fails(&["no log of data-7", "data-1, data-2, meta"]);
    place.weir(&["log", "--name", "none"]).fails(&["there is no cluster in", "weir up"]);
}

#[test]
fn lines_are_chosen_by_time_and_number_and_are_json_if_asked() {
    let place = Place::new();
    let cluster = place.up("one", &["--targets", "1"]);
    say(&cluster, "old", "2001-01-01T00:00:00.000000Z  INFO weir: long ago");
    say(&cluster, "new", "2999-01-01T00:00:00.000001Z ERROR weir: first");
    say(&cluster, "new", "thread 'main' panicked");
    say(&cluster, "old", "2999-01-01T00:00:00.000002Z  WARN weir: last");

    let last = cluster.weir(&["log", "-n", "2"]).ok();
    assert!(last.contains("panicked") && last.contains("last") && last.lines().count() == 2);
    assert!(!cluster.weir(&["log", "--since", "1h"]).ok().contains("long ago"));
    let since = cluster.weir(&["log", "--since", "2999-01-01"]).ok();
    assert_eq!(
        since,
        "2999-01-01T00:00:00.000001Z new    ERROR weir: first\n\
         2999-01-01T00:00:00.000001Z new          thread 'main' panicked\n\
         2999-01-01T00:00:00.000002Z old     WARN weir: last\n"
    );
    let json = cluster.weir(&["log", "--json", "-n1"]).json();
    assert_eq!(json["time"], "2999-01-01T00:00:00.000002Z");
    assert_eq!((&json["daemon"], &json["level"]), (&"old".into(), &"WARN".into()));
    assert_eq!(json["message"], "weir: last");
    let wrong = cluster.weir(&["log", "--since", "yesterday"]);
    assert!(wrong.code == Some(2) && wrong.err.contains("try 10m"), "{wrong:?}");
}

#[test]
fn what_is_said_from_now_on_is_followed_also_of_a_new_daemon() {
    let place = Place::new();
    let cluster = place.up("one", &["--targets", "1"]);
    let mut command = cluster.command(&["log", "-f", "-n", "0"]);
    let mut follow = Running(command.stdout(Stdio::piped()).spawn().unwrap());
    let (send, lines) = mpsc::channel();
    let out = BufReader::new(follow.0.stdout.take().unwrap());
    std::thread::spawn(move || out.lines().try_for_each(|line| send.send(line.unwrap())));
    // When it has begun, it shows what comes; it may not have yet.
    let mut count = 0;
    eventually("it follows", || {
        count += 1;
        say(&cluster, "meta", &format!("2999-01-01T00:00:00Z  INFO line {count}"));
        lines.recv_timeout(Duration::from_millis(300)).is_ok_and(|line| line.contains("INFO line"))
    });
    say(&cluster, "data-9", "2999-01-02T00:00:00Z  WARN is new");
    eventually("what a new one says is shown", || {
        let line = lines.recv_timeout(Duration::from_secs(1)).unwrap_or_default();
        line.contains("data-9") && line.ends_with(" WARN is new")
    });
}

#[test]
fn a_mount_is_named_by_its_place_also_of_a_cluster_elsewhere() {
    let place = Place::new();
    let cluster = place.up("one", &["--targets", "1", "--mount", "m"]);
    eventually("the mount has logged", || {
        let here = cluster.weir(&["log", "./m"]).ok();
        assert!(!here.contains(" meta "), "{here}");
        here.contains("cluster one is mounted on")
    });

    fs::create_dir(place.path("n")).unwrap();
    fs::copy(cluster.dir().join("client.toml"), place.path("client.toml")).unwrap();
    place.weir(&["mount", "--credential", "client.toml", "n"]).ok();
    eventually("the other mount has logged", || {
        let elsewhere = place.weir(&["log", "--credential", "client.toml", "mount"]).ok();
        elsewhere.contains("is mounted on") && elsewhere.contains("/n\n")
    });
    place.weir(&["umount", "n"]).ok();
}

#[test]
fn renamed_logs_are_followed_and_nothing_is_hidden_or_made() {
    let place = Place::new();
    let cluster = place.up("one", &["--targets", "1"]);
    let logs = cluster.dir().join("log");
    // A daemon that died before it said when, and one that died in the middle of a line.
    fs::write(logs.join("early.log"), "it panicked\n2999-01-01T00:00:00Z ERROR later\n").unwrap();
    fs::write(logs.join("late.log"), "2999-01-01T00:00:01Z  INFO the end is miss").unwrap();
    let since = cluster.weir(&["log", "--since", "2998-01-01"]).ok();
    let shown: Vec<&str> = since.lines().map(|line| &line[21..]).collect();
    assert_eq!(
        shown.iter().map(|line| line.trim()).collect::<Vec<_>>(),
        ["early        it panicked", "early  ERROR later", "late    INFO the end is miss"],
        "{since}"
    );

    let mut command = cluster.command(&["log", "-f", "-n", "0", "early"]);
    let mut follow = Running(command.stdout(Stdio::piped()).spawn().unwrap());
    let (send, lines) = mpsc::channel();
    let out = BufReader::new(follow.0.stdout.take().unwrap());
    std::thread::spawn(move || out.lines().try_for_each(|line| send.send(line.unwrap())));
    eventually("it follows", || {
        say(&cluster, "early", "2999-01-01T00:00:02Z  INFO before");
        lines.recv_timeout(Duration::from_millis(300)).is_ok_and(|line| line.contains("before"))
    });
    // As logrotate does, twice; the last line of the old one was never ended.
    for round in 1..=2 {
        let mut old = OpenOptions::new().append(true).open(logs.join("early.log")).unwrap();
        fs::rename(logs.join("early.log"), logs.join(format!("early.log.{round}"))).unwrap();
        write!(old, "2999-01-01T00:00:03Z  INFO last of {round}").unwrap();
        say(&cluster, "early", &format!("2999-01-01T00:00:04Z  INFO first after {round}"));
        for words in [format!("last of {round}"), format!("first after {round}")] {
            eventually(&words, || {
                lines.recv_timeout(Duration::from_secs(1)).is_ok_and(|line| line.ends_with(&words))
            });
        }
    }

    // Of a mountpoint, whose name is not that of a daemon; and looking makes nothing.
    fs::create_dir(place.path("m")).unwrap();
    cluster.weir(&["log", "m"]).fails(&["no log of mount-"]);
    fs::copy(cluster.dir().join("client.toml"), place.path("client.toml")).unwrap();
    place.weir(&["log", "--credential", "client.toml"]).ok();
    place.weir(&["log", "--credential", "client.toml", "./m"]).fails(&["no log of mount-"]);
    assert!(!place.path("state/weir/.mounts").exists());
}

/// A server in the foreground, whose standard error is this; it listens.
fn daemon(cluster: &Cluster<'_>, name: &str, more: &[&str], err: impl Into<Stdio>) -> Running {
    let config = cluster.dir().join(format!("{name}.toml"));
    let kind = if name == "meta" { "meta" } else { "data" };
    let mut command = cluster.command(&[kind, "--config", config.to_str().unwrap()]);
    command.args(more).env("WEIR_LOG", "trace").stderr(err);
    let daemon = Running(command.spawn().unwrap());
    let address = address_in(cluster, name, "listen");
    eventually("it listens", || std::net::TcpStream::connect(&address).is_ok());
    daemon
}

#[test]
fn a_daemon_in_the_foreground_keeps_the_file_short_that_it_logs_to() {
    let place = Place::new();
    let cluster = place.up("one", &["--targets", "1"]);
    cluster.down(&[]);
    fs::create_dir(place.path("l")).unwrap();
    let log = |name: &str| place.path("l").join(name).to_str().unwrap().to_owned();
    let foreign = [log("syslog.log"), log("syslog.log.1"), log("data-1.log"), log("mount.log.2")];
    foreign.iter().for_each(|name| fs::write(name, vec![b'a'; 256 << 10]).unwrap());
    let (metas, datas, mounts) = (log("meta.log"), log("data.log"), log("mount.log"));
    let to = |file| ["--log", file, "--log-limit", "128K"];
    let mut meta = daemon(&cluster, "meta", &to(metas.as_str()), Stdio::null());
    let mut data = daemon(&cluster, "data-1", &to(datas.as_str()), Stdio::null());
    fs::create_dir(place.path("m")).unwrap();
    let mut command = cluster.command(&["mount", "--foreground", "m"]);
    command.args(to(mounts.as_str())).env("WEIR_LOG", "trace");
    let mut mount = Running(command.spawn().unwrap());
    let file = place.path("m/file");
    eventually("the mount serves", || fs::write(&file, "text").is_ok_and(|()| is_mounted(&file)));
    let is_renamed = |name: &String| std::path::Path::new(&format!("{name}.1")).exists();
    eventually_within(Duration::from_secs(60), "both were long enough", || {
        let configs = ["meta", "data-1"];
        configs.iter().for_each(|daemon| give_to_say(&address_in(&cluster, daemon, "listen")));
        [&metas, &datas].into_iter().all(is_renamed)
    });
    for (one, log) in [(&mut mount, &mounts), (&mut data, &datas), (&mut meta, &metas)] {
        end(one);
        assert!(fs::read_to_string(log).unwrap().contains("signal 15: ending"), "{log}");
    }
    let bytes = |name: &str| fs::metadata(name).map_or(0, |log| log.len());
    for log in [&metas, &datas, &mounts] {
        let taken = bytes(log) + bytes(&format!("{log}.1"));
        assert!(taken <= 128 << 10, "{log}: {taken}");
    }
    assert!(foreign.iter().all(|name| bytes(name) == 256 << 10), "what is not theirs stays");
}

/// Ends a daemon by SIGTERM.
fn end(daemon: &mut Running) {
    let pid = rustix::process::Pid::from_child(&daemon.0);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let mut code = None;
    eventually("it ends", || {
        code = daemon.0.try_wait().unwrap();
        code.is_some()
    });
    assert_eq!(code.unwrap().code(), Some(0));
}

/// An address in the configuration of a daemon.
fn address_in(cluster: &Cluster<'_>, daemon: &str, key: &str) -> String {
    let text = fs::read_to_string(cluster.dir().join(format!("{daemon}.toml"))).unwrap();
    let config: toml::Table = text.parse().unwrap();
    let one = std::slice::from_ref(&config[key]);
    let all = config[key].as_array().map_or(one, Vec::as_slice);
    // Not the path of a Unix socket.
    let found = all.iter().filter_map(|address| address.as_str()).find(|it| !it.starts_with('/'));
    found.unwrap().to_owned()
}

/// Does something a hundred times that a server says a line of.
fn give_to_say(server: &str) {
    for _ in 0..100 {
        let mut stream = std::net::TcpStream::connect(server).unwrap();
        // It may be cut off before all has gone.
        let _ = stream.write_all(&[b'x'; 100]);
    }
}

/// How many lines of its log a daemon says it has dropped.
fn lines_lost(metrics: &str) -> u64 {
    let mut stream = std::net::TcpStream::connect(metrics).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let mut page = String::new();
    std::io::Read::read_to_string(&mut stream, &mut page).unwrap();
    let line = page.lines().find(|line| line.starts_with("weir_log_lines_lost_total ")).unwrap();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

/// Daemons and a mount whose logs go there work as usual, and end cleanly.
fn serve_without_a_log(err: impl Fn() -> Stdio) {
    let place = Place::new();
    let address = place.address().to_string();
    let cluster = place.up("one", &["--targets", "1", "--metrics", &address]);
    cluster.down(&[]);
    let mut meta = daemon(&cluster, "meta", &[], err());
    let mut data = daemon(&cluster, "data-1", &[], err());
    fs::create_dir(place.path("m")).unwrap();
    let mut command = cluster.command(&["mount", "--foreground", "m"]);
    let mut mount = Running(command.env("WEIR_LOG", "trace").stderr(err()).spawn().unwrap());
    let file = place.path("m/file");
    eventually("the mount serves", || fs::write(&file, "text").is_ok_and(|()| is_mounted(&file)));
    eventually_within(Duration::from_secs(60), "both have dropped lines", || {
        ["meta", "data-1"].into_iter().all(|daemon| {
            give_to_say(&address_in(&cluster, daemon, "listen"));
            lines_lost(&address_in(&cluster, daemon, "metrics")) > 0
        })
    });
    fs::write(&file, "more").unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), "more");
    for one in [&mut mount, &mut data, &mut meta] {
        assert!(one.0.try_wait().unwrap().is_none(), "it has ended");
        end(one);
    }
}

fn is_mounted(file: &std::path::Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    mounts.contains(file.parent().unwrap().to_str().unwrap())
}

#[test]
fn a_log_that_cannot_be_written_stops_neither_daemons_nor_mounts() {
    serve_without_a_log(|| OpenOptions::new().write(true).open("/dev/full").unwrap().into());
}

#[test]
fn a_log_that_nobody_reads_stops_neither_daemons_nor_mounts() {
    let held = std::cell::RefCell::new(Vec::new());
    serve_without_a_log(|| {
        let (reader, writer) = std::io::pipe().unwrap();
        held.borrow_mut().push(reader);
        writer.into()
    });
}

#[test]
fn a_panic_that_no_log_takes_ends_one_call_and_not_the_mount() {
    if !harness::root() {
        return;
    }
    let place = Place::new();
    let cluster = place.up("one", &["--targets", "1"]);
    fs::create_dir(place.path("m")).unwrap();
    let mut command = cluster.command(&["mount", "--foreground", "m"]);
    // Which builds for users do not heed.
    command.env("WEIR_PLANTED_HERE", "panic-at-links");
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut mount = Running(command.stderr(full).spawn().unwrap());
    let file = place.path("m/file");
    eventually("the mount serves", || fs::write(&file, "text").is_ok_and(|()| is_mounted(&file)));
    let link = place.path("m/link");
    std::os::unix::fs::symlink("file", &link).unwrap();
    for _ in 0..10 {
        let error = fs::read_link(&link).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EIO), "{error}");
        assert_eq!(fs::read_to_string(&file).unwrap(), "text");
    }
    assert!(mount.0.try_wait().unwrap().is_none(), "it has ended");
    end(&mut mount);
}

#[test]
fn a_command_whose_message_cannot_be_written_does_the_rest_and_fails_as_ever() {
    let place = Place::new();
    let cluster = place.up("one", &["--targets", "1"]);
    cluster.weir(&["mkdir", "weir:/d"]).ok();
    let mut command = cluster.command(&["rm", "weir:/none", "weir:/neither", "-r", "weir:/d"]);
    command.stderr(OpenOptions::new().write(true).open("/dev/full").unwrap());
    assert_eq!(command.status().unwrap().code(), Some(1));
    assert_eq!(cluster.weir(&["ls", "weir:/"]).ok(), "", "what is there was removed");
}

#[test]
fn what_a_full_log_directory_took_no_more_is_said_when_there_is_room_again() {
    if !harness::root() {
        return;
    }
    let place = Place::new();
    let cluster = place.up("one", &["--targets", "1"]);
    cluster.down(&[]);
    let logs = cluster.dir().join("log");
    let small = Small::at(&logs);
    let filler = logs.join("filler");
    let mut file = fs::File::create(&filler).unwrap();
    while file.write_all(&[0; 4096]).is_ok() {}
    drop(file);
    cluster.weir(&["up"]).ok();
    cluster.weir(&["mkdir", "weir:/d"]).ok();
    fs::remove_file(&filler).unwrap();
    eventually("the log says what it lacks", || {
        let log = fs::read_to_string(logs.join("meta.log")).unwrap_or_default();
        log.contains("lines of this log were dropped: No space left on device")
    });
    cluster.down(&[]);
    drop(small);
}

/// A file system of a few pages.
struct Small(std::path::PathBuf);

impl Small {
    fn at(path: &std::path::Path) -> Self {
        let mut mount = std::process::Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=64k", "weir-test"]).arg(path);
        assert!(mount.status().unwrap().success());
        Self(path.to_owned())
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn logs_keep_within_what_they_may_take_together_and_are_followed_and_shown_whole() {
    let place = Place::new();
    let cluster = place.cluster("one");
    let address = place.address().to_string();
    // What a daemon has that is gone goes first.
    let logs = cluster.dir().join("log");
    let limit: u64 = 1 << 20;
    let mut up = cluster.command(&["up", "--targets", "1", "--listen", &address]);
    up.env("WEIR_LOG_LIMIT", "1M").env("WEIR_LOG", "trace");
    harness::said(up).ok();
    say(&cluster, "mount-00000000", &"long ago ".repeat(100_000));
    let foreign = logs.join("syslog.log");
    fs::write(&foreign, vec![b'a'; limit as usize]).unwrap();
    // What was written longest ago would go first.
    let long_ago = std::time::SystemTime::UNIX_EPOCH;
    fs::File::options().write(true).open(&foreign).unwrap().set_modified(long_ago).unwrap();

    let mut command = cluster.command(&["log", "-f", "-n", "0", "data-1"]);
    let mut follow = Running(command.stdout(Stdio::piped()).spawn().unwrap());
    let (send, lines) = mpsc::channel();
    let out = BufReader::new(follow.0.stdout.take().unwrap());
    std::thread::spawn(move || out.lines().try_for_each(|line| send.send(line.unwrap())));
    eventually("it follows", || {
        say(&cluster, "data-1", "2999-01-01T00:00:00Z  INFO it has begun");
        lines
            .recv_timeout(Duration::from_millis(300))
            .is_ok_and(|line| line.contains("it has begun"))
    });
    let inode = || fs::metadata(logs.join("data-1.log")).map(|log| log.ino()).ok();
    let (first, mut renamed) = (inode(), 0);
    let mut last = first;
    eventually_within(Duration::from_secs(60), "the log was renamed twice", || {
        give_to_say(&address_in(&cluster, "data-1", "listen"));
        let now = inode();
        renamed += u32::from(now.is_some() && now != last);
        last = now.or(last);
        renamed >= 2
    });
    let sizes = fs::read_dir(&logs).unwrap().flatten();
    let ours = sizes.filter(|log| log.path() != foreign);
    let taken: u64 = ours.map(|log| log.metadata().map_or(0, |log| log.len())).sum();
    assert!(taken <= limit, "{taken}");
    assert!(!logs.join("mount-00000000.log").exists());
    assert_eq!(fs::metadata(&foreign).unwrap().len(), limit, "what is not theirs stays");
    // What is written last is followed, though the file was renamed more than once.
    let mark = "2999-01-02T00:00:00Z  INFO the mark";
    say(&cluster, "data-1", mark);
    eventually_within(Duration::from_secs(60), "what comes last is followed", || {
        lines.try_iter().any(|line| line.contains("the mark"))
    });
    // The renamed log is shown as well. (It keeps its contents when nobody writes to it.)
    cluster.down(&[]);
    let older = fs::read_to_string(logs.join("data-1.log.1")).unwrap();
    let (time, _) = older.lines().next().unwrap().split_once('Z').unwrap();
    let shown = cluster.weir(&["log", "data-1"]).ok();
    assert!(shown.starts_with(time), "{time}: {:?}", shown.lines().next());
}
