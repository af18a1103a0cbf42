//! Sockets: listening, connecting, options.

use crate::address::Address;
use crate::wait::{Wait, Watch};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;
use weir_host::net::{Interest, Socket, is_simulated};
use weir_host::{clock, thread};
use weir_types::{Error, ErrorKind, Result};

/// The most connections that wait to be accepted.
const BACKLOG: i32 = 4096;
/// Idle time before keepalive probes are sent to a silent peer.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(10);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_PROBES: u32 = 3;
/// A connection ends when sent bytes are not acknowledged for this long. It is half of a call's
/// default timeout, so that the other half is left for a new connection. (TCP retransmits at
/// growing intervals; a new connection is tried at once.)
const UNACKNOWLEDGED_MS: u32 = 15_000;
/// Timeout of one attempt to connect over TCP. The next attempt follows at once. The kernel alone
/// would retry after 1, 3, 7, 15 and 31 s, and notice late that a cable is plugged in again.
const CONNECT_ATTEMPT: Duration = Duration::from_secs(3);

/// A socket that accepts connections.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    address: Address,
    /// Path of a Unix socket, which is removed with the listener.
    path: Option<PathBuf>,
}

impl Listener {
    /// Starts to listen. Port 0 takes any free port: see [`Listener::address`]. The file of a Unix
    /// socket is replaced if no process listens on it.
    ///
    /// Errors name the address and what to do, for example `Busy` if it is in use.
    pub fn bind(address: &Address) -> Result<Self> {
        let bound = match address {
            Address::Tcp(host_port) if is_simulated() => bind_simulated(host_port),
            Address::Unix(_) if is_simulated() => Err(io::ErrorKind::Unsupported.into()),
            Address::Tcp(host_port) => bind_tcp(host_port),
            Address::Unix(path) => bind_unix(path),
        };
        bound.map_err(|e| match e.kind() {
            io::ErrorKind::AddrInUse => {
                let what = match address {
                    Address::Tcp(_) => {
                        "another program listens on this port: stop it, or configure another port"
                    }
                    Address::Unix(_) => {
                        "another process serves this socket: stop it, or configure another path"
                    }
                };
                Error::new(ErrorKind::Busy, format!("cannot listen on {address}: {what}"))
            }
            io::ErrorKind::AddrNotAvailable => Error::new(
                ErrorKind::InvalidArgument,
                format!("cannot listen on {address}: it is not an address of this host"),
            ),
            _ => Error::from(e).context(format!("cannot listen on {address}")),
        })
    }

    /// The address, with the actual port.
    pub fn address(&self) -> &Address {
        &self.address
    }

    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }

    pub(crate) fn is_tcp(&self) -> bool {
        self.path.is_none()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // If the file is missing already, there is nothing to remove.
            std::fs::remove_file(path).ok();
        }
    }
}

fn bind_tcp(host_port: &str) -> io::Result<Listener> {
    let listener = TcpListener::bind(host_port)?;
    listener.set_nonblocking(true)?;
    rustix::net::listen(&listener, BACKLOG)?;
    let address = Address::Tcp(listener.local_addr()?.to_string());
    let socket = OwnedFd::from(listener).into();
    Ok(Listener { socket, address, path: None })
}

fn bind_simulated(host_port: &str) -> io::Result<Listener> {
    let socket = Socket::listen_simulated(host_port).unwrap_or(Err(Errno::OPNOTSUPP))?;
    let bound = socket.simulated_address();
    let address = Address::Tcp(bound.unwrap_or_else(|| host_port.to_owned()));
    Ok(Listener { socket, address, path: None })
}

/// How long to wait for the sockets of a killed process to close.
const DYING: Duration = Duration::from_secs(1);

fn bind_unix(path: &Path) -> io::Result<Listener> {
    let deadline = clock::now() + DYING;
    let listener = loop {
        match UnixListener::bind(path) {
            Err(e) if e.kind() == io::ErrorKind::AddrInUse && is_stale(path) => {
                std::fs::remove_file(path)?;
            }
            Err(e) if e.kind() == io::ErrorKind::AddrInUse && clock::now() < deadline => {
                thread::sleep(DYING / 20);
            }
            other => break other?,
        }
    };
    listener.set_nonblocking(true)?;
    rustix::net::listen(&listener, BACKLOG)?;
    let address = Address::Unix(path.to_path_buf());
    let socket = OwnedFd::from(listener).into();
    Ok(Listener { socket, address, path: Some(path.to_path_buf()) })
}

/// Whether the path is a socket without a listening process.
fn is_stale(path: &Path) -> bool {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket());
    is_socket
        && UnixStream::connect(path).is_err_and(|e| e.kind() == io::ErrorKind::ConnectionRefused)
}

/// Sets the options of a TCP connection.
pub(crate) fn set_tcp_options(socket: &Socket) -> rustix::io::Result<()> {
    let Some(fd) = socket.fd() else { return Ok(()) };
    sockopt::set_tcp_nodelay(fd, true)?;
    sockopt::set_socket_keepalive(fd, true)?;
    sockopt::set_tcp_keepidle(fd, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(fd, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(fd, KEEPALIVE_PROBES)?;
    sockopt::set_tcp_user_timeout(fd, UNACKNOWLEDGED_MS)
}

/// Enlarges the buffers of a Unix socket connection. The default is smaller than one stripe unit
/// and, unlike TCP's, does not grow. A failure is only logged.
pub(crate) fn set_unix_options(socket: &Socket) {
    const BUFFER_BYTES: usize = 1 << 20;
    let Some(fd) = socket.fd() else { return };
    if let Err(e) = sockopt::set_socket_send_buffer_size(fd, BUFFER_BYTES) {
        tracing::debug!("send buffer of a Unix socket stays small: {e}");
    }
}

/// Connects and returns a non-blocking socket.
///
/// Errors: `Unreachable`, `TimedOut`, `Interrupted`, `InvalidArgument` (unknown host).
pub fn connect(address: &Address, wait: &Wait, watch: Option<Watch<'_>>) -> Result<Socket> {
    let cannot = |e: Error| match e.kind {
        ErrorKind::TimedOut | ErrorKind::Interrupted | ErrorKind::TooManyOpen => {
            e.context("connect")
        }
        _ => Error::new(ErrorKind::Unreachable, format!("cannot connect: {e}")),
    };
    match address {
        Address::Tcp(host_port) if is_simulated() => {
            connect_simulated(host_port, wait, watch).map_err(cannot)
        }
        Address::Unix(_) if is_simulated() => Err(cannot(os(Errno::OPNOTSUPP))),
        Address::Unix(path) => connect_unix(path, wait).map_err(cannot),
        Address::Tcp(host_port) => {
            let found = host_port.to_socket_addrs().map_err(|e| {
                let message = format!("the host of `{host_port}` is not known: {e}");
                Error::new(ErrorKind::Unreachable, message)
            })?;
            first_that(found, wait, watch, |addr| connect_tcp(addr, wait, watch)).map_err(cannot)
        }
    }
}

/// Tries one address after another, until the deadline or until the watch ends the wait.
fn first_that<A, T>(
    addresses: impl Iterator<Item = A>,
    wait: &Wait,
    watch: Option<Watch<'_>>,
    attempt: impl Fn(A) -> Result<T>,
) -> Result<T> {
    let mut last = Error::new(ErrorKind::Unreachable, "the host has no address");
    for (n, address) in addresses.enumerate() {
        if n > 0 {
            match wait.check() {
                Err(error) if error.kind == ErrorKind::TimedOut => break,
                result => result?,
            }
            watch.map_or(Ok(()), |watch| (watch.look)())?;
        }
        match attempt(address) {
            Ok(reached) => return Ok(reached),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn new_socket(family: AddressFamily) -> rustix::io::Result<Socket> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    rustix::net::socket_with(family, SocketType::STREAM, flags, None).map(Socket::from)
}

fn connect_tcp(addr: SocketAddr, wait: &Wait, watch: Option<Watch<'_>>) -> Result<Socket> {
    let family = if addr.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = new_socket(family).map_err(os)?;
    set_tcp_options(&socket).map_err(os)?;
    let fd = socket.fd().ok_or(Errno::BADF).map_err(os)?;
    match rustix::net::connect(fd, &addr) {
        Ok(()) => return Ok(socket),
        Err(Errno::INPROGRESS | Errno::INTR) => {}
        Err(e) => return Err(os(e)),
    }
    let attempt = wait.at_most(CONNECT_ATTEMPT);
    connected(socket, &attempt, watch).map_err(|error| match error.kind {
        ErrorKind::TimedOut if !wait.expired() => {
            let seconds = CONNECT_ATTEMPT.as_secs();
            Error::new(ErrorKind::Unreachable, format!("no answer within {seconds} s"))
        }
        _ => error,
    })
}

fn connect_simulated(host_port: &str, wait: &Wait, watch: Option<Watch<'_>>) -> Result<Socket> {
    let socket = Socket::connect_simulated(host_port).unwrap_or(Err(Errno::OPNOTSUPP));
    connected(socket.map_err(os)?, wait, watch)
}

/// Waits for the end of a connection attempt.
fn connected(socket: Socket, wait: &Wait, watch: Option<Watch<'_>>) -> Result<Socket> {
    wait.ready_watched(&socket, Interest::WRITE, watch)?;
    socket.take_error().map_err(os)?;
    Ok(socket)
}

fn connect_unix(path: &Path, wait: &Wait) -> Result<Socket> {
    let socket = new_socket(AddressFamily::UNIX).map_err(os)?;
    let fd = socket.fd().ok_or(Errno::BADF).map_err(os)?;
    let addr = SocketAddrUnix::new(path).map_err(os)?;
    loop {
        match rustix::net::connect(fd, &addr) {
            Ok(()) => break,
            // The backlog is full, and there is nothing to poll for.
            Err(Errno::AGAIN) if !wait.expired() => wait.sleep(Duration::from_millis(10))?,
            Err(Errno::AGAIN) => return Err(ErrorKind::TimedOut.into()),
            Err(Errno::INTR) => {}
            Err(e) => return Err(os(e)),
        }
    }
    set_unix_options(&socket);
    Ok(socket)
}

fn os(e: Errno) -> Error {
    if matches!(e, Errno::MFILE | Errno::NFILE) {
        return Error::new(ErrorKind::TooManyOpen, io::Error::from(e).to_string());
    }
    io::Error::from(e).into()
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // Tests ask the operating system.
mod tests {
    use super::*;

    #[test]
    fn who_looks_ends_the_search_among_addresses() {
        let tried = std::cell::Cell::new(0);
        let attempt = |_| -> Result<()> {
            tried.set(tried.get() + 1);
            Err(Error::new(ErrorKind::Unreachable, "refused"))
        };
        let gone = || Err(Error::new(ErrorKind::Unreachable, "another one orders"));
        let watch = Watch { every: CONNECT_ATTEMPT, look: &gone };
        let error = first_that(0..3, &Wait::for_ms(10_000), Some(watch), attempt).unwrap_err();
        assert_eq!((error.message.as_str(), tried.get()), ("another one orders", 1));
        let error = first_that(0..3, &Wait::for_ms(10_000), None, attempt).unwrap_err();
        assert_eq!((error.message.as_str(), tried.get()), ("refused", 4));
        let error = first_that(0..3, &Wait::for_ms(0), None, attempt).unwrap_err();
        assert_eq!((error.message.as_str(), tried.get()), ("refused", 5));
    }

    #[test]
    fn a_taken_port_is_named_with_advice() {
        let first = Listener::bind(&Address::parse("127.0.0.1:0").unwrap()).unwrap();
        let error = Listener::bind(first.address()).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Busy);
        assert!(error.message.contains(&first.address().to_string()), "{error}");
        assert!(error.message.contains("another port"), "{error}");
    }

    #[test]
    fn a_stale_unix_socket_is_replaced_and_a_live_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sock");
        let address = Address::Unix(path.clone());
        // The socket file of a process that was killed.
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let live = Listener::bind(&address).unwrap();
        assert_eq!(Listener::bind(&address).unwrap_err().kind, ErrorKind::Busy);
        connect(&address, &Wait::for_ms(1000), None).unwrap();
        drop(live);
        assert!(!path.exists());
        // A file that is not a socket is never removed.
        std::fs::write(&path, "precious").unwrap();
        assert!(Listener::bind(&address).is_err());
        assert!(path.exists());
    }

    #[test]
    fn nobody_listening_is_unreachable() {
        let dir = tempfile::tempdir().unwrap();
        let gone = Listener::bind(&Address::parse("127.0.0.1:0").unwrap()).unwrap();
        let tcp = gone.address().clone();
        drop(gone);
        for address in [tcp, Address::Unix(dir.path().join("none"))] {
            let error = connect(&address, &Wait::for_ms(1000), None).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Unreachable, "{error}");
        }
    }
}
