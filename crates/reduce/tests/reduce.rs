//! Files in directories are encoded and restored.
#![allow(clippy::unwrap_used)] // A panic is how a test fails.

mod trees;

use std::collections::BTreeSet;
use std::time::Duration;
use trees::{Dirs, quiet, rot};
use weir_reduce::{Purpose, Tree, Trouble, Wishes, encode, repair};

/// Different lengths, all longer than a piece.
fn uneven(file: usize) -> usize {
    300_000 - 7_001 * file
}

#[test]
fn full_sets_cost_exactly_25_and_112_and_a_half_percent() {
    for (code, percent, dirs) in [("raid6", 25.0, 10), ("raid5-mirror", 112.5, 9)] {
        let tree = Dirs::new(dirs, 16, 3, |_| 50_000);
        let done = tree.encode(code);
        assert_eq!((done.sets, done.files, done.left.len()), (2, 16, 0), "{code}: {done:?}");
        assert_eq!(done.usage.overhead_percent(), Some(percent), "{code}");
        assert_eq!(done.usage.stored_bytes, tree.stored_bytes(), "{code}");
        tree.check().unwrap();
        assert_eq!(tree.verify().findings, []);
    }
}

#[test]
fn every_two_directories_may_be_lost() {
    for (code, dirs) in [("raid6:4", 6), ("raid5-mirror:4", 5)] {
        let whole = Dirs::new(dirs, 8, 3, |file| 30_000 - 770 * file);
        assert_eq!(whole.encode(code).left, [], "{code}");
        for (one, other) in (0..dirs).flat_map(|i| (0..i).map(move |j| (j, i))) {
            let tree = whole.duplicate();
            tree.lose(one);
            tree.lose(other);
            let repaired = tree.repair();
            assert_eq!(repaired.left, [], "{code}, {one} and {other}");
            tree.check().unwrap();
            assert_eq!(tree.verify().findings, [], "{code}, {one} and {other}");
            assert_eq!(tree.stored_bytes(), whole.stored_bytes(), "{code}, {one} and {other}");
        }
    }
}

#[test]
fn rot_and_removal_are_found_and_repaired() {
    let tree = Dirs::new(10, 8, 3, uneven);
    tree.encode("raid6");
    let paths: Vec<String> = tree.files.keys().cloned().collect();
    let rotten = tree.copies(&paths[0]).remove(0);
    let before = std::fs::metadata(&rotten).unwrap().modified().unwrap();
    rot(&rotten, 280_000 - 7_001 * 8);
    std::fs::remove_file(&tree.copies(&paths[1])[0]).unwrap();
    let found: BTreeSet<String> =
        tree.verify().findings.iter().map(|f| format!("{:?} {}", f.trouble, f.what)).collect();
    let expected = [format!("Rotten {}", paths[0]), format!("Missing {}", paths[1])];
    assert_eq!(found, expected.into_iter().collect());
    let repaired = tree.repair();
    assert_eq!((repaired.copies, repaired.left.len()), (2, 0));
    tree.check().unwrap();
    assert_eq!(std::fs::metadata(&rotten).unwrap().modified().unwrap(), before);
    assert_eq!(tree.verify().findings, []);
}

#[test]
fn rot_in_parities_and_records_is_found_and_repaired() {
    let tree = Dirs::new(10, 8, 3, |_| 5000);
    tree.encode("raid6");
    let state = |ending: &str| {
        let all = tree.dirs.iter().flat_map(|dir| std::fs::read_dir(dir.join(".weir-reduce")));
        let paths = all.flatten().map(|entry| entry.unwrap().path());
        let mut paths: Vec<_> =
            paths.filter(|path| path.to_string_lossy().ends_with(ending)).collect();
        paths.sort_unstable();
        paths
    };
    assert_eq!(state(".set").len(), 10);
    rot(&state(".p1")[0], 77);
    rot(&state(".set")[0], 5);
    std::fs::remove_file(&state(".set")[1]).unwrap();
    let troubles: Vec<Trouble> = tree.verify().findings.iter().map(|f| f.trouble).collect();
    assert!(troubles.contains(&Trouble::Rotten) && troubles.contains(&Trouble::Record));
    let repaired = tree.repair();
    assert_eq!((repaired.parities, repaired.records, repaired.left.len()), (1, 2, 0));
    assert_eq!(tree.verify().findings, []);
}

#[test]
fn more_than_the_code_bears_is_said_and_nothing_is_invented() {
    let tree = Dirs::new(10, 8, 3, |_| 5000);
    tree.encode("raid6");
    let lost: Vec<String> = tree.files.keys().take(3).cloned().collect();
    lost.iter().for_each(|path| std::fs::remove_file(&tree.copies(path)[0]).unwrap());
    assert!(tree.verify().findings.iter().any(|finding| finding.trouble == Trouble::Lost));
    let left = tree.repair().left;
    assert!(left[0].what.contains("3 members are lost and only 2 parities"), "{left:?}");
    assert!(lost.iter().all(|path| left.iter().any(|f| f.what.contains(path))), "{left:?}");
    assert!(lost.iter().all(|path| tree.copies(path).is_empty()));
}

#[test]
fn a_file_that_was_written_since_is_kept_and_encoded_anew() {
    let mut tree = Dirs::new(10, 8, 3, |_| 5000);
    tree.encode("raid6");
    let paths: Vec<String> = tree.files.keys().cloned().collect();
    std::fs::write(&tree.copies(&paths[2])[0], b"new bytes").unwrap();
    tree.files.insert(paths[2].clone(), b"new bytes".to_vec());
    // A file that is lost meanwhile is decoded without the new bytes.
    std::fs::remove_file(&tree.copies(&paths[5])[0]).unwrap();
    let left = tree.repair().left;
    assert_eq!(left.iter().map(|f| f.trouble).collect::<Vec<_>>(), [Trouble::Changed]);
    tree.check().unwrap();
    let done = tree.encode("raid6");
    assert_eq!((done.usage.sets, done.usage.files, done.left.len()), (1, 8, 0), "{done:?}");
    assert_eq!(tree.verify().findings, []);
    tree.lose(0);
    tree.lose(7);
    tree.repair();
    tree.check().unwrap();
}

#[test]
fn a_file_that_was_removed_on_purpose_is_forgotten() {
    let mut tree = Dirs::new(10, 8, 3, |_| 5000);
    tree.encode("raid6");
    let gone = tree.files.keys().next().unwrap().clone();
    std::fs::remove_file(&tree.copies(&gone)[0]).unwrap();
    assert_eq!(tree.encode("raid6").left[0].trouble, Trouble::Missing);
    let forgotten = [gone.clone()].into_iter().collect();
    let mut open = tree.open(Purpose::Encode);
    let wishes = Wishes { forgotten, ..Wishes::default() };
    let done = encode(&mut open, "raid6".parse().unwrap(), &wishes, &mut quiet).unwrap();
    assert_eq!((done.usage.sets, done.usage.files, done.left.len()), (1, 7, 0), "{done:?}");
    repair(&mut open, &mut quiet).unwrap();
    drop(open);
    tree.files.remove(&gone);
    assert!(tree.copies(&gone).is_empty());
    tree.check().unwrap();
    assert_eq!(tree.verify().findings, []);
}

#[test]
fn new_files_stay_as_copies_until_they_are_old_or_room_is_short() {
    let mut tree = Dirs::new(10, 16, 3, |_| 5000);
    let encode = |tree: &Dirs, after, low_percent| {
        let wishes = Wishes { after: Duration::from_secs(after), low_percent, ..Wishes::default() };
        let mut open = tree.open(Purpose::Encode);
        encode(&mut open, "raid6".parse().unwrap(), &wishes, &mut quiet).unwrap()
    };
    let done = encode(&tree, 3600, 0);
    assert_eq!((done.sets, done.waiting, done.waiting_bytes), (0, 16, 16 * 3 * 5000), "{done:?}");
    assert_eq!((done.usage.other_files, done.left.len()), (16, 0), "{done:?}");
    // Every file system is used for some parities.
    let done = encode(&tree, 3600, 100);
    assert_eq!((done.sets, done.waiting, done.removed_copies), (2, 0, 32), "{done:?}");
    // A rewritten file has one copy, so it is encoded again at once.
    let path = tree.files.keys().next().unwrap().clone();
    std::fs::write(&tree.copies(&path)[0], [1; 5000]).unwrap();
    tree.files.insert(path, vec![1; 5000]);
    let done = encode(&tree, 3600, 0);
    assert_eq!((done.waiting, done.usage.files, done.left.len()), (0, 16, 0), "{done:?}");
    tree.check().unwrap();
    assert_eq!(tree.verify().findings, []);
}

#[test]
fn copies_that_differ_are_left_alone() {
    let tree = Dirs::new(10, 8, 3, |_| 5000);
    let path = tree.files.keys().next().unwrap().clone();
    rot(&tree.copies(&path)[1], 100);
    let done = tree.encode("raid6");
    assert!(done.left[0].what.contains("differ"), "{:?}", done.left);
    assert_eq!((tree.copies(&path).len(), done.usage.files), (3, 7));
}

#[test]
fn too_few_directories_and_strangers_are_refused() {
    let tree = Dirs::new(9, 8, 3, |_| 5000);
    let open = || tree.open(Purpose::Encode);
    let error = encode(&mut open(), "raid6".parse().unwrap(), &Default::default(), &mut quiet);
    let error = error.unwrap_err().to_string();
    assert!(error.contains("needs at least 10 targets, there are 9"), "{error}");
    let held = open();
    let error = Tree::open(&tree.dirs, Purpose::Encode).err().unwrap().to_string();
    assert!(error.contains("another `weir reduce` works on it"), "{error}");
    drop(held);
    let other = Dirs::new(2, 1, 1, |_| 10);
    drop(other.open(Purpose::Encode));
    let both = [tree.dirs[0].clone(), other.dirs[0].clone()];
    let error = Tree::open(&both, Purpose::Look).err().unwrap();
    assert!(error.to_string().contains("two trees"), "{error}");
}
