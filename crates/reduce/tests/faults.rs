//! Adverse conditions: files written by users meanwhile, links, wrong directories, full and
//! replaced disks. Nothing is lost, and no old bytes come back.
#![allow(clippy::unwrap_used)] // A panic is how a test fails.

mod trees;

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::fs::{create_dir_all, metadata, read, remove_file, set_permissions, write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use trees::{Dirs, quiet, rot};
use weir_reduce::{Purpose, Step, Tree, Trouble, Wishes, encode, repair};

const STATE: &str = ".weir-reduce";

fn encoded() -> Dirs {
    let tree = Dirs::new(10, 8, 3, |_| 5000);
    assert_eq!(tree.encode("raid6").left, []);
    tree
}

fn path_of(tree: &Dirs, file: usize) -> String {
    tree.files.keys().nth(file).unwrap().clone()
}

/// Runs an action just before the first change of a repair.
fn repair_beside(tree: &Dirs, what: impl Fn()) -> weir_reduce::Repaired {
    let mut is_done = false;
    let mut open = tree.open(Purpose::Repair);
    let done = repair(&mut open, &mut |step| {
        if step == Step::Change && !std::mem::replace(&mut is_done, true) {
            what();
        }
        Ok(())
    });
    done.unwrap()
}

fn state_files(tree: &Dirs, ending: &str) -> Vec<PathBuf> {
    let all = tree.dirs.iter().flat_map(|dir| std::fs::read_dir(dir.join(STATE)).unwrap());
    let all = all.map(|entry| entry.unwrap().path());
    let mut all: Vec<_> = all.filter(|path| path.to_str().unwrap().ends_with(ending)).collect();
    all.sort_unstable();
    all
}

#[test]
fn what_is_written_while_a_file_is_repaired_stays() {
    let (missing, rotten) = (encoded(), encoded());
    let at = missing.copies(&path_of(&missing, 1)).remove(0);
    remove_file(&at).unwrap();
    let left = repair_beside(&missing, || write(&at, b"new").unwrap()).left;
    assert_eq!((left[0].trouble, read(&at).unwrap()), (Trouble::Changed, b"new".to_vec()));
    let at = rotten.copies(&path_of(&rotten, 1)).remove(0);
    rot(&at, 77);
    let left = repair_beside(&rotten, || write(&at, b"new").unwrap()).left;
    assert_eq!((left[0].trouble, read(&at).unwrap()), (Trouble::Changed, b"new".to_vec()));
}

#[test]
fn two_names_of_one_file_are_not_two_copies() {
    let tree = Dirs::new(10, 8, 3, |_| 5000);
    let path = path_of(&tree, 0);
    let copies = tree.copies(&path);
    remove_file(&copies[1]).unwrap();
    std::fs::hard_link(&copies[0], &copies[1]).unwrap();
    let left = tree.encode("raid6").left;
    assert!(left[0].what.contains("are one file"), "{left:?}");
    assert_eq!(tree.copies(&path).len(), 3);
}

#[test]
fn a_target_that_was_copied_into_another_is_no_part_of_it() {
    let tree = encoded();
    let backup = tree.dirs[0].join("backup").join(STATE);
    create_dir_all(&backup).unwrap();
    write(backup.join("x.p0"), vec![1; 9000]).unwrap();
    tree.encode("raid6");
    assert_eq!((tree.verify().findings, tree.repair().left), (vec![], vec![]));
    let nested = [tree.dirs[0].clone(), tree.dirs[0].join("backup")];
    let error = Tree::open(&nested, Purpose::Look).err().unwrap().to_string();
    assert!(error.contains("is inside"), "{error}");
}

#[test]
fn copies_stay_while_a_parity_is_missing() {
    let tree = Dirs::new(10, 8, 3, |_| 5000);
    let mut open = tree.open(Purpose::Encode);
    // Stopped after two parities and ten records, while the copies still exist.
    let mut changes = 0;
    let stopped = encode(&mut open, "raid6".parse().unwrap(), &Default::default(), &mut |step| {
        changes += usize::from(step == Step::Change);
        if changes > 12 { Err(weir_reduce::Failure::other("stopped")) } else { Ok(()) }
    });
    assert!(stopped.is_err());
    drop(open);
    state_files(&tree, ".p1").iter().for_each(|path| remove_file(path).unwrap());
    assert_eq!(tree.encode("raid6").removed_copies, 0);
    tree.repair();
    assert_eq!(tree.encode("raid6").removed_copies, 16);
    tree.check().unwrap();
    assert_eq!(tree.verify().findings, []);
}

#[test]
fn a_file_that_was_written_anew_elsewhere_does_not_come_back_in_its_old_place() {
    let mut tree = encoded();
    let path = path_of(&tree, 3);
    let old = tree.copies(&path).remove(0);
    remove_file(&old).unwrap();
    let elsewhere = (0..10).filter(|i| tree.dirs[*i].join(&path) != old);
    elsewhere.take(3).for_each(|dir| tree.put(dir, &path, &[9; 6000]));
    tree.files.insert(path.clone(), vec![9; 6000]);
    let left = tree.repair().left;
    assert!(left.iter().all(|f| f.trouble == Trouble::Changed) && !left.is_empty(), "{left:?}");
    tree.check().unwrap();
    let done = tree.encode("raid6");
    assert_eq!((done.usage.files, done.usage.other_files, done.left.len()), (8, 0, 0), "{done:?}");
    assert_eq!(tree.verify().findings, []);
    tree.check().unwrap();
}

#[test]
fn a_mirrored_file_of_which_one_copy_is_new_and_one_gone_stays_as_it_is() {
    let tree = Dirs::new(6, 8, 3, |_| 5000);
    assert_eq!(tree.encode("raid5-mirror").left, []);
    let copies = tree.copies(&path_of(&tree, 0));
    remove_file(&copies[0]).unwrap();
    write(&copies[1], b"new").unwrap();
    assert!(tree.repair().left.iter().all(|f| f.trouble == Trouble::Changed));
    assert!(!copies[0].exists() && read(&copies[1]).unwrap() == b"new");
}

#[test]
fn only_an_empty_directory_takes_the_place_of_a_lost_one_and_only_in_a_repair() {
    let tree = encoded();
    tree.lose(4);
    assert!(!tree.verify().findings.is_empty());
    assert!(!tree.dirs[4].join(STATE).exists(), "verification writes nothing");
    let error = Tree::open(&tree.dirs, Purpose::Encode).err().unwrap().to_string();
    assert!(error.contains("target 4 was not given"), "{error}");
    write(tree.dirs[4].join("other"), b"of somebody").unwrap();
    let error = Tree::open(&tree.dirs, Purpose::Repair).err().unwrap().to_string();
    assert!(error.contains("not empty"), "{error}");
    remove_file(tree.dirs[4].join("other")).unwrap();
    let done = tree.repair();
    assert_eq!(done.replaced, [(4, tree.dirs[4].display().to_string())]);
    assert_eq!((done.left, tree.verify().findings), (vec![], vec![]));
}

#[test]
fn parities_are_for_nobody_else_to_read() {
    let tree = encoded();
    for path in state_files(&tree, "") {
        assert_eq!(metadata(&path).unwrap().mode() & 0o777, 0o600, "{}", path.display());
    }
    assert_eq!(metadata(tree.dirs[0].join(STATE)).unwrap().mode() & 0o777, 0o700);
}

#[test]
fn a_state_that_others_can_write_and_a_path_over_a_link_are_refused() {
    let tree = encoded();
    let state = tree.dirs[2].join(STATE);
    set_permissions(&state, PermissionsExt::from_mode(0o777)).unwrap();
    let error = Tree::open(&tree.dirs, Purpose::Look).err().unwrap().to_string();
    assert!(error.contains("nobody else can write"), "{error}");
    set_permissions(&state, PermissionsExt::from_mode(0o700)).unwrap();
    // The parent directory of a lost file is a link to another place.
    let at = tree.copies(&path_of(&tree, 0)).remove(0);
    let above = at.parent().unwrap();
    let elsewhere = above.parent().unwrap().with_file_name("elsewhere");
    std::fs::remove_dir_all(above).unwrap();
    create_dir_all(&elsewhere).unwrap();
    symlink("../elsewhere", above).unwrap();
    assert!(tree.repair().left.iter().any(|f| f.trouble == Trouble::Failed));
    assert!(elsewhere.read_dir().unwrap().next().is_none());
}

#[test]
fn a_rotten_number_is_read_from_its_copy() {
    let tree = encoded();
    let number = tree.dirs[3].join(STATE).join("target");
    write(&number, [0xff, 0xfe]).unwrap();
    assert_eq!(tree.verify().findings, []);
    assert_eq!(tree.repair().left, []);
    assert_eq!(read(&number).unwrap(), read(number.with_file_name("target-copy")).unwrap());
    remove_file(&number).unwrap();
    remove_file(number.with_file_name("target-copy")).unwrap();
    let error = Tree::open(&tree.dirs, Purpose::Encode).err().unwrap().to_string();
    assert!(error.contains("may be good"), "{error}");
}

#[test]
fn what_cannot_be_read_is_reported_and_the_rest_goes_on() {
    let tree = Dirs::new(10, 16, 3, |_| 5000);
    let path = path_of(&tree, 0);
    // A name that is a file in one target and a directory in another, and a file that is removed
    // meanwhile.
    let copies = tree.copies(&path);
    let gone = path_of(&tree, 1);
    let copies_gone = tree.copies(&gone);
    let mut open = tree.open(Purpose::Encode);
    for copy in &copies {
        remove_file(copy).unwrap();
        create_dir_all(copy).unwrap();
    }
    copies_gone.iter().for_each(|copy| remove_file(copy).unwrap());
    let done = encode(&mut open, "raid6".parse().unwrap(), &Default::default(), &mut quiet);
    let done = done.unwrap();
    drop(open);
    assert_eq!((done.files, done.left.len()), (14, 2), "{done:?}");
    // The same for a member of a set.
    let path = path_of(&tree, 2);
    let copy = tree.copies(&path).remove(0);
    remove_file(&copy).unwrap();
    create_dir_all(copy.join("inside")).unwrap();
    let lost = tree.copies(&path_of(&tree, 5)).remove(0);
    remove_file(&lost).unwrap();
    let done = tree.repair();
    assert!(done.left.iter().all(|f| f.trouble == Trouble::Failed), "{done:?}");
    assert!(lost.exists() && copy.join("inside").exists());
    assert!(state_files(&tree, "").iter().all(|path| !is_unnamed(path)));
}

#[test]
fn a_full_disk_is_reported_and_keeps_nothing_of_what_was_begun() {
    let tree = Dirs::new(10, 16, 3, |_| 300_000);
    let full = &tree.dirs[9];
    if mount("none", full, "tmpfs", MountFlags::empty(), Some(c"size=128k")).is_err() {
        eprintln!("skipped: needs root");
        return;
    }
    let done = tree.encode("raid6");
    let unnamed = state_files(&tree, "").iter().filter(|path| is_unnamed(path)).count();
    unmount(full, UnmountFlags::DETACH).unwrap();
    assert_eq!((done.sets, done.removed_copies, unnamed), (0, 0, 0), "{done:?}");
    assert!(done.left.iter().all(|f| f.trouble == Trouble::Failed) && !done.left.is_empty());
    tree.check().unwrap();
}

fn is_unnamed(path: &Path) -> bool {
    path.file_name().unwrap().to_str().unwrap().starts_with("tmp-")
}

#[test]
fn copies_come_back_from_copies_though_others_are_lost() {
    let tree = Dirs::new(6, 8, 3, |_| 5000);
    assert_eq!(tree.encode("raid5-mirror").left, []);
    // Losing two whole files is too much; a third one has a copy left.
    for file in 0..2 {
        tree.copies(&path_of(&tree, file)).iter().for_each(|copy| remove_file(copy).unwrap());
    }
    let third = tree.copies(&path_of(&tree, 2));
    remove_file(&third[0]).unwrap();
    let done = tree.repair();
    assert!(third[0].exists());
    let is_named = |file| done.left.iter().any(|f| f.what.contains(&path_of(&tree, file)));
    assert!(is_named(0) && is_named(1) && !is_named(2), "{done:?}");
}

#[test]
fn directories_come_back_with_their_permissions() {
    let tree = Dirs::new(10, 8, 3, |_| 5000);
    for dir in &tree.dirs {
        for sub in ["a0", "a0/b"] {
            create_dir_all(dir.join(sub)).unwrap();
            set_permissions(dir.join(sub), PermissionsExt::from_mode(0o2750)).unwrap();
        }
    }
    tree.encode("raid6");
    let at = tree.copies(tree.files.keys().find(|path| path.starts_with("a0")).unwrap()).remove(0);
    std::fs::remove_dir_all(at.parent().unwrap().parent().unwrap()).unwrap();
    assert_eq!(tree.repair().left, []);
    assert_eq!(metadata(at.parent().unwrap()).unwrap().mode() & 0o7777, 0o2750);
}

#[test]
fn parities_without_a_record_stay_while_a_record_is_rotten() {
    let mut tree = Dirs::new(10, 16, 3, |_| 5000);
    tree.encode("raid6");
    // In one set all records are rotten; in the other one a file has changed.
    let rotten = state_files(&tree, ".set").remove(0).file_name().unwrap().to_owned();
    let records = tree.dirs.iter().map(|dir| dir.join(STATE).join(&rotten));
    records.filter(|path| path.exists()).for_each(|path| rot(&path, 9));
    let parities = state_files(&tree, ".p0");
    let of_rotten = parities.iter().find(|path| path.file_stem() == Path::new(&rotten).file_stem());
    let of_rotten = of_rotten.unwrap().clone();
    // A file in each set has changed, so that the former set is not simply made again.
    let known = read(state_files(&tree, ".set").last().unwrap()).unwrap();
    let known = String::from_utf8_lossy(&known).into_owned();
    let is_known = |path: &&String| known.contains(&format!("\"{path}\""));
    let (known, others): (Vec<_>, Vec<_>) = tree.files.keys().partition(is_known);
    for path in [known[0].clone(), others[0].clone()] {
        write(tree.copies(&path).remove(0), [3; 4000]).unwrap();
        tree.files.insert(path, vec![3; 4000]);
    }
    tree.encode("raid6");
    assert!(of_rotten.exists());
    tree.check().unwrap();
}

#[test]
fn with_a_stopped_removal_and_a_new_file_encoding_goes_on() {
    let mut tree = encoded();
    let (extra, path) = (path_of(&tree, 0), path_of(&tree, 1));
    let has = |dir: &PathBuf| dir.join(&extra).exists();
    let other = tree.dirs.iter().position(|dir| !has(dir)).unwrap();
    tree.put(other, &extra, &tree.files[&extra]);
    write(tree.copies(&path).remove(0), b"new").unwrap();
    tree.files.insert(path, b"new".to_vec());
    let done = tree.encode("raid6");
    assert_eq!(done.usage.files, 8, "{done:?}");
    tree.check().unwrap();
    assert_eq!(tree.verify().findings, []);
}

#[test]
fn a_path_of_no_set_is_not_forgotten() {
    let tree = encoded();
    for path in ["./a0/b/file-0", "/a0/b/file-0", "nonsense"] {
        let forgotten = [path.to_owned()].into_iter().collect();
        let mut open = tree.open(Purpose::Encode);
        let wishes = Wishes { forgotten, ..Wishes::default() };
        let error = encode(&mut open, "raid6".parse().unwrap(), &wishes, &mut quiet);
        assert!(error.unwrap_err().to_string().contains("no set has a file"), "{path}");
    }
}

#[test]
fn files_that_are_smaller_than_their_record_stay_copies() {
    let tree = Dirs::new(10, 8, 3, |_| 10);
    let done = tree.encode("raid6");
    assert_eq!((done.sets, done.usage.other_files, done.left.len()), (0, 8, 0), "{done:?}");
}
