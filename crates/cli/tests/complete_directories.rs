//! A mount that knows all names of a directory needs no message to say that others are not there.

use crate::coherence_io::{Two, two};
use crate::harness::{Place, root};
use std::fs;
use std::io::ErrorKind;
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
