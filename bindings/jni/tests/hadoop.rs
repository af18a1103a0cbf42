//! The jar for Hadoop on a cluster of real processes, and a check that both of its halves declare
//! the same calls. `make test-java` runs all of Hadoop's own tests.

#![allow(clippy::unwrap_used)] // A panic is how a test fails.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The path of a program that Cargo has built.
fn built(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().parent().unwrap().join(name)
}

/// The path of the library that Cargo has built for this test.
fn library() -> PathBuf {
    built("deps/libweir_jni.so")
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

#[test]
fn each_call_that_java_declares_is_in_the_library_and_no_other() {
    let java = root().join("bindings/java/src/main/java/weir/hadoop/Native.java");
    let text = std::fs::read_to_string(java).unwrap();
    let words = text.lines().filter_map(|line| line.trim().strip_prefix("static native "));
    let mut declared: Vec<String> = words
        .map(|line| line.split('(').next().unwrap().rsplit(' ').next().unwrap().to_owned())
        .collect();
    declared.sort();
    assert!(declared.len() > 20, "{declared:?}");

    let rust = std::fs::read_to_string(root().join("bindings/jni/src/lib.rs")).unwrap();
    let interface = |text: &str, before: &str| {
        let at = text.find(before).unwrap() + before.len();
        text[at..].split(';').next().unwrap().to_owned()
    };
    assert_eq!(interface(&text, "int INTERFACE = "), interface(&rust, "const INTERFACE: u32 = "));

    let Ok(said) = Command::new("nm").args(["-D", "--defined-only"]).arg(library()).output() else {
        println!("skipped: needs nm (binutils)");
        return;
    };
    let symbols = String::from_utf8(said.stdout).unwrap();
    let mut exported: Vec<&str> = symbols
        .lines()
        .filter_map(|line| line.split_once("Java_weir_hadoop_Native_").map(|(_, name)| name))
        .collect();
    exported.sort_unstable();
    assert_eq!(exported, declared);
}

#[test]
fn hadoop_reads_and_writes_a_cluster() {
    let weir = built("weir");
    if !weir.is_file() {
        println!("skipped: needs {} (cargo build -p weir)", weir.display());
        return;
    }
    let run = Command::new(root().join("scripts/java.sh"))
        .args(["short"])
        .env("WEIR_PROGRAM", weir)
        .env("WEIR_LIBRARY", library())
        .env("CARGO_TARGET_DIR", built(".."))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stdout);
    let why = String::from_utf8_lossy(&run.stderr);
    match run.status.code() {
        Some(0) => println!("{said}"),
        Some(77) => println!("skipped: {why}"),
        code => panic!("{code:?}\n{said}\n{why}"),
    }
}
