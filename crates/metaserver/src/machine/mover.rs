//! The mover: finds files whose copies are not as they should be, changes their layouts, and has
//! the copies filled.
//!
//! All its results are in the layouts. The state in memory says only where to look, and is rebuilt
//! by a scan of all files after a start.
//!
//! Invariants
//! - A layout changes only while no session has leases on the file, and leases are granted again
//!   after the change is durable: so no write uses the old layout.
//! - Copies are filled, and dropped copies removed, only according to durable layouts.
//! - A whole copy is dropped only after its column's first copy has said, while no session has
//!   leases, that one of the remaining copies has everything: a postponed write may exist nowhere
//!   else.
//! - The number of files being changed, and of copies being filled, is bounded.

use super::servers::fault;
use super::shortfalls::Arrivals;
use super::{MetaMachine, Moment};
use crate::mover::away::Away;
use crate::mover::coding::Coding;
use crate::mover::progress::Progress;
use crate::mover::sites::{Differs, Sites};
use crate::ops::move_copies::{self, Filled, Look, Means, Relieved};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use weir_metastore::{Engine, Sequence, Tx};
use weir_types::{FileId, Generation, ObjectId, Result, ServerId, TargetId};
use weir_wire::map::TargetState;
use weir_wire::peer::{Fill, TargetReport};

mod dropped;
mod encode;
mod look;
mod rebalance;
mod visit;

use dropped::Dropped;
pub use look::Survey;
use look::Walk;
use rebalance::Rebalance;
pub(super) use visit::MOVER;
use visit::Visit;

/// While this many files wait, no others are searched for.
const MAX_QUEUE: usize = 256;
/// The most waiting files. Beyond it all files are scanned again.
const MAX_QUEUED: usize = 16_384;
/// Copies checked at each tick, whether they still have to be filled.
const CHECKS_PER_TICK: usize = 64;
/// The most copies that cannot be filled, for each one that a server fills at a time.
const MOST_IDLE: usize = 64;
/// A file that could not be changed is tried again after this time, by a scan of all files. Also
/// the wait for a copy to have everything while its file is being written, before leases are
/// recalled: without writers it soon has.
const RETRY_MS: u64 = 30_000;

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
struct Job {
    copy: Filled,
    generation: Generation,
    /// The copy is ordered only after this commit is durable.
    since: Sequence,
    /// Whether its server has reported that it is filled, or leases should be recalled.
    ready: bool,
    /// Since when it has not reported that.
    waits_since_ms: u64,
    /// Number of such reports while no session writes to the file; `None` while one may.
    confirmed: Option<u8>,
}

/// Pending and present work.
#[derive(Debug, Default)]
pub(super) struct Mover {
    settings: MoverSettings,
    away: Away,
    pub sites: Sites,
    pub relieved: Relieved,
    pub dropped: Dropped,
    jobs: BTreeMap<ObjectId, Job>,
    /// Whether all files were scanned for copies that are being filled.
    jobs_known: bool,
    /// Number of copies that could not be filled at the last tick.
    idle_jobs: usize,
    queue: VecDeque<(FileId, u64)>,
    queued: BTreeSet<FileId>,
    /// Queued files that no scan has counted.
    uncounted: BTreeSet<FileId>,
    /// Files with filled copies, and the first byte of those.
    finish: BTreeMap<FileId, u64>,
    visits: BTreeMap<super::ParkedTicket, Visit>,
    /// The scan that counts the work.
    survey: Option<(Walk, Survey)>,
    /// The scan that finds the work.
    search: Option<Walk>,
    /// Whether to scan all files again afterwards.
    again: bool,
    /// Whether something could not be done for lack of targets.
    left: bool,
    /// Whether clients have reported what they hold, so that it can be recalled.
    begun: bool,
    retry_at_ms: Option<u64>,
    /// The last job that was checked.
    checked: Option<ObjectId>,
    rebalance: Option<Rebalance>,
    /// Files that may get parities, and when to look at them.
    candidates: BTreeMap<FileId, u64>,
    /// When to scan all files for more of them, and when that was last done.
    scan_at_ms: Option<u64>,
    scanned_at_ms: u64,
    /// Files with parities that somebody waits to write, and until when that counts.
    awaited: BTreeMap<FileId, u64>,
    /// Those of them whose copies cannot be made for lack of room, when last looked at.
    without_room: BTreeSet<FileId>,
    /// Targets that are short of room: files there get parities early.
    short: BTreeSet<TargetId>,
    pub counted: Survey,
    /// Segments that get parities: those of the last scan, and what the mover has changed since.
    coding: Coding,
    /// When that scan ended.
    coding_at_ms: Option<u64>,
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
    fn may_have_work(&self) -> bool {
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
    fn can_finish(&self) -> bool {
        !self.finish.is_empty() && self.visits.len() < visit::MAX_VISITS
    }

    /// Whether more copies may be begun.
    fn has_room(&self) -> bool {
        self.visits.len() < visit::MAX_VISITS && self.room() > 0
    }

    /// Number of copies that may be begun. Those that cannot be filled do not count, as long as
    /// they are not too many.
    fn room(&self) -> usize {
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
    fn can_be_filled(&self, copy: &Filled) -> bool {
        self.has_source(copy) && (copy.is_whole || self.sites.can_be_filled(copy.to))
    }

    /// Whether there is a whole copy online, or enough to compute it.
    fn has_source(&self, copy: &Filled) -> bool {
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
    fn adopt(
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

    fn jobs_of(&self, file: FileId) -> impl Iterator<Item = (&ObjectId, &Job)> {
        self.jobs.range(of_file(file)).take_while(move |(object, _)| object.file == file)
    }

    /// Filled copies of a file.
    fn ready(&self, file: FileId) -> Vec<&Job> {
        self.jobs_of(file).map(|(_, job)| job).filter(|job| job.ready).collect()
    }

    /// Ends the job of a copy that is whole.
    fn end_job(&mut self, object: ObjectId) {
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
    fn source(&self, copy: &Filled) -> Option<TargetId> {
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
    fn is_working(&self) -> bool {
        let under_way = !self.jobs.is_empty() || !self.visits.is_empty();
        under_way || !self.queue.is_empty() || !self.finish.is_empty()
    }

    fn is_idle(&self) -> bool {
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
}

/// The target that orders the changes of a copy's column. It fills the copy, or knows that the copy
/// is whole.
fn orders(copy: &Filled, online: &BTreeSet<TargetId>) -> Option<TargetId> {
    copy.sources.iter().copied().find(|target| online.contains(target))
}

fn of_file(file: FileId) -> std::ops::RangeFrom<ObjectId> {
    let (segment, column, copy) = Default::default();
    ObjectId { file, segment, column, copy }..
}

impl<E: Engine> MetaMachine<E> {
    /// Sets how the mover works from now on.
    pub fn set_mover(&mut self, settings: MoverSettings) {
        self.mover.settings = settings;
    }

    /// Updates the state of targets, and checks copies that are being filled. To be called about
    /// once a second.
    pub(super) fn tick_mover(&mut self, now: Moment) -> Result<()> {
        let map = self.cluster.map();
        let after_ms = self.mover.settings.rebuild_after_ms;
        let sites = self.mover.away.sites(&map, after_ms, now.monotonic_ms);
        match self.mover.sites.update(sites) {
            Differs::Needs => self.mover.look_at_all(),
            // Less may be to be done, too: a target is kept after all, or is back.
            Differs::Helps if self.mover.left || self.mover.may_have_work() => {
                self.mover.left = false;
                self.mover.look_at_all();
            }
            Differs::Helps | Differs::Not => {}
        }
        if self.mover.is_idle() && self.cluster.partners.wants_look(&self.mover.sites) {
            self.mover.look_at_all();
        }
        self.mover.begun |= self.leases.grace.is_none();
        if self.mover.retry_at_ms.is_some_and(|at_ms| now.monotonic_ms >= at_ms) {
            self.mover.retry_at_ms = None;
            self.mover.look_at_all();
        }
        self.mover.progress.sample(now.monotonic_ms);
        let is_there = |target| self.cluster.record(target).is_some();
        self.mover.arrivals.sample(now.monotonic_ms, is_there);
        for job in self.mover.jobs.values_mut().filter(|job| job.copy.is_whole) {
            job.ready |= now.monotonic_ms.saturating_sub(job.waits_since_ms) > RETRY_MS;
        }
        let idle = self.mover.jobs.values().filter(|job| !self.mover.can_be_filled(&job.copy));
        self.mover.idle_jobs = idle.count();
        let ready = self.mover.jobs.values().filter(|job| job.ready && job.confirmed.is_none());
        let ready: Vec<_> =
            ready.map(|job| (job.copy.object.file, job.copy.segment_start)).collect();
        for (file, start) in ready {
            self.mover.finish.entry(file).or_insert(start);
        }
        self.mover.find_short(&map);
        self.tick_encode(now);
        // No file has several copies, and all can stay where they are.
        self.tick_rebalance(now);
        let evens = self.mover.rebalance.is_some();
        if !self.cluster.view.mirrored && !self.mover.sites.any_goes() && !evens {
            self.mover.look_at_nothing();
        }
        self.check_jobs(now)
    }

    /// Drops copies of files that are gone, or got new layouts.
    fn check_jobs(&mut self, now: Moment) -> Result<()> {
        let after = |object: &ObjectId| self.mover.checked.is_none_or(|last| *object > last);
        let mut next: Vec<ObjectId> =
            self.mover.jobs.keys().copied().filter(after).take(CHECKS_PER_TICK).collect();
        self.mover.checked = next.last().copied();
        let synced = self.engine.synced();
        next.retain(|object| self.mover.jobs.get(object).is_some_and(|job| job.since <= synced));
        for object in next {
            let Some(job) = self.mover.jobs.get(&object) else { continue };
            let mut tx = Tx::new(&self.engine);
            let found = move_copies::still_filling(&mut tx, &job.copy).map_err(fault)?;
            match found.filter(|found| found.to == job.copy.to) {
                Some(found) => {
                    if let Some(job) = self.mover.jobs.get_mut(&object) {
                        job.copy = found;
                    }
                }
                None => {
                    self.mover.jobs.remove(&object);
                    // Somebody may be bringing something to it just now.
                    if !self.mover.dropped.knows(object) {
                        self.mover.dropped.went(&[object], now.monotonic_ms);
                    }
                    // There may be nothing left to be relieved of.
                    self.mover.enqueue(object.file, 0);
                }
            }
        }
        Ok(())
    }

    /// The copies that a server has to fill: those of columns whose first online copy it serves.
    pub(super) fn fills_for(&self, server: ServerId) -> Vec<Fill> {
        let synced = self.engine.synced();
        let most = self.mover.settings.rebuild_concurrency as usize;
        let mut under_way = 0;
        if self.mover.jobs.is_empty() {
            return Vec::new();
        }
        let online = self.online();
        let mut order = |job: &Job| {
            let from = orders(&job.copy, &online)?;
            let is_its = self.cluster.serves(server, from);
            let (object, to, generation) = (job.copy.object, job.copy.to, job.generation);
            let can = job.ready || under_way < most && self.mover.can_be_filled(&job.copy);
            let is_its = is_its && job.since <= synced && can;
            under_way += usize::from(is_its && !job.ready);
            is_its.then_some(Fill { from, object, to, generation })
        };
        let mut all: Vec<Fill> = self.mover.jobs.values().filter_map(&mut order).collect();
        all.extend(self.fences_for(server, &online));
        all
    }

    /// Handles a server's report of copies that have everything at the time of the report. It
    /// repeats them in each report.
    pub(super) fn take_filled(&mut self, server: ServerId, reports: &[TargetReport]) {
        if self.mover.jobs.is_empty() {
            return;
        }
        let all = reports.iter().filter(|report| self.cluster.serves(server, report.target));
        let all = all.flat_map(|report| &report.filled);
        let all: BTreeMap<(ObjectId, TargetId), &Fill> =
            all.map(|fill| ((fill.object, fill.to), fill)).collect();
        let online = self.online();
        let of = |job: &Job| {
            let from = orders(&job.copy, &online)?;
            self.cluster.serves(server, from).then_some(from)
        };
        let built = self.built(server, reports, &online);
        let its = self.mover.jobs.iter().filter_map(|(object, job)| Some((*object, of(job)?)));
        let its = its.map(|(object, from)| (object, Some(from), false));
        for (object, from, is_built) in its.chain(built).collect::<Vec<_>>() {
            let Some(job) = self.mover.jobs.get_mut(&object) else { continue };
            let (to, generation) = (job.copy.to, job.generation);
            let is_it = |fill: &&&Fill| (Some(fill.from), fill.generation) == (from, generation);
            let filled = is_built || all.get(&(object, to)).filter(is_it).is_some();
            if !filled {
                job.confirmed = job.confirmed.map(|_| 0);
                continue;
            }
            job.confirmed = job.confirmed.map(|times| times.saturating_add(1));
            let news = !std::mem::replace(&mut job.ready, true);
            let start = job.copy.segment_start;
            let waiting = self.mover.jobs_of(object.file).filter(|(_, job)| !job.ready).count();
            // At the next tick the others are not waited for any more.
            if news && waiting == 0 {
                self.mover.finish.insert(object.file, start);
            }
        }
    }

    /// Online targets according to the present map, and not to the last tick: a target that has
    /// ordered until now does not know what others lack.
    fn online(&self) -> BTreeSet<TargetId> {
        let all = self.cluster.all().into_iter();
        let online = all.filter(|(_, t)| t.state == TargetState::Online);
        online.map(|(_, t)| t.target).collect()
    }

    /// Looks at a file without changing it.
    fn look(
        &mut self,
        file: FileId,
        from: u64,
        scratch: &mut Sites,
        now: Moment,
    ) -> Result<Option<Look>> {
        let relieved = &self.mover.relieved;
        let (most, room, filled) = (usize::MAX, usize::MAX, &[][..]);
        let writers = self.writers(now);
        let mut means = Means { sites: scratch, relieved, most, room, filled, writers };
        let mut tx = Tx::new(&self.engine);
        let look = move_copies::look(&mut tx, file, from, &mut means).map_err(fault)?;
        self.mover.left |= look.as_ref().is_some_and(|look| look.stuck > 0 || look.makeshift);
        if look.as_ref().is_some_and(|look| look.waits_for_removal) {
            self.mover.look_again(file, now);
        }
        Ok(look)
    }
}
