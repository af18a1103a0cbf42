//! Mining of plain files.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

pub fn mining(dir: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir-mining"));
    command.current_dir(dir).env_remove("SIO_FILES").args(arguments).output().unwrap()
}

pub fn said(dir: &Path, arguments: &[&str]) -> String {
    let output = mining(dir, arguments);
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {err}");
    String::from_utf8(output.stdout).unwrap()
}

pub fn complaint(dir: &Path, arguments: &[&str]) -> String {
    let output = mining(dir, arguments);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// The result, without timings and clients.
pub fn found(dir: &Path, arguments: &[&str]) -> Value {
    let mut all: Value = serde_json::from_str(&said(dir, arguments)).unwrap();
    let object = all.as_object_mut().unwrap();
    object.remove("clients");
    for pass in object["passes"].as_array_mut().unwrap() {
        pass.as_object_mut().unwrap().remove("seconds");
    }
    all
}

/// A file of several chunks.
fn generated() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let size = ["--size", "5MB", "--items", "200", "--patterns", "60", "--seed", "5"];
    said(dir.path(), &[&["generate", "sales"], &size[..]].concat());
    dir
}

#[test]
fn any_number_of_clients_and_producers_finds_what_one_thread_finds_by_another_way() {
    let dir = generated();
    let bytes = std::fs::metadata(dir.path().join("sales")).unwrap().len();
    assert!(bytes > 5_000_000);
    let run = ["run", "sales", "--support", "3%", "--confidence", "0.6", "--verify", "--json"];
    let one = found(dir.path(), &run);
    let passes = one["passes"].as_array().unwrap();
    assert!(passes.len() > 2 && !one["rules"].as_array().unwrap().is_empty(), "{one}");
    // Each pass reads the whole file once.
    assert!(passes.iter().all(|pass| pass["bytes"] == bytes));
    for how in [
        &["--clients", "2"][..],
        &["--clients", "3", "--producers", "1", "--request", "64K"],
        &["--clients", "7", "--producers", "9", "--request", "2M"],
    ] {
        assert!(found(dir.path(), &[&run[..], how].concat()) == one, "{how:?}");
    }
    let first = found(dir.path(), &["run", "sales", "--passes", "1", "--json"]);
    assert_eq!(first["passes"].as_array().unwrap().len(), 1);
    let text = said(dir.path(), &["run", "sales", "--support", "2%", "--top", "3"]);
    assert!(text.contains("itemsets") && text.contains("=>"), "{text}");
}

#[test]
fn what_cannot_be_counted_is_told() {
    let dir = generated();
    let at = dir.path();
    assert!(complaint(at, &["run", "absent"]).contains("absent"));
    assert!(complaint(at, &["generate", "sales"]).contains("sales"), "it is there");
    std::fs::write(at.join("text"), "no transactions\n").unwrap();
    assert!(complaint(at, &["run", "text"]).contains("text: chunk 0 is no file of transactions"));
    std::fs::write(at.join("empty"), "").unwrap();
    assert!(said(at, &["run", "empty", "--clients", "3"]).contains("0 itemsets"));
    // Messages name the client, also one that ends without a message.
    let mut bytes = std::fs::read(at.join("sales")).unwrap();
    bytes[(2 << 20) + 24..][..4].fill(0xff);
    std::fs::write(at.join("bad"), &bytes).unwrap();
    let said = complaint(at, &["run", "bad", "--clients", "2"]);
    assert!(said.contains("client 1: bad: chunk 1 is damaged at byte 24"), "{said}");
    let said = complaint(at, &["run", "sales", "--via", "false"]);
    assert!(said.contains("client 1 has ended with exit status: 1"), "{said}");
    assert!(complaint(at, &["run", "sales", "--via", "/no/such/program"]).contains("/no/such"));
    // More pairs than the maximum number of candidates.
    let items: Vec<String> = (0..6000).map(|n| format!("item {n}\n")).collect();
    std::fs::write(at.join("text"), items.concat()).unwrap();
    crate::plain::said(at, &["import", "many", "--from", "text"]);
    let said = complaint(at, &["run", "many", "--support", "1", "--clients", "2"]);
    assert!(said.contains("greater --support"), "{said}");
}
