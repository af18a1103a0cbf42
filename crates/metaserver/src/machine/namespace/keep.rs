//! What a client may cache of a reply. It is recorded before the reply is sent.

use crate::leases::beliefs::Added;
use crate::leases::events::Ask;
use crate::leases::ranges::{Room, whole};
use crate::machine::answer::{Answer, Reply, request};
use crate::machine::moment::Moment;
use crate::machine::state::MetaMachine;
use crate::machine::store::fault;
use crate::ops::Unsettled;
use crate::ops::scope::{self, Told};
use weir_metastore::Engine;
use weir_types::codec::Reader;
use weir_types::{
    Attr, Consistency, Decode, Encode, ErrorKind, FileId, FileKind, Result, SessionId,
};
use weir_wire::Rights;
use weir_wire::lease::{
    Also, HAS_ALSO, KEEP_ATTRIBUTES, KEEP_NAMES, LEASE_READ, LEASE_WRITE, LeaseMode, SIZE_UNKNOWN,
};
use weir_wire::message::Op;
use weir_wire::meta::{CreateRequest, OpenFile, OpenRequest, Removed};

impl<E: Engine> MetaMachine<E> {
    /// Sets in a reply what may be cached of it, and records that. Appends what else the operation
    /// has changed, as far as that may be cached.
    pub(super) fn note_keep(
        &mut self,
        session: SessionId,
        (op, rest): (Op, Reader<'_>),
        (answer, also): (&mut Answer, Vec<Attr>),
        now: Moment,
    ) -> Result<()> {
        let Some(reply) = answer.reply_mut() else { return Ok(()) };
        self.note_removal(session, op, reply);
        let absent = match reply.status {
            None => false,
            Some(ErrorKind::NotFound) if op == Op::Lookup => true,
            Some(ErrorKind::NoAttribute) if op == Op::GetXattr => true,
            Some(_) => return Ok(()),
        };
        if !self.leases.events.may_keep(session) || self.leases.grace.is_some() {
            return Ok(());
        }
        let root = self.root_of(session);
        let told = scope::told(op, rest.clone(), (!absent).then_some(&reply.body[..]), root);
        let told = told.map_err(fault)?;
        let mut keep = self.keep(session, &told, now);
        if matches!(op, Op::Open | Op::Create)
            && let Some(rights) = self.asked_rights(op, rest)?
            && let Ok(open) = OpenFile::from_bytes(&reply.body)
            && open.attr.kind == FileKind::File
            && open.consistency.is_none_or(|hint| hint == Consistency::Strict)
        {
            keep |= self.lease_with_open(session, open.attr.file, rights);
        }
        if reply.keep & SIZE_UNKNOWN != 0 {
            keep &= !KEEP_ATTRIBUTES;
        }
        reply.keep |= keep;
        let settled = |attr: &Attr| {
            let told = Told { names: None, attributes: vec![attr.file] };
            self.keep(session, &told, now) & KEEP_ATTRIBUTES != 0
        };
        let attributes: Vec<Attr> = also.into_iter().filter(settled).collect();
        if !absent && !attributes.is_empty() {
            Also { attributes }.encode(&mut reply.body);
            reply.keep |= HAS_ALSO;
        }
        Ok(())
    }

    fn asked_rights(&self, op: Op, rest: Reader<'_>) -> Result<Option<Rights>> {
        Ok(match op {
            Op::Open => Some(request::<OpenRequest>(rest)?.rights),
            Op::Create => Some(request::<CreateRequest>(rest)?.rights),
            _ => None,
        })
    }

    /// Removes the cached entries of a file that does not exist any more.
    fn note_removal(&mut self, session: SessionId, op: Op, reply: &Reply) {
        if matches!(op, Op::Unlink | Op::Rename)
            && reply.status.is_none()
            && let Ok(Removed { attr: Some(attr) }) = Removed::from_bytes(&reply.body)
            && attr.nlink == 0
        {
            self.leases.beliefs.was_told(session, attr.file);
        }
    }

    pub(super) fn keep(&mut self, session: SessionId, told: &Told, now: Moment) -> u8 {
        if !self.leases.events.may_keep(session) || self.leases.grace.is_some() {
            return 0;
        }
        // What is moved out of a subtree is out of its client's sight at once.
        if self.limits_of(session).subtree.is_some() {
            return 0;
        }
        let mut keep = 0;
        if let Some(dir) = told.names {
            let settled =
                !self.leases.waiting.concern(dir) && !self.leases.events.concern(session, dir);
            if settled && self.believe(session, dir, now) {
                keep |= KEEP_NAMES;
            }
        }
        if told.attributes.is_empty() {
            return keep;
        }
        let unsettled = |file: &FileId| self.leases.is_unsettled(session, *file);
        if !told.attributes.iter().any(unsettled)
            && told.attributes.iter().all(|file| self.believe(session, *file, now))
        {
            keep |= KEEP_ATTRIBUTES;
        }
        keep
    }

    fn believe(&mut self, session: SessionId, file: FileId, now: Moment) -> bool {
        match self.leases.beliefs.add(session, file) {
            Added::Yes => true,
            Added::No => false,
            Added::Instead(oldest) => {
                // No room for the event: it is believed a little longer.
                if self.send_event(session, &Ask::Attributes(oldest), now).is_none() {
                    self.leases.beliefs.remove(session, file);
                    return false;
                }
                true
            }
        }
    }

    /// The lease on the whole file that comes with an open, if no session has to give anything up
    /// for it.
    fn lease_with_open(&mut self, session: SessionId, file: FileId, rights: Rights) -> u8 {
        let leases = &self.leases;
        if leases.waiting.concern(file) || leases.events.concern(session, file) {
            return 0;
        }
        let (read, write) = (whole(file, LeaseMode::Read), whole(file, LeaseMode::Write));
        let alone = !self.opens.is_open_elsewhere(session, file)
            && !leases.ranges.others_hold(session, file)
            && leases.beliefs.others(session, file).next().is_none();
        let writes = alone && rights.allow(Rights::WRITE);
        let (lease, flag) = if writes || leases.ranges.covers(session, &write) {
            (write, LEASE_WRITE)
        } else if leases.ranges.in_the_way(session, &read).is_empty() {
            (read, LEASE_READ)
        } else {
            return 0;
        };
        if leases.ranges.room(session) != Room::Yes {
            return 0;
        }
        self.leases.ranges.grant(session, &lease, None);
        self.leases.counters.granted += 1;
        flag
    }
}
