//! The choice of the copy of a column that is read, from what is known of the targets
//! ([`super::pace`]). [`weir_policy`] decides.
//!
//! Invariant: an unusable copy is never chosen.

mod column;
mod look;
#[cfg(test)]
mod tests;

use self::column::{Column, Outstanding};
use super::job::JobReader;
use super::pace::{Paces, Who, who};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use weir_policy::{
    CopyView, FAR_BEHIND, LAST_REQUESTS, Micros, Progress, RUN_BYTES, ReadPolicy, Runs, SOON_US,
    UNKNOWN,
};
use weir_types::{ColumnIndex, SegmentIndex, TargetId};
use weir_wire::frame::REQUEST_COST_BYTES;

/// Cost of moving to another copy, as bytes that its disk could read meanwhile: a seek, and
/// read-ahead of the kernel at the other copy that is lost.
const TURN_BYTES: f64 = 1_048_576.0;
/// A reader that has read less than this has only begun.
const BEGUN_BYTES: f64 = 524_288.0;
/// Length of a run where several copies are read at the same time. It is less than a reader has
/// outstanding, so that all copies have work.
const SHORT_RUN_BYTES: u64 = 1 << 20;
/// Length of a run on disks that serve no other readers. They lose little by short runs, and each
/// gets work soon.
const LONE_RUN_BYTES: u64 = 512 << 10;
/// Small requests may be outstanding up to this many bytes, so that a disk can sort them.
const MIN_WINDOW_BYTES: u64 = 512 << 10;
/// More bytes may be outstanding at other copies whose own readers are ahead, for all other copies
/// together; fewer at copies slower than the first, in proportion. A disk does not reorder requests
/// that it has begun, so with fewer of this reader's requests waiting, other readers would get
/// every second turn. A disk whose rate limit is enforced per tenth of a second serves 2 MiB of 20
/// MiB/s at once and then pauses. With more bytes the reader, which reads in order, would wait for
/// the other copy and leave its own disk idle.
const BEHIND_WINDOW_BYTES: u64 = 2 << 20;
/// Reads that arrive within this time are usually of one program, and in no particular order.
const TOGETHER_US: Micros = 50_000;
/// Assumed time per MiB of a target of which nothing is known: that of an ordinary disk.
const NOMINAL_US_PER_MIB: f64 = 5_000.0;
/// Copies are uneven if one takes at least this many times as long as another.
const UNEVEN: f64 = 2.0;
/// The most combinations of column and reader that are remembered for a file.
const MAX_COLUMNS: usize = 2048;
/// A copy that has failed is not chosen for this long.
const REFUSED_US: Micros = 1_000_000;
/// The most failures that are remembered for a file.
const MAX_REFUSED: usize = 16;

/// A column of a file.
pub type ColumnKey = (SegmentIndex, ColumnIndex);
/// Key of a reader in a column. Each process of a job has its own outstanding requests and
/// measurements, even on one node; programs outside of jobs share theirs.
type ReaderKey = (ColumnKey, Who);

/// A copy that may be read.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// The target of the copy.
    pub target: TargetId,
    /// Whether the copy is whole and its target online and not in doubt.
    pub is_usable: bool,
}

/// A part of a read, within one column.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The column.
    pub column: ColumnKey,
    /// First byte in the object.
    pub offset: u64,
    /// Length, bytes.
    pub len_bytes: u64,
    /// Approximate bytes of the file behind it in this column. A program outside of jobs is assumed
    /// to read to the end.
    pub rest_bytes: u64,
    /// Time of the call.
    pub since: Micros,
    /// The process of a job that reads.
    pub reader: Option<Arc<JobReader>>,
}

impl Wanted {
    fn key(&self) -> ReaderKey {
        (self.column, who(self.reader.as_deref()))
    }
}

/// The chosen copy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chosen {
    /// Index among the candidates.
    pub at: usize,
    /// Predicted time until it replies, microseconds; 0 if unknown.
    pub answer_us: f64,
    /// Whether it is known to have the bytes at once, as from memory.
    is_quick: bool,
}

impl Chosen {
    fn of(at: usize, view: &CopyView, is_known: bool) -> Self {
        let answer_us = if is_known { view.answer_us() } else { 0.0 };
        let is_quick = is_known && 0.0 < view.service_us && view.service_us < SOON_US;
        Self { at, answer_us, is_quick }
    }
}

/// Result of asking for a copy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Choice {
    /// Read this copy.
    Copy(Chosen),
    /// Wait: the copies to be read have enough requests. Ask again when one has replied, or when
    /// other readers are ahead.
    Later,
    /// Wait: other reads come before this one.
    Behind,
    /// No copy is usable.
    None,
}

/// Place of a waiting read in the queue of its column. Reads are served in order of arrival; reads
/// that arrive at about the same time are served in the order of the file, as one program reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Turn {
    column: ColumnKey,
    /// The reader. Each has its own queue.
    who: Who,
    /// Rounded time of arrival. Reads with the same value count as simultaneous.
    came: Micros,
    offset: u64,
    number: u64,
}

impl Turn {
    fn of(wanted: &Wanted, number: u64) -> Self {
        let (column, who) = wanted.key();
        let came = wanted.since - wanted.since % TOGETHER_US;
        Self { column, who, came, offset: wanted.offset, number }
    }

    /// The smallest turn of the same queue.
    fn first(self) -> Self {
        Self { came: 0, offset: 0, number: 0, ..self }
    }
}

/// Whether anything waits for a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// The read is a read-ahead that no caller waits for yet.
    Ahead,
    /// A caller waits, but the read does not queue: other parts of the same call were sent already,
    /// or it has waited for long enough.
    None,
    /// The read may have to queue. It has a turn already if it waits.
    Turn(Option<Turn>),
}

/// An outstanding request to a copy.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// The column.
    pub column: ColumnKey,
    /// The reader.
    pub who: Who,
    /// Index of the copy among the candidates.
    pub copy: usize,
    /// Length, bytes.
    pub len_bytes: u64,
    /// Whether the request was eligible to queue.
    pub waited: bool,
}

/// The choices of the readers of one file.
#[derive(Debug, Default)]
pub struct Choices {
    columns: BTreeMap<ReaderKey, Column>,
    /// Runs of columns. Readers at the same place read the same copy, so that its disk seeks there
    /// once.
    runs: Runs<ColumnKey>,
    /// Copies that have failed, and until when they are not chosen.
    refused: Vec<(ColumnKey, usize, Micros)>,
    /// Waiting reads.
    waiting: BTreeSet<Turn>,
    turns: u64,
}

impl Choices {
    /// Chooses the copy to read. Also returns whether targets have to be asked for their load that
    /// were not asked before.
    pub fn choose(
        &mut self,
        policy: ReadPolicy,
        wanted: &Wanted,
        copies: &[Candidate],
        paces: &mut Paces,
        (now, patience): (Micros, Patience),
    ) -> (Choice, bool) {
        // The place of a block is fixed: nothing is won by waiting.
        let is_fixed = matches!(policy, ReadPolicy::Halves | ReadPolicy::SkipHot);
        let patience =
            if is_fixed && patience != Patience::Ahead { Patience::None } else { patience };
        if let Patience::Turn(turn) = patience {
            let own = turn.unwrap_or(Turn::of(wanted, u64::MAX));
            if self.waiting.range(own.first()..own).next().is_some() {
                return (Choice::Behind, false);
            }
        }
        let choice = self.chosen(policy, wanted, copies, paces, (now, patience));
        let (at, is_quick) = match choice {
            Choice::Copy(chosen) => (Some(chosen.at), chosen.is_quick),
            _ => (None, false),
        };
        let mut is_new = false;
        // Of what comes from memory nobody needs to be asked.
        if goes_by_speed(policy) && !is_quick {
            for (n, copy) in copies.iter().enumerate().filter(|(_, copy)| copy.is_usable) {
                let of = (n == 0, Some(n) == at);
                is_new |= paces.follow(copy.target, of, wanted.reader.as_ref(), now);
            }
        }
        (choice, is_new)
    }

    fn chosen(
        &mut self,
        policy: ReadPolicy,
        wanted: &Wanted,
        copies: &[Candidate],
        paces: &mut Paces,
        (now, patience): (Micros, Patience),
    ) -> Choice {
        let may_wait = matches!(patience, Patience::Turn(_));
        let Wanted { column, offset, len_bytes, rest_bytes, ref reader, .. } = *wanted;
        let key = wanted.key();
        self.column(policy, key, copies.len());
        let (mut views, able, is_known) = self.views(wanted, copies, paces, (now, patience));
        if let Some(at) = self.runs.look(column, offset, now)
            && copies.get(at).is_some_and(|copy| copy.is_usable && !paces.is_silent(copy.target))
        {
            // A disk that has less to do is not kept waiting for the end of a run. In a job the
            // progress of its readers says which that is.
            let is_free = |view: &CopyView| {
                let helps = !view.is_owned() && view.helps(&views[at]);
                view.is_usable && !view.is_full && (reader.is_some() || helps)
            };
            let mut others = views.iter().enumerate();
            let is_full = views[at].is_full;
            let turns = views[at].has_enough
                && policy == ReadPolicy::Proportional
                && others.any(|(n, view)| n != at && is_free(view));
            if is_full && may_wait && !turns {
                return Choice::Later;
            }
            if !turns {
                self.runs.go_on(column, offset, len_bytes, now);
                return Choice::Copy(Chosen::of(at, &views[at], true));
            }
        }
        if !views.iter().any(|view| view.is_usable) {
            return Choice::None;
        }
        let own =
            reader.as_ref().and_then(|reader| reader.progress()).unwrap_or(Progress::OF_NO_JOB);
        // Columns do not all begin with the same one.
        let block = Runs::<ColumnKey>::number(offset) + u64::from(column.1.0);
        // Of one who goes by the first copies another is none that is to be found again.
        let may_try = if policy == ReadPolicy::Primary { 1 } else { able.len() };
        let mut silent = able.into_iter().take(may_try);
        if let Some(tried) = silent.find(|n| paces.tries(copies[*n].target, now)) {
            // By this one request: what comes of it is known before the next run.
            return Choice::Copy(Chosen::of(tried, &views[tried], is_known));
        }
        let of = self.column(policy, key, copies.len());
        if reader.is_some() {
            of.look.note(own.done_bytes, now);
        }
        let bytes: u64 = of.outstanding.iter().map(|of| of.bytes).sum();
        let left = match own.left_bytes() {
            // It is not known to be so much: that counts only where one would wait for long.
            _ if reader.is_none() && is_uneven(&views) => {
                rest_bytes.div_ceil(len_bytes.max(1)).max(LAST_REQUESTS).saturating_add(1)
            }
            _ if reader.is_none() => UNKNOWN,
            // It reads again what it has read.
            0 => UNKNOWN,
            left => left.saturating_sub(bytes).div_ceil(len_bytes.max(1)),
        };
        let router = &mut of.router;
        let mut choice = router.choose(block, (own, left), &views);
        if choice.is_none() && !may_wait {
            views.iter_mut().for_each(|view| view.is_full = false);
            choice = router.choose(block, (own, UNKNOWN), &views);
        }
        let Some(copy) = choice else { return Choice::Later };
        let is_short = patience != Patience::Ahead || router.uses_several();
        let is_lone = |view: &CopyView| !view.is_usable || (view.is_idle && !view.is_owned());
        let run_bytes = match is_short {
            true if views.iter().all(is_lone) => LONE_RUN_BYTES,
            true => SHORT_RUN_BYTES,
            false => RUN_BYTES,
        };
        // Before it has said itself what it is like nothing is decided for longer than this request.
        if paces.has_said(copies[copy].target, now) || !goes_by_speed(policy) {
            self.runs.begin(column, (offset, len_bytes, run_bytes), copy, now);
        }
        Choice::Copy(Chosen::of(copy, &views[copy], is_known))
    }

    /// The state of each copy, and which copies may be read, whether they reply or not.
    fn views(
        &mut self,
        wanted: &Wanted,
        copies: &[Candidate],
        paces: &Paces,
        (now, patience): (Micros, Patience),
    ) -> (Vec<CopyView>, Vec<usize>, bool) {
        let Wanted { column, len_bytes, rest_bytes, ref reader, .. } = *wanted;
        let key = wanted.key();
        let of: (u64, Who) = (len_bytes, key.1);
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
        let own = reader.as_ref().and_then(|reader| reader.progress());
        let known = views.iter().find(|view| view.is_usable && view.service_us > 0.0);
        let is_known = known.is_some();
        let cost = (len_bytes as f64 + REQUEST_COST_BYTES as f64) / 1_048_576.0;
        let nominal_us = (NOMINAL_US_PER_MIB * cost).max(SOON_US);
        let usual = known.map_or(nominal_us, |view| view.service_us);
        // Of which nothing is known counts as no better and no worse.
        let unknown = views.iter_mut().filter(|view| view.service_us == 0.0);
        unknown.for_each(|view| view.service_us = usual);
        let first = views.iter().position(|view| view.is_usable);
        let first_us = first.map_or(usual, |n| views[n].service_us);
        let others = views.iter().filter(|view| view.is_usable).count().saturating_sub(1).max(1);
        let outstanding = self.columns.get(&key).map(|of| &of.outstanding);
        // All who come to the end of a small file would take a far slower disk for free,
        let ends = reader.is_none() && !is_uneven(&views);
        let most_rest = if ends { rest_bytes } else { u64::MAX };
        // and so would all who wait at the same copy, at the same moment.
        if reader.is_none() {
            share_out(&mut views);
        }
        for (n, view) in views.iter_mut().enumerate() {
            // What was chosen for it a moment ago may be on its way to a connection. (Processes of a
            // job leave each other's disks alone meanwhile.)
            let chosen = outstanding.filter(|_| reader.is_none()).map_or(0, |of| of[n].requests);
            view.in_flight = view.in_flight.max(chosen);
            // All of the run will be read from it.
            let run = if patience == Patience::Ahead { RUN_BYTES } else { SHORT_RUN_BYTES };
            let rest = run.saturating_sub(len_bytes).min(most_rest) as f64;
            // A disk that serves nobody else is there already. Where it serves others the first
            // one has to turn as well; a process of a job goes by whose disk it is.
            let has_it =
                view.queued + view.to_come == 0 && (self.is_used(key, n) || Some(n) == first);
            let is_there = has_it || (Some(n) == first && reader.is_some());
            let us_per_byte = view.service_us / (len_bytes as f64 + REQUEST_COST_BYTES as f64);
            view.rest_us = us_per_byte * rest;
            view.turn_us = if is_there { 0.0 } else { us_per_byte * TURN_BYTES };
            // What has a block at once is asked for as much as anybody likes.
            let is_quick = view.service_us < SOON_US;
            // At its own first copies, too, if others have theirs there.
            let least = if Some(n) == first { FAR_BEHIND } else { 0.0 };
            // Before anything has come nobody knows who is going to read where; and where readers
            // have only begun they are going to read.
            let is_begun = |peer: Progress| {
                own.is_some_and(|own| peer.share() * (own.work_bytes as f64) < BEGUN_BYTES)
            };
            view.may_be_owned |= own.is_some_and(|own| own.done_bytes == 0);
            view.may_be_owned |= view.peer.is_some_and(is_begun);
            let leads = |peer: Progress| own.is_some_and(|own| peer.ahead_of(own) > least);
            let least_bytes = match view.peer.is_some_and(leads) {
                true => {
                    let most = (BEHIND_WINDOW_BYTES / others as u64) as f64;
                    let slower = (first_us / view.service_us).min(1.0);
                    ((most * slower) as u64).max(MIN_WINDOW_BYTES)
                }
                false => MIN_WINDOW_BYTES,
            };
            let is_full = |of: &Column| of.is_full(n, len_bytes, (patience, least_bytes));
            view.is_full = !is_quick && self.columns.get(&key).is_some_and(is_full);
            view.has_enough = view.is_full;
        }
        if let Some((own, of)) = own.zip(self.columns.get_mut(&key)) {
            let keeps_up = of.look.keeps_up((own, len_bytes), &views, now);
            views.iter_mut().take(1).for_each(|first| first.keeps_up = keeps_up);
        }
        if reader.is_none() && patience != Patience::Ahead {
            self.even_out(key, &mut views);
        }
        (views, able, is_known)
    }

    /// Spreads the first reads of a program that knows of no other reader. While another copy is
    /// idle, the copies in use count as having enough requests, and the idle copy costs nothing to
    /// move to. So both work from the beginning.
    fn even_out(&self, key: ReaderKey, views: &mut [CopyView]) {
        let mut has_nothing = false;
        let far_us = far_us(views);
        for (n, view) in views.iter_mut().enumerate().filter(|(_, v)| v.service_us < far_us) {
            if view.is_usable && view.is_idle && view.in_flight == 0 && !self.is_used(key, n) {
                (view.turn_us, has_nothing) = (0.0, true);
            }
        }
        if has_nothing {
            let used = views.iter_mut().enumerate().filter(|(n, _)| self.is_used(key, *n));
            used.for_each(|(_, view)| view.has_enough = true);
        }
    }

    /// Queues a read. [`Choices::leave`] ends that.
    pub fn wait(&mut self, wanted: &Wanted) -> Turn {
        self.turns += 1;
        let turn = Turn::of(wanted, self.turns);
        self.waiting.insert(turn);
        turn
    }

    /// Removes a read from the queue. Returns whether other reads wait.
    pub fn leave(&mut self, turn: Turn) -> bool {
        self.waiting.remove(&turn);
        !self.waiting.is_empty()
    }

    /// Last time at which the queue of the reader in its column advanced.
    pub fn moved(&self, wanted: &Wanted) -> Micros {
        self.columns.get(&wanted.key()).map_or(0, |of| of.moved)
    }

    /// Records a request to a copy that a caller waits for.
    pub fn asked(&mut self, place: &Asked, now: Micros) {
        self.moves(place, now);
        if let Some(of) = self.outstanding(place) {
            (of.requests, of.bytes) = (of.requests + 1, of.bytes + place.len_bytes);
            if place.waited {
                of.waited_requests += 1;
                of.waited_bytes += place.len_bytes;
            }
        }
    }

    /// Records the end of a request, with or without a reply. Returns whether reads wait.
    pub fn answered(&mut self, place: &Asked, now: Micros) -> bool {
        self.moves(place, now);
        let len_bytes = place.len_bytes;
        if let Some(of) = self.outstanding(place) {
            of.requests = of.requests.saturating_sub(1);
            of.bytes = of.bytes.saturating_sub(len_bytes);
            if place.waited {
                of.waited_requests = of.waited_requests.saturating_sub(1);
                of.waited_bytes = of.waited_bytes.saturating_sub(len_bytes);
            }
        }
        !self.waiting.is_empty()
    }

    fn moves(&mut self, place: &Asked, now: Micros) {
        if let Some(of) = self.columns.get_mut(&(place.column, place.who)).filter(|_| place.waited)
        {
            of.moved = now;
        }
    }

    fn outstanding(&mut self, place: &Asked) -> Option<&mut Outstanding> {
        self.columns.get_mut(&(place.column, place.who))?.outstanding.get_mut(place.copy)
    }

    fn is_used(&self, key: ReaderKey, copy: usize) -> bool {
        self.columns.get(&key).is_some_and(|of| of.outstanding[copy].requests > 0)
    }

    /// Records that a copy has failed.
    pub fn refused(&mut self, column: ColumnKey, copy: usize, now: Micros) {
        self.runs.end(column, copy);
        if self.refused.len() >= MAX_REFUSED {
            self.refused.remove(0);
        }
        self.refused.push((column, copy, now + REFUSED_US));
    }

    fn column(&mut self, policy: ReadPolicy, key: ReaderKey, copies: usize) -> &mut Column {
        if self.columns.len() >= MAX_COLUMNS && !self.columns.contains_key(&key) {
            // What is outstanding is bounded by who reads.
            self.columns.retain(|_, column| !column.is_idle());
        }
        let column = self.columns.entry(key).or_insert_with(|| Column::new(policy, copies));
        if column.outstanding.len() != copies {
            *column = Column::new(policy, copies);
        }
        column
    }
}

/// Predicts requests of other readers, who see the same state as this reader and choose alike. A
/// far slower copy is assumed to get its share, by speed, of all requests that others have at the
/// copies.
fn share_out(views: &mut [CopyView]) {
    let far_us = far_us(views);
    let usable = || views.iter().filter(|view| view.is_usable);
    let (speeds, requests) = usable().fold((0.0, 0.0), |(speeds, requests), view| {
        (speeds + 1.0 / view.service_us, requests + f64::from(view.queued))
    });
    for view in views.iter_mut().filter(|view| view.is_usable && view.service_us >= far_us) {
        let part = requests / view.service_us / speeds;
        view.to_come = (part.round() as u32).saturating_sub(view.queued);
    }
}

/// Whether one copy is far slower than another, and none is in memory.
fn is_uneven(views: &[CopyView]) -> bool {
    let far_us = far_us(views);
    views.iter().any(|view| view.is_usable && view.service_us >= far_us)
}

/// Service time from which a copy is far slower than the best one. Infinite if the best copy is in
/// memory.
fn far_us(views: &[CopyView]) -> f64 {
    let times = views.iter().filter(|view| view.is_usable).map(|view| view.service_us);
    let least = times.fold(f64::INFINITY, f64::min);
    if least >= SOON_US { least * UNEVEN } else { f64::INFINITY }
}

/// Whether the policy uses measured speeds.
pub fn goes_by_speed(policy: ReadPolicy) -> bool {
    use ReadPolicy::{GraduatedPrimary, Proportional, SkipHot};
    matches!(policy, Proportional | GraduatedPrimary | SkipHot)
}
