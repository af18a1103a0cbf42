//! The line to the metadata server: registers, reports, removes what it is
//! told to. One thread; data is served whether or not it succeeds.

use crate::counters::add;
use crate::service::Shared;
use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_net::{Address, BlockingConn, Wait, host_name, random_bytes};
use weir_types::{Error, ErrorKind, ObjectId, Result, SessionId, TargetId};
use weir_wire::Header;
use weir_wire::frame::VERSION;
use weir_wire::handshake::{Hello, Identity};
use weir_wire::message::Request;
use weir_wire::peer::{HeartbeatReply, HeartbeatRequest, RegisterRequest, TargetReport};

/// One exchange ends within this time.
const EXCHANGE_MS: u64 = 5_000;
/// Waits between attempts to connect.
const FIRST_BACKOFF: Duration = Duration::from_millis(50);
const MAX_BACKOFF: Duration = Duration::from_secs(2);
/// Between heartbeats, whatever the metadata server says.
const INTERVAL_MS: std::ops::RangeInclusive<u32> = 10..=60_000;
/// Removals reported in one heartbeat; the server names the others again.
const MAX_REPORTED: usize = 16_384;

pub(crate) struct Registrar {
    shared: Arc<Shared>,
    metadata: Vec<Address>,
    tcp: String,
    unix: String,
    /// Becomes readable when the server stops.
    shutdown: RawFd,
    to_remove: VecDeque<(TargetId, ObjectId)>,
    removed: Vec<(TargetId, ObjectId)>,
    /// The last state that was logged.
    registered: Option<bool>,
}

impl Registrar {
    /// `shutdown` must stay open until [`Registrar::run`] returns.
    pub(crate) fn new(
        shared: Arc<Shared>,
        metadata: Vec<Address>,
        tcp: String,
        unix: String,
        shutdown: RawFd,
    ) -> Self {
        let (to_remove, removed) = (VecDeque::new(), Vec::new());
        Self { shared, metadata, tcp, unix, shutdown, to_remove, removed, registered: None }
    }

    /// Stays registered until the server stops.
    pub(crate) fn run(mut self) {
        let mut backoff = FIRST_BACKOFF;
        loop {
            for address in self.metadata.clone() {
                let error = match self.stay_registered(&address) {
                    Ok(never) => match never {},
                    Err(error) => error,
                };
                if error.kind == ErrorKind::Interrupted {
                    return;
                }
                if self.registered == Some(true) {
                    backoff = FIRST_BACKOFF;
                }
                if self.registered != Some(false) {
                    self.registered = Some(false);
                    tracing::warn!(
                        "metadata server {address}: {error}; trying again until it answers"
                    );
                }
            }
            if self.wait(backoff).sleep(backoff).is_err() {
                return;
            }
            backoff = (backoff * 2).min(MAX_BACKOFF);
        }
    }

    /// Returns only with an error; `Interrupted` when the server stops.
    fn stay_registered(&mut self, address: &Address) -> Result<std::convert::Infallible> {
        let mut conn = self.connect(address)?;
        let request = RegisterRequest {
            host: host_name(),
            tcp: self.tcp.clone(),
            unix: self.unix.clone(),
            targets: self.report(),
        };
        let mut reply = self.exchange(&mut conn, &request)?;
        self.registered = Some(true);
        tracing::info!("registered with metadata server {address}");
        loop {
            self.pause(&reply)?;
            let request = HeartbeatRequest { targets: self.report() };
            reply = self.exchange(&mut conn, &request)?;
        }
    }

    fn connect(&self, address: &Address) -> Result<BlockingConn> {
        let hello = Hello {
            version: VERSION,
            identity: Identity::Server(self.shared.server),
            nonce: random_bytes()?,
            session: SessionId(0),
            name: format!("data server {} on {}", self.shared.server, host_name()),
        };
        let wait = self.wait(Duration::from_millis(EXCHANGE_MS));
        let key = self.shared.server_key.clone();
        let (conn, welcome) = BlockingConn::connect(address, key, &hello, &wait)?;
        if welcome.cluster != self.shared.cluster {
            let what = "it is of another cluster than our targets";
            return Err(Error::new(ErrorKind::AuthFailed, what));
        }
        Ok(conn)
    }

    fn exchange<R: Request<Reply = HeartbeatReply>>(
        &mut self,
        conn: &mut BlockingConn,
        request: &R,
    ) -> Result<HeartbeatReply> {
        let reported = self.removed.len().min(MAX_REPORTED);
        let wait = self.wait(Duration::from_millis(EXCHANGE_MS));
        let header = Header::request(R::OP, conn.next_request_id());
        conn.send(header, request, &[], &[], &wait)?;
        let reply: HeartbeatReply = conn.recv_reply(&wait)?;
        self.removed.drain(..reported);
        // What was named before and is not removed yet is named again.
        if self.to_remove.is_empty() && self.removed.is_empty() {
            self.to_remove.extend(&reply.remove);
        }
        Ok(reply)
    }

    /// Waits until the next heartbeat is due, and uses the time to remove objects.
    fn pause(&mut self, reply: &HeartbeatReply) -> Result<()> {
        let interval_ms = reply.interval_ms.clamp(*INTERVAL_MS.start(), *INTERVAL_MS.end());
        let interval = Duration::from_millis(interval_ms.into());
        let due = Instant::now() + interval;
        while Instant::now() < due
            && let Some((target, object)) = self.to_remove.pop_front()
        {
            self.remove(target, object);
        }
        self.wait(interval).sleep(due.saturating_duration_since(Instant::now()))
    }

    fn remove(&mut self, target: TargetId, object: ObjectId) {
        // A target that is not ours has nothing to confirm.
        let Some(disk) = self.shared.disks.iter().find(|d| d.served.id == target) else { return };
        match disk.store.remove(object) {
            Ok(()) => {
                add(&self.shared.counters.objects_removed, 1);
                self.removed.push((target, object));
            }
            // Not confirmed, so it will be named again.
            Err(e) => tracing::warn!("cannot remove object {object}: {e}"),
        }
    }

    fn report(&self) -> Vec<TargetReport> {
        let reported = &self.removed[..self.removed.len().min(MAX_REPORTED)];
        let targets = self.shared.disks.iter().map(|disk| {
            let target = disk.served.id;
            let mine = reported.iter().filter(|(t, _)| *t == target);
            let removed = mine.map(|(_, object)| *object).collect();
            TargetReport { target, usage: disk.check_health().usage, removed }
        });
        targets.collect()
    }

    fn wait(&self, time: Duration) -> Wait {
        Wait::until(Instant::now() + time).interruptible(Some(self.shutdown))
    }
}
