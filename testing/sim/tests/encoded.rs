//! Files whose copies become parities, while anything fails. `WEIR_SIM_SEEDS` sets how many seeds are
//! run, `WEIR_SEED` where they begin. `WEIR_LOG=debug` with `WEIR_ENCODED_CHILD="7 8"` and the first test
//! prints what the servers of seed 7 say.

use std::ops::Range;
use std::process::Command;
use std::time::Duration;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;
use weir_host::plant::{self, Bug};
use weir_host::simulated;
use weir_sim::encoded::{READS, Set, try_every_loss, try_full, try_rot, try_seed, try_slow_member};
use weir_types::ErrorKind;

/// Killed processes return no memory in the simulation, so a process runs only this many seeds.
const AT_A_TIME: u64 = 10;

/// Seeds that pass.
const CLEAN: Range<u64> = 1..201;

/// The number of seeds, unless more are asked for.
const USUAL: u64 = 40;

/// Before the number of columns that the clients of a seed have computed.
const COMPUTED: &str = "columns computed: ";

/// The time of the simulated machine that logs, in seconds.
struct SimulatedTime;

impl FormatTime for SimulatedTime {
    fn format_time(&self, to: &mut Writer<'_>) -> std::fmt::Result {
        let now = simulated::current().map(|machine| machine.now()).unwrap_or_default();
        write!(to, "{:.3}", now.as_secs_f64())
    }
}

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().expect("a number"))
}

/// Not a test: the work of the processes that the other tests start.
#[test]
fn runs_seeds_for_the_others() {
    let Ok(range) = std::env::var("WEIR_ENCODED_CHILD") else { return };
    let (start, end) = range.split_once(' ').unwrap();
    if let Ok(name) = std::env::var("WEIR_ENCODED_PLANT") {
        let bug = Bug::ALL.iter().find(|(_, known)| *known == name).expect("a known bug").0;
        assert!(plant::plant(Some(bug)), "a build with debug assertions");
    }
    if let Ok(filter) = std::env::var("WEIR_LOG") {
        let filter = tracing_subscriber::EnvFilter::new(filter);
        let told = tracing_subscriber::fmt().with_env_filter(filter).with_timer(SimulatedTime);
        told.with_ansi(false).with_thread_names(true).init();
    }
    for seed in start.parse::<u64>().unwrap()..end.parse().unwrap() {
        match try_seed(seed) {
            Ok(computed) => println!("{COMPUTED}{computed}"),
            Err(what) => panic!("seed {seed}: {what}"),
        }
    }
}

/// The violation in one of the seeds, if there is one.
fn run(seeds: Range<u64>, bug: Option<&str>) -> Option<String> {
    run_and_count(seeds, bug).err()
}

/// The number of columns that clients have computed in these seeds. Errors: the violation.
fn run_and_count(seeds: Range<u64>, bug: Option<&str>) -> Result<u64, String> {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["encoded::runs_seeds_for_the_others", "--exact", "--nocapture"]);
    command.env("WEIR_ENCODED_CHILD", format!("{} {}", seeds.start, seeds.end));
    match bug {
        Some(bug) => command.env("WEIR_ENCODED_PLANT", bug),
        None => command.env_remove("WEIR_ENCODED_PLANT"),
    };
    let said = command.output().unwrap();
    let text = String::from_utf8_lossy(&said.stdout) + String::from_utf8_lossy(&said.stderr);
    assert!(text.contains("running 1 test"), "{text}");
    if !said.status.success() {
        return Err(text.into_owned());
    }
    // The name of the test stands before the first one.
    let counts = text.lines().filter_map(|line| line.split_once(COMPUTED));
    Ok(counts.map(|(_, count)| count.parse::<u64>().unwrap()).sum())
}

#[test]
fn files_keep_their_bytes_while_parities_are_made_and_dropped_whatever_goes_wrong() {
    let first = number("WEIR_SEED", CLEAN.start);
    let count = number("WEIR_SIM_SEEDS", USUAL);
    let mut computed = 0;
    for start in (first..first + count).step_by(AT_A_TIME as usize) {
        let end = (start + AT_A_TIME).min(first + count);
        computed += run_and_count(start..end, None).unwrap_or_else(|what| panic!("{what}"));
    }
    println!("{computed} columns were computed to go around slow disks");
    assert!(computed > 0 || count < USUAL, "nobody has gone around a slow disk");
}

#[test]
fn every_loss_that_a_set_bears_is_borne() {
    for (columns, parities) in [(2, 1), (2, 2), (3, 3), (4, 2), (6, 3), (8, 2)] {
        let set = Set { columns, parities, copies: 2 };
        let times = try_every_loss(set).unwrap_or_else(|what| panic!("{set:?}: {what}"));
        let (all, lost) = (u64::from(columns + parities), u64::from(parities));
        let choose = |k: u64| (0..k).fold(1, |of, i| of * (all - i) / (i + 1));
        assert_eq!(times as u64, (0..=lost).map(choose).sum::<u64>());
    }
}

#[test]
fn rot_in_parts_of_a_set_is_mended_from_the_rest() {
    for seed in 1..=4 {
        try_rot(seed).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
    }
}

#[test]
fn columns_of_slow_disks_are_computed_from_the_rest_of_the_stripes_that_are_read_anyway() {
    for parities in [1, 2] {
        let times = try_slow_member(parities).unwrap();
        assert!(times.computed >= READS, "{times:?}");
        assert!(times.again < Duration::from_millis(500), "{times:?}");
        assert!(times.piece >= Duration::from_secs(1), "others would read much more: {times:?}");
    }
}

#[test]
fn who_writes_a_file_with_parities_is_told_that_there_is_no_room_for_its_copies() {
    assert_eq!(try_full().unwrap(), ErrorKind::NoSpace);
}

/// The bugs, each with a seed that finds it. This seed is tried first; others are searched if it
/// finds nothing because of other changes in the code.
const BUGS: [(Bug, u64); 3] =
    [(Bug::SkipParitySync, 25), (Bug::CountUnmadeParities, 3), (Bug::SetOnOneTarget, 3)];

#[test]
fn planted_bugs_of_parities_are_found() {
    if !plant::plant(None) || !cfg!(debug_assertions) {
        return;
    }
    for (bug, first) in BUGS {
        let name = Bug::ALL.iter().find(|(of, _)| *of == bug).unwrap().1;
        let mut seeds = std::iter::once(first).chain(CLEAN);
        // The seed passes without the bug, so it is the bug that is found.
        let is_clean = |seed: u64| CLEAN.contains(&seed) || run(seed..seed + 1, None).is_none();
        let found =
            seeds.find_map(|seed| run(seed..seed + 1, Some(name)).filter(|_| is_clean(seed)));
        let found = found.unwrap_or_else(|| panic!("{name} is not found"));
        let what = found.lines().find(|line| line.starts_with("seed ")).unwrap_or_default();
        println!("{name}: {what}");
    }
}
