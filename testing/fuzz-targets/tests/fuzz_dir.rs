//! The directory `testing/fuzz/` has a binary for each target, no more and no fewer.
//! `WEIR_BLESS=1 cargo test -p weir-fuzz-targets` writes it anew.

use std::collections::BTreeMap;
use std::path::Path;
use weir_fuzz_targets::TARGETS;

/// What stands before the list of binaries in `testing/fuzz/Cargo.toml`.
const MANIFEST: &str = r#"# The list of binaries is written by `WEIR_BLESS=1 cargo test -p weir-fuzz-targets`.
[package]
name = "weir-fuzz"
version = "0.0.0"
edition = "2024"
license = "Apache-2.0"
publish = false

[package.metadata]
cargo-fuzz = true

# Not part of the workspace: libFuzzer needs a nightly compiler.
[workspace]

[dependencies]
libfuzzer-sys = "0.4"
weir-fuzz-targets = { path = "../fuzz-targets" }

# A fuzzer that does not check arithmetic finds less.
[profile.release]
debug = "line-tables-only"
debug-assertions = true
overflow-checks = true
"#;

fn expected() -> BTreeMap<String, String> {
    let mut manifest = MANIFEST.to_string();
    let mut files = BTreeMap::new();
    for target in TARGETS {
        let name = target.name;
        let path = format!("fuzz_targets/{name}.rs");
        manifest += &format!(
            "\n[[bin]]\nname = \"{name}\"\npath = \"{path}\"\ntest = false\ndoc = false\nbench = false\n"
        );
        let source = format!(
            "#![no_main]\n\nlibfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz_targets::{name}(data));\n"
        );
        files.insert(path, source);
    }
    files.insert("Cargo.toml".into(), manifest);
    files
}

#[test]
fn the_fuzz_directory_has_every_target() {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz");
    let expected = expected();
    if std::env::var_os("WEIR_BLESS").is_some() {
        std::fs::create_dir_all(fuzz.join("fuzz_targets")).unwrap();
        for (path, text) in &expected {
            std::fs::write(fuzz.join(path), text).unwrap();
        }
    }
    for (path, text) in &expected {
        let found = std::fs::read_to_string(fuzz.join(path)).unwrap_or_default();
        assert!(
            found == *text,
            "testing/fuzz/{path} is out of date: run this test with WEIR_BLESS=1"
        );
    }
    for entry in std::fs::read_dir(fuzz.join("fuzz_targets")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let known = expected.contains_key(&format!("fuzz_targets/{name}"));
        assert!(known, "testing/fuzz/fuzz_targets/{name} belongs to no target: delete it");
    }
}
