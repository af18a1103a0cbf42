//! Repairs damage that reads and scrubs have found in objects that have copies or a set. A separate thread
//! does it, since disk threads wait for no other server. Repairs that are impossible now, because
//! another copy is away or has rotted too, are tried again later.

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

/// The most waiting suspects. Further ones will be found again.
const MAX_SUSPECTS: usize = 1024;
/// Pause after the first failure. It doubles with each.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// The longest such pause.
const MAX_PAUSE: Duration = Duration::from_secs(64);
/// Longest wait of a scrub's reply for repairs. Unfinished repairs are done after it.
const SCRUB_PATIENCE: Duration = Duration::from_secs(10);

/// The most bytes of a failure's reason in the reply to a scrub.
pub(crate) const MAX_REASON: usize = 160;

/// A part that may be damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Suspect {
    /// The header: the object cannot be opened, or will not open the next time.
    Header,
    /// Blocks.
    Bytes(Range<u64>),
}

/// Findings of a scrub, and the request that waits for them.
pub(crate) struct Scrubbed {
    pub(crate) target: TargetId,
    pub(crate) page: ScrubPage,
    pub(crate) op: OpId,
    pub(crate) reply_to: LoopHandle<Event>,
}

enum Task {
    Suspect(Case),
    Scrubbed(Box<Scrubbed>),
}

/// A suspect to be looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Case {
    target: TargetId,
    object: ObjectId,
    suspect: Suspect,
}

/// A case that could not be settled.
struct Later {
    case: Case,
    at: Instant,
    pause: Duration,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Task>,
    /// Together with the queue at most [`MAX_SUSPECTS`].
    later: Vec<Later>,
    stopped: bool,
}

/// The suspects of a server; see the top of the file.
#[derive(Default)]
pub(crate) struct Repairs {
    state: Mutex<State>,
    changed: Condvar,
}

/// The part that an operation looks at. Objects without copies may be of a set.
pub(crate) fn looked_at(job: &Job) -> Option<(ObjectId, Suspect)> {
    match job {
        Job::Plain(Work::Read(read)) => {
            let start = read.pieces.iter().map(|piece| piece.0).min()?;
            let end = read.pieces.iter().map(|piece| piece.0 + piece.1).max()?;
            Some((read.object, Suspect::Bytes(start..end)))
        }
        Job::Plain(Work::Stat { object, .. } | Work::Seek { object, .. }) => {
            Some((*object, Suspect::Header))
        }
        Job::Plain(_) => None,
        // Blocks that have rotted are sent anew by the one that orders.
        Job::Follow(change) => Some((change.access.object, Suspect::Header)),
    }
}

/// Whether any finding of a scrub can be repaired.
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

impl State {
    fn has_room(&self) -> bool {
        self.queue.len() + self.later.len() < MAX_SUSPECTS
    }

    /// Postpones a case that could not be settled now.
    fn put_off(&mut self, case: Case, paused: Duration) {
        if self.has_room() && !self.later.iter().any(|later| later.case == case) {
            let pause = (paused * 2).clamp(FIRST_PAUSE, MAX_PAUSE);
            self.later.push(Later { case, at: clock::now() + pause, pause });
        }
    }
}

impl Repairs {
    /// Adds the suspect of a failed read.
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

    /// Adds a part that may be damaged.
    pub(crate) fn suspect(&self, target: TargetId, object: ObjectId, suspect: Suspect) {
        let case = Case { target, object, suspect };
        let mut state = self.state.lock();
        let known = |task: &Task| matches!(task, Task::Suspect(known) if *known == case);
        // What has failed of late waits for its time, however often it is read.
        let waits = state.later.iter().any(|later| later.case == case);
        if !waits && state.has_room() && !state.queue.iter().any(known) {
            state.queue.push_back(Task::Suspect(case));
            self.changed.notify_one();
        }
    }

    /// Adds the suspect of a failed change that another copy has ordered.
    pub(super) fn notice(&self, disk: &Disk, change: &Change, result: &Result<Outcome>) {
        if change.access.relay.is_some()
            && let Err(error) = result
            && error.kind == ErrorKind::Corrupt
        {
            self.suspect(disk.served.id, change.access.object, Suspect::Header);
        }
    }

    /// Adds the findings of a scrub. The scrub is answered after they were treated.
    pub(crate) fn scrubbed(&self, scrubbed: Scrubbed) {
        self.state.lock().queue.push_back(Task::Scrubbed(Box::new(scrubbed)));
        self.changed.notify_one();
    }

    /// Ends the thread once the queue is empty.
    pub(crate) fn stop(&self) {
        self.state.lock().stopped = true;
        self.changed.notify_all();
    }

    /// Repairs suspects until the end. The body of the thread.
    pub(crate) fn work_off(&self, shared: &Shared) {
        while let Some((task, pause)) = self.next() {
            match task {
                Task::Suspect(case) => {
                    let Some(disk) = shared.disk(case.target) else { continue };
                    let mended = Mender { shared, disk, object: case.object }.mend(&case.suspect);
                    // What fails again has been counted.
                    if pause == Duration::ZERO || mended.is_ok() {
                        self.count(shared, disk, case.object, &case.suspect, &mended);
                    }
                    if mended.is_err() {
                        self.state.lock().put_off(case, pause);
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

    /// The next task, and how long it was postponed.
    fn next(&self) -> Option<(Task, Duration)> {
        let mut state = self.state.lock();
        loop {
            if let Some(task) = state.queue.pop_front() {
                return Some((task, Duration::ZERO));
            }
            if state.stopped {
                return None;
            }
            let now = clock::now();
            if let Some(due) = state.later.iter().position(|later| later.at <= now) {
                let Later { case, pause, .. } = state.later.swap_remove(due);
                return Some((Task::Suspect(case), pause));
            }
            state = match state.later.iter().map(|later| later.at).min() {
                Some(at) => self.changed.wait_timeout(state, at.saturating_duration_since(now)),
                None => self.changed.wait(state),
            };
        }
    }

    fn findings(&self, shared: &Shared, disk: &Disk, page: &mut ScrubPage) {
        let begun: Instant = clock::now();
        for finding in &mut page.findings {
            let Some((object, suspect)) = suspect_of(finding) else { continue };
            if clock::elapsed(begun) > SCRUB_PATIENCE {
                finding.mended = Mended::Failed;
                finding.what += "; not repaired yet";
                self.suspect(disk.served.id, object, suspect);
                continue;
            }
            let mended = Mender { shared, disk, object }.mend(&suspect);
            self.count(shared, disk, object, &suspect, &mended);
            finding.mended = match mended {
                Ok(Mend::Alone) => Mended::No,
                // It was made good since.
                Ok(Mend::Sound | Mend::Header | Mend::Blocks(_)) => Mended::Done,
                Ok(Mend::Anew) => Mended::UnderWay,
                Err(why) => {
                    finding.what += "; ";
                    let mut room = MAX_REASON;
                    finding.what.extend(why.message.chars().take_while(|c| {
                        room = room.saturating_sub(c.len_utf8());
                        room > 0
                    }));
                    let case = Case { target: disk.served.id, object, suspect };
                    self.state.lock().put_off(case, Duration::ZERO);
                    Mended::Failed
                }
            };
        }
    }

    /// Counts and logs the result of a repair.
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
                tracing::debug!("{what}: not repaired now: {error}");
                return;
            }
            // At least.
            Ok(Mend::Header | Mend::Anew) | Err(_) => 1,
        };
        add(&counters.rot_found, blocks);
        match mended {
            Ok(Mend::Blocks(count)) => {
                tracing::warn!("{what}: {count} blocks had rotted, and were repaired");
                add(&counters.rot_repaired, blocks);
            }
            Ok(Mend::Header) => {
                tracing::warn!("{what}: it had rotted, and was written anew");
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
