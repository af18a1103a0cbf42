//! The mount, from mount(8) and /etc/fstab.

use crate::harness::{Cluster, Place, Running, Said, WEIR, eventually, root, said};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::process::Command;

/// A cluster with a file in it, and a directory `m`.
fn cluster(place: &Place) -> Cluster<'_> {
    let cluster = place.up("one", &["--targets", "1"]);
    fs::create_dir(place.path("m")).unwrap();
    cluster
}

/// Runs a script where mount(8) finds the helper: in a mount namespace of its own, so that
/// neither the helper nor a mount is seen by this machine, nor written to its table of what users
/// have mounted. `$D` is the cluster's directory.
fn script(cluster: &Cluster<'_>, lines: &str) -> Said {
    let prepared = format!(
        "mount -t tmpfs none /run; mount -t tmpfs none /sbin; \
         ln -s {WEIR} /sbin/mount.fuse.weir; mounts() {{ \
         grep -c \" $PWD/m fuse.weir \" /proc/self/mounts || true; }}; {lines}"
    );
    let mut shell = Command::new("unshare");
    shell.args(["-m", "sh", "-ec", &prepared]).env("D", cluster.dir());
    cluster.place.prepare(&mut shell);
    said(shell)
}

#[test]
fn mount_and_umount_work_as_for_any_type() {
    if !root() {
        return;
    }
    let place = Place::new();
    let cluster = cluster(&place);
    let said = script(
        &cluster,
        "mount -t fuse.weir weir:$D m -o noexec,noatime,timeout=20
         cp /bin/true m/program; echo kept > m/f
         ! m/program 2> /dev/null
         grep $PWD/m /proc/self/mounts
         umount m; mounts; ls m",
    );
    let shown = said.ok();
    let (mount, rest) = shown.split_once('\n').unwrap();
    let source = format!("weir:{} {} ", cluster.dir().display(), place.path("m").display());
    assert!(mount.starts_with(&source) && mount.contains("noexec"), "{mount}");
    assert_eq!(rest, "0\n", "something is left of it");
    assert_eq!(cluster.weir(&["cat", "/f"]).ok(), "kept\n");
    eventually("its process ends", || cluster.pids().len() == 2);
}

/// As of any type: only `weir mount` makes what is missing.
#[test]
fn by_mount_no_mountpoint_is_made() {
    if !root() {
        return;
    }
    let place = Place::new();
    let cluster = cluster(&place);
    let said = script(
        &cluster,
        "! mount -t fuse.weir weir:$D nowhere
         echo weir:$D $PWD/nowhere fuse.weir defaults 0 0 > fstab; ! mount -a -T fstab",
    );
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(said.err.matches("make the directory first").count(), 2, "{said:?}");
    assert!(!place.path("nowhere").exists());
}

#[test]
fn a_line_in_fstab_mounts_once() {
    if !root() {
        return;
    }
    let place = Place::new();
    let cluster = cluster(&place);
    fs::copy(cluster.dir().join("client.toml"), place.path("client.toml")).unwrap();
    let line = format!(
        "weir:{} {} fuse.weir defaults,_netdev,nofail,user,x-systemd.automount,comment=ours,ro 0 0",
        place.path("client.toml").display(),
        place.path("m").display(),
    );
    fs::write(place.path("fstab"), line + "\n").unwrap();
    let said = script(
        &cluster,
        "mount -T fstab $PWD/m; mounts; ! touch m/f 2> /dev/null
         mount -a -T fstab; mounts
         umount m; mounts
         mount -a -T fstab; mounts; umount m",
    );
    assert_eq!(said.ok(), "1\n1\n0\n1\n");
}

#[test]
fn a_user_mounts_what_fstab_lets_users_mount() {
    let is_setuid = fs::metadata("/usr/bin/mount").is_ok_and(|m| m.mode() & 0o4000 != 0);
    if !root() || !is_setuid || Command::new("fusermount3").arg("-V").output().is_err() {
        eprintln!("skipped: needs root, a setuid mount(8) and fusermount3");
        return;
    }
    let place = Place::new();
    let cluster = cluster(&place);
    fs::set_permissions(place.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(place.path("home")).unwrap();
    fs::copy(cluster.dir().join("client.toml"), place.path("client.toml")).unwrap();
    for name in ["m", "home", "client.toml"] {
        chown(place.path(name), Some(65534), Some(65534)).unwrap();
    }
    cluster.weir(&["mkfile", "weir:/there"]).ok();
    // A user cannot see where this program was built, has a home, and may open /dev/fuse, as udev
    // lets everybody.
    let said = script(
        &cluster,
        &format!(
            "rm /sbin/mount.fuse.weir; cp {WEIR} /sbin/weir; ln -s weir /sbin/mount.fuse.weir
             echo weir:$PWD/client.toml $PWD/m fuse.weir users,noauto,_netdev 0 0 > fstab
             echo ann:x:65534:65534::$PWD/home:/bin/sh > passwd
             mount -t tmpfs none /dev
             mknod -m 666 /dev/fuse c 10 229; mknod -m 666 /dev/null c 1 3
             mount --bind fstab /etc/fstab; mount --bind passwd /etc/passwd
             unset XDG_STATE_HOME XDG_CONFIG_HOME
             ann() {{ setpriv --reuid=65534 --regid=65534 --clear-groups \"$@\"; }}
             ann mount $PWD/m; mounts; ann ls m; ann umount $PWD/m; mounts"
        ),
    );
    assert_eq!(said.ok(), "1\nthere\n0\n");
}

#[test]
fn a_mount_is_remounted_for_reading_only_and_back() {
    if !root() {
        return;
    }
    let place = Place::new();
    let cluster = cluster(&place);
    let said = script(
        &cluster,
        "flags() { sed -n \"s|.* $PWD/m fuse.weir \\([^ ]*\\) .*|\\1|p\" /proc/self/mounts |
             tr , '\\n' | grep -x 'ro\\|rw\\|noexec\\|nosuid' | tr '\\n' ' '; echo; }
         mount -t fuse.weir -o nosuid weir:$D m; echo kept > m/f; flags
         mount -o remount,ro m; flags; ! touch m/g 2> /dev/null; cat m/f
         mount -o remount,rw,noexec m; flags; touch m/g; ls m
         exec 3> m/open; ! mount -o remount,ro m 2> busy; exec 3>&-; grep -c 'close them' busy
         mount -o remount,ro m; flags
         ! mount -o remount,turbo m 2> unknown; grep -c turbo unknown
         mount -o remount,rw,consistency=relaxed m 2> stays; grep -c 'mount it anew' stays; flags
         umount m; ! mount -t fuse.weir -o remount,ro weir:$D m 2> none; grep -c 'no Weir' none",
    );
    let lines = "rw nosuid \nro nosuid \nkept\nrw nosuid noexec \nf\ng\n1\nro nosuid noexec \n\
        1\n1\nrw nosuid noexec \n1\n";
    assert_eq!(said.ok(), lines);
    cluster.weir(&["mount", "m"]).ok();
    cluster.weir(&["mount", "m", "-o", "remount,ro"]).ok();
    assert!(fs::write(place.path("m/h"), "").is_err());
    cluster.weir(&["umount", "m"]).ok();
    cluster.weir(&["mount", "m", "-o", "remount,ro"]).fails(&["no Weir is mounted"]);
}

#[test]
fn a_mount_that_fails_says_why_through_mount() {
    if !root() {
        return;
    }
    let place = Place::new();
    let cluster = cluster(&place);
    let refused = script(&cluster, "mount -t fuse.weir one m -o ro,turbo");
    assert_eq!(refused.code, Some(32), "{refused:?}");
    assert!(refused.err.contains("turbo") && refused.err.contains("known options"), "{refused:?}");
    // What is not known may be let pass; then the name of the cluster is enough.
    assert_eq!(
        script(&cluster, "mount -s -t fuse.weir one m -o turbo; mounts; umount m").ok(),
        "1\n"
    );
}

#[test]
fn the_helper_mounts_in_the_namespace_that_it_is_told() {
    if !root() {
        return;
    }
    let place = Place::new();
    let cluster = cluster(&place);
    cluster.weir(&["mkdir", "/there"]).ok();
    let helper = place.path("mount.fuse.weir");
    symlink(WEIR, &helper).unwrap();
    let other = Running(Command::new("unshare").args(["-m", "sleep", "300"]).spawn().unwrap());
    let namespace = format!("/proc/{}/ns/mnt", other.0.id());
    let ours = fs::read_link("/proc/self/ns/mnt").unwrap();
    eventually("it has one", || fs::read_link(&namespace).is_ok_and(|other| other != ours));
    let mut mount = Command::new(&helper);
    mount.args(["one", place.path("m").to_str().unwrap(), "-N", &namespace]);
    place.prepare(&mut mount);
    said(mount).ok();
    let line = format!(" {} fuse.weir ", place.path("m").display());
    let is_mounted =
        |whose: &str| fs::read_to_string(format!("/proc/{whose}/mounts")).unwrap().contains(&line);
    assert!(is_mounted(&other.0.id().to_string()) && !is_mounted("self"));
    let there = |what: &str| {
        let mut inside = Command::new("nsenter");
        inside.arg(format!("--mount={namespace}")).args([what, place.path("m").to_str().unwrap()]);
        said(inside).ok()
    };
    assert_eq!(there("ls"), "there\n");
    there("umount");
    eventually("its process ends", || cluster.pids().len() == 2);
}

#[test]
fn the_helper_keeps_to_what_mount_expects_of_one() {
    let place = Place::new();
    let _cluster = cluster(&place);
    let helper = place.path("mount.fuse.weir");
    symlink(WEIR, &helper).unwrap();
    let run = |arguments: &[&str]| {
        let mut helper = Command::new(&helper);
        helper.args(arguments);
        place.prepare(&mut helper);
        said(helper)
    };
    // Nothing is mounted with -f, and said with -v.
    let verbose = run(&["one", "m", "-fnv", "-t", "fuse.weir", "-o", "rw"]);
    assert!(verbose.code == Some(0) && verbose.err.contains("m\n"), "{verbose:?}");
    assert!(!fs::read_to_string("/proc/self/mounts").unwrap().contains("weir:one"));
    // What is not known is left out with -s, and else an error.
    let strange = ["one", "m", "-f", "-o", "strange"];
    assert!(run(&strange).err.contains("strange"));
    assert_eq!(run(&[&strange[..], &["-s"]].concat()).code, Some(0));
    let nowhere = run(&["weir:/no/where", "m", "-o", "rw"]);
    assert!(nowhere.code == Some(32) && nowhere.err.contains("/no/where"), "{nowhere:?}");
    let elsewhere = run(&["one", "m", "-N", "/no/namespace"]);
    assert!(elsewhere.code == Some(32) && elsewhere.err.contains("/no/namespace"), "{elsewhere:?}");
    let name = run(&["host:/export", "m"]);
    assert!(name.code == Some(32) && name.err.contains("weir:/"), "{name:?}");
    let usage = run(&["one"]);
    assert!(usage.code == Some(1) && usage.err.contains("MOUNTPOINT"), "{usage:?}");
    assert!(run(&["--help"]).ok().contains("/etc/fstab"));
}
