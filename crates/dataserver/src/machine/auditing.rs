//! Audit records: who did what on a target, and what was refused. Only requests of clients are
//! recorded, and what another data server reads for one. What the server of another copy passes on
//! is recorded there.

use super::{Action, Body, Incoming, Machine, Outcome, ServedTarget, reads};
use std::sync::Arc;
use weir_audit::{Event, Sum};
use weir_types::codec::{Bytes, Decode};
use weir_types::{ClientId, ErrorKind, FileId, Result, Retry, SessionId, TargetId};
use weir_wire::audit::{ListAuditRequest, UNKNOWN_USER};
use weir_wire::capability::{ANY_FILE, Refusal};
use weir_wire::ticket::OF_SERVERS;
use weir_wire::{Capability, Header, Op, Rights};

/// Who is recorded for a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Who {
    client: ClientId,
    session: SessionId,
    user: u32,
    file: FileId,
    at_unix_ms: u64,
}

impl Who {
    /// The holder of a capability that is good for a request; `None` if nothing is recorded.
    pub(super) fn of<C>(incoming: &Incoming<'_, C>, capability: &Capability) -> Option<Self> {
        let (op, Capability { session, user, file, .. }) = (incoming.header.op, capability);
        let client = match incoming.session {
            OF_SERVERS if *session == OF_SERVERS || !reads(op) => return None,
            OF_SERVERS => ClientId(0),
            _ => incoming.client,
        };
        let asks = matches!(
            op,
            Op::ListAudit | Op::ListObjects | Op::Scrub | Op::ListLacking | Op::StatObject
        );
        if asks {
            return None;
        }
        let (session, user, file) = (*session, *user, *file);
        Some(Self { client, session, user, file, at_unix_ms: incoming.now_unix_ms })
    }

    fn event(self, op: Op, status: Option<ErrorKind>) -> Event {
        let Self { client, session, user, file, .. } = self;
        let (rights, about) = (Rights::NONE, Bytes::default());
        Event { client, session, user, file, op, rights, status, about }
    }
}

impl<C: Copy> Machine<C> {
    /// Records an operation that has ended. One that is to be tried again is not recorded.
    pub(super) fn note_done(
        &mut self,
        who: Option<Who>,
        target: &ServedTarget,
        request: &Header,
        result: &Result<Outcome>,
    ) {
        let Some(who) = who else { return };
        let (status, bytes) = match result {
            Ok(Outcome::Read { bytes, .. }) => (None, *bytes),
            Ok(Outcome::Written { .. }) => (None, request.payload_len.into()),
            Ok(Outcome::Copied(copied)) => (None, copied.written),
            Ok(_) => (None, 0),
            Err(error) if error.kind.retry() == Retry::Never => (Some(error.kind), 0),
            Err(_) => return,
        };
        self.note(target.id, who.event(request.op, status), Sum::one(bytes, who.at_unix_ms));
    }

    /// Records that bytes of a file were copied from a target.
    pub(super) fn note_source(&mut self, from: &ServedTarget) {
        if let Some(who) = self.admitted.take() {
            self.note(from.id, who.event(Op::Read, None), Sum::one(0, who.at_unix_ms));
        }
    }

    /// Records a refused capability. Of one that is not signed nothing is believed: so whoever sends
    /// many has one record.
    pub(super) fn note_refused(
        &mut self,
        incoming: &Incoming<'_, C>,
        target: &ServedTarget,
        (capability, file): (&Capability, FileId),
        refusal: Refusal,
    ) {
        if !target.audit.is_on() {
            return;
        }
        let Incoming { session, header, now_unix_ms, .. } = *incoming;
        let client = if session == OF_SERVERS { ClientId(0) } else { incoming.client };
        let (user, file) = match refusal {
            Refusal::NotSigned => (UNKNOWN_USER, ANY_FILE),
            _ => (capability.user, file),
        };
        let event = Event {
            client,
            session,
            user,
            file,
            op: header.op,
            rights: Rights::NONE,
            status: Some(ErrorKind::BadCapability),
            about: Event::about(refusal.text().as_bytes()),
        };
        self.note(target.id, event, Sum::one(0, now_unix_ms));
    }

    /// Records a request in a session that was revoked. It was not read, so that no target is known:
    /// the first of the server has the record.
    pub fn note_session_over(&mut self, incoming: &Incoming<'_, C>, why: &str) {
        let Some(target) = self.targets.first().filter(|target| target.audit.is_on()) else {
            return;
        };
        let event = Event {
            client: incoming.client,
            session: incoming.session,
            user: UNKNOWN_USER,
            file: ANY_FILE,
            op: incoming.header.op,
            rights: Rights::NONE,
            status: Some(ErrorKind::BadTicket),
            about: Event::about(why.as_bytes()),
        };
        let place = target.id;
        self.note(place, event, Sum::one(0, incoming.now_unix_ms));
    }

    fn note(&mut self, target: TargetId, event: Event, one: Sum) {
        if self.tally.note(target, event, one) {
            self.hand_over();
        }
    }

    /// Adds what was counted to the logs of the targets.
    pub fn hand_over(&mut self) {
        if self.tally.is_empty() {
            return;
        }
        let mut sums: Vec<_> = self.tally.take().collect();
        sums.sort_by_key(|((target, _), sum)| (*target, sum.first_unix_ms));
        for of_target in sums.chunk_by(|a, b| a.0.0 == b.0.0) {
            let Some(((id, _), _)) = of_target.first() else { continue };
            if let Ok(at) = self.targets.binary_search_by_key(id, |target| target.id) {
                let sums = of_target.iter().map(|((_, event), sum)| (event.clone(), *sum));
                self.targets[at].audit.add(sums);
            }
        }
    }

    pub(super) fn list_audit(&mut self, incoming: &Incoming<'_, C>) -> Result<Action<C>> {
        let ListAuditRequest { access, after } = ListAuditRequest::from_bytes(incoming.body)?;
        let target: Arc<ServedTarget> = self.admit_administrator(incoming, &access)?;
        super::expect_no_payload(incoming.header)?;
        self.hand_over();
        let page = target.audit.page(after);
        let header = Header::reply_to(incoming.header, None);
        Ok(Action::Reply { conn: incoming.conn, header, body: Body::Audit(page), data_of: None })
    }
}
