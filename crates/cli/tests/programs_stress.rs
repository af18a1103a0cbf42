//! What stress-ng has against file systems, on a mount: each of its programs uses one kind of
//! call for a second, checks what it gets, and fails if that is not what it should be.

use crate::harness::{Place, root, said};
use crate::mounted::{Mounts, script};
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;

/// Of its class `filesystem`, what needs or does something to the machine as a whole and uses
/// nothing of the directory that it is given.
const LEFT_OUT: [&str; 5] = [
    // Binds `/` to itself, and fails where that may not be done: on ext4 too.
    "bind-mount",
    // A file system of the kernel's own, for Android.
    "binderfs",
    // Watches all mounts, also those of other tests.
    "fanotify",
    // `sync` of all mounts, which waits for the disk of this machine.
    "io",
    // Reads all of `/proc`.
    "procfs",
];

/// What may skip itself, and why: the kernel does not pass on to file systems in user space where
/// their blocks are, nor whether they keep hashes of files (few local ones do).
const MAY_SKIP: [&str; 2] = ["fiemap", "verity"];

/// Of these each program would fill 1 GiB anew many times in a second, faster than the room of
/// what it removes comes back: a second is for more than disks.
const SIZES: &str = "--copy-file-bytes 128m --fallocate-bytes 16m --fiemap-bytes 16m \
    --hdd-bytes 16m --iomix-bytes 16m --sync-file-bytes 16m";

/// So many run at a time.
const TOGETHER: usize = 2;

/// All programs of the class that this version has, but for those left out.
fn programs() -> Vec<String> {
    let mut list = Command::new("stress-ng");
    list.args(["--class", "filesystem?"]);
    let listed = said(list).ok();
    let (_, names) = listed.split_once(':').unwrap();
    let names: Vec<String> = names.split_whitespace().map(str::to_owned).collect();
    assert!(names.len() > 40, "{listed}");
    names.into_iter().filter(|name| !LEFT_OUT.contains(&name.as_str())).collect()
}

/// Runs one of them; `Err`: what it found wrong, or why it did not end. A program that cannot run
/// on such a file system says so.
fn run(program: &str, at: &Path) -> Result<Option<String>, String> {
    let run = format!(
        "timeout -k 10 60 stress-ng --{program} 1 --timeout 1s --verify --temp-path . --seed 7 \
         {SIZES} 2>&1"
    );
    let said = said(script(at, &run));
    let is_wrong = |line: &&str| line.contains(" fail: ") || line.contains(" error: ");
    if said.code != Some(0) || said.out.lines().any(|line| is_wrong(&line)) {
        return Err(format!("{program} (ended with {:?}):\n{}", said.code, said.out));
    }
    let skips = |line: &&str| line.contains("skipping") || line.contains("skipped");
    Ok(said.out.lines().find(skips).map(|why| why.rsplit("] ").next().unwrap().to_owned()))
}

#[test]
fn stress_ng_finds_no_call_that_does_not_do_what_it_should() {
    if !root() {
        return;
    }
    if Command::new("stress-ng").arg("--version").output().is_err() {
        println!("skipped: needs stress-ng (scripts/deps.sh installs it)");
        return;
    }
    let place = Place::new();
    let mounts = Mounts::new(&place, "stress", 1);
    let left = Mutex::new(programs().into_iter());
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for thread in 0..TOGETHER {
            let at = mounts.at[0].join(thread.to_string());
            std::fs::create_dir(&at).unwrap();
            let (left, failed) = (&left, &failed);
            scope.spawn(move || {
                let next = || left.lock().unwrap().next();
                while let Some(program) = next() {
                    match run(&program, &at) {
                        Ok(None) => {}
                        Ok(Some(why)) if !MAY_SKIP.contains(&program.as_str()) => {
                            failed.lock().unwrap().push(format!("{program} is skipped: {why}"));
                        }
                        Ok(Some(why)) => println!("skipped by stress-ng: {why}"),
                        Err(what) => failed.lock().unwrap().push(what),
                    }
                }
                // They leave nothing behind, and what they made can all be removed.
                std::fs::remove_dir(&at).unwrap();
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
