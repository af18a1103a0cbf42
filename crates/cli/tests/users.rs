//! Users and keys on real mounts: groups, the users of a mount, and keys that squash, only read, or
//! are limited to a directory.

use crate::harness::{self, Cluster, Place, Said, root, said};
use crate::library;
use rustix::fs::{Access, AtFlags, Gid, Mode, OFlags, ResolveFlags, Uid, XattrFlags};
use rustix::io::Errno;
use std::fs::{self, OpenOptions, Permissions};
use std::io::{Read, Seek, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Command;
use weir_client::{Client, Context};
use weir_types::{ErrorKind, FileId};
use weir_wire::Rights;

const NOBODY: u32 = 65_534;

/// A command of another user.
fn by(uid: u32, groups: &str, command: &[&str]) -> Said {
    let mut setpriv = Command::new("setpriv");
    setpriv.arg(format!("--reuid={uid}")).arg(format!("--regid={uid}"));
    match groups {
        "" => setpriv.arg("--clear-groups"),
        some => setpriv.arg(format!("--groups={some}")),
    };
    setpriv.arg("--").args(command);
    said(setpriv)
}

/// Others can get to what is in the place.
fn open_to_all(place: &Place) {
    fs::set_permissions(place.path("."), Permissions::from_mode(0o755)).unwrap();
}

fn write(path: &Path, text: &str, mode: u32, owner: (u32, u32)) {
    fs::write(path, text).unwrap();
    chown(path, Some(owner.0), Some(owner.1)).unwrap();
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Makes a key, and mounts with it.
fn mount_with(cluster: &Cluster<'_>, name: &str, restrictions: &[&str]) -> std::path::PathBuf {
    let key = format!("{name}.toml");
    let mut new = vec!["key", "create", name, "--output", &key];
    new.extend(restrictions);
    cluster.weir(&new).ok();
    let mountpoint = cluster.place.path(name);
    fs::create_dir(&mountpoint).unwrap();
    cluster.place.weir(&["mount", name, "--credential", &key, "-o", "ttl=0"]).ok();
    mountpoint
}

#[track_caller]
fn fails_with<T>(result: std::io::Result<T>, expected: Errno) {
    let error = result.err().expect("it has to fail");
    assert_eq!(error.raw_os_error(), Some(expected.raw_os_error()), "{error}");
}

#[test]
fn a_mount_is_for_all_users_or_for_its_own_and_groups_count() {
    if !root() {
        return;
    }
    let place = Place::new();
    let cluster = place.up("one", &["--targets", "1"]);
    open_to_all(&place);
    fs::create_dir(place.path("m")).unwrap();
    let options = ["mount", "m", "-o", "allow_other,default_permissions,ttl=0"];
    cluster.weir(&options).ok();
    let file = place.path("m/file");
    write(&file, "for the group\n", 0o640, (0, 6001));
    let file = file.to_str().unwrap();
    let denied =
        |said: Said| assert!(said.code != Some(0) && said.err.contains("denied"), "{said:?}");

    // By any of its groups, however many it has, the last among them.
    denied(by(5001, "", &["cat", file]));
    for count in [1, 16, 32, 33, 400] {
        let mut groups: Vec<String> = (7000..7000 + count - 1).map(|g| g.to_string()).collect();
        denied(by(5001, format!("7000,{}", groups.join(",")).trim_matches(','), &["cat", file]));
        groups.push("6001".into());
        assert_eq!(by(5001, &groups.join(","), &["cat", file]).ok(), "for the group\n");
    }
    // In a user namespace it is who it is outside: its groups count, and that
    // it is called root there does not.
    write(&place.path("m/roots"), "secret\n", 0o600, (0, 0));
    let inside = ["unshare", "--user", "--map-root-user", "cat", file];
    let said = by(5001, "7000,6001", &inside);
    if said.err.contains("unshare failed") {
        println!("no user namespaces here: {}", said.err);
    } else {
        assert_eq!(said.ok(), "for the group\n");
        denied(by(5001, "7000", &inside));
        let roots = place.path("m/roots");
        let inside = ["unshare", "--user", "--map-root-user", "cat", roots.to_str().unwrap()];
        denied(by(5001, "6001", &inside));
    }
    // `su` and the like change nothing else.
    cluster.umount("m");
    cluster.weir(&["mount", "m", "-o", "allow_root_only"]).ok();
    denied(by(5001, "6001", &["cat", file]));
    denied(by(5001, "6001", &["ls", place.path("m").to_str().unwrap()]));
    assert_eq!(fs::read_to_string(file).unwrap(), "for the group\n");
    cluster.umount("m");
}

#[test]
fn a_squashed_superuser_is_nobody_on_the_mount_and_its_data_is_safe() {
    if !root() {
        return;
    }
    let place = Place::new();
    let cluster = place.up("one", &["--targets", "2", "--mount", "m"]);
    open_to_all(&place);
    let own = place.path("m");
    fs::set_permissions(&own, Permissions::from_mode(0o1777)).unwrap();
    write(&own.join("secret"), "secret", 0o600, (0, 0));
    write(&own.join("public"), "public", 0o644, (0, 0));
    let mount = mount_with(&cluster, "squashed", &["--squash", "root"]);
    fails_with(fs::read(mount.join("secret")), Errno::ACCESS);
    fails_with(OpenOptions::new().append(true).open(mount.join("public")), Errno::ACCESS);
    fails_with(fs::remove_file(mount.join("public")), Errno::PERM);
    fails_with(chown(mount.join("public"), Some(1), None), Errno::PERM);
    assert_eq!(fs::read_to_string(mount.join("public")).unwrap(), "public");

    // What it makes is nobody's, and works: data, truncation, times, sync.
    let mut file = fs::File::create_new(mount.join("made")).unwrap();
    file.write_all(&harness::noise(3_000_000, 5)).unwrap();
    file.set_len(1_000_000).unwrap();
    file.seek(std::io::SeekFrom::End(0)).unwrap();
    file.write_all(b"end").unwrap();
    file.sync_all().unwrap();
    drop(file);
    let made = fs::metadata(own.join("made")).unwrap();
    assert_eq!((made.uid(), made.gid(), made.len()), (NOBODY, NOBODY, 1_000_003));
    let bytes = fs::read(mount.join("made")).unwrap();
    assert!(bytes[..1_000_000] == harness::noise(3_000_000, 5)[..1_000_000]);
    // Other users are who they are; a write still takes setuid away.
    let script = format!(
        "echo x > {0}/theirs && chmod 4755 {0}/theirs && echo y >> {0}/theirs",
        mount.display()
    );
    by(5001, "", &["sh", "-c", &script]).ok();
    let theirs = fs::metadata(own.join("theirs")).unwrap();
    assert_eq!((theirs.uid(), theirs.mode() & 0o7777), (5001, 0o755));
    // Everyone is one user with the other kind.
    let all =
        mount_with(&cluster, "all", &["--squash", "all", "--anon-uid", "40", "--anon-gid", "41"]);
    by(5001, "", &["sh", "-c", &format!("echo x > {}/by-anyone", all.display())]).ok();
    fs::write(all.join("by-root"), "x").unwrap();
    for name in ["by-anyone", "by-root"] {
        let made = fs::metadata(own.join(name)).unwrap();
        assert_eq!((made.uid(), made.gid()), (40, 41), "{name}");
    }
    cluster.umount("squashed");
    cluster.umount("all");
}

#[test]
fn a_read_only_key_reads_through_its_mount_and_changes_nothing() {
    if !root() {
        return;
    }
    let place = Place::new();
    let cluster = place.up("one", &["--targets", "2", "--mount", "m"]);
    let own = place.path("m");
    let bytes = harness::noise(2_000_000, 9);
    fs::write(own.join("data"), &bytes).unwrap();
    fs::create_dir(own.join("dir")).unwrap();
    let mount = mount_with(&cluster, "reader", &["--read-only"]);
    assert!(fs::read(mount.join("data")).unwrap() == bytes);
    assert_eq!(fs::read_dir(&mount).unwrap().count(), 2);
    let data = mount.join("data");
    fails_with(OpenOptions::new().write(true).open(&data), Errno::ROFS);
    fails_with(OpenOptions::new().read(true).write(true).open(&data), Errno::ROFS);
    fails_with(fs::File::create(&data), Errno::ROFS);
    fails_with(fs::write(mount.join("new"), "x"), Errno::ROFS);
    fails_with(fs::create_dir(mount.join("new")), Errno::ROFS);
    fails_with(fs::remove_file(&data), Errno::ROFS);
    fails_with(fs::remove_dir(mount.join("dir")), Errno::ROFS);
    fails_with(fs::rename(&data, mount.join("new")), Errno::ROFS);
    fails_with(fs::hard_link(&data, mount.join("new")), Errno::ROFS);
    fails_with(symlink("data", mount.join("new")), Errno::ROFS);
    fails_with(fs::set_permissions(&data, Permissions::from_mode(0o777)), Errno::ROFS);
    fails_with(chown(&data, Some(1), None), Errno::ROFS);
    assert!(fs::read(own.join("data")).unwrap() == bytes);
    // Without a mount it is the same, and says what to do.
    let cp = ["cp", "--credential", "reader.toml", "/etc/hostname", "weir:/new"];
    cluster.place.weir(&cp).fails(&["may only read", "credential"]);
    // With the revoked key, the mount is useless.
    cluster.weir(&["key", "revoke", "reader"]).ok();
    fails_with(fs::read_dir(mount.join("dir")), Errno::ACCESS);
    cluster.umount("reader");
}

/// A client of the library with a credential.
fn client_of(place: &Place, key: &str) -> Client {
    Client::connect(crate::library::credential(&place.path(key))).unwrap()
}

#[test]
fn a_key_of_a_subtree_cannot_leave_it_by_any_way() {
    if !root() {
        return;
    }
    let place = Place::new();
    let cluster = place.up("one", &["--targets", "2", "--mount", "m"]);
    let own = place.path("m");
    for dir in ["out", "in", "in/sub", "in/sub/deep"] {
        fs::create_dir(own.join(dir)).unwrap();
    }
    fs::write(own.join("out/secret"), "secret").unwrap();
    fs::write(own.join("in/sub/deep/mine"), "mine").unwrap();
    fs::hard_link(own.join("in/sub/deep/mine"), own.join("out/mine-too")).unwrap();
    let mount = mount_with(&cluster, "guest", &["--subtree", "/in"]);

    // By path: the subtree is all there is.
    let names: Vec<_> = fs::read_dir(&mount).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["sub"]);
    assert_eq!(fs::metadata(&mount).unwrap().ino(), 1);
    fails_with(fs::read(mount.join("out/secret")), Errno::NOENT);
    let up = fs::read(mount.join("../m/in/sub/deep/mine")).unwrap();
    assert_eq!(up, b"mine", "that is the way over the local directory");
    let listed = cluster.place.weir(&["ls", "--credential", "guest.toml", "weir:/.."]);
    assert!(!listed.out.contains("out"), "{listed:?}");

    // By symbolic links: they are followed on the mount, from its root or on
    // the machine.
    symlink("../../out/secret", mount.join("sub/up")).unwrap();
    fails_with(fs::read(mount.join("sub/up")), Errno::NOENT);
    symlink("/out/secret", mount.join("sub/absolute")).unwrap();
    let cat = ["cat", "--credential", "guest.toml", "/sub/absolute"];
    cluster.place.weir(&cat).fails(&["/sub/absolute"]);

    // By hard links: a file with a name inside is inside; one made outside of a
    // file inside gives nothing.
    assert_eq!(fs::read_to_string(mount.join("sub/deep/mine")).unwrap(), "mine");
    fs::write(mount.join("sub/deep/mine"), "changed").unwrap();
    assert_eq!(fs::read_to_string(own.join("out/mine-too")).unwrap(), "changed");

    // By a directory or file that is open while it is moved out.
    let held = rustix::fs::open(
        mount.join("sub/deep"),
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .unwrap();
    let file = OpenOptions::new().read(true).write(true).open(mount.join("sub/deep/mine")).unwrap();
    fs::write(own.join("in/sub/deep/other"), "other").unwrap();
    fs::rename(own.join("in/sub/deep"), own.join("out/deep")).unwrap();
    let openat = |name: &str| {
        rustix::fs::openat(&held, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map(drop)
    };
    // For this key the directory is gone, and so are the names in it.
    assert_eq!(openat("other"), Err(Errno::NOENT));
    // The kernel may go up by what it knows, which is where it was, inside.
    assert!(matches!(openat("../secret"), Err(Errno::STALE | Errno::NOENT)));
    let through = format!("/proc/self/fd/{}", held.as_raw_fd());
    fails_with(fs::read(Path::new(&through).join("other")), Errno::NOENT);
    fails_with(fs::write(Path::new(&through).join("new"), "x"), Errno::NOENT);
    assert_eq!(rustix::fs::statat(&held, "other", AtFlags::empty()).map(drop), Err(Errno::NOENT));
    let beneath = rustix::fs::openat2(
        &held,
        "mine",
        OFlags::RDONLY | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::BENEATH,
    );
    assert_eq!(beneath.map(drop), Err(Errno::NOENT), "it is only named outside now");
    fails_with(file.metadata(), Errno::STALE);
    fails_with(file.set_len(0), Errno::STALE);
    drop((held, file));

    // By number, through the library.
    let ctx = Context::root();
    let everything = library::client(&cluster, true);
    let secret = everything.resolve(&ctx, b"/out/secret", false).unwrap().file;
    let out = everything.resolve(&ctx, b"/out", false).unwrap().file;
    let guest = client_of(&place, "guest.toml");
    for id in [secret, out] {
        assert_eq!(guest.getattr(&ctx, id).unwrap_err().kind, ErrorKind::Stale);
    }
    let opened = guest.open(&ctx, secret, Rights::READ).map(drop);
    assert_eq!(opened.unwrap_err().kind, ErrorKind::Stale);
    let listed = guest.readdir(&ctx, out, (0, 0), 9, true).map(drop);
    assert_eq!(listed.unwrap_err().kind, ErrorKind::Stale);
    let stolen = guest.link(&ctx, secret, FileId::ROOT, b"stolen").map(drop);
    assert_eq!(stolen.unwrap_err().kind, ErrorKind::Stale);
    let admin = guest.administrator().map(drop);
    assert_eq!(admin.unwrap_err().kind, ErrorKind::NotAdministrator);
    assert_eq!(fs::read_to_string(own.join("out/secret")).unwrap(), "secret");
    cluster.umount("guest");
}

#[test]
fn keys_are_made_shown_and_revoked_by_name() {
    let place = Place::new();
    let cluster = place.up("one", &["--targets", "1"]);
    cluster.weir(&["mkdir", "/home"]).ok();
    cluster.weir(&["mkdir", "/home/anna"]).ok();
    let made = cluster
        .weir(&[
            "key",
            "create",
            "anna",
            "--subtree",
            "/home/anna",
            "--squash",
            "root",
            "--read-only",
        ])
        .ok();
    assert!(made.contains("read, root as 65534:65534, below /home/anna"), "{made}");
    let table = cluster.weir(&["key", "list"]).ok();
    assert!(table.contains("below /home/anna") && table.contains("administer"), "{table}");
    let rows = cluster.weir(&["key", "list", "--json"]).json();
    let anna = rows.as_array().unwrap().iter().find(|r| r["name"] == "anna").unwrap();
    assert_eq!((&anna["read_only"], &anna["squash"]), (&true.into(), &"root".into()));
    assert_eq!(anna["subtree"]["path"], "/home/anna");
    let file = anna["file"].as_str().unwrap();
    assert!(file.ends_with("clients/anna.toml"), "{file}");
    assert_eq!(place.weir(&["ls", "--credential", file, "/"]).ok(), "");

    let new = |more: &[&str]| cluster.weir(&[&["key", "create"][..], more].concat());
    new(&["anna", "-o", "other.toml"]).fails(&["anna", "already"]);
    new(&["anna"]).fails(&["anna.toml", "--output"]);
    new(&["a/b"]).fails(&["cannot be the name", "letters"]);
    new(&["--subtree", "/nowhere"]).fails(&["weir:/nowhere", "no such file"]);
    new(&["--subtree", "/"]).fails(&["leave --subtree out"]);
    new(&["--squash", "root", "--anon-uid", "0"]).fails(&["take another user"]);
    assert!(!place.path("other.toml").exists());

    cluster.weir(&["key", "revoke", "anna"]).ok();
    place.weir(&["ls", "--credential", file, "/"]).fails(&["revoked"]);
    assert!(cluster.weir(&["key", "list"]).ok().contains("nothing: revoked"));
    cluster.weir(&["key", "revoke", "bert"]).fails(&["no key 'bert'", "weir key list"]);
    cluster.weir(&["key", "revoke", "administrator"]).fails(&["its own key"]);
    // A key of which the server was never told, by its number.
    cluster.weir(&["key", "new", "-o", "plain.toml"]).ok();
    place.weir(&["ls", "--credential", "plain.toml", "/"]).ok();
    let text = fs::read_to_string(place.path("plain.toml")).unwrap();
    let number = text.lines().find_map(|line| line.strip_prefix("client = ")).unwrap();
    cluster.weir(&["key", "revoke", number]).ok();
    place.weir(&["ls", "--credential", "plain.toml", "/"]).fails(&["revoked"]);
}

#[test]
fn who_makes_a_squashed_key_is_told_whom_its_directory_has_to_belong_to() {
    let place = Place::new();
    let cluster = place.up("whose", &["--targets", "1"]);
    cluster.weir(&["mkdir", "/data"]).ok();
    let new = |name: &str, more: &[&str]| {
        cluster.weir(&[&["key", "new", name, "--subtree", "/data"], more].concat()).ok()
    };
    let owner = rustix::process::geteuid().as_raw().to_string();
    let said = new("all", &["--squash", "all"]);
    assert!(said.contains("everyone is 65534:65534 with it, who may not write in /data"), "{said}");
    assert!(said.contains("`chown 65534:65534`"), "{said}");
    let said = new("root", &["--squash", "root", "--anon-uid", "4321", "--anon-gid", "4322"]);
    assert!(said.contains("the superuser is 4321:4322") && said.contains("`chown 4321:4322`"));
    for (name, more) in [
        ("owner", &["--squash", "all", "--anon-uid", &owner][..]),
        ("reads", &["--squash", "all", "--read-only"]),
        ("none", &[]),
    ] {
        assert!(!new(name, more).contains("chown"), "{name}");
    }
}

/// What the metadata server was asked of names, attributes and files, and how often the mount read
/// the groups of a caller. (What is told a little later, closes say, is not counted.)
pub(crate) fn counted(cluster: &Cluster<'_>) -> [u64; 2] {
    let status = cluster.weir(&["status", "--json"]).json();
    let page = |address: &serde_json::Value| {
        let mut stream = TcpStream::connect(address.as_str().unwrap()).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).unwrap();
        page
    };
    let sum = |page: &str, is: &dyn Fn(&str) -> bool| {
        let lines = page.lines().filter_map(|line| line.rsplit_once(' '));
        lines.filter(|(name, _)| is(name)).map(|(_, n)| n.parse::<f64>().unwrap() as u64).sum()
    };
    let daemons = status["daemons"].as_array().unwrap();
    let meta = daemons.iter().find(|daemon| daemon["name"] == "meta").unwrap();
    let asks = ["lookup", "getattr", "readdir", "open", "xattr"];
    let is_asked = |name: &str| {
        let op = name.strip_prefix("weir_meta_requests_total{op=\"");
        op.is_some_and(|op| asks.iter().any(|ask| op.contains(ask)))
    };
    let reads = page(&status["mount_daemons"][0]["metrics"]);
    [
        sum(&page(&meta["metrics"]), &is_asked),
        sum(&reads, &|name| name == "weir_mount_group_reads_total"),
    ]
}

/// In the name of a user, by a thread of its own.
fn as_user<T: Send>(uid: u32, what: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let run = scope.spawn(|| {
            rustix::thread::set_thread_groups(&[Gid::from_raw(6001)]).unwrap();
            let (user, group) = (Uid::from_raw(uid), Gid::from_raw(uid));
            rustix::thread::set_thread_res_gid(group, group, group).unwrap();
            rustix::thread::set_thread_res_uid(user, user, user).unwrap();
            what()
        });
        run.join().unwrap()
    })
}

/// Looks at files in every way that the kernel has, and reads them.
fn look_at_all(dir: &Path) {
    let paths = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    for path in paths {
        fs::metadata(&path).unwrap();
        rustix::fs::access(&path, Access::READ_OK).unwrap();
        let names = [
            ("user.x", Errno::NODATA),
            ("security.ima", Errno::NODATA),
            ("security.selinux", Errno::OPNOTSUPP),
            ("system.posix_acl_access", Errno::NODATA),
        ];
        for (name, none) in names {
            let found = rustix::fs::getxattr(&path, name, &mut [0u8; 64][..]);
            assert_eq!(found, Err(none), "{name}");
        }
        assert_eq!(rustix::fs::listxattr(&path, &mut [0u8; 64][..]), Ok(0));
        assert_eq!(fs::read(&path).unwrap(), b"text");
    }
}

#[test]
fn a_user_costs_no_more_messages_than_root_and_groups_are_read_only_where_they_decide() {
    const FILES: u64 = 50;
    if !root() {
        return;
    }
    let place = Place::new();
    let cluster = place.up("one", &["--targets", "1", "--metrics"]);
    open_to_all(&place);
    let mnt = cluster.mount("m", "allow_other,default_permissions");
    // Those of all, and those of the user's own.
    let trees = [("public", 0), ("own", NOBODY)].map(|(name, owner)| {
        let dir = mnt.join(name);
        fs::create_dir(&dir).unwrap();
        chown(&dir, Some(owner), Some(owner)).unwrap();
        (0..FILES).for_each(|n| write(&dir.join(format!("f{n}")), "text", 0o644, (owner, owner)));
        dir
    });
    let spent = |uid: u32, dir: &Path| {
        let before = counted(&cluster);
        as_user(uid, || look_at_all(dir));
        let after = counted(&cluster);
        [after[0] - before[0], after[1] - before[1]]
    };
    for dir in &trees {
        // The first time something may be found that is kept from then on.
        spent(0, dir);
        let [of_root, _] = spent(0, dir);
        let [of_user, reads] = spent(NOBODY, dir);
        assert_eq!(of_user, of_root, "messages, in {}", dir.display());
        assert!((FILES..FILES + 10).contains(&of_root), "an open each, and a listing: {of_root}");
        assert_eq!(reads, 0, "of groups in {}", dir.display());
    }
    // What one makes of one's own takes no groups either.
    let own = &trees[1];
    let make = || {
        for n in 0..FILES {
            let path = own.join(format!("new{n}"));
            fs::write(&path, "text").unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
            fs::write(&path, "other text").unwrap();
            fs::rename(&path, own.join("newer")).unwrap();
            fs::create_dir(&path).unwrap();
            fs::remove_dir(&path).unwrap();
            symlink("x", &path).unwrap();
            fs::remove_file(&path).unwrap();
        }
    };
    let before = counted(&cluster);
    as_user(NOBODY, make);
    assert_eq!(counted(&cluster)[1] - before[1], 0, "reads of groups");
    // Where they decide they are read.
    let shared = mnt.join("shared");
    write(&shared, "text", 0o640, (0, 6001));
    let before = counted(&cluster);
    as_user(NOBODY, || assert_eq!(fs::read(&shared).unwrap(), b"text"));
    assert!(counted(&cluster)[1] > before[1]);
}

#[test]
fn what_one_mount_makes_of_the_root_counts_at_once_on_another() {
    if !root() {
        return;
    }
    let place = Place::new();
    let cluster = place.up("one", &["--targets", "1"]);
    open_to_all(&place);
    let mounts = ["m", "n"].map(|name| cluster.mount(name, "allow_other,default_permissions"));
    write(&mounts[0].join("f"), "text", 0o644, (0, 0));
    let mode = |mnt: &Path, mode| fs::set_permissions(mnt, Permissions::from_mode(mode)).unwrap();
    for round in 0..40 {
        let (one, other) = (&mounts[round % 2], &mounts[1 - round % 2]);
        for mnt in &mounts {
            as_user(NOBODY, || fs::read(mnt.join("f"))).unwrap();
        }
        mode(one, 0o700);
        for mnt in &mounts {
            fails_with(as_user(NOBODY, || fs::read(mnt.join("f"))), Errno::ACCESS);
            assert_eq!(fs::metadata(mnt).unwrap().mode() & 0o777, 0o700);
        }
        mode(other, 0o755);
        // Names change what a directory is, too: those of others and one's own.
        let before = fs::metadata(other).unwrap();
        fs::create_dir(one.join("d")).unwrap();
        for mnt in &mounts {
            let now = fs::metadata(mnt).unwrap();
            assert_eq!(now.nlink(), before.nlink() + 1, "{round}");
            assert!(now.mtime_nsec() != before.mtime_nsec() || now.mtime() > before.mtime());
        }
        fs::remove_dir(other.join("d")).unwrap();
        for mnt in &mounts {
            assert_eq!(fs::metadata(mnt).unwrap().nlink(), before.nlink(), "{round}");
        }
        // A list that shuts one user out, and none again.
        let list = |acl: &[u8]| {
            rustix::fs::setxattr(one, "system.posix_acl_access", acl, XattrFlags::empty()).unwrap();
        };
        let entries = [
            (0x01u16, 7u16, !0u32),
            (0x02, 0, NOBODY),
            (0x04, 5, !0),
            (0x10, 5, !0),
            (0x20, 5, !0),
        ];
        let mut acl = vec![2, 0, 0, 0];
        for (tag, bits, id) in entries {
            acl.extend(tag.to_le_bytes());
            acl.extend(bits.to_le_bytes());
            acl.extend(id.to_le_bytes());
        }
        list(&acl);
        for mnt in &mounts {
            fails_with(as_user(NOBODY, || fs::read(mnt.join("f"))), Errno::ACCESS);
        }
        rustix::fs::removexattr(other, "system.posix_acl_access").unwrap();
    }
}
