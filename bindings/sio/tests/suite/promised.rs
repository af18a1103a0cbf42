//! What `docs/sio.md` says that each function and each control may return, and whether tests have
//! seen all of it.

use super::told::{self, Told};
use std::collections::{BTreeMap, BTreeSet};

const PAGE: &str = include_str!("../../../../docs/sio.md");
/// They have no code to return.
const TEXTS: [&str; 2] = ["sio_error_string", "sio_last_error"];
/// They do not need what is attached.
const FREE: [&str; 2] = ["sio_attach", "sio_query_extension"];

/// The cells of the rows of a table, which begins with this line.
fn rows(head: &str) -> Vec<Vec<&'static str>> {
    let table = PAGE.split_once(head).expect("the table is in docs/sio.md").1;
    let cells = |line: &'static str| line.trim_matches('|').split('|').map(str::trim).collect();
    table.lines().skip(2).take_while(|line| line.starts_with('|')).map(cells).collect()
}

/// What stands in backquotes.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

fn functions() -> BTreeMap<&'static str, BTreeSet<&'static str>> {
    let mut all = BTreeMap::<_, BTreeSet<_>>::new();
    for row in rows("| function | what it does | errors |") {
        let mut codes = BTreeSet::new();
        for name in quoted(row[2]) {
            match all.get(name) {
                Some(others) => codes.extend(others.iter().copied()),
                None => {
                    codes.insert(name);
                }
            }
        }
        for name in quoted(row[0]) {
            assert!(all.insert(name, codes.clone()).is_none(), "{name} has two rows");
        }
    }
    all
}

/// Everything that the page promises.
pub fn all() -> BTreeSet<Told> {
    let told = |who: &str, code: &str| (who.to_string(), code.to_string());
    let mut all = BTreeSet::new();
    for (name, codes) in functions() {
        if TEXTS.contains(&name) {
            assert!(codes.is_empty(), "{name}");
            continue;
        }
        all.extend(codes.into_iter().map(|code| told(name, code)));
        all.insert(told(name, "SUCCESS"));
        if !FREE.contains(&name) {
            all.insert(told(name, "NOT_ATTACHED"));
        }
    }
    all.insert(told("unknown", "OP_UNSUPPORTED"));
    all.insert(told("Sync", "CONTROL_NOT_ATTEMPTED"));
    let mut named = BTreeSet::new();
    for row in rows("| control | data | when | failures of its own |") {
        for name in quoted(row[0]) {
            named.insert(name);
            all.insert(told(name, "SUCCESS"));
            all.extend(quoted(row[3]).map(|code| told(name, code)));
            if !["Propagate", "Refresh", "Sync"].contains(&name) {
                all.insert(told(name, "INVALID_ARGUMENT"));
            }
            if name == "FastCopy" || name.starts_with("Set") && name != "SetCachingMode" {
                all.insert(told(name, "INCORRECT_MODE"));
            }
            if name.starts_with("Set") {
                all.insert(told(name, "CONTROLS_CLASH"));
                all.insert(told(name, "CONTROL_WOULD_HAVE_SUCCEEDED"));
            }
        }
    }
    assert_eq!(named, told::CONTROLS.into(), "the controls of docs/sio.md");
    all
}

/// Fails if a code that the page promises was never returned in this process, unless it is one of
/// `absent`, which are those that this file system cannot give.
pub fn check(absent: &[(&str, &str)]) {
    let absent = absent.iter().map(|(who, code)| (who.to_string(), code.to_string())).collect();
    let untested: BTreeSet<Told> = &(&all() - &told::so_far()) - &absent;
    assert!(untested.is_empty(), "no test has seen {untested:?}");
}
