//! Free TCP ports of an address of this machine.

use crate::cluster::secret;
use crate::failure::{Done, Failure};
use std::io::ErrorKind;
use std::net::{IpAddr, TcpListener};

/// Ports to choose from: below the range from which the kernel takes the local
/// ports of outgoing connections (32768 and up), so that a port is still free
/// when its server starts again.
const RANGE: std::ops::Range<u16> = 20_000..32_700;

/// Chooses `count` free ports.
pub fn free(address: IpAddr, count: usize) -> Done<Vec<u16>> {
    let width = u32::from(RANGE.end - RANGE.start);
    let start = u32::from(u16::from_le_bytes(secret::random()?));
    let candidates = (start..start + width).map(|n| RANGE.start + (n % width) as u16);
    let ports: Vec<u16> =
        candidates.filter(|port| bind(address, *port).is_ok()).take(count).collect();
    if ports.len() < count {
        // Where no port is free, the address itself is wrong.
        bind(address, 0).map_err(|e| failed(address, e))?;
        return Err(Failure::new(format!("there are no {count} free TCP ports on {address}")));
    }
    Ok(ports)
}

/// The ports from `base` on, all of which have to be free.
pub fn from_base(address: IpAddr, base: u16, count: usize) -> Done<Vec<u16>> {
    let ports: Vec<u16> = (base..=u16::MAX).take(count).collect();
    if ports.len() < count {
        return Err(Failure::new(format!("{count} ports from {base} on go beyond 65535")));
    }
    for port in &ports {
        match bind(address, *port) {
            Err(e) if e.kind() == ErrorKind::AddrInUse => return Err(taken(address, *port)),
            bound => bound.map_err(|e| failed(address, e))?,
        };
    }
    Ok(ports)
}

fn taken(address: IpAddr, port: u16) -> Failure {
    Failure::new(format!("port {port} of {address} is taken by another program"))
        .hint("choose another with --port, or leave --port out to get free ones")
}

fn failed(address: IpAddr, error: std::io::Error) -> Failure {
    Failure::from(weir_types::Error::from(error)).about(format!("cannot listen on {address}"))
}

fn bind(address: IpAddr, port: u16) -> std::io::Result<TcpListener> {
    TcpListener::bind((address, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOPBACK: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[test]
    fn free_ports_are_distinct_and_a_taken_one_is_named() {
        let ports = free(LOOPBACK, 20).unwrap();
        let distinct: std::collections::BTreeSet<_> = ports.iter().collect();
        assert_eq!(distinct.len(), 20);

        let holder = bind(LOOPBACK, 0).unwrap();
        let port = holder.local_addr().unwrap().port();
        let message = from_base(LOOPBACK, port, 1).unwrap_err().to_string();
        assert!(message.contains(&format!("port {port}")), "{message}");
        assert!(from_base(LOOPBACK, 65_530, 20).is_err());
    }
}
