//! Tests that plant a bug run in a process of their own, because the bug is planted in the whole
//! process.

use std::process::Command;

/// Runs a test in a process of its own, which is this program, started again for it.
pub fn alone(test: &str, run: impl FnOnce()) {
    const ALONE: &str = "WEIR_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return run();
    }
    let mut again = Command::new(std::env::current_exe().unwrap());
    let said = again.args(["--exact", test, "--nocapture"]).env(ALONE, "").output().unwrap();
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    println!("{}", text(&said.stdout));
    assert!(said.status.success(), "{}", text(&said.stderr));
}
