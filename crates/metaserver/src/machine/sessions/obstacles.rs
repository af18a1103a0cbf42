//! Obstacles of a request: events that other sessions have to acknowledge, earlier requests, and
//! the time after a restart. Also the treatment of sessions that do not answer.

use crate::leases::events::Ask;
use crate::leases::ranges::whole;
use crate::machine::answer::ParkedTicket;
use crate::machine::moment::Moment;
use crate::machine::state::MetaMachine;
use crate::machine::state::leases::NOBODY;
use crate::machine::state::waiting::{Asked, Waits};
use crate::machine::store::fault;
use crate::ops::recovered::fence;
use crate::ops::scope::Scope;
use std::collections::BTreeSet;
use weir_host::plant::{Bug, planted};
use weir_metastore::{Engine, transact};
use weir_types::{FileId, Result, SessionId};
use weir_wire::lease::{LeaseMode, LeaseRange};
use weir_wire::message::Op;

/// The obstacles of a request.
#[derive(Debug, Default)]
pub(in crate::machine) struct Obstacles {
    /// Events to send.
    asks: BTreeSet<(SessionId, Ask)>,
    /// Events that are waited for already.
    pub waits: Waits,
    /// Cached entries of sessions that do not answer.
    dead_beliefs: BTreeSet<(SessionId, FileId)>,
    dead_leases: BTreeSet<(SessionId, FileId)>,
}

impl Obstacles {
    /// Whether the request has to wait.
    pub fn any(&self) -> bool {
        self.waits.other || !self.waits.events.is_empty() || !self.asks.is_empty()
    }
}

impl<E: Engine> MetaMachine<E> {
    /// Whether a request has to wait until clients have reported what they hold.
    pub(in crate::machine) fn grace_holds(
        &self,
        session: SessionId,
        op: Op,
        scope: &Scope,
    ) -> bool {
        if self.leases.grace.is_none() || planted(Bug::GrantInGrace) {
            return false;
        }
        let ranges = &self.leases.ranges;
        let files = scope.files();
        match op {
            Op::Readlink | Op::GetXattr | Op::ListXattr | Op::Statfs | Op::GetLayout => false,
            Op::GetDefaultLayout | Op::Close | Op::Reassert => false,
            Op::GetAttr => {
                let known = |file: &FileId| ranges.covers(session, &whole(*file, LeaseMode::Read));
                !files.iter().all(known)
            }
            Op::CommitSize => !files.iter().all(|file| ranges.writes(session, *file)),
            Op::Acquire => !scope.claims.iter().all(|lease| ranges.covers(session, lease)),
            // These change nothing that others are told of.
            Op::Extend | Op::TruncateDone | Op::Room | Op::Accessed => false,
            _ => {
                let own = |file: &FileId| ranges.covers(session, &whole(*file, LeaseMode::Write));
                !scope.names.is_empty() || files.is_empty() || !files.iter().all(own)
            }
        }
    }

    /// The obstacles of a request with this scope. `asked` has the events sent on its behalf.
    pub(in crate::machine) fn obstacles(
        &self,
        session: SessionId,
        ticket: ParkedTicket,
        scope: &Scope,
        asked: &Asked,
        now: Moment,
    ) -> Obstacles {
        let mut found = Obstacles::default();
        let leases = &self.leases;
        for claim in &scope.claims {
            found.waits.other |= leases.waiting.is_behind(ticket, session, claim);
            // What the client gives up just now it would give up again.
            let own = leases.events.recalls(session, claim).map(|number| (session, number));
            found.waits.events.extend(own);
        }
        if found.any() {
            // Its turn comes: until then nobody is asked in vain.
            return found;
        }
        let mut need = |who: SessionId, ask: Ask| {
            let key = (who, ask);
            if let Some(&number) = asked.get(&key) {
                if leases.events.since(who, number).is_some() {
                    if self.is_overdue(who, number, now) {
                        found.give_up(key);
                    } else {
                        found.waits.events.insert((who, number));
                    }
                    return;
                }
                if let Some(lapse) = leases.events.lapse_of(who)
                    && !self.is_silent(who, now)
                {
                    // It has not obeyed: all that it was asked became one thing, which it
                    // does not know yet.
                    if self.is_overdue(who, lapse, now) {
                        found.give_up(key);
                    } else {
                        found.waits.events.insert((who, lapse));
                    }
                    return;
                }
                if matches!(key.1, Ask::Name(..) | Ask::Report(_)) && !self.is_silent(who, now) {
                    // It has obeyed, and learned nothing new since.
                    return;
                }
            }
            match leases.events.number(who, &key.1) {
                _ if self.is_silent(who, now) => found.give_up(key),
                Some(number) if self.is_overdue(who, number, now) => found.give_up(key),
                _ => {
                    found.asks.insert(key);
                }
            }
        };
        for (dir, name) in &scope.names {
            if planted(Bug::KeepBelief) {
                continue;
            }
            for who in leases.beliefs.others(session, *dir) {
                need(who, Ask::Name(*dir, name.clone()));
            }
        }
        for file in &scope.attributes {
            for who in leases.beliefs.others(session, *file) {
                need(who, Ask::Attributes(*file));
            }
        }
        for file in &scope.removals {
            for who in leases.beliefs.others_who_know(session, *file) {
                need(who, Ask::Removal(*file));
            }
        }
        for file in &scope.reports {
            for who in leases.ranges.other_writers(session, *file) {
                need(who, Ask::Report(*file));
            }
        }
        for claim in &scope.claims {
            // What will be granted, and not only what was asked for.
            for who in leases.ranges.in_the_way(session, claim) {
                if !planted(Bug::SkipRecall) {
                    need(who, Ask::recall(claim));
                }
            }
        }
        // A fence stops everybody who writes to the file: the living write
        // back first, and come again.
        let fenced =
            found.dead_leases.iter().filter(|(who, file)| leases.ranges.writes(*who, *file));
        let fenced: BTreeSet<FileId> = fenced.map(|(_, file)| *file).collect();
        for file in fenced {
            // Of all sessions.
            for who in leases.ranges.other_writers(NOBODY, file) {
                if self.is_silent(who, now) {
                    found.dead_leases.insert((who, file));
                } else if !found.dead_leases.contains(&(who, file)) {
                    let ask = Ask::recall(&whole(file, LeaseMode::Write));
                    match leases.events.number(who, &ask) {
                        Some(number) if self.is_overdue(who, number, now) => {
                            found.dead_leases.insert((who, file));
                        }
                        _ => {
                            found.asks.insert((who, ask));
                        }
                    }
                }
            }
        }
        found
    }

    /// Sends the events that a request needs, and records them.
    pub(in crate::machine) fn ask(
        &mut self,
        mut found: Obstacles,
        asked: &mut Asked,
        now: Moment,
    ) -> Waits {
        for (who, ask) in std::mem::take(&mut found.asks) {
            match self.send_event(who, &ask, now) {
                Some(number) => {
                    found.waits.events.insert((who, number));
                    asked.insert((who, ask), number);
                }
                None => found.waits.other = true,
            }
        }
        found.waits
    }

    /// Revokes what a session holds of a file, and fences the session off if it may write.
    pub(in crate::machine) fn fence(&mut self, who: SessionId, file: FileId) -> Result<()> {
        if self.leases.ranges.writes(who, file) && !planted(Bug::SkipFence) {
            transact(&mut self.engine, |tx| fence(tx, file).map_err(fault))?;
        }
        self.leases.ranges.drop_file(who, file);
        self.leases.counters.lapsed += 1;
        Ok(())
    }

    /// Revokes the obstacles of silent sessions, after all other obstacles are gone.
    pub(in crate::machine) fn take_away(&mut self, found: &Obstacles, now: Moment) -> Result<()> {
        for &(who, file) in &found.dead_leases {
            self.fence(who, file)?;
        }
        for &(who, file) in &found.dead_beliefs {
            self.leases.beliefs.was_told(who, file);
        }
        let of_leases = found.dead_leases.iter().map(|(who, _)| *who);
        let all: BTreeSet<SessionId> =
            found.dead_beliefs.iter().map(|(who, _)| *who).chain(of_leases).collect();
        for who in all {
            self.lapse(who, now);
        }
        Ok(())
    }
}

impl Obstacles {
    /// The sessions that lose something.
    pub fn sessions(&self) -> impl Iterator<Item = SessionId> {
        self.dead_leases.iter().chain(&self.dead_beliefs).map(|(who, _)| *who)
    }

    /// Adds what a session that does not answer has to lose.
    fn give_up(&mut self, (who, ask): (SessionId, Ask)) {
        match ask {
            Ask::Name(file, _) | Ask::Attributes(file) | Ask::Removal(file) => {
                self.dead_beliefs.insert((who, file))
            }
            Ask::Recall(file, ..) | Ask::Report(file) => self.dead_leases.insert((who, file)),
        };
    }
}

/// Makes the granted range the claimed one.
pub(in crate::machine) fn widened(scope: &mut Scope, lease: LeaseRange) {
    scope.claims = vec![lease];
}
