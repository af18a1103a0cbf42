//! Tests of several readers.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

const RECORDS: u64 = 3753;

fn records(dir: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir-records"));
    command.current_dir(dir).args(arguments).output().unwrap()
}

fn read(dir: &Path, arguments: &[&str]) -> Value {
    let all = [&["read", "records", "--verify", "--json"], arguments].concat();
    let output = records(dir, &all);
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {err}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn generated() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    assert!(records(dir.path(), &["generate", "records", "--size", "3MiB"]).status.success());
    dir
}

/// Records and calls of each reader.
fn each(report: &Value) -> Vec<(u64, u64)> {
    let readers = report["readers"].as_array().unwrap().iter();
    let of = |reader: &Value, key: &str| reader[key].as_u64().unwrap();
    readers.map(|reader| (of(reader, "bytes") / 838, of(reader, "calls"))).collect()
}

#[test]
fn each_workload_reads_what_it_is_to_read() {
    let dir = generated();
    let at = dir.path();
    let whole = read(at, &["--readers", "3", "--records", "150"]);
    assert_eq!(each(&whole), [(RECORDS, 26); 3]);
    assert_eq!(whole["bytes"], 3 * RECORDS * 838);
    assert!(whole["mb_per_s"].as_f64().unwrap() > 0.0);
    let parts = each(&read(at, &["--workload", "gwf", "--readers", "7"]));
    assert_eq!(parts.iter().map(|(records, _)| records).sum::<u64>(), RECORDS);
    assert!(parts.iter().all(|(records, calls)| records == calls && records.abs_diff(536) <= 1));
    let random = ["--workload", "random", "--chunks", "50", "--records", "350", "--readers", "2"];
    assert_eq!(each(&read(at, &random)), [(50 * 350, 50); 2]);
    let first = ["--first", "700", "--workload", "gwf", "--readers", "2", "--records", "100"];
    assert_eq!(each(&read(at, &first)), [(350, 4); 2]);
    // The same through SIO, with a hint and without caching.
    let sio = ["--files", "plain:.", "--hinted", "--uncached"];
    assert_eq!(each(&read(at, &[&random[..], &sio].concat())), [(50 * 350, 50); 2]);
    // Readers started by commands. There the program is found by its name.
    let program = Path::new(env!("CARGO_BIN_EXE_weir-records"));
    let via = format!("env PATH={}", program.parent().unwrap().display());
    assert_eq!(
        each(&read(at, &["--via", &via, "--via", &via, "--records", "100"])),
        [(RECORDS, 38); 2]
    );
}

#[test]
fn what_cannot_be_read_is_told() {
    let dir = generated();
    let complaint = |arguments: &[&str]| {
        let output = records(dir.path(), &[&["read"], arguments].concat());
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(complaint(&["absent"]).contains("absent: No such file"));
    assert!(complaint(&["records", "--via", "false"]).contains("reader 0 has ended"));
    assert!(complaint(&["records", "--first", "4000"]).contains("has 3753 records, not 4000"));
    let few = ["records", "--workload", "random", "--records", "4000"];
    assert!(complaint(&few).contains("a call of 4000 does not fit"));
    let mut bytes = std::fs::read(dir.path().join("records")).unwrap();
    bytes[838 * 9 + 100] ^= 1;
    std::fs::write(dir.path().join("records"), bytes).unwrap();
    let said = complaint(&["records", "--verify", "--readers", "2"]);
    assert!(said.contains("record 9 does not match its checksum"), "{said}");
}
