//! Findings name what is wrong, and the other files go on.
#![allow(clippy::unwrap_used)] // A panic is how a test fails.

mod trees;

use std::fs::File;
use trees::{Dirs, Fate, but, check_any_two, paths, quiet, rot, set_time, state};
use weir_reduce::{Encoded, Purpose, Trouble, Wishes, encode};

fn troubles(done: &Encoded) -> Vec<(Trouble, Option<u32>)> {
    done.left.iter().map(|found| (found.trouble, found.target)).collect()
}

fn encoded() -> Dirs {
    let tree = Dirs::new(10, 8, 3, |_| 5000);
    assert_eq!(tree.encode("raid6").left, []);
    tree
}

#[test]
fn a_parity_that_is_gone_or_shorter_is_named_at_each_run() {
    let tree = encoded();
    std::fs::remove_file(&state(&tree, "p0")[0]).unwrap();
    let parity = File::options().write(true).open(&state(&tree, "p1")[0]).unwrap();
    parity.set_len(4000).unwrap();
    for _ in 0..2 {
        let found: Vec<_> = troubles(&tree.encode("raid6")).into_iter().map(|(t, _)| t).collect();
        assert_eq!(found, [Trouble::Missing, Trouble::Rotten]);
    }
    assert_eq!((tree.repair().left, tree.encode("raid6").left), (vec![], vec![]));
}

#[test]
fn what_keeps_extra_copies_from_going_is_named() {
    let tree = encoded();
    let path = paths(&tree).remove(0);
    let (at, time) = tree.places(&path)[0];
    tree.restore(&path, &[((at + 1) % 10, time)]);
    rot(&state(&tree, "p1")[0], 100);
    let done = tree.encode("raid6");
    assert_eq!((done.left.len(), done.left[0].trouble), (1, Trouble::Rotten), "{done:?}");
    assert!(done.left[0].what.ends_with(".p1"), "{done:?}");
    tree.repair();
    let done = tree.encode("raid6");
    assert_eq!((done.left, done.removed_copies), (vec![], 1));
}

#[test]
fn a_rotten_copy_beside_a_set_is_named_and_stays() {
    let tree = encoded();
    let path = paths(&tree).remove(0);
    let (at, time) = tree.places(&path)[0];
    let other = (at + 1) % 10;
    tree.restore(&path, &[(other, time)]);
    let copy = tree.dirs[other].join(&path);
    rot(&copy, 100);
    set_time(&copy, time);
    let found = troubles(&tree.encode("raid6"));
    assert_eq!((found, copy.exists()), (vec![(Trouble::Rotten, Some(other as u32))], true));
}

#[test]
fn files_with_too_few_copies_do_not_keep_others_out_of_sets() {
    let mut tree = Dirs::new(7, 8, 3, |_| 5000);
    // Longer files are considered first, at most a thousand at a time.
    (0..1000).for_each(|file| tree.put(file % 7, &format!("few/{file}"), &[1; 5100]));
    let done = tree.encode("raid5-mirror:4");
    assert_eq!((done.files, done.left.len()), (8, 1000));
    assert!(done.left.iter().all(|found| found.trouble == Trouble::FewCopies));
    tree.files.clear();
}

#[test]
fn a_set_that_stays_since_copies_differ_is_said() {
    let mut tree = Dirs::new(6, 4, 3, |file| 30_000 - 770 * file);
    tree.encode("raid6:4");
    let all = paths(&tree);
    for path in &all[..3] {
        std::fs::write(&tree.copies(path)[0], b"").unwrap();
        tree.files.insert(path.clone(), Vec::new());
    }
    let at = tree.places(&all[3])[0].0;
    (0..3).for_each(|by| tree.put((at + by) % 6, &all[3], &[7; 20_000]));
    rot(&tree.dirs[(at + 1) % 6].join(&all[3]), 100);
    let done = tree.encode("raid6:4");
    assert_eq!((done.usage.sets, done.left.len()), (1, 1), "{done:?}");
    assert_eq!(done.left[0].trouble, Trouble::Differ);
}

#[test]
fn what_was_begun_of_a_set_goes_in_the_same_run_if_it_fails() {
    for at in 0..3 {
        let tree = Dirs::new(10, 8, 3, |_| 5000);
        let mut open = tree.open(Purpose::Encode);
        let refused = &mut but(Fate::Refused, at);
        let code = "raid6".parse().unwrap();
        let done = encode(&mut open, code, &Default::default(), refused).unwrap();
        drop(open);
        assert_eq!((done.sets, done.left.len()), (0, 1), "{at}: {done:?}");
        assert_eq!((state(&tree, "p").len(), state(&tree, "set").len()), (0, 0), "{at}");
    }
}

#[test]
fn a_forgotten_file_does_not_come_back_though_its_set_stays() {
    let mut tree = encoded();
    let all = paths(&tree);
    all[..2].iter().for_each(|path| std::fs::remove_file(&tree.copies(path)[0]).unwrap());
    let wishes = Wishes { forgotten: [all[0].clone()].into(), ..Wishes::default() };
    let mut open = tree.open(Purpose::Encode);
    let done = encode(&mut open, "raid6".parse().unwrap(), &wishes, &mut quiet).unwrap();
    drop(open);
    tree.files.remove(&all[0]);
    assert_eq!(troubles(&done).len(), 1, "{done:?}");
    tree.repair();
    assert_eq!(tree.copies(&all[0]), Vec::<std::path::PathBuf>::new());
    tree.check().unwrap();
    assert_eq!(tree.encode("raid6").left, []);
    check_any_two(&tree);
}
