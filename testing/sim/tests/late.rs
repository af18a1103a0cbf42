//! Writes that the network delivers after their client has made a new connection and sent them
//! again, and newer writes of the same bytes: the late ones change nothing. In a process of its
//! own, because a bug is planted in it.

use crate::alone::alone;
use weir_host::plant::{Bug, plant};
use weir_sim::plan::{ClientPlan, Fault, NodeName, Op, Plan, PlannedFault, PlannedOp};
use weir_sim::{generate, run};

const DURATION_MS: u32 = 6_000;

/// One client writes and reads the same cells all the time. Requests sent in one moment of each
/// half second arrive a second late.
fn plan(seed: u64) -> Plan {
    let mut plan = generate::plan(seed, DURATION_MS);
    (plan.shape.data_servers, plan.shape.reset_ppm) = (1, 0);
    let ops = (0..DURATION_MS / 20).map(|n| {
        let (file, first, cells) = (0, 0, 4);
        let op = match n % 2 {
            0 => Op::Write { file, first, cells },
            _ => Op::Read { file, first, cells },
        };
        PlannedOp { wait_ms: 10, op }
    });
    plan.clients = vec![ClientPlan { write_behind: false, keeps_pages: false, ops: ops.collect() }];
    let late = Fault::Late { client: 0, server: NodeName::Data(0), extra_ms: 1_000, ms: 100 };
    let times = (500..DURATION_MS).step_by(500);
    plan.faults = times.map(|at_ms| PlannedFault { at_ms, fault: late.clone() }).collect();
    plan
}

#[test]
fn a_write_that_comes_late_undoes_nothing_newer() {
    alone("late::a_write_that_comes_late_undoes_nothing_newer", come_late);
}

fn come_late() {
    let seed = std::env::var("WEIR_SEED").map_or(1, |seed| seed.parse().unwrap());
    let plans: Vec<Plan> = (seed..seed + 12).map(plan).collect();
    for plan in &plans {
        let violations = run::run(plan).violations;
        assert!(violations.is_empty(), "seed {}: {violations:?}", plan.seed);
    }
    if !plant(Some(Bug::DoLateChanges)) {
        return;
    }
    let failing = plans.iter().filter(|plan| !run::run(plan).violations.is_empty()).count();
    plant(None);
    println!("{failing} of {} runs notice a server that does what comes late", plans.len());
    assert!(failing > 0, "nothing came late at all");
}
