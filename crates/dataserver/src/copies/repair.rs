//! What was found to be damaged in copies that have others, by reads and by scrubs,
//! is made good by a thread of its own: disk threads wait for nobody.

use super::change::Change;
use super::mend::{Mend, Mender};
pub(super) use super::mend::{before_change, serve_repair};
use crate::counters::add;
use crate::disk::{Data, Disk, Job};
use crate::machine::{OpId, Outcome, Work};
use crate::service::{Event, Shared};
use std::collections::VecDeque;
use std::ops::Range;
use std::time::{Duration, Instant};
use weir_host::clock;
use weir_host::sync::{Condvar, Mutex};
use weir_net::LoopHandle;
use weir_types::limits::{BLOCK_BYTES, MAX_PAYLOAD_BYTES};
use weir_types::{Error, ErrorKind, ObjectId, Result, TargetId};
use weir_wire::data::{Damage, Mended, ScrubFinding, ScrubPage};

/// Suspects that wait; more than these are found again.
const MAX_SUSPECTS: usize = 1024;
/// One answer to a scrub waits so long for repairs; what is left is found by the
/// next scrub.
const SCRUB_PATIENCE: Duration = Duration::from_secs(10);

/// Of the reason why something was not made good, so many bytes are told.
pub(crate) const MAX_REASON: usize = 160;

/// What may be damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Suspect {
    /// The header: the object cannot be opened, or not the next time.
    Header,
    /// Blocks.
    Bytes(Range<u64>),
}

/// What a scrub has found, and who waits for it.
pub(crate) struct Scrubbed {
    pub(crate) target: TargetId,
    pub(crate) page: ScrubPage,
    pub(crate) op: OpId,
    pub(crate) reply_to: LoopHandle<Event>,
}

enum Task {
    Suspect(TargetId, ObjectId, Suspect),
    Scrubbed(Box<Scrubbed>),
}

#[derive(Default)]
struct State {
    queue: VecDeque<Task>,
    stopped: bool,
}

/// See the top of the file.
#[derive(Default)]
pub(crate) struct Repairs {
    state: Mutex<State>,
    changed: Condvar,
}

/// What an operation looks at, if it is of an object with several copies.
pub(crate) fn looked_at(job: &Job) -> Option<(ObjectId, Suspect)> {
    match job {
        Job::Plain(Work::Read(read)) if read.of_copies => {
            let start = read.pieces.iter().map(|piece| piece.0).min()?;
            let end = read.pieces.iter().map(|piece| piece.0 + piece.1).max()?;
            Some((read.object, Suspect::Bytes(start..end)))
        }
        Job::Plain(
            Work::Stat { object, of_copies: true } | Work::Seek { object, of_copies: true, .. },
        ) => Some((*object, Suspect::Header)),
        Job::Plain(_) => None,
        // Blocks that have rotted are sent anew by the one that orders.
        Job::Follow(change) => Some((change.access.object, Suspect::Header)),
    }
}

/// Whether anything of a scrub can be made good.
pub(crate) fn is_about_objects(page: &ScrubPage) -> bool {
    page.findings.iter().any(|finding| suspect_of(finding).is_some())
}

fn suspect_of(finding: &ScrubFinding) -> Option<(ObjectId, Suspect)> {
    let object = finding.object?;
    match finding.damage {
        Damage::Header => Some((object, Suspect::Header)),
        Damage::Block | Damage::Unreadable if finding.len > 0 => {
            Some((object, Suspect::Bytes(finding.offset..finding.offset + finding.len)))
        }
        _ => None,
    }
}

impl Repairs {
    /// A read has failed.
    pub(crate) fn failed(&self, target: TargetId, looked_at: (ObjectId, Suspect), error: &Error) {
        let (object, suspect) = looked_at;
        let suspect = match (suspect, error.at) {
            // Of pieces that are far apart the one that it says.
            (Suspect::Bytes(range), Some(at))
                if range.end - range.start > MAX_PAYLOAD_BYTES as u64 =>
            {
                Suspect::Bytes(at..at + BLOCK_BYTES as u64)
            }
            (suspect, _) => suspect,
        };
        self.suspect(target, object, suspect);
    }

    /// Something may be damaged.
    pub(crate) fn suspect(&self, target: TargetId, object: ObjectId, suspect: Suspect) {
        let mut state = self.state.lock();
        let known = |task: &Task| match task {
            Task::Suspect(t, o, s) => (*t, *o) == (target, object) && *s == suspect,
            Task::Scrubbed(_) => false,
        };
        if state.queue.len() < MAX_SUSPECTS && !state.queue.iter().any(known) {
            state.queue.push_back(Task::Suspect(target, object, suspect));
            self.changed.notify_one();
        }
    }

    /// A change that was handed on here has failed.
    pub(super) fn notice(&self, disk: &Disk, change: &Change, result: &Result<Outcome>) {
        if change.access.relay.is_some()
            && let Err(error) = result
            && error.kind == ErrorKind::Corrupt
        {
            self.suspect(disk.served.id, change.access.object, Suspect::Header);
        }
    }

    /// A scrub is answered when what it has found has been seen to.
    pub(crate) fn scrubbed(&self, scrubbed: Scrubbed) {
        self.state.lock().queue.push_back(Task::Scrubbed(Box::new(scrubbed)));
        self.changed.notify_one();
    }

    /// Ends the thread once the queue is empty.
    pub(crate) fn stop(&self) {
        self.state.lock().stopped = true;
        self.changed.notify_all();
    }

    /// The life of the thread.
    pub(crate) fn work_off(&self, shared: &Shared) {
        while let Some(task) = self.next() {
            match task {
                Task::Suspect(target, object, suspect) => {
                    if let Some(disk) = shared.disk(target) {
                        // It is logged and counted; who reads it next asks again.
                        let _ = self.mend(shared, disk, object, &suspect);
                    }
                }
                Task::Scrubbed(scrubbed) => {
                    let Scrubbed { target, mut page, op, reply_to } = *scrubbed;
                    if let Some(disk) = shared.disk(target) {
                        self.findings(shared, disk, &mut page);
                    }
                    let (result, data) = (Ok(Outcome::Scrubbed(page)), Data::default());
                    reply_to.post(Event::Done { op, result, data });
                }
            }
        }
    }

    fn next(&self) -> Option<Task> {
        let mut state = self.state.lock();
        loop {
            if let Some(task) = state.queue.pop_front() {
                return Some(task);
            }
            if state.stopped {
                return None;
            }
            state = self.changed.wait(state);
        }
    }

    fn findings(&self, shared: &Shared, disk: &Disk, page: &mut ScrubPage) {
        let begun: Instant = clock::now();
        for finding in &mut page.findings {
            let Some((object, suspect)) = suspect_of(finding) else { continue };
            if clock::elapsed(begun) > SCRUB_PATIENCE {
                finding.mended = Mended::Failed;
                finding.what += "; not repaired yet";
                continue;
            }
            finding.mended = match self.mend(shared, disk, object, &suspect) {
                Ok(Mend::Alone) => Mended::No,
                // It was made good since.
                Ok(Mend::Sound | Mend::Blocks(_)) => Mended::Done,
                Ok(Mend::Anew) => Mended::UnderWay,
                Err(why) => {
                    finding.what += "; ";
                    let mut room = MAX_REASON;
                    finding.what.extend(why.chars().take_while(|c| {
                        room = room.saturating_sub(c.len_utf8());
                        room > 0
                    }));
                    Mended::Failed
                }
            };
        }
    }

    fn mend(
        &self,
        shared: &Shared,
        disk: &Disk,
        object: ObjectId,
        suspect: &Suspect,
    ) -> Result<Mend, String> {
        let mended = Mender { shared, disk, object }.mend(suspect);
        self.count(shared, disk, object, suspect, &mended);
        mended.map_err(|error| error.message)
    }

    /// Counts and logs what came of a repair.
    pub(super) fn count(
        &self,
        shared: &Shared,
        disk: &Disk,
        object: ObjectId,
        suspect: &Suspect,
        mended: &Result<Mend>,
    ) {
        let (name, file) = (disk.store.name(), object.file.0);
        let place = match suspect {
            Suspect::Header => "its header".to_owned(),
            Suspect::Bytes(range) => format!("within its bytes {}-{}", range.start, range.end - 1),
        };
        let what = format!("{name}: file {file}: object {object}, {place}");
        let counters = &shared.counters;
        let blocks = match mended {
            Ok(Mend::Alone | Mend::Sound) => return,
            Ok(Mend::Blocks(count)) => *count,
            Err(error) if error.kind != ErrorKind::Corrupt => {
                tracing::debug!("{what}: it is not repaired now: {error}");
                return;
            }
            // At least.
            Ok(Mend::Anew) | Err(_) => 1,
        };
        add(&counters.rot_found, blocks);
        match mended {
            Ok(Mend::Blocks(count)) => {
                tracing::warn!("{what}: {count} blocks had rotted, and were repaired");
                add(&counters.rot_repaired, blocks);
            }
            Ok(_) => {
                tracing::warn!("{what}: the object is damaged, and is made anew");
                add(&counters.rot_repaired, blocks);
            }
            Err(error) => {
                tracing::error!("{what}: damaged, and not repaired: {error}");
                add(&counters.rot_unrepairable, blocks);
            }
        }
    }
}
