//! A mount that knows all names of a directory needs no message to say that others are not there.

use crate::coherence_io::{Two, two};
use crate::harness::{self, Place, root};
use crate::users::counted;
use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

fn is_absent(path: &Path) -> bool {
    fs::symlink_metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

#[test]
fn names_that_others_make_in_a_complete_directory_are_there_at_once() {
    if !root() {
        return;
    }
    let place = Place::new();
    let Two { cluster: _cluster, a, b } = two(&place, "complete", "");
    for round in 0..60 {
        let (one, other) = if round % 2 == 0 { (&a, &b) } else { (&b, &a) };
        let dir = format!("d{}", round / 6);
        if round % 6 == 0 {
            fs::create_dir(one.join(&dir)).unwrap();
        }
        let (one, other) = (one.join(&dir), other.join(&dir));
        let name = format!("f{round}");
        let listing = fs::read_dir(&one).unwrap();
        assert!(is_absent(&one.join(&name)));
        fs::write(other.join(&name), "x").unwrap();
        assert_eq!(listing.filter(|entry| entry.is_err()).count(), 0);
        assert!(!is_absent(&one.join(&name)), "round {round}");
        fs::rename(other.join(&name), other.join("moved")).unwrap();
        assert!(is_absent(&one.join(&name)) && !is_absent(&one.join("moved")), "round {round}");
        fs::remove_file(one.join("moved")).unwrap();
        assert!(is_absent(&other.join("moved")) && is_absent(&one.join("moved")), "round {round}");
        fs::write(other.join("kept"), "x").unwrap();
        fs::hard_link(one.join("kept"), one.join(&name)).unwrap();
        assert!(!is_absent(&other.join(&name)), "round {round}");
    }
}

#[test]
fn names_that_are_made_linked_moved_and_removed_through_a_mount_cost_no_questions() {
    const ROUNDS: u64 = 20;
    if !root() {
        return;
    }
    let place = Place::new();
    let cluster = place.up("questions", &["--targets", "1", "--metrics"]);
    let mnt = cluster.mount("m", "");
    let [one, two] = ["one", "two"].map(|name| mnt.join(name));
    for dir in [&one, &two] {
        fs::create_dir(dir).unwrap();
    }
    fs::write(one.join("f"), "text").unwrap();
    let change = || {
        for n in 0..ROUNDS {
            let name = format!("n{n}");
            fs::create_dir(one.join(&name)).unwrap();
            fs::remove_dir(one.join(&name)).unwrap();
            fs::hard_link(one.join("f"), one.join(&name)).unwrap();
            fs::rename(one.join(&name), two.join(&name)).unwrap();
            std::os::unix::fs::symlink("x", one.join(&name)).unwrap();
            for (dir, links) in [(&one, 2), (&two, 2)] {
                assert_eq!(fs::symlink_metadata(dir).unwrap().nlink(), links);
            }
            assert_eq!(fs::symlink_metadata(one.join("f")).unwrap().nlink(), 2);
            fs::remove_file(two.join(&name)).unwrap();
            fs::remove_file(one.join(&name)).unwrap();
        }
    };
    harness::eventually("no lease has just ended, and nobody writes the file", || {
        // Listed, so that what is not there is known.
        let listed = [&one, &two].map(|dir| fs::read_dir(dir).unwrap().count());
        assert_eq!(listed, [1, 0]);
        let [before, _] = counted(&cluster);
        change();
        counted(&cluster)[0] - before < ROUNDS / 2
    });
}

#[test]
fn a_small_directory_is_listed_by_one_message_and_again_by_none() {
    if !root() {
        return;
    }
    let place = Place::new();
    let cluster = place.up("listed", &["--targets", "1", "--metrics"]);
    let dir = cluster.mount("m", "").join("d");
    fs::create_dir(&dir).unwrap();
    let mut files = 0;
    let mut listed = |makes: bool| {
        if makes {
            files += 1;
            fs::write(dir.join(files.to_string()), "text").unwrap();
        }
        let [before, _] = counted(&cluster);
        assert_eq!(fs::read_dir(&dir).unwrap().count(), files);
        counted(&cluster)[0] - before
    };
    harness::eventually("nothing else is asked meanwhile", || listed(true) == 1);
    harness::eventually("nothing else is asked meanwhile", || listed(false) == 0);
}

/// With more entries than a page has, too.
#[test]
fn a_listing_that_was_kept_shows_what_other_mounts_and_this_one_have_changed_since() {
    if !root() {
        return;
    }
    let place = Place::new();
    let Two { cluster: _cluster, a, b } = two(&place, "relisted", "");
    for (dir, entries) in [("small", 8), ("large", 1300)] {
        let dirs = [a.join(dir), b.join(dir)];
        fs::create_dir(&dirs[0]).unwrap();
        let mut names: BTreeSet<String> = (0..entries).map(|n| format!("n{n}")).collect();
        names.iter().for_each(|name| drop(fs::File::create(dirs[0].join(name)).unwrap()));
        let check = |names: &BTreeSet<String>, what: &str| {
            for dir in [&dirs[0], &dirs[1], &dirs[0], &dirs[1]] {
                let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
                let found: Vec<_> =
                    entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
                assert_eq!(found.len(), names.len(), "{what}");
                assert!(found.iter().all(|name| names.contains(name)), "{what}");
            }
        };
        check(&names, "as it was made");
        for round in 0..8 {
            let by = &dirs[round % 2];
            fs::write(by.join(format!("new{round}")), "x").unwrap();
            names.insert(format!("new{round}"));
            check(&names, "after a file was made");
            fs::rename(by.join(format!("n{round}")), by.join(format!("moved{round}"))).unwrap();
            names.remove(&format!("n{round}"));
            names.insert(format!("moved{round}"));
            check(&names, "after a rename");
            fs::rename(by.join(format!("new{round}")), by.join(format!("moved{round}"))).unwrap();
            names.remove(&format!("new{round}"));
            check(&names, "after a file was replaced");
            fs::remove_file(by.join(format!("moved{round}"))).unwrap();
            names.remove(&format!("moved{round}"));
            check(&names, "after a removal");
            fs::create_dir(by.join(format!("n{round}"))).unwrap();
            names.insert(format!("n{round}"));
            let is_dir = |dir: &Path| {
                let mut entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
                let found = entries.find(|entry| *entry.file_name() == *format!("n{round}"));
                found.unwrap().file_type().unwrap().is_dir()
            };
            assert!(dirs.iter().all(|dir| is_dir(dir)), "another kind of file has that name");
            check(&names, "after a directory was made");
        }
    }
}
