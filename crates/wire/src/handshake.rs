//! Mutual authentication of a connection, without I/O. Both sides prove that they know a key
//! without revealing it. Fresh nonces from both sides make every connection's keys new, so that
//! recorded frames cannot be replayed.
//!
//! ```text
//! client                                   server
//!   Hello {versions, identity, nonce}  ->
//!                                      <-  Challenge {nonce, MAC(K, transcript)}
//!   Proof {MAC(K, transcript)}         ->
//!                                      <-  Welcome {session} (first sealed frame)
//! ```

use crate::auth::{Opener, Sealer};
use crate::frame::{HEADER_BYTES, Header, VERSION, encode_head};
use crate::key::{Key, Mac};
use crate::message::{Op, records};
use crate::ticket::Ticket;
use weir_types::codec::{Decode, DecodeError, Encode, Reader};
use weir_types::{ClientId, Error, ErrorKind, RequestId, ServerId, SessionId, TargetId};

/// Identity of the side that opens a connection. It determines the key that proves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// A client with a credential, at the metadata server.
    Client(ClientId),
    /// A client with a ticket, at a data server.
    Ticket(Ticket, Attempt),
    /// A data server, at the metadata server.
    Server(ServerId),
    /// A metadata server that stands by, at the one that leads.
    Metadata,
}

impl Encode for Identity {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Identity::Client(id) => {
                out.push(1);
                id.encode(out);
            }
            Identity::Ticket(ticket, attempt) => {
                out.push(2);
                ticket.encode(out);
                attempt.encode(out);
            }
            Identity::Server(id) => {
                out.push(3);
                id.encode(out);
            }
            Identity::Metadata => out.push(4),
        }
    }
}
impl Decode for Identity {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match u8::decode(r)? {
            1 => Identity::Client(Decode::decode(r)?),
            2 => Identity::Ticket(Decode::decode(r)?, Decode::decode(r)?),
            3 => Identity::Server(Decode::decode(r)?),
            4 => Identity::Metadata,
            _ => return Err(DecodeError::BadValue),
        })
    }
}

records! {
    /// Generation of a client's connections to a data server. The client raises the number when it
    /// abandons a change without a reply. From then on the server refuses changes on connections
    /// with a lower number, so that no abandoned or repeated change arrives late.
    Attempt {
        /// Random number of this run of the client.
        run: u64,
        /// Number of the generation, counted for each server separately.
        number: u64,
    }
    /// Opens a connection.
    Hello {
        /// The protocol version of the client.
        version: u16,
        /// Identity of the client.
        identity: Identity,
        /// 32 fresh random bytes.
        nonce: [u8; 32],
        /// The session to join; 0 for a new one.
        session: SessionId,
        /// Program and host, for messages.
        name: String,
        /// Host of the client, so that new files can be placed there; empty if unknown.
        host: String,
    }
    /// The server's answer to [`Hello`].
    Challenge {
        /// 32 fresh random bytes.
        nonce: [u8; 32],
        /// Proof that the server knows the key.
        proof: Mac,
    }
    /// The client's answer to [`Challenge`].
    Proof {
        /// Proof that the client knows the key.
        proof: Mac,
    }
    /// The server's last message: the connection is authenticated.
    Welcome {
        /// The session of the connection (0 for servers).
        session: SessionId,
        /// Id of the cluster.
        cluster: [u8; 16],
        /// Random number of this run of the server. When it changes, the server has lost its state
        /// in memory (open files).
        instance: u64,
        /// Of each target that a data server has the run of its disk's memory: as long as it is
        /// the same, nothing that was confirmed there is lost. A metadata server names none.
        runs: Vec<(TargetId, u64)>,
    }
}

impl Welcome {
    /// The run of a target; `None`: the server does not have it.
    pub fn run_of(&self, target: TargetId) -> Option<u64> {
        self.runs.iter().find(|(of, _)| *of == target).map(|(_, run)| *run)
    }
}

/// Derives the keys of both directions from the handshake.
fn keys(key: &Key, hello: &[u8], nonce: &[u8; 32]) -> (Key, Key) {
    let parts: [&[u8]; 2] = [hello, nonce];
    (key.derive("weir 1 to server", &parts), key.derive("weir 1 to client", &parts))
}

fn frame(op: Op, body: &impl Encode) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER_BYTES + 256);
    encode_head(&mut out, Header::request(op, RequestId(0)), body, &[], 0);
    out
}

/// The client's side.
#[derive(Debug)]
pub struct ClientHandshake {
    key: Key,
    hello: Vec<u8>,
}

impl ClientHandshake {
    /// Starts a handshake and returns the frame to send.
    pub fn start(key: Key, hello: &Hello) -> (Self, Vec<u8>) {
        (Self { key, hello: hello.to_bytes() }, frame(Op::Hello, hello))
    }

    /// Handles the server's challenge. Returns the frame to send, and the sealer and opener of all
    /// later frames. The next frame from the server is the [`Welcome`], already sealed.
    pub fn on_challenge(
        self,
        header: &Header,
        body: &[u8],
    ) -> Result<(Vec<u8>, Sealer, Opener), Error> {
        if header.status.is_some() {
            return Err(Error::from_bytes(body)?);
        }
        if header.op != Op::Challenge {
            return Err(ErrorKind::Protocol.into());
        }
        let challenge = Challenge::from_bytes(body)?;
        let parts: [&[u8]; 2] = [&self.hello, &challenge.nonce];
        if self.key.mac("weir 1 server proof", &parts) != challenge.proof {
            return Err(Error::new(
                ErrorKind::AuthFailed,
                "the server does not know our key: wrong cluster or wrong key file",
            ));
        }
        let proof = Proof { proof: self.key.mac("weir 1 client proof", &parts) };
        let (to_server, to_client) = keys(&self.key, &self.hello, &challenge.nonce);
        Ok((frame(Op::Proof, &proof), Sealer::new(to_server), Opener::new(to_client)))
    }
}

/// The server's side, between Hello and Proof.
#[derive(Debug)]
pub struct ServerHandshake {
    key: Key,
    hello_bytes: Vec<u8>,
    nonce: [u8; 32],
    /// The client's message.
    pub hello: Hello,
}

impl ServerHandshake {
    /// Handles a [`Hello`]. `key_for` returns the key of an identity or an error; `nonce` is 32
    /// fresh random bytes. Returns the frame to send.
    pub fn on_hello(
        header: &Header,
        body: &[u8],
        nonce: [u8; 32],
        key_for: impl FnOnce(&Hello) -> Result<Key, Error>,
    ) -> Result<(Self, Vec<u8>), Error> {
        if header.op != Op::Hello || header.checks != 0 || header.payload_len != 0 {
            return Err(Error::new(ErrorKind::AuthFailed, "the connection is not authenticated"));
        }
        let hello = Hello::from_bytes(body)?;
        if hello.version != VERSION {
            return Err(version_mismatch(hello.version));
        }
        let key = key_for(&hello)?;
        let proof = key.mac("weir 1 server proof", &[body, &nonce]);
        let challenge = frame(Op::Challenge, &Challenge { nonce, proof });
        Ok((Self { key, hello_bytes: body.to_vec(), nonce, hello }, challenge))
    }

    /// Handles the [`Proof`]. Returns the sealer and opener of all later frames. The caller then
    /// sends a sealed [`Welcome`] made by [`welcome`].
    pub fn on_proof(self, header: &Header, body: &[u8]) -> Result<(Hello, Sealer, Opener), Error> {
        if header.op != Op::Proof || header.checks != 0 || header.payload_len != 0 {
            return Err(ErrorKind::Protocol.into());
        }
        let proof = Proof::from_bytes(body)?;
        let parts: [&[u8]; 2] = [&self.hello_bytes, &self.nonce];
        if self.key.mac("weir 1 client proof", &parts) != proof.proof {
            return Err(Error::new(ErrorKind::AuthFailed, "wrong key"));
        }
        let (to_server, to_client) = keys(&self.key, &self.hello_bytes, &self.nonce);
        Ok((self.hello, Sealer::new(to_client), Opener::new(to_server)))
    }
}

/// Makes the sealed frame that ends the handshake.
pub fn welcome(sealer: &mut Sealer, welcome: &Welcome) -> Vec<u8> {
    let mut out = frame(Op::Proof, welcome);
    sealer.seal(&mut out);
    out
}

/// Makes an unsealed error frame, for a peer that is not authenticated.
pub fn refusal(error: &Error) -> Vec<u8> {
    let mut out = Vec::new();
    let mut header = Header::request(Op::Challenge, RequestId(0));
    header.kind = crate::FrameKind::Reply;
    header.status = Some(error.kind);
    encode_head(&mut out, header, error, &[], 0);
    out
}

/// The error for a peer with another protocol version.
pub fn version_mismatch(theirs: u16) -> Error {
    Error::new(
        ErrorKind::VersionMismatch,
        format!(
            "protocol version mismatch: the peer speaks version {theirs}, this program version \
             {VERSION}; install the same release of weir on both sides"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::HEADER_BYTES;

    fn split(frame: &[u8]) -> (Header, &[u8]) {
        let header = Header::parse(frame[..HEADER_BYTES].try_into().unwrap()).unwrap();
        (header, &frame[HEADER_BYTES..])
    }

    fn hello() -> Hello {
        Hello {
            version: VERSION,
            identity: Identity::Client(ClientId(1)),
            nonce: [1; 32],
            session: SessionId(0),
            name: "test".into(),
            host: String::new(),
        }
    }

    fn run(client_key: Key, server_key: Key) -> Result<(), Error> {
        let (client, frame) = ClientHandshake::start(client_key, &hello());
        let (header, body) = split(&frame);
        let (server, frame) =
            ServerHandshake::on_hello(&header, body, [2; 32], |_| Ok(server_key))?;
        let (header, body) = split(&frame);
        let (frame, mut c_sealer, mut c_opener) = client.on_challenge(&header, body)?;
        let (header, body) = split(&frame);
        let (_, mut s_sealer, mut s_opener) = server.on_proof(&header, body)?;
        let mut frame = welcome(
            &mut s_sealer,
            &Welcome { session: SessionId(8), cluster: [0; 16], instance: 1, runs: Vec::new() },
        );
        c_opener.open(&mut frame)?;
        assert_eq!(Welcome::from_bytes(&frame[HEADER_BYTES..])?.session, SessionId(8));
        let mut request = super::frame(Op::Ping, &());
        c_sealer.seal(&mut request);
        s_opener.open(&mut request)
    }

    #[test]
    fn equal_keys_connect_and_different_ones_do_not() {
        let key = |n| Key::from_bytes([n; 32]);
        assert!(run(key(1), key(1)).is_ok());
        assert_eq!(run(key(1), key(2)).unwrap_err().kind, ErrorKind::AuthFailed);
    }

    #[test]
    fn a_client_that_only_saw_another_handshake_cannot_prove_itself() {
        let key = Key::from_bytes([1; 32]);
        let (client, frame) = ClientHandshake::start(key.clone(), &hello());
        let (header, body) = split(&frame);
        let (_, challenge) =
            ServerHandshake::on_hello(&header, body, [2; 32], |_| Ok(key.clone())).unwrap();
        let (h, b) = split(&challenge);
        let (recorded_proof, ..) = client.on_challenge(&h, b).unwrap();
        // The same hello and the recorded proof against a fresh server nonce.
        let (server, _) = ServerHandshake::on_hello(&header, body, [3; 32], |_| Ok(key)).unwrap();
        let (h, b) = split(&recorded_proof);
        assert_eq!(server.on_proof(&h, b).unwrap_err().kind, ErrorKind::AuthFailed);
    }

    #[test]
    fn another_version_is_named() {
        let other = Hello { version: VERSION + 1, ..hello() };
        let (_, frame) = ClientHandshake::start(Key::from_bytes([1; 32]), &other);
        let (header, body) = split(&frame);
        let error =
            ServerHandshake::on_hello(&header, body, [2; 32], |_| Ok(Key::from_bytes([1; 32])))
                .unwrap_err();
        assert_eq!(error.kind, ErrorKind::VersionMismatch);
        assert!(error.message.contains(&format!("version {}", VERSION + 1)));
    }
}
