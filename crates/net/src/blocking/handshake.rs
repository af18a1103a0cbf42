//! Opening a connection.

use super::receive::{Received, protocol_error};
use super::{BlockingConn, SLICE, send_all};
use crate::address::Address;
use crate::socket;
use crate::wait::{Wait, Watch};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use weir_host::net::{Interest, Socket};
use weir_types::{Decode, Error, ErrorKind, Result};
use weir_wire::frame::HEADER_BYTES;
use weir_wire::handshake::{ClientHandshake, Hello, Welcome};
use weir_wire::{Header, Key, Opener};

impl BlockingConn {
    /// Connects, proves who we are, and makes the server prove that it knows
    /// the key too. `hello.nonce` must be fresh: see [`crate::random_bytes`].
    ///
    /// Errors: `Unreachable`, `TimedOut`, `Interrupted`; those that the server
    /// refuses with (`AuthFailed`, `BadTicket`, `VersionMismatch`...).
    pub fn connect(
        address: &Address,
        key: Key,
        hello: &Hello,
        wait: &Wait,
    ) -> Result<(Self, Welcome)> {
        Self::connect_watched(address, key, hello, wait, None)
    }

    /// The same under watch.
    pub fn connect_watched(
        address: &Address,
        key: Key,
        hello: &Hello,
        wait: &Wait,
        watch: Option<Watch<'_>>,
    ) -> Result<(Self, Welcome)> {
        let socket = socket::connect(address, wait, watch)?;
        if let Some(fd) = socket.fd() {
            rustix::io::ioctl_fionbio(fd, false).map_err(os)?;
            set_socket_timeout(fd, Timeout::Recv, Some(SLICE)).map_err(os)?;
            set_socket_timeout(fd, Timeout::Send, Some(SLICE)).map_err(os)?;
        }
        Self::shake_hands(socket, address, key, hello, (wait, watch))
    }

    /// Begins anew on a connection that leads to another server from now on, at `address`.
    pub fn go_on_with(
        self,
        address: &Address,
        key: Key,
        hello: &Hello,
        wait: &Wait,
        watch: Option<Watch<'_>>,
    ) -> Result<(Self, Welcome)> {
        self.check_usable()?;
        if self.received.left() > 0 {
            return Err(protocol_error("more came than the answer that was waited for"));
        }
        Self::shake_hands(self.socket, address, key, hello, (wait, watch))
    }

    fn shake_hands(
        socket: Socket,
        address: &Address,
        key: Key,
        hello: &Hello,
        (wait, watch): (&Wait, Option<Watch<'_>>),
    ) -> Result<(Self, Welcome)> {
        // What comes, comes as a whole once it begins.
        let begins = || match watch {
            Some(_) => wait.ready_watched(&socket, Interest::READ, watch),
            None => Ok(()),
        };

        let mut received = Received::default();
        let (shaking, frame) = ClientHandshake::start(key, hello);
        send_all(&socket, &frame, &[], wait)?;
        begins()?;
        let header = received.head(&socket, wait)?;
        let (frame, sealer, mut opener) = shaking.on_challenge(&header, received.body(&header))?;
        send_all(&socket, &frame, &[], wait)?;
        begins()?;
        let header = received.head(&socket, wait)?;
        let welcome = open_welcome(&header, received.head_bytes(), &mut opener)?;
        let conn = Self {
            socket,
            address: address.clone(),
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

/// The server's last word of the handshake: a welcome, or why not. It has no
/// seal when the server does not believe that we know the key.
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
