//! Connections to other data servers. Only the metadata server says where they are: a client names
//! a target, and never an address.

pub(crate) mod lines;
pub(crate) mod protection;
pub(crate) mod pull;

use protection::Protection;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};
use weir_host::clock;
use weir_host::net::{Signal, Socket};
use weir_host::sync::Mutex;
use weir_net::socket::connect;
use weir_net::{Address, BlockingConn, Wait, Watch, host_name, random_bytes};
use weir_types::{Error, ErrorKind, Result, ServerId, SessionId, TargetId};
use weir_wire::frame::VERSION;
use weir_wire::handshake::{Attempt, Hello, Identity};
use weir_wire::message::Request;
use weir_wire::peer::{FindPeerRequest, Peer};
use weir_wire::ticket::OF_SERVERS;
use weir_wire::{Header, Key};

/// A server that could not be reached is not tried again for this long. Clients copy by reading and
/// writing meanwhile.
const PATIENCE: Duration = Duration::from_secs(1);
/// Timeout of a metadata server's reply, milliseconds.
const FIND_MS: u64 = 2_000;
/// The most idle connections to the server of each target: one for each thread that copies.
pub(crate) const MAX_IDLE: usize = 4;
/// The most targets of other servers that are remembered.
const MAX_KNOWN: usize = 4096;

/// The server of a target.
struct Known {
    peer: Peer,
    idle: Vec<BlockingConn>,
}

#[derive(Default)]
struct State {
    known: BTreeMap<TargetId, Known>,
    /// Targets not to be tried for a while.
    failed: BTreeMap<TargetId, (Instant, Error)>,
    /// Targets that were not tried because their address is unknown.
    unfound: BTreeSet<TargetId>,
}

/// The other data servers, as far as they were asked for.
pub(crate) struct Peers {
    server: ServerId,
    key: Key,
    protection: Arc<Protection>,
    cluster: [u8; 16],
    metadata: Vec<Address>,
    /// Which of them has answered last.
    answers: AtomicUsize,
    /// Ends all waits.
    shutdown: Signal,
    state: Mutex<State>,
}

/// A connection, and the run of the machine that it leads to.
pub(crate) type Connected = (BlockingConn, Option<u64>);

impl Peers {
    pub(crate) fn new(
        (server, key, protection): (ServerId, Key, Arc<Protection>),
        cluster: [u8; 16],
        metadata: &[Address],
        shutdown: Signal,
    ) -> Self {
        let (metadata, state) = (metadata.to_vec(), Mutex::default());
        let answers = AtomicUsize::new(0);
        Self { server, key, protection, cluster, metadata, answers, shutdown, state }
    }

    /// A wait of `ms` milliseconds, at most until the server stops.
    pub(crate) fn wait(&self, ms: u64) -> Wait {
        Wait::for_ms(ms).interruptible(self.shutdown.fd().map(|fd| fd.as_raw_fd()))
    }

    /// An idle connection, if there is one.
    pub(crate) fn idle(&self, target: TargetId) -> Option<BlockingConn> {
        self.state.lock().known.get_mut(&target)?.idle.pop()
    }

    /// Opens a connection.
    ///
    /// # Errors
    /// `TargetMissing`: the metadata server knows no such target. For a while the same error is
    /// returned without another attempt.
    pub(crate) fn connect(
        &self,
        target: TargetId,
        attempt: Attempt,
        wait: &Wait,
    ) -> Result<Connected> {
        if let Some((at, error)) = self.state.lock().failed.get(&target)
            && clock::elapsed(*at) < PATIENCE
        {
            return Err(error.clone());
        }
        let connected: Result<_> =
            self.connect_known(target, attempt.clone(), wait).or_else(|_: Error| {
                // It has moved, or the ticket is of before.
                let knew = self.forget(target);
                let peer = self.find_anew((target, knew), wait)?;
                let conn = self.open(target, &peer, attempt, wait)?;
                let mut state = self.state.lock();
                if state.known.len() >= MAX_KNOWN {
                    state.known.pop_first();
                }
                state.known.insert(target, Known { peer, idle: Vec::new() });
                Ok(conn)
            });
        let mut state = self.state.lock();
        match &connected {
            Ok(_) => drop(state.failed.remove(&target)),
            Err(error) => {
                if state.failed.len() >= MAX_KNOWN {
                    state.failed.pop_first();
                }
                state.failed.insert(target, (clock::now(), error.clone()));
            }
        }
        connected
    }

    /// Opens an unauthenticated socket to the server of a target.
    ///
    /// # Errors
    /// `TargetMissing`: the metadata server knows no such target.
    pub(crate) fn reach(&self, target: TargetId, wait: &Wait) -> Result<Socket> {
        if let Some(Ok(socket)) = self.reach_known(target, wait, None) {
            return Ok(socket);
        }
        // It has moved, or is not known.
        self.connect_to(&self.find(target, wait)?, wait, None)
    }

    /// As [`Peers::reach`], for a server with a known address and with a watch that may end the
    /// wait. Returns `None` if the address is unknown.
    pub(crate) fn reach_known(
        &self,
        target: TargetId,
        wait: &Wait,
        watch: Option<Watch<'_>>,
    ) -> Option<Result<Socket>> {
        let known = self.state.lock().known.get(&target).map(|known| known.peer.clone());
        known.map(|peer| self.connect_to(&peer, wait, watch))
    }

    fn connect_to(&self, peer: &Peer, wait: &Wait, watch: Option<Watch<'_>>) -> Result<Socket> {
        let mut failure = None;
        for address in self.addresses(peer)? {
            match connect(&address, wait, watch) {
                Ok(socket) => return Ok(socket),
                Err(error) => failure = Some(error.context(format!("{address}"))),
            }
        }
        Err(failure.unwrap_or_else(|| ErrorKind::Unreachable.into()))
    }

    /// Puts back a connection without outstanding replies.
    pub(crate) fn put_back(&self, target: TargetId, conn: BlockingConn) {
        if let Some(known) = self.state.lock().known.get_mut(&target)
            && known.idle.len() < MAX_IDLE
            && conn.is_usable()
        {
            known.idle.push(conn);
        }
    }

    /// Forgets the server of a target, which does not serve it any more, or is gone. Returns
    /// whether it was known.
    pub(crate) fn forget(&self, target: TargetId) -> bool {
        self.state.lock().known.remove(&target).is_some()
    }

    /// Whether a target was not reached only because its address is unknown. An unreachable
    /// metadata server cannot tell the address of a target that has just joined.
    pub(crate) fn is_unfound(&self, target: TargetId) -> bool {
        self.state.lock().unfound.contains(&target)
    }

    fn find_anew(&self, (target, knew): (TargetId, bool), wait: &Wait) -> Result<Peer> {
        let found = self.find(target, wait);
        let mut state = self.state.lock();
        if found.is_ok() || state.unfound.len() >= MAX_KNOWN {
            state.unfound.remove(&target);
        } else if !knew {
            state.unfound.insert(target);
        }
        found
    }

    fn connect_known(&self, target: TargetId, attempt: Attempt, wait: &Wait) -> Result<Connected> {
        let peer = self.state.lock().known.get(&target).map(|known| known.peer.clone());
        self.open(target, &peer.ok_or(ErrorKind::TargetMissing)?, attempt, wait)
    }

    /// Asks the metadata server for the server of a target.
    fn find(&self, target: TargetId, wait: &Wait) -> Result<Peer> {
        self.ask_metadata(&FindPeerRequest { target }, wait)
    }

    /// Sends a request to any metadata server that replies. The one that has answered last is asked
    /// first, and each may take its part of the time.
    ///
    /// # Errors
    /// That of the last one; `Unreachable` if there are only such that do not lead.
    pub(crate) fn ask_metadata<R: Request>(&self, request: &R, wait: &Wait) -> Result<R::Reply> {
        let (count, first) = (self.metadata.len(), self.answers.load(Relaxed));
        let mut failure = None;
        for tried in 0..count {
            let at = (first + tried) % count;
            let address = &self.metadata[at];
            let part_ms = wait.remaining().as_millis() as u64 / (count - tried) as u64;
            match self.ask(address, request, part_ms.min(FIND_MS)) {
                Ok(answer) => {
                    self.answers.store(at, Relaxed);
                    return Ok(answer);
                }
                Err(error) if error.kind == ErrorKind::NotLeader => {
                    failure.get_or_insert(Error { kind: ErrorKind::Unreachable, ..error });
                }
                Err(error) => failure = Some(error.context(format!("metadata server {address}"))),
            }
        }
        let none = || Error::new(ErrorKind::TargetMissing, "there is no metadata server");
        Err(failure.unwrap_or_else(none))
    }

    fn ask<R: Request>(&self, address: &Address, request: &R, ms: u64) -> Result<R::Reply> {
        let wait = self.wait(ms);
        let hello = self.hello(Identity::Server(self.server))?;
        let (mut conn, welcome) = BlockingConn::connect(address, self.key.clone(), &hello, &wait)?;
        if welcome.cluster != self.cluster {
            let what = "it is of another cluster than our targets";
            return Err(Error::new(ErrorKind::AuthFailed, what));
        }
        let header = Header::request(R::OP, conn.next_request_id());
        conn.send(header, request, &[], &[], &wait)?;
        conn.recv_reply(&wait)
    }

    fn open(
        &self,
        target: TargetId,
        peer: &Peer,
        attempt: Attempt,
        wait: &Wait,
    ) -> Result<Connected> {
        self.protection.told()?;
        let key = peer.ticket.open(&self.key);
        let identity = Identity::Ticket(peer.ticket.ticket.clone(), attempt);
        let mut failure = None;
        for address in self.addresses(peer)? {
            // The nonce is fresh for each.
            let hello = self.hello(identity.clone())?;
            match BlockingConn::connect(&address, key.clone(), &hello, wait) {
                Ok((conn, welcome)) => return Ok((conn, welcome.run_of(target))),
                Err(error) => failure = Some(error.context(format!("{address}"))),
            }
        }
        Err(failure.unwrap_or_else(|| ErrorKind::Unreachable.into()))
    }

    /// Addresses of a server; on this host the Unix socket comes first.
    fn addresses(&self, peer: &Peer) -> Result<Vec<Address>> {
        let entry = &peer.entry;
        let here = entry.host == host_name() && !entry.unix.is_empty();
        let all = [here.then_some(&entry.unix), Some(&entry.tcp)];
        all.into_iter().flatten().map(|address| Address::parse(address)).collect()
    }

    fn hello(&self, identity: Identity) -> Result<Hello> {
        let session = match identity {
            Identity::Ticket(..) => OF_SERVERS,
            _ => SessionId(0),
        };
        Ok(Hello {
            version: VERSION,
            identity,
            nonce: random_bytes()?,
            session,
            name: format!("data server {} on {}", self.server, host_name()),
            host: host_name(),
            protection: self.protection.least(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_cannot_be_found_was_not_tried() {
        let key = Key::from_bytes([1; 32]);
        let own = (ServerId(1), key, Arc::default());
        let peers = Peers::new(own, [0; 16], &[], Signal::new().unwrap());
        let target = TargetId(7);
        assert!(!peers.is_unfound(target));
        let attempt = Attempt { run: 1, number: 1 };
        let error = peers.connect(target, attempt, &peers.wait(10)).unwrap_err();
        assert_eq!(error.kind, ErrorKind::TargetMissing);
        assert!(peers.is_unfound(target));
    }
}
