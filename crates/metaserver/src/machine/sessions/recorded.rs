//! Audit records: who asked for what, and what was refused.

use crate::machine::moment::Moment;
use crate::machine::state::MetaMachine;
use crate::ops::subject;
use weir_audit::Event;
use weir_metastore::Engine;
use weir_types::codec::{Bytes, Reader};
use weir_types::{ClientId, ErrorKind, FileId, Result, SessionId};
use weir_wire::Rights;
use weir_wire::audit::AuditPage;
use weir_wire::message::Op;

impl<E: Engine> MetaMachine<E> {
    /// Records a request on the namespace that was carried out, or was refused for lack of a right.
    pub(in crate::machine) fn record(
        &mut self,
        session: SessionId,
        (op, body): (Op, Reader<'_>),
        user: u32,
        status: Option<ErrorKind>,
        now: Moment,
    ) {
        let is_recorded = match status {
            None => subject::is_recorded(op),
            Some(kind) => is_refusal(kind),
        };
        if !is_recorded || !self.recorded.is_on() {
            return;
        }
        let Some(found) = subject::of(op, body) else { return };
        let subtree = self.limits_of(session).subtree;
        let known = |file| match subtree {
            // That is the root to this client.
            Some(subtree) if file == FileId::ROOT => subtree,
            _ => file,
        };
        let name = found.name.filter(|_| status.is_some() || subject::says_name(op));
        let about = name.map_or_else(Bytes::default, |name| Event::about(&name));
        let event =
            Event { file: known(found.file), op, rights: found.rights, status, about, ..nothing() };
        if let Some((dir, name)) = found.to
            && status.is_none()
        {
            // It may have replaced what had this name.
            let (file, about) = (known(dir), Event::about(&name));
            self.note(session, user, Event { file, about, ..event.clone() }, now);
        }
        self.note(session, user, event, now);
    }

    /// Records a request of an administrator, or of who wants to be one.
    pub(in crate::machine) fn record_administration(
        &mut self,
        session: SessionId,
        op: Op,
        user: u32,
        status: Option<ErrorKind>,
        now: Moment,
    ) {
        if self.recorded.is_on() && status.is_none_or(is_refusal) {
            self.note(session, user, Event { op, status, ..nothing() }, now);
        }
    }

    fn note(&mut self, session: SessionId, user: u32, event: Event, now: Moment) {
        let client = self.sessions.by_id.get(&session).map_or(ClientId(0), |it| it.client);
        self.recorded.note(Event { client, session, user, ..event }, now.unix_ms());
    }

    /// A page of the audit records.
    ///
    /// # Errors
    /// `NotAdministrator`.
    pub(in crate::machine) fn list_audit(
        &mut self,
        client: ClientId,
        after: u64,
    ) -> Result<AuditPage> {
        self.require_administrator(client)?;
        Ok(self.recorded.page(after))
    }
}

/// Whether an operation is one of administrators that is recorded.
pub(in crate::machine) fn is_administration(op: Op) -> bool {
    matches!(
        op,
        Op::AdminCapability
            | Op::ExportMeta
            | Op::SetClient
            | Op::SetQuota
            | Op::SetTarget
            | Op::RemoveTarget
            | Op::RemoveServer
            | Op::Rebalance
            | Op::RotateKeys
            | Op::ListMetaAudit
    )
}

/// Whether an error says that somebody may not do what he asked for.
fn is_refusal(kind: ErrorKind) -> bool {
    use ErrorKind::{AccessDenied, NotAdministrator, NotPermitted, ReadOnly};
    matches!(kind, AccessDenied | NotAdministrator | NotPermitted | ReadOnly)
}

/// An event of nobody.
fn nothing() -> Event {
    Event {
        client: ClientId(0),
        session: SessionId(0),
        user: 0,
        file: FileId(0),
        op: Op::Ping,
        rights: Rights::NONE,
        status: None,
        about: Bytes::default(),
    }
}
