//! Opening a connection: the client's side of the handshake.

use super::receive::{Received, protocol_error};
use super::stream::Stream;
use super::{BlockingConn, SLICE};
use crate::address::Address;
use crate::host::random_bytes;
use crate::socket;
use crate::wait::{Wait, Watch};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use std::time::Duration;
use weir_host::net::{Interest, Socket};
use weir_types::{Decode, Error, ErrorKind, Result};
use weir_wire::frame::HEADER_BYTES;
use weir_wire::handshake::{ClientHandshake, Hello, Proved, Welcome};
use weir_wire::{Header, Key, Opener};

/// Pauses between attempts. A server with too many unauthenticated connections may close one of
/// them, so a connection that was closed during the handshake is tried again.
const PAUSES_MS: [u64; 5] = [20, 40, 80, 160, 320];

/// Why a connection attempt failed.
struct Refusal {
    error: Error,
    /// Whether the connection was made and then closed without an error reply.
    is_lost: bool,
}

impl BlockingConn {
    /// Connects and authenticates both sides: each proves that it knows the key. `hello.nonce` must
    /// be fresh: see [`crate::random_bytes`].
    ///
    /// Errors: `Unreachable`, `TimedOut`, `Interrupted`; errors from the server (`AuthFailed`,
    /// `BadTicket`, `VersionMismatch`...).
    pub fn connect(
        address: &Address,
        key: Key,
        hello: &Hello,
        wait: &Wait,
    ) -> Result<(Self, Welcome)> {
        Self::connect_watched(address, key, hello, wait, None)
    }

    /// As [`BlockingConn::connect`], with a watch that may end the wait.
    pub fn connect_watched(
        address: &Address,
        key: Key,
        hello: &Hello,
        wait: &Wait,
        watch: Option<Watch<'_>>,
    ) -> Result<(Self, Welcome)> {
        let mut hello = hello.clone();
        for pause in PAUSES_MS.map(Duration::from_millis) {
            match Self::connect_once(address, key.clone(), &hello, wait, watch) {
                // No server listens, or the server has said why it refuses: retrying at once would
                // not help.
                Err(Refusal { error, is_lost: true }) if wait.remaining() > pause => {
                    tracing::debug!("{address}: {error}: connecting again");
                    wait.sleep(pause)?;
                    watch.map_or(Ok(()), |watch| (watch.look)())?;
                    hello.nonce = random_bytes()?;
                }
                connected => return connected.map_err(|refusal| refusal.error),
            }
        }
        Self::connect_once(address, key, &hello, wait, watch).map_err(|refusal| refusal.error)
    }

    fn connect_once(
        address: &Address,
        key: Key,
        hello: &Hello,
        wait: &Wait,
        watch: Option<Watch<'_>>,
    ) -> std::result::Result<(Self, Welcome), Refusal> {
        let socket = Self::socket_to(address, wait, watch)
            .map_err(|error| Refusal { error, is_lost: false })?;
        Self::shake_hands(socket, address, key, hello, (wait, watch)).map_err(|error| {
            let is_lost = error.kind == ErrorKind::Unreachable;
            Refusal { error, is_lost }
        })
    }

    fn socket_to(address: &Address, wait: &Wait, watch: Option<Watch<'_>>) -> Result<Socket> {
        let socket = socket::connect(address, wait, watch)?;
        if let Some(fd) = socket.fd() {
            rustix::io::ioctl_fionbio(fd, false).map_err(os)?;
            set_socket_timeout(fd, Timeout::Recv, Some(SLICE)).map_err(os)?;
            set_socket_timeout(fd, Timeout::Send, Some(SLICE)).map_err(os)?;
        }
        Ok(socket)
    }

    /// Repeats the handshake on a connection that another server has taken over, at `address`.
    pub fn go_on_with(
        self,
        address: &Address,
        key: Key,
        hello: &Hello,
        wait: &Wait,
        watch: Option<Watch<'_>>,
    ) -> Result<(Self, Welcome)> {
        self.check_usable()?;
        if self.received.left() > 0 || !self.stream.is_empty() {
            return Err(protocol_error("the server sent more than the expected answer"));
        }
        Self::shake_hands(self.stream.socket, address, key, hello, (wait, watch))
    }

    fn shake_hands(
        socket: Socket,
        address: &Address,
        key: Key,
        hello: &Hello,
        (wait, watch): (&Wait, Option<Watch<'_>>),
    ) -> Result<(Self, Welcome)> {
        // Frames of the handshake arrive as a whole once they begin.
        let begins = |stream: &Stream| match watch {
            Some(_) if !stream.has_some() => {
                wait.ready_watched(&stream.socket, Interest::READ, watch)
            }
            _ => Ok(()),
        };

        let (mut received, mut stream) = (Received::default(), Stream::new(socket));
        let (shaking, frame) = ClientHandshake::start(key, hello);
        stream.send_all(&frame, &[], wait)?;
        begins(&stream)?;
        let header = received.plain_head(&mut stream, wait)?;
        let proved = shaking.on_challenge(&header, received.body(&header), random_bytes)?;
        let Proved { frame, sealer, mut opener, level, initiator } = proved;
        stream.send_all(&frame, &[], wait)?;
        begins(&stream)?;
        if let Some(initiator) = initiator {
            let header = received.plain_head(&mut stream, wait)?;
            let records = Proved::on_key_answer(initiator, &header, received.body(&header))?;
            stream.hide(records, received.rest());
            received = Received::default();
            begins(&stream)?;
        }
        let header = received.plain_head(&mut stream, wait)?;
        let welcome = open_welcome(&header, received.head_bytes(), &mut opener)?;
        let conn = Self {
            stream,
            address: address.clone(),
            level,
            sealer,
            opener,
            next_id: 0,
            broken: false,
            head: Vec::new(),
            received,
            arrival: None,
        };
        Ok((conn, welcome))
    }
}

/// Reads the server's last frame of the handshake: a welcome, or an error. An error is not sealed
/// if the server has found that the client does not know the key.
fn open_welcome(header: &Header, head: &mut [u8], opener: &mut Opener) -> Result<Welcome> {
    let opened = opener.open(head);
    let body = &head[HEADER_BYTES..];
    match (opened, header.status) {
        (_, Some(_)) => Err(Error::from_bytes(body)?),
        (Ok(()), None) => Ok(Welcome::from_bytes(body)?),
        (Err(_), None) => Err(protocol_error("the handshake was answered without a seal")),
    }
}

fn os(e: rustix::io::Errno) -> Error {
    let error = Error::from(std::io::Error::from(e));
    Error { kind: ErrorKind::Unreachable, ..error }
}
