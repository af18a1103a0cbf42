//! How fast targets serve reads, as their servers say in each reply, and which copy of a
//! column is read by that ([`weir_policy`] decides).
//!
//! Invariants: a copy that is not usable is never chosen; a target counts as having so many
//! requests of this client as have been sent to it and have not ended; nothing here grows
//! with the number of reads.

use std::collections::BTreeMap;
use weir_policy::{
    CopyView, Micros, Progress, RUN_BYTES, ReadPolicy, Router, Runs, SOON_US, Watermarks,
};
use weir_types::{ColumnIndex, JobId, Rank, SegmentIndex, TargetId};
use weir_wire::frame::REQUEST_COST_BYTES;

const MIB: f64 = 1_048_576.0;
/// And on turning to another place what it would on so much: with a seek, and with what the
/// kernel has read ahead at the other copy.
const TURN_BYTES: f64 = MIB;
/// Progress is made by about so much at a time.
const REQUEST_BYTES: u64 = 1 << 20;
/// Where several copies are read at the same time they take turns after so much: less than what a
/// reader has outstanding, so that all have something to do.
const SHORT_RUN_BYTES: u64 = 1 << 20;
/// What others have outstanding at a target is taken as its mean over about so long.
const MEAN_US: f64 = 300_000.0;
/// Of a target that was not heard of for so long not much is known: one request asks it,
const STALE_US: Micros = 1_000_000;
/// and the next one not before so many times what a MiB takes there, so that it is not kept
/// busy with being asked.
const TIMES_IDLE: f64 = 20.0;
/// One that did not answer is left alone for so long, each time for twice as long,
const QUIET_US: Micros = 2_000_000;
/// and no longer than this. Nor does anybody wait longer to ask.
const MAX_QUIET_US: Micros = 30_000_000;
/// Who answers within this time may be kept waiting by anything.
const WAITED_US: Micros = 20_000;
/// Processes of jobs, in this client, that were told of others at a target.
const MAX_PEERS: usize = 64;
/// Columns of a file that are remembered.
const MAX_COLUMNS: usize = 256;
/// A copy that has failed is left alone for so long.
const REFUSED_US: Micros = 1_000_000;
/// Refusals of one file that are remembered.
const MAX_REFUSED: usize = 16;

/// What a server says of a target in a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Time that it takes for a MiB, while it has something to do; 0: nothing was read.
    pub us_per_mib: u32,
    /// Requests that it has not answered, whoever sent them.
    pub in_flight: u16,
    /// How far the process of a job is that is furthest behind of those whose first copies it
    /// has, other than this one, in 1/2^32.
    pub behind: Option<(JobId, Rank, u32)>,
}

/// How far others are, as one process of a job was told.
#[derive(Clone, Copy, Debug)]
struct Peer {
    told: (JobId, Rank),
    progress: Progress,
    heard: Micros,
}

#[derive(Clone, Debug, Default)]
struct Pace {
    us_per_mib: f64,
    /// Requests of others, in the mean.
    others: f64,
    /// Requests of this client that have not ended.
    own: u32,
    /// Since when somebody waits for the next answer; what lies here unread says nothing.
    waits: Option<Micros>,
    heard: Option<Micros>,
    /// The one heard of longest ago first.
    peers: Vec<Peer>,
    /// A request went there to find out.
    asked: Option<Micros>,
    /// It did not answer, and has not since: it is left alone, and asked by one request when so
    /// much time has gone.
    silent: Option<Silent>,
}

impl Pace {
    /// Time that it takes for a request at least, as it has not answered for so long, and has
    /// those of others to answer as well.
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
}

/// All targets that mirrored files were read from.
#[derive(Debug, Default)]
pub struct Paces {
    targets: BTreeMap<TargetId, Pace>,
}

impl Paces {
    /// A request was sent.
    pub fn sent(&mut self, target: TargetId) {
        self.targets.entry(target).or_default().own += 1;
    }

    /// Its answer is waited for from now on.
    pub fn waits(&mut self, target: TargetId, now: Micros) {
        self.targets.entry(target).or_default().waits.get_or_insert(now);
    }

    /// It has ended, well or badly.
    pub fn ended(&mut self, target: TargetId) {
        let pace = self.targets.entry(target).or_default();
        pace.own = pace.own.saturating_sub(1);
        pace.waits = None;
    }

    /// Its reply came, while it still counts as outstanding here.
    pub fn heard(&mut self, target: TargetId, report: Report, now: Micros) {
        let pace = self.targets.entry(target).or_default();
        let others = f64::from(report.in_flight) - f64::from(pace.own.saturating_sub(1));
        let others = others.max(0.0);
        let since = pace.heard.map_or(f64::INFINITY, |at| now.saturating_sub(at) as f64);
        let share = 1.0 - (-since / MEAN_US).exp();
        pace.others += (others - pace.others) * share;
        pace.us_per_mib = f64::from(report.us_per_mib);
        pace.heard = Some(now);
        if let Some((job, rank, done)) = report.behind {
            let progress = Progress { done_bytes: done.into(), work_bytes: 1 << 32 };
            pace.peers.retain(|peer| peer.told != (job, rank));
            if pace.peers.len() >= MAX_PEERS {
                pace.peers.remove(0);
            }
            pace.peers.push(Peer { told: (job, rank), progress, heard: now });
        }
    }

    /// It has answered something.
    pub fn answered(&mut self, target: TargetId) {
        if let Some(pace) = self.targets.get_mut(&target) {
            pace.silent = None;
        }
    }

    /// It did not answer.
    pub fn silent(&mut self, target: TargetId, now: Micros) {
        let pace = self.targets.entry(target).or_default();
        let pause_us = match pace.silent {
            Some(silent) if now < silent.until => return,
            Some(silent) => (2 * silent.pause_us).min(MAX_QUIET_US),
            None => QUIET_US,
        };
        pace.silent = Some(Silent { pause_us, until: now + pause_us });
    }

    fn is_silent(&self, target: TargetId) -> bool {
        self.targets.get(&target).is_some_and(|pace| pace.silent.is_some())
    }

    /// Targets that are not in the cluster any more are forgotten.
    pub fn retain(&mut self, is_there: impl Fn(TargetId) -> bool) {
        self.targets.retain(|target, pace| pace.own > 0 || is_there(*target));
    }

    /// What is known of a target for a read of so many bytes by a process of a job.
    pub fn view(
        &self,
        target: TargetId,
        is_usable: bool,
        (len_bytes, reader): (u64, Option<(JobId, Rank)>),
        now: Micros,
    ) -> CopyView {
        let unknown = Pace::default();
        let pace = self.targets.get(&target).unwrap_or(&unknown);
        let is_new = |peer: &&Peer| now.saturating_sub(peer.heard) <= STALE_US;
        let peer = pace.peers.iter().filter(is_new).find(|peer| Some(peer.told) == reader);
        let peer = peer.map(|peer| peer.progress);
        let known_us = pace.us_per_mib * (len_bytes as f64 + REQUEST_COST_BYTES as f64) / MIB;
        let service_us = known_us.max(pace.waited_us(now));
        let queued = pace.others.round() as u32;
        CopyView { is_usable, in_flight: pace.own, queued, service_us, more_us: 0.0, peer }
    }

    /// Whether a target is to be asked, to know how fast it is, or whether it answers again; it
    /// counts as asked then. Not when all that is known to answer is quick enough.
    fn asks(&mut self, target: TargetId, quick: bool, now: Micros) -> bool {
        let pace = self.targets.entry(target).or_default();
        let pause_us = match pace.silent {
            Some(silent) if now < silent.until => return false,
            Some(silent) => silent.pause_us,
            None if quick => return false,
            None => ((pace.us_per_mib * TIMES_IDLE) as Micros).clamp(STALE_US, MAX_QUIET_US),
        };
        let is_old = |at: Option<Micros>| at.is_none_or(|at| now.saturating_sub(at) > pause_us);
        let is_known = pace.silent.is_none() && !is_old(pace.heard);
        let asks = !is_known && is_old(pace.asked);
        if asks {
            pace.asked = Some(now);
        }
        asks
    }
}

/// A column of a file.
pub type ColumnKey = (SegmentIndex, ColumnIndex);

/// A copy that may be read.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// On which target.
    pub target: TargetId,
    /// Whole, and its target online and not in doubt.
    pub is_usable: bool,
}

/// A part of a read, in its column.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Of which column.
    pub column: ColumnKey,
    /// Its first byte in the object.
    pub offset: u64,
    /// Its bytes.
    pub len_bytes: u64,
    /// For which process of a job, and how far that is.
    pub reader: Option<(JobId, Rank, Progress)>,
}

/// A copy that is to be read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chosen {
    /// Which of the candidates.
    pub at: usize,
    /// It is predicted to answer after so long; 0: nothing is known of it.
    pub answer_us: f64,
}

/// The choices of one file's readers.
#[derive(Debug, Default)]
pub struct Choices {
    routers: BTreeMap<ColumnKey, Router>,
    runs: Runs<ColumnKey>,
    /// Copies that have failed, and until when they are left alone.
    refused: Vec<(ColumnKey, usize, Micros)>,
}

impl Choices {
    /// Which of the copies is read; `None` if none is usable.
    pub fn choose(
        &mut self,
        policy: ReadPolicy,
        wanted: Wanted,
        copies: &[Candidate],
        paces: &mut Paces,
        now: Micros,
    ) -> Option<Chosen> {
        let Wanted { column, offset, len_bytes, reader } = wanted;
        if let Some(at) = self.runs.go_on(column, offset, len_bytes, now)
            && copies.get(at).is_some_and(|copy| copy.is_usable && !paces.is_silent(copy.target))
        {
            let view = paces.view(copies[at].target, true, (len_bytes, None), now);
            return Some(Chosen { at, answer_us: view.answer_us() });
        }
        let (views, able) = self.views(&wanted, copies, paces, now);
        let chosen = |at: usize| Chosen { at, answer_us: views[at].answer_us() };
        let router = self.router(policy, column, copies.len());
        let own = reader.map_or(NO_JOB, |(.., progress)| progress);
        // Columns do not all begin with the same one.
        let block = Runs::<ColumnKey>::number(offset) + u64::from(column.1.0);
        let copy = router.choose(block, own, &views)?;
        let run_bytes = if router.uses_several() { SHORT_RUN_BYTES } else { RUN_BYTES };
        let first = views.iter().position(|view| view.is_usable)?;
        let quick = !asks_by_speed(policy) || views[first].service_us < SOON_US;
        let mut others = able.into_iter().filter(|n| *n != copy);
        if let Some(asked) = others.find(|n| paces.asks(copies[*n].target, quick, now)) {
            // By this one request: what comes of it is known before the next run.
            return Some(chosen(asked));
        }
        // Before anything is known nothing is decided for longer than this request.
        if views[copy].service_us > 0.0 || !asks_by_speed(policy) {
            self.runs.begin(column, (offset, len_bytes, run_bytes), copy, now);
        }
        Some(chosen(copy))
    }

    /// What is known of each copy; and which may be read, whether they answer or not.
    fn views(
        &mut self,
        wanted: &Wanted,
        copies: &[Candidate],
        paces: &Paces,
        now: Micros,
    ) -> (Vec<CopyView>, Vec<usize>) {
        let Wanted { column, len_bytes, reader, .. } = *wanted;
        let of = (len_bytes, reader.map(|(job, rank, _)| (job, rank)));
        self.refused.retain(|(.., until)| now < *until);
        let refused = |n: usize| self.refused.iter().any(|(c, at, _)| (*c, *at) == (column, n));
        let able = |n: &usize| copies[*n].is_usable && !refused(*n);
        let able: Vec<usize> = (0..copies.len()).filter(able).collect();
        let answers = |n: usize| able.contains(&n) && !paces.is_silent(copies[n].target);
        let any_answers = (0..copies.len()).any(answers);
        let is_usable = |n: usize| if any_answers { answers(n) } else { able.contains(&n) };
        let mut views: Vec<CopyView> = (0..copies.len())
            .map(|n| paces.view(copies[n].target, is_usable(n), of, now))
            .collect();
        let known = views.iter().find(|view| view.is_usable && view.service_us > 0.0);
        let usual = known.map_or(0.0, |view| view.service_us);
        let first = views.iter().position(|view| view.is_usable);
        for (n, view) in views.iter_mut().enumerate() {
            if view.service_us == 0.0 {
                // Of which nothing is known counts as no better and no worse.
                view.service_us = usual;
            }
            // All of the run will be read from it.
            let rest = RUN_BYTES.saturating_sub(len_bytes) as f64;
            let more = rest + if Some(n) == first { 0.0 } else { TURN_BYTES };
            view.more_us = view.service_us * more / (len_bytes as f64 + REQUEST_COST_BYTES as f64);
        }
        (views, able)
    }

    /// A copy did not give what was asked for.
    pub fn refused(&mut self, column: ColumnKey, copy: usize, now: Micros) {
        self.runs.end(column, copy);
        if self.refused.len() >= MAX_REFUSED {
            self.refused.remove(0);
        }
        self.refused.push((column, copy, now + REFUSED_US));
    }

    fn router(&mut self, policy: ReadPolicy, column: ColumnKey, copies: usize) -> &mut Router {
        if self.routers.len() >= MAX_COLUMNS && !self.routers.contains_key(&column) {
            self.routers.clear();
        }
        let marks = Watermarks { request_bytes: REQUEST_BYTES, ..Watermarks::default() };
        let new = || Router::new(policy, copies, 1, UNBOUNDED, marks);
        let router = self.routers.entry(column).or_insert_with(new);
        if router.copies() != copies {
            *router = new();
        }
        router
    }
}

/// What is outstanding is bounded by who reads, and by its read-ahead.
const UNBOUNDED: u64 = 1 << 40;
/// A program of which it is not known how much it is going to read.
const NO_JOB: Progress = Progress { done_bytes: 0, work_bytes: u64::MAX };

fn asks_by_speed(policy: ReadPolicy) -> bool {
    matches!(policy, ReadPolicy::Proportional | ReadPolicy::SkipHot)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: TargetId = TargetId(1);
    const B: TargetId = TargetId(2);
    const COLUMN: ColumnKey = (SegmentIndex(1), ColumnIndex(0));
    const MIB: u64 = 1 << 20;

    fn report(us_per_mib: u32, in_flight: u16) -> Report {
        Report { us_per_mib, in_flight, behind: None }
    }

    fn wanted(mib: u64) -> Wanted {
        Wanted { column: COLUMN, offset: mib * MIB, len_bytes: MIB, reader: None }
    }

    fn both(a: bool, b: bool) -> [Candidate; 2] {
        let of = |target, is_usable| Candidate { target, is_usable };
        [of(A, a), of(B, b)]
    }

    /// What is chosen for runs one after another when nothing is outstanding.
    fn chosen(paces: &mut Paces, policy: ReadPolicy, copies: [Candidate; 2]) -> Vec<Option<usize>> {
        let mut choices = Choices::default();
        let mut choose = |run: u64| choices.choose(policy, wanted(run * 4), &copies, paces, 0);
        (0..4).map(|run| choose(run).map(|c| c.at)).collect()
    }

    fn known(a: Report, b: Report) -> Paces {
        let mut paces = Paces::default();
        paces.heard(A, a, 0);
        paces.heard(B, b, 0);
        paces
    }

    #[test]
    fn the_first_copy_is_read_until_another_would_be_clearly_sooner() {
        let policy = ReadPolicy::Proportional;
        let mut equal = known(report(10_000, 0), report(10_000, 0));
        assert_eq!(chosen(&mut equal, policy, both(true, true)), [Some(0); 4]);
        let mut slow = known(report(40_000, 0), report(10_000, 0));
        assert_eq!(chosen(&mut slow, policy, both(true, true)), [Some(1); 4]);
        let mut busy = known(report(10_000, 8), report(10_000, 1));
        assert_eq!(chosen(&mut busy, policy, both(true, true)), [Some(1); 4]);
        assert_eq!(chosen(&mut slow, ReadPolicy::Primary, both(true, true)), [Some(0); 4]);
        assert_eq!(chosen(&mut slow, policy, both(true, false)), [Some(0); 4], "never none");
        assert_eq!(chosen(&mut slow, policy, both(false, false)), [None; 4]);
    }

    #[test]
    fn what_is_outstanding_here_counts_at_once_and_what_others_have_in_the_mean() {
        let mut paces = known(report(10_000, 0), report(10_000, 0));
        (0..4).for_each(|_| paces.sent(A));
        assert_eq!(chosen(&mut paces, ReadPolicy::Proportional, both(true, true)), [Some(1); 4]);
        (0..4).for_each(|_| paces.ended(A));
        assert_eq!(chosen(&mut paces, ReadPolicy::Proportional, both(true, true)), [Some(0); 4]);
        // One moment is not the mean.
        paces.heard(A, report(10_000, 9), 1_000);
        assert_eq!(paces.view(A, true, (MIB, None), 0).queued, 0);
        (1..400).for_each(|n| paces.heard(A, report(10_000, 9), n * 5_000));
        assert_eq!(paces.view(A, true, (MIB, None), 0).queued, 9);
    }

    #[test]
    fn one_that_does_not_answer_for_long_is_slow_before_it_says_so() {
        let mut paces = known(report(10_000, 0), report(10_000, 0));
        let policy = ReadPolicy::Proportional;
        let choose = |paces: &mut Paces, now| {
            let chosen =
                Choices::default().choose(policy, wanted(0), &both(true, true), paces, now);
            chosen.map(|c| c.at)
        };
        paces.sent(A);
        assert_eq!(choose(&mut paces, 500_000), Some(0), "nobody has looked yet");
        paces.waits(A, 500_000);
        assert_eq!((choose(&mut paces, 510_000), choose(&mut paces, 600_000)), (Some(0), Some(1)));
        paces.ended(A);
        assert_eq!(choose(&mut paces, 900_000), Some(0), "it has nothing to answer");
    }

    #[test]
    fn it_says_when_the_answer_is_to_be_expected() {
        let mut paces = known(report(1_000_000, 0), report(1_000_000, 3));
        (0..2).for_each(|_| paces.sent(A));
        let mut choices = Choices::default();
        let policy = ReadPolicy::Primary;
        let chosen = choices.choose(policy, wanted(0), &both(true, true), &mut paces, 0).unwrap();
        // Two are before it, and each costs a little more than its bytes.
        assert!((3.0e6..3.3e6).contains(&chosen.answer_us), "{chosen:?}");
    }

    #[test]
    fn a_run_is_read_from_one_copy() {
        let mut paces = known(report(40_000, 0), report(10_000, 0));
        let mut choices = Choices::default();
        let mut choose = |mib, paces: &mut Paces| {
            let policy = ReadPolicy::Proportional;
            choices.choose(policy, wanted(mib), &both(true, true), paces, 0).map(|c| c.at)
        };
        assert_eq!(choose(0, &mut paces), Some(1));
        paces.heard(A, report(10_000, 0), 0);
        assert_eq!((choose(1, &mut paces), choose(3, &mut paces)), (Some(1), Some(1)));
        assert_eq!(choose(4, &mut paces), Some(0));
    }

    #[test]
    fn of_a_copy_that_nothing_is_known_of_one_request_finds_out() {
        let mut paces = Paces::default();
        paces.heard(A, report(10_000, 0), 0);
        let mut choices = Choices::default();
        let mut choose = |mib, paces: &mut Paces, now| {
            let policy = ReadPolicy::Proportional;
            choices.choose(policy, wanted(mib), &both(true, true), paces, now).map(|c| c.at)
        };
        assert_eq!(choose(0, &mut paces, 0), Some(1));
        assert_eq!((choose(1, &mut paces, 1), choose(4, &mut paces, 2)), (Some(0), Some(0)));
        // Also of the first one, when it is not read.
        paces.heard(A, report(90_000, 0), 2);
        paces.heard(B, report(10_000, 0), 2);
        let later = 3 + 20 * 90_000;
        paces.heard(B, report(10_000, 0), later);
        assert_eq!(
            (choose(8, &mut paces, later - 9), choose(9, &mut paces, later)),
            (Some(1), Some(1))
        );
        assert_eq!(
            (choose(16, &mut paces, later), choose(17, &mut paces, later)),
            (Some(0), Some(1))
        );
        // Of what comes from memory nobody else is asked.
        let mut cached = known(report(100, 0), report(0, 0));
        assert_eq!(choose(40, &mut cached, 2 * STALE_US), Some(0));
        assert_eq!(choose(80, &mut Paces::default(), 0), Some(0), "nor when nothing is known");
    }

    #[test]
    fn one_that_does_not_answer_is_asked_by_one_request_more_and_more_seldom() {
        let mut paces = known(report(10_000, 0), report(10_000, 0));
        let choose = |paces: &mut Paces, now, usable: [Candidate; 2]| {
            let (mut choices, policy) = (Choices::default(), ReadPolicy::Proportional);
            choices.choose(policy, wanted(0), &usable, paces, now).map(|c| c.at)
        };
        let (mut now, mut pauses) = (0, Vec::new());
        for _ in 0..6 {
            paces.silent(A, now);
            paces.silent(A, now);
            let asked = now;
            assert_eq!(choose(&mut paces, now, both(true, false)), Some(0), "it is the last one");
            while choose(&mut paces, now, both(true, true)) == Some(1) {
                now += 500_000;
                paces.heard(B, report(10_000, 0), now);
            }
            assert_eq!(choose(&mut paces, now, both(true, true)), Some(1), "once");
            pauses.push((now - asked) / 1_000_000);
        }
        assert_eq!(pauses, [2, 4, 8, 16, 30, 30]);
        paces.answered(A);
        paces.heard(A, report(10_000, 0), now);
        assert_eq!(choose(&mut paces, now, both(true, true)), Some(0));
    }

    #[test]
    fn a_process_of_a_job_reads_the_copy_whose_own_readers_are_ahead() {
        const JOB: JobId = JobId(5);
        let at = |percent: u64| Progress { done_bytes: percent << 20, work_bytes: 100 << 20 };
        let says = |percent: u64| Report {
            behind: Some((JOB, Rank(3), (percent * (1 << 32) / 100) as u32)),
            ..report(10_000, 0)
        };
        let choose = |paces: &mut Paces, own: Option<(JobId, Rank, Progress)>| {
            let wanted = Wanted { reader: own, ..wanted(0) };
            (0..2).for_each(|_| paces.sent(A));
            let (policy, both) = (ReadPolicy::Proportional, both(true, true));
            let chosen = Choices::default().choose(policy, wanted, &both, paces, 0);
            (0..2).for_each(|_| paces.ended(A));
            chosen.map(|c| c.at)
        };
        let mut paces = known(report(10_000, 0), says(50));
        assert_eq!(choose(&mut paces, Some((JOB, Rank(3), at(40)))), Some(1), "they are ahead");
        assert_eq!(choose(&mut paces, Some((JOB, Rank(3), at(60)))), Some(0), "they are behind");
        assert_eq!(choose(&mut paces, Some((JobId(6), Rank(3), at(40)))), Some(0), "another job");
        // What one was told of all others but itself is not for those.
        assert_eq!(choose(&mut paces, Some((JOB, Rank(4), at(40)))), Some(0));
        assert_eq!(choose(&mut paces, None), Some(0));
        for job in 0..2 * MAX_PEERS as u64 {
            let behind = Some((JobId(100 + job), Rank(0), 9));
            paces.heard(B, Report { behind, ..says(1) }, 0);
        }
        assert_eq!(paces.targets[&B].peers.len(), MAX_PEERS);
    }

    #[test]
    fn a_copy_that_lacked_something_is_left_alone_for_a_while() {
        let mut paces = known(report(40_000, 0), report(10_000, 0));
        let mut choices = Choices::default();
        let mut choose = |choices: &mut Choices, now| {
            let policy = ReadPolicy::Proportional;
            paces.heard(A, report(40_000, 0), now);
            choices.choose(policy, wanted(0), &both(true, true), &mut paces, now).map(|c| c.at)
        };
        assert_eq!(choose(&mut choices, 0), Some(1));
        choices.refused(COLUMN, 1, 0);
        assert_eq!(choose(&mut choices, 1), Some(0));
        assert_eq!(choose(&mut choices, 2 * REFUSED_US), Some(1));
    }

    #[test]
    fn halves_take_runs_in_turn_and_memory_is_bounded() {
        let mut paces = Paces::default();
        let halves = chosen(&mut paces, ReadPolicy::Halves, both(true, true));
        assert_eq!(halves, [Some(0), Some(1), Some(0), Some(1)]);
        let mut choices = Choices::default();
        for n in 0..2_000 {
            let column = (SegmentIndex(n), ColumnIndex(0));
            let wanted = Wanted { column, ..wanted(0) };
            choices.choose(ReadPolicy::Halves, wanted, &both(true, true), &mut paces, 0);
            choices.refused(column, 0, u64::from(n));
        }
        assert!(choices.routers.len() <= MAX_COLUMNS && choices.refused.len() <= MAX_REFUSED);
    }
}
