//! Tickets: with one a session connects to a data server.

use crate::machine::moment::Moment;
use crate::machine::state::MetaMachine;
use weir_metastore::Engine;
use weir_types::{ClientId, Error, ErrorKind, Result, ServerId, SessionId};
use weir_wire::{Key, SealedTicket, Ticket};

/// The most servers in one request for tickets.
const MAX_TICKETS: usize = 4096;

impl<E: Engine> MetaMachine<E> {
    pub(in crate::machine) fn tickets(
        &mut self,
        client: ClientId,
        session: SessionId,
        servers: &[ServerId],
        now: Moment,
    ) -> Result<Vec<SealedTicket>> {
        if servers.len() > MAX_TICKETS {
            return Err(ErrorKind::TooBig.into());
        }
        let client_key = self.signer.master().client(client);
        let mut tickets = Vec::with_capacity(servers.len());
        for &server in servers {
            if !self.cluster.knows(server) {
                let message = format!("there is no data server {server}");
                return Err(Error::new(ErrorKind::TargetMissing, message));
            }
            tickets.push(self.ticket(server, (client, session), &client_key, now));
        }
        Ok(tickets)
    }

    /// A ticket for a data server, for the holder of this key.
    pub(in crate::machine) fn ticket(
        &mut self,
        server: ServerId,
        (client, session): (ClientId, SessionId),
        key: &Key,
        now: Moment,
    ) -> SealedTicket {
        let expires_unix_ms = now.unix_ms().saturating_add(self.times.ticket_ms);
        self.nonce_count += 1;
        let nonce = self.nonces.mac("weir 1 nonce", &[&self.nonce_count.to_le_bytes()]).0;
        let ticket = Ticket { server, client, session, expires_unix_ms, nonce };
        SealedTicket::seal(ticket, &self.signer.server_key(server), key)
    }
}
