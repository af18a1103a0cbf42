//! Work on one file: everybody gives up the leases of it, then its layout changes, and
//! when that is durable leases may be had again.

use super::Means;
use crate::leases::ranges::whole;
use crate::machine::servers::fault;
use crate::machine::waiting::{Asked, Parked, ParkedTicket, Waits};
use crate::machine::{MetaMachine, Moment};
use crate::ops::move_copies::{self, Made};
use crate::ops::scope::Scope;
use weir_layout::place::MAX_COPIES;
use weir_metastore::{CommitOutcome, Engine, MAX_OPERATIONS, Sequence, Tx};
use weir_types::{Caller, FileId, Result, SessionId};
use weir_wire::lease::LeaseMode;
use weir_wire::message::Op;

/// Files whose layouts are being changed at a time.
pub(super) const MAX_VISITS: usize = 64;
/// When so many copies have been begun or dropped in a transaction it takes no further
/// column, each of which has at most [`MAX_COPIES`] of both.
const MAX_CHANGES: usize = 32;
const _: () = assert!(2 * (MAX_CHANGES + 2 * MAX_COPIES as usize) < MAX_OPERATIONS);
/// In whose name leases are asked back. No session: it holds none.
pub(in crate::machine) const MOVER: SessionId = SessionId(u64::MAX);

/// A file that is worked on, while requests about it wait.
#[derive(Clone, Copy, Debug)]
pub(super) enum Visit {
    /// Leases have been asked back. From which byte on it is to be changed.
    Asking(FileId, u64),
    /// It has been changed: until that is durable.
    Syncing(FileId, Sequence),
}

/// How an attempt went.
enum Tried {
    Waits(Waits),
    Made(Made),
    /// Not now.
    No,
}

impl<E: Engine> MetaMachine<E> {
    /// Begins to work on a file, if there is anything to do.
    pub(super) fn begin_visit(&mut self, file: FileId, from: u64, now: Moment) -> Result<()> {
        let mut scratch = self.mover.sites.clone();
        let Some(look) = self.look(file, from, &mut scratch)? else { return Ok(()) };
        self.mover.left |= look.stuck > 0;
        let Some(at) = look.change_at else {
            if let Some(next) = look.next {
                self.mover.enqueue(file, next);
            }
            return Ok(());
        };
        let ticket = self.leases.waiting.ticket();
        self.visit(ticket, Visit::Asking(file, at), Asked::new(), now)
    }

    /// One that waited may be able to go on.
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

    /// Layouts that have become durable: whoever waits for leases gets them.
    pub(in crate::machine) fn end_durable_visits(&mut self) {
        let synced = self.engine.synced();
        let done = |visit: &Visit| matches!(visit, Visit::Syncing(_, since) if *since <= synced);
        let done = self.mover.visits.iter().filter(|(_, visit)| done(visit));
        let done: Vec<ParkedTicket> = done.map(|(ticket, _)| *ticket).collect();
        for ticket in done {
            self.mover.visits.remove(&ticket);
            self.unpark(ticket);
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
            // Until `end_durable_visits`.
            Visit::Syncing(file, _) => {
                return Ok(self.park_visit(ticket, file, visit, asked, waits_for_disk(), now));
            }
        };
        match self.try_change(ticket, (file, from), &mut asked, now)? {
            Tried::No => self.mover.skipped(now),
            Tried::Waits(waits) => self.park_visit(ticket, file, visit, asked, waits, now),
            Tried::Made(made) => self.made(ticket, file, made, now),
        }
        Ok(())
    }

    fn made(&mut self, ticket: ParkedTicket, file: FileId, made: Made, now: Moment) {
        let Some(at) = made.changed_at else { return };
        let since = self.engine.sequence();
        self.engine.request_sync(since);
        self.mover.adopt(made.filling, made.generation, since);
        self.mover.enqueue(file, at);
        let visit = Visit::Syncing(file, since);
        self.park_visit(ticket, file, visit, Asked::new(), waits_for_disk(), now);
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

    fn try_change(
        &mut self,
        ticket: ParkedTicket,
        (file, from): (FileId, u64),
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
        self.change_layout(file, from, now).map(Tried::Made)
    }

    fn change_layout(&mut self, file: FileId, from: u64, now: Moment) -> Result<Made> {
        let room = self.mover.most_jobs().saturating_sub(self.mover.jobs.len());
        let most = room.clamp(1, MAX_CHANGES);
        let caller = Caller::ROOT;
        loop {
            let mut sites = std::mem::take(&mut self.mover.sites);
            let mut tx = Tx::new(&self.engine);
            let mut ctx = self.context(MOVER, &caller, FileId(0), now);
            let relieved = &self.mover.relieved;
            let mut means = Means { sites: &mut sites, relieved, most };
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

fn waits_for_disk() -> Waits {
    Waits { other: true, ..Waits::default() }
}

/// What has to be given up: all leases, and what is known of the generation.
fn scope(file: FileId) -> Scope {
    let claims = vec![whole(file, LeaseMode::Write)];
    Scope { attributes: vec![file], claims, ..Scope::default() }
}
