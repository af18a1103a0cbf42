//! Data that no server serves, because the last server that knew who has it has forgotten that. At
//! the end of a run an administrator does what `weir fsck` and `weir accept-loss` do.

use crate::cluster::{Cluster, server_of};
use crate::copies;
use crate::history::{CELL_BYTES, What};
use crate::nemesis::Nemesis;
use crate::oracle::Violation;
use crate::oracle::errors::GRACE;
use crate::shared::Shared;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;
use weir_client::losses::{self, Left, Loss};
use weir_client::{Administrator, Client, ClientConfig, Context};
use weir_host::thread::sleep;
use weir_types::{FileId, Result, Segment};

/// Maximum time until losses are found and accepted.
const ACCEPTED: Duration = Duration::from_secs(60);
/// Pause between attempts.
const PAUSE: Duration = Duration::from_millis(250);

/// Accepts all losses, and waits until the copies are equal. `None`: nothing is lost.
pub(crate) fn accept(cluster: &mut Cluster, nemesis: &mut Nemesis) -> Option<Vec<Violation>> {
    let before = cluster.shared.accepted.take();
    let mut violations =
        copies::wait_for(cluster, nemesis, accept_all, ACCEPTED, "losses cannot be accepted");
    let is_lost = !cluster.shared.accepted.borrow().is_empty();
    if is_lost {
        nemesis.run_until(cluster, cluster.sim.now() + GRACE);
        violations.extend(copies::wait_for_all(cluster, nemesis));
    }
    cluster.shared.accepted.borrow_mut().extend(before);
    (is_lost || !violations.is_empty()).then_some(violations)
}

/// Ends when no loss is left.
fn accept_all(shared: Rc<Shared>, config: ClientConfig) {
    loop {
        if let Ok(client) = Client::connect(config.clone()) {
            let done = accept_what_is_lost(&shared, &client);
            client.shutdown();
            match done {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => *shared.states.borrow_mut() = error.to_string(),
            }
        }
        sleep(PAUSE);
    }
}

/// Accepts the losses found; returns whether there were none.
fn accept_what_is_lost(shared: &Shared, client: &Client) -> Result<bool> {
    let admin = client.administrator()?;
    let states = losses::states(&client.targets()?);
    let files: Vec<FileId> = shared.made.borrow().files.iter().map(|id| FileId(*id)).collect();
    let mut is_well = true;
    for (index, file) in files.into_iter().enumerate() {
        let size = client.getattr(&Context::root(), file)?.size;
        let all = losses::of_file(&admin, (file, size), &states)?;
        is_well &= all.is_empty();
        let lost: Vec<Loss> = all.into_iter().filter(|loss| loss.left != Left::Away).collect();
        if lost.is_empty() {
            continue;
        }
        let segments = segments(&admin, file)?;
        for loss in &lost {
            note(shared, index as u8, loss, &segments);
        }
        losses::give_up(&admin, file, &lost)?;
    }
    Ok(is_well)
}

fn segments(admin: &Administrator, file: FileId) -> Result<Vec<Segment>> {
    let mut all: Vec<Segment> = Vec::new();
    loop {
        let from = all.last().map_or(0, Segment::end);
        let (page, more) = admin.segments_from(file, from)?;
        let ends = !more || page.is_empty();
        all.extend(page);
        if ends {
            return Ok(all);
        }
    }
}

/// Records a loss that is about to be accepted.
fn note(shared: &Shared, file: u8, loss: &Loss, segments: &[Segment]) {
    let Some(segment) = segments.iter().find(|segment| segment.index == loss.segment) else {
        return;
    };
    let column = segment.columns.get(usize::from(loss.column.0));
    let copies = column.into_iter().flat_map(|column| column.copies());
    let nodes = copies.map(|(_, target)| server_of(&shared.plan.shape, target)).collect();
    let is_lost = |bytes: &Range<u64>| bytes.start < loss.range.end && loss.range.start < bytes.end;
    let within = |cell: u32| Some((cell, cell_in(segment, cell, loss)?));
    let all: Vec<_> = (0..shared.plan.cells(file)).filter_map(within).collect();
    let column = all.iter().map(|(cell, _)| *cell).collect();
    let cells = all.iter().filter(|(_, bytes)| is_lost(bytes)).map(|(cell, _)| *cell).collect();
    shared.record(What::LossAccepted { file, nodes, column, cells });
    shared.accepted.borrow_mut().insert(file);
}

/// The range of a cell in the object, if it is in the column with the loss.
fn cell_in(segment: &Segment, cell: u32, loss: &Loss) -> Option<Range<u64>> {
    let offset = u64::from(cell) * CELL_BYTES as u64;
    let within = (segment.start..segment.end()).contains(&offset);
    let place = within.then(|| weir_layout::locate(segment.stripe(), offset - segment.start))?;
    let start = place.object_offset;
    (place.column == loss.column).then(|| start..start + CELL_BYTES as u64)
}
