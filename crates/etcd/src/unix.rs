//! HTTP over a Unix socket, which `ureq` does not have by itself.
//!
//! A socket is reached through a descriptor of its directory, because its path may be longer than
//! an address of a socket holds.

use rustix::fs::{Mode, OFlags, fcntl_getfl, fcntl_setfl, open};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv, socket_with,
};
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport,
};
use ureq::{Agent, Error};

/// The URL of every request: its host is not looked up.
pub(crate) const URL: &str = "http://etcd";

/// An agent whose requests all go to this socket.
pub(crate) fn agent(config: Config, socket: &Path) -> Agent {
    Agent::with_parts(config, ToSocket(socket.to_owned()), Nowhere)
}

#[derive(Debug)]
struct ToSocket(PathBuf);

impl Connector for ToSocket {
    type Out = Connection;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        _: Option<()>,
    ) -> Result<Option<Connection>, Error> {
        let stream = reach(&self.0).map_err(io::Error::from)?;
        let config = details.config;
        let buffers = LazyBuffers::new(config.input_buffer_size(), config.output_buffer_size());
        Ok(Some(Connection { stream, buffers }))
    }
}

/// Connects. Fails at once if a server that hangs takes no more connections.
fn reach(path: &Path) -> Result<UnixStream, Errno> {
    let (dir, name) = path.parent().zip(path.file_name()).ok_or(Errno::INVAL)?;
    let dir = open(dir, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let short = Path::new("/proc/self/fd").join(dir.as_raw_fd().to_string()).join(name);
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(&short)?)?;
    fcntl_setfl(&socket, fcntl_getfl(&socket)? - OFlags::NONBLOCK)?;
    Ok(UnixStream::from(socket))
}

struct Connection {
    stream: UnixStream,
    buffers: LazyBuffers,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("stream", &self.stream).finish_non_exhaustive()
    }
}

impl Connection {
    /// The error of an operation that has failed, or was not ended in time.
    fn failed(error: io::Error, timeout: NextTimeout) -> Error {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Error::Timeout(timeout.reason),
            _ => Error::Io(error),
        }
    }
}

impl Transport for Connection {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.stream.set_write_timeout(rest(timeout)?)?;
        let output = self.buffers.output().get(..amount).unwrap_or_default();
        self.stream.write_all(output).map_err(|error| Self::failed(error, timeout))
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        self.stream.set_read_timeout(rest(timeout)?)?;
        let read = loop {
            match self.stream.read(self.buffers.input_append_buf()) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                other => break other.map_err(|error| Self::failed(error, timeout))?,
            }
        };
        self.buffers.input_appended(read);
        Ok(read > 0)
    }

    fn is_open(&mut self) -> bool {
        // Nothing is to be read between two requests: neither bytes nor the end.
        let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK;
        let seen = recv(&self.stream, &mut [0u8; 1], flags);
        matches!(seen, Err(Errno::AGAIN))
    }
}

/// The rest of the time, which is not zero; `None`: there is no limit.
fn rest(timeout: NextTimeout) -> Result<Option<Duration>, Error> {
    match timeout.after.is_zero() {
        true => Err(Error::Timeout(timeout.reason)),
        false => Ok(timeout.not_zero().map(|time| *time)),
    }
}

/// Names no addresses: connections go to a socket.
#[derive(Debug)]
struct Nowhere;

impl Resolver for Nowhere {
    fn resolve(&self, _: &Uri, _: &Config, _: NextTimeout) -> Result<ResolvedSocketAddrs, Error> {
        Ok(self.empty())
    }
}
