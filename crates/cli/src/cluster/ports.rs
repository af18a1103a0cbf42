//! Finds free TCP ports of an address of this machine.
//!
//! A free port is held until its server listens, so that two clusters made at the same time do not
//! choose the same port. A socket bound without `SO_REUSEADDR` keeps out everyone who chooses ports
//! in this way. Afterwards the option is set on it, so that it does not hinder the server, whose
//! listening socket has the option too.

use crate::cluster::secret;
use crate::failure::{Done, Failure};
use crate::logging;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;

/// Ports to choose from. They are below the kernel's range of local ports for outgoing connections
/// (32768 and up), so that a port is still free when its server starts again.
const RANGE: std::ops::Range<u16> = 20_000..32_700;
/// From how many first ports on successive ports are looked for. The distance exceeds the number of
/// ports that the daemons and metrics of a machine take.
const NEAR_PORTS: usize = 32;

/// Ports that are held while this exists.
#[derive(Debug, Default)]
pub struct Held {
    pub ports: Vec<u16>,
    _bound: Vec<OwnedFd>,
}

impl Held {
    fn add(&mut self, port: u16, socket: OwnedFd) {
        self.ports.push(port);
        self._bound.push(socket);
    }
}

/// Chooses `count` free ports.
pub fn free(address: IpAddr, count: usize) -> Done<Held> {
    let width = u32::from(RANGE.end - RANGE.start);
    let start = u32::from(u16::from_le_bytes(secret::random()?));
    let mut held = Held::default();
    for port in (start..start + width).map(|n| RANGE.start + (n % width) as u16) {
        if held.ports.len() == count {
            return Ok(held);
        }
        if let Ok(socket) = hold(address, port) {
            held.add(port, socket);
        }
    }
    // If this fails, the address itself is wrong.
    hold(address, 0).map_err(|e| failed(address, e))?;
    Err(Failure::new(format!("there are no {count} free TCP ports on {address}")))
}

/// Returns the ports from `base` on, all of which must be free. They are not held: a user may name
/// the ports of a cluster that has just ended, and only a listening socket can get those again at
/// once.
pub fn from_base(address: IpAddr, base: u16, count: usize) -> Done<Held> {
    let ports: Vec<u16> = (base..=u16::MAX).take(count).collect();
    if ports.len() < count {
        return Err(Failure::new(format!("{count} ports from {base} on go beyond 65535")));
    }
    for port in &ports {
        match TcpListener::bind((address, *port)) {
            Err(e) if e.kind() == ErrorKind::AddrInUse => return Err(taken(address, *port)),
            bound => bound.map_err(|e| failed(address, e))?,
        };
    }
    Ok(Held { ports, _bound: Vec::new() })
}

/// Chooses the ports from `base` on, which an administrator knows in advance. If one of them is
/// taken, a message says so, and later successive ports are chosen, which a firewall may permit as
/// well, or else any free ones. Returns whether the first choice was free.
pub fn usual(address: IpAddr, base: u16, count: usize) -> Done<(Held, bool)> {
    let taken = match successive(address, base, count) {
        Ok(held) => return Ok((held, true)),
        Err(taken) => taken,
    };
    let near = (base..=u16::MAX).skip(1).take(NEAR_PORTS - 1);
    let near = near.flat_map(|base| successive(address, base, count)).next();
    let held = near.map_or_else(|| free(address, count), Ok)?;
    let shown: Vec<String> = held.ports.iter().map(u16::to_string).collect();
    logging::say(&format!(
        "weir: port {taken} of {address} is taken, so {} is used instead; --port names others",
        shown.join(", ")
    ));
    Ok((held, false))
}

/// Holds the ports from `base` on. Returns the port that is taken if this fails.
fn successive(address: IpAddr, base: u16, count: usize) -> Result<Held, u16> {
    let mut held = Held::default();
    for port in (base..=u16::MAX).take(count) {
        match hold(address, port) {
            Ok(socket) => held.add(port, socket),
            // A port of a cluster that has just ended can only be taken by a listening socket.
            Err(_) if TcpListener::bind((address, port)).is_ok() => held.ports.push(port),
            Err(_) => return Err(port),
        }
    }
    if held.ports.len() == count { Ok(held) } else { Err(u16::MAX) }
}

/// Chooses metrics addresses for `count` daemons if they serve metrics: ports from `base` on, or
/// free ones.
pub fn for_metrics(
    address: Option<IpAddr>,
    base: Option<u16>,
    count: usize,
) -> Done<(Vec<String>, Held)> {
    let Some(address) = address else { return Ok((Vec::new(), Held::default())) };
    let held = match base {
        Some(base) => from_base(address, base, count)?,
        None => free(address, count)?,
    };
    let addresses = held.ports.iter().map(|port| SocketAddr::new(address, *port).to_string());
    Ok((addresses.collect(), held))
}

fn taken(address: IpAddr, port: u16) -> Failure {
    Failure::new(format!("port {port} of {address} is taken by another program"))
        .hint("choose another with --port, or leave --port out to get free ones")
}

fn failed(address: IpAddr, error: std::io::Error) -> Failure {
    Failure::from(weir_types::Error::from(error)).about(format!("cannot listen on {address}"))
}

/// Binds a port exclusively, and then permits its server to listen on it.
fn hold(address: IpAddr, port: u16) -> std::io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    rustix::net::bind(&socket, &SocketAddr::new(address, port))?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOPBACK: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[test]
    fn free_ports_are_distinct_and_a_taken_one_is_named() {
        let ports = free(LOOPBACK, 20).unwrap().ports;
        let distinct: std::collections::BTreeSet<_> = ports.iter().collect();
        assert_eq!(distinct.len(), 20);

        let holder = TcpListener::bind((LOOPBACK, 0)).unwrap();
        let port = holder.local_addr().unwrap().port();
        let message = from_base(LOOPBACK, port, 1).unwrap_err().to_string();
        assert!(message.contains(&format!("port {port}")), "{message}");
        assert!(from_base(LOOPBACK, 65_530, 20).is_err());
    }

    #[test]
    fn usual_ports_are_those_unless_one_is_taken() {
        let address = IpAddr::from([127, 77, 0, 7]);
        let found = free(address, 40).unwrap();
        let is_run = |ports: &&[u16]| ports[5] - ports[0] == 5;
        let base = found.ports.windows(6).find(is_run).expect("successive free ports")[0];
        drop(found);
        let (held, usual_ones) = usual(address, base, 3).unwrap();
        assert_eq!((&held.ports[..], usual_ones), (&[base, base + 1, base + 2][..], true));
        drop(held);
        let _holder = TcpListener::bind((address, base + 1)).unwrap();
        let (held, usual_ones) = usual(address, base, 3).unwrap();
        assert_eq!((&held.ports[..], usual_ones), (&[base + 2, base + 3, base + 4][..], false));
        drop(held);
        // The next port, as after ports of metrics.
        let (held, _) = usual(address, base + 1, 1).unwrap();
        assert_eq!(held.ports, [base + 2]);
    }

    #[test]
    fn a_held_port_is_chosen_by_nobody_else_and_its_server_can_listen() {
        let held = free(LOOPBACK, 5).unwrap();
        for port in &held.ports {
            assert!(hold(LOOPBACK, *port).is_err(), "{port} was chosen twice");
            TcpListener::bind((LOOPBACK, *port)).unwrap();
        }
    }
}
