//! `docs/semantics.md` and `docs/security.md` name the test behind each promise: every one exists,
//! and every row has one.

use std::collections::BTreeSet;
use std::path::Path;

/// The documents, each with the least number of its rows.
const DOCUMENTS: [(&str, usize); 2] = [("semantics.md", 19), ("security.md", 8)];

fn document(name: &str) -> (std::path::PathBuf, String) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = std::fs::read_to_string(root.join("docs").join(name)).unwrap();
    (root, text)
}

/// Numbers in square brackets.
fn references(text: &str) -> Vec<u32> {
    let parts = text.split('[').skip(1);
    parts.filter_map(|part| part.split_once(']')?.0.parse().ok()).collect()
}

#[test]
fn every_test_that_is_named_exists() {
    DOCUMENTS.iter().for_each(|(name, _)| check_tests(name));
}

fn check_tests(name: &str) {
    let (root, text) = document(name);
    // An item of a list goes on in lines that are indented.
    let items = text.replace("\n  ", " ");
    let mut listed = BTreeSet::new();
    for line in items.lines().filter(|line| line.starts_with("- [")) {
        let number = references(line)[0];
        assert!(listed.insert(number), "[{number}] is listed twice: {line}");
        // Files, each followed by the names of tests in it.
        let (mut file, mut code, mut count) = ("", String::new(), 0);
        for word in line.split('`').skip(1).step_by(2) {
            if word.ends_with(".rs") {
                file = word;
                let read = std::fs::read_to_string(root.join(file));
                // Those of a module of tests are indented.
                code = read.unwrap_or_else(|e| panic!("{file}: {e}")).replace("\n    ", "\n");
                continue;
            }
            assert!(code.contains(&format!("#[test]\nfn {word}()")), "{file} has no test {word}");
            count += 1;
        }
        assert!(count > 0, "no test is named: {line}");
    }
    let used: BTreeSet<u32> =
        text.lines().filter(|line| line.starts_with('|')).flat_map(references).collect();
    assert_eq!(used, listed, "what rows refer to and what is listed");
}

#[test]
fn every_promise_names_its_test() {
    DOCUMENTS.iter().for_each(|(name, least)| check_rows(name, *least));
}

fn check_rows(name: &str, least: usize) {
    let (_, text) = document(name);
    let mut rows = 0;
    let mut in_table = false;
    for line in text.lines() {
        if line.starts_with('|') && line.ends_with("| tested by |") {
            in_table = true;
        } else if !line.starts_with('|') {
            in_table = false;
        } else if in_table && !line.starts_with("|---") {
            rows += 1;
            let last = line.trim_end_matches('|').rsplit('|').next().unwrap();
            assert!(!references(last).is_empty(), "no test: {line}");
        }
    }
    assert!(rows >= least, "{name}: {rows} rows");
}
