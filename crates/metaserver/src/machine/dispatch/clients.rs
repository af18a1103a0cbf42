//! Requests of clients.

use crate::machine::answer::{Answer, Reply, request};
use crate::machine::moment::Moment;
use crate::machine::state::MetaMachine;
use crate::machine::state::counters;
use weir_metastore::Engine;
use weir_types::codec::Reader;
use weir_types::{Decode, Error, ErrorKind, Result, SessionId};
use weir_wire::audit::ListMetaAuditRequest;
use weir_wire::holders::ListSessionsRequest;
use weir_wire::lease::{AckEventsRequest, EndSessionRequest, PollEventsRequest};
use weir_wire::lock::TestLockRequest;
use weir_wire::message::Op;
use weir_wire::meta::{
    AdminCapabilityRequest, CountOpensRequest, ExportMetaRequest, GetMapRequest, GetTicketsRequest,
    ListClientsRequest, MetaPrefix, RebalanceRequest, SetClientRequest, VerifyMetaRequest,
};
use weir_wire::targets::{FreeNumbersRequest, ListTargetsRequest};

impl<E: Engine> MetaMachine<E> {
    /// Handles a request of a client in a session.
    pub(super) fn on_client(
        &mut self,
        session: SessionId,
        op: Op,
        body: &[u8],
        now: Moment,
    ) -> Result<Answer> {
        let known = self.sessions.heard(session, now.monotonic_ms);
        let client = known.ok_or(ErrorKind::SessionExpired)?.client;
        if counters::is_data(op) {
            return Err(Error::new(
                ErrorKind::Protocol,
                "the metadata server keeps no data: ask the data server of the target",
            ));
        }
        let mut rest = Reader::new(body);
        let prefix = MetaPrefix::decode(&mut rest)?;
        let reply = match op {
            Op::Ping => Reply::ok(&()),
            Op::Status => Reply::ok(&self.status(now)),
            Op::GetMap => {
                let have = request::<GetMapRequest>(rest)?.have;
                let newer = self.cluster.epoch > have;
                let reply = Reply::ok(&newer.then(|| self.cluster.map()));
                return Ok(self.after_map(reply));
            }
            Op::GetTickets => {
                let servers = request::<GetTicketsRequest>(rest)?.servers;
                Reply::ok(&self.tickets(client, session, &servers, now)?)
            }
            Op::AdminCapability => {
                request::<AdminCapabilityRequest>(rest)?;
                Reply::ok(&self.admin_capability(client, session, now)?)
            }
            Op::VerifyMeta => {
                let place = request::<VerifyMetaRequest>(rest)?.place;
                Reply::ok(&self.verify_meta(client, place)?)
            }
            Op::CountOpens => {
                let files = request::<CountOpensRequest>(rest)?.files;
                Reply::ok(&self.count_opens(client, &files)?)
            }
            Op::ExportMeta => {
                let asked = request::<ExportMetaRequest>(rest)?;
                Reply::ok(&self.export_meta(Some(client), &asked, now)?)
            }
            Op::SetClient => {
                self.set_client(client, request::<SetClientRequest>(rest)?.info, now)?;
                return Ok(self.after_sync(Reply::ok(&())));
            }
            Op::Rebalance => {
                self.rebalance(client, &request::<RebalanceRequest>(rest)?)?;
                Reply::ok(&())
            }
            Op::ListClients => {
                let after = request::<ListClientsRequest>(rest)?.after;
                Reply::ok(&self.list_clients(client, after)?)
            }
            Op::ListSessions => {
                let after = request::<ListSessionsRequest>(rest)?.after;
                Reply::ok(&self.list_sessions(client, after, now)?)
            }
            Op::ListHolds => Reply::ok(&self.list_holds(client, &request(rest)?, now)?),
            Op::SetQuota => {
                self.set_quota(client, &request(rest)?)?;
                return Ok(self.after_sync(Reply::ok(&())));
            }
            Op::ListQuotas => {
                let caller = self.limits_of(session).squashed(prefix.caller);
                Reply::ok(&self.list_quotas(client, &caller, &request(rest)?)?)
            }
            Op::ListTargets => {
                let after = request::<ListTargetsRequest>(rest)?.after;
                Reply::ok(&self.list_targets(after, now))
            }
            Op::SetTarget => {
                self.set_target(client, &request(rest)?, now)?;
                return Ok(self.after_sync(Reply::ok(&())));
            }
            Op::RemoveTarget => {
                let removal = self.remove_target(client, &request(rest)?, now)?;
                return Ok(self.after_sync(Reply::ok(&removal)));
            }
            Op::RemoveServer => {
                self.remove_server(client, &request(rest)?, now)?;
                return Ok(self.after_sync(Reply::ok(&())));
            }
            Op::FreeNumbers => {
                request::<FreeNumbersRequest>(rest)?;
                Reply::ok(&self.free_numbers(client)?)
            }
            Op::RotateKeys => {
                let rotation = self.rotate_keys(client, &request(rest)?, now)?;
                return Ok(self.after_sync(Reply::ok(&rotation)));
            }
            Op::ListMetaAudit => {
                let after = request::<ListMetaAuditRequest>(rest)?.after;
                Reply::ok(&self.list_audit(client, after)?)
            }
            Op::CountCopies => Reply::ok(&self.count_copies(client, request(rest)?)?),
            Op::AcceptLosses => {
                self.require_administrator(client)?;
                return self.consider(session, op, body, now);
            }
            Op::SyncMeta => {
                return Ok(self.after_sync(Reply::ok(&())));
            }
            Op::PollEvents => {
                let have = request::<PollEventsRequest>(rest)?.have;
                return Ok(self.poll_events(session, have, now));
            }
            Op::AckEvents => {
                let acks = request::<AckEventsRequest>(rest)?.acks;
                self.ack_events(session, &acks);
                Reply::ok(&())
            }
            Op::EndSession => {
                request::<EndSessionRequest>(rest)?;
                self.end_session(session, true)?;
                Reply::ok(&())
            }
            Op::SetLock => return self.set_lock(session, &request(rest)?, now),
            Op::TestLock => {
                let lock = request::<TestLockRequest>(rest)?.lock;
                Reply::ok(&self.test_lock(session, &lock, now)?)
            }
            Op::CancelLock => Reply::ok(&self.cancel_lock(session, &request(rest)?)),
            Op::ReassertLocks => Reply::ok(&self.reassert_locks(session, &request(rest)?)?),
            _ => return self.consider(session, op, body, now),
        };
        Ok(Answer::Now(reply))
    }
}
