//! Files that are removed from sets. They stay removed, the other members of their sets can be
//! restored, and a set is cleaned when enough of it is removed.
#![allow(clippy::unwrap_used)] // A panic is how a test fails.

mod trees;

use std::os::unix::fs::symlink;
use std::time::{Duration, SystemTime};
use trees::{
    Dirs, Fate, Random, but, check_any_two, check_two, clean, paths, quiet, remove, rot, set_time,
    state,
};
use weir_reduce::{Done, Failure, Purpose, Step, Tree, Trouble, Wishes, encode, remove_files};

#[test]
fn a_removed_file_is_gone_and_its_bytes_stay_until_its_set_is_cleaned() {
    for (code, dirs, copies) in [("raid6:4", 6, 1), ("raid5-mirror:4", 7, 2)] {
        let mut tree = Dirs::new(dirs, 4, 3, |file| 30_000 - 770 * file);
        assert_eq!(tree.encode(code).left, [], "{code}");
        let (before, all) = (tree.stored_bytes(), paths(&tree));
        let len = tree.files[&all[0]].len() as u64;
        let done = remove(&mut tree, &all[..1]);
        assert_eq!((done.marked, done.marked_bytes), (1, copies * len), "{code}: {done:?}");
        assert_eq!((done.usage.files, done.usage.dead_bytes), (3, copies * len), "{code}");
        assert!(tree.copies(&all[0]).is_empty() && tree.stored_bytes() == before, "{code}");
        assert_eq!(tree.verify().findings, [], "{code}");
        check_any_two(&tree);
        // A quarter is less than half.
        assert_eq!(clean(&tree, code, 50).cleaned, 0, "{code}");
        remove(&mut tree, &all[1..2]);
        check_any_two(&tree);
        let done = clean(&tree, code, 50);
        assert_eq!((done.cleaned, done.sets, done.usage.dead_files), (1, 1, 0), "{code}: {done:?}");
        assert_eq!((state(&tree, "m").len(), state(&tree, "dead").len()), (0, 0), "{code}");
        assert!(tree.stored_bytes() < before, "{code}");
        assert_eq!(tree.verify().findings, [], "{code}");
        check_any_two(&tree);
    }
}

#[test]
fn a_set_of_which_all_is_removed_goes_without_being_read() {
    let mut tree = Dirs::new(10, 8, 3, |_| 5000);
    tree.encode("raid6");
    let all = paths(&tree);
    remove(&mut tree, &all);
    let mut read = 0;
    let count = &mut |step: Step| {
        read += if let Step::Read(bytes) = step { bytes } else { 0 };
        Ok(())
    };
    let wishes = Wishes { clean_percent: 100, ..Wishes::default() };
    let mut open = tree.open(Purpose::Encode);
    let done = encode(&mut open, "raid6".parse().unwrap(), &wishes, count).unwrap();
    assert_eq!((done.cleaned, done.sets, read, tree.stored_bytes()), (1, 0, 0, 0), "{done:?}");
}

#[test]
fn short_of_room_a_set_is_cleaned_before_enough_of_it_is_removed() {
    let mut tree = Dirs::new(10, 8, 3, |_| 5000);
    tree.encode("raid6");
    let all = paths(&tree);
    remove(&mut tree, &all[..1]);
    let clean = |low_percent| {
        let wishes = Wishes { clean_percent: 50, low_percent, ..Wishes::default() };
        let mut open = tree.open(Purpose::Encode);
        encode(&mut open, "raid6".parse().unwrap(), &wishes, &mut quiet).unwrap().cleaned
    };
    // Every file system is used for some parities.
    assert_eq!((clean(0), clean(100)), (0, 1));
}

#[test]
fn a_new_file_of_a_removed_name_is_another_file() {
    let mut tree = Dirs::new(10, 8, 3, |_| 5000);
    tree.encode("raid6");
    let path = paths(&tree).remove(0);
    let old = tree.copies(&path).remove(0);
    let (bytes, modified) =
        (tree.files[&path].clone(), old.metadata().unwrap().modified().unwrap());
    remove(&mut tree, std::slice::from_ref(&path));
    // Restored in its place with its old time, as by `rsync --times`.
    std::fs::write(&old, &bytes).unwrap();
    set_time(&old, modified);
    tree.files.insert(path.clone(), bytes);
    tree.repair();
    clean(&tree, "raid6", 50);
    tree.check().unwrap();
    assert_eq!((tree.verify().findings, tree.copies(&path)), (vec![], vec![old]));
    remove(&mut tree, std::slice::from_ref(&path));
    assert!(tree.copies(&path).is_empty());
}

#[test]
fn bytes_of_a_removed_file_are_decoded_or_its_set_is_cleaned() {
    let mut tree = Dirs::new(10, 8, 3, |_| 5000);
    tree.encode("raid6");
    let all = paths(&tree);
    remove(&mut tree, &all[..1]);
    rot(&state(&tree, "m")[0], 77);
    let found: Vec<Trouble> = tree.verify().findings.iter().map(|f| f.trouble).collect();
    assert_eq!(found, [Trouble::Rotten]);
    assert_eq!(tree.repair().copies, 1);
    assert_eq!(tree.verify().findings, []);
    // Without these bytes the set survives one loss less, so cleaning does not wait for more
    // removals.
    std::fs::remove_file(&state(&tree, "m")[0]).unwrap();
    std::fs::remove_file(&state(&tree, "dead")[0]).unwrap();
    assert_eq!(clean(&tree, "raid6", 90).cleaned, 1);
    check_any_two(&tree);
}

#[test]
fn what_was_written_since_or_is_not_there_is_not_removed() {
    let mut tree = Dirs::new(10, 9, 3, |_| 5000);
    tree.encode("raid6");
    let path = paths(&tree).remove(0);
    let at = tree.copies(&path).remove(0);
    std::fs::write(&at, b"new").unwrap();
    let left = remove(&mut tree, std::slice::from_ref(&path)).left;
    assert_eq!((left[0].trouble, std::fs::read(&at).unwrap()), (Trouble::Changed, b"new".to_vec()));
    let mut open = tree.open(Purpose::Remove);
    let none = remove_files(&mut open, &["a0/none".to_owned()].into(), &mut quiet);
    assert!(none.unwrap_err().to_string().contains("no file `a0/none`"));
    drop(open);
    // A file in no set is removed at once.
    tree.put(0, "alone", b"1");
    tree.put(5, "alone", b"1");
    let done = remove(&mut tree, &["alone".to_owned()]);
    assert_eq!((done.marked, done.removed_copies, tree.copies("alone").len()), (0, 2, 0));
}

#[test]
fn removal_that_is_stopped_at_any_step_is_done_or_is_not() {
    for (code, dirs) in [("raid6:4", 6), ("raid5-mirror:4", 7)] {
        let whole = Dirs::new(dirs, 4, 3, |file| 20_000 - 770 * file);
        whole.encode(code);
        let path = paths(&whole).remove(1);
        for at in 0.. {
            let mut tree = whole.duplicate();
            let mut changes = 0;
            let files = [path.clone()].into();
            let done = remove_files(&mut tree.open(Purpose::Remove), &files, &mut |step| {
                changes += usize::from(step == Step::Change);
                if changes > at { Err(Failure::other("stopped")) } else { Done::Ok(()) }
            });
            let is_done = done.is_ok();
            // The next command completes it.
            assert_eq!(clean(&tree, code, 100).left, [], "{code}, step {at}");
            let is_gone = tree.copies(&path).is_empty();
            assert_eq!(is_gone, at > 0, "{code}, step {at}");
            if is_gone {
                tree.files.remove(&path);
            }
            tree.check().unwrap();
            check_two(&tree, at % dirs, (at + 1) % dirs);
            assert_eq!(clean(&tree, code, 0).cleaned, u64::from(is_gone), "{code}, step {at}");
            check_two(&tree, at % dirs, (at + 1) % dirs);
            if is_done {
                break;
            }
        }
    }
}

#[test]
fn a_file_that_is_restored_after_a_stopped_removal_stays_and_nothing_is_stuck() {
    let mut tree = Dirs::new(10, 8, 3, |_| 5000);
    tree.encode("raid6");
    let path = paths(&tree).remove(0);
    let old = tree.copies(&path).remove(0);
    let (bytes, modified) =
        (tree.files[&path].clone(), old.metadata().unwrap().modified().unwrap());
    let mut changes = 0;
    let files = [path.clone()].into();
    // The file has its new name, and no mark exists yet.
    let stopped = remove_files(&mut tree.open(Purpose::Encode), &files, &mut |step| {
        changes += usize::from(step == Step::Change);
        if changes > 1 { Err(Failure::other("stopped")) } else { Done::Ok(()) }
    });
    assert!(stopped.is_err() && !old.exists());
    std::fs::write(&old, &bytes).unwrap();
    let file = std::fs::File::options().write(true).open(&old).unwrap();
    file.set_times(std::fs::FileTimes::new().set_modified(modified)).unwrap();
    tree.files.insert(path, bytes);
    assert_eq!(clean(&tree, "raid6", 100).left, []);
    tree.check().unwrap();
    assert_eq!(clean(&tree, "raid6", 0).cleaned, 1);
    tree.check().unwrap();
    check_any_two(&tree);
}

#[test]
fn cleaning_that_is_stopped_at_any_step_loses_nothing() {
    let mut whole = Dirs::new(6, 8, 3, |file| 20_000 - 770 * file);
    whole.encode("raid6:4");
    let all = paths(&whole);
    remove(&mut whole, &[all[0].clone(), all[5].clone()]);
    for at in 0.. {
        let tree = whole.duplicate();
        let mut changes = 0;
        let mut open = tree.open(Purpose::Encode);
        let done = encode(&mut open, "raid6:4".parse().unwrap(), &Wishes::default(), &mut |step| {
            changes += usize::from(step == Step::Change);
            if changes > at { Err(Failure::other("stopped")) } else { Ok(()) }
        });
        drop(open);
        tree.check().unwrap();
        let crashed = tree.duplicate();
        crashed.repair();
        crashed.lose(at % 6);
        crashed.lose((at + 1) % 6);
        crashed.repair();
        crashed.check().unwrap();
        assert_eq!(tree.encode("raid6:4").left, [], "step {at}");
        assert!([0, 5].iter().all(|gone| tree.copies(&all[*gone]).is_empty()));
        check_two(&tree, at % 6, (at + 3) % 6);
        if done.is_ok() {
            assert!(at >= 20, "only {at} steps");
            break;
        }
    }
}

#[test]
fn a_file_that_somebody_has_only_touched_is_removed() {
    for (code, dirs) in [("raid6:4", 6), ("raid5-mirror:4", 7)] {
        let mut tree = Dirs::new(dirs, 4, 3, |file| 30_000 - 770 * file);
        assert_eq!(tree.encode(code).left, [], "{code}");
        let path = paths(&tree).remove(0);
        for (seconds, copy) in (0..).zip(tree.copies(&path)) {
            set_time(&copy, SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + seconds));
        }
        let done = remove(&mut tree, std::slice::from_ref(&path));
        assert_eq!((done.left, done.marked), (vec![], 1), "{code}");
        assert!(tree.copies(&path).is_empty(), "{code}");
        assert_eq!(tree.verify().findings, [], "{code}");
        check_any_two(&tree);
    }
}

#[test]
fn no_copy_of_a_removed_file_keeps_its_name_though_it_has_the_time_of_another() {
    let mut tree = Dirs::new(7, 4, 3, |file| 30_000 - 770 * file);
    let path = paths(&tree).remove(0);
    for (seconds, copy) in (0..).zip(tree.copies(&path)) {
        set_time(&copy, SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + seconds));
    }
    assert_eq!(tree.encode("raid5-mirror:4").left, []);
    let copies = tree.copies(&path);
    set_time(&copies[0], copies[1].metadata().unwrap().modified().unwrap());
    let done = remove(&mut tree, std::slice::from_ref(&path));
    assert_eq!((done.left, done.marked, tree.copies(&path)), (vec![], 1, vec![]));
    assert_eq!(tree.verify().findings, []);
    check_any_two(&tree);
}

#[test]
fn a_directory_that_refuses_a_mark_keeps_no_other_from_it() {
    let mut tree = Dirs::new(10, 8, 3, |_| 5000);
    tree.encode("raid6");
    let path = paths(&tree).remove(0);
    let files = [path.clone()].into();
    // The first change renames the file; the second one writes the first mark.
    let refused = &mut but(Fate::Refused, 1);
    let done = remove_files(&mut tree.open(Purpose::Remove), &files, refused).unwrap();
    tree.files.remove(&path);
    assert_eq!((done.left.len(), state(&tree, "dead").len()), (1, 9), "{done:?}");
    check_any_two(&tree);
    assert_eq!(clean(&tree, "raid6", 90).left, []);
    assert_eq!(state(&tree, "dead").len(), 10);
}

#[test]
fn removal_names_what_it_cannot_look_at() {
    let mut tree = Dirs::new(10, 8, 3, |_| 5000);
    tree.encode("raid6");
    let path = paths(&tree).remove(0);
    let copy = tree.copies(&path).remove(0);
    // A parent directory of the copy is a link.
    let (above, elsewhere) = (copy.parent().unwrap(), copy.with_file_name("elsewhere"));
    let moved = above.with_file_name("moved");
    std::fs::rename(above, &moved).unwrap();
    symlink("moved", above).unwrap();
    let done = remove(&mut tree, std::slice::from_ref(&path));
    assert_eq!((done.marked, done.left.len()), (0, 1), "{done:?}");
    std::fs::remove_file(above).unwrap();
    std::fs::rename(&moved, above).unwrap();
    // Directories that are too deep to be looked at stand for unreadable ones.
    std::fs::create_dir_all(elsewhere.join("x/".repeat(260))).unwrap();
    let done = remove(&mut tree, std::slice::from_ref(&path));
    assert_eq!((done.marked, done.left.len()), (1, 1), "{done:?}");
}

#[test]
fn a_file_that_was_put_back_keeps_its_copies_though_its_removal_was_stopped() {
    let mut tree = Dirs::new(7, 4, 3, |file| 30_000 - 770 * file);
    tree.encode("raid5-mirror:4");
    let path = paths(&tree).remove(0);
    let places = tree.places(&path);
    let files = [path.clone()].into();
    // One of the two copies has been renamed.
    let stopped = &mut but(Fate::Stopped, 1);
    remove_files(&mut tree.open(Purpose::Remove), &files, stopped).unwrap_err();
    assert_eq!(tree.copies(&path).len(), 1);
    tree.restore(&path, &places);
    let _ = clean(&tree, "raid5-mirror:4", 100);
    assert_eq!(tree.places(&path), places);
    tree.check().unwrap();
    assert_eq!(remove(&mut tree, std::slice::from_ref(&path)).left, []);
    assert!(tree.copies(&path).is_empty());
}

#[test]
fn a_file_that_comes_while_it_is_removed_stays_and_is_named() {
    let mut tree = Dirs::new(7, 4, 3, |file| 30_000 - 770 * file);
    assert_eq!(tree.encode("raid5-mirror:4").left, []);
    let path = paths(&tree).remove(0);
    let last = tree.copies(&path).remove(1);
    let files = [path.clone()].into();
    let done = remove_files(&mut tree.open(Purpose::Remove), &files, &mut |step| {
        if step == Step::Change && std::fs::read(&last).unwrap() != b"new" {
            std::fs::write(&last, b"new").unwrap();
        }
        Done::Ok(())
    });
    let done = done.unwrap();
    assert_eq!((done.left.len(), done.left[0].trouble), (1, Trouble::Changed), "{done:?}");
    tree.files.insert(path.clone(), b"new".to_vec());
    tree.repair();
    tree.check().unwrap();
    assert_eq!(tree.copies(&path), [last]);
}

#[test]
fn a_file_that_is_put_back_after_a_removal_was_stopped_stays() {
    for code in ["raid6:4", "raid5-mirror:4"] {
        let mut tree = Dirs::new(7, 4, 3, |file| 30_000 - 770 * file);
        assert_eq!(tree.encode(code).left, [], "{code}");
        let path = paths(&tree).remove(0);
        let before = tree.places(&path);
        let mut changes = 0;
        let files = [path.clone()].into();
        // Both copies have their new names, and no directory has the mark.
        let stopped = remove_files(&mut tree.open(Purpose::Remove), &files, &mut |step| {
            changes += usize::from(step == Step::Change);
            if changes > before.len() { Err(Failure::other("stopped")) } else { Done::Ok(()) }
        });
        assert!(stopped.is_err() && tree.copies(&path).is_empty(), "{code}");
        tree.restore(&path, &before);
        let other = (0..7).find(|dir| !tree.dirs[*dir].join(&path).exists()).unwrap();
        tree.restore(&path, &[(other, before[0].1)]);
        let done = clean(&tree, code, 100);
        assert_eq!((done.left, done.usage.dead_files), (vec![], 1), "{code}");
        tree.check().unwrap();
        check_any_two(&tree);
        remove(&mut tree, std::slice::from_ref(&path));
        assert!(tree.copies(&path).is_empty(), "{code}");
    }
}

#[test]
fn removal_makes_no_directory_one_of_the_tree() {
    let tree = Dirs::new(7, 4, 3, |file| 30_000 - 770 * file);
    tree.encode("raid6:4");
    let (mistyped, path) = (tree.dirs[0].with_file_name("d99"), paths(&tree).remove(0));
    std::fs::create_dir(&mistyped).unwrap();
    let dirs = [&tree.dirs[..], std::slice::from_ref(&mistyped)].concat();
    let error = Tree::open(&dirs, Purpose::Remove).err().unwrap().to_string();
    assert!(error.contains("d99: is no directory of this tree"), "{error}");
    assert!(mistyped.read_dir().unwrap().next().is_none() && !tree.copies(&path).is_empty());
}

/// Files are created, rewritten, removed and encoded at random. After each step any two directories
/// may be lost.
#[test]
fn whatever_is_made_and_removed_any_two_directories_may_be_lost() {
    const DIRS: usize = 7;
    for seed in 1..=12 {
        let mut random = Random(u64::wrapping_mul(seed, 0x9e37_79b9_7f4a_7c15));
        let mut tree = Dirs::new(DIRS, 0, 3, |_| 0);
        tree.encode("raid6:4");
        for step in 0..40 {
            let say = format!("seed {seed}, step {step}");
            match random.below(5) {
                0 | 1 => {
                    // There are few names, so that some are used again.
                    let path = format!("d/{}", random.below(20));
                    if !tree.files.contains_key(&path) {
                        let bytes = vec![random.below(256) as u8; 1 + random.below(9000)];
                        let (first, away) = (random.below(DIRS), 1 + random.below(DIRS - 2));
                        for dir in [first, first + away, first + away + 1] {
                            tree.put(dir % DIRS, &path, &bytes);
                        }
                        tree.files.insert(path, bytes);
                    }
                }
                2 | 3 if !tree.files.is_empty() => {
                    let path = paths(&tree).swap_remove(random.below(tree.files.len()));
                    assert_eq!(remove(&mut tree, &[path]).left, [], "{say}");
                }
                _ => {
                    let percent = [0, 25, 50, 100][random.below(4)];
                    let left = clean(&tree, "raid6:4", percent).left;
                    assert!(
                        left.iter().all(|f| f.trouble == Trouble::FewCopies),
                        "{say}: {left:?}"
                    );
                }
            }
            tree.check().unwrap_or_else(|why| panic!("{say}: {why}"));
            let damaged = tree.duplicate();
            let one = random.below(DIRS);
            let lost = [one, (one + 1 + random.below(DIRS - 1)) % DIRS];
            lost.iter().for_each(|dir| damaged.lose(*dir));
            let repaired = damaged.repair();
            assert_eq!(repaired.left, [], "{say}: {lost:?}");
            damaged.check().unwrap_or_else(|why| panic!("{say}: {lost:?}: {why}"));
            let usage = |dirs: &Dirs| dirs.open(Purpose::Look).usage();
            assert_eq!(usage(&damaged).dead_bytes, usage(&tree).dead_bytes, "{say}: {lost:?}");
        }
    }
}
