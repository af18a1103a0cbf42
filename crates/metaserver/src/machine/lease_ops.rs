//! Requests about leases and events, waiting requests, and what a client may cache of a reply.

use super::mover::MOVER;
use super::obstacles::{Obstacles, widened};
use super::servers::fault;
use super::waiting::{Asked, Parked, ParkedTicket, Waiting, Waits};
use super::{Answer, MetaMachine, Moment, Peer, Reply, request};
use crate::leases::beliefs::Beliefs;
use crate::leases::events::{Ask, Events};
use crate::leases::ranges::{Ranges, Room, whole, whole_blocks};
use crate::ops::acquire::may_hold;
use crate::ops::scope::{self, Scope, Told};
use crate::ops::{Fault, Unsettled, confine, inodes};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use weir_metastore::{Engine, Tx};
use weir_types::codec::Reader;
use weir_types::{Caller, Decode, Encode, Error, ErrorKind, FileId, Result, SessionId};
use weir_wire::Rights;
use weir_wire::lease::{AcquireRequest, EventAck, Events as EventsReply, HeldLease, LeaseRange};
use weir_wire::message::Op;
use weir_wire::meta::{MetaPrefix, ReassertRequest};

/// Files fenced at each tick whose writers have ended.
const FENCES_PER_TICK: usize = 256;
/// Stands for no session: it holds leases of ended sessions whose files still have to be fenced.
pub(super) const NOBODY: SessionId = SessionId(0);
/// A poll waits for this part of the lease time: clients use its first four fifths only.
const POLL_PART: u64 = 4;

/// Counters of leases.
#[derive(Debug, Default)]
pub(super) struct LeaseCounters {
    pub granted: u64,
    recalled: u64,
    pub lapsed: u64,
    sent: u64,
    acknowledged: u64,
    parked: u64,
    parked_ms_max: u64,
}

/// State of everything that clients hold.
#[derive(Debug, Default)]
pub(super) struct Leases {
    pub ranges: Ranges,
    pub beliefs: Beliefs,
    pub events: Events,
    pub waiting: Waiting,
    pub counters: LeaseCounters,
    /// Sessions that have not reported what they hold since the server started; `None` after that
    /// time.
    pub grace: Option<BTreeSet<SessionId>>,
    /// Events that ask sessions to make space for more leases.
    pub room_asked: BTreeMap<SessionId, BTreeSet<u64>>,
    polls: BTreeMap<SessionId, Poll>,
    /// Time of each session's last poll.
    polled_ms: BTreeMap<SessionId, u64>,
    /// Replies to waiting requests.
    answers: Vec<(ParkedTicket, Answer)>,
    /// Files on which sessions had write leases when they ended.
    pub orphaned: VecDeque<(SessionId, FileId)>,
    /// Requests that have waited since before this time were logged.
    pub told_until_ms: u64,
}

#[derive(Debug)]
struct Poll {
    ticket: ParkedTicket,
    have: u64,
    until_ms: u64,
}

/// Result of running a request.
enum Attempted {
    Answered(Answer),
    /// It has to wait; with the reason, and what it touches.
    Waits(Waits, Scope),
}

impl Leases {
    pub fn new(unix_ms: u64, known: BTreeSet<SessionId>) -> Self {
        Self {
            events: Events::starting(unix_ms),
            grace: (!known.is_empty()).then_some(known),
            ..Self::default()
        }
    }

    /// Stores the reply to a waiting request.
    pub fn answer(&mut self, ticket: ParkedTicket, answer: Answer) {
        self.answers.push((ticket, answer));
    }

    /// Treats a session as dead for one file: its leases there end, but its writes may still
    /// arrive.
    fn disown(&mut self, session: SessionId, file: FileId) {
        if self.ranges.writes(session, file) {
            self.ranges.hand_over(session, file, NOBODY);
            self.orphaned.push_back((NOBODY, file));
        }
    }

    /// Names and values for status messages.
    pub fn list(&self, now_ms: u64) -> Vec<(String, u64)> {
        let counters = &self.counters;
        let longest_ms = counters.parked_ms_max.max(self.waiting.longest_ms(now_ms));
        vec![
            ("beliefs".into(), self.beliefs.count() as u64),
            ("events.acknowledged".into(), counters.acknowledged),
            ("events.sent".into(), counters.sent),
            ("leases.granted".into(), counters.granted),
            ("leases.lapsed".into(), counters.lapsed),
            ("leases.recalled".into(), counters.recalled),
            ("parked".into(), counters.parked),
            ("parked_ms_max".into(), longest_ms),
            ("parked_now".into(), self.waiting.count() as u64),
        ]
    }
}

impl Unsettled for Leases {
    fn is_unsettled(&self, session: SessionId, file: FileId) -> bool {
        self.waiting.concern(file)
            || self.events.concern(session, file)
            || !self.ranges.other_writers(session, file).is_empty()
    }
}

impl<E: Engine> MetaMachine<E> {
    /// Handles a request that may have to wait for other sessions.
    pub(super) fn consider(
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

    fn park(
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
    fn try_run(
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

    /// Sends an event; `None` if the session has too many unacknowledged ones.
    pub(super) fn send_event(&mut self, who: SessionId, ask: &Ask, now: Moment) -> Option<u64> {
        let (number, new) = self.leases.events.send(who, ask, now.monotonic_ms)?;
        if new {
            self.leases.counters.sent += 1;
            self.leases.counters.recalled += u64::from(matches!(ask, Ask::Recall(..)));
            self.answer_poll(who, false);
        }
        Some(number)
    }

    /// Makes a session that did not answer give up everything.
    pub(super) fn lapse(&mut self, who: SessionId, now: Moment) {
        self.leases.waiting.session_changed(who);
        if self.sessions.by_id.contains_key(&who) {
            self.leases.events.lapse(who, now.monotonic_ms);
            // There is room for events again.
            self.leases.waiting.others_changed();
            self.answer_poll(who, false);
            tracing::warn!(session = who.0, "a client that did not answer lost its leases");
        }
    }

    /// Answers a session's poll if there are events, or `anyway`.
    fn answer_poll(&mut self, session: SessionId, anyway: bool) {
        let Some(poll) = self.leases.polls.get(&session) else { return };
        let Some(reply) = self.news(session, poll.have, anyway) else { return };
        let ticket = poll.ticket;
        self.leases.polls.remove(&session);
        self.leases.answers.push((ticket, Answer::Now(reply)));
    }

    fn news(&self, session: SessionId, have: u64, anyway: bool) -> Option<Reply> {
        let news = self.leases.events.news(session, have);
        let (events, lapsed) = match news {
            None if !anyway => return None,
            news => news.unwrap_or_default(),
        };
        let reply = EventsReply { events, lease_ms: self.times.lease_ms, lapsed };
        Some(Reply { events: self.leases.events.last(session), ..Reply::ok(&reply) })
    }

    pub(super) fn poll_events(&mut self, session: SessionId, have: u64, now: Moment) -> Answer {
        // Whoever asks again has given up on the first.
        self.answer_poll(session, true);
        self.leases.events.polls(session);
        // The first brings the lease time. And a client that was stopped or cut
        // off uses nothing before it knows that nothing was taken from it.
        let before = self.leases.polled_ms.insert(session, now.monotonic_ms);
        let silent_ms = before.map(|before| now.monotonic_ms.saturating_sub(before));
        let anew = silent_ms.is_none_or(|silent| silent > self.times.lease_ms / 2);
        if let Some(reply) = self.news(session, have, anew) {
            return Answer::Now(reply);
        }
        let ticket = self.leases.waiting.ticket();
        let until_ms = now.monotonic_ms + self.times.lease_ms / POLL_PART;
        self.leases.polls.insert(session, Poll { ticket, have, until_ms });
        Answer::Parked(ticket)
    }

    pub(super) fn ack_events(&mut self, session: SessionId, acks: &[EventAck]) {
        for ack in acks {
            let Some(ask) = self.leases.events.acknowledged(session, ack.number) else { continue };
            self.leases.counters.acknowledged += 1;
            let leases = &mut self.leases;
            match &ask {
                Ask::Attributes(file) => {
                    leases.beliefs.remove(session, *file);
                    if ack.holds {
                        leases.beliefs.still_knows(session, *file);
                    }
                }
                Ask::Removal(file) => {
                    leases.beliefs.was_told(session, *file);
                    if ack.holds && self.opens.check_room(session).is_ok() {
                        self.opens.open(session, *file, Rights::NONE);
                    }
                }
                Ask::Name(dir, _) if ack.forgotten => leases.beliefs.remove(session, *dir),
                Ask::Recall(file, ..) if ack.unconfirmed => leases.disown(session, *file),
                &Ask::Recall(file, start, end, mode) => {
                    leases.ranges.give_up(session, &LeaseRange { file, start, end, mode });
                }
                Ask::Name(..) | Ask::Report(_) => {}
            }
            leases.waiting.event_over(session, ack.number);
        }
        // There is room for events again.
        self.leases.waiting.others_changed();
    }

    /// Takes over leases that a client held before the server restarted. Returns those that
    /// conflict.
    pub(super) fn reassert(
        &mut self,
        session: SessionId,
        asked: &ReassertRequest,
    ) -> Result<Vec<LeaseRange>> {
        let mut lost = Vec::new();
        for held in &asked.leases {
            if !self.holds_still(session, held)? {
                lost.push(held.lease.clone());
            }
        }
        if !asked.leases.is_empty() {
            self.leases.events.polls(session);
        }
        if asked.last {
            for (file, by_all) in self.opens.said_all(session) {
                self.left(session, file, by_all, false);
            }
            self.has_reasserted(session);
        }
        Ok(lost)
    }

    fn holds_still(&mut self, session: SessionId, held: &HeldLease) -> Result<bool> {
        let Some(lease) = whole_blocks(&held.lease) else { return Ok(true) };
        let ranges = &self.leases.ranges;
        let mut tx = Tx::new(&self.engine);
        let inode = inodes::find(&mut tx, lease.file).map_err(fault)?;
        if inode.is_none_or(|inode| inode.generation != held.generation) {
            self.leases.ranges.drop_file(session, lease.file);
            return Ok(false);
        }
        if ranges.covers(session, &lease) {
            return Ok(true);
        }
        // When that time is over others may have been there.
        let rights = self.opens.rights(session, lease.file);
        let fits = self.leases.grace.as_ref().is_some_and(|waited| waited.contains(&session))
            && rights.is_some_and(|rights| may_hold(rights, lease.mode))
            && ranges.in_the_way(session, &lease).is_empty()
            && ranges.room(session) != Room::No;
        if fits {
            let all = lease == whole(lease.file, lease.mode);
            let asked = (!all).then_some(&lease);
            self.leases.ranges.grant(session, &lease, asked);
        }
        Ok(fits)
    }

    /// Records that a session has reported everything that it holds.
    pub(super) fn has_reasserted(&mut self, session: SessionId) {
        let Some(waited) = &mut self.leases.grace else { return };
        waited.remove(&session);
        if waited.is_empty() {
            self.end_grace();
        }
    }

    pub(super) fn end_grace(&mut self) {
        if self.leases.grace.take().is_some() {
            self.leases.waiting.others_changed();
        }
    }

    /// Ends a session's leases on a file after its last close. `unconfirmed` says that its writes
    /// may still arrive.
    pub(super) fn closed(&mut self, session: SessionId, file: FileId, unconfirmed: bool) {
        if self.opens.rights(session, file).is_some() {
            return;
        }
        self.quotas.grants.release(session, file);
        if unconfirmed {
            self.leases.disown(session, file);
        }
        if self.leases.ranges.drop_file(session, file) || unconfirmed {
            self.leases.waiting.file_changed(file);
        }
    }

    /// Removes an ended session. `in_order` says that it had written everything.
    pub(super) fn forget_session(&mut self, session: SessionId, in_order: bool) {
        for file in self.leases.ranges.files_of(session) {
            if !in_order && self.leases.ranges.writes(session, file) {
                // It stays until the file is fenced.
                self.leases.orphaned.push_back((session, file));
            } else {
                self.leases.ranges.drop_file(session, file);
            }
            self.leases.waiting.file_changed(file);
        }
        self.quotas.grants.end(session);
        self.leases.polled_ms.remove(&session);
        self.leases.room_asked.remove(&session);
        self.end_locks(session);
        self.leases.beliefs.end(session);
        self.leases.events.end(session);
        self.leases.waiting.session_changed(session);
        for ticket in self.leases.waiting.tickets_of(session) {
            let expired = Reply::error(&ErrorKind::SessionExpired.into());
            self.unpark(ticket);
            self.leases.answers.push((ticket, Answer::Now(expired)));
        }
        if let Some(poll) = self.leases.polls.remove(&session) {
            let expired = Reply::error(&ErrorKind::SessionExpired.into());
            self.leases.answers.push((poll.ticket, Answer::Now(expired)));
        }
        self.has_reasserted(session);
    }

    /// Removes a waiting request, and wakes those that waited behind it.
    pub(super) fn unpark(&mut self, ticket: ParkedTicket) -> Option<Parked> {
        let parked = self.leases.waiting.take(ticket)?;
        for file in &parked.files {
            self.leases.waiting.file_changed(*file);
        }
        Some(parked)
    }

    /// Drops a waiting request whose connection is gone.
    pub fn dropped(&mut self, ticket: ParkedTicket) {
        self.lock_dropped(ticket);
        self.unpark(ticket);
        self.leases.polls.retain(|_, poll| poll.ticket != ticket);
        self.leases.answers.retain(|(answered, _)| *answered != ticket);
    }

    /// Runs waiting requests that can go on, and returns all replies to waiting requests. To be
    /// called at the end of each turn, before [`MetaMachine::flush`].
    pub fn take_ready(&mut self, now: Moment) -> Vec<(ParkedTicket, Answer)> {
        let done = self.go_on_with_visits(now);
        self.tell_of_visit(done, now);
        while let Some(ticket) = self.leases.waiting.next_ready() {
            let Some(mut parked) = self.leases.waiting.take(ticket) else { continue };
            if parked.session == MOVER {
                let done = self.resume_visit(ticket, parked, now);
                self.tell_of_visit(done, now);
                continue;
            }
            let Parked { session, op, .. } = parked;
            let tried = self.try_run(session, op, &parked.body, ticket, &mut parked.asked, now);
            let answer = match tried {
                Ok(Attempted::Waits(waits, scope)) => {
                    let Parked { body, since_ms, asked, .. } = parked;
                    self.park(ticket, (session, op, body, since_ms), asked, waits, scope);
                    continue;
                }
                Ok(Attempted::Answered(answer)) => answer,
                Err(error) => Answer::Now(Reply::error(&error)),
            };
            for file in &parked.files {
                self.leases.waiting.file_changed(*file);
            }
            let waited_ms = now.monotonic_ms.saturating_sub(parked.since_ms);
            let longest = &mut self.leases.counters.parked_ms_max;
            *longest = waited_ms.max(*longest);
            let answer = self.stamped(Peer::Client(session), op, answer);
            self.leases.answers.push((ticket, answer));
        }
        std::mem::take(&mut self.leases.answers)
    }

    /// Lets requests go on that wait for sessions which do not answer, and ends polls in time.
    pub(super) fn tick_leases(&mut self, now: Moment) -> Result<()> {
        if now.monotonic_ms.saturating_sub(self.started_ms) >= self.times.grace_ms {
            self.end_grace();
        }
        let late: BTreeSet<SessionId> = self
            .leases
            .waiting
            .events()
            .into_iter()
            .filter(|(who, number)| self.is_overdue(*who, *number, now))
            .map(|(who, _)| who)
            .collect();
        for who in late {
            self.leases.waiting.session_changed(who);
        }
        // Who waits for room asks for other files if the first are not given up.
        self.leases.waiting.others_changed();
        let due = |(session, poll): (&SessionId, &Poll)| {
            (poll.until_ms <= now.monotonic_ms).then_some(*session)
        };
        let due: Vec<SessionId> = self.leases.polls.iter().filter_map(due).collect();
        for session in due {
            self.answer_poll(session, true);
        }
        self.tell_of_late(now);
        self.fence_orphaned()
    }

    /// Fences files whose writer has ended, unless another session writes and would be stopped by
    /// that: those files are fenced when a request needs them.
    fn fence_orphaned(&mut self) -> Result<()> {
        for _ in 0..FENCES_PER_TICK.min(self.leases.orphaned.len()) {
            let Some((who, file)) = self.leases.orphaned.pop_front() else { break };
            if !self.leases.ranges.writes(who, file) {
                self.leases.ranges.drop_file(who, file);
                continue;
            }
            if !self.leases.ranges.other_writers(who, file).is_empty() {
                self.leases.orphaned.push_back((who, file));
                continue;
            }
            self.fence(who, file)?;
            self.leases.waiting.file_changed(file);
        }
        Ok(())
    }
}
