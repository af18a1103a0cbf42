//! The line to the metadata server: registers, reports, removes what it is
//! told to. One thread; data is served whether or not it succeeds.

use crate::counters::add;
use crate::disk::{Disk, Health};
use crate::service::Shared;
use std::collections::VecDeque;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use weir_host::clock;
use weir_host::net::Signal;
use weir_net::{Address, BlockingConn, Wait, host_name, random_bytes};
use weir_store::{ELSEWHERE, Note, UNHEARD};
use weir_types::limits::MAX_FILE_BYTES;
use weir_types::{Error, ErrorKind, FsUsage, ObjectId, Result, SessionId, TargetId};
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
    /// Empty: none but its host.
    domain: String,
    /// Raised when the server stops.
    shutdown: Signal,
    to_remove: VecDeque<(TargetId, ObjectId)>,
    removed: Vec<(TargetId, ObjectId)>,
    /// Those of the last answer that are noted as not current.
    distrusted: Vec<(TargetId, ObjectId)>,
    /// No registration of this process was answered yet.
    first: bool,
    /// The last state that was logged.
    registered: Option<bool>,
}

impl Registrar {
    /// `shutdown` ends [`Registrar::run`].
    pub(crate) fn new(
        shared: Arc<Shared>,
        metadata: Vec<Address>,
        tcp: String,
        unix: String,
        domain: String,
        shutdown: Signal,
    ) -> Self {
        Self {
            shared,
            metadata,
            tcp,
            unix,
            domain,
            shutdown,
            to_remove: VecDeque::new(),
            removed: Vec::new(),
            distrusted: Vec::new(),
            first: true,
            registered: None,
        }
    }

    /// Stays registered until the server stops.
    pub(crate) fn run(mut self) {
        let mut backoff = FIRST_BACKOFF;
        loop {
            // Also while nobody asks for a report.
            self.shared.disks.iter().for_each(|disk| drop(disk.check_health()));
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
            if self.sleep(backoff).is_err() {
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
            domain: self.domain.clone(),
            tcp: self.tcp.clone(),
            unix: self.unix.clone(),
            first: self.first,
            run: self.shared.instance,
            targets: self.report(),
        };
        let mut reply = self.exchange(&mut conn, &request)?;
        self.first = false;
        self.registered = Some(true);
        tracing::info!("registered with metadata server {address}");
        loop {
            self.pause(&reply)?;
            let acting = self.shared.copies.acting();
            let request = HeartbeatRequest { acting, targets: self.report() };
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
            host: host_name(),
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
        let sent = clock::since_boot();
        let header = Header::request(R::OP, conn.next_request_id());
        conn.send(header, request, &[], &[], &wait)?;
        let reply: HeartbeatReply = conn.recv_reply(&wait)?;
        self.shared.copies.standings.adopt(&reply, sent);
        self.shared.busy_percent.store(reply.busy_percent, Relaxed);
        for disk in &self.shared.disks {
            disk.progress.ordered(disk.served.id, &reply.fill);
        }
        self.removed.drain(..reported);
        self.distrusted = self.distrust(&reply.distrust);
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
        let due = clock::now() + interval;
        let mut unlinked = Vec::new();
        while clock::now() < due
            && let Some((target, object)) = self.to_remove.pop_front()
        {
            if self.unlink(target, object) {
                unlinked.push((target, object));
            }
        }
        self.confirm(unlinked);
        self.sleep(due.saturating_duration_since(clock::now()))
    }

    /// Removes an object, not yet durably.
    fn unlink(&self, target: TargetId, object: ObjectId) -> bool {
        // A target that is not ours has nothing to confirm.
        let Some(disk) = self.shared.disks.iter().find(|d| d.served.id == target) else {
            return false;
        };
        // What is not confirmed will be named again.
        self.shared.copies.removed.add(disk.served.id, object);
        let result = disk.store.remove(object);
        // Of a disk that has failed it was said already.
        let told = !disk.health().trouble.is_empty();
        let say = |e: &Error| match told {
            true => tracing::debug!("cannot remove object {object}: {e}"),
            false => tracing::warn!("cannot remove object {object}: {e}"),
        };
        result.inspect_err(say).is_ok()
    }

    /// Makes removals durable, all of a target together, and only then takes
    /// them into the next report: the metadata server forgets what is in it.
    fn confirm(&mut self, mut unlinked: Vec<(TargetId, ObjectId)>) {
        unlinked.sort_unstable();
        for of_target in unlinked.chunk_by(|a, b| a.0 == b.0) {
            let disk = self.shared.disks.iter().find(|d| d.served.id == of_target[0].0);
            let Some(disk) = disk else { continue };
            match disk.store.sync_removals() {
                Ok(()) => {
                    add(&self.shared.counters.objects_removed, of_target.len() as u64);
                    self.removed.extend(of_target);
                }
                Err(e) => tracing::warn!("removals are not durable: {e}"),
            }
        }
    }

    /// Nobody is left who knows what these copies may lack: another has other bytes, or
    /// had. Returns those of which that is noted durably.
    fn distrust(&self, copies: &[(TargetId, ObjectId)]) -> Vec<(TargetId, ObjectId)> {
        let mut noted = Vec::new();
        for disk in &self.shared.disks {
            let target = disk.served.id;
            let note = |&(_, object): &(TargetId, ObjectId)| {
                let (behind, copy, bytes) = (ELSEWHERE, object.copy, 0..MAX_FILE_BYTES);
                Note { object, behind, copy, bytes }
            };
            let mine = copies.iter().filter(|(of, _)| *of == target);
            let notes: Vec<Note> = mine.clone().map(note).collect();
            match disk.store.gaps().note_all(&notes) {
                Ok(()) => noted.extend(mine),
                Err(error) => tracing::warn!("{}: {error}", disk.store.name()),
            }
        }
        noted
    }

    fn report(&self) -> Vec<TargetReport> {
        let reported = &self.removed[..self.removed.len().min(MAX_REPORTED)];
        let targets = self.shared.disks.iter().map(|disk| {
            let target = disk.served.id;
            let mine = reported.iter().filter(|(t, _)| *t == target);
            let removed = mine.map(|(_, object)| *object).collect();
            let Health { usage, trouble } = disk.check_health();
            let gaps = self.gaps(disk);
            // What is lacking here others may lack, too.
            let lacks = |from, to| {
                let of = |target| disk.store.gaps().lacks(from, target, &(0..MAX_FILE_BYTES));
                of(to) || of(target)
            };
            let filled = disk.progress.filled(lacks);
            let unreachable = self.shared.copies.unreachable.of(target);
            let mine = self.distrusted.iter().filter(|(t, _)| *t == target);
            let distrusted = mine.map(|(_, object)| *object).collect();
            TargetReport { target, usage, trouble, removed, gaps, filled, unreachable, distrusted }
        });
        let unopened = self.shared.unopened.iter().map(|unopened| TargetReport {
            target: unopened.served.id,
            usage: FsUsage::default(),
            trouble: unopened.served.unopened.clone().unwrap_or_default(),
            removed: Vec::new(),
            gaps: Vec::new(),
            filled: Vec::new(),
            unreachable: Vec::new(),
            distrusted: Vec::new(),
        });
        targets.chain(unopened).collect()
    }

    /// What copies lack, as far as it is known here under the present epoch.
    fn gaps(&self, disk: &Disk) -> Vec<(TargetId, u64)> {
        let (own, copies) = (disk.served.id, &self.shared.copies);
        let acting = copies.standings.acting();
        // One more for all that is not known; first, since it becomes gaps.
        let unknown = u64::from(disk.store.gaps().lost());
        let unknown_of_others = disk.store.gaps().lost_others();
        let mut gaps = disk.store.gaps().untold();
        gaps.retain(|(behind, _)| ![ELSEWHERE, UNHEARD].contains(behind));
        let at = gaps.iter().position(|(behind, _)| *behind == own);
        let noted = at.map_or(0, |at| gaps.swap_remove(at).1);
        match disk.progress.to_be_filled(noted, acting) + unknown {
            0 => {}
            count => gaps.push((own, count)),
        }
        if unknown_of_others {
            gaps.push((TargetId::NONE, 1));
        }
        gaps
    }

    fn wait(&self, time: Duration) -> Wait {
        Wait::until(clock::now() + time).interruptible(self.shutdown.fd().map(|fd| fd.as_raw_fd()))
    }

    /// Errors: `Interrupted` when the server stops.
    fn sleep(&self, time: Duration) -> Result<()> {
        match self.shutdown.wait(Some(time)) {
            Ok(false) => Ok(()),
            Ok(true) => Err(ErrorKind::Interrupted.into()),
            Err(e) => Err(std::io::Error::from(e).into()),
        }
    }
}
