//! Servers that are cut off for longer than their lease, stand still, or come back
//! while others are not told of it, under clients that go on all the time: nothing old
//! is read, unless by a bug. In a process of its own: it is planted in it.

use crate::alone::alone;
use std::time::Duration;
use weir_host::plant::{self, Bug};
use weir_sim::generate::{self, MIRRORED};
use weir_sim::history::{Call, What};
use weir_sim::plan::{
    ClientPlan, EngineKind, Fault, FileShape, NodeName, Op, Plan, PlannedFault, PlannedOp, Protocol,
};
use weir_sim::run;

const DURATION_MS: u32 = 40_000;
const TIMEOUT_MS: u32 = 3_000;
/// Each on two of the servers.
const FILES: u8 = 3;
const SERVERS: u8 = 3;
const CLIENTS: u8 = 3;
/// Nobody writes any more when what was late comes: what it has done wrong stays.
const LATE_MS: u32 = 2_600;
/// The time between two faults.
const APART_MS: u32 = 12_000;

/// Clients write and read the same cells all the time.
fn plan(seed: u64) -> Plan {
    plan_of(seed, 2, DURATION_MS, |rng, at_ms| match rng.u8(0..4) {
        0 => cut_off(rng, at_ms),
        1 => stands_still(rng, at_ms),
        _ => comes_back_unseen(rng, at_ms),
    })
}

/// `busy_ms`: for how long clients make calls.
fn plan_of(
    seed: u64,
    copies: u8,
    busy_ms: u32,
    goes_wrong: impl Fn(&mut fastrand::Rng, u32) -> Vec<PlannedFault>,
) -> Plan {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut plan = generate::plan(MIRRORED + seed, DURATION_MS);
    let shape = &mut plan.shape;
    (shape.data_servers, shape.targets_each, shape.engine) = (SERVERS, 1, EngineKind::Embedded);
    (shape.copies, shape.protocols, shape.layout) =
        (vec![copies], Vec::new(), FileShape::OneTarget);
    (shape.shared_files, shape.logs, shape.leases) = (FILES, 0, true);
    (shape.target_timeout_ms, shape.lease_ms, shape.grace_ms) = (TIMEOUT_MS, 1_000, 2_000);
    (shape.reset_ppm, shape.conflict_ppm, shape.rebuild_after_ms) = (0, 0, 0);
    let op = |rng: &mut fastrand::Rng| {
        let (file, first, cells) = (rng.u8(0..FILES), 0, 2);
        let op = match rng.u8(0..3) {
            0 => Op::Write { file, first, cells },
            _ => Op::Read { file, first, cells },
        };
        PlannedOp { wait_ms: rng.u32(10..120), op }
    };
    let client = |rng: &mut fastrand::Rng| ClientPlan {
        write_behind: false,
        keeps_pages: false,
        ops: (0..busy_ms / 65).map(|_| op(rng)).collect(),
    };
    plan.clients = (0..CLIENTS).map(|_| client(&mut rng)).collect();
    plan.faults = (0..busy_ms.div_ceil(APART_MS).min(DURATION_MS / APART_MS))
        .flat_map(|n| {
            let at_ms = 1_000 + n * APART_MS + rng.u32(0..500);
            goes_wrong(&mut rng, at_ms)
        })
        .collect();
    plan.faults.sort_by_key(|planned| planned.at_ms);
    plan
}

fn two(rng: &mut fastrand::Rng) -> (NodeName, NodeName) {
    let one = rng.u8(0..SERVERS);
    (NodeName::Data(one), NodeName::Data((one + rng.u8(1..SERVERS)) % SERVERS))
}

/// The metadata server gives up a server that clients still reach.
fn cut_off(rng: &mut fastrand::Rng, at_ms: u32) -> Vec<PlannedFault> {
    let (node, _) = two(rng);
    let ms = rng.u32(TIMEOUT_MS..2 * TIMEOUT_MS);
    let cut = Fault::Partition { a: node, b: NodeName::Meta, both: rng.bool(), ms };
    vec![PlannedFault { at_ms, fault: cut }]
}

/// When the server goes on, it acts for a moment in its old role.
fn stands_still(rng: &mut fastrand::Rng, at_ms: u32) -> Vec<PlannedFault> {
    let (node, _) = two(rng);
    let ms = rng.u32(TIMEOUT_MS..2 * TIMEOUT_MS);
    let late = Fault::Partition { a: NodeName::Meta, b: node, both: true, ms: ms + 1_000 };
    let stop = PlannedFault { at_ms, fault: Fault::Stop { node, ms } };
    vec![stop, PlannedFault { at_ms: at_ms + 1, fault: late }]
}

/// A server is back, and one that was there meanwhile neither hears of that nor from it.
fn comes_back_unseen(rng: &mut fastrand::Rng, at_ms: u32) -> Vec<PlannedFault> {
    let (node, other) = two(rng);
    let down_ms = rng.u32(TIMEOUT_MS..TIMEOUT_MS + 1_000);
    let kill = PlannedFault { at_ms, fault: Fault::Kill { node, down_ms } };
    let at_ms = at_ms + down_ms + rng.u32(500..2_000);
    let ms = rng.u32(TIMEOUT_MS * 3 / 4..TIMEOUT_MS);
    let deaf = Fault::Partition { a: NodeName::Meta, b: other, both: false, ms };
    let apart = Fault::Partition { a: node, b: other, both: true, ms };
    let apart = [deaf, apart].map(|fault| PlannedFault { at_ms, fault });
    [kill].into_iter().chain(apart).collect()
}

/// A server is given up, comes back and is brought up to date, and all the time another one
/// has changes on their way to it.
fn is_reached_late(rng: &mut fastrand::Rng, at_ms: u32) -> Vec<PlannedFault> {
    let (node, other) = two(rng);
    let ms = rng.u32(TIMEOUT_MS..TIMEOUT_MS + 500);
    let away = Fault::Partition { a: NodeName::Meta, b: node, both: true, ms };
    let ms = ms + rng.u32(1_000..5_000);
    let late = Fault::Partition { a: other, b: node, both: true, ms };
    [away, late].map(|fault| PlannedFault { at_ms, fault }).into()
}

/// A server stands still, or does not reach another one, for less than until it is noticed:
/// what it has to hand on comes when others have brought what is newer.
fn is_handed_on_late(rng: &mut fastrand::Rng, at_ms: u32) -> Vec<PlannedFault> {
    let (node, other) = two(rng);
    let ms = rng.u32(2_000..TIMEOUT_MS);
    let fault = match rng.u8(0..4) > 0 {
        true => Fault::Stop { node, ms },
        false => Fault::Partition { a: other, b: node, both: rng.bool(), ms },
    };
    vec![PlannedFault { at_ms, fault }]
}

/// A server is down, and the two others do not reach each other for so long.
const APART_FROM_MS: u32 = 8_000;
const APART_FOR_MS: u32 = 6_000;

/// One client reads all the time, and the others read and write: nobody waits for a lease.
fn last_copies(seed: u64) -> Plan {
    let mut plan = plan_of(seed, 2, DURATION_MS / 2, |_, _| Vec::new());
    let mut rng = fastrand::Rng::with_seed(seed);
    plan.shape.leases = false;
    for planned in &mut plan.clients[0].ops {
        let file = rng.u8(0..FILES);
        planned.op = Op::Read { file, first: 0, cells: 2 };
    }
    let down = rng.u8(0..SERVERS);
    let [a, b] = [1, 2].map(|n| NodeName::Data((down + n) % SERVERS));
    let kill = Fault::Kill { node: NodeName::Data(down), down_ms: DURATION_MS / 2 };
    let apart = Fault::Partition { a, b, both: true, ms: APART_FOR_MS };
    plan.faults = vec![
        PlannedFault { at_ms: 1_000, fault: kill },
        PlannedFault { at_ms: APART_FROM_MS, fault: apart },
    ];
    plan
}

/// The longest read of the one that reads while the two are apart.
fn longest_read(plan: &Plan) -> Duration {
    let (report, history) = run::run_with(plan, false);
    let violations: Vec<String> = report.violations.iter().map(ToString::to_string).collect();
    assert!(violations.is_empty(), "seed {}: {}", plan.seed, violations.join("\n"));
    let from = |ms: u32| Duration::from_millis(ms.into());
    let apart = from(APART_FROM_MS)..from(APART_FROM_MS + APART_FOR_MS);
    let (mut begun, mut longest) = (None, Duration::ZERO);
    for entry in &history.entries {
        match &entry.what {
            What::Begin { id, client: 0, call: Call::Read { .. } } => {
                begun = Some((*id, entry.at));
            }
            What::End { id, .. } if begun.is_some_and(|(of, _)| of == *id) => {
                let from = begun.take().map_or(entry.at, |(_, at)| at);
                if apart.contains(&from) {
                    longest = longest.max(entry.at - from);
                }
            }
            _ => {}
        }
    }
    longest
}

/// One of them may have the last current copy of something, and is read on; were it taken for
/// away, what it has would be refused until the cut heals.
#[test]
fn the_last_current_copy_is_read_while_its_server_does_not_reach_another() {
    alone(
        "standings::the_last_current_copy_is_read_while_its_server_does_not_reach_another",
        read_the_last_copy,
    );
}

fn read_the_last_copy() {
    let plans = plans(last_copies);
    for plan in &plans {
        let longest = longest_read(plan);
        assert!(longest < Duration::from_secs(1), "seed {}: {longest:?}", plan.seed - MIRRORED);
    }
    if !plant::plant(Some(Bug::MarkLastCopy)) {
        return;
    }
    let refused = plans.iter().map(longest_read).position(|read| read > Duration::from_secs(2));
    plant::plant(None);
    println!("{:?}: run {:?} of {SEEDS}", Bug::MarkLastCopy, refused.map(|n| n + 1));
    assert!(refused.is_some(), "it is read all the same");
}

/// With changes that are acknowledged before the others have them.
fn put_off(mut plan: Plan) -> Plan {
    plan.shape.protocols = vec![Protocol::ServerAsync, Protocol::ClientAsync];
    plan
}

/// Runs of each kind. A server that serves without a lease shows in the first, one that
/// applies what comes late soon after.
const SEEDS: u64 = 20;

fn plans(plan: impl Fn(u64) -> Plan) -> Vec<Plan> {
    let first = std::env::var("WEIR_SEED").map_or(1, |seed| seed.parse().unwrap());
    (first..first + SEEDS).map(plan).collect()
}

fn are_clean(plans: &[Plan]) {
    for plan in plans {
        let violations = run::run(plan).violations;
        let violations: Vec<String> = violations.iter().map(ToString::to_string).collect();
        assert!(violations.is_empty(), "seed {}: {}", plan.seed - MIRRORED, violations.join("\n"));
    }
}

/// The plan has no violation, but with the bug it has one.
fn find(bug: Bug, plan: impl Fn(u64) -> Plan) {
    let plans = plans(plan);
    are_clean(&plans);
    if !plant::plant(Some(bug)) {
        return;
    }
    let found = plans.iter().position(|plan| !run::run(plan).violations.is_empty());
    plant::plant(None);
    println!("{bug:?}: run {:?} of {SEEDS}", found.map(|n| n + 1));
    assert!(found.is_some(), "old bytes are never read");
}

#[test]
fn nothing_old_is_read_whoever_is_cut_off_stands_still_or_comes_back_unseen() {
    let test = "nothing_old_is_read_whoever_is_cut_off_stands_still_or_comes_back_unseen";
    alone(&format!("standings::{test}"), || find(Bug::ServeWithoutLease, plan));
}

#[test]
fn what_comes_late_changes_nothing_that_was_brought_meanwhile() {
    alone("standings::what_comes_late_changes_nothing_that_was_brought_meanwhile", || {
        find(Bug::ApplyOldEpoch, |seed| plan_of(seed, 3, LATE_MS, is_reached_late));
    });
}

/// What was put off is handed on when it has been acknowledged: nobody waits for it then.
#[test]
fn what_was_put_off_and_comes_late_changes_nothing_that_is_newer() {
    let kinds = [is_handed_on_late, is_reached_late];
    for kind in kinds {
        are_clean(&plans(|seed| put_off(plan_of(seed, 3, LATE_MS, kind))));
    }
}

/// That it must not order, or be read, before everybody knows `regrant.rs` finds.
#[test]
fn nothing_is_lost_while_one_is_back_and_not_everybody_hears_of_it() {
    are_clean(&plans(|seed| plan_of(seed, 3, DURATION_MS, comes_back_unseen)));
}
