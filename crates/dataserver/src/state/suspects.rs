//! Damage that reads and scrubs have found in objects that have copies or a set. It waits here for
//! the thread that repairs it. Repairs that are impossible now, because another copy is away or has
//! rotted too, are tried again later.

use crate::machine::{Change, OpId, Outcome, Work};
use crate::queue::tasks::{Event, Job};
use std::collections::VecDeque;
use std::ops::Range;
use std::time::{Duration, Instant};
use weir_host::clock;
use weir_host::sync::{Condvar, Mutex};
use weir_net::LoopHandle;
use weir_types::limits::{BLOCK_BYTES, MAX_PAYLOAD_BYTES};
use weir_types::{Error, ErrorKind, ObjectId, Result, TargetId};
use weir_wire::data::{Damage, ScrubFinding, ScrubPage};

/// The most waiting suspects. Further ones will be found again.
const MAX_SUSPECTS: usize = 1024;
/// Pause after the first failure. It doubles with each.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// The longest such pause.
const MAX_PAUSE: Duration = Duration::from_secs(64);

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

/// A task of the thread that repairs.
pub(crate) enum Task {
    Suspect(Case),
    Scrubbed(Box<Scrubbed>),
}

/// A suspect to be looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Case {
    pub(crate) target: TargetId,
    pub(crate) object: ObjectId,
    pub(crate) suspect: Suspect,
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

/// The part of an object that a finding of a scrub is about.
pub(crate) fn suspect_of(finding: &ScrubFinding) -> Option<(ObjectId, Suspect)> {
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
    pub(crate) fn notice(&self, own: TargetId, change: &Change, result: &Result<Outcome>) {
        if change.access.relay.is_some()
            && let Err(error) = result
            && error.kind == ErrorKind::Corrupt
        {
            self.suspect(own, change.access.object, Suspect::Header);
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

    /// Postpones a case that could not be settled now.
    pub(crate) fn put_off(&self, case: Case, paused: Duration) {
        self.state.lock().put_off(case, paused);
    }

    /// Waits for a task. Returns it, and how long it was postponed; `None` at the end.
    pub(crate) fn next(&self) -> Option<(Task, Duration)> {
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
}
