//! Several metadata servers with a model of their journal, under all kinds of faults.
//! `WEIR_SIM_SEEDS` sets the number of seeds, `WEIR_SEED` the first one.

use std::process::Command;
use weir_host::plant::{self, Bug};
use weir_sim::members::try_members;

/// Seeds of a usual run.
const SEEDS: u64 = 4;
/// Seeds up to this one are searched for planted bugs.
const SEARCHED: u64 = 40;

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().expect("a number"))
}

/// Not a test: the work of the processes that the other tests start.
#[test]
fn runs_a_seed_for_the_others() {
    let Ok(seed) = std::env::var("WEIR_MEMBERS_CHILD") else { return };
    if let Ok(name) = std::env::var("WEIR_MEMBERS_PLANT") {
        let bug = Bug::ALL.iter().find(|(_, known)| *known == name).expect("a known bug").0;
        assert!(plant::plant(Some(bug)), "a build with debug assertions");
    }
    if let Err(what) = try_members(seed.parse().unwrap()) {
        panic!("seed {seed}: {what}");
    }
}

/// The violation in a seed, if there is one.
fn run(seed: u64, bug: Option<&str>) -> Option<String> {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["members::runs_a_seed_for_the_others", "--exact", "--nocapture"]);
    command.env("WEIR_MEMBERS_CHILD", seed.to_string());
    match bug {
        Some(bug) => command.env("WEIR_MEMBERS_PLANT", bug),
        None => command.env_remove("WEIR_MEMBERS_PLANT"),
    };
    let said = command.output().unwrap();
    let text = String::from_utf8_lossy(&said.stdout) + String::from_utf8_lossy(&said.stderr);
    assert!(text.contains("running 1 test"), "{text}");
    (!said.status.success()).then(|| text.into_owned())
}

#[test]
fn nothing_acknowledged_is_missing_and_somebody_leads_whatever_happens_to_members_and_journal() {
    let first = number("WEIR_SEED", 1);
    for seed in first..first + number("WEIR_SIM_SEEDS", SEEDS) {
        assert_eq!(run(seed, None).unwrap_or_default(), "");
    }
}

/// The bugs, each with a seed that finds it. This seed is tried first; others are searched if it
/// finds nothing because of other changes in the code.
const BUGS: [(Bug, u64); 5] = [
    (Bug::AckBeforeAppend, 1),
    (Bug::ReadBeforeAppend, 1),
    (Bug::OldLeaderAnswers, 1),
    (Bug::SnapshotSkips, 1),
    (Bug::CutJournalEarly, 1),
];

#[test]
fn planted_bugs_of_members_are_found() {
    if !plant::plant(None) || !cfg!(debug_assertions) {
        return;
    }
    for (bug, first) in BUGS {
        let name = Bug::ALL.iter().find(|(of, _)| *of == bug).unwrap().1;
        let mut seeds = std::iter::once(first).chain(1..SEARCHED);
        // The seed passes without the bug, so it is the bug that is found.
        let found = seeds.find_map(|seed| {
            run(seed, Some(name)).filter(|_| run(seed, None).is_none()).map(|found| (seed, found))
        });
        let (seed, found) = found.unwrap_or_else(|| panic!("{name} is not found"));
        let what = found.lines().find(|line| line.starts_with("seed ")).unwrap_or_default();
        println!("{name}: by seed {seed}: {what}");
    }
}
