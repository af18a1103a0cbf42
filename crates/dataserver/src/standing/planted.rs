//! Planted bugs in the rules of who may do what, and when. Tests of this crate fail with them, each
//! in a process of its own.

use std::process::Command;
use weir_host::plant::{Bug, plant};

/// Environment variable that names the bug for a test's process.
const VARIABLE: &str = "WEIR_PLANTED_HERE";

/// Plants the bug. To be called first by a test that is to find one.
pub(super) fn plant_if_asked() {
    let Ok(name) = std::env::var(VARIABLE) else { return };
    let bug = Bug::ALL.iter().find(|(_, known)| *known == name).unwrap().0;
    assert!(plant(Some(bug)));
}

fn fails_with(test: &str, bug: Option<Bug>) -> bool {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact"]);
    if let Some((_, name)) = Bug::ALL.iter().find(|(known, _)| Some(*known) == bug) {
        command.env(VARIABLE, name);
    }
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("running 1 test"), "{test} is not there: {text}");
    !output.status.success()
}

#[test]
fn planted_bugs_are_found() {
    if !plant(None) || !cfg!(debug_assertions) {
        return;
    }
    let finders = [
        (
            Bug::ApplyOldEpoch,
            "standing::turns::tests::a_later_epoch_waits_for_what_was_begun_before",
        ),
        (
            Bug::RegrantBeforeReconcile,
            "standing::roles::tests::who_is_back_orders_when_everybody_knows",
        ),
    ];
    for (bug, test) in finders {
        assert!(!fails_with(test, None), "{test} fails without a bug");
        assert!(fails_with(test, Some(bug)), "{test} does not find {bug:?}");
    }
}
