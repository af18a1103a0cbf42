//! Requests that may have to wait for other sessions: what they touch, and whether they can run.

use super::execute::Done;
use crate::leases::ranges::whole_blocks;
use crate::machine::answer::{Answer, ParkedTicket, Reply, request};
use crate::machine::moment::Moment;
use crate::machine::sessions::obstacles::{Obstacles, widened};
use crate::machine::state::MetaMachine;
use crate::machine::state::waiting::{Asked, Parked, Waits};
use crate::machine::store::fault;
use crate::ops::acquire::may_hold;
use crate::ops::scope::{self, Scope, Told};
use crate::ops::{Fault, confine};
use weir_metastore::{Engine, Tx};
use weir_types::codec::Reader;
use weir_types::{Caller, Decode, Encode, Error, ErrorKind, FileId, Result, SessionId};
use weir_wire::Rights;
use weir_wire::lease::{AcquireRequest, LeaseRange};
use weir_wire::message::Op;
use weir_wire::meta::MetaPrefix;

/// Result of running a request.
pub(in crate::machine) enum Attempted {
    Answered(Answer),
    /// It has to wait; with the reason, and what it touches.
    Waits(Waits, Scope),
}

impl<E: Engine> MetaMachine<E> {
    /// Handles a request that may have to wait for other sessions.
    pub(in crate::machine) fn consider(
        &mut self,
        session: SessionId,
        op: Op,
        body: &[u8],
        now: Moment,
    ) -> Result<Answer> {
        let ticket = self.leases.waiting.ticket();
        let mut asked = Asked::new();
        match self.try_run(session, op, body, ticket, &mut asked, now)? {
            Attempted::Answered(answer) => Ok(answer),
            Attempted::Waits(waits, scope) => {
                self.leases.waiting.check_room(session, op, body.len())?;
                self.leases.counters.parked += 1;
                let since_ms = now.monotonic_ms;
                self.park(ticket, (session, op, body.to_vec(), since_ms), asked, waits, scope);
                Ok(Answer::Parked(ticket))
            }
        }
    }

    pub(in crate::machine) fn park(
        &mut self,
        ticket: ParkedTicket,
        (session, op, body, since_ms): (SessionId, Op, Vec<u8>, u64),
        asked: Asked,
        waits: Waits,
        scope: Scope,
    ) {
        let files = scope.files();
        let claims = scope.claims;
        let parked = Parked { session, op, body, since_ms, files, claims, asked, waits };
        self.leases.waiting.park(ticket, parked);
    }

    /// Runs a request if nothing blocks it.
    pub(in crate::machine) fn try_run(
        &mut self,
        session: SessionId,
        op: Op,
        body: &[u8],
        ticket: ParkedTicket,
        asked: &mut Asked,
        now: Moment,
    ) -> Result<Attempted> {
        let mut rest = Reader::new(body);
        let mut prefix = MetaPrefix::decode(&mut rest)?;
        prefix.caller = self.limits_of(session).squashed(prefix.caller);
        if let Some(done) = self.repeated(session, op, &prefix)? {
            return Ok(Attempted::Answered(self.answer(done)));
        }
        let scope = self.scope(session, op, rest.clone())?;
        if self.grace_holds(session, op, &scope) {
            let waits = Waits { other: true, ..Waits::default() };
            return Ok(Attempted::Waits(waits, scope));
        }
        let found: Obstacles = self.obstacles(session, ticket, &scope, asked, now);
        if found.any() {
            let waits = self.ask(found, asked, now);
            return Ok(Attempted::Waits(waits, scope));
        }
        if let Some(file) = self.to_be_thawed(session, (op, rest.clone()), &prefix.caller)? {
            if let Some(error) = self.mover.gives_up_thaw(file) {
                return Ok(Attempted::Answered(Answer::Now(Reply::error(&error))));
            }
            self.mover.await_thaw(file, now);
            let waits = Waits { other: true, ..Waits::default() };
            // It claims nothing: the mover comes first.
            let scope = Scope { attributes: vec![file], ..Scope::default() };
            return Ok(Attempted::Waits(waits, scope));
        }
        if op == Op::Acquire
            && let Some(claim) = scope.claims.first()
            && !self.has_room(session, claim, now)
        {
            let waits = Waits { other: true, ..Waits::default() };
            return Ok(Attempted::Waits(waits, scope));
        }
        self.take_away(&found, now)?;
        let answer = match (op, scope.claims.first()) {
            (Op::Acquire, Some(granted)) => self.acquire(session, &prefix, rest, granted, now)?,
            (Op::Reassert, _) => {
                let mut done = self.execute(session, op, &prefix, rest.clone(), now)?;
                if done.reply.status.is_none() {
                    let lost = self.reassert(session, &request(rest)?)?;
                    done.reply = Reply::ok(&lost);
                }
                self.answer(done)
            }
            _ => {
                let mut done = self.execute(session, op, &prefix, rest.clone(), now)?;
                let also = std::mem::take(&mut done.also);
                let mut answer = self.answer(done);
                self.note_keep(session, (op, rest), (&mut answer, also), now)?;
                answer
            }
        };
        Ok(Attempted::Answered(answer))
    }

    /// See [`scope::to_be_thawed`].
    fn to_be_thawed(
        &self,
        session: SessionId,
        (op, rest): (Op, Reader<'_>),
        caller: &Caller,
    ) -> Result<Option<FileId>> {
        if !self.cluster.view.mirrored || self.limits_of(session).read_only {
            return Ok(None);
        }
        let writes = |file| {
            let rights = self.opens.rights(session, file);
            rights.is_some_and(|rights| rights.allow(Rights::WRITE))
        };
        let (mut tx, root) = (Tx::new(&self.engine), self.root_of(session));
        match scope::to_be_thawed(&mut tx, (op, rest), root, (caller, writes)) {
            Ok(file) => Ok(file),
            // It is refused with that when it is run.
            Err(Fault::Refused(_)) => Ok(None),
            Err(error) => Err(fault(error)),
        }
    }

    /// The scope of a request. Without other sessions that hold anything it is empty.
    fn scope(&self, session: SessionId, op: Op, rest: Reader<'_>) -> Result<Scope> {
        let alone = !self.leases.events.others_poll(session)
            && self.leases.grace.is_none()
            && self.leases.orphaned.is_empty();
        if alone && op != Op::Acquire {
            return Ok(Scope::default());
        }
        if self.limits_of(session).read_only && confine::is_change(op, rest.clone()) {
            return Ok(Scope::default());
        }
        let polls = self.leases.events.has_polled(session);
        let root = self.root_of(session);
        let mut tx = Tx::new(&self.engine);
        let mut scope = scope::of(&mut tx, (op, rest), root, polls).map_err(fault)?;
        if op == Op::CommitSize
            && scope.claims.iter().any(|it| self.leases.ranges.writes(session, it.file))
        {
            // It has a lease, whatever the file says by now, and may be asked for
            // this report by who waits for that lease.
            scope.claims.clear();
        }
        if !self.reaches_all(session, &scope.files())? {
            // It is refused when it is run: nobody has to give anything up for it.
            return Ok(Scope::default());
        }
        if op == Op::Acquire
            && let Some(asked) = scope.claims.first()
        {
            let lease = self.wanted(session, asked)?;
            let rights = self.opens.rights(session, asked.file);
            if !rights.is_some_and(|rights| may_hold(rights, asked.mode)) {
                // As above.
                return Ok(Scope::default());
            }
            widened(&mut scope, lease);
        }
        Ok(scope)
    }

    /// The lease to grant for a request.
    fn wanted(&self, session: SessionId, asked: &LeaseRange) -> Result<LeaseRange> {
        let invalid = |what: &str| Error::new(ErrorKind::InvalidArgument, what);
        if !self.leases.events.has_polled(session) {
            // Its first poll is on the way, if it is one that polls.
            let message = "a session gets leases only after its first poll for events: try again";
            return Err(Error::new(ErrorKind::Overloaded, message));
        }
        let asked =
            whole_blocks(asked).ok_or_else(|| invalid("the range of the lease is empty"))?;
        if self.leases.ranges.covers(session, &asked) {
            return Ok(self.leases.ranges.around(session, &asked));
        }
        Ok(self.leases.ranges.reach(session, &asked))
    }

    fn acquire(
        &mut self,
        session: SessionId,
        prefix: &MetaPrefix,
        rest: Reader<'_>,
        granted: &LeaseRange,
        now: Moment,
    ) -> Result<Answer> {
        let asked = request::<AcquireRequest>(rest)?.lease;
        let body = AcquireRequest { lease: granted.clone() }.to_bytes();
        let done = self.execute(session, Op::Acquire, prefix, Reader::new(&body), now)?;
        if done.reply.status.is_none() {
            let asked = whole_blocks(&asked);
            self.leases.ranges.grant(session, granted, asked.as_ref());
            self.leases.counters.granted += 1;
        }
        let mut answer = self.answer(done);
        if let Some(reply) = answer.reply_mut().filter(|reply| reply.status.is_none()) {
            let told = Told { names: None, attributes: vec![granted.file] };
            reply.keep = self.keep(session, &told, now);
        }
        Ok(answer)
    }

    /// The reply of a completed operation.
    fn answer(&mut self, done: Done) -> Answer {
        if done.objects_follow { self.after_sync(done.reply) } else { Answer::Now(done.reply) }
    }
}
