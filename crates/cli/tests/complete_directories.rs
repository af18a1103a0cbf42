//! A mount that knows all names of a directory needs no message to say that others are not there.

use crate::coherence_io::{Two, two};
use crate::harness::{self, Place, root};
use crate::users::counted;
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
fn a_small_directory_is_listed_by_one_message() {
    if !root() {
        return;
    }
    let place = Place::new();
    let cluster = place.up("listed", &["--targets", "1", "--metrics"]);
    let dir = cluster.mount("m", "").join("d");
    fs::create_dir(&dir).unwrap();
    for n in 0..5 {
        fs::write(dir.join(n.to_string()), "text").unwrap();
    }
    harness::eventually("nothing else is asked meanwhile", || {
        let [before, _] = counted(&cluster);
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 5);
        counted(&cluster)[0] - before == 1
    });
}
