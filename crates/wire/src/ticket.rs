//! Tickets: how a client and a data server without a shared secret get one. The metadata server,
//! which knows the server's key, makes a ticket. The client receives the ticket's key encrypted
//! under its own session key, and the server derives the same key from the ticket.

use crate::key::Key;
use weir_types::codec::{Decode, DecodeError, Encode, Reader};
use weir_types::{ClientId, ServerId, SessionId};

/// Session in the tickets of data servers. No client has this session.
pub const OF_SERVERS: SessionId = SessionId(0);

/// Introduces a client's session to one data server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// The server that accepts the ticket.
    pub server: ServerId,
    /// The client that uses the ticket.
    pub client: ClientId,
    /// The client's session.
    pub session: SessionId,
    /// End of validity, in milliseconds since 1970.
    pub expires_unix_ms: u64,
    /// Random bytes that make the ticket's key unique.
    pub nonce: [u8; 16],
}
weir_types::codec_struct!(Ticket { server, client, session, expires_unix_ms, nonce });

impl Ticket {
    /// The key that belongs to the ticket.
    pub fn key(&self, server_key: &Key) -> Key {
        server_key.derive("weir 1 ticket", &[&self.to_bytes()])
    }
}

/// A ticket for the client, with its key encrypted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedTicket {
    /// The ticket, which the client passes on unchanged.
    pub ticket: Ticket,
    hidden_key: [u8; 32],
}

impl Encode for SealedTicket {
    fn encode(&self, out: &mut Vec<u8>) {
        self.ticket.encode(out);
        self.hidden_key.encode(out);
    }
}
impl Decode for SealedTicket {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { ticket: Ticket::decode(r)?, hidden_key: r.array()? })
    }
}

impl SealedTicket {
    /// Encrypts the ticket's key, in the metadata server.
    pub fn seal(ticket: Ticket, server_key: &Key, client_key: &Key) -> Self {
        let mut hidden_key = *ticket.key(server_key).expose();
        client_key.mask(&ticket.nonce, &mut hidden_key);
        Self { ticket, hidden_key }
    }

    /// Decrypts the ticket's key, in the client.
    pub fn open(&self, client_key: &Key) -> Key {
        let mut key = self.hidden_key;
        client_key.mask(&self.ticket.nonce, &mut key);
        Key::from_bytes(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_and_server_come_to_the_same_key() {
        let (server_key, client_key) = (Key::from_bytes([1; 32]), Key::from_bytes([2; 32]));
        let ticket = Ticket {
            server: ServerId(1),
            client: ClientId(9),
            session: SessionId(4),
            expires_unix_ms: 10,
            nonce: [5; 16],
        };
        let sealed = SealedTicket::seal(ticket.clone(), &server_key, &client_key);
        let sealed = SealedTicket::from_bytes(&sealed.to_bytes()).unwrap();
        assert_eq!(sealed.open(&client_key), ticket.key(&server_key));
        assert_ne!(sealed.open(&Key::from_bytes([3; 32])), ticket.key(&server_key));
    }
}
