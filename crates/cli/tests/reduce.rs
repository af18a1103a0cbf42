//! `weir reduce` over directories, with files lost and rotten, and killed while it works.

use crate::harness::{Place, WEIR};
use serde_json::Value;
use std::fs::{File, FileTimes};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const DIRS: usize = 10;

/// Ten directories, and files with three copies each.
fn directories(root: &Path, files: usize, len: usize) -> Vec<PathBuf> {
    let dirs: Vec<PathBuf> = (0..DIRS).map(|i| root.join(format!("disk{i}"))).collect();
    for dir in &dirs {
        std::fs::create_dir_all(dir.join("data")).unwrap();
    }
    for file in 0..files {
        for copy in 0..3 {
            let path = dirs[(file + copy * (1 + file / DIRS)) % DIRS].join(name(file));
            std::fs::write(path, bytes(file, len)).unwrap();
        }
    }
    dirs
}

fn name(file: usize) -> String {
    format!("data/file-{file}")
}

fn bytes(file: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * (2 * file + 1) + (at >> 9)) as u8).collect()
}

/// Every file has a copy, and each copy its bytes.
fn check(dirs: &[PathBuf], files: usize, len: usize) {
    for file in 0..files {
        let copies = dirs.iter().map(|dir| dir.join(name(file))).filter(|path| path.exists());
        let copies: Vec<Vec<u8>> = copies.map(|path| std::fs::read(path).unwrap()).collect();
        assert!(!copies.is_empty(), "{} is gone", name(file));
        assert!(copies.iter().all(|copy| *copy == bytes(file, len)), "{} differs", name(file));
    }
}

fn reduce<'a>(words: &[&'a str], dirs: &'a [PathBuf]) -> Vec<&'a str> {
    let dirs = dirs.iter().map(|dir| dir.to_str().unwrap());
    ["reduce"].into_iter().chain(words.iter().copied()).chain(dirs).collect()
}

fn json(place: &Place, words: &[&str], dirs: &[PathBuf]) -> Value {
    serde_json::from_str(&place.weir(&reduce(words, dirs)).ok()).unwrap()
}

#[test]
fn copies_become_parities_and_lost_and_rotten_files_come_back() {
    let place = Place::new();
    let root = tempfile::tempdir().unwrap();
    let dirs = directories(root.path(), 16, 300_000);
    let done = json(&place, &["encode", "--code", "raid6:8", "--json", "--quiet"], &dirs);
    assert_eq!((done["sets"].as_u64(), done["removed_copies"].as_u64()), (Some(2), Some(32)));
    let status = json(&place, &["status", "--json"], &dirs);
    assert_eq!(status["percent"].as_f64(), Some(25.0));
    assert_eq!(json(&place, &["verify", "--json", "-q"], &dirs)["findings"], Value::Array(vec![]));
    // One rots, one is removed, and a disk is replaced by an empty one.
    let rotten = dirs.iter().map(|dir| dir.join(name(3))).find(|path| path.exists()).unwrap();
    let file = File::options().write(true).open(&rotten).unwrap();
    let modified = file.metadata().unwrap().modified().unwrap();
    file.write_all_at(b"rot", 123_456).unwrap();
    file.set_times(FileTimes::new().set_modified(modified)).unwrap();
    std::fs::remove_dir_all(&dirs[6]).unwrap();
    std::fs::create_dir(&dirs[6]).unwrap();
    let said = ["rotten: data/file-3", "missing: data/file-", "weir reduce repair"];
    place.weir(&reduce(&["verify"], &dirs)).fails(&said);
    place.weir(&reduce(&["encode"], &dirs)).fails(&["target 6 was not given"]);
    let repaired = json(&place, &["repair", "--json", "--quiet"], &dirs);
    assert_eq!(repaired["left"], Value::Array(vec![]), "{repaired}");
    check(&dirs, 16, 300_000);
    place.weir(&reduce(&["verify", "--quiet"], &dirs)).ok();
    // A file that somebody removes comes back unless it is said to be gone.
    let gone = dirs.iter().map(|dir| dir.join(name(5))).find(|path| path.exists()).unwrap();
    std::fs::remove_file(&gone).unwrap();
    place.weir(&reduce(&["encode", "--forget", "./data/file-5"], &dirs)).fails(&["no set has"]);
    place.weir(&reduce(&["encode", "--forget", "data/file-5"], &dirs)).ok();
    place.weir(&reduce(&["repair"], &dirs)).ok();
    assert!(!gone.exists());
    let few = ["at least 10 targets, there are 4"];
    place.weir(&reduce(&["encode"], &dirs[..4])).fails(&few);
}

#[test]
fn removed_files_stay_in_sets_until_enough_is_removed_and_do_not_come_back() {
    let place = Place::new();
    let root = tempfile::tempdir().unwrap();
    let dirs = directories(root.path(), 8, 100_000);
    place.weir(&reduce(&["encode"], &dirs)).ok();
    let said = place.weir(&reduce(&["remove", "--file", "data/file-0"], &dirs)).ok();
    assert!(said.contains("removed 1 files of sets, whose 98K stay"), "{said}");
    let files = ["remove", "--file", "data/file-1", "--file", "data/file-2", "--json"];
    let done = json(&place, &files, &dirs);
    assert_eq!((done["marked"].as_u64(), done["usage"]["dead_files"].as_u64()), (Some(2), Some(3)));
    place.weir(&reduce(&["remove", "--file", "data/file-2"], &dirs)).fails(&["there is no file"]);
    // A disk is replaced: what was removed is decoded as well, and stays removed.
    std::fs::remove_dir_all(&dirs[1]).unwrap();
    std::fs::create_dir(&dirs[1]).unwrap();
    place.weir(&reduce(&["repair"], &dirs)).ok();
    place.weir(&reduce(&["verify"], &dirs)).ok();
    let is_there = |file| dirs.iter().any(|dir| dir.join(name(file)).exists());
    assert!((0..8).all(|file| is_there(file) == (file > 2)));
    let clean = |percent| {
        let words = ["encode", "--clean-at", percent, "--low", "0%", "--json", "-q"];
        let done = json(&place, &words, &dirs);
        (done["cleaned"].as_u64(), done["usage"]["dead_files"].as_u64())
    };
    assert_eq!((clean("40%"), clean("37%")), ((Some(0), Some(3)), (Some(1), Some(0))));
    place.weir(&reduce(&["verify"], &dirs)).ok();
}

#[test]
fn new_files_wait_until_they_are_old_or_room_is_short() {
    let place = Place::new();
    let root = tempfile::tempdir().unwrap();
    let dirs = directories(root.path(), 8, 100_000);
    let encode = |more: &[&str]| {
        let done = json(&place, &[&["encode", "--json", "-q"], more].concat(), &dirs);
        (done["waiting"].as_u64(), done["sets"].as_u64())
    };
    for (wrong, said) in [(["--low", "5%"], "--after"), (["--after", "soon"], "unknown unit")] {
        let refused = place.weir(&reduce(&[&["encode"], &wrong[..]].concat(), &dirs));
        assert!(refused.code == Some(2) && refused.err.contains(said), "{}", refused.err);
    }
    let said = place.weir(&reduce(&["encode", "--after", "1h", "--low", "0%"], &dirs)).ok();
    assert!(said.contains("8 files wait until they are older"), "{said}");
    assert_eq!(encode(&["--after", "1h", "--low", "0%"]), (Some(8), Some(0)));
    assert_eq!(encode(&["--after", "1h", "--low", "100%"]), (Some(0), Some(1)));
    check(&dirs, 8, 100_000);
}

/// Whether a command draws on a terminal of its own; nothing if there is no `script`.
fn is_drawn(place: &Place, words: &[&str], dirs: &[PathBuf]) -> Option<bool> {
    Command::new("script").arg("--version").output().ok()?;
    let command = format!("{WEIR} {}", reduce(words, dirs).join(" "));
    let mut script = Command::new("script");
    place.prepare(&mut script);
    script.args(["-q", "-e", "-c", &command, "/dev/null"]).env("TERM", "xterm");
    let shown = script.stdin(Stdio::null()).output().unwrap();
    assert!(shown.status.success(), "{words:?}: {shown:?}");
    Some(String::from_utf8_lossy(&shown.stdout).contains("\u{1b}["))
}

#[test]
fn progress_is_shown_on_a_terminal_unless_it_is_to_be_quiet() {
    let place = Place::new();
    let root = tempfile::tempdir().unwrap();
    let dirs = directories(root.path(), 8, 100_000);
    if is_drawn(&place, &["status"], &dirs).is_none() {
        println!("skipped: needs script, of bsdutils");
        return;
    }
    for words in [["encode", "--quiet"], ["verify", "--quiet"], ["repair", "--quiet"]] {
        assert_eq!(is_drawn(&place, &words, &dirs), Some(false), "{words:?}");
        assert_eq!(is_drawn(&place, &words[..1], &dirs), Some(true), "{words:?}");
    }
}

/// However far it has come: what is there is right, and it goes on.
#[test]
fn killed_at_any_moment_it_loses_nothing_and_goes_on() {
    let root = tempfile::tempdir().unwrap();
    let place = Place::new();
    for (code, percent) in [("raid6", 25.0), ("raid5-mirror", 112.5)] {
        let (files, len) = (16, 100_000);
        let dirs = directories(&root.path().join(code), files, len);
        for round in 0..12 {
            let mut encoding = Command::new(env!("CARGO_BIN_EXE_weir"))
                .args(reduce(&["encode", "--quiet", "--code", code], &dirs))
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            std::thread::sleep(Duration::from_millis(7 * round));
            encoding.kill().unwrap();
            encoding.wait().unwrap();
            check(&dirs, files, len);
        }
        place.weir(&reduce(&["encode", "--quiet", "--code", code], &dirs)).ok();
        std::fs::remove_dir_all(&dirs[2]).unwrap();
        std::fs::create_dir(&dirs[2]).unwrap();
        std::fs::remove_dir_all(&dirs[7]).unwrap();
        std::fs::create_dir(&dirs[7]).unwrap();
        for round in 0..6 {
            let mut repairing = Command::new(env!("CARGO_BIN_EXE_weir"))
                .args(reduce(&["repair", "--quiet"], &dirs))
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            std::thread::sleep(Duration::from_millis(9 * round));
            repairing.kill().unwrap();
            repairing.wait().unwrap();
        }
        place.weir(&reduce(&["repair", "--quiet"], &dirs)).ok();
        check(&dirs, files, len);
        let status = json(&place, &["status", "--json"], &dirs);
        assert_eq!(status["percent"].as_f64(), Some(percent), "{status}");
    }
}

/// A layer above Weir: each directory of a mount has its files on one target.
#[test]
fn directories_of_a_mount_with_a_target_each_bear_the_loss_of_two() {
    let place = Place::new();
    let at = place.path("m");
    let cluster = place.up("sets", &["--targets", "6", "--mount", at.to_str().unwrap()]);
    let dirs: Vec<PathBuf> = (0..6).map(|target| at.join(format!("t{target}"))).collect();
    for (target, dir) in dirs.iter().enumerate() {
        std::fs::create_dir(dir).unwrap();
        let (dir, base) = (dir.to_str().unwrap(), target.to_string());
        cluster.weir(&["setlayout", dir, "--count", "1", "--base", &base, "--copies", "1"]).ok();
    }
    let (files, len) = (4, 300_000);
    for (file, copy) in (0..files).flat_map(|file| (0..3).map(move |copy| (file, copy))) {
        let path = dirs[(file + copy) % 4].join(name(file));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes(file, len)).unwrap();
    }
    let done = json(&place, &["encode", "--code", "raid6:2", "--json", "-q"], &dirs[..4]);
    assert_eq!((done["sets"].as_u64(), done["removed_copies"].as_u64()), (Some(2), Some(8)));
    check(&dirs[..4], files, len);
    cluster.kill("data-1");
    cluster.kill("data-2");
    // Directories on other targets take the place of those on the dead ones.
    let repaired = json(&place, &["repair", "--json", "--quiet"], &dirs[2..]);
    assert_eq!(repaired["left"], Value::Array(vec![]), "{repaired}");
    check(&dirs[2..], files, len);
    place.weir(&reduce(&["verify", "--quiet"], &dirs[2..])).ok();
}
