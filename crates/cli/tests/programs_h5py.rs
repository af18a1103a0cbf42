//! HDF5 files on a mount, by the tests that h5py brings along: they find there what they find on a
//! local disk.

use crate::harness::{Place, root, said};
use crate::mounted::{Mounts, script};
use std::path::Path;

/// Where Debian's python3-h5py has them, for Debian's Python.
const TESTS: &str = "/usr/lib/python3/dist-packages/h5py/_debian_h5py_serial/tests";

/// What came of the tests with their files in a directory: how many passed, and which did not.
/// (Some cannot: they need MPI, or not to be root.)
fn outcome(files: &Path) -> (String, Vec<String>) {
    // From `/`, so that the names of tests are the same wherever their files are.
    let run = format!(
        "cd / && timeout -k 10 240 env TMPDIR={} H5PY_NO_NETWORK_TEST=1 PYTHONDONTWRITEBYTECODE=1 \
         /usr/bin/python3 -m pytest -q -p no:cacheprovider -W ignore --tb=short -rfE {TESTS} 2>&1",
        files.display()
    );
    let said = said(script(files, &run));
    // 1: tests failed, as they may.
    assert!(matches!(said.code, Some(0 | 1)), "{}", said.out);
    let mut lines = said.out.lines().map(str::trim);
    let is_bad = |line: &&str| line.starts_with("FAILED ") || line.starts_with("ERROR ");
    let bad = lines.clone().filter(is_bad).map(|line| line.split(" - ").next().unwrap().to_owned());
    let mut last = lines.next_back().unwrap_or_default().split(", ");
    let passed = last.find(|part| part.ends_with(" passed"));
    let passed = passed.unwrap_or_else(|| panic!("none passed: {}", said.out)).to_owned();
    (passed, bad.collect())
}

#[test]
fn h5py_finds_on_a_mount_what_it_finds_on_a_local_disk() {
    if !root() {
        return;
    }
    let pytest = script(Path::new("/"), "/usr/bin/python3 -c 'import pytest, h5py'");
    if !Path::new(TESTS).exists() || said(pytest).code != Some(0) {
        println!("skipped: needs h5py with its tests and pytest (python3-h5py, python3-pytest)");
        return;
    }
    let place = Place::new();
    let local = place.path("local");
    std::fs::create_dir(&local).unwrap();
    let mounts = Mounts::new(&place, "h5py", 1);
    let (here, there) = (outcome(&mounts.at[0]), outcome(&local));
    println!("{}, and not {:?}", here.0, here.1);
    assert_eq!(here, there, "on a mount, and on a local disk");
}
