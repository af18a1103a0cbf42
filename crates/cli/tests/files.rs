//! Files without a mount: cp, cat, ls, stat, rm, mkdir; layouts.

use crate::harness::{self, Place, noise, said, same_trees};
use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
use std::fs;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Stdio;

#[test]
fn a_tree_goes_in_and_comes_back_the_same() {
    let place = Place::new();
    let cluster = place.up("one", &["--targets", "3"]);
    let tree = place.path("tree");
    fs::create_dir_all(tree.join("deep/er/est")).unwrap();
    fs::create_dir(tree.join("empty dir")).unwrap();
    fs::write(tree.join("empty"), "").unwrap();
    fs::write(tree.join("deep/one byte"), "x").unwrap();
    fs::write(tree.join("deep/er/odd"), noise(1_234_567, 3)).unwrap();
    // Several pieces, copied by several threads.
    fs::write(tree.join("deep/er/est/big"), noise(150_000_001, 4)).unwrap();
    fs::write(tree.join("\u{fc}n\u{ee}code\nline"), "name").unwrap();
    symlink("deep/one byte", tree.join("link")).unwrap();
    symlink("nowhere", tree.join("dangling")).unwrap();
    fs::set_permissions(tree.join("empty"), fs::Permissions::from_mode(0o640)).unwrap();
    let old =
        std::time::SystemTime::UNIX_EPOCH + std::time::Duration::new(1_000_000_000, 123_456_789);
    fs::File::open(tree.join("empty")).unwrap().set_modified(old).unwrap();

    cluster.weir(&["cp", "-rp", "tree", "weir:/tree"]).ok();
    cluster.weir(&["cp", "-rp", "weir:/tree", "back"]).ok();
    same_trees(&tree, &place.path("back"));
    let meta = fs::metadata(place.path("back/empty")).unwrap();
    assert_eq!(meta.permissions().mode() & 0o777, 0o640);
    assert_eq!(meta.modified().unwrap(), old);

    // Into a directory that exists, under its own name; without -r it says so.
    cluster.weir(&["cp", "-r", "weir:/tree/deep", "back"]).ok();
    same_trees(&tree.join("deep"), &place.path("back/deep"));
    cluster.weir(&["cp", "weir:/tree", "x"]).fails(&["weir:/tree", "is a directory", "-r"]);
    cluster.weir(&["cp", "-r", "weir:/tree", "weir:/tree/deep"]).fails(&["into itself"]);
    cluster.weir(&["cp", "weir:/tree/empty", "weir:/tree/empty"]).fails(&["same file"]);
    cluster.weir(&["cp", "tree/empty", "elsewhere"]).fails(&["neither side is in the cluster"]);
}

#[test]
fn one_bad_file_does_not_stop_the_others() {
    let place = Place::new();
    let cluster = place.up("one", &["--targets", "1"]);
    fs::write(place.path("a"), "a").unwrap();
    cluster.weir(&["mkdir", "/d"]).ok();
    cluster.weir(&["cp", "a", "missing", "weir:/d"]).fails(&["missing: no such file"]);
    assert_eq!(cluster.weir(&["ls", "/d"]).ok(), "a\n");
    cluster.weir(&["cat", "/d/missing", "/d/a"]).fails(&["weir:/d/missing: no such file"]);
    cluster.weir(&["rm", "/d/missing", "/d/a"]).fails(&["weir:/d/missing: no such file"]);
    assert_eq!(cluster.weir(&["ls", "/d"]).ok(), "");
}

#[test]
fn standard_input_and_output_can_be_copied() {
    let place = Place::new();
    let cluster = place.up("one", &["--targets", "2"]);
    let bytes = noise(9_000_000, 5);
    let mut copy = cluster.command(&["cp", "-", "weir:/piped"]);
    let mut copy = copy.stdin(Stdio::piped()).spawn().unwrap();
    copy.stdin.take().unwrap().write_all(&bytes).unwrap();
    assert!(copy.wait().unwrap().success());
    for arguments in [&["cp", "weir:/piped", "-"][..], &["cat", "/piped"]] {
        let back = cluster.command(arguments).output().unwrap();
        assert!(back.status.success() && back.stdout == bytes);
    }
    // A reader that goes away is no error.
    let head = "set -o pipefail; \"$0\" cat /piped | head -c 10 >/dev/null";
    let mut shell = std::process::Command::new("bash");
    let environment = cluster.command(&["unused"]);
    shell.args(["-c", head, harness::WEIR]);
    for (name, value) in environment.get_envs().filter_map(|(n, v)| Some((n, v?))) {
        shell.env(name, value);
    }
    said(shell).ok();
}

#[test]
fn listings_look_like_those_of_ls() {
    let place = Place::new();
    let cluster = place.up("one", &["--targets", "1"]);
    cluster.weir(&["mkdir", "-p", "-m", "1777", "/d/sub"]).ok();
    cluster.weir(&["mkdir", "-p", "/d/sub"]).ok();
    cluster.weir(&["mkdir", "/d/sub"]).fails(&["weir:/d/sub: file exists"]);
    cluster.weir(&["mkdir", "/x/y"]).fails(&["no such file or directory"]);
    fs::write(place.path("f"), vec![0; 2000]).unwrap();
    fs::write(place.path(".hidden"), "").unwrap();
    cluster.weir(&["cp", "f", ".hidden", "weir:/d"]).ok();
    assert_eq!(cluster.weir(&["ls", "/d"]).ok(), "f\nsub\n");
    assert_eq!(cluster.weir(&["ls", "-a", "weir:/d"]).ok(), ".hidden\nf\nsub\n");
    assert_eq!(cluster.weir(&["ls", "-R", "/"]).ok(), "/:\nd\n\n/d:\nf\nsub\n\n/d/sub:\n");
    let long = cluster.weir(&["ls", "-lh", "/d"]).ok();
    let lines: Vec<&str> = long.lines().collect();
    assert!(lines[0].starts_with("-rw") && lines[0].contains(" 2.0K "), "{long}");
    assert!(lines[1].starts_with("drwxrwxrwt ") && lines[1].ends_with(" sub"), "{long}");
    assert_eq!(cluster.weir(&["ls", "-d", "/d"]).ok(), "/d\n");
    let json = cluster.weir(&["ls", "--json", "/d"]).json();
    assert_eq!(json[0]["path"], "/d/f");
    assert_eq!(json[0]["size"], 2000);
    let stat = cluster.weir(&["stat", "--json", "/d/sub"]).json();
    assert_eq!((&stat[0]["kind"], &stat[0]["mode"]), (&"directory".into(), &"1777".into()));
    assert!(cluster.weir(&["stat", "/d/f"]).ok().contains("Size: 2000"));
    cluster.weir(&["ls", "/nowhere"]).fails(&["weir:/nowhere: no such file or directory"]);
}

#[test]
fn trees_are_removed_only_when_asked_to() {
    let place = Place::new();
    let cluster = place.up("one", &["--targets", "1"]);
    cluster.weir(&["mkdir", "-p", "/d/e/below"]).ok();
    fs::write(place.path("f"), "f").unwrap();
    cluster.weir(&["cp", "f", "weir:/d/e"]).ok();
    cluster.weir(&["rm", "/d"]).fails(&["is a directory", "-r"]);
    cluster.weir(&["rm", "-r", "/"]).fails(&["root directory"]);
    cluster.weir(&["rm", "-r", "/d"]).ok();
    assert_eq!(cluster.weir(&["ls", "/"]).ok(), "");
    cluster.weir(&["rm", "-f", "/d"]).ok();
}

#[test]
fn two_that_remove_one_tree_at_once_both_succeed() {
    let place = Place::new();
    let cluster = place.up("one", &["--targets", "1"]);
    let tree = place.path("tree");
    for (dir, below) in (0..8).flat_map(|dir| (0..4).map(move |below| (dir, below))) {
        let dir = tree.join(format!("{dir}/{below}"));
        fs::create_dir_all(&dir).unwrap();
        (0..4).for_each(|file| fs::write(dir.join(file.to_string()), "f").unwrap());
    }
    for _ in 0..6 {
        cluster.weir(&["cp", "-r", "tree", "weir:/"]).ok();
        let both = [(); 2].map(|()| {
            let mut rm = cluster.command(&["rm", "-rf", "/tree"]);
            rm.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        });
        for rm in both {
            let ended = rm.wait_with_output().unwrap();
            assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
        }
        assert_eq!(cluster.weir(&["ls", "/"]).ok(), "");
    }
}

#[test]
fn a_tree_is_removed_however_deep_it_is() {
    let place = Place::new();
    let cluster = place.up("deep", &["--targets", "1"]);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let mut at = openat(CWD, cluster.mount("m", ""), flags, Mode::empty()).unwrap();
    for _ in 0..2100 {
        mkdirat(&at, "d", Mode::from_raw_mode(0o755)).unwrap();
        at = openat(&at, "d", flags, Mode::empty()).unwrap();
    }
    fs::write(format!("/proc/self/fd/{}/bottom", at.as_raw_fd()), "x").unwrap();
    drop(at);
    cluster.weir(&["rm", "-r", "/d"]).ok();
    assert_eq!(cluster.weir(&["ls", "/"]).ok(), "");
}

#[test]
fn layouts_are_chosen_inherited_and_shown() {
    let place = Place::new();
    let cluster = place.up("one", &["--targets", "4", "--unit", "128K"]);
    let bytes = noise(1_000_000, 6);
    fs::write(place.path("data"), &bytes).unwrap();

    // What `weir up --unit` says goes for the whole cluster.
    cluster.weir(&["cp", "data", "weir:/plain"]).ok();
    let layout = cluster.weir(&["layout", "--json", "weir:/plain"]).json();
    assert_eq!(layout[0]["stripe_unit_bytes"], 128 << 10);
    assert_eq!(layout[0]["count"], 4);

    // A directory's default is inherited.
    cluster.weir(&["mkdir", "-p", "/d"]).ok();
    cluster.weir(&["setlayout", "weir:/d", "--unit", "8K", "--count", "2", "--base", "1"]).ok();
    assert!(cluster.weir(&["setlayout", "weir:/d"]).ok().contains("unit 8.0K"));
    cluster.weir(&["mkdir", "/d/below"]).ok();
    cluster.weir(&["cp", "data", "weir:/d/below/data"]).ok();
    let layout = cluster.weir(&["layout", "--json", "weir:/d/below/data"]).json();
    assert_eq!(
        (&layout[0]["base"], &layout[0]["count"], &layout[0]["stripe_unit_bytes"]),
        (&1.into(), &2.into(), &8192.into())
    );
    let objects = layout[0]["segments"][0]["objects"].as_array().unwrap().clone();
    assert_eq!(objects.iter().map(|o| o["bytes"].as_u64().unwrap()).sum::<u64>(), 1_000_000);
    assert_eq!(objects[0]["target"], 2, "base 1 is the second target");
    assert!(objects[0]["directory"].as_str().unwrap().ends_with("targets/2"));

    // Files with a layout of their own.
    cluster.weir(&["mkfile", "weir:/chunks", "--layout", "chunked", "--chunk", "256K"]).ok();
    cluster.weir(&["mkfile", "weir:/pieces", "--sizes", "100K,200K"]).ok();
    for (name, segments) in [("chunks", 4), ("pieces", 3)] {
        let remote = format!("weir:/{name}");
        cluster.weir(&["cp", "data", &remote]).ok();
        let layout = cluster.weir(&["layout", "--json", &remote]).json();
        // Some more chunks may be granted ahead of the writer.
        let all = layout[0]["segments"].as_array().unwrap();
        let used = all.iter().filter(|s| s["objects"][0]["bytes"] != 0).count();
        assert_eq!(used, segments, "{name}: {layout}");
        cluster.weir(&["cp", &remote, "back"]).ok();
        assert!(fs::read(place.path("back")).unwrap() == bytes, "{name}");
    }
    let text = cluster.weir(&["layout", "weir:/d/below/data"]).ok();
    assert!(text.contains("striped, base 1, count 2, unit 8.0K"), "{text}");

    cluster.weir(&["mkfile", "weir:/chunks"]).fails(&["file exists"]);
    cluster.weir(&["mkfile", "weir:/bad", "--unit", "1000"]).fails(&["unit"]);
    cluster.weir(&["mkfile", "weir:/bad", "--count", "9"]).fails(&["9"]);
    cluster.weir(&["setlayout", "weir:/plain", "--unit", "4K"]).fails(&["weir:/plain"]);
    let df = cluster.weir(&["df"]).ok();
    // The titles, four targets, and all of them.
    assert_eq!(df.lines().count(), 6, "{df}");
    // A server is called the same everywhere.
    let targets = cluster.weir(&["targets"]).ok();
    assert!([&df, &targets, &text].iter().all(|text| text.contains("  data-2 (")), "{df}{text}");
    for command in ["df", "targets", "server list"] {
        let words: Vec<&str> = command.split(' ').chain(["--json"]).collect();
        let json = cluster.weir(&words).json();
        assert_eq!((&json[1]["server"], &json[1]["server_name"]), (&2.into(), &"data-2".into()));
    }
}
