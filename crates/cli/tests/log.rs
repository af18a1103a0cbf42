//! `weir log`: what all daemons have said, in the order of time.
#![allow(clippy::unwrap_used)] // A failed helper fails the test.

mod harness;

use harness::{Cluster, Place, Running, eventually};
use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Write};
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
