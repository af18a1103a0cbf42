//! A target that knows that it lacks something loses its gap log while the copy that has it
//! is not back yet: what it lacks is not served as if it were there, unless by a bug. In a
//! process of its own: it is planted in it.

use crate::alone::alone;
use crate::few_or_all;
use weir_host::plant::{self, Bug};
use weir_sim::generate::{self, MIRRORED};
use weir_sim::history::{Entry, What};
use weir_sim::plan::{
    ClientPlan, EngineKind, Fault, FileShape, NodeName, Op, Plan, PlannedFault, PlannedOp, Protocol,
};
use weir_sim::run;

const DURATION_MS: u32 = 24_000;
const TIMEOUT_MS: u32 = 3_000;
const SERVERS: u8 = 3;
const FILES: u8 = 3;
const CLIENTS: u8 = 3;
/// Few cells, so that they are read again; each is written alone.
const CELLS: u32 = 12;

/// The second server is not sent what the first one has acknowledged, which goes then. As it
/// is back, the second one loses what it had noted.
/// `well_ms`: for how long nothing happens before.
fn plan(seed: u64, well_ms: u32) -> Plan {
    let mut rng = fastrand::Rng::with_seed(seed);
    let duration_ms = DURATION_MS + well_ms;
    let mut plan = generate::plan(MIRRORED + seed, duration_ms);
    let shape = &mut plan.shape;
    (shape.data_servers, shape.targets_each, shape.engine) = (SERVERS, 1, EngineKind::Embedded);
    (shape.copies, shape.layout) = (vec![2], FileShape::OneTarget);
    shape.protocols = vec![Protocol::ServerAsync];
    (shape.shared_files, shape.logs, shape.leases) = (FILES, 0, true);
    (shape.target_timeout_ms, shape.lease_ms, shape.grace_ms) = (TIMEOUT_MS, 1_000, 2_000);
    (shape.reset_ppm, shape.conflict_ppm, shape.rebuild_after_ms) = (0, 0, 0);
    let op = |rng: &mut fastrand::Rng| {
        let (file, first, cells) = (rng.u8(0..FILES), rng.u32(0..CELLS), 1);
        let op = match rng.u8(0..3) {
            0 => Op::Write { file, first, cells },
            _ => Op::Read { file, first, cells },
        };
        PlannedOp { wait_ms: rng.u32(10..120), op }
    };
    let client = |rng: &mut fastrand::Rng| ClientPlan {
        write_behind: false,
        keeps_pages: false,
        ops: (0..duration_ms / 65).map(|_| op(rng)).collect(),
    };
    plan.clients = (0..CLIENTS).map(|_| client(&mut rng)).collect();
    let a = rng.u8(0..SERVERS);
    let (a, b) = (NodeName::Data(a), NodeName::Data((a + rng.u8(1..SERVERS)) % SERVERS));
    let (at_ms, down_ms) = (2_000 + well_ms, rng.u32(TIMEOUT_MS..2 * TIMEOUT_MS));
    let goes_ms = at_ms + rng.u32(200..2_000);
    let back_ms = goes_ms + down_ms;
    let loses_ms = back_ms + rng.u32(20..1_000);
    let apart = Fault::Partition { a, b, both: true, ms: back_ms - at_ms };
    let goes = Fault::Kill { node: a, down_ms };
    let loses = Fault::LoseGaps { node: b, damaged: rng.bool(), down_ms: rng.u32(1..500) };
    let faults = [(at_ms, apart), (goes_ms, goes), (loses_ms, loses)];
    plan.faults = faults.map(|(at_ms, fault)| PlannedFault { at_ms, fault }).into();
    plan
}

/// What was made after the last checkpoint is brought anew in any case, if it is not known what
/// has become of it: checkpoints are 30 s apart.
const CHECKPOINT_MS: u32 = 40_000;

/// Runs; 8 of the first 40 read what was old when it counted as it was.
const SEEDS: u64 = 40;

/// Reads may fail until an administrator has accepted the loss; none is wrong. They are when a
/// gap log that is lost counts as one that says nothing.
#[test]
fn what_a_target_lacked_is_not_served_when_it_has_lost_its_notes_of_it() {
    alone(
        "lost_notes::what_a_target_lacked_is_not_served_when_it_has_lost_its_notes_of_it",
        lose_notes,
    );
}

fn lose_notes() {
    let first = std::env::var("WEIR_SEED").map_or(1, |seed| seed.parse().unwrap());
    let mut accepted = 0;
    for seed in first..first + few_or_all(20, SEEDS) {
        let (report, history) = run::run_with(&plan(seed, 0), false);
        assert!(report.violations.is_empty(), "seed {seed}: {}", report.violations[0]);
        let is_loss = |entry: &&Entry| matches!(entry.what, What::LossAccepted { .. });
        accepted += history.entries.iter().filter(is_loss).count();
    }
    assert!(accepted > 0, "in some of them something is lost");
    if !plant::plant(Some(Bug::LoseGapLog)) {
        return;
    }
    let violations = |seed| run::run(&plan(seed, CHECKPOINT_MS)).violations;
    let found = (first..first + SEEDS).find(|seed| !violations(*seed).is_empty());
    plant::plant(None);
    let seed = found.expect("old bytes are read");
    println!("{:?}: the {}th run of {SEEDS}", Bug::LoseGapLog, seed + 1 - first);
    let without = violations(seed);
    assert!(without.is_empty(), "seed {seed} without the bug: {}", without[0]);
}
