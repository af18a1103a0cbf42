//! The process of a mount dies, or is stopped: no call hangs, `weir status` says what to do, and
//! the next `weir mount` replaces the mount.

use crate::fault_load::Program;
use crate::harness::{
    Cluster, Place, SOON, Said, WEIR, eventually, kernel_is, kill_and_wait, noise, root, said,
};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

fn mounted(place: &Place) -> (Cluster<'_>, PathBuf) {
    let at = place.path("m");
    let cluster = place.up("over", &["--targets", "2", "--mount", at.to_str().unwrap()]);
    (cluster, at)
}

/// A program that goes on using its open file and the path of another.
fn users(place: &Place, at: &Path) -> [Program; 2] {
    let start = |call| Program::start(call, &at.join(call), place.path(call), false);
    let users = [start("read"), start("fsync")];
    eventually("they work", || users.iter().all(|user| user.report().calls > 2));
    users
}

fn quickly(command: impl FnOnce() -> Said) -> Said {
    let begin = Instant::now();
    let said = command();
    assert!(begin.elapsed() < SOON, "{:?}: {said:?}", begin.elapsed());
    said
}

/// How often the kernel has something mounted there.
fn mounts_at(path: &Path) -> usize {
    let table = fs::read_to_string("/proc/self/mounts").unwrap();
    table.lines().filter(|line| line.split(' ').nth(1) == path.to_str()).count()
}

#[test]
fn a_dead_mount_is_taken_over_though_programs_still_have_files_open_there() {
    if !root() {
        return;
    }
    let place = Place::new();
    let (cluster, at) = mounted(&place);
    let path = at.to_str().unwrap();
    fs::write(at.join("kept"), noise(1_000_000, 3)).unwrap();
    fs::File::open(at.join("kept")).unwrap().sync_all().unwrap();
    let mut users = users(&place, &at);
    cluster.kill(&cluster.mount_daemon());
    eventually("they are told", || {
        users.iter().all(|user| user.log().contains("Transport endpoint is not connected"))
    });
    let status = quickly(|| cluster.weir(&["status"]));
    let words = ["process of the mount on", path, "has ended", "`weir mount", "its log: "];
    assert!(status.code == Some(1) && words.iter().all(|w| status.out.contains(w)), "{status:?}");

    quickly(|| cluster.weir(&["mount", path])).ok();
    assert!(fs::read(at.join("kept")).unwrap() == noise(1_000_000, 3));
    assert_eq!(mounts_at(&at), 1);
    cluster.weir(&["status"]).ok();
    // What was open is not: the programs live, and go on being told.
    for user in &mut users {
        let failed = user.report().failed;
        eventually("they are told again", || user.report().failed > failed);
        assert!(!user.is_gone());
    }
    drop(users);
    cluster.weir(&["umount", path]).ok();
}

#[test]
fn a_dead_mount_that_is_in_use_can_be_unmounted() {
    if !root() {
        return;
    }
    let place = Place::new();
    let (cluster, at) = mounted(&place);
    let _users = users(&place, &at);
    cluster.kill(&cluster.mount_daemon());
    quickly(|| cluster.weir(&["umount", at.to_str().unwrap()])).ok();
    assert_eq!(mounts_at(&at), 0);
    cluster.weir(&["status"]).ok();
}

#[test]
fn a_mount_whose_metadata_server_is_away_can_be_unmounted() {
    if !root() {
        return;
    }
    let place = Place::new();
    let (cluster, at) = mounted(&place);
    cluster.kill("meta");
    quickly(|| cluster.weir(&["umount", at.to_str().unwrap()])).ok();
    assert_eq!(mounts_at(&at), 0);
}

#[test]
fn a_stopped_mount_is_named_goes_on_when_it_is_continued_and_is_taken_over_when_killed() {
    if !root() {
        return;
    }
    let place = Place::new();
    let (cluster, at) = mounted(&place);
    let path = at.to_str().unwrap();
    let mut users = users(&place, &at);
    let pid = Pid::from_raw(cluster.pid(&cluster.mount_daemon())).unwrap();
    let number = pid.as_raw_nonzero().to_string();
    let stopped = cluster.stopped(&[&cluster.mount_daemon()]);
    let advice = ["is stopped", &number, "kill -CONT"];
    let status = quickly(|| cluster.weir(&["status"]));
    assert!(status.code == Some(1) && advice.iter().all(|w| status.out.contains(w)), "{status:?}");
    quickly(|| cluster.weir(&["mount", path])).fails(&advice);
    quickly(|| cluster.weir(&["umount", path])).fails(&advice);
    drop(stopped);
    let before: Vec<u64> = users.iter().map(|user| user.report().calls).collect();
    let go_on = || users.iter().zip(&before).all(|(user, before)| user.report().calls > before + 2);
    eventually("its users go on", go_on);
    assert!(users.iter().all(|user| user.report().failed == 0));

    kill_process(pid, Signal::STOP).unwrap();
    cluster.kill(&cluster.mount_daemon());
    quickly(|| cluster.weir(&["mount", path])).ok();
    assert_eq!(fs::read(at.join("read/file")).unwrap(), noise(1 << 20, 1));
    for user in &mut users {
        eventually("they are told", || user.report().failed > 0);
        assert!(!user.is_gone());
    }
}

#[test]
fn of_several_mount_commands_at_once_one_wins_and_the_others_say_so() {
    if !root() {
        return;
    }
    let place = Place::new();
    let (cluster, at) = mounted(&place);
    let path = at.to_str().unwrap();
    fs::write(at.join("kept"), "kept").unwrap();
    for dead in [true, false] {
        match dead {
            true => cluster.kill(&cluster.mount_daemon()),
            false => drop(cluster.weir(&["umount", path]).ok()),
        }
        let start = |_| {
            let mut command = cluster.command(&["mount", path]);
            command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let commands: Vec<_> = (0..4).map(start).collect();
        let ends: Vec<_> = commands.into_iter().map(|c| c.wait_with_output().unwrap()).collect();
        let (won, lost): (Vec<_>, Vec<_>) = ends.into_iter().partition(|e| e.status.success());
        assert_eq!(won.len(), 1, "{lost:?}");
        for output in lost {
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(said.contains("a Weir is mounted here already"), "{said}");
        }
        assert_eq!(mounts_at(&at), 1);
        assert_eq!(fs::read_to_string(at.join("kept")).unwrap(), "kept");
        cluster.weir(&["status"]).ok();
    }
}

/// Stops the programs, also when the test panics.
struct Stopping<'a>(&'a AtomicBool);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Makes files, one after the other, until it is told to stop; those that are durable are noted.
fn make_files(at: &Path, me: usize, stop: &AtomicBool) -> Vec<String> {
    let mut made = Vec::new();
    for n in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let name = format!("file-{me}-{n}");
        let durable = fs::File::create_new(at.join(&name)).and_then(|mut file| {
            file.write_all(name.as_bytes())?;
            file.sync_all()
        });
        match durable {
            Ok(()) => made.push(name),
            Err(error) => {
                assert_ne!(error.kind(), ErrorKind::NotFound, "{name}: the mountpoint is bare");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
    made
}

#[test]
fn nothing_lands_below_the_mountpoint_while_a_dead_mount_is_taken_over() {
    if !root() || !kernel_is((6, 5)) {
        return;
    }
    let place = Place::new();
    let (cluster, at) = mounted(&place);
    let path = at.to_str().unwrap();
    let stop = AtomicBool::new(false);
    let made: Vec<String> = std::thread::scope(|scope| {
        let programs = [0, 1, 2, 3].map(|me| {
            let (at, stop) = (&at, &stop);
            scope.spawn(move || make_files(at, me, stop))
        });
        let stopping = Stopping(&stop);
        for _ in 0..6 {
            cluster.kill(&cluster.mount_daemon());
            cluster.weir(&["mount", path]).ok();
            assert_eq!(mounts_at(&at), 1);
        }
        drop(stopping);
        programs.into_iter().flat_map(|program| program.join().unwrap()).collect()
    });
    let lost: Vec<&String> = made.iter().filter(|name| !at.join(name).exists()).collect();
    assert!(
        lost.is_empty(),
        "{} of {} files are not on the mount: {lost:?}",
        lost.len(),
        made.len()
    );
    cluster.weir(&["umount", path]).ok();
    assert_eq!(fs::read_dir(&at).unwrap().count(), 0, "in the bare directory");
}

const NOBODY: u32 = 65_534;

/// An ordinary user with a mount of its own.
struct Nobody<'a> {
    place: &'a Place,
    at: PathBuf,
}

impl<'a> Nobody<'a> {
    /// `None`, said, where no ordinary user can mount.
    fn new(place: &'a Place, cluster: &Cluster<'_>) -> Option<Self> {
        let has_helper = Command::new("fusermount3").arg("-V").output().is_ok();
        let device = fs::metadata("/dev/fuse").unwrap().permissions().mode();
        if !root() || !has_helper || device & 0o006 != 0o006 {
            eprintln!("skipped: needs root, fusermount3, and a /dev/fuse that everyone may open");
            return None;
        }
        fs::set_permissions(place.path(""), fs::Permissions::from_mode(0o755)).unwrap();
        let of_user = ["home", "m", "client.toml"];
        of_user[..2].iter().for_each(|name| fs::create_dir(place.path(name)).unwrap());
        fs::copy(cluster.dir().join("client.toml"), place.path("client.toml")).unwrap();
        for name in of_user {
            chown(place.path(name), Some(NOBODY), Some(NOBODY)).unwrap();
        }
        // A user may not see where this program was built. (By a program: see `fuse_session.rs`.)
        let mut copy = Command::new("cp");
        assert!(copy.arg(WEIR).arg(place.path("weir")).status().unwrap().success());
        // Some program makes a file just when nothing is mounted.
        fs::create_dir(place.path("bin")).unwrap();
        let helper = "#!/bin/sh
            for last; do :; done
            [ -z \"$LANDS\" ] || [ \"$1\" != -o ] || echo text > \"$last/$LANDS\"
            PATH=${PATH#*:}; export PATH; exec fusermount3 \"$@\"\n";
        let mut copy = Command::new("sh");
        copy.args(["-c", "printf %s \"$0\" > bin/fusermount3; chmod 755 bin/fusermount3", helper]);
        assert!(copy.current_dir(place.path("")).status().unwrap().success());
        Some(Self { place, at: place.path("m") })
    }

    /// What `weir` says to it, when a file of this name lands in the bare directory.
    fn weir(&self, arguments: &[&str], lands: &str) -> Said {
        let mut command = Command::new("setpriv");
        command.args([format!("--reuid={NOBODY}"), format!("--regid={NOBODY}")]);
        command.args(["--clear-groups", "--"]).arg(self.place.path("weir")).args(arguments);
        self.place.prepare(&mut command);
        let path = std::env::var("PATH").unwrap();
        command.env("PATH", format!("{}:{path}", self.place.path("bin").display()));
        command.env("LANDS", lands).env("XDG_STATE_HOME", self.place.path("home"));
        said(command)
    }

    fn mount(&self, lands: &str) -> Said {
        self.weir(&["mount", "--credential", "client.toml", self.at.to_str().unwrap()], lands)
    }

    /// A file of its mount's process, with this ending.
    fn text(&self, ending: &str) -> String {
        let found = fs::read_dir(self.place.path("home/weir/.mounts")).unwrap().flatten();
        let mut found = found.map(|file| file.path());
        let file = found.find(|file| file.extension().is_some_and(|is| is == ending)).unwrap();
        fs::read_to_string(file).unwrap()
    }
}

impl Drop for Nobody<'_> {
    fn drop(&mut self) {
        // Its process ends then.
        let _ = rustix::mount::unmount(&self.at, rustix::mount::UnmountFlags::DETACH);
    }
}

#[test]
fn what_lands_below_an_ordinary_users_dead_mount_while_it_is_taken_over_is_named() {
    let place = Place::new();
    let cluster = place.up("over", &["--targets", "1"]);
    let Some(user) = Nobody::new(&place, &cluster) else { return };
    fs::write(user.at.join("was there"), "").unwrap();
    user.mount("").ok();
    for (lands, names) in [("", false), ("landed", true), ("", false)] {
        let pid = user.text("pid").split_whitespace().next().unwrap().parse().unwrap();
        kill_and_wait(pid);
        let said = user.mount(lands);
        assert_eq!(said.code, Some(0), "{said:?}");
        assert_eq!(mounts_at(&user.at), 1);
        let advice = format!("`weir umount {}`", user.at.display());
        let all = ["\"landed\" came into the directory below", "hides", &advice];
        for words in all {
            assert_eq!(said.err.contains(words), names, "{said:?}");
        }
        assert!(!said.err.contains("was there"), "{said:?}");
    }
    let log = user.text("log");
    assert_eq!(log.matches("\"landed\" came into the directory below").count(), 1, "{log}");
    user.weir(&["umount", user.at.to_str().unwrap()], "").ok();
    assert_eq!(fs::read_to_string(user.at.join("landed")).unwrap(), "text\n");
}

/// How the kernel has mounted it, without the numbers that are of no other mount.
fn options_of(at: &Path) -> (String, String) {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let is_there = |line: &&str| line.split(' ').nth(4) == at.to_str();
    let line = table.lines().find(is_there).unwrap();
    let (of_mount, of_kind) = line.split_once(" - ").unwrap();
    (of_mount.split(' ').nth(5).unwrap().to_owned(), of_kind.to_owned())
}

#[test]
fn a_mount_that_takes_over_has_the_options_that_are_asked_for() {
    if !root() {
        return;
    }
    let place = Place::new();
    let (cluster, at) = mounted(&place);
    let path = at.to_str().unwrap();
    for options in ["", "ro,noexec,noatime", "suid,dev,nodiratime", "strictatime"] {
        cluster.weir(&["umount", path]).ok();
        cluster.weir(&["mount", "-o", options, path]).ok();
        let anew = options_of(&at);
        cluster.kill(&cluster.mount_daemon());
        cluster.weir(&["mount", "-o", options, path]).ok();
        assert_eq!(options_of(&at), anew, "{options}");
    }
}
