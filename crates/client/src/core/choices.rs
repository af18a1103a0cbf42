//! Which copy of a column is read, by what is known of the targets ([`super::pace`]);
//! [`weir_policy`] decides.
//!
//! Invariant: a copy that is not usable is never chosen.

mod look;
#[cfg(test)]
mod tests;

use self::look::Look;
use super::pace::{Paces, Who, who};
use crate::job::JobReader;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use weir_policy::{
    CopyView, FAR_BEHIND, LAST_REQUESTS, Micros, Progress, RUN_BYTES, ReadPolicy, Router, Runs,
    SOON_US, UNKNOWN, Watermarks,
};
use weir_types::{ColumnIndex, SegmentIndex, TargetId};
use weir_wire::frame::REQUEST_COST_BYTES;

/// Turning to another place costs what a disk would spend on so much: with a seek, and with what
/// the kernel has read ahead at the other copy.
const TURN_BYTES: f64 = 1_048_576.0;
/// Progress is made by about so much at a time: two pieces. (With one, who reads in small calls is
/// helped without need while the kernel's read-ahead begins.)
const REQUEST_BYTES: u64 = 512 << 10;
/// A reader that has read less than this has only begun.
const BEGUN_BYTES: f64 = 524_288.0;
/// Where several copies are read at the same time they take turns after so much: less than what a
/// reader has outstanding, so that all have something to do.
const SHORT_RUN_BYTES: u64 = 1 << 20;
/// Disks that serve nobody else lose little by turns: each has something to do soon.
const LONE_RUN_BYTES: u64 = 512 << 10;
/// A reader has so many requests outstanding at each copy, so that it is decided late which copy
/// serves what, and a disk has the next one when it has done one;
const WINDOW_REQUESTS: u64 = 2;
/// where they are small more of them, which a disk can put in order,
const MIN_WINDOW_BYTES: u64 = 512 << 10;
/// and more where own readers are ahead: what a disk has begun nobody puts in order, and others
/// would have every second turn if no more of this reader's were waiting; and one whose limit is
/// kept by the tenth of a second does 2 MiB of 20 MiB/s at once, and then nothing. So much of all
/// other copies together, and of one that is slower than the first in proportion less: a reader goes
/// from front to back, and would stand still, with its own disk, until that has done more;
const BEHIND_WINDOW_BYTES: u64 = 2 << 20;
/// and of large ones no more than this.
const MAX_WINDOW_BYTES: u64 = 2 << 20;
/// Reads that come within so long are of one program, as a rule, and in no order.
const TOGETHER_US: Micros = 50_000;
/// What nothing is known of is taken to be so fast: a disk like others.
const NOMINAL_US_PER_MIB: f64 = 5_000.0;
/// Copies are far from alike if one takes so many times as long as another.
const UNEVEN: f64 = 2.0;
/// So many are remembered, of all columns and readers of a file.
const MAX_COLUMNS: usize = 2048;
/// A copy that has failed is left alone for so long.
const REFUSED_US: Micros = 1_000_000;
/// Refusals of one file that are remembered.
const MAX_REFUSED: usize = 16;

/// A column of a file.
pub type ColumnKey = (SegmentIndex, ColumnIndex);
/// In a column each process of a job has what it may have outstanding, and what it goes by, for
/// itself, also where several of them are on one node; programs of none have it together.
type ReaderKey = (ColumnKey, Who);

/// A copy that may be read.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// On which target.
    pub target: TargetId,
    /// Whole, and its target online and not in doubt.
    pub is_usable: bool,
}

/// A part of a read, in its column.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Of which column.
    pub column: ColumnKey,
    /// Its first byte in the object.
    pub offset: u64,
    /// Its bytes.
    pub len_bytes: u64,
    /// What the file has behind it in this column, about: a program of no job is taken to read to
    /// the end.
    pub rest_bytes: u64,
    /// When it was called for.
    pub since: Micros,
    /// For which process of a job.
    pub reader: Option<Arc<JobReader>>,
}

impl Wanted {
    fn key(&self) -> ReaderKey {
        (self.column, who(self.reader.as_deref()))
    }
}

/// A copy that is to be read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chosen {
    /// Which of the candidates.
    pub at: usize,
    /// It is predicted to answer after so long; 0: nothing is known of it.
    pub answer_us: f64,
    /// It is known to have it at once, as from memory.
    is_quick: bool,
}

impl Chosen {
    fn of(at: usize, view: &CopyView, is_known: bool) -> Self {
        let answer_us = if is_known { view.answer_us() } else { 0.0 };
        let is_quick = is_known && 0.0 < view.service_us && view.service_us < SOON_US;
        Self { at, answer_us, is_quick }
    }
}

/// What comes of asking for a copy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Choice {
    /// Read this one.
    Copy(Chosen),
    /// Those that are to be read have enough to do: later, when one has answered, or others are
    /// ahead.
    Later,
    /// Others wait that come before this one.
    Behind,
    /// None is usable.
    None,
}

/// Where a read stands that waits for a copy to have room: those of a column come in the order in
/// which they came, and what came at about the same time in the order of the file, as one program
/// reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Turn {
    column: ColumnKey,
    /// Each has a line of its own.
    who: Who,
    /// What came since then counts as the same time.
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

    /// Of its line.
    fn first(self) -> Self {
        Self { came: 0, offset: 0, number: 0, ..self }
    }
}

/// Who wants what is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// It is fetched ahead: nobody waits for it yet.
    Ahead,
    /// Somebody waits for it, but it does not wait for its turn: more of the same call was asked
    /// for, or it has waited for long enough.
    None,
    /// It may be told to wait for its turn, which it has already if it waits.
    Turn(Option<Turn>),
}

/// What was asked of which copy, as long as it is outstanding.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// Of which column.
    pub column: ColumnKey,
    /// For whom.
    pub who: Who,
    /// Which of the candidates.
    pub copy: usize,
    /// Its bytes.
    pub len_bytes: u64,
    /// It might have waited for its turn.
    pub waited: bool,
}

/// What is known of a reader in a column.
#[derive(Debug)]
struct Column {
    router: Router,
    /// What is outstanding at each copy.
    outstanding: Vec<Outstanding>,
    /// When a copy was asked last for something that might have waited, or was done with it.
    moved: Micros,
    /// How fast the reader is.
    look: Look,
}

/// Of one column at one copy, without what is fetched ahead.
#[derive(Clone, Copy, Debug, Default)]
struct Outstanding {
    requests: u32,
    bytes: u64,
    /// Those that might have waited. What others hold, which are taken in the order of their
    /// call, nobody waits for.
    waited_requests: u32,
    waited_bytes: u64,
}

impl Outstanding {
    /// Whether the copy has so much to do that it is busy until more can be asked for.
    fn is_full((requests, bytes): (u32, u64), len_bytes: u64, least_bytes: u64) -> bool {
        let window = (WINDOW_REQUESTS * len_bytes).clamp(least_bytes, MAX_WINDOW_BYTES);
        u64::from(requests) >= WINDOW_REQUESTS && bytes + len_bytes > window
    }
}

impl Column {
    fn new(policy: ReadPolicy, copies: usize) -> Self {
        let marks = Watermarks { request_bytes: REQUEST_BYTES, ..Watermarks::default() };
        let router = Router::new(policy, copies, marks);
        Self {
            router,
            outstanding: vec![Outstanding::default(); copies],
            moved: 0,
            look: Look::default(),
        }
    }

    /// `least_bytes`: it may have so much to do in any case.
    fn is_full(
        &self,
        copy: usize,
        len_bytes: u64,
        (patience, least_bytes): (Patience, u64),
    ) -> bool {
        let of = self.outstanding[copy];
        match patience {
            Patience::Ahead => false,
            Patience::None => Outstanding::is_full((of.requests, of.bytes), len_bytes, least_bytes),
            Patience::Turn(_) => {
                let waited = (of.waited_requests, of.waited_bytes);
                Outstanding::is_full(waited, len_bytes, least_bytes)
            }
        }
    }

    fn is_idle(&self) -> bool {
        self.outstanding.iter().all(|of| of.requests == 0)
    }
}

/// The choices of one file's readers.
#[derive(Debug, Default)]
pub struct Choices {
    columns: BTreeMap<ReaderKey, Column>,
    /// Who reads in the same place reads the same copy, so that its disk goes there once.
    runs: Runs<ColumnKey>,
    /// Copies that have failed, and until when they are left alone.
    refused: Vec<(ColumnKey, usize, Micros)>,
    /// Reads that wait.
    waiting: BTreeSet<Turn>,
    turns: u64,
}

impl Choices {
    /// Which of the copies is read; and whether targets are to be asked that were not asked before.
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

    /// What is known of each copy; and which may be read, whether they answer or not.
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

    /// Of a program that knows of no other one copy has enough as long as it has something to do and
    /// another has nothing, to which it costs nothing to turn: so both are at work from the
    /// beginning.
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

    /// A read that waits from now on; it is to be [`Choices::leave`]d.
    pub fn wait(&mut self, wanted: &Wanted) -> Turn {
        self.turns += 1;
        let turn = Turn::of(wanted, self.turns);
        self.waiting.insert(turn);
        turn
    }

    /// It waits no more; whether anybody does.
    pub fn leave(&mut self, turn: Turn) -> bool {
        self.waiting.remove(&turn);
        !self.waiting.is_empty()
    }

    /// When the line of its reader in its column last went on.
    pub fn moved(&self, wanted: &Wanted) -> Micros {
        self.columns.get(&wanted.key()).map_or(0, |of| of.moved)
    }

    /// A copy is asked, for somebody who waits for it.
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

    /// It has answered, or will not; whether anybody waits.
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

    /// A copy did not give what was asked for.
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

/// Others who wait see what this reader sees, and go where it would: of all that others have at the
/// copies a far slower one is taken to have its part by its speed at least.
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

/// From such a time on a copy is far slower than the best; without an end if that is in memory.
fn far_us(views: &[CopyView]) -> f64 {
    let times = views.iter().filter(|view| view.is_usable).map(|view| view.service_us);
    let least = times.fold(f64::INFINITY, f64::min);
    if least >= SOON_US { least * UNEVEN } else { f64::INFINITY }
}

/// Whether what is known of targets counts.
pub fn goes_by_speed(policy: ReadPolicy) -> bool {
    use ReadPolicy::{GraduatedPrimary, Proportional, SkipHot};
    matches!(policy, Proportional | GraduatedPrimary | SkipHot)
}
