//! What a power cut may take and what not.

use super::{durable_file, images, root};
use crate::disk::SimDisk;
use std::collections::BTreeSet;
use weir_host::fs::OpenHow;

const IMAGES: u64 = 1_000;

/// The kinds of sectors of a file in the images.
fn sectors(bytes: &[u8]) -> Vec<u8> {
    bytes
        .chunks(512)
        .map(|sector| {
            assert!(sector.iter().all(|b| *b == sector[0]), "a sector is whole");
            sector[0]
        })
        .collect()
}

#[test]
fn what_was_synced_survives() {
    let disk = SimDisk::new(1);
    let file = durable_file(&disk, "a", &[7; 10_000]);
    let other = durable_file(&disk, "b", b"other");
    file.write_full(&[8; 5_000], 9_000).unwrap();
    file.punch(100, 50).unwrap();
    file.set_len(13_000).unwrap();
    file.sync("again").unwrap();
    other.write_full(b"lost?", 0).unwrap();
    root(&disk).open_file("c", OpenHow::CREATE).unwrap();
    let expected = disk.read_file("a").unwrap();
    for image in images(&disk, IMAGES) {
        assert!(image.read_file("a").unwrap() == expected);
    }
}

#[test]
fn an_unsynced_write_is_lost_or_torn_or_kept() {
    let disk = SimDisk::new(1);
    let file = durable_file(&disk, "a", &[1; 12_288]);
    file.write_full(&[2; 12_288], 0).unwrap();
    let seen: BTreeSet<Vec<u8>> =
        images(&disk, IMAGES).map(|image| sectors(&image.read_file("a").unwrap())).collect();
    assert!(seen.contains(&vec![1; 24]), "lost");
    assert!(seen.contains(&vec![2; 24]), "kept");
    assert!(seen.contains(&[vec![2; 8], vec![1; 8], vec![2; 8]].concat()), "without a page");
    assert!(seen.iter().any(|s| s[0] == 1 && s[23] == 2), "without its beginning");
    assert!(seen.iter().any(|s| s[0] == 2 && s[23] == 1), "without its end");
    assert!(seen.len() > 50, "{} outcomes", seen.len());
}

#[test]
fn of_two_writes_either_survives() {
    let disk = SimDisk::new(1);
    let file = durable_file(&disk, "a", &[1; 1024]);
    file.write_full(&[2; 1024], 0).unwrap();
    file.write_full(&[3; 512], 512).unwrap();
    let seen: BTreeSet<Vec<u8>> =
        images(&disk, IMAGES).map(|image| sectors(&image.read_file("a").unwrap())).collect();
    let expected = [[1, 1], [1, 2], [1, 3], [2, 1], [2, 2], [2, 3]];
    assert_eq!(seen, expected.iter().map(|s| s.to_vec()).collect());
}

#[test]
fn a_small_write_never_splits_a_sector() {
    let disk = SimDisk::new(1);
    let file = durable_file(&disk, "a", &[1; 512]);
    file.write_full(&[2; 10], 0).unwrap();
    file.write_full(&[3; 10], 100).unwrap();
    // The disk gets sectors as they were in memory: the second write alone
    // was never there.
    let mut states = BTreeSet::new();
    for image in images(&disk, IMAGES) {
        let bytes = image.read_file("a").unwrap();
        states.insert((bytes[0], bytes[9], bytes[100], bytes[109], bytes[50]));
    }
    assert_eq!(states, BTreeSet::from([(1, 1, 1, 1, 1), (2, 2, 1, 1, 1), (2, 2, 3, 3, 1)]));
}

#[test]
fn an_append_may_leave_length_without_data() {
    let disk = SimDisk::new(1);
    let file = durable_file(&disk, "log", &[1; 512]);
    file.write_full(&[2; 512], 512).unwrap();
    file.write_full(&[3; 512], 1024).unwrap();
    let seen: BTreeSet<Vec<u8>> =
        images(&disk, IMAGES).map(|image| sectors(&image.read_file("log").unwrap())).collect();
    for expected in [&[1][..], &[1, 2], &[1, 2, 3], &[1, 0], &[1, 0, 0], &[1, 0, 3], &[1, 2, 0]] {
        assert!(seen.contains(expected), "{expected:?}");
    }
    assert_eq!(seen.len(), 7, "{seen:?}");
}

#[test]
fn a_truncated_file_shows_old_or_new_never_both() {
    let disk = SimDisk::new(1);
    let file = durable_file(&disk, "a", &[1; 2048]);
    file.set_len(512).unwrap();
    file.set_len(1024).unwrap();
    let seen: BTreeSet<Vec<u8>> =
        images(&disk, IMAGES).map(|image| sectors(&image.read_file("a").unwrap())).collect();
    assert_eq!(seen, BTreeSet::from([vec![1; 4], vec![1], vec![1, 0]]));
}

#[test]
fn a_punched_range_shows_old_bytes_or_zeros() {
    let disk = SimDisk::new(1);
    let file = durable_file(&disk, "a", &[1; 8192]);
    file.punch(300, 8000).unwrap();
    let mut whole = BTreeSet::new();
    for image in images(&disk, IMAGES) {
        let bytes = image.read_file("a").unwrap();
        assert_eq!(bytes.len(), 8192);
        assert!(bytes[..300].iter().all(|b| *b == 1));
        whole.insert(bytes[300..8192].iter().map(|b| u32::from(*b)).sum::<u32>());
    }
    assert!(whole.contains(&0), "punched");
    assert!(whole.contains(&7892), "not punched");
    assert!(whole.len() > 5, "in part");
}

#[test]
fn a_name_lasts_only_after_its_directory_was_synced() {
    let disk = SimDisk::new(1);
    let root = root(&disk);
    let file = root.open_file("a", OpenHow::CREATE).unwrap();
    file.write_full(b"data", 0).unwrap();
    file.sync("data").unwrap();
    let lost = images(&disk, IMAGES).filter(|i| i.files().is_empty()).count();
    assert!((100..900).contains(&lost), "the name was lost {lost} times");
    root.sync("name").unwrap();
    for image in images(&disk, IMAGES) {
        assert_eq!(image.read_file("a").unwrap(), b"data");
    }
    root.unlink("a").unwrap();
    drop(file);
    let back = images(&disk, IMAGES).filter(|i| i.read_file("a").is_ok()).count();
    assert!((100..900).contains(&back), "it came back {back} times");
    root.sync("unlinked").unwrap();
    for image in images(&disk, IMAGES) {
        assert!(image.files().is_empty());
    }
}

#[test]
fn a_directory_that_is_lost_takes_its_files_along() {
    let disk = SimDisk::new(1);
    let root = root(&disk);
    root.make_directory("d").unwrap();
    let directory = root.open_directory("d").unwrap();
    directory.open_file("a", OpenHow::CREATE).unwrap().sync("data").unwrap();
    directory.sync("inner").unwrap();
    let mut seen = BTreeSet::new();
    for image in images(&disk, IMAGES) {
        let names: Vec<_> = image.files().into_iter().map(|(path, _)| path).collect();
        seen.insert((names, super::root(&image).stat("d").is_ok()));
    }
    assert_eq!(seen, BTreeSet::from([(vec![], false), (vec!["d/a".to_owned()], true)]));
    root.sync("outer").unwrap();
    for image in images(&disk, IMAGES) {
        assert_eq!(image.files(), [("d/a".to_owned(), 0)]);
    }
}

#[test]
fn a_replaced_file_is_old_or_new() {
    let disk = SimDisk::new(1);
    drop(durable_file(&disk, "a", b"old"));
    let root = root(&disk);
    let new = root.open_file("a.new", OpenHow::REPLACE).unwrap();
    new.write_full(b"new!", 0).unwrap();
    new.sync("new").unwrap();
    root.rename("a.new", "a").unwrap();
    let seen: BTreeSet<_> = images(&disk, IMAGES).map(|i| i.read_file("a").unwrap()).collect();
    assert_eq!(seen, BTreeSet::from([b"old".to_vec(), b"new!".to_vec()]));
    for image in images(&disk, IMAGES).filter(|i| i.read_file("a").unwrap() == b"new!") {
        assert_eq!(image.files().len(), 1, "the rename is there as a whole");
    }
    root.sync("renamed").unwrap();
    assert!(images(&disk, IMAGES).all(|i| i.read_file("a").unwrap() == b"new!"));
}

#[test]
fn a_file_that_replaces_another_needs_a_sync_first() {
    let disk = SimDisk::new(1);
    drop(durable_file(&disk, "a", b"old"));
    let root = root(&disk);
    let new = root.open_file("a.new", OpenHow::REPLACE).unwrap();
    new.write_full(b"new!", 0).unwrap();
    root.rename("a.new", "a").unwrap();
    root.sync("renamed").unwrap();
    let seen: BTreeSet<_> = images(&disk, IMAGES).map(|i| i.read_file("a").unwrap()).collect();
    assert_eq!(seen, BTreeSet::from([b"".to_vec(), b"\0\0\0\0".to_vec(), b"new!".to_vec()]));
}

#[test]
fn a_rename_between_directories_is_in_both_or_none() {
    let disk = SimDisk::new(1);
    disk.write_file("x/a", b"data").unwrap();
    disk.write_file("y/b", b"").unwrap();
    let root = root(&disk);
    root.rename("x/a", "y/a").unwrap();
    for sync in [None, Some("x"), Some("y")] {
        let disk = disk.copy();
        if let Some(path) = sync {
            super::root(&disk).open_directory(path).unwrap().sync("test").unwrap();
        }
        let mut seen = BTreeSet::new();
        for image in images(&disk, IMAGES) {
            let files = image.files().into_iter().map(|(path, _)| path);
            seen.insert(files.filter(|p| p.ends_with('a')).collect::<Vec<_>>());
        }
        let new = vec!["y/a".to_owned()];
        match sync {
            None => assert_eq!(seen, BTreeSet::from([vec!["x/a".to_owned()], new])),
            Some(_) => {
                assert_eq!(seen, BTreeSet::from([new]), "one directory takes the other along")
            }
        }
    }
}

#[test]
fn a_synced_rename_brings_along_how_the_file_came_to_be() {
    let disk = SimDisk::new(1);
    disk.write_file("x/old", b"").unwrap();
    disk.write_file("y/old", b"").unwrap();
    let root = root(&disk);
    root.open_file("x/new", OpenHow::CREATE).unwrap().sync("data").unwrap();
    root.rename("x/new", "y/new").unwrap();
    root.open_directory("y").unwrap().sync("name").unwrap();
    for image in images(&disk, IMAGES) {
        let files: Vec<_> = image.files().into_iter().map(|(path, _)| path).collect();
        assert_eq!(files, ["x/old", "y/new", "y/old"]);
    }
}

#[test]
fn a_removed_file_comes_back_whole() {
    let disk = SimDisk::new(1);
    let root = root(&disk);
    let file = root.open_file("a", OpenHow::CREATE).unwrap();
    file.write_full(b"data", 0).unwrap();
    file.sync("data").unwrap();
    root.unlink("a").unwrap();
    drop(file);
    assert_eq!(disk.used_bytes(), 0);
    let mut back = 0;
    for image in images(&disk, IMAGES) {
        if !super::root(&image).entries().unwrap().collect::<Vec<_>>().is_empty() {
            assert_eq!(image.read_file("a").unwrap(), b"data");
            back += 1;
        }
    }
    assert!(back > 10, "{back}");
}

#[test]
fn names_of_a_directory_are_lost_in_order_unless_it_is_loose() {
    let disk = SimDisk::new(1);
    let root = root(&disk);
    for name in ["a", "b", "c"] {
        root.open_file(name, OpenHow::CREATE).unwrap();
    }
    let outcomes = || -> BTreeSet<String> {
        let names = |i: SimDisk| i.files().into_iter().map(|(path, _)| path).collect();
        images(&disk, IMAGES).map(names).collect()
    };
    disk.set_loose_names(0);
    assert_eq!(outcomes(), ["", "a", "ab", "abc"].map(str::to_owned).into());
    disk.set_loose_names(2);
    assert_eq!(outcomes().len(), 8, "any of them");
}

#[test]
fn a_sync_of_the_file_system_keeps_everything() {
    let disk = SimDisk::new(1);
    let root = root(&disk);
    root.make_directory("d").unwrap();
    for path in ["a", "d/b"] {
        let file = root.open_file(path, OpenHow::CREATE).unwrap();
        file.write_full(&[5; 6000], 0).unwrap();
    }
    root.sync_file_system("all").unwrap();
    let digest = disk.digest();
    assert!(images(&disk, IMAGES).all(|image| image.digest() == digest));
}

#[test]
fn equal_seeds_leave_equal_images() {
    let run = || {
        let disk = SimDisk::new(9);
        for name in ["a", "b", "c"] {
            let file = durable_file(&disk, name, &[1; 9000]);
            file.write_full(&[2; 9000], 4000).unwrap();
            root(&disk).rename(name, &format!("{name}2")).unwrap();
        }
        images(&disk, 200).map(|image| image.digest()).collect::<Vec<_>>()
    };
    let images = run();
    assert_eq!(images, run());
    assert!(images.iter().collect::<BTreeSet<_>>().len() > 50, "they are many");
}
