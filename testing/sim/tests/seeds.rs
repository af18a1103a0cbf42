//! Seeds: whole clusters attacked, each bug that can be planted found, equal
//! seeds equal histories, failures made small.
//!
//! `WEIR_SIM_SEEDS` sets how many seeds of each kind are run, `WEIR_SEED` where they begin (with
//! `WEIR_SIM_SEEDS=1` it reruns one). `make soak` runs all that are known to be clean.

use std::ops::Range;
use std::process::Command;
use std::time::Duration;
use weir_host::plant::{self, Bug};
use weir_sim::batch::{self, Line};
use weir_sim::generate::{self, CHANGING, HANGING, MIRRORED, RESETTING};
use weir_sim::plan::{Plan, first_copies};
use weir_sim::run::{self, Report};

/// Duration of the faults in each run, simulated.
const DURATION: Duration = Duration::from_secs(10);
/// As long for clusters that keep several copies: to notice that a server is away
/// takes seconds, and to bring it up to date.
const DURATION_MIRRORED: Duration = Duration::from_secs(30);
const JOBS: usize = 2;

fn duration(seed: u64) -> Duration {
    if seed < MIRRORED { DURATION } else { DURATION_MIRRORED }
}

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().expect("a number"))
}

/// This test program, to run seeds in a process of its own.
fn child(seeds: Range<u64>, bug: Option<&str>, twice: bool) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["seeds::runs_seeds_for_the_others", "--exact", "--nocapture"]);
    command.env("WEIR_SIM_CHILD", format!("{} {}", seeds.start, seeds.end));
    command.env("WEIR_SIM_TWICE", if twice { "1" } else { "0" });
    match bug {
        Some(bug) => command.env("WEIR_SIM_PLANT", bug),
        None => command.env_remove("WEIR_SIM_PLANT"),
    };
    command
}

fn plant_by_name(name: &str) {
    let bug = Bug::ALL.iter().find(|(_, known)| *known == name).expect("a known bug").0;
    assert!(plant::plant(Some(bug)), "a build with debug assertions");
}

/// Not a test: the work of the processes that the other tests start.
#[test]
fn runs_seeds_for_the_others() {
    let Ok(range) = std::env::var("WEIR_SIM_CHILD") else { return };
    let (start, end) = range.split_once(' ').unwrap();
    if let Ok(bug) = std::env::var("WEIR_SIM_PLANT") {
        plant_by_name(&bug);
    }
    let twice = std::env::var("WEIR_SIM_TWICE").is_ok_and(|text| text == "1");
    let start: u64 = start.parse().unwrap();
    batch::run_here(start..end.parse().unwrap(), duration(start), twice);
}

fn describe(line: &Line) -> String {
    format!(
        "seed {} fails:\n{}\nrerun: weir sim --seed {} --duration {}ms",
        line.seed,
        line.violations.join("\n"),
        line.seed,
        duration(line.seed).as_millis()
    )
}

#[test]
fn clusters_keep_their_promises_whatever_goes_wrong() {
    keep_their_promises(number("WEIR_SEED", 1), 100, 2000);
}

/// `WEIR_SEED` is counted from [`MIRRORED`].
#[test]
fn clusters_that_keep_several_copies_keep_their_promises_whatever_goes_wrong() {
    let first = MIRRORED + number("WEIR_SEED", 1);
    keep_their_promises(first, 40, CLEAN_MIRRORED);
}

/// The number of seeds from the first on that pass.
const CLEAN_MIRRORED: u64 = 365;

/// `WEIR_SEED` is counted from [`CHANGING`].
#[test]
fn clusters_that_change_keep_their_promises_whatever_goes_wrong() {
    let first = CHANGING + number("WEIR_SEED", 1);
    keep_their_promises(first, 30, CLEAN_CHANGING);
}

/// `WEIR_SEED` is counted from [`HANGING`].
#[test]
fn clusters_whose_disks_hang_keep_their_promises_whatever_goes_wrong() {
    let first = HANGING + number("WEIR_SEED", 1);
    keep_their_promises(first, 15, CLEAN_HANGING);
}

/// `WEIR_SEED` is counted from [`RESETTING`], or that and [`MIRRORED`].
#[test]
fn clusters_whose_disks_are_mounted_anew_keep_their_promises_whatever_goes_wrong() {
    for kind in [0, MIRRORED] {
        let first = RESETTING + kind + number("WEIR_SEED", 1);
        keep_their_promises(first, 12, CLEAN_RESETTING);
    }
}

/// The number of seeds of each kind of clusters with disks that are mounted anew that pass.
const CLEAN_RESETTING: u64 = 100;

/// The number of seeds of clusters that change that pass.
const CLEAN_CHANGING: u64 = 300;

/// The number of seeds of clusters with hanging disks that pass.
const CLEAN_HANGING: u64 = 100;

/// Runs `few` seeds, or as many as are asked for, of the `clean` ones.
fn keep_their_promises(first: u64, few: u64, clean: u64) {
    let count = number("WEIR_SIM_SEEDS", few).min(clean);
    let (mut runs, mut simulated_ms, mut cpu_ms, mut undecided) = (0, 0, 0, 0);
    let mut failure = None;
    let ran = batch::run_in_children(
        first..first + count,
        JOBS,
        |range| child(range, None, false),
        |line| {
            runs += 1;
            simulated_ms += line.simulated_ms;
            cpu_ms += line.cpu_ms;
            undecided += line.undecided;
            if runs % 200 == 0 {
                println!("{runs} of {count} seeds");
            }
            if !line.violations.is_empty() {
                failure = Some(describe(&line));
            }
            failure.is_none()
        },
    );
    if let Some(failure) = failure {
        panic!("{failure}");
    }
    ran.unwrap();
    println!(
        "{runs} seeds, {} simulated s in {} CPU s: {} s/s; {undecided} judgements undecided",
        simulated_ms / 1000,
        cpu_ms / 1000,
        simulated_ms / cpu_ms.max(1)
    );
    assert!(undecided <= (runs / 100).max(1), "the oracles give up too often");
}

/// Seeds that have once shown what was wrong, and for how many seconds things go
/// wrong in them. What happens in them changes with the code; what was wrong each
/// time says `git log`.
const HAVE_FAILED: &[(u64, u64)] = &[
    (10165, 10),
    (11298, 10),
    (11850, 10),
    (12497, 10),
    (12749, 10),
    (13189, 10),
    (13643, 10),
    (17338, 10),
    (17360, 10),
    (17512, 10),
    (18010, 10),
    (18657, 10),
    (20902, 10),
    (22099, 10),
    (24363, 10),
    (24918, 10),
    (25815, 10),
    (40009, 30),
    (40183, 30),
    (40965, 30),
    (41202, 30),
    (60344, 10),
    (60791, 10),
    (61173, 10),
    (81938, 10),
    (82038, 10),
    (1_000_000_023, 30),
    (1_000_000_050, 30),
    (1_000_000_181, 30),
    (1_000_000_204, 30),
    (1_000_000_206, 30),
    (1_000_000_366, 30),
    (1_000_000_375, 30),
    (1_000_000_459, 30),
    (1_000_000_547, 30),
    (1_000_000_828, 30),
    (1_000_001_192, 30),
    (1_000_001_444, 30),
    (1_000_001_731, 30),
    (1_000_001_793, 30),
    (1_000_001_901, 30),
    (1_000_001_911, 30),
    (1_000_002_255, 30),
    (1_000_002_461, 30),
    (1_000_003_322, 30),
    (1_000_003_411, 30),
    (1_000_003_488, 30),
    (2_000_000_304, 30),
    (2_000_000_318, 30),
    (2_000_000_322, 30),
    (2_000_000_553, 30),
    (2_000_000_898, 30),
    (2_000_000_955, 30),
    (2_000_001_006, 30),
    (2_000_001_856, 30),
    (2_000_002_165, 30),
    (2_000_002_279, 30),
    (2_000_002_358, 30),
    (2_000_002_381, 30),
    (2_000_002_849, 30),
];

#[test]
fn seeds_that_have_once_failed_do_not_fail_again() {
    for (seed, duration_s) in HAVE_FAILED {
        // As they have failed: with clients that read only first copies.
        let plan = generate::plan(*seed, *duration_s as u32 * 1_000);
        let plan = Plan { read_policy: first_copies(), ..plan };
        is_clean(*seed, &run::run(&plan));
    }
}

/// The same for clients that read any copy.
#[test]
fn what_was_found_since_any_copy_is_read_does_not_fail_again() {
    for seed in
        [1_000_001_411, 1_000_020_793, 1_000_060_460, 2_000_000_169, 2_000_060_174, 3_000_000_123]
    {
        is_clean(seed, &run::run_seed(seed, DURATION_MIRRORED));
    }
    for seed in [2_000_062_004, 970_152_219, 646_435_473, 701_263_323] {
        is_clean(seed, &run::run_seed(seed, Duration::from_secs(20)));
    }
    for seed in [103_411_389, 646_435_473, 701_263_323] {
        is_clean(seed, &run::run_seed(seed, Duration::from_secs(60)));
    }
}

/// Its changes of names have more orders than the judge follows: it says that these are undecided, and
/// says so each time.
#[test]
fn a_run_with_more_orders_of_names_than_are_followed_is_judged_alike_each_time() {
    let seed = 318_631_117;
    let runs = [(); 2].map(|()| run::run_seed(seed, Duration::from_secs(60)));
    runs.iter().for_each(|report| is_clean(seed, report));
    assert_eq!(runs[0].undecided, runs[1].undecided);
}

/// One copy has all, is not online, and had put off what the other two lack. One of these orders, and
/// the other loses its gap log: it is in doubt about all of it, and what it has must not count.
#[test]
fn a_gap_log_that_is_lost_after_partitions_takes_nothing_from_three_copies() {
    let plan: Plan = serde_json::from_str(include_str!("plans/lost_gap_log.json")).unwrap();
    for seed in plan.seed..plan.seed + LOST_LOGS {
        is_clean(seed, &run::run(&Plan { seed, ..plan.clone() }));
    }
}

/// The number of runs of that plan, in which other things take longer.
const LOST_LOGS: u64 = 20;

fn is_clean(seed: u64, report: &Report) {
    let violations: Vec<String> = report.violations.iter().map(ToString::to_string).collect();
    assert!(violations.is_empty(), "seed {seed}:\n{}", violations.join("\n"));
}

#[test]
fn equal_seeds_make_equal_histories() {
    let first = number("WEIR_SEED", 1);
    let mut failure = None;
    let count = number("WEIR_SIM_SEEDS", 12);
    let (plain, mirrored) = (count.min(100), count.div_ceil(2).min(50));
    for seeds in [first..first + plain, MIRRORED + first..MIRRORED + first + mirrored] {
        batch::run_in_children(
            seeds,
            JOBS,
            |range| child(range, None, true),
            |line| {
                let same = !line.violations.iter().any(|v| v.starts_with("not deterministic"));
                if !same {
                    failure = Some(describe(&line));
                }
                same
            },
        )
        .unwrap();
        assert_eq!(failure, None);
    }
    // In processes of their own as well.
    let mut hashes = Vec::new();
    for _ in 0..2 {
        let mut lines = Vec::new();
        let each = |line: Line| {
            lines.push((line.seed, line.trace_hash));
            true
        };
        batch::run_in_children(first..first + 10, 1, |r| child(r, None, false), each).unwrap();
        hashes.push(lines);
    }
    assert_eq!(hashes[0], hashes[1]);
}

/// Maximum number of seeds until a planted bug is found.
const MAX_SEEDS: u64 = 500;

/// Bugs that the crash images of the store find (`store/tests/planted_bugs.rs`):
/// the one shows on a disk that rots, the other to a write that comes through
/// later than everything else that its client ever sent. One more takes writes
/// that come late and are overtaken by newer ones: `late.rs`.
/// What is known of gaps after a crash the store's crash images judge (and, of a log that is
/// lost, plans made for it: `lost_notes.rs`), and who is
/// online when the metadata server's model (`metaserver/tests/copies_planted.rs`). A server
/// that serves without a lease shows to clients that still reach it, one that applies
/// what was ordered before it was away when just that is late, and one that orders too
/// early when another has not heard of it: what is made for them finds those (`standings.rs`,
/// `regrant.rs`). Those of files with parities `encoded.rs` finds (and those of reads around slow disks
/// `weir-client`: `core/around.rs`), those of several metadata servers `members.rs`.
const FOUND_ELSEWHERE: &[Bug] = &[
    Bug::ServeUnverified,
    Bug::ForgetGeneration,
    Bug::DoLateChanges,
    Bug::LoseGapLog,
    Bug::ForgetPledge,
    Bug::MarkLastCopy,
    Bug::ServeWithoutLease,
    Bug::ApplyOldEpoch,
    Bug::RegrantBeforeReconcile,
    Bug::PanicAtLinks,
    Bug::SkipParitySync,
    Bug::CountUnmadeParities,
    Bug::SetOnOneTarget,
    Bug::ComputeUnchecked,
    Bug::ComputeWithoutLease,
    Bug::ComputeFromOtherLayout,
    Bug::ComputeWhileCut,
    Bug::ComputeFromShort,
    Bug::OldLeaderAnswers,
    Bug::ReadBeforeAppend,
    Bug::SnapshotSkips,
    Bug::CutJournalEarly,
];

/// Bugs that show on files with several copies only.
const OF_COPIES: &[Bug] =
    &[Bug::AckBeforePartner, Bug::ClearGapEarly, Bug::SkipGapNote, Bug::OnlineTooEarly];

/// The seed that finds each bug, counted from the first of its kind. It is tried first; all seeds
/// are searched if it finds nothing because of other changes in the code.
const HAVE_FOUND: &[(Bug, u64)] = &[
    (Bug::SkipIntentMark, 117),
    (Bug::AckBeforeAppend, 62),
    (Bug::ReuseIds, 4),
    (Bug::AcceptOldSequence, 63),
    (Bug::DropStoredResult, 6),
    (Bug::HalfRename, 51),
    (Bug::SkipObjectSync, 4),
    (Bug::SkipRecovery, 4),
    (Bug::DropRetriedWrite, 53),
    (Bug::SkipReassert, 4),
    (Bug::AckBeforePartner, 1),
    (Bug::SkipRecall, 51),
    (Bug::GrantInGrace, 47),
    (Bug::SkipFence, 69),
    (Bug::KeepBelief, 1),
    (Bug::AnswerBeforeFlush, 1),
    (Bug::KeepPages, 2),
    (Bug::KeepAfterEvent, 51),
    (Bug::IgnoreLeaseClock, 12),
    (Bug::SkipReassertLeases, 4),
    (Bug::ForgetOwnChange, 1),
    (Bug::SkipGapNote, 51),
    (Bug::ClearGapEarly, 51),
    (Bug::ForgetMount, 54),
    (Bug::OnlineTooEarly, 1),
];

/// Runs seeds with a bug until one shows it, or its process dies.
fn search(bug: &str, seeds: Range<u64>, lines: &mut Vec<Line>) -> std::io::Result<()> {
    batch::run_in_children(
        seeds,
        JOBS,
        |range| child(range, Some(bug), false),
        |line| {
            lines.push(line);
            lines.last().is_some_and(|line| line.violations.is_empty())
        },
    )
}

#[test]
fn every_bug_that_can_be_planted_is_found() {
    if !plant::plant(None) || !cfg!(debug_assertions) {
        return;
    }
    let mut missed = Vec::new();
    for (bug, name) in Bug::ALL {
        if FOUND_ELSEWHERE.contains(bug) {
            continue;
        }
        // Among seeds that pass without the bug.
        let of_copies = OF_COPIES.contains(bug);
        let (base, seeds) = match bug {
            Bug::ForgetMount => (RESETTING, CLEAN_RESETTING),
            _ if of_copies => (MIRRORED, CLEAN_MIRRORED),
            _ => (0, MAX_SEEDS),
        };
        let first = base + number("WEIR_SEED", 1);
        let known = HAVE_FOUND.iter().find(|(found, _)| found == bug).map(|(_, seed)| base + seed);
        let mut lines: Vec<Line> = Vec::new();
        let mut ran = known.map_or(Ok(()), |seed| search(name, seed..seed + 1, &mut lines));
        if ran.is_ok() && lines.iter().all(|line| line.violations.is_empty()) {
            ran = search(name, first..first + seeds, &mut lines);
        }
        let found = lines.iter().find(|line| !line.violations.is_empty());
        match (found, ran) {
            (Some(line), _) => {
                let why = line.violations[0].lines().next().unwrap_or_default();
                println!("{name}: seed {}, the {}th run: {why}", line.seed, lines.len());
            }
            // A process that died has noticed the bug, too.
            (None, Err(e)) => println!("{name}: {e}"),
            (None, Ok(())) => missed.push(*name),
        }
    }
    assert!(missed.is_empty(), "not found in {MAX_SEEDS} seeds: {missed:?}");
}
