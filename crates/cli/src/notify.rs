//! Notifies systemd that a daemon is ready, as sd_notify(3) does. It takes one datagram, so a
//! dependency is not worth its cost.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Notifies systemd, if it asked for that, that the daemon is ready. `what` is shown by `systemctl
/// status`. A failure is ignored.
pub fn ready(what: &str) {
    tell(&format!("READY=1\nSTATUS={what}\n"));
}

/// Notifies systemd that the daemon does not serve yet but makes progress, and asks for another
/// minute from now on.
pub fn gets_on(what: &str) {
    tell(&format!("EXTEND_TIMEOUT_USEC=60000000\nSTATUS={what}\n"));
}

fn tell(message: &str) {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET") else { return };
    if let Err(error) = send(&socket, message.as_bytes()) {
        tracing::warn!("cannot notify {}: {error}", socket.display());
    }
}

fn send(socket: &OsStr, message: &[u8]) -> io::Result<()> {
    let address = match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(message, &address).map(drop)
}
