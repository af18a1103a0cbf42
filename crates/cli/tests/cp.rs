//! `weir cp`: everything that files are is copied.

use crate::harness::{Cluster, Place, Running, eventually, noise, root};
use crate::library;
use crate::trees::{allocated, assert_same, awkward, count, deep, snapshot};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(crate) fn all(_: &[u8]) -> bool {
    false
}

/// A mount that keeps nothing, so that it shows what others do at once.
pub(crate) fn watch(cluster: &Cluster<'_>) -> std::path::PathBuf {
    cluster.mount("watch", "")
}

#[test]
fn a_tree_of_awkward_files_is_the_same_there_and_back() {
    if !root() {
        return;
    }
    let place = Place::new();
    let cluster = place.up("awkward", &["--targets", "3"]);
    awkward(&place.path("from"));
    cluster.weir(&["cp", "-a", "from", "weir:/a"]).ok();
    cluster.weir(&["cp", "--archive", "weir:/a", "weir:/b"]).ok();
    cluster.weir(&["cp", "-a", "weir:/b", "back"]).ok();
    let from = snapshot(&place.path("from"), all);
    assert_same(&from, &snapshot(&place.path("back"), all));
    // As a mount sees it, which reads with code of its own.
    let mount = watch(&cluster);
    assert_same(&from, &snapshot(&mount.join("a"), all));
    assert_same(&from, &snapshot(&mount.join("b"), all));
    for name in ["nothing but a hole", "hole at the end", "hole at the beginning", "islands"] {
        let taken = allocated(&place.path("back/holes").join(name));
        assert!(taken < 1 << 20, "{name}: {taken} bytes");
    }
    // The root of the tree too.
    let meta = fs::metadata(place.path("back")).unwrap();
    assert_eq!((meta.mtime(), meta.mtime_nsec()), (4_000_000_000, 1));
}

#[test]
fn directories_deeper_than_any_path_are_copied() {
    if !root() {
        return;
    }
    let place = Place::new();
    let cluster = place.up("deep", &["--targets", "1"]);
    deep(&place.path("from"));
    cluster.weir(&["cp", "-a", "from", "weir:/a"]).ok();
    cluster.weir(&["cp", "-a", "weir:/a", "weir:/b"]).ok();
    let said = cluster.weir(&["cp", "-a", "--no-target-directory", "--resume", "weir:/b", "back"]);
    assert!(said.err.contains("0 files were complete"), "{}", said.err);
    let from = snapshot(&place.path("from"), all);
    assert_same(&from, &snapshot(&place.path("back"), all));
    let said = cluster.weir(&["cp", "-a", "--no-target-directory", "--resume", "weir:/b", "back"]);
    assert!(said.err.contains("1 files were complete"), "{}", said.err);
    cluster.weir(&["rm", "-r", "weir:/a"]).ok();
    assert_eq!(cluster.weir(&["ls"]).ok(), "b\n");
}

#[test]
fn what_is_kept_is_chosen_and_the_umask_goes_for_the_rest() {
    if !root() {
        return;
    }
    let place = Place::new();
    let cluster = place.up("keep", &["--targets", "1"]);
    let old = UNIX_EPOCH + Duration::new(1_000_000_000, 5);
    fs::create_dir(place.path("d")).unwrap();
    fs::write(place.path("d/f"), "f").unwrap();
    fs::hard_link(place.path("d/f"), place.path("d/g")).unwrap();
    std::os::unix::fs::chown(place.path("d/f"), Some(7), Some(8)).unwrap();
    fs::set_permissions(place.path("d/f"), fs::Permissions::from_mode(0o4777)).unwrap();
    fs::File::open(place.path("d/f")).unwrap().set_modified(old).unwrap();
    let mount = watch(&cluster);
    // (flags, mode, owner, old time, one file)
    let cases: [(&[&str], u32, u32, bool, bool); 7] = [
        (&[], 0o755, 0, false, false),
        (&["-p"], 0o4777, 7, true, false),
        (&["--preserve"], 0o4777, 7, true, false),
        (&["--preserve=timestamps"], 0o755, 0, true, false),
        (&["--preserve=ownership,links"], 0o755, 7, false, true),
        (&["--preserve=mode"], 0o4777, 0, false, false),
        (&["--resume"], 0o755, 0, true, false),
    ];
    for (i, (flags, mode, owner, is_old, is_one)) in cases.into_iter().enumerate() {
        let to = format!("weir:/{i}");
        let command = [&["cp", "-R", "-q"], flags, &["d", &to]].concat();
        cluster.weir(&command).ok();
        let dir = mount.join(i.to_string());
        let meta = fs::metadata(dir.join("f")).unwrap();
        assert_eq!(meta.mode() & 0o7777, mode, "{flags:?}");
        assert_eq!(meta.uid(), owner, "{flags:?}");
        assert_eq!(meta.modified().unwrap() == old, is_old, "{flags:?}");
        let same = meta.ino() == fs::metadata(dir.join("g")).unwrap().ino();
        assert_eq!(same, is_one, "{flags:?}");
    }
    let wrong = cluster.weir(&["cp", "--preserve=colour", "d/f", "weir:/x"]);
    assert_eq!(wrong.code, Some(2));
}

#[test]
fn a_file_that_is_replaced_keeps_what_is_not_copied() {
    if !root() {
        return;
    }
    let place = Place::new();
    let cluster = place.up("replace", &["--targets", "3"]);
    let mount = watch(&cluster);
    fs::write(place.path("new"), noise(300_000, 2)).unwrap();
    // An empty file with a layout is filled; one with data gets the same layout again.
    cluster.weir(&["mkfile", "--unit", "8K", "--count", "2", "--copies", "2", "weir:/f"]).ok();
    fs::set_permissions(mount.join("f"), fs::Permissions::from_mode(0o640)).unwrap();
    let number = fs::metadata(mount.join("f")).unwrap().ino();
    for round in 0..2 {
        cluster.weir(&["cp", "new", "weir:/f"]).ok();
        let layout = cluster.weir(&["layout", "--json", "weir:/f"]).json();
        let first = &layout[0];
        assert_eq!((&first["stripe_unit_bytes"], &first["count"]), (&8192.into(), &2.into()));
        assert!(layout.to_string().contains("\"copies\":2"), "{layout}");
        let meta = fs::metadata(mount.join("f")).unwrap();
        assert_eq!(meta.mode() & 0o7777, 0o640, "round {round}");
        assert_eq!(meta.ino() == number, round == 0);
        assert!(fs::read(mount.join("f")).unwrap() == noise(300_000, 2));
    }
    // A link that is named is followed, one in a tree is replaced.
    symlink("real", place.path("link")).unwrap();
    fs::write(place.path("real"), "old").unwrap();
    cluster.weir(&["cp", "weir:/f", "link"]).ok();
    assert!(fs::symlink_metadata(place.path("link")).unwrap().is_symlink());
    assert_eq!(fs::metadata(place.path("real")).unwrap().len(), 300_000);
    cluster.weir(&["mkdir", "weir:/tree"]).ok();
    cluster.weir(&["cp", "weir:/f", "weir:/tree/link"]).ok();
    fs::create_dir(place.path("tree")).unwrap();
    symlink("../real", place.path("tree/link")).unwrap();
    cluster.weir(&["cp", "-r", "weir:/tree", "."]).ok();
    assert!(fs::symlink_metadata(place.path("tree/link")).unwrap().is_file());
    // Nothing is in the way of others: one fails, and all else is copied.
    fs::create_dir(place.path("tree/f")).unwrap();
    cluster
        .weir(&["cp", "weir:/f", "weir:/none", "weir:/tree/link", "tree"])
        .fails(&["tree/f: is a directory", "weir:/none: no such file"]);
    assert_eq!(fs::metadata(place.path("tree/link")).unwrap().len(), 300_000);
}

#[test]
fn pipes_go_in_and_out_whole_or_not_at_all() {
    let place = Place::new();
    let cluster = place.up("pipes", &["--targets", "2"]);
    for len in [0, 1, 4095, 65_537, (1 << 20) + 1, 9_000_001] {
        let bytes = noise(len, len as u64);
        let mut command = cluster.command(&["cp", "-", "weir:/piped"]);
        let mut copy = Running(command.stdin(Stdio::piped()).spawn().unwrap());
        let mut pipe = copy.0.stdin.take().unwrap();
        for part in bytes.chunks(7777) {
            pipe.write_all(part).unwrap();
        }
        drop(pipe);
        assert!(copy.0.wait().unwrap().success());
        let mut command = cluster.command(&["cp", "weir:/piped", "-"]);
        let mut copy = Running(command.stdout(Stdio::piped()).spawn().unwrap());
        let mut back = Vec::new();
        copy.0.stdout.take().unwrap().read_to_end(&mut back).unwrap();
        assert!(copy.0.wait().unwrap().success());
        assert!(back == bytes, "{len}");
    }
    // What was there stays until all has come.
    let mut command = cluster.command(&["cp", "-", "weir:/piped"]);
    let mut copy = Running(command.stdin(Stdio::piped()).spawn().unwrap());
    copy.0.stdin.as_mut().unwrap().write_all(&noise(5_000_000, 8)).unwrap();
    eventually("it has begun", || cluster.weir(&["ls", "-a"]).ok().contains(".weir-cp-"));
    copy.0.kill().unwrap();
    copy.0.wait().unwrap();
    let size = |name: &str| cluster.weir(&["stat", "--json", name]).json()[0]["size"].clone();
    assert_eq!(size("weir:/piped"), 9_000_001);
    cluster.weir(&["cp", "--resume", "-", "weir:/x"]).fails(&["--resume", "pipe"]);
    cluster.weir(&["cp", "-", "x"]).fails(&["weir:/path"]);
    // While an empty file is filled nobody else can open it; afterwards it has its old mode.
    cluster.weir(&["mkfile", "weir:/made"]).ok();
    let mode = |name: &str| cluster.weir(&["stat", "--json", name]).json()[0]["mode"].clone();
    let before = mode("weir:/made");
    let mut command = cluster.command(&["cp", "-", "weir:/made"]);
    let mut copy = Running(command.stdin(Stdio::piped()).spawn().unwrap());
    let filled = format!(".weir-cp-{:08x}-", weir_types::checksum::crc32c(b"made"));
    let mut closed = serde_json::Value::Null;
    eventually("it is closed to others", || {
        let said = cluster.weir(&["ls", "-a"]);
        let found = said.out.lines().find(|name| name.starts_with(&filled));
        closed = found.map_or(serde_json::Value::Null, |name| mode(&format!("weir:/{name}")));
        closed != serde_json::Value::Null && closed != before
    });
    drop(copy.0.stdin.take());
    assert!(copy.0.wait().unwrap().success());
    assert_eq!(mode("weir:/made"), before);
    // A named pipe is read and written, unless trees are copied.
    let pipe = place.path("pipe");
    mknodat(CWD, &pipe, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    for (from, to) in [("weir:/piped", "pipe"), ("pipe", "weir:/again")] {
        let mut copy = Running(cluster.command(&["cp", from, to]).spawn().unwrap());
        if to == "pipe" {
            assert!(fs::read(&pipe).unwrap() == noise(9_000_001, 9_000_001));
        } else {
            fs::write(&pipe, noise(70_001, 1)).unwrap();
        }
        assert!(copy.0.wait().unwrap().success());
    }
    assert_eq!(size("weir:/again"), 70_001);
}

#[test]
fn links_at_the_destination_are_followed_where_they_are_named_and_not_below() {
    if !root() {
        return;
    }
    let place = Place::new();
    let cluster = place.up("below", &["--targets", "1"]);
    fs::create_dir_all(place.path("from/d")).unwrap();
    fs::write(place.path("from/d/f"), "f").unwrap();
    fs::write(place.path("from/g"), "g").unwrap();
    cluster.weir(&["cp", "-a", "from", "weir:/from"]).ok();
    let mount = watch(&cluster);
    let cases = [(place.path("."), "weir:/from", "named"), (mount, "from", "weir:/named")];
    for (root, from, to) in cases {
        let (etc, real) = (root.join("etc"), root.join("real"));
        fs::create_dir(&etc).unwrap();
        fs::create_dir(&real).unwrap();
        symlink("real", root.join("named")).unwrap();
        symlink("../etc", real.join("d")).unwrap();
        cluster.weir(&["cp", "-aT", from, to]).fails(&["/d: not a directory"]);
        assert_eq!(count(&etc), 0);
        assert_eq!(fs::read(real.join("g")).unwrap(), b"g");
        fs::remove_file(real.join("d")).unwrap();
        cluster.weir(&["cp", "-aT", from, to]).ok();
        assert_eq!(fs::read(real.join("d/f")).unwrap(), b"f");
        assert!(fs::symlink_metadata(root.join("named")).unwrap().is_symlink());
    }
}

/// Whichever way leads there: copying goes on for ever otherwise.
#[test]
fn a_directory_is_not_copied_into_itself_by_a_link_or_a_mount() {
    if !root() {
        return;
    }
    let place = Place::new();
    let cluster = place.up("itself", &["--targets", "1"]);
    let mount = watch(&cluster);
    fs::create_dir_all(mount.join("a/sub")).unwrap();
    fs::write(mount.join("a/f"), "f").unwrap();
    symlink("/a", mount.join("link")).unwrap();
    symlink("a/sub", mount.join("below")).unwrap();
    let seen = |name: &str| mount.join(name).to_str().unwrap().to_owned();
    let itself = "cannot be copied into itself";
    for (options, from, to) in [
        ("-r", "weir:/a", "weir:/a/new".to_owned()),
        ("-r", "weir:/a", "weir:/link".to_owned()),
        ("-rT", "weir:/a", "weir:/link".to_owned()),
        ("-rT", "weir:/a", "weir:/link/sub".to_owned()),
        ("-rT", "weir:/a", "weir:/below".to_owned()),
        ("-r", "weir:/a", seen("a")),
        ("-rT", "weir:/", seen("a/sub")),
        ("-r", &seen("a"), "weir:/a".to_owned()),
        ("-rT", &seen("a"), "weir:/below".to_owned()),
        ("-rT", &seen("a/../a"), "weir:/a/sub/x".to_owned()),
    ] {
        cluster.weir(&["cp", options, from, &to]).fails(&[itself]);
        assert_eq!(count(&mount.join("a")), 2, "{from} {to}");
        assert_eq!(count(&mount.join("a/sub")), 0, "{from} {to}");
    }
    // A link on the way hides where it leads to: all but the copy is copied, as by cp(1).
    fs::create_dir(mount.join("way")).unwrap();
    symlink("../a/sub", mount.join("way/on")).unwrap();
    fs::create_dir(mount.join("a/sub/deep")).unwrap();
    cluster.weir(&["cp", "-r", "weir:/a", "weir:/way/on/deep/new"]).fails(&[itself]);
    assert_eq!(fs::read(mount.join("a/sub/deep/new/f")).unwrap(), b"f");
    assert_eq!(count(&mount.join("a/sub/deep/new/sub/deep")), 0);
    // Beside it is not in it.
    cluster.weir(&["cp", "-r", &seen("a"), "weir:/ab"]).ok();
    cluster.weir(&["cp", "-r", "weir:/ab", &seen("a")]).ok();
    cluster.weir(&["cp", "-r", &seen("a/sub"), "weir:/a/other"]).ok();
    assert_eq!(fs::read(mount.join("a/ab/f")).unwrap(), b"f");
}

#[test]
fn lists_that_a_directory_hands_on_do_not_stay_with_copies_of_files_without() {
    if !root() {
        return;
    }
    let place = Place::new();
    let cluster = place.up("handed", &["--targets", "1"]);
    fs::create_dir_all(place.path("from/d")).unwrap();
    for name in ["from/f", "from/d/g"] {
        fs::write(place.path(name), "f").unwrap();
        fs::set_permissions(place.path(name), fs::Permissions::from_mode(0o640)).unwrap();
    }
    cluster.weir(&["cp", "-a", "from", "weir:/from"]).ok();
    let mount = watch(&cluster);
    let from = snapshot(&place.path("from"), all);
    // Version 2; owner, user 77, group, mask, others.
    let mut list = vec![2, 0, 0, 0];
    for (tag, rights, id) in
        [(1, 7, u32::MAX), (2, 7, 77), (4, 5, u32::MAX), (16, 7, u32::MAX), (32, 5, u32::MAX)]
    {
        list.extend_from_slice(&[tag, 0, rights, 0]);
        list.extend_from_slice(&u32::to_le_bytes(id));
    }
    for (dir, source, to) in
        [(place.path("to"), "weir:/from", "to"), (mount.join("to"), "from", "weir:/to")]
    {
        fs::create_dir(&dir).unwrap();
        let flags = rustix::fs::XattrFlags::empty();
        if rustix::fs::lsetxattr(&dir, "system.posix_acl_default", &list, flags).is_err() {
            println!("skipped: no lists at {}", dir.display());
            continue;
        }
        cluster.weir(&["cp", "-a", source, to]).ok();
        assert_same(&from, &snapshot(&dir.join("from"), all));
        cluster.weir(&["cp", "-a", &format!("{source}/f"), to]).ok();
        let there = snapshot(&dir, all);
        assert_eq!((there[&b"/f"[..]].mode, there[&b"/f"[..]].xattrs.len()), (0o640, 0));
    }
}

#[test]
fn with_fsync_each_file_is_durable_and_jobs_are_how_many_are_copied_at_once() {
    let place = Place::new();
    let cluster = place.up("flags", &["--targets", "1"]);
    for i in 0..3 {
        fs::write(place.path(&format!("f{i}")), "x").unwrap();
    }
    let client = library::client(&cluster, false);
    let syncs = || -> u64 {
        let status = client.data_status(weir_types::TargetId(1), 5000).unwrap();
        status.counters.iter().filter(|(name, _)| name == "op.sync").map(|(_, n)| *n).sum()
    };
    let before = syncs();
    cluster.weir(&["cp", "f0", "f1", "f2", "weir:/"]).ok();
    assert_eq!(syncs(), before);
    cluster.weir(&["cp", "--fsync", "f0", "f1", "f2", "weir:/"]).ok();
    assert!(syncs() >= before + 3, "{} {before}", syncs());

    for i in 0..3 {
        let pipe = place.path(&format!("p{i}"));
        mknodat(CWD, &pipe, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    }
    for jobs in [1, 2] {
        let jobs_flag = jobs.to_string();
        let arguments = ["cp", "-j", &jobs_flag, "p0", "p1", "p2", "weir:/"];
        let mut copy = Running(cluster.command(&arguments).spawn().unwrap());
        // Opening a pipe for writing without waiting shows whether it has a reader.
        let open = |i: i32| {
            let mut options = OpenOptions::new();
            options.write(true).custom_flags(libc::O_NONBLOCK);
            options.open(place.path(&format!("p{i}"))).ok()
        };
        let mut first = Vec::new();
        eventually("they are read", || {
            first.extend((first.len() as i32..jobs).next().and_then(open));
            first.len() as i32 == jobs
        });
        assert!(open(jobs).is_none(), "{jobs} at a time");
        drop(first);
        for i in jobs..3 {
            eventually("the next is read", || open(i).is_some());
        }
        assert!(copy.0.wait().unwrap().success());
    }
}

#[test]
fn nothing_is_said_of_what_is_copied_but_what_was_found_complete() {
    let place = Place::new();
    let cluster = place.up("said", &["--targets", "1"]);
    fs::write(place.path("f"), "f").unwrap();
    let later = SystemTime::now() - Duration::from_secs(100);
    fs::File::open(place.path("f")).unwrap().set_modified(later).unwrap();
    assert_eq!(cluster.weir(&["cp", "--resume", "-q", "f", "weir:/"]).err, "");
    let said = cluster.weir(&["cp", "--resume", "f", "weir:/"]);
    assert_eq!(said.err, "weir: 1 files were complete, 0 were gone on with\n");
}

/// Access control lists, where the local files have them.
#[test]
fn lists_that_the_cluster_has_no_room_for_are_counted() {
    if !root() {
        return;
    }
    let place = Place::new();
    let cluster = place.up("lists", &["--targets", "1"]);
    fs::write(place.path("f"), "f").unwrap();
    let mut set = Command::new("setfacl");
    set.args(["-m", "u:77:r"]).arg(place.path("f"));
    if !set.status().is_ok_and(|status| status.success()) {
        println!("skipped: needs setfacl, and a file system with lists");
        return;
    }
    let said = cluster.weir(&["cp", "-a", "f", "weir:/f"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    let back = cluster.weir(&["cp", "-a", "weir:/f", "back"]);
    assert_eq!(back.code, Some(0), "{}", back.err);
    let xattrs = |name: &str| {
        let mut list = vec![0; 4096];
        let len = rustix::fs::llistxattr(place.path(name), &mut list[..]).unwrap();
        String::from_utf8_lossy(&list[..len]).contains("system.posix_acl_access")
    };
    assert!(xattrs("f"));
    // Either both ends have the lists, or the output says that they were left out.
    assert!(xattrs("back") != said.err.contains("1 access control lists were left out"));
}
