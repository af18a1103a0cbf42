//! git over many commits, on a mount.

use crate::harness::{Place, root};
use crate::mounted::{Mounts, script, sh};
use std::path::PathBuf;
use std::process::{Child, Stdio};

const MAKE: &str = "git init -q -b main repo && cd repo
     git config user.email t@example.org; git config user.name t; git config gc.auto 0
     for i in $(seq 200); do
       mkdir -p d$((i % 9)); seq $i $((i * 7)) > d$((i % 9))/f$((i % 23)); echo $i >> log
       git add -A && git commit -qm \"change $i\"
     done
     git checkout -qb side HEAD~50 && echo side > side && git add -A && git commit -qm side
     git checkout -q main && git merge -q -m merged side";

const CHECK: &str = "cd repo && git fsck --strict --full
     test $(git rev-list --count main) = 202 && test $(wc -l < log) = 200
     test -z \"$(git status --porcelain)\" && git gc -q --prune=now && git fsck --strict --full
     test $(git count-objects -v | sed -n 's/^count: //p') = 0
     test $(git rev-list --count main) = 202 && git log -p | tail -1 >/dev/null
     rm -rf d* log side && git checkout -q . && test -z \"$(git status --porcelain)\"";

#[test]
fn a_repository_of_two_hundred_commits_is_sound_before_and_after_gc() {
    if !root() {
        return;
    }
    let place = Place::new();
    let mounts = Mounts::new(&place, "git", 1);
    sh(&mounts.at[0], MAKE);
    sh(&mounts.at[0], CHECK);
}

#[test]
fn a_repository_made_through_one_mount_is_sound_through_another() {
    if !root() {
        return;
    }
    let place = Place::new();
    let mounts = Mounts::new(&place, "git", 2);
    sh(&mounts.at[0], MAKE);
    sh(&mounts.at[1], CHECK);
    sh(&mounts.at[0], "cd repo && git fsck --strict && test -z \"$(git status --porcelain)\"");
}

/// More objects and packs for gc to take in.
const GROW: &str = "cd repo
     for i in $(seq 30); do
       mkdir -p g$((i % 5)); date +%s%N > g$((i % 5))/f$i; git add -A; git commit -qm \"more $i\"
     done";

#[test]
fn gc_of_one_repository_on_two_mounts_at_once_leaves_it_sound() {
    if !root() {
        return;
    }
    let place = Place::new();
    let mounts = Mounts::new(&place, "git", 2);
    sh(
        &mounts.at[0],
        "git init -q -b main repo; cd repo; git config gc.auto 0
         git config user.email t@example.org; git config user.name t",
    );
    for round in 1..=3 {
        sh(&mounts.at[round % 2], GROW);
        let gc = |at: &PathBuf| {
            let mut gc = script(at, "cd repo && exec git gc -q --prune=now");
            gc.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let both: Vec<Child> = mounts.at.iter().map(gc).collect();
        let ends: Vec<_> = both.into_iter().map(|gc| gc.wait_with_output().unwrap()).collect();
        for end in &ends {
            let said = String::from_utf8_lossy(&end.stderr);
            // One holds `gc.pid`, or its lock, while the other asks.
            let gives_way = ["gc is already running", "gc.pid.lock': File exists"];
            let gave_way = gives_way.iter().any(|words| said.contains(words));
            assert!(end.status.success() || gave_way, "{}: {said}", end.status);
        }
        assert!(ends.iter().any(|end| end.status.success()), "none has done it: {ends:?}");
        for at in &mounts.at {
            sh(at, "cd repo && git fsck --strict --full");
            let count = sh(at, "cd repo && git rev-list --count main");
            assert_eq!(count.trim(), (round * 30).to_string());
            sh(at, "cd repo && test -z \"$(git status --porcelain)\"");
        }
    }
}
