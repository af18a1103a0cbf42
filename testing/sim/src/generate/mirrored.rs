//! Plans of clusters with several copies of files. In patient runs one fault happens at a time,
//! with enough time to notice and repair it, so that a single failure must not be felt. Other runs
//! have as many faults as elsewhere.

use super::{client, fault, time};
use crate::plan::{
    ClientPlan, EngineKind, Fault, FileShape, NodeName, Plan, PlannedFault, Protocol, Shape,
};
use fastrand::Rng;

/// Time to update a server that was away, milliseconds.
const MEND_MS: u32 = 12_000;

/// The plan of a seed.
pub(super) fn plan(seed: u64, duration_ms: u32) -> Plan {
    let mut rng = Rng::with_seed(seed ^ 0x6d69_7272_6f72);
    let mut shape = shape(&mut rng);
    // A separate generator, so that the rest of a plan does not depend on it.
    shape.protocols = protocols(&mut Rng::with_seed(seed ^ 0x6475_706c));
    let clients = rng.u8(2..=3);
    let clients: Vec<ClientPlan> = (0..clients)
        .map(|index| client(&mut rng, &shape, (index, clients), 0..=3, duration_ms))
        .collect();
    let number = clients.len() as u8;
    let mut faults = match rng.u8(0..8) {
        0..3 => patient(&mut rng, &shape, number, duration_ms),
        3..6 => pairs(&mut rng, &shape, number, duration_ms),
        6 => blackouts(&mut rng, &shape, duration_ms),
        _ => storms(&mut rng, &shape, number, duration_ms),
    };
    // A separate generator, so that plans without it stay the same.
    let mut rng = Rng::with_seed(seed ^ 0x0072_6f74);
    if rng.u8(0..8) == 0 {
        faults.retain(|planned| is_gentle(&planned.fault));
        faults.extend(rots(&mut rng, &shape, duration_ms));
    }
    // A separate generator, for the same reason.
    let mut rng = Rng::with_seed(seed ^ 0x6d6f_7665);
    if rng.u8(0..8) == 0 && shape.leases {
        faults.retain(|planned| keeps_memory(&planned.fault));
        faults.extend(moves(&mut rng, &mut shape, duration_ms));
    }
    faults.retain(|fault| fault.at_ms < duration_ms);
    faults.sort_by_key(|fault| fault.at_ms);
    let read_policy = super::read_policy(seed);
    Plan { seed, duration_ms, shape, clients, faults, read_policy }
}

/// Duration of a hang after which the others go on without the disk, milliseconds.
const HANG_MS: u32 = 16_500;

/// The plan of a seed with hanging disks in addition.
pub(super) fn hanging(seed: u64, duration_ms: u32) -> Plan {
    let mut plan = plan(seed, duration_ms);
    let mut rng = Rng::with_seed(seed ^ 0x6861_6e67);
    let latest_ms = duration_ms.saturating_sub(HANG_MS);
    // Rot is repaired from another copy, which may be the one that hangs. And without leases, a
    // request that is repeated at another copy may become visible, invisible and visible again
    // (docs/copies.md, What is left).
    let rots = plan.faults.iter().any(|f| matches!(f.fault, Fault::Rot { .. }));
    if latest_ms == 0 || rots || !plan.shape.leases {
        return plan;
    }
    // The same as clients' timeout, and longer than a hang.
    plan.shape.request_timeout_ms = 30_000;
    let hang = |_| {
        let at_ms = rng.u32(0..latest_ms);
        let node = NodeName::Data(data(&mut rng, &plan.shape));
        let ms = rng.u32(HANG_MS..=duration_ms - at_ms);
        PlannedFault { at_ms, fault: Fault::Hang { node, ms } }
    };
    let hangs: Vec<PlannedFault> = (0..2).map(hang).collect();
    plan.faults.extend(hangs.into_iter().take(1 + usize::from(seed.is_multiple_of(3))));
    plan.faults.sort_by_key(|fault| fault.at_ms);
    plan
}

fn shape(rng: &mut Rng) -> Shape {
    let usual = super::shape(rng);
    let data_servers = rng.u8(3..=5);
    let copies: [&[u8]; 6] = [&[2], &[2], &[3], &[2, 3], &[2, 1], &[3, 2, 1]];
    let layouts =
        [FileShape::Striped, FileShape::Striped, FileShape::OneTarget, FileShape::Fragments];
    let leases = usual.leases;
    Shape {
        data_servers,
        targets_each: if rng.u8(0..4) == 0 { 2 } else { 1 },
        // The model forgets the same things as the real engine.
        engine: if rng.u8(0..4) == 0 { EngineKind::Model } else { EngineKind::Embedded },
        layout: layouts[rng.usize(0..layouts.len())],
        copies: copies[rng.usize(0..copies.len())].to_vec(),
        target_timeout_ms: [2_500, 3_000, 4_000][rng.usize(0..3)],
        // Longer than the time until a server counts as away.
        request_timeout_ms: 12_000,
        session_ms: 30_000,
        grace_ms: if leases { usual.lease_ms.max(2_000) } else { 7_000 },
        reset_ppm: [0, 0, 0, 500][rng.usize(0..4)],
        conflict_ppm: [0, 0, 50_000][rng.usize(0..3)],
        ..usual
    }
}

/// Half of the plans use the default protocol only.
fn protocols(rng: &mut Rng) -> Vec<Protocol> {
    const ALL: [Protocol; 5] = [
        Protocol::ServerSync,
        Protocol::ServerAsync,
        Protocol::ClientSync,
        Protocol::ClientAsync,
        Protocol::Hybrid,
    ];
    let count = [0, 0, 0, 1, 2, 3][rng.usize(0..6)];
    (0..count).map(|_| ALL[rng.usize(0..ALL.len())]).collect()
}

fn data(rng: &mut Rng, shape: &Shape) -> u8 {
    rng.u8(0..shape.data_servers)
}

/// Another data server.
fn other(rng: &mut Rng, shape: &Shape, than: u8) -> u8 {
    (than + rng.u8(1..shape.data_servers)) % shape.data_servers
}

/// Too short to be noticed, or long enough.
fn away(rng: &mut Rng, shape: &Shape) -> u32 {
    match rng.u8(0..4) {
        0 => rng.u32(1..shape.target_timeout_ms / 2),
        1 => rng.u32(shape.target_timeout_ms / 2..shape.target_timeout_ms * 3 / 2),
        _ => rng.u32(shape.target_timeout_ms..shape.target_timeout_ms * 3),
    }
}

/// Faults one after another.
fn patient(rng: &mut Rng, shape: &Shape, clients: u8, duration_ms: u32) -> Vec<PlannedFault> {
    let mut faults = Vec::new();
    let mut at_ms = rng.u32(500..3_000);
    // Each run prefers some kinds.
    let kinds: Vec<u8> = (0..rng.u8(1..=3)).map(|_| rng.u8(0..KINDS)).collect();
    while at_ms < duration_ms {
        let (kind, node) = (kinds[rng.usize(0..kinds.len())], data(rng, shape));
        let ms = away(rng, shape);
        let fault = data_fault(rng, kind, shape, clients, (node, ms));
        faults.push(PlannedFault { at_ms, fault });
        at_ms += ms + MEND_MS + rng.u32(0..2_000);
    }
    faults
}

/// Faults of two servers: the second fails while the first one is away, or is back but not yet
/// updated. Then there is time again.
fn pairs(rng: &mut Rng, shape: &Shape, clients: u8, duration_ms: u32) -> Vec<PlannedFault> {
    let mut faults = Vec::new();
    let mut at_ms = rng.u32(500..3_000);
    let kinds: Vec<u8> = (0..rng.u8(1..=4)).map(|_| rng.u8(0..KINDS)).collect();
    while at_ms < duration_ms {
        let first = data(rng, shape);
        let (one, two) = (kinds[rng.usize(0..kinds.len())], kinds[rng.usize(0..kinds.len())]);
        let (ms, ms_two) = (away(rng, shape), away(rng, shape));
        let node_two = other(rng, shape, first);
        let fault = data_fault(rng, one, shape, clients, (first, ms));
        faults.push(PlannedFault { at_ms, fault });
        let after_ms = match rng.u8(0..3) {
            0 => rng.u32(0..ms),
            _ => ms + rng.u32(0..2 * shape.target_timeout_ms),
        };
        let fault = match rng.u8(0..8) {
            0 => meta_fault(rng, shape),
            2 => Fault::LoseGaps {
                node: NodeName::Data(node_two),
                damaged: rng.bool(),
                down_ms: rng.u32(1..shape.target_timeout_ms),
            },
            1 => Fault::Kill {
                node: NodeName::Client(rng.u8(0..clients)),
                down_ms: rng.u32(1..2_000),
            },
            _ => data_fault(rng, two, shape, clients, (node_two, ms_two)),
        };
        faults.push(PlannedFault { at_ms: at_ms + after_ms, fault });
        let rest_ms = if rng.bool() { MEND_MS } else { 4_000 };
        at_ms += ms.max(after_ms + ms_two) + rest_ms + rng.u32(0..2_000);
    }
    faults
}

/// Several or all machines lose power at about the same time, and get it back at different times.
fn blackouts(rng: &mut Rng, shape: &Shape, duration_ms: u32) -> Vec<PlannedFault> {
    let mut faults = Vec::new();
    let mut at_ms = rng.u32(500..6_000);
    while at_ms < duration_ms {
        let nodes: Vec<NodeName> = match rng.u8(0..3) {
            0 => (0..shape.data_servers).map(NodeName::Data).chain([NodeName::Meta]).collect(),
            1 => (0..shape.data_servers).map(NodeName::Data).collect(),
            _ => {
                let first = data(rng, shape);
                vec![NodeName::Data(first), NodeName::Data(other(rng, shape, first))]
            }
        };
        let apart_ms = [1, 100, 2_000][rng.usize(0..3)];
        for node in nodes {
            let fault = Fault::PowerCut { node, down_ms: away(rng, shape), disk_only: false };
            faults.push(PlannedFault { at_ms: at_ms + rng.u32(0..apart_ms), fault });
        }
        at_ms += rng.u32(4_000..MEND_MS);
    }
    faults
}

/// Any faults at any time.
fn storms(rng: &mut Rng, shape: &Shape, clients: u8, duration_ms: u32) -> Vec<PlannedFault> {
    let count = [3, 6, 12][rng.usize(0..3)] * duration_ms / 20_000;
    let kinds: Vec<u8> = (0..rng.u8(2..=5)).map(|_| rng.u8(0..KINDS + 6)).collect();
    let fault = |_| {
        let kind = kinds[rng.usize(0..kinds.len())];
        let at_ms = rng.u32(0..duration_ms);
        let fault = if kind < KINDS {
            let (node, ms) = (data(rng, shape), away(rng, shape));
            data_fault(rng, kind, shape, clients, (node, ms))
        } else if kind == KINDS {
            meta_fault(rng, shape)
        } else {
            let kind = rng.u8(0..18);
            fault(rng, kind, shape, clients)
        };
        PlannedFault { at_ms, fault }
    };
    (0..count).map(fault).collect()
}

/// Whether all data servers stay. Otherwise a change in a block that has rotted while the other
/// copies are away is lost, and recovery after an unclean stop accepts rot in recent changes as
/// data.
pub(super) fn is_gentle(fault: &Fault) -> bool {
    let data = |node: &NodeName| matches!(node, NodeName::Data(_));
    let client = |node: &NodeName| matches!(node, NodeName::Client(_));
    match fault {
        Fault::LoseGaps { .. } => false,
        Fault::Kill { node, .. }
        | Fault::PowerCut { node, .. }
        | Fault::Stop { node, .. }
        | Fault::Isolate { node, .. }
        | Fault::Pace { node, .. }
        | Fault::DiskError { node, .. }
        | Fault::DiskFails { node, .. }
        | Fault::DiskFull { node, .. } => !data(node),
        Fault::Partition { a, b, .. } | Fault::Slow { a, b, .. } => client(a) || client(b),
        _ => true,
    }
}

/// Whether all data servers keep what they have confirmed and noted. Where copies move, the judges
/// do not know which server had them.
pub(super) fn keeps_memory(fault: &Fault) -> bool {
    let data = |node: &NodeName| matches!(node, NodeName::Data(_));
    match fault {
        Fault::LoseGaps { .. } | Fault::Rot { .. } => false,
        Fault::PowerCut { node, .. }
        | Fault::DiskError { node, .. }
        | Fault::DiskFails { node, .. } => !data(node),
        _ => true,
    }
}

/// Copies move while they are in use: targets are drained and kept after all, or are lost and
/// rebuilt elsewhere; numbers of copies change; targets are balanced.
fn moves(rng: &mut Rng, shape: &mut Shape, duration_ms: u32) -> Vec<PlannedFault> {
    let targets = u32::from(shape.data_servers) * u32::from(shape.targets_each);
    let mut faults = Vec::new();
    if rng.u8(0..3) == 0 {
        shape.rebuild_after_ms = rng.u32(1_000..8_000);
        let (node, at_ms) = (NodeName::Data(data(rng, shape)), rng.u32(500..duration_ms));
        faults.push(PlannedFault { at_ms, fault: Fault::Kill { node, down_ms: duration_ms } });
    }
    for _ in 0..rng.u8(1..=4) {
        let fault = match rng.u8(0..6) {
            0..3 => Fault::Drain { target: rng.u32(1..=targets), ms: rng.u32(500..duration_ms) },
            3 | 4 => Fault::Copies { file: rng.u8(0..shape.shared_files), copies: rng.u8(2..=3) },
            _ => Fault::Even,
        };
        faults.push(PlannedFault { at_ms: rng.u32(500..duration_ms), fault });
    }
    faults
}

/// One disk rots.
fn rots(rng: &mut Rng, shape: &Shape, duration_ms: u32) -> Vec<PlannedFault> {
    let server = data(rng, shape);
    let rot = |rng: &mut Rng| PlannedFault {
        at_ms: rng.u32(1_000..duration_ms),
        fault: Fault::Rot { server, pick: rng.u32(..) },
    };
    (0..rng.u8(1..=6)).map(|_| rot(rng)).collect()
}

/// Number of kinds of faults of a data server.
const KINDS: u8 = 20;

/// A fault of one data server, with its duration.
fn data_fault(
    rng: &mut Rng,
    kind: u8,
    shape: &Shape,
    clients: u8,
    (number, ms): (u8, u32),
) -> Fault {
    let node = NodeName::Data(number);
    let peer = NodeName::Data(other(rng, shape, number));
    let client = NodeName::Client(rng.u8(0..clients));
    let cut = |rng: &mut Rng, with: NodeName| {
        let both = rng.u8(0..3) > 0;
        let (a, b) = if rng.bool() { (node, with) } else { (with, node) };
        Fault::Partition { a, b, both, ms }
    };
    match kind {
        0..3 => Fault::Kill { node, down_ms: ms },
        3..6 => Fault::PowerCut { node, down_ms: ms, disk_only: false },
        6..9 => Fault::Stop { node, ms },
        9..11 => cut(rng, NodeName::Meta),
        11..13 => cut(rng, peer),
        13 => cut(rng, client),
        14 => Fault::Isolate { node, ms },
        15 => {
            let ppm = [-150_000, 150_000, 300_000][rng.usize(0..3)];
            Fault::Pace { node, ppm, ms: ms * 2 }
        }
        16 => Fault::DiskFails { node, ms },
        17 => Fault::DiskFull { node, ms },
        18 => match rng.u8(0..3) {
            0 => Fault::Break { a: node, b: peer },
            1 => Fault::Slow { a: node, b: peer, extra_ms: rng.u32(1..2_000), ms },
            _ => Fault::SlowDisk { node, operation_ms: rng.u32(1..50), ms },
        },
        _ => Fault::Clock {
            node,
            offset_ms: rng.i32(-20_000..20_000),
            drift_ppm: rng.i32(-500..500),
        },
    }
}

fn meta_fault(rng: &mut Rng, shape: &Shape) -> Fault {
    let node = NodeName::Meta;
    let ms = match rng.bool() {
        true => rng.u32(1..shape.target_timeout_ms),
        false => time(rng),
    };
    match rng.u8(0..4) {
        0 => Fault::Stop { node, ms },
        1 => Fault::PowerCut { node, down_ms: ms, disk_only: false },
        _ => Fault::Kill { node, down_ms: ms },
    }
}
