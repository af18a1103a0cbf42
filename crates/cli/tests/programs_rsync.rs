//! rsync of a tree that changes, and tar archives that lie on the mount
//! themselves. (`programs.rs` has the copies of special files.)

use crate::harness::{Place, noise, root, same_trees};
use crate::mounted::{Mounts, sh};
use std::fs;

#[test]
fn rsync_follows_a_changing_tree_and_tar_brings_it_back() {
    if !root() {
        return;
    }
    let place = Place::new();
    let mounts = Mounts::new(&place, "rsync", 1);
    let (at, source) = (&mounts.at[0], place.path("source"));
    for i in 0..200u64 {
        let dir = source.join(format!("d{}/e{}", i % 7, i % 3));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join(format!("f{i}")), noise((i * i * 6) as usize, i)).unwrap();
    }
    let copy = format!("rsync -a --delete {}/ copy", source.display());
    sh(at, &copy);
    same_trees(&source, &at.join("copy"));
    // Changed in the middle, cut, grown, moved, removed, a directory for a file.
    sh(
        &source,
        "f=d3/e1/f199; printf CHANGED | dd of=$f bs=1 seek=200000 conv=notrunc status=none
         truncate -s 1000 d2/e0/f198; seq 100000 >> d0/e0/f0; mv d1 moved; rm -r d4
         rm d5/e2/f5; mkdir d5/e2/f5; ln d6/e0/f6 hard; touch -d 2001-02-03 d0/e0/f21",
    );
    sh(at, &(copy.clone() + " --inplace --no-whole-file -H --checksum"));
    same_trees(&source, &at.join("copy"));
    let left = sh(at, &(copy + " -H -i -n --checksum"));
    assert_eq!(left, "", "rsync finds nothing to do");
    // The archive lies on the mount, is added to there, compared and unpacked.
    sh(
        at,
        "tar cf all.tar -C copy d0 d2 d3 && tar rf all.tar -C copy d5 d6 moved hard
         tar df all.tar -C copy && tar czf all.tar.gz -C copy . && mkdir back packed
         tar xpf all.tar -C back && tar xpzf all.tar.gz -C packed",
    );
    same_trees(&source, &at.join("back"));
    same_trees(&source, &at.join("packed"));
}
