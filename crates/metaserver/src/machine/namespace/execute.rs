//! Runs an operation in a transaction, repeated after each conflict, and stores its result with it,
//! so that a mutation is carried out exactly once.

use crate::machine::answer::Reply;
use crate::machine::moment::Moment;
use crate::machine::state::MetaMachine;
use crate::machine::state::sessions::Slot;
use crate::ops::dispatch::{Repeat, dispatch, needs_room, repeat_of, takes_fresh_id};
use crate::ops::{Effects, Fault, quotas};
use crate::quota::{self, Charge};
use crate::schema::{self, SlotRecord, key};
use weir_host::plant::{Bug, planted};
use weir_metastore::{CommitOutcome, Engine, Tx, TxError};
use weir_types::codec::{Bytes, Reader};
use weir_types::limits::MAX_SLOTS;
use weir_types::{
    Attr, Caller, Decode, Error, ErrorKind, FileId, FileKind, Result, Retry, SessionId,
    SlotSequence,
};
use weir_wire::lease::{ROOM_LIMITED, SIZE_UNKNOWN};
use weir_wire::message::Op;
use weir_wire::meta::{MetaPrefix, MutationId, OpenFile};

/// The most attempts of an operation with conflicts.
const MAX_ATTEMPTS: usize = 16;

/// A prepared transaction and its result.
struct Attempt<'a> {
    tx: Tx<'a>,
    reply: Reply,
    effects: Effects,
}

/// Error for operations that make something while the disk is full.
const NO_ROOM: &str = "the disk of the metadata server is full but for what removals need: remove \
                       something, or make room on that disk";

impl Attempt<'_> {
    /// Whether the operation has enlarged the metadata. (Creating an existing file only opens it.)
    fn grows(&self, op: Op) -> bool {
        let changes = self.reply.status.is_none() && !self.tx.is_read_only();
        changes && (op != Op::Create || self.effects.fresh_used)
    }
}

/// An operation that was carried out.
pub(super) struct Done {
    pub(super) reply: Reply,
    /// Whether the reply must wait until the operation is durable.
    pub(super) objects_follow: bool,
    /// See [`Effects::also`].
    pub(super) also: Vec<Attr>,
}

impl<E: Engine> MetaMachine<E> {
    /// The result of a request that was carried out before; `None` if it is new.
    ///
    /// # Errors
    /// `Protocol`, `Stale`: it can never be carried out.
    pub(super) fn repeated(
        &mut self,
        session: SessionId,
        op: Op,
        prefix: &MetaPrefix,
    ) -> Result<Option<Done>> {
        let wrong = |why: &str| Err(Error::new(ErrorKind::Protocol, why));
        match (repeat_of(op), &prefix.mutation) {
            (None, _) => return wrong("this operation is not one of clients"),
            (Some(Repeat::Once), None) => return wrong("the operation needs a mutation id"),
            (Some(Repeat::Harmless), Some(_)) => {
                return wrong("the operation takes no mutation id");
            }
            _ => {}
        }
        if let Some(mutation) = prefix.mutation
            && let Some(mut reply) = self.replay(session, op, mutation)?
        {
            // Whether a quota limits the file is not kept: whoever writes asks.
            if !self.quotas.is_empty() {
                reply.keep |= ROOM_LIMITED;
            }
            // What it changed may not be durable yet.
            let objects_follow =
                matches!(op, Op::SetAttr | Op::Create | Op::Open | Op::Extend | Op::CommitSize);
            return Ok(Some(Done { reply, objects_follow, also: Vec::new() }));
        }
        Ok(None)
    }

    /// Carries out an operation on the namespace that is new.
    ///
    /// An error (as opposed to a reply with one) means that no part of it was stored.
    pub(super) fn execute(
        &mut self,
        session: SessionId,
        op: Op,
        prefix: &MetaPrefix,
        body: Reader<'_>,
        now: Moment,
    ) -> Result<Done> {
        if matches!(op, Op::SetAttr | Op::SetXattr | Op::RemoveXattr) {
            self.require_number()?;
        }
        let fresh = if takes_fresh_id(op) { self.spare()? } else { FileId(0) };
        let asked = body.clone();
        let done = self.attempts(session, op, prefix, body, fresh, now);
        if done.as_ref().is_err_and(|error| error.kind == ErrorKind::NoSpace) {
            // Nothing has changed, and its next try is another one.
            return done.map(|(reply, _)| Done { reply, objects_follow: false, also: Vec::new() });
        }
        if let Some(mutation) = prefix.mutation
            && let Some(session) = self.sessions.by_id.get_mut(&session)
        {
            // An engine that fails leaves open whether it was done: ask it the
            // next time.
            let at = if done.is_ok() { Slot::At(mutation.sequence.0) } else { Slot::Unknown };
            session.set_slot(mutation.slot, at);
        }
        if done.is_err() {
            // Perhaps its id is in use, and a file without a name left behind.
            self.spare_id = None;
            self.background.look_again();
        }
        let (mut reply, mut effects) = done?;
        self.record(session, (op, asked), prefix.caller.uid, reply.status, now);
        if effects.size_unknown {
            reply.keep = SIZE_UNKNOWN;
        }
        if effects.room_limited {
            reply.keep |= ROOM_LIMITED;
        }
        let objects_follow = effects.objects_follow;
        let revoked = effects.revoked;
        let also = std::mem::take(&mut effects.also);
        self.apply(session, effects);
        if let Some(file) = revoked {
            self.revoke_file(file, now);
        }
        Ok(Done { reply, objects_follow, also })
    }

    fn spare(&mut self) -> Result<FileId> {
        if self.spare_id.is_none() {
            self.spare_id = self.ids.take();
        }
        self.spare_id.map(FileId).ok_or_else(|| {
            Error::new(ErrorKind::Overloaded, "file ids are used faster than they can be reserved")
        })
    }

    fn attempts(
        &mut self,
        session: SessionId,
        op: Op,
        prefix: &MetaPrefix,
        body: Reader<'_>,
        fresh: FileId,
        now: Moment,
    ) -> Result<(Reply, Effects)> {
        let has_room = !needs_room(op) || self.engine.has_room();
        for _ in 0..MAX_ATTEMPTS {
            let mut attempt =
                self.attempt(session, op, &prefix.caller, body.clone(), fresh, now)?;
            if !has_room && attempt.grows(op) {
                return Err(Error::new(ErrorKind::NoSpace, NO_ROOM));
            }
            if let Some(mutation) = prefix.mutation {
                keep_result(&mut attempt.tx, session, mutation, &attempt.reply)?;
            }
            let Attempt { tx, reply, effects } = attempt;
            if tx.is_read_only() {
                return Ok((reply, effects));
            }
            let commit = tx.into_commit()?;
            if let CommitOutcome::Committed(_) = self.engine.commit(commit)? {
                return Ok((reply, effects));
            }
            self.counters.conflicts += 1;
        }
        Err(Error::new(ErrorKind::Busy, "the metadata transaction had too many conflicts"))
    }

    fn attempt(
        &self,
        session: SessionId,
        op: Op,
        caller: &Caller,
        body: Reader<'_>,
        fresh: FileId,
        now: Moment,
    ) -> Result<Attempt<'_>> {
        let mut tx = Tx::new(&self.engine);
        let mut ctx = self.context(session, caller, fresh, now);
        let done = dispatch(&mut tx, &mut ctx, op, body).and_then(|body| {
            let by = Charge { op: Some(op), exempt: quotas::is_exempt(&ctx) };
            ctx.effects.quotas_gone = quota::charge(&self.quotas, &self.engine, &mut tx, by)?;
            Ok(body)
        });
        match done {
            Ok(body) => Ok(Attempt { tx, reply: Reply::encoded(None, body), effects: ctx.effects }),
            // What it wrote goes with its transaction.
            Err(Fault::Refused(error)) => Ok(Attempt {
                tx: Tx::new(&self.engine),
                reply: Reply::error(&error),
                effects: Effects::default(),
            }),
            Err(Fault::Engine(error)) => Err(error.into()),
        }
    }

    /// The stored result of a mutation; `None` if it is new.
    ///
    /// # Errors
    /// `Protocol` if there is no such slot, `Stale` if a later mutation of the slot was carried
    /// out.
    fn replay(
        &mut self,
        session: SessionId,
        op: Op,
        mutation: MutationId,
    ) -> Result<Option<Reply>> {
        let MutationId { slot, sequence } = mutation;
        if slot.0 >= MAX_SLOTS || sequence == SlotSequence(0) {
            return Err(Error::new(ErrorKind::Protocol, "no such slot"));
        }
        let known = self.sessions.by_id.get(&session).ok_or(ErrorKind::SessionExpired)?.slot(slot);
        let last = match known {
            Slot::At(last) => last,
            Slot::Unknown => self.kept(session, mutation)?.map_or(0, |kept| kept.sequence.0),
        };
        // Gaps are fine: the client gave up on a mutation that never came. If
        // it comes after all, it is too late.
        let planted_old = planted(Bug::AcceptOldSequence) && sequence.0 < last;
        if sequence.0 > last || planted_old {
            return Ok(None);
        }
        let kept = match sequence.0 == last {
            true => self.kept(session, mutation)?,
            false => None,
        };
        let Some(kept) = kept else {
            let message = format!(
                "late duplicate: mutation {sequence} of slot {slot}, whose last was {last}"
            );
            return Err(Error::new(ErrorKind::Stale, message));
        };
        let status = ErrorKind::from_code(kept.status);
        if status.is_some_and(|kind| kind.retry() != Retry::Never) {
            // It did nothing then, for a reason that may be gone.
            return Ok(None);
        }
        self.counters.replays += 1;
        let reply = Reply::encoded(status, kept.body.0);
        if known == Slot::Unknown {
            self.recount_open(session, op, &reply);
            if let Some(session) = self.sessions.by_id.get_mut(&session) {
                session.set_slot(slot, Slot::At(sequence.0));
            }
        }
        Ok(Some(reply))
    }

    fn kept(&self, session: SessionId, mutation: MutationId) -> Result<Option<SlotRecord>> {
        match Tx::new(&self.engine).get(&key::slot(session, mutation.slot))? {
            Some(bytes) => Ok(Some(schema::decode(&bytes, "of a slot")?)),
            None => Ok(None),
        }
    }

    /// Counts an open that an earlier process of this server has carried out and whose reply was
    /// lost, because the client did not report the file as open.
    fn recount_open(&mut self, session: SessionId, op: Op, reply: &Reply) {
        if !matches!(op, Op::Open | Op::Create) || reply.status.is_some() {
            return;
        }
        if let Ok(open) = OpenFile::from_bytes(&reply.body)
            && (op == Op::Open || open.attr.kind == FileKind::File)
        {
            let rights = open.capability.capability.rights;
            self.opens.open(session, open.attr.file, rights);
        }
    }
}

fn keep_result(
    tx: &mut Tx<'_>,
    session: SessionId,
    mutation: MutationId,
    reply: &Reply,
) -> Result<(), TxError> {
    if planted(Bug::DropStoredResult) {
        return Ok(());
    }
    let record = SlotRecord {
        sequence: mutation.sequence,
        status: reply.status.map_or(0, |kind| kind as u16),
        body: Bytes(reply.body.clone()),
    };
    tx.put(&key::slot(session, mutation.slot), &schema::encode(&record))
}
