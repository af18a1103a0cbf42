//! Tests of making and verifying files.

use std::path::Path;
use std::process::{Command, Output};

fn records(arguments: &[&str], file: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weir-records"))
        .arg(arguments[0])
        .arg(file)
        .args(&arguments[1..])
        .output()
        .unwrap()
}

fn complaint(file: &Path) -> String {
    let output = records(&["verify"], file);
    assert_eq!(output.status.code(), Some(1));
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_generated_file_verifies_and_each_kind_of_damage_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("records");
    assert!(records(&["generate", "--size", "3MiB", "--seed", "7"], &file).status.success());
    let good = std::fs::read(&file).unwrap();
    assert_eq!(good.len(), (3 << 20) / 838 * 838);
    assert!(records(&["verify"], &file).status.success());

    let mut bad = good.clone();
    bad[838 * 5 + 100] ^= 1;
    std::fs::write(&file, &bad).unwrap();
    assert!(complaint(&file).contains("record 5 does not match its checksum"));

    std::fs::write(&file, &good[..838 * 10]).unwrap();
    assert!(complaint(&file).contains("10 records, not 3753"));

    std::fs::write(&file, &good[..838 * 10 + 1]).unwrap();
    assert!(complaint(&file).contains("middle of record 10"));

    let mut swapped = good.clone();
    swapped[838..1676].copy_from_slice(&good[838 * 2..838 * 3]);
    std::fs::write(&file, &swapped).unwrap();
    assert!(complaint(&file).contains("record 1 is record 2, out of place"));
}

#[test]
fn equal_seeds_give_equal_files() {
    let dir = tempfile::tempdir().unwrap();
    let make = |name: &str, seed: &str| {
        let file = dir.path().join(name);
        assert!(records(&["generate", "--size", "100kB", "--seed", seed], &file).status.success());
        std::fs::read(file).unwrap()
    };
    assert_eq!(make("a", "1"), make("b", "1"));
    assert_ne!(make("a", "1"), make("c", "2"));
}
