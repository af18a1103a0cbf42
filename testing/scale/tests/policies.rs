//! Properties of the policies in the simulation, in cases that are small enough for a test.

#![allow(clippy::unwrap_used)] // A panic is how a test fails.

use weir_policy::{Limits, Watermarks};
use weir_scale::grid::{Row, SCENARIOS, Scenario, Settings, trial};
use weir_scale::{
    Cluster, Contender, Costs, Fault, Hardware, Outcome, Run, Speed, earliest_end_us,
};

const MIB: u64 = 1 << 20;
const WORK: u64 = 2560 * MIB;

fn scenario(name: &str) -> Scenario {
    SCENARIOS.into_iter().find(|scenario| scenario.name == name).unwrap()
}

/// A job of forty seconds on disks whose seeks cost little.
fn run(name: &str, disks: Vec<Speed>, jobs: usize) -> (Outcome, Costs) {
    let cluster = Cluster { disks, seek_us: 100.0 };
    let run = Run {
        contender: Contender::named(name).unwrap(),
        cluster: &cluster,
        copies: 2,
        jobs,
        work_bytes: WORK,
        block_bytes: MIB,
        limits: Limits::default(),
        marks: Watermarks::default(),
        push_us: 20_000,
    };
    let (outcome, costs) = run.run(1);
    assert!(outcome.is_complete, "{name}: every block exactly once");
    assert_eq!(outcome.served_bytes, (cluster.disks.len() * jobs) as u64 * WORK);
    (outcome, costs)
}

fn well(nodes: usize) -> Vec<Speed> {
    vec![Speed::steady(64.0 * MIB as f64 / 1e6); nodes]
}

fn one_half_speed(nodes: usize) -> Vec<Speed> {
    let mut disks = well(nodes);
    disks[5].then(0.0, 32.0 * MIB as f64 / 1e6);
    disks
}

fn times_bound(name: &str, disks: Vec<Speed>) -> f64 {
    let bound_us = earliest_end_us(&vec![WORK as f64; disks.len()], &disks, 2).unwrap();
    run(name, disks, 1).0.slowest_us as f64 / bound_us
}

#[test]
fn the_same_seed_is_the_same_outcome() {
    let of = || trial(scenario("fail-slow-ssd"), 64, 3, Settings::default());
    let outcomes = |rows: Vec<Row>| rows.into_iter().map(|row| row.outcome).collect::<Vec<_>>();
    assert_eq!(outcomes(of()), outcomes(of()));
}

#[test]
fn with_one_slow_disk_who_goes_by_progress_is_near_the_bound_and_primary_is_not() {
    for name in ["graduated-primary", "proportional, job"] {
        let times = times_bound(name, one_half_speed(16));
        assert!((1.0..1.05).contains(&times), "{name}: {times}");
    }
    assert!(times_bound("primary", one_half_speed(16)) > 1.9);
}

#[test]
fn without_faults_who_goes_by_progress_reads_no_other_copies_and_graduated_reads_half_there() {
    for name in ["graduated-primary", "proportional, job"] {
        assert_eq!(run(name, well(16), 1).0.backup_share, 0.0, "{name}");
    }
    let (graduated, _) = run("graduated", well(16), 1);
    assert!((graduated.backup_share - 0.5).abs() < 0.02, "{graduated:?}");
}

#[test]
fn every_byte_is_read_once_in_every_scenario() {
    for scenario in SCENARIOS {
        for row in trial(scenario, 16, 0, Settings::default()) {
            let (name, policy) = (scenario.name, row.contender.name);
            assert!(row.outcome.is_complete, "{name}, {policy}");
            let work = scenario.fault.hardware().work_bytes(scenario.jobs);
            assert_eq!(row.outcome.served_bytes, 16 * scenario.jobs as u64 * work);
            // To slightly less than the resolution of the simulation's clock.
            assert!(row.times_bound() > 0.9999, "{name}, {policy}: {}", row.times_bound());
        }
    }
}

#[test]
fn a_disk_that_dies_takes_nothing_with_it() {
    let mut disks = well(16);
    disks[3].then(16e6, 0.0);
    for contender in weir_scale::ALL {
        let (outcome, _) = run(contender.name, disks.clone(), 1);
        assert!(outcome.backup_share > 0.0, "{}", contender.name);
    }
    let times = times_bound("graduated-primary", disks);
    assert!(times < 1.1, "{times}");
}

#[test]
fn two_jobs_have_the_same_of_every_disk() {
    let (one, _) = run("primary", well(16), 1);
    let (two, _) = run("primary", well(16), 2);
    let ratio = two.slowest_us as f64 / one.slowest_us as f64;
    assert!((1.99..2.1).contains(&ratio), "{ratio}");
}

#[test]
fn the_work_of_a_decision_does_not_grow_with_the_nodes() {
    for contender in weir_scale::ALL {
        let of = |nodes: usize| {
            let (outcome, costs) = run(contender.name, one_half_speed(nodes), 1);
            let choices = costs.choices;
            assert_eq!(choices.looked_at, 2 * choices.decisions, "the copies, and nothing else");
            let per_turn = costs.turns.looked_at as f64 / costs.turns.decisions as f64;
            let per_block = choices.decisions as f64 / (nodes as u64 * WORK / MIB) as f64;
            (outcome.longest_queue, per_turn, per_block)
        };
        let ((few_longest, few_turn, few_block), (longest, turn, block)) = (of(64), of(256));
        assert!(longest <= few_longest + 2, "{}: {few_longest}, {longest}", contender.name);
        assert!(turn < few_turn * 1.3 + 0.1, "{}: {few_turn}, {turn}", contender.name);
        assert!(block < few_block * 1.3 + 0.1, "{}: {few_block}, {block}", contender.name);
    }
}

#[test]
fn trials_differ_and_hardware_is_what_it_says() {
    let draw = |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        Fault::SlowHdd.draw(32, Hardware::HDD, &mut random).disks
    };
    assert_eq!(draw(1), draw(1));
    assert_ne!(draw(1), draw(2));
    let mib = Hardware::HDD.seek_us * Hardware::HDD.bytes_per_us / MIB as f64;
    assert!((mib - 1.0).abs() < 0.05, "a turn costs an HDD a MiB: {mib}");
}
