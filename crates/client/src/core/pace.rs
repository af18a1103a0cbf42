//! How fast targets serve reads, and how far other readers there have come. Servers report both in
//! each reply, and between replies when they are asked. [`super::choices`] uses the reports.
//!
//! Invariants: the count of this client's requests at a target is the number that were sent and
//! have not ended; nothing here grows with the number of reads.

#[cfg(test)]
mod tests;

use super::job::JobReader;
use super::links::Links;
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_policy::{CopyView, Micros, Progress, SOON_US};
use weir_types::{JobId, Rank, TargetId};
use weir_wire::frame::REQUEST_COST_BYTES;
use weir_wire::meta::TargetLoad;

const MIB: f64 = 1_048_576.0;
/// Time constant of the mean of other clients' outstanding requests at a target.
const MEAN_US: f64 = 300_000.0;
/// Older reports of other readers' progress are ignored.
const STALE_US: Micros = 1_000_000;
/// How long a server's own report counts more than one from the metadata server.
const OUTDATED_US: Micros = 2_000_000;
/// Older reports, of any source, count as unknown. Servers use their own measurements for the same
/// time.
const FORGOTTEN_US: Micros = 10_000_000;
/// A target counts as idle for this long after it has reported that.
const IDLE_US: Micros = 250_000;
/// The same for a report from the metadata server, before anything was read: programs open files
/// and then wait for each other.
const TOLD_IDLE_US: Micros = 2_000_000;
/// Interval of questions to a target for the processes of a job.
const TICK_OF_JOBS_US: Micros = 20_000;
/// Interval of questions to a target for other programs, which use the mean.
const TICK_US: Micros = 100_000;
/// A target is asked only while the file was read within this time.
const FOLLOWED_US: Micros = 500_000;
/// Shortest pause between two rounds of questions.
const MIN_PAUSE_US: Micros = 5_000;
/// A target that did not reply to a question is not asked again for this long.
const UNANSWERED_US: Micros = 1_000_000;
/// A target that did not reply to a read is not chosen for this long. The time doubles with each
/// failure.
const QUIET_US: Micros = 2_000_000;
/// The longest such time.
const MAX_QUIET_US: Micros = 30_000_000;
/// A wait for a reply that is shorter than this says nothing of the target.
const WAITED_US: Micros = 20_000;
/// The most doublings of the interval of questions.
const MAX_DOUBLINGS: u32 = 5;
/// The most questions to one target in parallel: each needs a connection.
const MAX_ASKED: usize = 4;
/// The most targets that are asked at once when a file is opened. A file on more targets has many
/// servers.
const MAX_OPENED: usize = 64;
/// The most readers of this client whose reports from a target are kept.
const MAX_TOLD: usize = 1024;

/// A process of a job; `None` outside of jobs.
pub type Who = Option<(JobId, Rank)>;

/// The key by which servers know a reader.
pub fn who(reader: Option<&JobReader>) -> Who {
    reader.map(|reader| (reader.member().job, reader.member().rank))
}

/// A server's report of a target in a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Time per MiB while the target is busy, microseconds; 0 if it had no reads lately.
    pub us_per_mib: u32,
    /// Its outstanding requests, of all clients.
    pub in_flight: u16,
    /// The reader that it was reported to.
    pub who: Who,
    /// Progress of the slowest other process of the job with first copies on the target, in units
    /// of 1/2^32.
    pub behind: Option<u32>,
}

/// A question to a target for its load.
#[derive(Clone, Debug)]
pub struct Question {
    /// The target.
    pub target: TargetId,
    /// Whether it is asked because a file with data there was opened, which no caller reads yet.
    pub opened: bool,
    /// Whether it has the first copy of the bytes being read.
    pub first: bool,
    /// The reader on whose behalf it is asked.
    pub reader: Option<Arc<JobReader>>,
}

/// Reports of a target to one reader of this client.
#[derive(Clone, Debug)]
struct Told {
    reader: Option<Arc<JobReader>>,
    first: bool,
    /// Last time at which a first copy was read there, or was to be.
    first_used: Option<Micros>,
    /// Progress of the slowest other reader, and when it was reported.
    others: Option<(Progress, Micros)>,
    /// Time of the last report, or of the beginning.
    heard: Micros,
    /// Whether the target has replied.
    has_answered: bool,
    /// Last time at which the target was told this reader's progress, or was asked.
    said: Micros,
    /// Last time at which the file was read.
    used: Micros,
    /// Number of unanswered questions.
    unanswered: u32,
}

impl Told {
    /// Whether the reader has read there a moment ago.
    fn is_followed(&self, now: Micros) -> bool {
        now.saturating_sub(self.used) < FOLLOWED_US
    }

    /// Whether the reader has read a first copy there a moment ago.
    fn is_mine(&self, now: Micros) -> bool {
        self.first_used.is_some_and(|at| now.saturating_sub(at) < FOLLOWED_US)
    }

    /// Time of the next question to the target.
    fn due(&self) -> Micros {
        match &self.reader {
            // Others are to know how far this one is.
            Some(_) if self.first => self.said + TICK_OF_JOBS_US,
            Some(_) => self.heard.max(self.said) + TICK_OF_JOBS_US,
            None => self.heard.max(self.said) + TICK_US,
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Pace {
    us_per_mib: f64,
    /// Mean number of other clients' requests.
    others: f64,
    /// Last reported number of other clients' requests.
    others_now: f64,
    /// Number of this client's requests that have not ended.
    own: u32,
    /// Since when a caller waits for the next reply. Unread replies in this client say nothing.
    waits: Option<Micros>,
    heard: Option<Micros>,
    /// Whether the target's own server has reported.
    has_said: bool,
    /// Until when an idle target counts as idle.
    idle_until: Micros,
    /// Whether a file with data there was opened while the last report was old.
    is_opened: bool,
    told: BTreeMap<Who, Told>,
    /// Set while the target does not reply. It is not chosen, except by one request after each
    /// pause.
    silent: Option<Silent>,
}

impl Pace {
    fn is_forgotten(&self, now: Micros) -> bool {
        self.heard.is_none_or(|at| now.saturating_sub(at) > FORGOTTEN_US)
    }

    /// Lower bound of the time per request, from the wait for the present reply. The server has
    /// other clients' requests to serve as well.
    fn waited_us(&self, now: Micros) -> f64 {
        let waited = self.waits.map_or(0, |since| now.saturating_sub(since));
        if self.own == 0 || waited < WAITED_US {
            return 0.0;
        }
        let own = f64::from(self.own);
        waited as f64 * own / (own + self.others)
    }
}

#[derive(Clone, Copy, Debug)]
struct Silent {
    pause_us: Micros,
    until: Micros,
    asked: Option<Micros>,
}

/// All targets that mirrored files were read from.
#[derive(Debug, Default)]
pub struct Paces {
    targets: BTreeMap<TargetId, Pace>,
    links: Links,
}

impl Paces {
    /// Records that bytes arrived from a target in a period, after it had them ready.
    pub fn came(&mut self, target: TargetId, bytes: u64, of: (Micros, Micros)) {
        self.links.came(target, bytes, of);
    }

    /// Records that a request was sent.
    pub fn sent(&mut self, target: TargetId) {
        self.targets.entry(target).or_default().own += 1;
    }

    /// Records that a caller waits for its reply from now on.
    pub fn waits(&mut self, target: TargetId, now: Micros) {
        self.targets.entry(target).or_default().waits.get_or_insert(now);
    }

    /// Records that a request has ended, with success or not.
    pub fn ended(&mut self, target: TargetId) {
        let pace = self.targets.entry(target).or_default();
        pace.own = pace.own.saturating_sub(1);
        pace.waits = None;
    }

    /// Records the report in a reply to a read, which still counts as outstanding.
    pub fn heard(&mut self, target: TargetId, report: Report, now: Micros) {
        let own = self.targets.get(&target).map_or(0, |pace| pace.own);
        self.hear(target, report, own.saturating_sub(1), now);
    }

    /// Records the report in a reply to a question.
    pub fn heard_answer(&mut self, target: TargetId, report: Report, now: Micros) {
        let own = self.targets.get(&target).map_or(0, |pace| pace.own);
        self.hear(target, report, own, now);
    }

    /// Records the metadata server's report of a target when a file is opened. It is ignored if a
    /// newer one is known. Returns whether to ask the target, because the metadata server's report
    /// is recent.
    pub fn told(&mut self, load: &TargetLoad, now: Micros) -> bool {
        let pace = self.targets.entry(load.target).or_default();
        if pace.heard.is_some_and(|at| now.saturating_sub(at) <= OUTDATED_US) {
            return false;
        }
        (pace.has_said, pace.is_opened) = (false, true);
        self.opened(load, now);
        true
    }

    /// Records a target's report when a file was opened. Nothing is read yet, so it is only a first
    /// indication.
    pub fn opened(&mut self, load: &TargetLoad, now: Micros) {
        let pace = self.targets.entry(load.target).or_default();
        if pace.has_said {
            return;
        }
        pace.us_per_mib = f64::from(load.us_per_mib);
        pace.others = (f64::from(load.in_flight) - f64::from(pace.own)).max(0.0);
        pace.others_now = pace.others;
        (pace.heard, pace.idle_until) = (Some(now), now + TOLD_IDLE_US);
    }

    fn hear(&mut self, target: TargetId, report: Report, own: u32, now: Micros) {
        let pace = self.targets.entry(target).or_default();
        let others = (f64::from(report.in_flight) - f64::from(own)).max(0.0);
        let since = pace.heard.map_or(f64::INFINITY, |at| now.saturating_sub(at) as f64);
        // What the metadata server has said of others was a moment of some time ago.
        let share = if pace.has_said { 1.0 - (-since / MEAN_US).exp() } else { 1.0 };
        pace.others += (others - pace.others) * share;
        (pace.others_now, pace.has_said) = (others, true);
        pace.us_per_mib = f64::from(report.us_per_mib);
        (pace.heard, pace.idle_until) = (Some(now), now + IDLE_US);
        if let Some(told) = pace.told.get_mut(&report.who) {
            (told.heard, told.has_answered, told.unanswered) = (now, true, 0);
            let behind = |done: u32| Progress { done_bytes: done.into(), work_bytes: 1 << 32 };
            told.others = report.behind.map(|done| (behind(done), now));
        }
    }

    /// Records that a target has replied to a read.
    pub fn answered(&mut self, target: TargetId) {
        if let Some(pace) = self.targets.get_mut(&target) {
            pace.silent = None;
        }
    }

    /// Records that a target did not reply to a read.
    pub fn silent(&mut self, target: TargetId, now: Micros) {
        let pace = self.targets.entry(target).or_default();
        let pause_us = match pace.silent {
            Some(silent) if now < silent.until => return,
            Some(silent) => (2 * silent.pause_us).min(MAX_QUIET_US),
            None => QUIET_US,
        };
        pace.silent = Some(Silent { pause_us, until: now + pause_us, asked: None });
    }

    /// Whether a target's own server has reported, and not the metadata server alone.
    pub(super) fn has_said(&self, target: TargetId, now: Micros) -> bool {
        self.targets.get(&target).is_some_and(|pace| pace.has_said && !pace.is_forgotten(now))
    }

    /// Time that a MiB takes there, if its server has said so of late, and has read anything.
    pub fn us_per_mib(&self, target: TargetId, now: Micros) -> Option<f64> {
        let pace =
            self.targets.get(&target).filter(|pace| pace.has_said && !pace.is_forgotten(now));
        pace.map(|pace| pace.us_per_mib).filter(|us_per_mib| *us_per_mib > 0.0)
    }

    /// The middle one of what all targets that have said so of late take for a MiB; of two the
    /// greater one. One that has read from memory alone does not make others seem slow.
    pub fn middle_us_per_mib(&self, now: Micros) -> Option<f64> {
        let targets = self.targets.keys();
        let mut all: Vec<f64> = targets.filter_map(|of| self.us_per_mib(*of, now)).collect();
        all.sort_unstable_by(f64::total_cmp);
        all.get(all.len() / 2).copied()
    }

    /// Whether a target did not reply to the last read.
    pub fn is_silent(&self, target: TargetId) -> bool {
        self.targets.get(&target).is_some_and(|pace| pace.silent.is_some())
    }

    /// Whether a target did not reply to a read, and is not to be tried again now. If it is to be
    /// tried, it counts as asked.
    pub fn is_left_alone(&mut self, target: TargetId, now: Micros) -> bool {
        self.is_silent(target) && !self.tries(target, now)
    }

    /// Whether to send one request to a silent target, to find out whether it replies again. If so,
    /// it counts as asked.
    pub(super) fn tries(&mut self, target: TargetId, now: Micros) -> bool {
        let pace = self.targets.get_mut(&target);
        let Some(silent) = pace.and_then(|pace| pace.silent.as_mut()) else { return false };
        let was_asked = silent.asked.is_some_and(|at| now.saturating_sub(at) <= silent.pause_us);
        if now < silent.until || was_asked {
            return false;
        }
        silent.asked = Some(now);
        true
    }

    /// Removes targets that have left the cluster.
    pub fn retain(&mut self, is_there: impl Fn(TargetId) -> bool) {
        self.targets.retain(|target, pace| pace.own > 0 || is_there(*target));
        self.links.retain(&is_there);
    }

    /// Follows a target that has a copy, first or other, of bytes being read: for a while it is
    /// asked now and then. `chosen` says that the request goes there, and reports its reader's
    /// progress. Returns whether the target was not followed before.
    pub(super) fn follow(
        &mut self,
        target: TargetId,
        (first, chosen): (bool, bool),
        reader: Option<&Arc<JobReader>>,
        now: Micros,
    ) -> bool {
        let pace = self.targets.entry(target).or_default();
        let who = who(reader.map(Arc::as_ref));
        if pace.told.len() >= MAX_TOLD && !pace.told.contains_key(&who) {
            pace.told.retain(|_, told| told.is_followed(now));
            if pace.told.len() >= MAX_TOLD {
                return false;
            }
        }
        let mut is_new = false;
        let told = pace.told.entry(who).or_insert_with(|| {
            is_new = true;
            let said = now.saturating_sub(TICK_US);
            let (reader, others) = (reader.cloned(), None);
            let has_answered = false;
            Told {
                reader,
                first,
                first_used: None,
                others,
                heard: said,
                has_answered,
                said,
                used: now,
                unanswered: 0,
            }
        });
        is_new |= !told.is_followed(now);
        // Of several files of a process the one counts that has its first copy there.
        if first || !told.first || is_new {
            (told.reader, told.first) = (reader.cloned(), first);
        }
        told.used = now;
        if first {
            told.first_used = Some(now);
        }
        if chosen {
            told.said = told.said.max(now);
        }
        is_new
    }

    /// The questions that are due now, which then count as asked, and the time of the next one.
    pub fn questions(&mut self, now: Micros) -> (Vec<Question>, Option<Micros>) {
        let (mut questions, mut next) = (Vec::new(), None::<Micros>);
        for (target, pace) in &mut self.targets {
            let is_opened = std::mem::take(&mut pace.is_opened) && pace.silent.is_none();
            if is_opened && questions.len() < MAX_OPENED {
                let (target, reader) = (*target, None);
                questions.push(Question { target, opened: true, first: false, reader });
            }
            let is_followed = |told: &&mut Told| told.is_followed(now);
            if pace.silent.is_some() {
                // Only a read finds out whether it answers again; then it is asked.
                if pace.told.values_mut().any(|told| is_followed(&told)) {
                    let due = now + TICK_US;
                    next = Some(next.map_or(due, |next| next.min(due)));
                }
                continue;
            }
            let mut followed: Vec<&mut Told> = pace.told.values_mut().filter(is_followed).collect();
            // Those that have waited for longest first.
            followed.sort_by_key(|told| told.due());
            for (n, told) in followed.into_iter().enumerate() {
                if told.due() <= now && n < MAX_ASKED {
                    told.said = now;
                    let (target, first, reader) = (*target, told.first, told.reader.clone());
                    questions.push(Question { target, opened: false, first, reader });
                }
                let due = told.due().max(now + MIN_PAUSE_US);
                next = Some(next.map_or(due, |next| next.min(due)));
            }
        }
        (questions, next)
    }

    /// Records that a question was not answered.
    pub fn unanswered(&mut self, target: TargetId, who: Who, now: Micros) {
        let pace = self.targets.get_mut(&target);
        if let Some(told) = pace.and_then(|pace| pace.told.get_mut(&who)) {
            told.said = now + (UNANSWERED_US << told.unanswered.min(MAX_DOUBLINGS));
            told.unanswered += 1;
        }
    }

    /// Whether a target is known to have this many bytes at once.
    pub fn has_at_once(&self, target: TargetId, len_bytes: u64, now: Micros) -> bool {
        let us = self.view(target, true, (len_bytes, None), now).service_us;
        0.0 < us && us < SOON_US
    }

    /// The state of a target for a read of this many bytes.
    pub fn view(
        &self,
        target: TargetId,
        is_usable: bool,
        (len_bytes, who): (u64, Who),
        now: Micros,
    ) -> CopyView {
        let unknown = Pace::default();
        let pace = self.targets.get(&target).unwrap_or(&unknown);
        let is_forgotten = pace.is_forgotten(now);
        let (us_per_mib, others, others_now) = match is_forgotten {
            true => (0.0, 0.0, 0.0),
            false => (pace.us_per_mib, pace.others, pace.others_now),
        };
        let told = who.and_then(|_| pace.told.get(&who));
        let heard = told.and_then(|told| told.others);
        let peer = heard.filter(|(_, at)| now.saturating_sub(*at) <= STALE_US);
        let peer = peer.map(|(progress, _)| progress);
        // While one is on its way the disk reads the next.
        let us_per_mib = us_per_mib.max(self.links.us_per_mib(target, now));
        let cost_mib = (len_bytes as f64 + REQUEST_COST_BYTES as f64) / MIB;
        let known_us = us_per_mib * cost_mib;
        // What a disk takes for some pieces at once says little of one: a MiB of them is waited for.
        let share = if who.is_some() { cost_mib.min(1.0) } else { 1.0 };
        let service_us = known_us.max(pace.waited_us(now) * share);
        let queued = others.round() as u32;
        // A disk that others of a job leave alone for a moment is theirs all the same.
        let others = if who.is_some() { others } else { others_now };
        let is_idle = match is_forgotten {
            false => now <= pace.idle_until && others.round() == 0.0,
            // Nobody has said that it has anything to do. (The disks of a job are somebody's.)
            true => who.is_none(),
        };
        CopyView {
            is_usable,
            is_full: false,
            has_enough: false,
            in_flight: pace.own,
            queued,
            to_come: 0,
            is_idle,
            service_us,
            rest_us: 0.0,
            turn_us: 0.0,
            peer,
            may_be_owned: who.is_some() && !told.is_some_and(|told| told.has_answered),
            is_mine: told.is_some_and(|told| told.is_mine(now)),
            keeps_up: false,
        }
    }
}
