//! The top of the machine: the start, each request on its way to the module that carries it out,
//! and what is done without a request. No other module uses it.

mod clients;
mod join;
mod ready;
mod servers;
mod start;
mod status;
mod tick;

use crate::machine::answer::{Answer, Peer, Reply, request};
use crate::machine::moment::{LONG_TICK_MS, Moment};
use crate::machine::sessions::recorded::is_administration;
use crate::machine::state::MetaMachine;
use weir_metastore::Engine;
use weir_types::codec::Reader;
use weir_types::{Decode, ErrorKind, Result};
use weir_wire::Header;
use weir_wire::message::Op;
use weir_wire::meta::{ExportMetaRequest, MetaPrefix};

impl<E: Engine> MetaMachine<E> {
    /// Handles a request. `body` is everything after the header.
    pub fn on_request(&mut self, peer: Peer, header: &Header, body: &[u8], now: Moment) -> Answer {
        self.notice_pause(now);
        let result = match peer {
            Peer::Client(session) => {
                let result = self.on_client(session, header.op, body, now);
                if is_administration(header.op)
                    && let Ok(prefix) = MetaPrefix::decode(&mut Reader::new(body))
                {
                    let status = result.as_ref().err().map(|error| error.kind);
                    let user = self.limits_of(session).squashed(prefix.caller).uid;
                    self.record_administration(session, header.op, user, status, now);
                }
                result
            }
            Peer::Server(server) => self.on_server(server, header.op, body, now),
            Peer::Metadata => self.on_metadata(header.op, body, now),
        };
        let answer = result.unwrap_or_else(|error| Answer::Now(Reply::error(&error)));
        self.stamped(peer, header.op, answer)
    }

    /// Notices that the process itself was stopped (or its machine), so that no other party counts
    /// as silent: their messages lie unread. A request may be the first to notice, before the next
    /// tick.
    fn notice_pause(&mut self, now: Moment) {
        if now.monotonic_ms.saturating_sub(self.last_tick_ms) <= LONG_TICK_MS {
            return;
        }
        self.last_tick_ms = now.monotonic_ms;
        self.sessions.forgive(now.monotonic_ms);
        self.cluster.forgive(now.monotonic_ms);
        self.leases.events.forgive(now.monotonic_ms);
        self.table.locks.forgive(now.monotonic_ms);
    }

    /// Handles a request of a metadata server that stands by: it may ask for a snapshot only.
    fn on_metadata(&mut self, op: Op, body: &[u8], now: Moment) -> Result<Answer> {
        if op != Op::ExportMeta {
            return Err(ErrorKind::NotPermitted.into());
        }
        let asked = request::<ExportMetaRequest>(Reader::new(body))?;
        Ok(Answer::Now(Reply::ok(&self.export_meta(None, &asked, now)?)))
    }
}
