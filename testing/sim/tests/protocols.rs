//! Whole clusters attacked while several clients write the same blocks, under each protocol
//! of duplication: whatever is lost of what was acknowledged too early (see
//! `crash_points.rs`), all targets come back, and all copies are the same at the end.
//! `WEIR_SIM_SEEDS` sets how many seeds are run for each, `WEIR_SEED` where they begin.

use std::process::Command;
use weir_sim::generate::{self, MIRRORED};
use weir_sim::plan::Protocol;
use weir_sim::run;

const DURATION_MS: u32 = 30_000;
const ALL: [Protocol; 4] =
    [Protocol::ServerAsync, Protocol::ClientSync, Protocol::ClientAsync, Protocol::Hybrid];

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().unwrap())
}

/// A violation that no run may have, whatever the protocol.
fn diverges(what: &str) -> bool {
    let words = ["copies differ", "gaps are left", "not all targets are online", "panicked"];
    words.iter().any(|word| what.contains(word))
}

/// Not a test: one run in a process of its own, since runs return no memory.
#[test]
fn runs_one_for_the_others() {
    let Ok(which) = std::env::var("WEIR_SIM_PROTOCOL") else { return };
    let protocol = ALL[which.parse::<usize>().unwrap()];
    let begin = MIRRORED + number("WEIR_SEED", 1);
    for seed in begin..begin + number("WEIR_SIM_SEEDS", 8) {
        let mut plan = generate::plan(seed, DURATION_MS);
        plan.shape.protocols = vec![protocol];
        let violations = run::run(&plan).violations;
        // The client's writes wait for all copies: nothing at all is lost.
        let all = protocol == Protocol::ClientSync;
        for violation in violations.iter().filter(|v| all || diverges(&v.what)) {
            println!("FOUND {protocol:?} seed {seed}: {}", violation.what);
        }
        println!("RAN {protocol:?} seed {seed}");
    }
}

#[test]
fn copies_are_the_same_in_the_end_whatever_the_protocol() {
    for which in 0..ALL.len() {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["protocols::runs_one_for_the_others", "--exact", "--nocapture"]);
        let output = command.env("WEIR_SIM_PROTOCOL", which.to_string()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let found: Vec<&str> = text.lines().filter(|line| line.contains("FOUND")).collect();
        assert!(found.is_empty(), "{}", found.join("\n"));
        assert!(output.status.success() && text.contains("RAN"), "{output:?}");
    }
}
