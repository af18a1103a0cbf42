//! Quotas on real mounts: who is stopped where, with which error, what makes room again, and
//! that what is counted is what there is, also after `kill -9` of everything.

use crate::coherence_io::{Block, open_direct};
use crate::harness::{
    self, Cluster, Place, Running, Said, eventually, eventually_within, noise, root, said,
};
use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

const MIB: u64 = 1 << 20;
const ALICE: u32 = 5001;
const BOB: u32 = 5002;

/// A command of another user, whose group has the same number.
fn command_by(uid: u32, command: &[&str]) -> Command {
    let mut setpriv = Command::new("setpriv");
    setpriv.arg(format!("--reuid={uid}")).arg(format!("--regid={uid}")).arg("--clear-groups");
    setpriv.arg("--").args(command).stdin(Stdio::null());
    setpriv
}

fn by(uid: u32, command: &[&str]) -> Said {
    said(command_by(uid, command))
}

#[track_caller]
fn is_exceeded(said: Said) {
    let told = said.err.contains("Disk quota exceeded");
    assert!(said.code != Some(0) && told, "it has to be stopped by its quota: {said:?}");
}

fn dd(uid: u32, to: &Path, kib: u64) -> Said {
    let of = format!("of={}", to.display());
    by(uid, &["dd", "if=/dev/zero", &of, "bs=64K", &format!("count={}", kib / 64), "status=none"])
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A cluster with a mount, and a directory there that all may write to.
fn start<'a>(place: &'a Place, name: &str) -> (Cluster<'a>, PathBuf, PathBuf) {
    let cluster = place.up(name, &["--targets", "2"]);
    fs::set_permissions(place.path("."), Permissions::from_mode(0o755)).unwrap();
    let mount = cluster.mount("m", "allow_other");
    let all = mount.join("all");
    fs::create_dir(&all).unwrap();
    fs::set_permissions(&all, Permissions::from_mode(0o777)).unwrap();
    (cluster, mount, all)
}

/// Bytes and files that a quota counts.
fn used(cluster: &Cluster<'_>, kind: &str, name: &str) -> (u64, u64) {
    let all = cluster.weir(&["quota", "list", "--json"]).json();
    let is_it = |quota: &&serde_json::Value| quota["kind"] == kind && quota["name"] == name;
    let found = all.as_array().unwrap().iter().find(is_it).unwrap_or_else(|| panic!("{all}"));
    assert_eq!(found["counting"], false);
    (found["used_bytes"].as_u64().unwrap(), found["used_files"].as_u64().unwrap())
}

/// The same as `find` sees them: sizes of regular files, and everything that there is.
fn there(dir: &Path, is_counted: &dyn Fn(&fs::Metadata) -> bool) -> (u64, u64) {
    let own = fs::symlink_metadata(dir).unwrap();
    let mut sum = if is_counted(&own) { (0, 1) } else { (0, 0) };
    for entry in fs::read_dir(dir).unwrap() {
        let (entry, meta) = entry.map(|e| (e.path(), e.metadata().unwrap())).unwrap();
        let more = match meta.is_dir() {
            true => there(&entry, is_counted),
            false if !is_counted(&meta) => (0, 0),
            false => (if meta.is_file() { meta.len() } else { 0 }, 1),
        };
        sum = (sum.0 + more.0, sum.1 + more.1);
    }
    sum
}

#[test]
fn whoever_has_used_up_a_quota_is_told_so_and_goes_on_when_there_is_room() {
    if !root() {
        return;
    }
    let place = Place::new();
    let (cluster, mount, all) = start(&place, "stop");
    // One that is there before is counted, too.
    by(ALICE, &["touch", text(&all.join("before"))]).ok();
    cluster.weir(&["quota", "set", "user:5001", "--bytes", "4M", "--files", "4", "--wait"]).ok();
    // One's own is shown without a word more: nobody has limited who asks here.
    assert_eq!(cluster.weir(&["quota", "--json"]).json(), serde_json::json!([]));
    let (a, b) = (all.join("a"), all.join("b"));
    is_exceeded(dd(ALICE, &a, 5120));
    assert_eq!(fs::metadata(&a).unwrap().len(), 4 * MIB, "all that the quota allows, and no more");
    is_exceeded(dd(ALICE, &b, 64));
    assert_eq!(fs::metadata(&b).unwrap().len(), 0);
    // Others are not concerned, nor is the superuser, who is counted all the same.
    dd(BOB, &all.join("bobs"), 5120).ok();
    dd(0, &a, 5120).ok();
    assert_eq!(used(&cluster, "user", "5001"), (5 * MIB, 3));
    // A file that is sparse counts as long as it is; what makes it longer is refused at once.
    is_exceeded(by(ALICE, &["truncate", "-s", "6M", text(&a)]));
    is_exceeded(by(ALICE, &["fallocate", "-l", "6M", text(&b)]));
    by(ALICE, &["truncate", "-s", "1M", text(&a)]).ok();
    dd(ALICE, &b, 2048).ok();
    by(ALICE, &["rm", text(&b)]).ok();
    dd(ALICE, &b, 3072).ok();
    is_exceeded(by(ALICE, &["cp", "--sparse=never", text(&b), text(&all.join("c"))]));
    by(ALICE, &["rm", "-f", text(&all.join("c"))]).ok();
    // Files: of any kind, and no further names.
    by(ALICE, &["ln", "-s", "x", text(&all.join("link"))]).ok();
    is_exceeded(by(ALICE, &["mkdir", text(&all.join("dir"))]));
    by(ALICE, &["ln", text(&a), text(&all.join("again"))]).ok();
    by(ALICE, &["rm", text(&all.join("link"))]).ok();
    by(ALICE, &["mkdir", text(&all.join("dir"))]).ok();
    // What is given away counts for who has it then.
    chown(&b, Some(BOB), None).unwrap();
    dd(ALICE, &all.join("dir/b"), 64).ok();
    is_exceeded(dd(ALICE, &all.join("fifth"), 64));
    by(ALICE, &["rm", text(&all.join("before")), text(&all.join("again"))]).ok();
    dd(ALICE, &all.join("dir/b"), 3072).ok();
    is_exceeded(dd(ALICE, &all.join("dir/b"), 3136));

    // A group, whoever writes.
    cluster.weir(&["quota", "set", "group:5002", "--bytes", "7M", "--wait"]).ok();
    is_exceeded(dd(BOB, &all.join("more"), 4096));
    let counted = there(&mount, &|meta| meta.gid() == BOB);
    assert_eq!(counted.0, 7 * MIB);
    assert_eq!(used(&cluster, "group", "5002"), counted);

    let list = cluster.weir(&["quota", "ls"]).ok();
    assert!(list.contains("user:5001") && list.contains("group:5002"), "{list}");
    cluster.weir(&["quota", "rm", "user:5001"]).ok();
    dd(ALICE, &all.join("dir/b"), 8192).ok();
    cluster.weir(&["quota", "rm", "user:5001"]).fails(&["has no quota"]);
    cluster
        .weir(&["quota", "set", "user:nobody-of-that-name", "--files", "1"])
        .fails(&["knows no"]);
    let well = cluster.weir(&["fsck", "--quiet"]).ok();
    assert!(well.contains("all is well"), "{well}");
}

#[test]
fn a_directory_has_its_quota_with_all_that_is_below() {
    if !root() {
        return;
    }
    let place = Place::new();
    let (cluster, mount, all) = start(&place, "dirs");
    let (project, deep) = (all.join("project"), all.join("project/x/y"));
    by(ALICE, &["mkdir", "-p", text(&deep)]).ok();
    dd(ALICE, &deep.join("old"), 1024).ok();
    cluster
        .weir(&["quota", "set", "dir:/all/project", "--bytes", "4M", "--files", "10", "--wait"])
        .ok();
    assert_eq!(used(&cluster, "dir", "/all/project"), (MIB, 4));
    fs::set_permissions(&deep, Permissions::from_mode(0o777)).unwrap();
    is_exceeded(dd(BOB, &deep.join("bobs"), 4096));
    assert_eq!(fs::metadata(deep.join("bobs")).unwrap().len(), 3 * MIB);
    // As df sees it there, and elsewhere.
    let shown = harness::said({
        let mut df = Command::new("df");
        df.args(["--block-size=1", "--output=size", text(&deep)]);
        df
    });
    assert_eq!(shown.ok().lines().nth(1).map(str::trim), Some(&*(4 * MIB).to_string()));
    let space = rustix::fs::statvfs(&deep).unwrap();
    assert_eq!((space.f_blocks * space.f_frsize, space.f_bfree), (4 * MIB, 0));
    assert!(rustix::fs::statvfs(&mount).unwrap().f_blocks * space.f_frsize > 64 * MIB);
    // Out of it and into it: a file moves, a directory is copied by mv.
    fs::rename(deep.join("bobs"), all.join("bobs")).unwrap();
    assert_eq!(used(&cluster, "dir", "/all/project"), (MIB, 4));
    let error = fs::rename(project.join("x"), all.join("x")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EXDEV));
    by(ALICE, &["mv", text(&project.join("x")), text(&all.join("x"))]).ok();
    // What was removed goes when the metadata server hears that it is closed.
    eventually("it is closed", || used(&cluster, "dir", "/all/project") == (0, 1));
    assert_eq!(fs::metadata(all.join("x/y/old")).unwrap().len(), MIB);
    let moved = by(BOB, &["mv", text(&all.join("bobs")), text(&project.join("bobs"))]);
    assert!(moved.code != Some(0), "the directory is Alice's: {moved:?}");
    fs::rename(all.join("bobs"), project.join("bobs")).unwrap();
    cluster.weir(&["quota", "set", "dir:/all/project", "--bytes", "3M"]).ok();
    is_exceeded(by(ALICE, &["mv", text(&all.join("x/y/old")), text(&project)]));
    // It is renamed, and counts on; who asks for his own sees none.
    fs::rename(&project, all.join("renamed")).unwrap();
    assert_eq!(used(&cluster, "dir", "/all/renamed"), (3 * MIB, 2));
    let own = cluster.weir(&["quota"]).ok();
    assert!(own.contains("no quota for you"), "{own}");
    fs::remove_file(all.join("renamed/bobs")).unwrap();
    fs::remove_dir(all.join("renamed")).unwrap();
    assert_eq!(cluster.weir(&["quota", "ls", "--json"]).json(), serde_json::json!([]));
    cluster.weir(&["fsck", "--quiet"]).ok();
}

#[test]
fn two_mounts_that_write_at_once_write_no_more_than_the_quota_allows() {
    if !root() {
        return;
    }
    let place = Place::new();
    let (cluster, _, all) = start(&place, "two");
    let other = cluster.mount("n", "allow_other").join("all");
    cluster.weir(&["quota", "set", "dir:/all", "--bytes", "96M", "--wait"]).ok();
    let mut writers = Vec::new();
    for (number, dir) in [&all, &other, &all, &other].into_iter().enumerate() {
        let of = format!("of={}", dir.join(format!("file{number}")).display());
        let mut dd = command_by(ALICE, &["dd", "if=/dev/zero", &of, "bs=256K", "count=400"]);
        writers.push(dd.stderr(Stdio::piped()).spawn().unwrap());
    }
    for writer in writers {
        let told = writer.wait_with_output().unwrap();
        let err = String::from_utf8_lossy(&told.stderr).into_owned();
        assert!(!told.status.success() && err.contains("Disk quota exceeded"), "{err}");
    }
    let (bytes, files) = there(&all, &|_| true);
    assert!(bytes <= 96 * MIB, "{bytes} bytes are more than the quota");
    assert!(bytes > 80 * MIB, "{bytes} bytes: much is left of the quota");
    assert_eq!(used(&cluster, "dir", "/all"), (bytes, files));
}

#[test]
fn what_is_counted_is_what_there_is_after_every_process_was_killed_once() {
    if !root() {
        return;
    }
    let place = Place::new();
    let (cluster, _, all) = start(&place, "kills");
    let second = cluster.mount("n", "allow_other");
    cluster.weir(&["quota", "set", "user:5001", "--bytes", "1G", "--wait"]).ok();
    cluster.weir(&["quota", "set", "dir:/all", "--files", "100000", "--wait"]).ok();
    // Files come, grow, are cut and go, on both mounts, until they are stopped.
    let churn = "i=0; while :; do i=$((i+1)); f=$0/$1-$((i%40)); \
                 dd if=/dev/zero of=$f bs=64K count=$((i%30+1)) status=none 2>/dev/null; \
                 [ $((i%3)) = 0 ] && rm -f $0/$1-$(((i+7)%40)); \
                 [ $((i%5)) = 0 ] && truncate -s 100K $0/$1-$(((i+3)%40)) 2>/dev/null; \
                 [ $((i%7)) = 0 ] && ln -s x $0/$1-link-$i; done";
    let start_churn = |dir: &Path, name: &str| {
        let mut command = command_by(ALICE, &["sh", "-c", churn, text(dir), name]);
        Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    };
    let on_first = start_churn(&all, "a");
    let on_second = start_churn(&second.join("all"), "b");
    let files = || used(&cluster, "dir", "/all").1;
    let goes_on = |what: &str| {
        let before = fs::metadata(&all).unwrap().mtime();
        eventually(what, || {
            fs::metadata(&all).is_ok_and(|meta| meta.mtime() > before) && files() > 1
        });
    };
    goes_on("there are files");
    for daemon in ["meta", "data-1"] {
        cluster.kill(daemon);
        cluster.weir(&["up"]).ok();
        goes_on(daemon);
    }
    harness::kill_and_wait(cluster.mount_pid(&second));
    drop(on_second);
    goes_on("the other mount");
    drop(on_first);
    // What the dead one had sent is found when somebody asks for the files.
    eventually_within(Duration::from_secs(60), "all is counted", || {
        used(&cluster, "dir", "/all") == there(&all, &|_| true)
            && used(&cluster, "user", "5001") == there(&all, &|meta| meta.uid() == ALICE)
    });
    let well = cluster.weir(&["fsck", "--quiet"]).ok();
    assert!(well.contains("all is well"), "{well}");
}

/// What Python does in the name of Alice, with what is given to it.
fn python(script: &str, given: &[&Path]) -> Command {
    let given: Vec<&str> = given.iter().map(|path| text(path)).collect();
    let all = format!("import os, sys, time\n{script}");
    command_by(ALICE, &[&["/usr/bin/python3", "-c", &all], &given[..]].concat())
}

#[test]
fn a_descriptor_is_no_way_round_a_quota() {
    if !root() {
        return;
    }
    let place = Place::new();
    let (cluster, _, all) = start(&place, "ways");
    let other = cluster.mount("n", "allow_other").join("all");
    // Opened before there is a quota, and made longer when there is one.
    let ready = all.join("ready");
    let script = "f = os.open(sys.argv[1], os.O_CREAT | os.O_RDWR)\n\
                  os.close(os.open(sys.argv[2], os.O_CREAT))\n\
                  while os.path.exists(sys.argv[2]): time.sleep(0.02)\n\
                  os.ftruncate(f, 1 << 40)";
    let mut early = python(script, &[&all.join("early"), &ready]);
    let early = early.stderr(Stdio::piped()).spawn().unwrap();
    eventually("it is open", || ready.exists());
    cluster.weir(&["quota", "set", "user:5001", "--bytes", "4M", "--wait"]).ok();
    fs::remove_file(&ready).unwrap();
    let told = early.wait_with_output().unwrap();
    let err = String::from_utf8_lossy(&told.stderr).into_owned();
    assert!(err.contains("Disk quota exceeded"), "{err}");
    // What another mount has cut off has been given to another file.
    let fill = "def fill(fd):\n\
                \u{20}   at = 0\n\
                \u{20}   while at < 3 << 20: at += os.pwrite(fd, bytes((3 << 20) - at), at)\n\
                \u{20}   os.fsync(fd)\n";
    let script = format!("{fill}fill(os.open(sys.argv[1], os.O_CREAT | os.O_RDWR))");
    said(python(&script, &[&all.join("f")])).ok();
    let granted = || {
        let quotas = cluster.weir(&["quota", "list", "--json"]).json();
        quotas[0]["granted_bytes"].as_u64()
    };
    eventually("what was granted for it is given back", || granted() == Some(0));
    let script = format!(
        "{fill}f = os.open(sys.argv[1], os.O_RDWR)\n\
         os.truncate(sys.argv[2], 0)\n\
         g = os.open(sys.argv[3], os.O_CREAT | os.O_RDWR); fill(g); print('filled')\n\
         fill(f)"
    );
    let told = said(python(&script, &[&all.join("f"), &other.join("f"), &other.join("g")]));
    assert_eq!(told.out, "filled\n", "{told:?}");
    is_exceeded(told);
    assert!(used(&cluster, "user", "5001").0 <= 4 * MIB);
    // By path: whoever else has it open, and for what.
    fs::remove_file(other.join("g")).unwrap();
    eventually("it is gone", || used(&cluster, "user", "5001").0 <= MIB);
    let script = "f = os.open(sys.argv[1], os.O_RDONLY)\n\
                  os.truncate(sys.argv[1], 2 << 20)\n\
                  os.truncate(sys.argv[1], 8 << 20)";
    is_exceeded(said(python(script, &[&all.join("f")])));
    assert_eq!(fs::metadata(all.join("f")).unwrap().len(), 2 * MIB);
    cluster.weir(&["fsck", "--quiet"]).ok();
}

/// The kernel takes a direct write past the end back when it has failed: it cuts the file to the
/// end that it knew, behind which another mount may have written.
#[test]
fn a_direct_write_that_is_refused_leaves_what_another_mount_wrote() {
    if !root() {
        return;
    }
    let place = Place::new();
    let (cluster, _, all) = start(&place, "refused");
    let others = cluster.mount("other", "allow_other").join("all/f");
    cluster.weir(&["quota", "set", "user:5001", "--bytes", "4M", "--wait"]).ok();
    let bytes = noise(MIB as usize, 1);
    let alice = || {
        // SAFETY: of this thread alone.
        unsafe { libc::setfsuid(ALICE) };
        fs::write(all.join("f"), "").unwrap();
        let file = open_direct(&all.join("f"));
        fs::write(&others, &bytes).unwrap();
        let refused = |at| file.write_all_at(&Block::of(9).0, at).unwrap_err().raw_os_error();
        assert_eq!(refused(64 * MIB), Some(libc::EDQUOT));
        assert_eq!(fs::metadata(&others).unwrap().len(), MIB);
        assert!(fs::read(&others).unwrap() == bytes);
        // A program that cuts is another thing.
        assert_eq!(refused(64 * MIB), Some(libc::EDQUOT));
        file.set_len(1000).unwrap();
        assert_eq!(fs::metadata(&others).unwrap().len(), 1000);
        assert_eq!(refused(64 * MIB), Some(libc::EDQUOT));
        file.set_len(0).unwrap();
        assert_eq!(fs::metadata(&others).unwrap().len(), 0);
    };
    std::thread::scope(|scope| scope.spawn(alice).join().unwrap());
}

/// The kernel takes nothing back of an append. What the program asks for next is done.
#[test]
fn a_program_sets_the_size_it_wants_after_a_write_that_was_refused() {
    if !root() {
        return;
    }
    let place = Place::new();
    let (cluster, _, all) = start(&place, "appends");
    let others = cluster.mount("other", "allow_other").join("all/f");
    let limit = |bytes| {
        cluster.weir(&["quota", "set", "user:5001", "--bytes", bytes, "--wait"]).ok();
    };
    limit("4M");
    let bytes = noise(4 * MIB as usize, 1);
    let (is_refused, refused) = mpsc::channel();
    let (is_raised, raised) = mpsc::channel();
    let (all, others) = (&all, &others);
    std::thread::scope(|scope| {
        let alice = scope.spawn(move || {
            // SAFETY: of this thread alone.
            unsafe { libc::setfsuid(ALICE) };
            let mut file = File::options().create(true).append(true).open(all.join("f")).unwrap();
            fs::write(others, &bytes).unwrap();
            assert_eq!(file.metadata().unwrap().len(), 4 * MIB, "the kernel knows the end");
            let refused = file.write_all(&noise(4096, 2)).unwrap_err();
            is_refused.send(refused.raw_os_error()).unwrap();
            raised.recv().unwrap();
            // (The standard library asks again when it is told EINTR.)
            file.set_len(4 * MIB + 100).unwrap();
            assert_eq!(fs::metadata(others).unwrap().len(), 4 * MIB + 100);
        });
        assert_eq!(refused.recv().unwrap(), Some(libc::EDQUOT));
        limit("8M");
        is_raised.send(()).unwrap();
        alice.join().unwrap();
    });
}

#[test]
fn a_user_without_a_key_sees_on_a_mount_what_he_may_have() {
    if !root() {
        return;
    }
    let place = Place::new();
    let (cluster, mount, all) = start(&place, "shows");
    // Where users can run it.
    let program = place.path("weir-of-users");
    fs::copy(harness::WEIR, &program).unwrap();
    let weir = |uid: u32, at: &Path, more: &str| {
        let home = "unset XDG_STATE_HOME XDG_CONFIG_HOME; HOME=/nonexistent; export HOME";
        let script = format!("{home}; cd '{}' && exec '{}' quota {more}", text(at), text(&program));
        by(uid, &["sh", "-c", &script])
    };
    assert!(weir(ALICE, &all, "").ok().contains("no quota for you"));
    cluster.weir(&["quota", "set", "user:5001", "--bytes", "4M", "--files", "9", "--wait"]).ok();
    cluster.weir(&["quota", "set", "dir:/all", "--bytes", "64M", "--wait"]).ok();
    dd(ALICE, &all.join("a"), 1024).ok();
    let rows = |said: Said| -> Vec<(String, u64, u64)> {
        let json = said.json();
        let number = |row: &serde_json::Value, name: &str| row[name].as_u64().unwrap_or(0);
        let row = |row: &serde_json::Value| {
            let kind = row["kind"].as_str().unwrap().to_owned();
            (kind, number(row, "used_bytes"), number(row, "limit_bytes"))
        };
        json.as_array().unwrap().iter().map(row).collect()
    };
    let of_alice = ("user".to_owned(), MIB, 4 * MIB);
    let of_all = ("dir".to_owned(), MIB, 64 * MIB);
    eventually("it is counted", || rows(weir(ALICE, &all, "--json"))[0] == of_alice);
    assert_eq!(rows(weir(ALICE, &all, "--json")), [of_alice.clone(), of_all.clone()]);
    assert_eq!(rows(weir(ALICE, &mount, "--json")), std::slice::from_ref(&of_alice));
    assert_eq!(rows(weir(BOB, &all, "--json")), std::slice::from_ref(&of_all));
    // By the path, from anywhere.
    let there = format!("--json '{}'", text(&all));
    assert_eq!(rows(weir(ALICE, Path::new("/"), &there)), [of_alice, of_all]);
    let said = weir(ALICE, &all, "").ok();
    assert!(said.contains("user:5001") && said.contains("4.0M") && said.contains("64M"), "{said}");
    weir(ALICE, &all, "/").fails(&["not in a mounted Weir"]);
}
