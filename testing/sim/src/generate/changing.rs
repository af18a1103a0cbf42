//! Plans of changing clusters with several copies: files use all placements and chunks; data
//! servers join, leave and are replaced while everything is in use.

use super::mirrored;
use crate::plan::{Fault, FileShape, NodeName, Placement, Plan, PlannedFault, Protocol, Shape};
use fastrand::Rng;

/// The plan of a seed.
pub(super) fn plan(seed: u64, duration_ms: u32) -> Plan {
    let mut plan = mirrored::plan(seed, duration_ms);
    let mut rng = Rng::with_seed(seed ^ 0x6368_616e_6765);
    plan.shape.placements = placements(&mut rng);
    if rng.u8(0..3) == 0 {
        plan.shape.layout = FileShape::Chunked;
    }
    // Without leases, files in use cannot be moved.
    let kinds = if plan.shape.leases { 4 } else { 2 };
    let changes = match rng.u8(0..kinds) {
        0 => Vec::new(),
        1 => joins(&mut rng, &mut plan, duration_ms),
        2 => leaves(&mut rng, &mut plan, duration_ms),
        _ => is_replaced(&mut rng, &mut plan, duration_ms),
    };
    plan.faults.extend(changes);
    plan.faults.sort_by_key(|fault| fault.at_ms);
    plan
}

fn placements(rng: &mut Rng) -> Vec<Placement> {
    const ALL: [Placement; 4] =
        [Placement::Usual, Placement::Chained, Placement::Groups, Placement::Random];
    (0..rng.u8(0..=3)).map(|_| ALL[rng.usize(0..ALL.len())]).collect()
}

/// New targets are used at once. If usage is balanced, copies move there.
fn joins(rng: &mut Rng, plan: &mut Plan, duration_ms: u32) -> Vec<PlannedFault> {
    let Shape { data_servers, ref mut spares, .. } = plan.shape;
    *spares = rng.u8(1..=2);
    let join = |n| {
        let fault = Fault::Join { server: data_servers + n };
        PlannedFault { at_ms: rng.u32(0..duration_ms), fault }
    };
    (0..*spares).map(join).collect()
}

/// A server leaves after another one has joined, so that there is a place for all copies.
fn leaves(rng: &mut Rng, plan: &mut Plan, duration_ms: u32) -> Vec<PlannedFault> {
    plan.faults.retain(|planned| mirrored::keeps_memory(&planned.fault));
    let mut changes = joins(rng, plan, duration_ms / 2);
    let server = rng.u8(0..plan.shape.data_servers);
    let leave = |at_ms| PlannedFault { at_ms, fault: Fault::Leave { server } };
    changes.push(leave(rng.u32(500..duration_ms)));
    if rng.bool() {
        changes.push(PlannedFault { at_ms: rng.u32(500..duration_ms), fault: Fault::Even });
    }
    changes
}

/// A server is lost for good, and another one joins before or after. Nothing else happens to data
/// servers, and writes are acknowledged when all copies have them, so nothing is lost.
fn is_replaced(rng: &mut Rng, plan: &mut Plan, duration_ms: u32) -> Vec<PlannedFault> {
    let shape = &mut plan.shape;
    shape.copies.retain(|copies| *copies > 1);
    shape.protocols.retain(|protocol| !protocol.is_early());
    if shape.protocols.is_empty() && rng.bool() {
        shape.protocols.push(Protocol::ClientSync);
    }
    plan.faults.retain(|planned| mirrored::is_gentle(&planned.fault) && !concerns_data(planned));
    // New files need as many targets as they have copies.
    let is_least = plan.shape.copies.contains(&plan.shape.data_servers);
    let (until_ms, from_ms) = match is_least {
        true => (duration_ms / 3, duration_ms / 2),
        false => (duration_ms, 500),
    };
    let mut changes = joins(rng, plan, until_ms);
    let server = rng.u8(0..plan.shape.data_servers);
    let fault = Fault::Lose { server };
    changes.push(PlannedFault { at_ms: rng.u32(from_ms..duration_ms), fault });
    changes
}

/// Whether another fault than the loss of a data server may lose data of a server.
fn concerns_data(planned: &PlannedFault) -> bool {
    let data = |node: NodeName| matches!(node, NodeName::Data(_));
    match planned.fault {
        Fault::Rot { .. } | Fault::Copies { .. } => true,
        Fault::SlowDisk { node, .. } | Fault::Clock { node, .. } => data(node),
        Fault::Break { a, b } => data(a) && data(b),
        _ => false,
    }
}
