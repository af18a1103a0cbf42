//! Records and customers in plain files.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

pub fn matching(dir: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir-match"));
    command.current_dir(dir).env_remove("SIO_FILES").args(arguments).output().unwrap()
}

pub fn said(dir: &Path, arguments: &[&str]) -> String {
    let output = matching(dir, arguments);
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {err}");
    String::from_utf8(output.stdout).unwrap()
}

pub fn complaint(dir: &Path, arguments: &[&str]) -> String {
    let output = matching(dir, arguments);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

pub fn found(dir: &Path, arguments: &[&str]) -> Value {
    serde_json::from_str(&said(dir, arguments)).unwrap()
}

/// The results, which must be the same for all kinds of readers.
pub fn results(dir: &Path, name: &str) -> Vec<String> {
    let read = |kind| std::fs::read_to_string(dir.join(format!("{name}.{kind}"))).unwrap();
    ["links", "customers", "households"].map(read).to_vec()
}

#[test]
fn all_readers_find_what_comparing_all_with_all_finds() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    said(at, &["generate", "customers", "records", "--count", "2000", "--record-count", "1500"]);
    assert_eq!(std::fs::metadata(at.join("customers")).unwrap().len(), 2000 * 838);
    let run = ["run", "records", "customers", "--json"];
    let one = found(at, &[&run[..], &["--verify", "--out", "one"]].concat());
    assert_eq!((&one["records"], &one["verified"]), (&1500.into(), &true.into()));
    // Nearly as the generator has made them.
    let number = |key: &str| one[key].as_u64().unwrap();
    assert!(number("right") * 10 > number("told") * 8, "{one}");
    assert!(number("households") < number("profiles"), "{one}");
    // One call for each candidate.
    assert_eq!(one["calls"], one["looked_up"]);
    for (name, how) in
        [("three", &["--readers", "3"][..]), ("hinted", &["--hinted", "--readers", "2"])]
    {
        let other = found(at, &[&run[..], how, &["--out", name]].concat());
        assert!(results(at, name) == results(at, "one"), "{name}");
        assert_eq!(other["right"], one["right"]);
    }
    let hinted = found(at, &[&run[..], &["--hinted"]].concat());
    assert!(hinted["calls"].as_u64() <= Some(1500 / 350 + 1), "{hinted}");
    // Every customer is in exactly one household.
    let [links, customers, households] = <[String; 3]>::try_from(results(at, "one")).unwrap();
    assert_eq!(links.lines().count(), 1501);
    let people =
        households.lines().skip(1).flat_map(|line| line.split(',').nth(1).unwrap().split(' '));
    assert_eq!(people.count(), customers.lines().count() - 1);
}

#[test]
fn what_are_no_records_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    said(at, &["generate", "customers", "records", "--count", "50"]);
    assert!(complaint(at, &["generate", "customers", "x"]).contains("customers"), "it is there");
    assert!(complaint(at, &["run", "records", "absent"]).contains("absent"));
    let mut bytes = std::fs::read(at.join("customers")).unwrap();
    std::fs::write(at.join("short"), &bytes[..838 * 3 + 5]).unwrap();
    let said = complaint(at, &["run", "records", "short"]);
    assert!(said.contains("short does not end with a record"), "{said}");
    bytes[838 * 7 + 300] = 0xff;
    std::fs::write(at.join("bad"), &bytes).unwrap();
    let said = complaint(at, &["run", "bad", "customers", "--readers", "4"]);
    assert!(said.contains("bad: record 7 is no record"), "{said}");
    assert!(complaint(at, &["run", "records", "bad"]).contains("bad: record 7 is no record"));
    assert!(complaint(at, &["run", "/records", "bad"]).contains("--files"));
}

#[test]
fn files_without_records_link_nothing() {
    let dir = tempfile::tempdir().unwrap();
    said(dir.path(), &["generate", "customers", "records", "--count", "0"]);
    let run = ["run", "records", "customers", "--readers", "3", "--hinted", "--verify", "--json"];
    let found = found(dir.path(), &run);
    assert_eq!((&found["linked"], &found["households"]), (&0.into(), &0.into()));
}
