//! git over many commits, on a mount.

use crate::harness::{Place, root};
use crate::mounted::{Mounts, sh};

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
