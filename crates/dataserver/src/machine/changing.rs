//! Requests for changes, of columns with one copy and with several.

use super::change::{Asked, Change};
use super::{
    Action, Incoming, Machine, RepairWork, ServedTarget, Work, either_right, expect_no_payload,
    expect_payload,
};
use std::sync::Arc;
use weir_layout::cut_count;
use weir_layout::place::MAX_PLACES;
use weir_types::codec::Decode;
use weir_types::limits::{MAX_FILE_BYTES, MAX_REPAIR_BYTES};
use weir_types::{Error, ErrorKind, Result, TargetId};
use weir_wire::data::{
    Access, AlignRequest, ForwardRequest, NoteGapRequest, RepairRequest, StageRequest,
};
use weir_wire::ticket::OF_SERVERS;
use weir_wire::{Header, Rights};

impl<C: Copy> Machine<C> {
    /// Handles a change. A change of the only copy goes to its disk; one of several copies is
    /// ordered or passed on.
    pub(super) fn change(
        &mut self,
        incoming: &Incoming<'_, C>,
        target: Arc<ServedTarget>,
        access: Access,
        asked: Asked,
        work: Work,
    ) -> Result<Action<C>> {
        check_relay(incoming.session == OF_SERVERS, &access)?;
        if access.copies.is_empty() {
            return Ok(self.queue_work(incoming, target, work));
        }
        let id = target.id;
        let op = self.begin(incoming, target, false);
        if access.relay.as_ref().is_some_and(|relay| !relay.alone) {
            self.is_asked(op);
        }
        let change = Box::new(Change { access, asked, work });
        Ok(Action::Change { op, conn: incoming.conn, target: id, change })
    }

    pub(super) fn align(&mut self, incoming: &Incoming<'_, C>) -> Result<Action<C>> {
        let AlignRequest { access, len } = AlignRequest::from_bytes(incoming.body)?;
        let target = self.admit(incoming, &access, Rights::WRITE)?;
        expect_no_payload(incoming.header)?;
        let Access { object, generation, .. } = access;
        let work = Work::Align { object, len, generation };
        self.change(incoming, target, access, Asked::Align { len }, work)
    }

    /// Stages bytes of a write.
    pub(super) fn stage(&mut self, incoming: &Incoming<'_, C>) -> Result<Action<C>> {
        let request = StageRequest::from_bytes(incoming.body)?;
        let StageRequest { access, stripe, regions, ticket } = request;
        self.admit(incoming, &access, Rights::WRITE)?;
        check_relay(false, &access)?;
        let (pieces, bytes) = self.share(&regions, stripe, &access)?;
        expect_payload(incoming.header, bytes, cut_count(&self.pieces))?;
        if access.copies.is_empty() || bytes == 0 {
            let what = "there is nothing to stage, or no other copy that would ask for it";
            return Err(Error::new(ErrorKind::InvalidArgument, what));
        }
        let ticket = (access.capability.session, ticket, access.object);
        let header = Header::reply_to(incoming.header, None);
        Ok(Action::Stage { conn: incoming.conn, header, ticket, pieces })
    }

    /// Forwards the connection of a client that cannot reach the server of another copy.
    pub(super) fn forward(&mut self, incoming: &Incoming<'_, C>) -> Result<Action<C>> {
        let ForwardRequest { access, to } = ForwardRequest::from_bytes(incoming.body)?;
        self.admit(incoming, &access, either_right(&access))?;
        expect_no_payload(incoming.header)?;
        check_relay(false, &access)?;
        let is_copy = access.copies.iter().any(|copy| copy.target == to);
        let is_here = self.targets.iter().any(|target| target.id == to);
        if !is_copy || is_here || to == TargetId::NONE {
            let what = "it is not another copy on another server";
            return Err(Error::new(ErrorKind::InvalidArgument, what));
        }
        let header = Header::reply_to(incoming.header, None);
        Ok(Action::Forward { conn: incoming.conn, header, to })
    }

    /// Notes a gap that another server reports. The ticket shows that the sender is a server.
    pub(super) fn note_gap(&mut self, incoming: &Incoming<'_, C>) -> Result<Action<C>> {
        let note = NoteGapRequest::from_bytes(incoming.body)?;
        expect_no_payload(incoming.header)?;
        let target = self.served(note.target)?;
        let NoteGapRequest { object, behind, copy, start, end, told, first, filled, epoch, .. } =
            note;
        if start >= end {
            let what = "a gap of nothing";
            return Err(Error::new(ErrorKind::InvalidArgument, what));
        }
        let bytes = (start, end.min(MAX_FILE_BYTES));
        let work = Work::NoteGap { object, behind, copy, bytes, told, first, filled, epoch };
        Ok(self.queue_work(incoming, target, work))
    }

    /// Repairs blocks that another server has found rotted in its copy.
    pub(super) fn repair(&mut self, incoming: &Incoming<'_, C>) -> Result<Action<C>> {
        let RepairRequest { access, copy, start, end } = RepairRequest::from_bytes(incoming.body)?;
        let target = self.admit(incoming, &access, Rights::WRITE)?;
        expect_no_payload(incoming.header)?;
        check_copies(&access)?;
        let other = access.copies.get(usize::from(copy.0)).map(|copy| copy.target);
        let is_other = other.is_some_and(|t| ![access.target, TargetId::NONE].contains(&t));
        let is_range = start < end && end <= MAX_FILE_BYTES && end - start <= MAX_REPAIR_BYTES;
        if !is_other || !is_range {
            let what = "there is no such copy, or it is too much at once";
            return Err(Error::new(ErrorKind::InvalidArgument, what));
        }
        let id = target.id;
        let op = self.begin(incoming, target, false);
        let work = Box::new(RepairWork { access, copy, bytes: (start, end) });
        Ok(Action::Repair { op, conn: incoming.conn, target: id, work })
    }
}

/// Checks that the copies in a request are consistent, and that its sender may name them.
fn check_relay(from_server: bool, access: &Access) -> Result<()> {
    let bad = |what: &str| Err(Error::new(ErrorKind::InvalidArgument, what));
    let copies = &access.copies;
    if from_server && access.relay.is_none() {
        let what = "a data server changes nothing for another but what that has ordered";
        return Err(Error::new(ErrorKind::Unsupported, what));
    }
    if !from_server && access.relay.is_some() {
        return bad("only data servers pass changes on");
    }
    if copies.is_empty() {
        return match from_server {
            true => bad("a change of the only copy was passed on"),
            false => Ok(()),
        };
    }
    check_copies(access)?;
    if let Some(relay) = &access.relay
        && (relay.by == access.target || !copies.iter().any(|copy| copy.target == relay.by))
    {
        return bad("a change was passed on that no other copy of the column has ordered");
    }
    Ok(())
}

/// Checks that the copies in a request are consistent.
fn check_copies(access: &Access) -> Result<()> {
    let bad = |what: &str| Err(Error::new(ErrorKind::InvalidArgument, what));
    let copies = &access.copies;
    let own = copies.get(usize::from(access.object.copy.0));
    if own.is_none_or(|own| own.target != access.target) {
        return bad("the copies that are named do not have this one in its place");
    }
    let twice = |at: usize| {
        let target = copies[at].target;
        target != TargetId::NONE && copies[..at].iter().any(|copy| copy.target == target)
    };
    if copies.len() > MAX_PLACES || (0..copies.len()).any(twice) {
        return bad("the copies that are named are too many, or one is there twice");
    }
    Ok(())
}
