//! Python on a mount, by the tests of its own that deal with files: they find there what they find
//! on a local disk.

use crate::harness::{Place, root, said};
use crate::mounted::{Mounts, script};
use std::path::Path;

/// Runs the tests of some modules where it is started, and says which did not pass.
const RUN: &str = r#"
import os, sys, unittest
suite = unittest.defaultTestLoader.loadTestsFromNames("test.test_" + name for name in sys.argv[1:])
result = unittest.TextTestRunner(stream=open(os.devnull, "w")).run(suite)
print("ran", result.testsRun)
for kind in ["errors", "failures"]:
    for test, why in getattr(result, kind):
        print(kind, test.id())
        print("why:", why)
"#;

/// Not those of `epoll`, which takes a file on any FUSE file system: see `docs/semantics.md`.
const MODULES: &str = "bufio dbm_dumb fcntl file fileio filecmp fileinput genericpath glob \
    mailbox mmap os pathlib posix posixpath shutil stat tarfile tempfile zipapp";

/// What came of the tests with their files in a directory, and all that was said of it. They take
/// 100 s alone, and over 400 s beside a dozen other tests on two cores.
fn outcome(files: &Path) -> (Vec<String>, String) {
    let run = format!(
        "timeout -k 10 800 env TMPDIR={} PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 -c '{RUN}' \
         {MODULES} 2>/dev/null",
        files.display()
    );
    let said = said(script(files, &run));
    assert_eq!(said.code, Some(0), "{}", said.out);
    let mut lines: Vec<String> = said.out.lines().filter(is_said).map(String::from).collect();
    lines.sort();
    (lines, said.out)
}

/// The tests themselves print, too.
fn is_said(line: &&str) -> bool {
    ["ran ", "errors ", "failures "].iter().any(|word| line.starts_with(word))
}

#[test]
fn python_finds_on_a_mount_what_it_finds_on_a_local_disk() {
    if !root() {
        return;
    }
    let has = script(Path::new("/"), "/usr/bin/python3 -c 'import test.test_os'");
    if said(has).code != Some(0) {
        println!("skipped: needs Python's own tests (libpython3.11-testsuite)");
        return;
    }
    let place = Place::new();
    let local = place.path("local");
    std::fs::create_dir(&local).unwrap();
    let mounts = Mounts::new(&place, "python", 1);
    let ((here, whole), (there, _)) = (outcome(&mounts.at[0]), outcome(&local));
    let [ran] = here.iter().filter(|line| line.starts_with("ran ")).collect::<Vec<_>>()[..] else {
        panic!("{whole}");
    };
    println!("{ran}, and not all of {}", here.len() - 1);
    let news: Vec<_> = here.iter().filter(|line| !there.contains(line)).collect();
    assert!(news.is_empty(), "only on the mount: {news:#?}\n{whole}");
    assert!(!whole.contains("_FailedTest"), "{whole}");
}
