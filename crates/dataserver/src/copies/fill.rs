//! Makes the copies that the metadata server orders.
//!
//! First it is noted that the new copy lacks everything. Then the old copies are fenced against
//! clients that do not know the new one, and the bytes here are sent to it. A small object costs
//! syncs and round trips and hardly any time for its bytes. So the gaps of a page of new copies are
//! noted with one sync, and a few threads make them in parallel, so that file systems write their
//! data together. Large objects are left to the thread that works off gaps one after the other,
//! which suits disks.

use super::columns::{FRESH, find};
use super::order::order;
use super::pacer::Pacer;
use super::push::{Push, STEP_BYTES, fence};
use crate::disk::Disk;
use crate::disk::progress::Stage;
use crate::machine::Work;
use crate::machine::change::{Asked, Change, copy_of};
use crate::queue::tasks::Data;
use crate::state::Shared;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;
use weir_host::clock;
use weir_host::net::Signal;
use weir_host::sync::Mutex;
use weir_host::thread::spawn;
use weir_net::AbortOnPanic;
use weir_store::{ELSEWHERE, Note, UNHEARD};
use weir_types::limits::{MAX_FILE_BYTES, MAX_FIND_COPIES};
use weir_types::{CopyIndex, ErrorKind, Generation, ObjectId, Result, TargetId};
use weir_wire::peer::{Copies as Column, Fill};

/// The most copies that are made in parallel from one target.
const THREADS: usize = 8;
/// Number of copies that justify starting another thread.
const PER_THREAD: usize = 4;

/// A copy to be made.
struct Item {
    fill: Fill,
    column: Column,
    /// The object here.
    object: ObjectId,
    /// Position of the copy here; `there` is that of the new one.
    here: usize,
    there: usize,
}

/// A page of copies. Each thread takes the next one.
struct Page {
    shared: Arc<Shared>,
    disk: Arc<Disk>,
    shutdown: Signal,
    threads: u32,
    /// Time at which the metadata server was asked for the copies.
    found: Instant,
    left: Mutex<VecDeque<Item>>,
    /// The first error, if there is one.
    result: Mutex<Result<()>>,
}

/// Makes the ordered copies. Returns whether there were any. Copies that were only begun here are
/// completed with all other gaps.
///
/// # Errors
/// The first one. What failed is tried again.
pub(super) fn fill_all(shared: &Arc<Shared>, disk: &Arc<Disk>, shutdown: &Signal) -> Result<bool> {
    let (new, begun): (Vec<_>, Vec<_>) =
        disk.progress.to_fill().into_iter().partition(|(_, stage)| *stage == Stage::Ordered);
    finish(disk, begun);
    let new: Vec<Fill> = new.into_iter().map(|(fill, _)| fill).collect();
    let mut result: Result<bool> = Ok(false);
    for fills in new.chunks(MAX_FIND_COPIES) {
        if matches!(&result, Err(error) if error.kind == ErrorKind::Interrupted) {
            break;
        }
        let done = fill_page(shared, disk, shutdown, fills);
        finish(disk, disk.progress.to_fill());
        result = match (result, done) {
            (Ok(before), Ok(any)) => Ok(before | any),
            (before, done) => done.and(before),
        };
    }
    result
}

/// Marks copies as filled that have everything which is here.
fn finish(disk: &Disk, copies: Vec<(Fill, Stage)>) {
    for (fill, stage) in copies {
        if let Stage::Begun(object) = stage
            && !disk.store.gaps().lacks(object, fill.to, &(0..MAX_FILE_BYTES))
        {
            disk.progress.has_come(&fill, Stage::Filled(Some(object)));
        }
    }
}

/// Handles an order for a copy that is whole already: it is only reported when it has everything. A
/// copy that does not order changes does not know what the others lack. If nobody may write the
/// column any more, it is fenced and made durable before.
fn settle(
    shared: &Shared,
    disk: &Disk,
    fill: &Fill,
    column: &Column,
    object: ObjectId,
) -> Result<()> {
    let own = disk.served.id;
    shared.copies.standings.orders(own, &column.copies)?;
    if column.sealed && column.fence > Generation(0) && fill.to == own {
        let fence = fence(column, object, usize::from(object.copy.0), column.fence);
        order(shared, disk, (&fence, None), &mut Data::default(), |_| ())?;
        let (asked, work) = (Asked::Sync, Work::Sync { object });
        let sync = Change { asked, work, ..fence };
        order(shared, disk, (&sync, None), &mut Data::default(), |_| ())?;
    }
    if !disk.store.gaps().lacks(object, fill.to, &(0..MAX_FILE_BYTES)) {
        disk.progress.has_come(fill, Stage::Filled(Some(object)));
    }
    Ok(())
}

/// Makes a page of copies. Returns whether any had to be made: whole ones only wait for their
/// bytes.
fn fill_page(
    shared: &Arc<Shared>,
    disk: &Arc<Disk>,
    shutdown: &Signal,
    fills: &[Fill],
) -> Result<bool> {
    let own = disk.served.id;
    let found = clock::now();
    let columns = find(shared, fills.iter().map(|fill| fill.object).collect())?;
    let (mut items, mut notes, mut result) = (VecDeque::new(), Vec::new(), Ok(()));
    for (fill, column) in fills.iter().zip(columns) {
        // There is nothing to be copied any more.
        let Some(column) = column else {
            disk.progress.has_come(fill, Stage::Filled(None));
            continue;
        };
        let at = |target| column.copies.iter().position(|copy| copy.target == target);
        let (Some(here), Some(there)) = (at(own), at(fill.to)) else {
            result = Err(ErrorKind::TargetMissing.into());
            continue;
        };
        let object = copy_of(fill.object, here);
        if !column.copies[there].filling {
            let settled = settle(shared, disk, fill, &column, object);
            result = settled.and(result);
            continue;
        }
        let (behind, copy) = (fill.to, CopyIndex(there as u8));
        notes.push(Note { object, behind, copy, bytes: 0..MAX_FILE_BYTES });
        items.push_back(Item { fill: fill.clone(), column, object, here, there });
    }
    if items.is_empty() {
        return result.map(|()| false);
    }
    disk.store.gaps().note_all_told(&notes)?;
    let others = (items.len() / PER_THREAD).min(THREADS - 1);
    let page = Arc::new(Page {
        shared: shared.clone(),
        disk: disk.clone(),
        shutdown: shutdown.clone(),
        threads: others as u32 + 1,
        found,
        left: Mutex::new(items),
        result: Mutex::new(result),
    });
    let mut threads = Vec::new();
    for n in 0..others {
        let of = page.clone();
        let body = move || {
            let _guard = AbortOnPanic("a thread for copies");
            of.work_off();
        };
        match spawn(&format!("weir-fill-{own}.{n}"), body) {
            Ok(thread) => threads.push(thread),
            // Fewer do it too.
            Err(error) => tracing::debug!("cannot start a thread for copies: {error}"),
        }
    }
    page.work_off();
    for thread in threads {
        // One that panics ends the server.
        let _ = thread.join();
    }
    std::mem::replace(&mut *page.result.lock(), Ok(())).map(|()| true)
}

impl Page {
    fn work_off(&self) {
        let pacer = Pacer::new(self.shared.clone(), self.shutdown.clone(), self.threads);
        let mut buffer = Vec::new();
        let mut first = true;
        loop {
            let Some(item) = self.left.lock().pop_front() else { return };
            // Also for what has no bytes.
            let paced = pacer.pace(0);
            // The rest stays ordered, and is asked for anew.
            if !std::mem::replace(&mut first, false) && !self.is_fresh() {
                self.left.lock().clear();
                return;
            }
            let made = paced.and_then(|()| self.make(&item, &pacer, &mut buffer));
            let Err(error) = made else { continue };
            if error.kind == ErrorKind::Interrupted {
                self.left.lock().clear();
            }
            let mut result = self.result.lock();
            if result.is_ok() || error.kind == ErrorKind::Interrupted {
                *result = Err(error);
            }
        }
    }

    fn is_fresh(&self) -> bool {
        clock::elapsed(self.found) <= FRESH
    }

    fn len(&self, object: ObjectId) -> Result<u64> {
        Ok(self.disk.store.object(object)?.map_or(0, |object| object.len()))
    }

    fn make(&self, item: &Item, pacer: &Pacer, buffer: &mut Vec<u8>) -> Result<()> {
        let Item { fill, column, object, here, there } = item;
        let (shared, disk) = (&*self.shared, &*self.disk);
        // From here on nobody changes it who does not know of the new copy, which gets the
        // fence with the rest: what it may miss is noted.
        let change = fence(&without(column, fill.to), *object, *here, column.fence);
        order(shared, disk, (&change, None), &mut Data::default(), |_| ())?;
        disk.progress.has_come(fill, Stage::Begun(*object));
        let (len, gaps) = (self.len(*object)?, disk.store.gaps());
        // Else it is brought as all that is noted is: so far as it is here, and to where it
        // is then.
        let is_whole = [ELSEWHERE, UNHEARD].iter().all(|of| gaps.of(*object, *of).is_none());
        match gaps.of(*object, fill.to) {
            Some(lacking) if len <= STEP_BYTES && is_whole && self.is_fresh() => {
                let pace = |bytes| pacer.pace(bytes);
                let (object, to) = (*object, *there);
                Push { shared, disk, object, column, to, pace: &pace }.bring(&lacking, buffer)
            }
            _ => Ok(()),
        }
    }
}

/// The column without the copy that is being made. Other copies being made may be further and are
/// told.
fn without(column: &Column, target: TargetId) -> Column {
    let mut column = column.clone();
    let copies = column.copies.iter_mut().filter(|copy| copy.target == target);
    copies.for_each(|copy| (copy.target, copy.filling) = (TargetId::NONE, false));
    column
}
