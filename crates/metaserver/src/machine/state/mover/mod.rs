//! What the mover knows: which files it has to look at, whose layouts are being changed, and which
//! copies are being filled. All its results are in the layouts; this is rebuilt by a scan of all
//! files after a start.

pub mod arrivals;
mod candidates;
pub mod dropped;
pub mod order;
pub mod walk;

use crate::machine::answer::ParkedTicket;
use crate::machine::moment::Moment;
use crate::mover::away::Away;
use crate::mover::coding::Coding;
use crate::mover::progress::Progress;
use crate::mover::sites::Sites;
use crate::ops::move_copies::{Filled, Relieved};
use arrivals::Arrivals;
use dropped::Dropped;
use order::Rebalance;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use walk::{Survey, Walk};
use weir_metastore::Sequence;
use weir_types::{FileId, Generation, ObjectId, ServerId, SessionId, TargetId};

/// While this many files wait, no others are searched for.
pub const MAX_QUEUE: usize = 256;
/// The most waiting files. Beyond it all files are scanned again.
const MAX_QUEUED: usize = 16_384;
/// The most copies that cannot be filled, for each one that a server fills at a time.
const MOST_IDLE: usize = 64;
/// The most copies that are being moved at a time.
const MAX_RELIEVED: usize = 4096;
/// The most files whose layouts are being changed at a time.
const MAX_VISITS: usize = 512;
/// A file that could not be changed is tried again after this time, by a scan of all files. Also
/// the wait for a copy to have everything while its file is being written, before leases are
/// recalled: without writers it soon has.
pub const RETRY_MS: u64 = 30_000;
/// Pseudo session in whose name leases are recalled. It holds none.
pub const MOVER: SessionId = SessionId(u64::MAX);

/// Settings of the mover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MoverSettings {
    /// Copies on targets that were away for this long are made again elsewhere; 0 for never.
    pub rebuild_after_ms: u64,
    /// The most copies that one data server fills at a time.
    pub rebuild_concurrency: u32,
    /// Share of the time for making and updating copies while clients have requests, percent.
    pub busy_percent: u8,
    /// Files that wish parities get them early if one of their copies is on a target with less free
    /// space than this, percent; 0 for never.
    pub encode_below_percent: u8,
}

impl Default for MoverSettings {
    fn default() -> Self {
        Self {
            rebuild_after_ms: 600_000,
            rebuild_concurrency: 256,
            busy_percent: 25,
            encode_below_percent: 10,
        }
    }
}

/// A copy that is being filled, or that has to have everything.
#[derive(Debug)]
pub struct Job {
    pub copy: Filled,
    pub generation: Generation,
    /// The copy is ordered only after this commit is durable.
    pub since: Sequence,
    /// Whether its server has reported that it is filled, or leases should be recalled.
    pub ready: bool,
    /// Since when it has not reported that.
    pub waits_since_ms: u64,
    /// Number of such reports while no session writes to the file; `None` while one may.
    pub confirmed: Option<u8>,
}

/// Stage of a file that is being changed, while requests about it wait.
#[derive(Clone, Copy, Debug)]
pub enum Visit {
    /// Leases are being recalled. With the first byte to change.
    Asking(FileId, u64),
    /// No session has leases: servers confirm again which copies are whole.
    Confirming(FileId, u64, u64),
    /// The layout has changed, but is not durable yet.
    Syncing(FileId, Sequence),
}

/// Pending and present work.
#[derive(Debug, Default)]
pub struct Mover {
    pub settings: MoverSettings,
    pub away: Away,
    pub sites: Sites,
    pub relieved: Relieved,
    pub dropped: Dropped,
    pub jobs: BTreeMap<ObjectId, Job>,
    /// Whether all files were scanned for copies that are being filled.
    pub jobs_known: bool,
    /// Number of copies that could not be filled at the last tick.
    pub idle_jobs: usize,
    pub queue: VecDeque<(FileId, u64)>,
    pub queued: BTreeSet<FileId>,
    /// Queued files that no scan has counted.
    pub uncounted: BTreeSet<FileId>,
    /// Files with filled copies, and the first byte of those.
    pub finish: BTreeMap<FileId, u64>,
    pub visits: BTreeMap<ParkedTicket, Visit>,
    /// The scan that counts the work.
    pub survey: Option<(Walk, Survey)>,
    /// The scan that finds the work.
    pub search: Option<Walk>,
    /// Whether to scan all files again afterwards.
    pub again: bool,
    /// Whether something could not be done for lack of targets.
    pub left: bool,
    /// Whether clients have reported what they hold, so that it can be recalled.
    pub begun: bool,
    pub retry_at_ms: Option<u64>,
    /// The last job that was checked.
    pub checked: Option<ObjectId>,
    pub rebalance: Option<Rebalance>,
    /// Files that may get parities, and when to look at them.
    pub candidates: BTreeMap<FileId, u64>,
    /// When to scan all files for more of them, and when that was last done.
    pub scan_at_ms: Option<u64>,
    pub scanned_at_ms: u64,
    /// Files with parities that somebody waits to write, and until when that counts.
    pub awaited: BTreeMap<FileId, u64>,
    /// Those of them whose copies cannot be made for lack of room, when last looked at.
    pub without_room: BTreeSet<FileId>,
    /// Targets that are short of room: files there get parities early.
    pub short: BTreeSet<TargetId>,
    pub counted: Survey,
    /// Segments that get parities: those of the last scan, and what the mover has changed since.
    pub coding: Coding,
    /// When that scan ended.
    pub coding_at_ms: Option<u64>,
    pub progress: Progress,
    /// Progress of each target.
    pub arrivals: Arrivals,
}

impl Mover {
    /// The initial state at a start.
    pub fn new(now: Moment) -> Self {
        Self { dropped: Dropped::new(now.monotonic_ms), ..Self::default() }
    }

    /// Records that a target has removed an object without a layout. Returns whether that was the
    /// last removal, see [`Dropped`]. A copy that was just being filled is treated like dropped
    /// copies.
    pub fn removed(&mut self, object: ObjectId, now: Moment) -> bool {
        if self.jobs.contains_key(&object) && !self.dropped.knows(object) {
            self.dropped.went(&[object], now.monotonic_ms);
        }
        self.dropped.removed(object, now.monotonic_ms)
    }

    /// See [`MoverSettings::busy_percent`].
    pub fn busy_percent(&self) -> u8 {
        self.settings.busy_percent
    }

    /// Whether there is work as far as is known, or the count is under way.
    pub fn may_have_work(&self) -> bool {
        self.counted.stuck > 0 || self.counted.copies > 0 || self.survey.is_some()
    }

    /// Whether one of the mover's own transactions can be run now.
    pub fn has_work(&self) -> bool {
        let searching = self.search.is_some() && self.queue.len() < MAX_QUEUE;
        let visiting =
            (!self.queue.is_empty() && self.has_room()) || self.can_finish() || self.is_evening();
        self.begun && (self.survey.is_some() || searching || visiting)
    }

    /// Whether a file with filled copies can be changed.
    pub fn can_finish(&self) -> bool {
        !self.finish.is_empty() && self.visits.len() < MAX_VISITS
    }

    /// Whether more copies may be begun.
    pub fn has_room(&self) -> bool {
        self.visits.len() < MAX_VISITS && self.room() > 0
    }

    /// Number of copies that may be begun. Those that cannot be filled do not count, as long as
    /// they are not too many.
    pub fn room(&self) -> usize {
        let concurrency = self.settings.rebuild_concurrency as usize;
        let online = self.sites.all().filter(|(_, site)| site.online);
        let servers: BTreeSet<ServerId> = online.map(|(_, site)| site.home.server).collect();
        let under_way = self.jobs.len().saturating_sub(self.idle_jobs);
        let most_idle = MOST_IDLE * concurrency.max(1);
        (servers.len() * concurrency)
            .saturating_sub(under_way)
            .min((servers.len() * concurrency + most_idle).saturating_sub(self.jobs.len()))
    }

    /// Whether a copy can be filled at present: it has a source, and space at its target.
    pub fn can_be_filled(&self, copy: &Filled) -> bool {
        self.has_source(copy) && (copy.is_whole || self.sites.can_be_filled(copy.to))
    }

    /// Whether there is a whole copy online, or enough to compute it.
    pub fn has_source(&self, copy: &Filled) -> bool {
        let is_online = |target| self.sites.is_online(target);
        self.source(copy).is_some()
            || copy.computed.as_ref().is_some_and(|of| of.is_possible(is_online))
    }

    /// Records that the copies of a new file are not where they should be, for lack of targets.
    pub fn makeshift(&mut self) {
        self.left = true;
    }

    /// Records that other copies of a file are wanted.
    pub fn wished(&mut self, file: FileId) {
        if self.uncounted.len() < MAX_QUEUED {
            self.uncounted.insert(file);
        }
        self.enqueue(file, 0);
    }

    /// Queues a file that may have to be changed.
    pub fn enqueue(&mut self, file: FileId, from: u64) {
        if self.queued.len() >= MAX_QUEUED {
            self.look_at_all();
        } else if self.queued.insert(file) {
            self.queue.push_back((file, from));
        }
    }

    /// Adds the copies of a file that have to be filled.
    pub fn adopt(
        &mut self,
        copies: Vec<Filled>,
        generation: Generation,
        since: Sequence,
        waits_since_ms: u64,
    ) {
        for copy in copies {
            let same = |job: &Job| (job.copy.to, job.copy.is_whole) == (copy.to, copy.is_whole);
            match self.jobs.get_mut(&copy.object).filter(|job| same(job)) {
                // Others of its column may be whole since.
                Some(job) => job.copy = copy,
                None => {
                    let (ready, confirmed) = (false, None);
                    let job = Job { copy, generation, since, ready, waits_since_ms, confirmed };
                    self.jobs.insert(job.copy.object, job);
                }
            }
        }
    }

    pub fn jobs_of(&self, file: FileId) -> impl Iterator<Item = (&ObjectId, &Job)> {
        self.jobs.range(of_file(file)).take_while(move |(object, _)| object.file == file)
    }

    /// Filled copies of a file.
    pub fn ready(&self, file: FileId) -> Vec<&Job> {
        self.jobs_of(file).map(|(_, job)| job).filter(|job| job.ready).collect()
    }

    /// Ends the job of a copy that is whole.
    pub fn end_job(&mut self, object: ObjectId) {
        let Some(job) = self.jobs.remove(&object) else { return };
        let bytes = job.copy.bytes;
        self.progress.copied(bytes);
        self.arrivals.copied(job.copy.to, bytes);
        self.counted.done(bytes);
        if let Some((_, survey)) = &mut self.survey {
            survey.done(bytes);
        }
    }

    /// Source of a copy: the first whole copy that is online.
    pub fn source(&self, copy: &Filled) -> Option<TargetId> {
        copy.sources.iter().copied().find(|target| self.sites.is_online(*target))
    }

    /// Whether a target that is not online may be the only source of a copy to be filled.
    pub fn is_only_source(&self, target: TargetId) -> bool {
        let needs = |job: &Job| {
            let Filled { sources, is_whole, .. } = &job.copy;
            !is_whole && sources.contains(&target) && self.source(&job.copy).is_none()
        };
        !self.jobs_known || self.jobs.values().any(needs)
    }

    /// Whether files are being changed, or wait for that.
    pub fn is_working(&self) -> bool {
        let under_way = !self.jobs.is_empty() || !self.visits.is_empty();
        under_way || !self.queue.is_empty() || !self.finish.is_empty()
    }

    pub fn is_idle(&self) -> bool {
        self.survey.is_none() && self.search.is_none() && !self.is_working()
    }

    /// Number of copies being made on each target, and their approximate bytes.
    pub fn filling(&self) -> BTreeMap<TargetId, (u64, u64)> {
        let mut all = BTreeMap::<TargetId, (u64, u64)>::new();
        for job in self.jobs.values().filter(|job| !job.copy.is_whole) {
            let (copies, bytes) = all.entry(job.copy.to).or_default();
            (*copies, *bytes) = (*copies + 1, bytes.saturating_add(job.copy.bytes));
        }
        all
    }

    /// Names and values for status messages.
    pub fn list(&self) -> Vec<(String, u64)> {
        let Survey { copies, bytes, stuck, files, .. } = self.counted;
        let speed = self.progress.bytes_per_s();
        let away = self.jobs.values().filter(|job| !self.has_source(&job.copy)).count();
        let mut list = self.known_coding().list();
        list.extend([
            ("mover.bytes_done".into(), self.progress.bytes_done),
            ("mover.bytes_per_s".into(), speed),
            ("mover.bytes_to_do".into(), bytes),
            ("mover.copies_done".into(), self.progress.copies_done),
            ("mover.copies_to_do".into(), copies),
            ("mover.expected_s".into(), self.progress.expected_s(bytes)),
            ("mover.files_looked_at".into(), files),
            ("mover.filling".into(), self.jobs.len() as u64),
            ("mover.rebalancing".into(), self.evening().0),
            ("mover.relieved".into(), self.relieved.len() as u64),
            ("mover.uneven_percent".into(), self.evening().1),
            ("mover.looking".into(), u64::from(self.survey.is_some() || self.search.is_some())),
            ("mover.segments_stuck".into(), stuck),
            ("mover.without_source".into(), away as u64),
        ]);
        list
    }

    /// Scans all files, because any may need work.
    pub fn look_at_all(&mut self) {
        if self.survey.is_some() || self.search.is_some() {
            self.again = true;
            return;
        }
        self.again = false;
        self.survey = Some((Walk::new(), Survey::default()));
        self.search = Some(Walk::new());
    }

    /// Ends all scans, because no file needs work.
    pub fn look_at_nothing(&mut self) {
        self.jobs_known = true;
        self.survey = None;
        self.search = None;
        self.again = false;
    }

    /// Records that a file could not be changed and has to be tried later.
    pub fn skipped(&mut self, now: Moment) {
        match &mut self.search {
            Some(search) => search.skipped = true,
            None => drop(self.retry_at_ms.get_or_insert(now.monotonic_ms + RETRY_MS)),
        }
    }

    /// Whether to search for copies that can be moved.
    pub fn is_evening(&self) -> bool {
        let looks = self.rebalance.as_ref().is_some_and(|order| order.walk.is_some());
        looks && self.relieved.len() < MAX_RELIEVED && self.queue.len() < MAX_QUEUE
    }

    /// Ends the moves of a file's copies for rebalancing.
    pub fn forget_relieved(&mut self, file: FileId) {
        self.relieved.retain(|object| object.file != file);
    }

    /// Values for status messages.
    pub fn evening(&self) -> (u64, u64) {
        match &self.rebalance {
            None => (0, 0),
            Some(order) => (1, order.uneven.percent()),
        }
    }

    /// Segments that get parities. Files that no scan has seen count as one that waits.
    pub fn known_coding(&self) -> Coding {
        let waiting = self.coding.waiting.max(self.candidates.len() as u64);
        Coding { waiting, ..self.coding }
    }
}

/// The target that orders the changes of a copy's column. It fills the copy, or knows that the copy
/// is whole.
pub fn orders(copy: &Filled, online: &BTreeSet<TargetId>) -> Option<TargetId> {
    copy.sources.iter().copied().find(|target| online.contains(target))
}

pub fn of_file(file: FileId) -> std::ops::RangeFrom<ObjectId> {
    let (segment, column, copy) = Default::default();
    ObjectId { file, segment, column, copy }..
}
