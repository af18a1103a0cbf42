//! Changes one file: all sessions give up their leases on it, then its layout changes, and after
//! that is durable leases are granted again.
//!
//! A filled copy counts as whole only if its server confirms that again while no session writes to
//! the file: writes in between may have missed it.

use crate::leases::ranges::whole;
use crate::machine::answer::ParkedTicket;
use crate::machine::moment::Moment;
use crate::machine::state::MetaMachine;
use crate::machine::state::mover::{Job, MOVER, Visit, of_file};
use crate::machine::state::waiting::{Asked, Parked, Waits};
use crate::machine::store::fault;
use crate::ops::move_copies::{self, Filled, Made, Means};
use crate::ops::scope::Scope;
use weir_layout::place::MAX_COPIES;
use weir_metastore::{CommitOutcome, Engine, MAX_OPERATIONS, Tx};
use weir_types::{Caller, FileId, ObjectId, Result};
use weir_wire::lease::LeaseMode;
use weir_wire::message::Op;

/// Number of confirmations that are needed, because the server may have sent the first one before.
const CONFIRMATIONS: u8 = 2;
/// Time for the confirmations, while other requests wait for the file.
const CONFIRM_MS: u64 = 5_000;
/// After this many copies were begun or dropped in a transaction, it takes no further column. Each
/// column has at most [`MAX_COPIES`] of both.
const MAX_CHANGES: usize = 32;
const _: () = assert!(2 * (MAX_CHANGES + 2 * MAX_COPIES as usize) < MAX_OPERATIONS);

/// Result of an attempt.
enum Tried {
    Waits(Waits),
    /// No session has leases.
    Clear,
    /// Not possible now.
    No,
}

impl<E: Engine> MetaMachine<E> {
    /// Begins to change a file, if there is anything to do.
    pub(super) fn begin_visit(&mut self, file: FileId, from: u64, now: Moment) -> Result<()> {
        let mut scratch = self.mover.sites.clone();
        let Some(look) = self.look(file, from, &mut scratch, now)? else {
            self.mover.forget_relieved(file);
            return Ok(());
        };
        if self.mover.uncounted.remove(&file) {
            self.mover.counted.add(&look);
        }
        self.mover.encode_later(file, &look, now);
        tracing::trace!(
            file = file.0,
            change_at = look.change_at,
            due_in_ms = look.due_in_ms,
            stuck = look.stuck,
            "looked at the copies of a file"
        );
        if !look.unsettled.is_empty() {
            let since = self.engine.sequence();
            self.engine.request_sync(since);
            let waits_since_ms = now.monotonic_ms;
            self.mover.adopt(look.unsettled, look.generation, since, waits_since_ms);
        }
        let ready = self.mover.ready(file).into_iter().map(|job| job.copy.segment_start).min();
        let Some(at) = look.change_at.into_iter().chain(ready).min() else {
            match look.next {
                Some(next) => self.mover.enqueue(file, next),
                None if self.mover.jobs_of(file).next().is_none() => {
                    self.mover.forget_relieved(file);
                }
                None => {}
            }
            return Ok(());
        };
        let ticket = self.leases.waiting.ticket();
        self.visit(ticket, Visit::Asking(file, at), Asked::new(), now)
    }

    /// Continues a change that has waited, if possible.
    pub(in crate::machine) fn resume_visit(
        &mut self,
        ticket: ParkedTicket,
        parked: Parked,
        now: Moment,
    ) -> Result<()> {
        let Some(visit) = self.mover.visits.remove(&ticket) else { return Ok(()) };
        self.visit(ticket, visit, parked.asked, now)?;
        if !self.mover.visits.contains_key(&ticket) {
            parked.files.iter().for_each(|file| self.leases.waiting.file_changed(*file));
        }
        Ok(())
    }

    /// Continues changes whose layouts have become durable, or whose copies were confirmed.
    pub(in crate::machine) fn go_on_with_visits(&mut self, now: Moment) -> Result<()> {
        let synced = self.engine.synced();
        let can = |visit: &Visit| match visit {
            Visit::Asking(..) => false,
            Visit::Confirming(file, ..) => self.is_confirmed(*file),
            Visit::Syncing(_, since) => *since <= synced,
        };
        let ready = self.mover.visits.iter().filter(|(_, visit)| can(visit));
        let ready: Vec<(ParkedTicket, Visit)> = ready.map(|(t, visit)| (*t, *visit)).collect();
        for (ticket, visit) in ready {
            if matches!(visit, Visit::Syncing(..)) {
                self.mover.visits.remove(&ticket);
                self.unpark(ticket);
            } else if let Some(parked) = self.leases.waiting.take(ticket) {
                self.resume_visit(ticket, parked, now)?;
            }
        }
        Ok(())
    }

    /// Records a failed change, which the next scan of all files tries again.
    pub(in crate::machine) fn tell_of_visit(&mut self, done: Result<()>, now: Moment) {
        if let Err(error) = done {
            tracing::error!("copies of a file: {error}");
            self.mover.skipped(now);
        }
    }

    fn visit(
        &mut self,
        ticket: ParkedTicket,
        visit: Visit,
        mut asked: Asked,
        now: Moment,
    ) -> Result<()> {
        let (file, from) = match visit {
            Visit::Asking(file, from) => (file, from),
            Visit::Confirming(file, from, until_ms) => {
                if !self.is_confirmed(file) && now.monotonic_ms < until_ms {
                    self.park_visit(ticket, file, visit, asked, for_others(), now);
                    return Ok(());
                }
                let made = self.change_layout(file, from, now)?;
                self.made(ticket, file, made, now);
                return Ok(());
            }
            // Until `go_on_with_visits`.
            Visit::Syncing(file, _) => {
                self.park_visit(ticket, file, visit, asked, for_others(), now);
                return Ok(());
            }
        };
        match self.clear(ticket, file, &mut asked, now)? {
            Tried::No => self.mover.skipped(now),
            Tried::Waits(waits) => self.park_visit(ticket, file, visit, asked, waits, now),
            Tried::Clear if self.begin_confirming(file) => {
                let visit = Visit::Confirming(file, from, now.monotonic_ms + CONFIRM_MS);
                self.park_visit(ticket, file, visit, asked, for_others(), now);
            }
            Tried::Clear => {
                let made = self.change_layout(file, from, now)?;
                self.made(ticket, file, made, now);
            }
        }
        Ok(())
    }

    /// Begins to ask for confirmations. Returns whether any copies need them.
    fn begin_confirming(&mut self, file: FileId) -> bool {
        let mut jobs = self.mover.jobs.range_mut(of_file(file));
        let of = jobs.by_ref().take_while(|(object, _)| object.file == file);
        of.filter(|(_, job)| job.ready).map(|(_, job)| job.confirmed = Some(0)).count() > 0
    }

    /// Whether all copies are confirmed that were ready at the beginning. Others get a change of
    /// their own.
    fn is_confirmed(&self, file: FileId) -> bool {
        let mut asked = self.mover.jobs_of(file).filter_map(|(_, job)| job.confirmed);
        asked.all(|times| times >= CONFIRMATIONS)
    }

    fn made(&mut self, ticket: ParkedTicket, file: FileId, made: Made, now: Moment) {
        let of = self.mover.jobs.range_mut(of_file(file));
        let mut used = Vec::new();
        for (object, job) in of.take_while(|(object, _)| object.file == file) {
            // What was not confirmed in time has to be said anew.
            let Some(times) = job.confirmed.take() else { continue };
            tracing::debug!("{object} on {}: confirmed {times} times", job.copy.to);
            if times < CONFIRMATIONS {
                (job.ready, job.waits_since_ms) = (false, now.monotonic_ms);
            } else if job.copy.is_whole {
                used.push((*object, job.copy.segment_start));
            }
        }
        // It was so for as long as nobody wrote.
        for (object, start) in used {
            self.mover.jobs.remove(&object);
            self.mover.enqueue(file, start);
        }
        made.filled.iter().for_each(|object| self.mover.end_job(*object));
        // One that comes to be there again is another one.
        let is_filled = |object: &ObjectId| made.filling.iter().any(|copy| copy.object == *object);
        for object in made.dropped.iter().filter(|object| !is_filled(object)) {
            self.mover.jobs.remove(object);
        }
        self.mover.relieved.retain(|object| !made.dropped.contains(object));
        self.mover.dropped.went(&made.dropped, now.monotonic_ms);
        // Those of other pages.
        let left = self.mover.ready(file).into_iter().map(|job| job.copy.segment_start).min();
        if let Some(start) = left {
            self.mover.finish.insert(file, start);
        }
        let Some(at) = made.changed_at else {
            // What was to be changed is not any more, since somebody writes, say. It may be again.
            self.mover.look_again(file, now);
            return;
        };
        self.mover.coding.subtract(&made.coding.0);
        self.mover.coding.add(&made.coding.1);
        self.cluster.partners.moved();
        let since = self.engine.sequence();
        self.engine.request_sync(since);
        self.mover.adopt(made.filling, made.generation, since, now.monotonic_ms);
        self.mover.enqueue(file, at);
        let visit = Visit::Syncing(file, since);
        self.park_visit(ticket, file, visit, Asked::new(), for_others(), now);
    }

    fn park_visit(
        &mut self,
        ticket: ParkedTicket,
        file: FileId,
        visit: Visit,
        asked: Asked,
        waits: Waits,
        now: Moment,
    ) {
        let Scope { claims, .. } = scope(file);
        let (session, op, since_ms) = (MOVER, Op::SetLayout, now.monotonic_ms);
        let (files, body) = (vec![file], Vec::new());
        let parked = Parked { session, op, body, since_ms, files, claims, asked, waits };
        self.leases.waiting.park(ticket, parked);
        self.mover.visits.insert(ticket, visit);
    }

    fn clear(
        &mut self,
        ticket: ParkedTicket,
        file: FileId,
        asked: &mut Asked,
        now: Moment,
    ) -> Result<Tried> {
        let found = self.obstacles(MOVER, ticket, &scope(file), asked, now);
        if found.any() {
            return Ok(Tried::Waits(self.ask(found, asked, now)));
        }
        // Nobody who lives loses anything for the sake of a copy.
        if found.sessions().any(|who| !self.is_silent(who, now)) {
            return Ok(Tried::No);
        }
        self.take_away(&found, now)?;
        Ok(Tried::Clear)
    }

    fn change_layout(&mut self, file: FileId, from: u64, now: Moment) -> Result<Made> {
        // One more than there is room for, so that it ends.
        let (most, room) = (MAX_CHANGES, self.mover.room().max(1));
        let caller = Caller::ROOT;
        let confirmed = |job: &Job| job.confirmed.is_some_and(|times| times >= CONFIRMATIONS);
        let ready = self.mover.ready(file).into_iter().filter(|job| confirmed(job));
        let filled: Vec<Filled> = ready.map(|job| job.copy.clone()).collect();
        loop {
            let mut sites = std::mem::take(&mut self.mover.sites);
            let mut tx = Tx::new(&self.engine);
            let mut ctx = self.context(MOVER, &caller, FileId(0), now);
            let relieved = &self.mover.relieved;
            let mut means = Means {
                sites: &mut sites,
                relieved,
                most,
                room,
                filled: &filled,
                writers: self.writers(now),
            };
            let made = move_copies::change(&mut tx, &mut ctx, file, from, &mut means);
            let effects = ctx.effects;
            let commit = made.and_then(|made| Ok((made, tx.into_commit()?)));
            self.mover.sites = sites;
            let (made, commit) = commit.map_err(fault)?;
            if let CommitOutcome::Committed(_) = self.engine.commit(commit)? {
                self.apply(MOVER, effects);
                return Ok(made);
            }
            self.counters.conflicts += 1;
        }
    }
}

/// A wait for the disk, or for servers.
fn for_others() -> Waits {
    Waits { other: true, ..Waits::default() }
}

/// What has to be given up: all leases, and cached attributes with the generation.
fn scope(file: FileId) -> Scope {
    let claims = vec![whole(file, LeaseMode::Write)];
    Scope { attributes: vec![file], claims, ..Scope::default() }
}
