//! The exercises on a local file system, which keeps to POSIX: what they
//! demand is what Linux does.

#![allow(clippy::unwrap_used)] // A panic is how a test fails.

use std::path::PathBuf;
use weir_exercise::concurrent::{self, Kind, Launcher, Plan};
use weir_exercise::{fsx, seed_of_run, tree};

fn seed() -> u64 {
    let seed = seed_of_run();
    println!("seed {seed}; run again with WEIR_SEED={seed}");
    seed
}

/// The same directory under several names, as several mounts would be.
fn dirs(root: &tempfile::TempDir, count: usize) -> Vec<PathBuf> {
    vec![root.path().to_owned(); count]
}

#[test]
fn a_local_file_is_what_the_model_says() {
    let root = tempfile::tempdir().unwrap();
    for (i, count) in [1, 3].into_iter().enumerate() {
        let options = fsx::Options { unsynced_maps: true, ..fsx::Options::new(seed() + i as u64) };
        let done = fsx::run(&dirs(&root, count), "f", &options, |n| n < 1500);
        assert_eq!(done.unwrap_or_else(|e| panic!("{e}")).steps, 1500);
    }
}

#[test]
fn a_local_tree_is_what_the_model_says() {
    let root = tempfile::tempdir().unwrap();
    let other = tempfile::tempdir().unwrap();
    let done = tree::run(&dirs(&root, 2), other.path(), "t", seed(), |n| n < 4000);
    assert_eq!(done.unwrap_or_else(|e| panic!("{e}")), 4000);
}

#[test]
fn one_order_explains_what_a_local_file_system_does() {
    let root = tempfile::tempdir().unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let launcher = Launcher {
        program: env!("CARGO_BIN_EXE_weir-exercise").into(),
        arguments: Vec::new(),
        environment: Vec::new(),
        scratch: scratch.path().to_owned(),
    };
    let plan = Plan { rest_us: 20, ..Plan::short(seed()) };
    for kind in Kind::ALL {
        let done = concurrent::run(kind, &dirs(&root, 2), &format!("{kind:?}"), &plan, &launcher);
        let report = done.unwrap_or_else(|e| panic!("{e}"));
        println!("{kind:?}: {report:?}");
        assert_eq!(report.operations, 600);
    }
}
