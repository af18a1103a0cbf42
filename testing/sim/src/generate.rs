//! Plans made from seeds.

mod changing;
mod mirrored;

use crate::history::RenameMode;
use crate::plan::{
    ClientPlan, DiskErrorKind, DiskOperation, EngineKind, Fault, FileShape, NodeName, Op, Place,
    Plan, PlannedFault, PlannedOp, Shape,
};
use fastrand::Rng;
use std::ops::RangeInclusive;

/// Number of names in a directory: few, so that clients collide.
const NAMES: u8 = 4;
/// Number of fixed directories.
pub const DIRECTORIES: u8 = 2;
/// Mean pause between calls, milliseconds.
const PAUSE_MS: u32 = 250;

/// From this seed on, clusters keep several copies.
pub const MIRRORED: u64 = 1_000_000_000;

/// From this seed on, clusters with several copies also change: data servers join and leave, and
/// files use all placements.
pub const CHANGING: u64 = 2_000_000_000;

/// From this seed on, clusters with several copies also have hanging disks.
pub const HANGING: u64 = 3_000_000_000;

/// From this seed on, the plans of 0 to [`HANGING`] are repeated with one difference: where a
/// server's power fails, only its disk is reset. The disk is mounted again without unsynced bytes,
/// while the machine runs on.
pub const RESETTING: u64 = 4_000_000_000;

/// All policies in turn.
fn read_policy(seed: u64) -> u8 {
    (seed % 5) as u8
}

/// In one of this many plans of clusters with one copy, the metadata disk is full for a while, in
/// addition to other faults.
const FULL_METADATA: u8 = 12;

/// The plan of a seed.
pub fn plan(seed: u64, duration_ms: u32) -> Plan {
    let mut plan = without_full_metadata(seed, duration_ms);
    // A separate generator, so that the rest of the plan does not depend on it, and plans that
    // tests know by their seeds stay as they are.
    let mut rng = Rng::with_seed(seed ^ 0x6675_6c8b);
    if seed < MIRRORED && rng.u8(0..FULL_METADATA) == 0 && !plan.faults.is_empty() {
        fill_metadata_disk(&mut plan, &mut rng);
    }
    plan
}

/// Adds a period in which the metadata disk is full.
pub fn fill_metadata_disk(plan: &mut Plan, rng: &mut Rng) {
    let (at_ms, ms) =
        (rng.u32(0..plan.duration_ms.max(1)), rng.u32(500..plan.duration_ms.max(1_000)));
    plan.faults.push(PlannedFault { at_ms, fault: Fault::DiskFull { node: NodeName::Meta, ms } });
    plan.faults.sort_by_key(|planned| planned.at_ms);
}

fn without_full_metadata(seed: u64, duration_ms: u32) -> Plan {
    if let Some(of) = seed.checked_sub(RESETTING).filter(|of| *of < HANGING) {
        return of_disks_alone(Plan { seed, ..without_full_metadata(of, duration_ms) });
    }
    if seed >= HANGING {
        return mirrored::hanging(seed, duration_ms);
    }
    if seed >= CHANGING {
        return changing::plan(seed, duration_ms);
    }
    if seed >= MIRRORED {
        return mirrored::plan(seed, duration_ms);
    }
    let mut rng = Rng::with_seed(seed ^ 0x7765_6972);
    let shape = shape(&mut rng);
    let clients = rng.u8(2..=3);
    let clients: Vec<ClientPlan> = (0..clients)
        .map(|index| client(&mut rng, &shape, (index, clients), 1..=6, duration_ms))
        .collect();
    let faults = faults(&mut rng, &shape, clients.len() as u8, duration_ms);
    let read_policy = read_policy(seed);
    Plan { seed, duration_ms, shape, clients, faults, read_policy }
}

fn of_disks_alone(mut plan: Plan) -> Plan {
    for planned in &mut plan.faults {
        if let Fault::PowerCut { node: NodeName::Data(_) | NodeName::Meta, disk_only, .. } =
            &mut planned.fault
        {
            *disk_only = true;
        }
    }
    plan
}

fn shape(rng: &mut Rng) -> Shape {
    let engine = if rng.u8(0..3) == 0 { EngineKind::Model } else { EngineKind::Embedded };
    // Some clusters have clients that cache nothing of shared files.
    let leases = rng.u8(0..6) > 0;
    let lease_ms = [1_000, 1_500, 3_000][rng.usize(0..3)];
    let layouts =
        [FileShape::Striped, FileShape::Striped, FileShape::OneTarget, FileShape::Fragments];
    Shape {
        data_servers: rng.u8(1..=3),
        targets_each: if rng.u8(0..3) == 0 { 2 } else { 1 },
        event_loops: rng.u8(1..=2),
        engine,
        leases,
        lease_ms,
        // Without leases nobody polls, and idle clients are heard of seldom.
        session_ms: if leases { [4_000, 30_000][rng.usize(0..2)] } else { 30_000 },
        // A client also notices a restart only with its next request, at the latest after five
        // seconds.
        grace_ms: [lease_ms, 4_000][rng.usize(0..2)].max(if leases { 0 } else { 7_000 }),
        shared_files: rng.u8(1..=2),
        logs: u8::from(leases),
        cells: [16, 32, 48][rng.usize(0..3)],
        layout: layouts[rng.usize(0..layouts.len())],
        request_timeout_ms: [2_000, 6_000][rng.usize(0..2)],
        reset_ppm: [0, 0, 500, 5_000][rng.usize(0..4)],
        conflict_ppm: [0, 50_000, 200_000][rng.usize(0..3)],
        copies: Vec::new(),
        protocols: Vec::new(),
        target_timeout_ms: 0,
        rebuild_after_ms: 0,
        placements: Vec::new(),
        spares: 0,
    }
}

fn client(
    rng: &mut Rng,
    shape: &Shape,
    (index, clients): (u8, u8),
    names: RangeInclusive<u8>,
    duration_ms: u32,
) -> ClientPlan {
    let write_behind = rng.u8(0..3) < if shape.leases { 2 } else { 1 };
    let keeps_pages = shape.leases && rng.bool();
    let own = shape.shared_files + index;
    let log = shape.shared_files + clients;
    // Number of calls on names, of 8.
    let names = rng.u8(names);
    // Some clients truncate files often.
    let cuts = rng.u8(0..5) == 0;
    let mut ops = Vec::new();
    let mut time_ms = 0;
    while time_ms < duration_ms {
        let wait_ms = pause(rng);
        time_ms += wait_ms.max(1);
        let op = if rng.u8(0..8) < names {
            name_op(rng)
        } else {
            let may_share = shape.leases || !write_behind;
            let shared = may_share && rng.u8(0..4) > 0;
            match rng.u8(0..4) {
                0 if shape.logs > 0 => log_op(rng, log),
                _ if shared => {
                    let file = rng.u8(0..shape.shared_files);
                    data_op(rng, shape, file, cuts)
                }
                _ => data_op(rng, shape, own, cuts),
            }
        };
        ops.push(PlannedOp { wait_ms, op });
    }
    ClientPlan { write_behind, keeps_pages, ops }
}

/// A pause, mostly short.
fn pause(rng: &mut Rng) -> u32 {
    match rng.u8(0..4) {
        0 => 0,
        1 => rng.u32(0..20),
        _ => rng.u32(0..PAUSE_MS * 3),
    }
}

fn data_op(rng: &mut Rng, shape: &Shape, file: u8, cuts: bool) -> Op {
    let first = rng.u32(0..shape.cells);
    let most = (shape.cells - first).min(if rng.bool() { 4 } else { 20 });
    let cells = rng.u32(1..=most);
    match rng.u8(0..20) {
        0..8 => Op::Write { file, first, cells },
        8..14 => Op::Read { file, first, cells },
        16 | 17 if cuts => Op::Cut { file, keep: rng.u32(1..shape.cells) },
        14..16 if shape.leases => Op::Stat { file },
        14..18 => Op::Sync { file },
        18 => Op::Reopen { file },
        _ => Op::Cut { file, keep: rng.u32(1..shape.cells) },
    }
}

fn log_op(rng: &mut Rng, file: u8) -> Op {
    match rng.u8(0..16) {
        0..7 => Op::Append { file, cells: rng.u32(1..4) },
        7..11 => Op::Tail { file, cells: rng.u32(1..12) },
        11..14 => Op::Stat { file },
        14 => Op::Sync { file },
        _ => Op::Reopen { file },
    }
}

fn place(rng: &mut Rng) -> Place {
    let inner = if rng.u8(0..5) == 0 { Some(rng.u8(0..2)) } else { None };
    Place { dir: rng.u8(0..DIRECTORIES), name: rng.u8(0..NAMES), inner }
}

fn name_op(rng: &mut Rng) -> Op {
    let at = place(rng);
    match rng.u8(0..40) {
        32.. => Op::Look { at },
        0..4 => Op::Create { at, exclusive: rng.u8(0..4) > 0, mode: 0o600 + rng.u16(0..0o100) },
        4..6 => Op::Mkdir { at },
        6 => Op::Symlink { at },
        7..10 => Op::Unlink { at },
        10 => Op::Rmdir { at },
        11..16 => {
            let mode = match rng.u8(0..5) {
                0 => RenameMode::NoReplace,
                1 => RenameMode::Exchange,
                _ => RenameMode::Replace,
            };
            Op::Rename { from: at, to: place(rng), mode }
        }
        16..18 => Op::Link { from: at, to: place(rng) },
        18..21 => Op::Look { at },
        21..23 => Op::List { dir: at.dir },
        23 => Op::SetMode { at, mode: 0o600 + rng.u16(0..0o100) },
        24..26 => Op::SetXattr { at, name: rng.u8(0..2) },
        26..28 => Op::SyncNames,
        28 => Op::Publish { at: Place { inner: None, ..at } },
        29 => Op::Hide,
        _ => Op::Fetch { at },
    }
}

fn faults(rng: &mut Rng, shape: &Shape, clients: u8, duration_ms: u32) -> Vec<PlannedFault> {
    // From no faults to permanent ones.
    let count = [0, 2, 4, 8, 12][rng.usize(0..5)] * duration_ms / 10_000;
    // Each run prefers some kinds.
    let kinds: Vec<u8> = (0..rng.u8(1..=4)).map(|_| rng.u8(0..18)).collect();
    let mut faults: Vec<PlannedFault> = (0..count)
        .map(|_| {
            let kind = kinds[rng.usize(0..kinds.len())];
            let fault = fault(rng, kind, shape, clients);
            PlannedFault { at_ms: rng.u32(0..duration_ms), fault }
        })
        .collect();
    if shape.leases && rng.u8(0..2) == 0 {
        let kinds: Vec<u8> = (0..rng.u8(1..=2)).map(|_| rng.u8(0..9)).collect();
        for _ in 0..2 * duration_ms / 10_000 {
            let kind = kinds[rng.usize(0..kinds.len())];
            faults.extend(loss(rng, kind, shape, clients, duration_ms));
        }
    }
    if rng.u8(0..3) == 0 {
        faults.extend((0..2).flat_map(|_| storm(rng, shape, clients, duration_ms)));
    }
    if rng.u8(0..3) == 0 {
        faults.extend((0..count).map(|_| late_data(rng, shape, clients, duration_ms)));
    }
    faults.sort_by_key(|fault| fault.at_ms);
    faults
}

/// Requests of a client to a data server arrive late.
fn late_data(rng: &mut Rng, shape: &Shape, clients: u8, duration_ms: u32) -> PlannedFault {
    let fault = Fault::Late {
        client: rng.u8(0..clients),
        server: NodeName::Data(rng.u8(0..shape.data_servers)),
        extra_ms: rng.u32(100..4_000),
        ms: rng.u32(5..200),
    };
    PlannedFault { at_ms: rng.u32(0..duration_ms), fault }
}

/// A server stops, and a client that waits for it dies. Its requests are still there when the
/// server goes on.
fn storm(rng: &mut Rng, shape: &Shape, clients: u8, duration_ms: u32) -> Vec<PlannedFault> {
    let at_ms = rng.u32(0..duration_ms);
    let stop = Fault::Stop { node: server(rng, shape), ms: rng.u32(500..3_000) };
    let node = NodeName::Client(rng.u8(0..clients));
    let kill = Fault::Kill { node, down_ms: rng.u32(1..500) };
    let later = PlannedFault { at_ms: at_ms + rng.u32(50..500), fault: kill };
    vec![PlannedFault { at_ms, fault: stop }, later]
}

/// A client loses leases: it is away for longer than they last, or dies; or the metadata server
/// must be told about them again.
fn loss(
    rng: &mut Rng,
    kind: u8,
    shape: &Shape,
    clients: u8,
    duration_ms: u32,
) -> Vec<PlannedFault> {
    let at_ms = rng.u32(0..duration_ms);
    let number = rng.u8(0..clients);
    let (client, meta) = (NodeName::Client(number), NodeName::Meta);
    let data = NodeName::Data(rng.u8(0..shape.data_servers));
    let long = shape.lease_ms + rng.u32(0..2 * shape.lease_ms);
    let short = rng.u32(1..600);
    let cut_off = Fault::Partition { a: client, b: meta, both: true, ms: long };
    let mut faults = Vec::new();
    let mut add = |after_ms: u32, fault| {
        faults.push(PlannedFault { at_ms: at_ms + after_ms, fault });
    };
    match kind {
        0 => add(0, Fault::Stop { node: client, ms: long }),
        1 => add(0, cut_off),
        2 => add(0, Fault::Partition { a: client, b: data, both: rng.bool(), ms: long }),
        3 => {
            // Its requests arrive after others were granted leases.
            add(0, Fault::Slow { a: client, b: data, extra_ms: long, ms: short });
            let dies = Fault::Kill { node: client, down_ms: rng.u32(1..2_000) };
            add(rng.u32(0..short), if rng.bool() { dies } else { cut_off });
        }
        4 => {
            add(0, Fault::Kill { node: meta, down_ms: short });
            add(short + rng.u32(1..shape.grace_ms), Fault::Kill { node: meta, down_ms: short });
        }
        5 => {
            // Cut off while the metadata server restarts.
            add(0, cut_off);
            add(rng.u32(0..long), Fault::Kill { node: meta, down_ms: short });
        }
        6 | 7 => {
            let ms = rng.u32(1..shape.grace_ms / 2);
            add(0, Fault::ForgetLeases { client: number, down_ms: short, ms });
        }
        _ => add(0, Fault::Kill { node: client, down_ms: rng.u32(1..2_000) }),
    }
    faults
}

fn server(rng: &mut Rng, shape: &Shape) -> NodeName {
    match rng.u8(0..shape.data_servers + 1) {
        0 => NodeName::Meta,
        n => NodeName::Data(n - 1),
    }
}

fn any(rng: &mut Rng, shape: &Shape, clients: u8) -> NodeName {
    if rng.u8(0..3) == 0 { NodeName::Client(rng.u8(0..clients)) } else { server(rng, shape) }
}

fn pair(rng: &mut Rng, shape: &Shape, clients: u8) -> (NodeName, NodeName) {
    let a = server(rng, shape);
    let b = match (a, rng.u8(0..4)) {
        (NodeName::Data(_), 0) => NodeName::Meta,
        _ => NodeName::Client(rng.u8(0..clients)),
    };
    if rng.bool() { (a, b) } else { (b, a) }
}

/// A short or a long time, milliseconds.
fn time(rng: &mut Rng) -> u32 {
    match rng.u8(0..4) {
        0 => rng.u32(1..50),
        1..3 => rng.u32(50..1_500),
        _ => rng.u32(1_500..6_000),
    }
}

fn fault(rng: &mut Rng, kind: u8, shape: &Shape, clients: u8) -> Fault {
    match kind {
        0..3 => Fault::Kill { node: any(rng, shape, clients), down_ms: time(rng) },
        3..7 => Fault::PowerCut { node: server(rng, shape), down_ms: time(rng), disk_only: false },
        7..9 => Fault::Stop { node: any(rng, shape, clients), ms: time(rng) },
        9..11 => {
            let (a, b) = pair(rng, shape, clients);
            Fault::Partition { a, b, both: rng.bool(), ms: time(rng) }
        }
        11..13 => {
            let (a, b) = pair(rng, shape, clients);
            Fault::Break { a, b }
        }
        13 => {
            let (a, b) = pair(rng, shape, clients);
            Fault::Slow { a, b, extra_ms: rng.u32(1..300), ms: time(rng) }
        }
        14 => disk_fault(rng, shape),
        15..17 => Fault::Late {
            client: rng.u8(0..clients),
            server: NodeName::Meta,
            extra_ms: rng.u32(100..4_000),
            ms: rng.u32(5..200),
        },
        _ => Fault::Clock {
            node: any(rng, shape, clients),
            offset_ms: rng.i32(-20_000..20_000),
            drift_ppm: rng.i32(-500..500),
        },
    }
}

fn disk_fault(rng: &mut Rng, shape: &Shape) -> Fault {
    let node = server(rng, shape);
    if rng.bool() {
        return Fault::SlowDisk { node, operation_ms: rng.u32(1..50), ms: time(rng) };
    }
    let (operation, error) = match rng.u8(0..4) {
        0 => (DiskOperation::Read, DiskErrorKind::Io),
        1 => (DiskOperation::Write, DiskErrorKind::NoSpace),
        2 => (DiskOperation::Write, DiskErrorKind::Io),
        _ => (DiskOperation::Sync, DiskErrorKind::Io),
    };
    Fault::DiskError { node, operation, error, after: rng.u32(0..6), ms: time(rng) + 100 }
}
