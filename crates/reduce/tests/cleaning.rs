//! Cleaning of sets while removed files come back, on full disks, and while changes fail. Any two
//! directories may be lost before and after.
#![allow(clippy::unwrap_used)] // A panic is how a test fails.

mod trees;

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::io::Write;
use std::path::{Path, PathBuf};
use trees::{Dirs, Fate, but, check_any_two, check_two, clean, paths, remove, state};
use weir_reduce::{Failure, Purpose, Step, Trouble, Wishes, encode, remove_files};

#[test]
fn when_all_of_a_set_is_removed_and_restored_with_its_times_it_is_encoded_again() {
    let mut tree = Dirs::new(10, 8, 3, |_| 5000);
    let all = paths(&tree);
    let (files, places) = (tree.files.clone(), all.iter().map(|path| tree.places(path)));
    let places: Vec<_> = places.collect();
    tree.encode("raid6");
    remove(&mut tree, &all);
    tree.files = files;
    all.iter().zip(&places).for_each(|(path, places)| tree.restore(path, places));
    let done = tree.encode("raid6");
    assert_eq!((done.left, done.usage.sets, done.usage.files), (vec![], 1, 8));
    assert_eq!((state(&tree, "p").len(), state(&tree, "m").len()), (2, 0));
    check_any_two(&tree);
}

#[test]
fn an_old_disk_that_comes_back_knows_nothing_of_sets_that_are_new() {
    let mut tree = Dirs::new(10, 8, 3, |_| 5000);
    let (files, all) = (tree.files.clone(), paths(&tree));
    let places: Vec<_> = all.iter().map(|path| tree.places(path)).collect();
    tree.encode("raid6");
    remove(&mut tree, &all);
    let old = tree.duplicate();
    assert_eq!(clean(&tree, "raid6", 100).usage.sets, 0);
    let out = 9;
    for (path, places) in all.iter().zip(&places) {
        tree.files.insert(path.clone(), files[path].clone());
        tree.restore(path, places);
    }
    assert_eq!(tree.encode("raid6").usage.files, 8);
    std::fs::remove_dir_all(&tree.dirs[out]).unwrap();
    std::fs::rename(&old.dirs[out], &tree.dirs[out]).unwrap();
    tree.repair();
    assert_eq!(tree.open(Purpose::Look).usage().files, 8);
    assert_eq!((clean(&tree, "raid6", 50).left, tree.verify().findings), (vec![], vec![]));
    check_any_two(&tree);
}

/// At first extra copies cannot be removed, and one other change fails. If that change is on a
/// record of the set to be dissolved, copies that no set keeps are still needed.
#[test]
fn a_set_that_could_not_go_takes_no_copies_with_it() {
    let mut whole = Dirs::new(6, 8, 3, |file| 20_000 - 770 * file);
    let mut by_length = paths(&whole);
    by_length.sort_by_key(|path| std::cmp::Reverse(whole.files[path].len()));
    let kept = &by_length[5];
    let mut others = whole.places(kept);
    whole.encode("raid6:4");
    // All files of the set of long files are removed, and one file of the other set. Then the other
    // set must be dissolved as well.
    remove(&mut whole, &by_length[..5]);
    let at = whole.places(kept)[0].0;
    others.retain(|(dir, _)| *dir != at);
    whole.restore(kept, &others);
    let is_of_it = |path: &&PathBuf| std::fs::read_to_string(path).unwrap().contains(kept);
    let all = state(&whole, "set");
    let name = all.iter().find(is_of_it).unwrap().file_name().unwrap().to_owned();
    let records = |tree: &Dirs| {
        tree.dirs.iter().filter(|dir| dir.join(".weir-reduce").join(&name).exists()).count()
    };
    for refused in 3.. {
        let tree = whole.duplicate();
        let mut changes = 0;
        let watch = &mut |step| {
            changes += usize::from(step == Step::Change);
            match step == Step::Change && [1, 2, refused].contains(&changes) {
                true => Err(Failure::file(&tree.dirs[0], std::io::Error::from_raw_os_error(5))),
                false => Ok(()),
            }
        };
        let after = std::time::Duration::from_secs(3600);
        let wishes = Wishes { after, clean_percent: 25, ..Wishes::default() };
        let mut open = tree.open(Purpose::Encode);
        let done = encode(&mut open, "raid6:4".parse().unwrap(), &wishes, watch).unwrap();
        drop(open);
        let is_whole = records(&tree) == records(&whole);
        assert!(is_whole || tree.copies(kept).len() == 3, "change {refused}: {done:?}");
        if changes < refused {
            assert!(refused > 20, "only {changes} changes");
            break;
        }
    }
}

#[test]
fn when_a_file_is_removed_and_restored_with_its_times_it_is_encoded_again() {
    for (code, dirs) in [("raid6:4", 6), ("raid5-mirror:4", 7)] {
        for percent in [0, 25, 100] {
            let mut tree = Dirs::new(dirs, 4, 3, |file| 30_000 - 770 * file);
            let path = paths(&tree).remove(1);
            let (bytes, places) = (tree.files[&path].clone(), tree.places(&path));
            tree.encode(code);
            remove(&mut tree, std::slice::from_ref(&path));
            tree.files.insert(path.clone(), bytes);
            tree.restore(&path, &places);
            let done = clean(&tree, code, percent);
            assert_eq!(
                (done.left, done.usage.files),
                (vec![], 4 - u64::from(percent > 0)),
                "{code}"
            );
            check_any_two(&tree);
            assert_eq!(clean(&tree, code, 0).left, [], "{code}, {percent} %");
            check_any_two(&tree);
        }
    }
}

#[test]
fn a_file_that_is_forgotten_though_it_is_there_stays_encoded() {
    let tree = Dirs::new(6, 4, 3, |file| 30_000 - 770 * file);
    tree.encode("raid6:4");
    let wishes = Wishes { forgotten: tree.files.keys().cloned().collect(), ..Wishes::default() };
    let mut open = tree.open(Purpose::Encode);
    let done = encode(&mut open, "raid6:4".parse().unwrap(), &wishes, &mut trees::quiet).unwrap();
    drop(open);
    assert_eq!((done.left, done.usage.sets, done.usage.files), (vec![], 1, 4));
    check_any_two(&tree);
}

#[test]
fn a_set_whose_files_are_empty_or_stay_as_copies_by_now_goes() {
    let mut tree = Dirs::new(6, 4, 3, |file| 30_000 - 770 * file);
    tree.encode("raid6:4");
    let all = paths(&tree);
    for path in &all[..3] {
        std::fs::write(&tree.copies(path)[0], b"").unwrap();
        tree.files.insert(path.clone(), Vec::new());
    }
    // This file is better off alone; the blocks of the old set do not help.
    let new = vec![7; 20_000];
    let at = tree.places(&all[3])[0].0;
    (0..3).for_each(|by| tree.put((at + by) % 6, &all[3], &new));
    tree.files.insert(all[3].clone(), new);
    let done = tree.encode("raid6:4");
    assert_eq!((done.left, done.usage.sets, done.usage.other_files), (vec![], 0, 4));
    tree.check().unwrap();
    assert_eq!((remove(&mut tree, &all).left, tree.stored_bytes()), (vec![], 0));
}

/// A newer set contains other bytes of one file of a set that stays. Either set may be looked at
/// first, because their ids differ from run to run.
#[test]
fn old_bytes_do_not_come_back_when_new_ones_are_lost() {
    for byte in 0..8 {
        let mut tree = Dirs::new(6, 4, 3, |file| 30_000 - 770 * file);
        tree.encode("raid6:4");
        let all = paths(&tree);
        // The file is missing, so it cannot be encoded again, and the old set stays.
        std::fs::remove_file(&tree.copies(&all[0])[0]).unwrap();
        let at = tree.places(&all[1])[0].0;
        tree.put(at, &all[1], &[byte; 20_000]);
        tree.files.insert(all[1].clone(), vec![byte; 20_000]);
        let left = tree.encode("raid6:4").left;
        assert_eq!((left.len(), tree.open(Purpose::Look).usage().sets), (1, 2), "{left:?}");
        tree.lose(at);
        tree.repair();
        let bytes = std::fs::read(&tree.copies(&all[1])[0]).unwrap();
        assert!(bytes == tree.files[&all[1]]);
    }
}

#[test]
fn a_set_that_stays_keeps_its_copies_though_their_files_are_in_new_sets() {
    for file in 1..3 {
        let mut tree = Dirs::new(7, 4, 3, |file| 30_000 - 770 * file);
        tree.encode("raid6:4");
        let all = paths(&tree);
        let (missing, path) = (tree.places(&all[0])[0].0, &all[file]);
        let (at, time) = tree.places(path)[0];
        std::fs::remove_file(&tree.copies(&all[0])[0]).unwrap();
        // The file has enough copies for a place in another set, and is kept there.
        let others = (0..7).filter(|dir| *dir != at);
        tree.restore(path, &others.map(|dir| (dir, time)).collect::<Vec<_>>());
        remove(&mut tree, &all[3..]);
        let done = clean(&tree, "raid6:4", 0);
        assert_eq!((done.left.len(), done.usage.sets), (1, 2), "{done:?}");
        // Then two blocks are missing, which the old set can restore.
        tree.lose((0..7).find(|dir| *dir != missing && *dir != at).unwrap());
        tree.repair();
        tree.check().unwrap();
    }
}

/// Encodes files again from a set of which half is removed, and stops when they are in both sets.
fn doubled(whole: &Dirs, code: &str) -> Dirs {
    let before = whole.open(Purpose::Look).usage().files;
    let wishes = Wishes { clean_percent: 50, ..Wishes::default() };
    let is_double = |at: usize| {
        let tree = whole.duplicate();
        let mut open = tree.open(Purpose::Encode);
        let watch = &mut but(Fate::Stopped, at);
        let done = encode(&mut open, code.parse().unwrap(), &wishes, watch);
        drop(open);
        assert!(done.is_err(), "{code}: there was no such moment");
        (tree.open(Purpose::Look).usage().files == 2 * before).then_some(tree)
    };
    (0..).find_map(is_double).unwrap()
}

#[test]
fn an_old_set_stays_while_the_new_one_is_not_as_it_should_be() {
    let mut whole = Dirs::new(6, 4, 3, |file| 20_000 - 770 * file);
    whole.encode("raid6:4");
    let all = paths(&whole);
    remove(&mut whole, &all[..2]);
    let names = |tree: &Dirs| -> Vec<_> {
        state(tree, "p").iter().map(|path| path.file_name().unwrap().to_owned()).collect()
    };
    let (tree, old) = (doubled(&whole, "raid6:4"), names(&whole));
    let new = state(&tree, "p")
        .into_iter()
        .filter(|path| !old.contains(&path.file_name().unwrap().to_owned()));
    let new: Vec<PathBuf> = new.collect();
    assert_eq!(new.len(), 2);
    new.iter().for_each(|path| std::fs::remove_file(path).unwrap());
    assert_eq!(clean(&tree, "raid6:4", 50).usage.sets, 2);
    let damaged = tree.duplicate();
    all[2..].iter().for_each(|path| damaged.lose(damaged.places(path)[0].0));
    damaged.repair();
    damaged.check().unwrap();
    tree.repair();
    assert_eq!(clean(&tree, "raid6:4", 50).usage.sets, 1);
    check_any_two(&tree);
}

/// A small file system mounted on a directory.
struct Small(PathBuf);

impl Small {
    /// `None` if this user cannot mount.
    fn mount(at: &std::path::Path, options: &std::ffi::CStr) -> Option<Self> {
        match mount("none", at, "tmpfs", MountFlags::empty(), Some(options)) {
            Ok(()) => Some(Self(at.to_owned())),
            Err(_) => {
                eprintln!("skipped: needs root");
                None
            }
        }
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        unmount(&self.0, UnmountFlags::DETACH).unwrap();
    }
}

/// Writes files with copies in all directories except the last.
fn put_but_in_last(tree: &mut Dirs, name: &str, count: usize, len: usize) {
    let others = tree.dirs.len() - 1;
    for file in 0..count {
        let (path, bytes) = (format!("{name}-{file}"), vec![file as u8 + 1; len - 100 * file]);
        (0..3).for_each(|copy| tree.put((file + copy) % others, &path, &bytes));
        tree.files.insert(path, bytes);
    }
}

#[test]
fn on_a_full_disk_sets_of_which_all_is_removed_make_room_for_new_ones() {
    let mut tree = Dirs::new(6, 0, 3, |_| 0);
    let Some(_small) = Small::mount(&tree.dirs[5], c"size=500k") else { return };
    put_but_in_last(&mut tree, "old", 4, 300_000);
    assert_eq!(tree.encode("raid6:4").left, []);
    let old = paths(&tree);
    remove(&mut tree, &old);
    put_but_in_last(&mut tree, "new", 4, 290_000);
    let done = clean(&tree, "raid6:4", 100);
    assert_eq!((done.cleaned, done.sets, done.left), (1, 1, vec![]));
    assert_eq!((state(&tree, "m").len(), state(&tree, "dead").len()), (0, 0));
    check_any_two(&tree);
}

/// Fills the rest of a file system with bytes outside the tree.
fn fill(dir: &Path) {
    let dir = dir.join("full").join(".weir-reduce");
    std::fs::create_dir_all(&dir).unwrap();
    let mut file = std::fs::File::create(dir.join("filler")).unwrap();
    while file.write(&[1; 4096]).is_ok_and(|count| count > 0) {}
}

#[test]
fn a_full_disk_with_a_copy_of_each_file_keeps_nothing_of_a_set_and_fills_no_other() {
    let mut tree = Dirs::new(10, 0, 3, |_| 0);
    let Some(_small) = Small::mount(&tree.dirs[9], c"size=1m") else { return };
    for file in 0..8 {
        let (path, bytes) = (format!("file-{file}"), vec![file as u8 + 1; 20_000 - file]);
        // Only this disk has the first file, so no place is left there for a parity.
        let dirs = if file == 0 { vec![9] } else { vec![9, file, file + 1] };
        dirs.iter().for_each(|dir| tree.put(*dir, &path, &bytes));
        tree.files.insert(path, bytes);
    }
    drop(tree.open(Purpose::Encode));
    fill(&tree.dirs[9]);
    let done = tree.encode("raid6");
    assert_eq!((done.sets, done.removed_copies, done.usage.other_files), (0, 0, 8), "{done:?}");
    assert!(done.left.iter().any(|found| found.trouble == Trouble::Failed), "{done:?}");
    assert_eq!((state(&tree, "set").len(), state(&tree, "p").len()), (0, 0));
    tree.check().unwrap();
    std::fs::remove_dir_all(tree.dirs[9].join("full")).unwrap();
    let done = tree.encode("raid6");
    assert_eq!((done.sets, done.left), (1, vec![]));
}

#[test]
fn parities_go_where_there_is_most_room() {
    let mut tree = Dirs::new(12, 0, 3, |_| 0);
    let Some(_small) = Small::mount(&tree.dirs[0], c"size=500k") else { return };
    for file in 0..16 {
        let (path, bytes) = (format!("file-{file}"), vec![file as u8 + 1; 20_000]);
        tree.put(2 + file % 8, &path, &bytes);
        tree.files.insert(path, bytes);
    }
    let done = tree.encode("raid6");
    assert_eq!((done.sets, done.left), (2, vec![]));
    let with =
        |dir: usize| state(&tree, "p").iter().filter(|p| p.starts_with(&tree.dirs[dir])).count();
    // Disks with equal free space get equal shares.
    assert_eq!([0, 1, 10, 11].map(with), [0, 2, 1, 1]);
}

#[test]
fn on_a_full_disk_sets_are_cleaned_though_others_do_not_fit() {
    let mut tree = Dirs::new(6, 0, 3, |_| 0);
    let Some(_small) = Small::mount(&tree.dirs[5], c"size=500k") else { return };
    put_but_in_last(&mut tree, "old", 4, 50_000);
    assert_eq!(tree.encode("raid6:4").left, []);
    let old = paths(&tree);
    remove(&mut tree, &old[..2]);
    put_but_in_last(&mut tree, "large", 4, 600_000);
    let done = clean(&tree, "raid6:4", 50);
    assert_eq!((done.cleaned, done.sets, done.left.len()), (1, 1, 1), "{done:?}");
    assert_eq!((state(&tree, "m").len(), state(&tree, "dead").len()), (0, 0));
    assert_eq!(tree.verify().findings, []);
    check_two(&tree, 0, 5);
}

#[test]
fn whatever_change_fails_while_sets_are_cleaned_nothing_is_lost_and_the_next_run_ends_it() {
    for (code, dirs) in [("raid6:4", 6), ("raid5-mirror:4", 7)] {
        let mut whole = Dirs::new(dirs, 8, 3, |file| 20_000 - 770 * file);
        let all = paths(&whole);
        let (bytes, places) = (whole.files[&all[5]].clone(), whole.places(&all[5]));
        whole.encode(code);
        // All files of one set are removed, and one file of the other, which is then put back.
        let open = whole.open(Purpose::Look);
        assert_eq!(open.usage().sets, 2, "{code}");
        drop(open);
        remove(&mut whole, &[&all[..3], &all[5..6]].concat());
        whole.files.insert(all[5].clone(), bytes);
        whole.restore(&all[5], &places);
        for fate in [Fate::Stopped, Fate::Refused] {
            for at in 0.. {
                let say = format!("{code}, {fate:?} at {at}");
                let tree = whole.duplicate();
                let mut open = tree.open(Purpose::Encode);
                let wishes = Wishes { clean_percent: 25, ..Wishes::default() };
                let done = encode(&mut open, code.parse().unwrap(), &wishes, &mut but(fate, at));
                drop(open);
                tree.check().unwrap_or_else(|why| panic!("{say}: {why}"));
                let crashed = tree.duplicate();
                crashed.lose(at % dirs);
                crashed.lose((at + 1 + at / dirs) % dirs);
                assert_eq!(crashed.repair().left, [], "{say}");
                crashed.check().unwrap_or_else(|why| panic!("{say}: {why}"));
                let again = clean(&tree, code, 25);
                assert_eq!(again.left, [], "{say}");
                let files = again.usage.files + again.usage.other_files;
                assert_eq!((files, again.usage.dead_files), (5, 0), "{say}");
                assert_eq!(tree.verify().findings, [], "{say}");
                check_two(&tree, at % dirs, (at + 3) % dirs);
                if done.is_ok_and(|done| done.left.is_empty()) {
                    assert!(at >= 40, "only {at} steps");
                    break;
                }
            }
        }
    }
}

/// A command is stopped when files are in a new set and the old set still exists.
#[test]
fn a_file_in_two_sets_is_removed_from_both() {
    for (code, dirs) in [("raid6:4", 6), ("raid5-mirror:4", 7)] {
        let mut whole = Dirs::new(dirs, 4, 3, |file| 20_000 - 770 * file);
        whole.encode(code);
        let all = paths(&whole);
        remove(&mut whole, &all[..2]);
        let mut double = doubled(&whole, code);
        let damaged = double.duplicate();
        [1, 3].into_iter().for_each(|dir| damaged.lose(dir));
        damaged.repair();
        damaged.check().unwrap();
        for at in 0.. {
            let mut tree = double.duplicate();
            let files = [all[2].clone()].into();
            let watch = &mut but(Fate::Stopped, at);
            let done = remove_files(&mut tree.open(Purpose::Remove), &files, watch);
            assert_eq!(clean(&tree, code, 100).left, [], "{code}, step {at}");
            let is_gone = tree.copies(&all[2]).is_empty();
            if is_gone {
                tree.files.remove(&all[2]);
            }
            check_two(&tree, at % dirs, (at + 1) % dirs);
            if done.is_ok() {
                assert!(is_gone, "{code}, step {at}");
                break;
            }
        }
        let done = remove(&mut double, &all[2..3]);
        assert_eq!((done.left, double.copies(&all[2])), (vec![], vec![]), "{code}");
        assert_eq!(double.verify().findings, [], "{code}");
        check_any_two(&double);
        assert_eq!(clean(&double, code, 50).left, [], "{code}");
        check_any_two(&double);
    }
}
