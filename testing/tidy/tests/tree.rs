//! The rules of `weir-tidy`, held against this repository.

use std::path::Path;
use std::{env, fs};

use weir_tidy::{Allowed, Tree, apply, check};

/// `TIDY=list` prints the list that would allow everything there is, `TIDY=all` each place.
#[test]
fn the_tree_is_tidy() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let tree = Tree::read(&here.join("../..")).unwrap();
    assert!(tree.files.len() > 100, "{} files: is this a checkout of git?", tree.files.len());
    let found = check(&tree);
    if env::var_os("TIDY").is_some_and(|word| word == "list") {
        print!("{}", Allowed::text_for(&found));
    }
    if env::var_os("TIDY").is_some_and(|word| word == "all") {
        found.iter().for_each(|place| println!("{place}"));
    }
    let allowed = Allowed::parse(&fs::read_to_string(here.join("allowed.txt")).unwrap()).unwrap();
    let left = apply(&allowed, found);
    assert!(left.is_empty(), "{} places to tidy:\n{}", left.len(), left.join("\n"));
}
