//! Mutual authentication of a connection, without I/O. Both sides prove that they know a key
//! without revealing it. Fresh nonces from both sides make every connection's keys new, so that
//! recorded frames cannot be replayed. Both sides state the lowest level of protection that they
//! accept. The proofs cover that, so nobody between them can lower it.
//!
//! ```text
//! client                                          server
//!   Hello {version, identity, nonce, level}   ->
//!                                             <-  Challenge {nonce, level, MAC(K, transcript)}
//!   Proof {public key, MAC(K, transcript)}    ->
//!                                             <-  KeyAnswer {public key} (private connections)
//!                                             <-  Welcome {session} (first sealed frame)
//! ```

use crate::auth::{Opener, Sealer};
use crate::frame::{HEADER_BYTES, Header, VERSION, encode_head};
use crate::key::{Key, Mac};
use crate::message::{Op, records};
use crate::private::{Initiator, Records, respond};
use crate::protection::Level;
use crate::ticket::Ticket;
use weir_types::codec::{Bytes, Decode, DecodeError, Encode, Reader};
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
        /// The lowest level of protection that the client accepts.
        protection: Level,
    }
    /// The server's answer to [`Hello`].
    Challenge {
        /// 32 fresh random bytes.
        nonce: [u8; 32],
        /// The level of protection of the connection: the higher one of what both sides accept.
        protection: Level,
        /// Proof that the server knows the key.
        proof: Mac,
    }
    /// The client's answer to [`Challenge`].
    Proof {
        /// The client's message of the agreement on keys ([`Initiator`]); empty below
        /// [`Level::Private`].
        opening: Bytes,
        /// Proof that the client knows the key.
        proof: Mac,
    }
    /// The server's message of the agreement on keys, if the connection is private. All bytes after
    /// it are records.
    KeyAnswer {
        /// What [`respond`] made.
        message: Bytes,
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

/// What both sides have said, as far as all keys and proofs go by it.
struct Transcript<'a> {
    hello: &'a [u8],
    nonce: &'a [u8; 32],
    level: [u8; 1],
}

impl<'a> Transcript<'a> {
    fn new(hello: &'a [u8], nonce: &'a [u8; 32], level: Level) -> Self {
        Self { hello, nonce, level: [level as u8] }
    }

    fn parts(&self) -> [&[u8]; 3] {
        [self.hello, self.nonce, &self.level]
    }

    fn server_proof(&self, key: &Key) -> Mac {
        key.mac("weir 1 server proof", &self.parts())
    }

    fn client_proof(&self, key: &Key, opening: &[u8]) -> Mac {
        let [hello, nonce, level] = self.parts();
        key.mac("weir 1 client proof", &[hello, nonce, level, opening])
    }

    fn to_server(&self, key: &Key) -> Key {
        key.derive("weir 1 to server", &self.parts())
    }

    fn to_client(&self, key: &Key) -> Key {
        key.derive("weir 1 to client", &self.parts())
    }

    fn private(&self, key: &Key) -> Key {
        key.derive("weir 1 private", &self.parts())
    }
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
    least: Level,
}

/// A client that has proved itself.
#[derive(Debug)]
pub struct Proved {
    /// The frame to send.
    pub frame: Vec<u8>,
    /// Seals all later frames.
    pub sealer: Sealer,
    /// Opens all later frames. The first one from the server is the [`Welcome`].
    pub opener: Opener,
    /// The level of protection.
    pub level: Level,
    /// On a private connection: waits for the server's [`KeyAnswer`], which comes before all else.
    pub initiator: Option<Initiator>,
}

impl ClientHandshake {
    /// Starts a handshake and returns the frame to send.
    pub fn start(key: Key, hello: &Hello) -> (Self, Vec<u8>) {
        let least = hello.protection;
        (Self { key, hello: hello.to_bytes(), least }, frame(Op::Hello, hello))
    }

    /// Handles the server's challenge. `secret` makes 32 fresh random bytes for a private
    /// connection.
    pub fn on_challenge(
        self,
        header: &Header,
        body: &[u8],
        secret: impl FnOnce() -> Result<[u8; 32], Error>,
    ) -> Result<Proved, Error> {
        if header.status.is_some() {
            return Err(Error::from_bytes(body)?);
        }
        if header.op != Op::Challenge {
            return Err(ErrorKind::Protocol.into());
        }
        let challenge = Challenge::from_bytes(body)?;
        let (key, level) = (&self.key, challenge.protection);
        let said = Transcript::new(&self.hello, &challenge.nonce, level);
        if said.server_proof(key) != challenge.proof {
            return Err(Error::new(
                ErrorKind::AuthFailed,
                "the server does not know our key: wrong cluster, wrong key file, or somebody \
                 changes what is sent",
            ));
        }
        if level < self.least {
            let least = self.least;
            let what = format!(
                "the server protects this connection as `{level}`, and at least `{least}` is \
                 required here: install the same release of weir on both sides, or require less \
                 here (`protection` of the mount and in client.toml)"
            );
            return Err(Error::new(ErrorKind::AuthFailed, what));
        }
        let (initiator, opening) = match level {
            Level::Private => {
                let (initiator, message) = Initiator::begin(&said.private(key), secret()?)?;
                (Some(initiator), message)
            }
            Level::Args | Level::Data => (None, Vec::new()),
        };
        let proof = said.client_proof(key, &opening);
        Ok(Proved {
            frame: frame(Op::Proof, &Proof { opening: Bytes(opening), proof }),
            sealer: Sealer::at(level, said.to_server(key)),
            opener: Opener::at(level, said.to_client(key)),
            level,
            initiator,
        })
    }
}

impl Proved {
    /// Handles the server's [`KeyAnswer`], or the refusal in its place.
    pub fn on_key_answer(
        initiator: Initiator,
        header: &Header,
        body: &[u8],
    ) -> Result<Records, Error> {
        if header.status.is_some() {
            return Err(Error::from_bytes(body)?);
        }
        if header.op != Op::Proof {
            return Err(ErrorKind::Protocol.into());
        }
        initiator.finish(&KeyAnswer::from_bytes(body)?.message.0)
    }
}

/// The server's side, between Hello and Proof.
#[derive(Debug)]
pub struct ServerHandshake {
    key: Key,
    hello_bytes: Vec<u8>,
    nonce: [u8; 32],
    level: Level,
    /// The client's message.
    pub hello: Hello,
}

/// A client that the server has accepted.
#[derive(Debug)]
pub struct Accepted {
    /// Its message.
    pub hello: Hello,
    /// Seals all later frames. The caller sends a [`welcome`] first.
    pub sealer: Sealer,
    /// Opens all later frames.
    pub opener: Opener,
    /// The level of protection.
    pub level: Level,
    /// On a private connection: the frame to send before all else, unsealed, and the records in
    /// which everything travels after it.
    pub private: Option<(Vec<u8>, Records)>,
}

impl ServerHandshake {
    /// Handles a [`Hello`]. `key_for` returns the key of an identity and the lowest level of
    /// protection that the server accepts, or an error; `nonce` is 32 fresh random bytes. Returns
    /// the frame to send.
    pub fn on_hello(
        header: &Header,
        body: &[u8],
        nonce: [u8; 32],
        key_for: impl FnOnce(&Hello) -> Result<(Key, Level), Error>,
    ) -> Result<(Self, Vec<u8>), Error> {
        if header.op != Op::Hello || header.checks != 0 || header.payload_len != 0 {
            return Err(Error::new(ErrorKind::AuthFailed, "the connection is not authenticated"));
        }
        let hello = Hello::from_bytes(body)?;
        if hello.version != VERSION {
            return Err(version_mismatch(hello.version));
        }
        let (key, least) = key_for(&hello)?;
        let level = hello.protection.max(least);
        let proof = Transcript::new(body, &nonce, level).server_proof(&key);
        let challenge = frame(Op::Challenge, &Challenge { nonce, protection: level, proof });
        Ok((Self { key, hello_bytes: body.to_vec(), nonce, level, hello }, challenge))
    }

    /// Handles the [`Proof`]. `secret` makes 32 fresh random bytes for a private connection.
    pub fn on_proof(
        self,
        header: &Header,
        body: &[u8],
        secret: impl FnOnce() -> Result<[u8; 32], Error>,
    ) -> Result<Accepted, Error> {
        if header.op != Op::Proof || header.checks != 0 || header.payload_len != 0 {
            return Err(ErrorKind::Protocol.into());
        }
        let Proof { opening, proof } = Proof::from_bytes(body)?;
        let (key, level) = (&self.key, self.level);
        let said = Transcript::new(&self.hello_bytes, &self.nonce, level);
        if said.client_proof(key, &opening.0) != proof {
            return Err(Error::new(ErrorKind::AuthFailed, "wrong key"));
        }
        let private = match level {
            Level::Private => {
                let (records, message) = respond(&said.private(key), secret()?, &opening.0)?;
                Some((frame(Op::Proof, &KeyAnswer { message: Bytes(message) }), records))
            }
            Level::Args | Level::Data if opening.0.is_empty() => None,
            Level::Args | Level::Data => return Err(ErrorKind::Protocol.into()),
        };
        let sealer = Sealer::at(level, said.to_client(key));
        let opener = Opener::at(level, said.to_server(key));
        Ok(Accepted { sealer, opener, level, private, hello: self.hello })
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
            protection: Level::Args,
        }
    }

    fn key(n: u8) -> Key {
        Key::from_bytes([n; 32])
    }

    fn secret(n: u8) -> impl FnOnce() -> Result<[u8; 32], Error> {
        move || Ok([n; 32])
    }

    /// Who changes a frame on its way.
    type Between<'a> = &'a dyn Fn(Op, &mut Vec<u8>);

    /// The whole handshake of a client and a server that accept at least these levels. Returns the
    /// level of each side.
    fn run(
        (client_key, client_least): (Key, Level),
        (server_key, server_least): (Key, Level),
        between: Between<'_>,
    ) -> Result<(Level, Level), Error> {
        let hello = Hello { protection: client_least, ..hello() };
        let (client, mut frame) = ClientHandshake::start(client_key, &hello);
        between(Op::Hello, &mut frame);
        let (header, body) = split(&frame);
        let of_client = |_: &Hello| Ok((server_key, server_least));
        let (server, mut frame) = ServerHandshake::on_hello(&header, body, [2; 32], of_client)?;
        between(Op::Challenge, &mut frame);
        let (header, body) = split(&frame);
        let mut client = client.on_challenge(&header, body, secret(3))?;
        between(Op::Proof, &mut client.frame);
        let (header, body) = split(&client.frame);
        let mut server = server.on_proof(&header, body, secret(4))?;
        assert_eq!(client.initiator.is_some(), client.level == Level::Private);
        if let Some(initiator) = client.initiator.take() {
            let (mut frame, mut theirs) = server.private.take().expect("a private connection");
            between(Op::Ping, &mut frame);
            let (header, body) = split(&frame);
            let mut ours = Proved::on_key_answer(initiator, &header, body)?;
            let mut bytes = Vec::new();
            ours.seal([b"hidden".as_slice()].into_iter(), usize::MAX, &mut bytes)?;
            let mut plain = [0; 6];
            theirs.open(&bytes, &mut plain)?;
            assert_eq!(&plain, b"hidden");
        }
        let mut frame = welcome(
            &mut server.sealer,
            &Welcome { session: SessionId(8), cluster: [0; 16], instance: 1, runs: Vec::new() },
        );
        client.opener.open(&mut frame)?;
        assert_eq!(Welcome::from_bytes(&frame[HEADER_BYTES..])?.session, SessionId(8));
        let mut request = super::frame(Op::Ping, &());
        client.sealer.seal(&mut request);
        server.opener.open(&mut request)?;
        Ok((client.level, server.level))
    }

    #[test]
    fn equal_keys_connect_and_different_ones_do_not_at_every_level() {
        for level in Level::ALL {
            let with = |ours, theirs| run((key(ours), level), (key(theirs), level), &|_, _| {});
            assert_eq!(with(1, 1).unwrap(), (level, level));
            assert_eq!(with(1, 2).unwrap_err().kind, ErrorKind::AuthFailed);
        }
    }

    #[test]
    fn the_higher_level_of_the_two_sides_is_used() {
        for (ours, theirs) in Level::ALL.into_iter().flat_map(|a| Level::ALL.map(|b| (a, b))) {
            let levels = run((key(1), ours), (key(1), theirs), &|_, _| {}).unwrap();
            assert_eq!(levels, (ours.max(theirs), ours.max(theirs)));
        }
    }

    #[test]
    fn nobody_between_lowers_the_level_or_changes_a_byte_of_what_it_goes_by() {
        for (ours, theirs) in [(Level::Private, Level::Args), (Level::Args, Level::Private)] {
            for of in [Op::Hello, Op::Challenge, Op::Proof, Op::Ping] {
                let mut changed = 0;
                for at in 0..100 {
                    let hit = std::cell::Cell::new(false);
                    let flip = |op: Op, frame: &mut Vec<u8>| {
                        if op == of && HEADER_BYTES + at < frame.len() {
                            hit.set(true);
                            frame[HEADER_BYTES + at] ^= 2;
                        }
                    };
                    let done = run((key(1), ours), (key(1), theirs), &flip);
                    assert!(done.is_err() || !hit.get(), "{of:?}, byte {at}");
                    changed += usize::from(hit.get());
                }
                assert!(changed >= 48, "{of:?}");
            }
            // Who asks for less in another's name.
            let lower = |op: Op, frame: &mut Vec<u8>| match op {
                Op::Hello => *frame.last_mut().unwrap() = Level::Args as u8,
                Op::Challenge => frame[HEADER_BYTES + 32] = Level::Args as u8,
                _ => {}
            };
            assert_eq!(
                run((key(1), ours), (key(1), theirs), &lower).unwrap_err().kind,
                ErrorKind::AuthFailed
            );
        }
    }

    #[test]
    fn a_server_that_protects_less_than_required_is_refused() {
        let hello = Hello { protection: Level::Data, ..hello() };
        let (client, _) = ClientHandshake::start(key(1), &hello);
        let nonce = [2; 32];
        let bytes = hello.to_bytes();
        let proof = Transcript::new(&bytes, &nonce, Level::Args).server_proof(&key(1));
        let lax = super::frame(Op::Challenge, &Challenge { nonce, protection: Level::Args, proof });
        let (header, body) = split(&lax);
        let error = client.on_challenge(&header, body, secret(3)).unwrap_err();
        assert!(error.message.contains("`data` is required"), "{error}");
    }

    #[test]
    fn a_client_that_only_saw_another_handshake_cannot_prove_itself() {
        let key = Key::from_bytes([1; 32]);
        let (client, frame) = ClientHandshake::start(key.clone(), &hello());
        let (header, body) = split(&frame);
        let (_, challenge) =
            ServerHandshake::on_hello(&header, body, [2; 32], |_| Ok((key.clone(), Level::Args)))
                .unwrap();
        let (h, b) = split(&challenge);
        let recorded = client.on_challenge(&h, b, secret(3)).unwrap();
        // The same hello and the recorded proof against a fresh server nonce.
        let again = |_: &Hello| Ok((key, Level::Args));
        let (server, _) = ServerHandshake::on_hello(&header, body, [3; 32], again).unwrap();
        let (h, b) = split(&recorded.frame);
        assert_eq!(server.on_proof(&h, b, secret(4)).unwrap_err().kind, ErrorKind::AuthFailed);
    }

    #[test]
    fn another_version_is_named() {
        let other = Hello { version: VERSION + 1, ..hello() };
        let (_, frame) = ClientHandshake::start(Key::from_bytes([1; 32]), &other);
        let (header, body) = split(&frame);
        let error =
            ServerHandshake::on_hello(&header, body, [2; 32], |_| Ok((key(1), Level::Args)))
                .unwrap_err();
        assert_eq!(error.kind, ErrorKind::VersionMismatch);
        assert!(error.message.contains(&format!("version {}", VERSION + 1)));
    }
}
