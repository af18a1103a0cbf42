//! The end of a run with several copies: every target comes back, no copy lacks anything, and all
//! copies of a column are equal byte for byte.

use crate::administer;
use crate::cluster::Cluster;
use crate::held::Held;
use crate::nemesis::Nemesis;
use crate::oracle::Violation;
use crate::plan::NodeName;
use crate::shared::Shared;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;
use weir_client::{Client, ClientConfig};
use weir_host::thread::sleep;
use weir_store::{Object, ReadMode, ReadOutcome, Target};
use weir_types::limits::BLOCK_BYTES;
use weir_types::{
    ColumnIndex, CopyIndex, Error, ErrorKind, FileId, FileLayout, ObjectId, Result, TargetId,
};
use weir_wire::map::TargetState;

/// Maximum time after the last fault until all targets are back.
const BACK: Duration = Duration::from_secs(60);
/// Maximum time until the findings of a scrub are repaired. An earlier repair may have failed; it
/// is repeated at least every minute.
const MENDED: Duration = Duration::from_secs(90);
/// Maximum time after the last fault until all copies are made.
const MOVED: Duration = Duration::from_secs(90);
/// Bytes verified in one step.
const SCRUB_BYTES: u32 = 16 << 20;
/// Interval of looks at the map.
const PAUSE: Duration = Duration::from_millis(250);
/// Bytes read in one piece.
const PIECE_BYTES: u64 = 1 << 20;

/// Waits until every target is online again.
pub(crate) fn wait_for_all(cluster: &mut Cluster, nemesis: &mut Nemesis) -> Vec<Violation> {
    wait_for(cluster, nemesis, watch, BACK, "not all targets are online")
}

/// Waits until no copies are being moved.
pub(crate) fn wait_for_moves(cluster: &mut Cluster, nemesis: &mut Nemesis) -> Vec<Violation> {
    let watcher = administer::wait_for_moves;
    wait_for(cluster, nemesis, watcher, MOVED, "copies are still being moved")
}

/// Scrubs everything, as `weir scrub` does, until nothing rotten is left.
pub(crate) fn wait_for_sound(cluster: &mut Cluster, nemesis: &mut Nemesis) -> Vec<Violation> {
    wait_for(cluster, nemesis, scrub_all, MENDED, "what has rotted is not mended")
}

/// Runs a client until it ends, while the faults go on. Returns what is wrong if it does not end in
/// time.
pub(crate) fn wait_for(
    cluster: &mut Cluster,
    nemesis: &mut Nemesis,
    watch: fn(Rc<Shared>, ClientConfig),
    within: Duration,
    wrong: &str,
) -> Vec<Violation> {
    let watcher = cluster.start_auditor(watch);
    let deadline = cluster.sim.now() + within;
    while cluster.sim.is_running(watcher) && cluster.sim.now() < deadline {
        let next = cluster.sim.now() + PAUSE;
        nemesis.run_until(cluster, next);
    }
    if !cluster.sim.is_running(watcher) {
        return Vec::new();
    }
    cluster.sim.kill(watcher);
    let seen = cluster.shared.states.borrow().clone();
    let what = format!("{wrong} {within:?} after the last fault: {seen}");
    vec![Violation { what, evidence: String::new() }]
}

/// Ends when all targets are online.
pub(crate) fn watch(shared: Rc<Shared>, config: ClientConfig) {
    let client = loop {
        match Client::connect(config.clone()) {
            Ok(client) => break client,
            Err(_) => sleep(PAUSE),
        }
    };
    loop {
        let map = client.cluster_map();
        let text = match &map {
            Ok(map) => {
                let states = map.targets().map(|(_, t)| format!("{} {:?}", t.target, t.state));
                states.collect::<Vec<_>>().join(", ")
            }
            Err(error) => format!("the map cannot be read: {error}"),
        };
        *shared.states.borrow_mut() = text;
        let online = |map: &weir_wire::map::ClusterMap| {
            map.targets().all(|(_, target)| target.state == TargetState::Online)
        };
        if map.is_ok_and(|map| online(&map)) {
            client.shutdown();
            return;
        }
        sleep(PAUSE);
    }
}

/// Ends when a scrub finds nothing.
fn scrub_all(shared: Rc<Shared>, config: ClientConfig) {
    let scrub = |client: &Client| -> Result<Vec<String>> {
        let administrator = client.administrator()?;
        let mut found = Vec::new();
        for (_, target) in client.cluster_map()?.targets() {
            let mut cursor = None;
            loop {
                let page = administrator.scrub(target.target, cursor, SCRUB_BYTES)?;
                found.extend(page.findings.iter().map(|finding| format!("{finding:?}")));
                cursor = page.next;
                if cursor.is_none() {
                    break;
                }
            }
        }
        Ok(found)
    };
    loop {
        let client = match Client::connect(config.clone()) {
            Ok(client) => client,
            Err(_) => {
                sleep(PAUSE);
                continue;
            }
        };
        let found = scrub(&client);
        client.shutdown();
        match found {
            Ok(found) if found.is_empty() => return,
            Ok(found) => *shared.states.borrow_mut() = found.join("; "),
            Err(error) => *shared.states.borrow_mut() = error.to_string(),
        }
        sleep(PAUSE);
    }
}

/// Compares all copies of everything that is known to exist. The servers must have ended.
pub(crate) fn compare(cluster: &mut Cluster) -> std::result::Result<Vec<Violation>, String> {
    let shape = cluster.shared.plan.shape.clone();
    let mut readers = Vec::new();
    for server in 0..shape.all_servers() {
        let (shared, shape) = (cluster.shared.clone(), shape.clone());
        let read = move || {
            for target in shared.members_of(&shape, server) {
                if let Err(error) = hold(target, &shared) {
                    *shared.trouble.borrow_mut() = Some(format!("target {target}: {error}"));
                }
            }
        };
        readers.push(cluster.sim.start(cluster.nodes[&NodeName::Data(server)], "read", read));
    }
    cluster.wait_for(&readers, "read all copies")?;
    let held = std::mem::take(&mut *cluster.shared.held.borrow_mut());
    let mut violations: Vec<Violation> = Vec::new();
    if !held.gaps.is_empty() {
        let what = format!("gaps are left at the end: {}", held.gaps.join("; "));
        violations.push(Violation { what, evidence: String::new() });
    }
    let made = cluster.shared.made.borrow();
    let files = made.files.iter().map(|id| FileId(*id)).zip(&made.layouts);
    let found = cluster.shared.found.borrow();
    for (file, layout) in files.chain(found.iter().map(|(file, layout)| (*file, layout))) {
        violations.extend(differing(&held, file, layout));
    }
    violations.truncate(3);
    Ok(violations)
}

fn hold(target: u32, shared: &Shared) -> Result<()> {
    let target = Target::open(PathBuf::from(format!("/target-{target}")))?;
    for found in target.objects() {
        let (id, _) = found?;
        let Some(object) = target.object(id)? else { continue };
        let bytes = read_whole(&object)?;
        shared.held.borrow_mut().objects.insert((target.id(), id), bytes);
    }
    for (behind, count) in target.gaps().counts() {
        let gap = format!("{} lacks parts of {count} objects that {} has", behind, target.id());
        shared.held.borrow_mut().gaps.push(gap);
    }
    target.close()
}

fn read_whole(object: &Object) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let end = object.len();
    while (bytes.len() as u64) < end {
        let at = bytes.len() as u64;
        let len = PIECE_BYTES.min(end - at);
        let mut piece = vec![0; len as usize];
        let mut checks = Vec::with_capacity(len.div_ceil(BLOCK_BYTES as u64) as usize + 1);
        match object.read_pieces(&[(at, len)], &mut piece, &mut checks, ReadMode::Locked)? {
            ReadOutcome::Done { bytes: read, .. } if read as u64 == len => bytes.extend(piece),
            _ => {
                return Err(Error::new(
                    ErrorKind::Internal,
                    format!("{} is cut short", object.id()),
                ));
            }
        }
    }
    Ok(bytes)
}

/// The first difference between copies of a column of a file. A missing object counts as an empty
/// one.
fn differing(held: &Held, file: FileId, layout: &FileLayout) -> Option<Violation> {
    for segment in &layout.segments {
        for (index, column) in segment.columns.iter().enumerate() {
            let column_index = ColumnIndex(index as u16);
            let whole =
                |(copy, _): &(CopyIndex, TargetId)| !segment.is_filling(column_index, *copy);
            let copies = column.copies().filter(whole).map(|(copy, target)| {
                let object = ObjectId { file, segment: segment.index, column: column_index, copy };
                let bytes = held.objects.get(&(target, object));
                (target, object, bytes.map_or(&[] as &[u8], |bytes| bytes))
            });
            let copies: Vec<(TargetId, ObjectId, &[u8])> = copies.collect();
            let (_, _, first) = copies[0];
            let Some((target, object, bytes)) = copies.iter().find(|(_, _, b)| *b != first) else {
                continue;
            };
            let at = first.iter().zip(*bytes).position(|(a, b)| a != b);
            let what = format!(
                "copies differ at the end: {object} on {target} has {} bytes, the first copy on {} has \
                 {}; the first byte that differs: {at:?}",
                bytes.len(),
                copies[0].0,
                first.len(),
            );
            return Some(Violation { what, evidence: String::new() });
        }
    }
    None
}
