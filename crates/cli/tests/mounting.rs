//! The mount, from the command line.

use crate::harness::{
    self, Place, Running, Stopped, eventually, eventually_within, noise, root, said, same_trees,
};
use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};
use std::time::Duration;

#[test]
fn a_mounted_cluster_holds_what_is_put_into_it() {
    let place = Place::new();
    let cluster = place.up("one", &["--targets", "4", "--mount", "m"]);
    let mount = place.path("m");
    fs::create_dir(mount.join("d")).unwrap();
    let bytes = noise(5_000_000, 1);
    fs::write(mount.join("d/data"), &bytes).unwrap();
    assert!(cluster.weir(&["status"]).ok().contains("Mounted on"));

    // The same file without the mount, and its layout by its local name.
    let cat = cluster.command(&["cat", "/d/data"]).output().unwrap();
    assert!(cat.stdout == bytes);
    let layout = cluster.weir(&["layout", "--json", "m/d/data"]).json();
    assert_eq!(layout[0]["size"], 5_000_000);
    cluster.weir(&["mkfile", "m/d/wide", "--unit", "1M"]).ok();
    assert!(cluster.weir(&["layout", "m/d/wide"]).ok().contains("unit 1.0M"));
    cluster.weir(&["layout", "/etc/passwd"]).fails(&["not in a mounted Weir", "weir:/path"]);

    // Mounting again by `weir up` is nothing new; what was written stays.
    cluster.weir(&["up", "--mount", "m"]).ok();
    cluster.umount("m");
    assert!(!mount.join("d").exists());
    cluster.weir(&["mount", "m"]).ok();
    assert!(fs::read(mount.join("d/data")).unwrap() == bytes);
    cluster.down(&["--purge", "--yes"]);
    assert!(!mount.exists(), "`weir up` made the directory, `weir down --purge` takes it");
}

#[test]
fn large_writes_go_to_fragments_of_any_size() {
    let place = Place::new();
    let cluster = place.up("one", &["--targets", "4", "--mount", "m"]);
    cluster.weir(&["mkfile", "m/pieces", "--sizes", "10000,4096,3000001"]).ok();
    let (path, bytes) = (place.path("m/pieces"), noise(9_000_000, 3));
    let mut file = fs::File::options().write(true).open(&path).unwrap();
    // In calls that are gathered, and ends that are not whole blocks.
    for call in bytes.chunks(512 << 10) {
        file.write_all(call).unwrap();
    }
    file.sync_all().unwrap();
    drop(file);
    let cat = cluster.command(&["cat", "/pieces"]).output().unwrap();
    assert!(cat.stdout == bytes, "{} bytes", cat.stdout.len());
}

#[test]
fn a_copied_tree_is_the_same() {
    let place = Place::new();
    let cluster = place.up("one", &["--targets", "4", "--mount", "m"]);
    let copy = said({
        let mut cp = Command::new("cp");
        cp.args(["-a", "/usr/include/linux"]).arg(place.path("m/tree"));
        cp
    });
    assert_eq!(copy.code, Some(0), "{copy:?}");
    cluster.umount("m");
    cluster.weir(&["mount", "m"]).ok();
    same_trees("/usr/include/linux".as_ref(), &place.path("m/tree"));
}

#[test]
fn a_busy_mountpoint_names_who_is_there() {
    let place = Place::new();
    let cluster = place.up("one", &["--targets", "1", "--mount", "m"]);
    let mut user = Command::new("sleep")
        .arg("60")
        .current_dir(place.path("m"))
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let who = format!("sleep ({})", user.id());
    cluster.weir(&["umount", "m"]).fails(&["busy", &who, "--lazy"]);
    cluster.weir(&["down"]).fails(&["busy", &who, "--force"]);
    cluster.weir(&["mount", "m"]).fails(&["mounted here already", "weir umount"]);
    user.kill().unwrap();
    user.wait().unwrap();
    cluster.umount("m");
    cluster.weir(&["umount", "m"]).fails(&["no Weir is mounted here"]);
}

#[test]
fn a_mount_in_use_is_out_of_sight_at_once_if_lazy_and_ends_with_its_last_user() {
    let place = Place::new();
    let cluster = place.up("one", &["--targets", "1"]);
    for lazy in ["--lazy", "-l"] {
        let mut command = cluster.command(&["mount", "--foreground", "m"]);
        let mut mount = Running(command.stderr(Stdio::null()).spawn().unwrap());
        let table = || fs::read_to_string("/proc/self/mounts").unwrap();
        let line = format!(" {} fuse.weir", place.path("m").display());
        eventually("it is mounted", || table().contains(&line));
        let mut held = fs::File::create(place.path("m/f")).unwrap();
        cluster.weir(&["umount", "m"]).fails(&["busy"]);
        cluster.weir(&["umount", lazy, "m"]).ok();
        assert!(!table().contains(&line), "it is in sight");
        assert_eq!(fs::read_dir(place.path("m")).unwrap().count(), 0, "it is in sight");
        // Programs on the old mount go on, while another one is mounted in its place.
        cluster.weir(&["mount", "m"]).ok();
        held.write_all(b"written when it was gone").unwrap();
        held.sync_all().unwrap();
        assert!(mount.0.try_wait().unwrap().is_none(), "it has ended before its user");
        drop(held);
        assert!(mount.0.wait().unwrap().success());
        // The mount has ended its session, so nobody waits for its leases (10 s) to expire. But it
        // has only a second for that, and the server may hear of it later.
        eventually_within(Duration::from_secs(5), "only the other one is a client", || {
            let clients = cluster.weir(&["clients", "--program", "weir mount", "--json"]).json();
            clients["clients"].as_array().unwrap().len() == 1
        });
        assert_eq!(fs::read_to_string(place.path("m/f")).unwrap(), "written when it was gone");
        cluster.umount("m");
    }
}

#[test]
fn down_with_force_ends_a_mount_in_use() {
    let place = Place::new();
    let cluster = place.up("one", &["--targets", "1", "--mount", "m"]);
    let mut user = Command::new("sleep").arg("60").current_dir(place.path("m")).spawn().unwrap();
    cluster.weir(&["down", "--force"]).ok();
    assert!(cluster.pids().is_empty());
    user.kill().unwrap();
    user.wait().unwrap();
}

#[test]
fn a_mountpoint_that_is_missing_is_made_and_goes_again_if_mounting_fails() {
    let place = Place::new();
    let cluster = place.up("one", &["--targets", "1"]);
    cluster.weir(&["mkfile", "weir:/there"]).ok();
    for flags in [&["mount", "new/below"][..], &["mount", "-f", "new/other"]] {
        let (mountpoint, there) = (place.path(flags.last().unwrap()), "its files are there");
        let mut command = cluster.command(flags);
        let mount = Running(command.stderr(Stdio::null()).spawn().unwrap());
        eventually(there, || mountpoint.join("there").exists());
        cluster.umount(flags.last().unwrap());
        drop(mount);
        assert!(mountpoint.is_dir(), "another mount may be wanted there");
        fs::remove_dir(mountpoint).unwrap();
    }
    // What is there and no directory is left alone, and what cannot be mounted leaves nothing.
    fs::write(place.path("file"), "").unwrap();
    cluster.weir(&["mount", "file"]).fails(&["file: Not a directory"]);
    symlink("nowhere", place.path("link")).unwrap();
    cluster.weir(&["mount", "link"]).fails(&["link", "make the directory first"]);
    cluster.weir(&["mount", "m", "-o", "turbo"]).fails(&["turbo", "nocache"]);
    cluster.weir(&["mount", "m", "-o", "remount,ro"]).fails(&["m"]);
    cluster.weir(&["down"]).ok();
    for flags in [&["mount", "m"][..], &["mount", "-f", "m"]] {
        cluster.weir(flags).fails(&["cannot connect", "weir up"]);
    }
    assert!(!place.path("m").exists() && !place.path("nowhere").exists());
}

#[test]
fn fuse_is_missing() {
    if !root() {
        return;
    }
    let place = Place::new();
    let cluster = place.up("one", &["--targets", "1"]);
    fs::create_dir(place.path("m")).unwrap();
    // A /dev without fuse, in a mount namespace of its own.
    let script = "mount -t tmpfs none /dev && mknod -m 666 /dev/null c 1 3 && \
        exec \"$0\" mount --dir \"$1\" m";
    let mut unshare = Command::new("unshare");
    unshare.args(["-m", "sh", "-c", script, harness::WEIR]).arg(cluster.dir());
    unshare.current_dir(place.path(""));
    said(unshare).fails(&["FUSE is missing", "modprobe fuse"]);
}

#[test]
fn a_mount_whose_process_died_is_named_and_mounted_again() {
    let place = Place::new();
    let cluster = place.up("one", &["--targets", "1", "--mount", "m"]);
    fs::write(place.path("m/f"), "kept").unwrap();
    let run = cluster.dir().join("run");
    let name = fs::read_dir(run).unwrap().flatten().find_map(|f| {
        f.file_name()
            .to_str()?
            .strip_suffix(".pid")
            .filter(|n| n.starts_with("mount-"))
            .map(str::to_owned)
    });
    cluster.kill(&name.unwrap());
    let status = cluster.weir(&["status"]);
    assert!(status.out.contains("process of the mount") && status.code == Some(1), "{status:?}");
    cluster.weir(&["up", "--mount", "m"]).ok();
    assert_eq!(fs::read_to_string(place.path("m/f")).unwrap(), "kept");
}

/// The process of the mount is known, so it does not count as dead.
#[test]
fn up_leaves_a_mount_in_the_foreground_alone_and_umount_waits_for_it() {
    let place = Place::new();
    let cluster = place.up("one", &["--targets", "1"]);
    fs::create_dir(place.path("m")).unwrap();
    let mut command = cluster.command(&["mount", "--foreground", "m"]);
    let mut mount = Running(command.stderr(Stdio::null()).spawn().unwrap());
    let pid = i32::try_from(mount.0.id()).unwrap();
    let known = || {
        let status = cluster.weir(&["status", "--json"]);
        let status: serde_json::Value = serde_json::from_str(&status.out).unwrap();
        status["mount_daemons"][0]["pid"] == pid
    };
    eventually("status names its process", known);
    let held = fs::File::create(place.path("m/f")).unwrap();
    cluster.weir(&["up", "--mount", "m"]).ok();
    assert!(known() && mount.0.try_wait().unwrap().is_none());
    // It has not been detached, nor another one mounted over it.
    cluster.weir(&["umount", "m"]).fails(&["busy"]);
    // While it is stopped nobody could start a program that has this open: this closes it.
    drop(held);
    {
        let _stopped = Stopped::these([pid]);
        let said = cluster.weir(&["up", "--mount", "m"]);
        said.fails(&[&format!("process of the mount, {pid}, is stopped"), "kill -CONT"]);
    }
    cluster.umount("m");
    let ended = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    assert!(ended.contains(") Z "), "{ended}");
    assert!(mount.0.wait().unwrap().success());
}

#[test]
fn in_the_foreground_it_ends_with_a_signal() {
    let place = Place::new();
    let cluster = place.up("one", &["--targets", "1"]);
    fs::create_dir(place.path("m")).unwrap();
    let mut command = cluster.command(&["mount", "--foreground", "m"]);
    let mut mount = command.stderr(Stdio::null()).spawn().unwrap();
    eventually("it is mounted", || {
        let table = fs::read_to_string("/proc/self/mounts").unwrap();
        table.contains(&format!(" {} fuse.weir", place.path("m").display()))
    });
    fs::write(place.path("m/f"), "written before the end").unwrap();
    Command::new("kill").arg(mount.id().to_string()).status().unwrap();
    assert!(mount.wait().unwrap().success());
    assert_eq!(cluster.weir(&["cat", "/f"]).ok(), "written before the end");
}
