//! The last current copy of some bytes is lost for good: no reader gets older bytes as if they were
//! current, the files are listed, and an administrator accepts what is left, file by file.

use crate::harness::{Cluster, Place, eventually, noise};
use crate::library::client;
use std::fs;
use std::process::{Child, Stdio};
use weir_client::{Client, Context, CreateOptions, File};
use weir_types::{FileId, LayoutSpec};
use weir_wire::Rights;

const BYTES: usize = 200_000;

/// A file of one column with its copies on the targets from `base` on.
fn create(client: &Client, name: &str, copies: u8, base: u32) -> File {
    let layout = LayoutSpec { copies, count: 1, base: Some(base), ..LayoutSpec::default() };
    let options = CreateOptions { layout: Some(layout), ..CreateOptions::default() };
    client.create(&Context::root(), FileId::ROOT, name.as_bytes(), &options).unwrap().0
}

fn write(file: &File, at: u64, data: &[u8]) {
    file.write_at(&Context::root(), at, data).unwrap();
    file.sync(&Context::root()).unwrap();
}

fn open(client: &Client, name: &str) -> File {
    let found = client.lookup(&Context::root(), FileId::ROOT, name.as_bytes()).unwrap();
    let rights = Rights::READ_WRITE;
    client.open(&Context::root(), found.file, rights).unwrap().0
}

fn read(client: &Client, name: &str) -> Result<Vec<u8>, weir_types::Error> {
    let mut data = vec![0; BYTES];
    let len = open(client, name).read_at(&Context::root(), 0, &mut data)?;
    data.truncate(len);
    Ok(data)
}

/// `weir up`, which waits until all targets are online.
fn up(cluster: &Cluster<'_>) -> Child {
    let mut command = cluster.command(&["up"]);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn is(cluster: &Cluster<'_>, target: usize, state: &str) -> bool {
    let views = cluster.weir(&["targets", "--json"]).json();
    views.as_array().unwrap().iter().any(|v| v["target"] == target && v["state"] == state)
}

fn problems(cluster: &Cluster<'_>, kind: &str) -> Vec<String> {
    let said = cluster.weir(&["fsck", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    let all = report["problems"].as_array().unwrap().iter();
    let paths = all.filter(|p| p["kind"] == kind).map(|p| p["path"].as_str().unwrap_or(""));
    let mut paths: Vec<String> = paths.map(str::to_owned).collect();
    paths.sort_unstable();
    paths
}

fn log(cluster: &Cluster<'_>, daemon: &str) -> String {
    fs::read_to_string(cluster.dir().join(format!("log/{daemon}.log"))).unwrap()
}

#[test]
fn what_only_a_lost_target_had_is_given_up_for_each_file_when_somebody_says_so() {
    let place = Place::new();
    let cluster = place.up("older", &["--targets", "4"]);
    let (old, new) = (noise(BYTES, 1), noise(5000, 2));
    let writer = client(&cluster, false);
    let file = create(&writer, "file", 2, 0);
    write(&file, 0, &old);
    let untouched = create(&writer, "untouched", 2, 0);
    write(&untouched, 0, &old);
    let elsewhere = create(&writer, "elsewhere", 2, 1);
    write(&elsewhere, 0, &old);
    cluster.kill("data-2");
    write(&file, 70_000, &new);
    cluster.kill("data-1");
    cluster.forget(1);
    let mut up = up(&cluster);
    eventually("it is back", || is(&cluster, 2, "syncing"));

    // The target with the last bytes may come back: until then reads only return an error.
    let error = cluster.weir(&["cat", "weir:/file"]);
    error.fails(&["target 1 ", "offline", "target 2 ", "brought up to date"]);
    assert_eq!(read(&writer, "elsewhere").unwrap(), old);
    assert_eq!(problems(&cluster, "away-column"), ["/file", "/untouched"]);
    let refused = cluster.weir(&["accept-loss", "weir:/file", "--yes"]);
    refused.fails(&["target 1, which is offline", "weir target remove 1 --force"]);
    let asked = cluster.weir(&["target", "remove", "1", "--force"]);
    assert!(asked.out.contains("weir:/file") && !asked.out.contains("elsewhere"), "{asked:?}");
    asked.fails(&["--yes"]);
    cluster.weir(&["target", "remove", "1", "--force", "--yes"]).ok();
    eventually("it is online", || is(&cluster, 2, "online"));
    assert!(up.wait().unwrap().success());

    // It is back, and serves nothing that may be older than what was lost.
    assert_eq!(problems(&cluster, "lacking-column"), ["/file", "/untouched"]);
    cluster.weir(&["cat", "weir:/file"]).fails(&["target 1 ", "not part of the cluster"]);
    cluster.weir(&["accept-loss", "weir:/file"]).fails(&["--yes"]);
    assert_eq!(problems(&cluster, "lacking-column"), ["/file", "/untouched"]);
    let accepted = cluster.weir(&["accept-loss", "weir:/file", "--yes", "--json"]).json();
    assert_eq!(accepted[0]["accepted"][0]["left"], "older", "{accepted}");
    assert_eq!(accepted[0]["accepted"][0]["from"], 2, "{accepted}");
    assert_eq!(read(&writer, "file").unwrap(), old);
    assert_eq!(problems(&cluster, "lacking-column"), ["/untouched"]);
    let mut changed = old.clone();
    changed[100..5100].copy_from_slice(&new);
    write(&open(&writer, "file"), 100, &new);
    cluster.weir(&["accept-loss", "weir:/untouched", "--yes"]).ok();
    assert!(log(&cluster, "meta").contains("administrator has accepted"));
    assert!(log(&cluster, "data-2").contains("administrator has accepted"));

    // There are two copies again, whichever is asked.
    eventually("copies are made", || cluster.weir(&["fsck"]).code == Some(0) && whole(&cluster));
    for server in 2..=4 {
        cluster.kill(&format!("data-{server}"));
        eventually("it is missed", || is(&cluster, server, "offline"));
        assert_eq!(read(&client(&cluster, false), "file").unwrap(), changed, "{server}");
        assert_eq!(read(&client(&cluster, false), "untouched").unwrap(), old, "{server}");
        cluster.weir(&["up"]).ok();
        // Everybody knows that it is back.
        write(&open(&client(&cluster, false), "file"), 100, &new);
    }
}

/// Whether all copies are on targets that are there.
fn whole(cluster: &Cluster<'_>) -> bool {
    ["file", "untouched"].iter().all(|name| {
        let layout = cluster.weir(&["layout", "--json", &format!("weir:/{name}")]).json();
        let objects = layout[0]["segments"][0]["objects"].as_array().unwrap().clone();
        objects.len() == 2 && objects.iter().all(|o| o["state"] == "online")
    })
}

#[test]
fn where_nothing_is_left_there_are_zeros_when_somebody_says_so() {
    let place = Place::new();
    let cluster = place.up("nothing", &["--targets", "3"]);
    let data = noise(BYTES, 3);
    let writer = client(&cluster, false);
    let layout = LayoutSpec { copies: 1, count: 2, base: Some(0), ..LayoutSpec::default() };
    let options = CreateOptions { layout: Some(layout), ..CreateOptions::default() };
    let file = writer.create(&Context::root(), FileId::ROOT, b"file", &options).unwrap().0;
    write(&file, 0, &data);
    write(&create(&writer, "other", 1, 2), 0, &data);
    cluster.kill("data-2");
    cluster.forget(2);
    eventually("it is missed", || is(&cluster, 2, "offline"));
    // Every other stripe unit was there: those on other targets go on.
    let mut first = vec![0; 65_536];
    file.read_at(&Context::root(), 0, &mut first).unwrap();
    assert_eq!(first, data[..65_536]);
    assert_eq!(problems(&cluster, "away-column"), ["/file"]);
    cluster.weir(&["accept-loss", "weir:/file", "--yes"]).fails(&["target 2"]);
    let asked = cluster.weir(&["target", "remove", "2", "--force"]);
    assert!(asked.out.contains("weir:/file") && !asked.out.contains("other"), "{asked:?}");
    cluster.weir(&["target", "remove", "2", "--force", "--yes"]).ok();
    assert_eq!(problems(&cluster, "lost-column"), ["/file"]);
    assert!(read(&writer, "other").unwrap() == data);
    let error = read(&writer, "file").unwrap_err();
    assert!(error.to_string().contains("target 2"), "{error}");
    let said = cluster.weir(&["accept-loss", "weir:/file", "--yes"]).ok();
    assert!(said.contains("target 2") && said.contains("zeros"), "{said}");
    let mut left = data.clone();
    for unit in (65_536..BYTES).step_by(2 * 65_536) {
        left[unit..(unit + 65_536).min(BYTES)].fill(0);
    }
    assert!(read(&writer, "file").unwrap() == left, "zeros where it was, and there only");
    // One that was open all the time is written on.
    let fresh = noise(100_000, 4);
    write(&file, 30_000, &fresh);
    left[30_000..130_000].copy_from_slice(&fresh);
    assert!(read(&client(&cluster, false), "file").unwrap() == left);
    cluster.weir(&["fsck"]).ok();
    let said = cluster.weir(&["accept-loss", "weir:/file"]).ok();
    assert!(said.contains("nothing is lost"), "{said}");
}

#[test]
fn bytes_of_which_only_a_lost_target_had_the_last_are_named_before_it_is_removed() {
    let place = Place::new();
    let cluster = place.up("put-off", &["--targets", "3"]);
    let writer = client(&cluster, false);
    let (old, new) = (noise(BYTES, 5), noise(5000, 6));
    let duplication = weir_types::Duplication::ServerAsync;
    let layout = LayoutSpec {
        copies: 2,
        count: 1,
        base: Some(0),
        duplication: Some(duplication),
        ..LayoutSpec::default()
    };
    let options = CreateOptions { layout: Some(layout), ..CreateOptions::default() };
    let create = |name: &str| {
        let made = writer.create(&Context::root(), FileId::ROOT, name.as_bytes(), &options);
        let file = made.unwrap().0;
        write(&file, 0, &old);
        file
    };
    create("untouched");
    let files: Vec<File> = (0..10).map(|n| create(&format!("file{n}"))).collect();
    // Acknowledged, and the other copy knows that it lacks that.
    for file in &files {
        file.write_at(&Context::root(), 70_000, &new).unwrap();
    }
    cluster.kill("data-1");
    cluster.forget(1);
    eventually("it is missed", || is(&cluster, 1, "offline"));
    let lacking = problems(&cluster, "lacking-column");
    assert!(lacking.contains(&"/file9".to_owned()), "{lacking:?}");
    let asked = cluster.weir(&["target", "remove", "1", "--force"]);
    let named: Vec<&str> = asked.out.lines().map(str::trim).collect();
    assert_eq!(named.len(), lacking.len(), "{asked:?}");
    for path in &lacking {
        let line = format!("weir:{path}: bytes ");
        assert!(named.iter().any(|named| named.starts_with(&line)), "{path}: {asked:?}");
    }
    asked.fails(&[&format!("last bytes of {} files", lacking.len()), "--yes"]);
    assert!(is(&cluster, 1, "offline"), "nothing was changed");
    cluster.weir(&["target", "remove", "1", "--force", "--yes"]).ok();
    for path in &lacking {
        cluster.weir(&["accept-loss", &format!("weir:{path}"), "--yes"]).ok();
    }
    assert_eq!(read(&writer, "untouched").unwrap(), old);
    eventually("all is well again", || cluster.weir(&["fsck"]).code == Some(0));
}
