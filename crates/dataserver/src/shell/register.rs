//! The connection to the metadata server: registration, reports, and orders. Orders for disks are
//! passed to other threads ([`Chores`](crate::disk::chores::Chores)): heartbeats never wait for a disk,
//! because a slow disk would look like a server that is away. One thread; data is served whether or
//! not it succeeds.

use super::key_files;
use super::machine_load::Machine;
use super::threads::spawn;
use crate::copies::pools::Pools;
use crate::disk::chores::Batch;
use crate::disk::{Disk, Health};
use crate::machine::LaterKey;
use crate::state::Shared;
use std::collections::BTreeMap;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use weir_host::clock;
use weir_host::load::MachineCounts;
use weir_host::net::Signal;
use weir_host::thread::JoinHandle;
use weir_net::{Address, BlockingConn, Wait, host_name, random_bytes};
use weir_store::{ELSEWHERE, UNHEARD};
use weir_types::limits::MAX_FILE_BYTES;
use weir_types::{
    DiskId, Error, ErrorKind, FsUsage, KeyGeneration, Result, ServerId, SessionId, TargetId,
};
use weir_wire::frame::VERSION;
use weir_wire::handshake::{Hello, Identity};
use weir_wire::message::Request;
use weir_wire::peer::{HeartbeatReply, HeartbeatRequest, RegisterRequest, TargetReport};
use weir_wire::targets::TargetWork;
use weir_wire::{Header, Key, Level};

/// Timeout of one exchange, milliseconds.
const EXCHANGE_MS: u64 = 5_000;
/// Timeout of one exchange if there are several metadata servers, milliseconds: another one may
/// lead meanwhile.
const EXCHANGE_OF_SEVERAL_MS: u64 = 2_000;
/// First pause between attempts to connect.
const FIRST_BACKOFF: Duration = Duration::from_millis(50);
const MAX_BACKOFF: Duration = Duration::from_secs(2);
/// Limits of the heartbeat interval that the metadata server sets, milliseconds.
const INTERVAL_MS: std::ops::RangeInclusive<u32> = 10..=60_000;
/// The most objects named in one report. Those of further targets wait for the next report.
const MAX_REPORTED: usize = 16_384;

pub(crate) struct Registrar {
    shared: Arc<Shared>,
    pools: Arc<Pools>,
    metadata: Vec<Address>,
    tcp: String,
    unix: String,
    /// Failure domain; if empty, the host.
    domain: String,
    /// Raised when the server stops.
    shutdown: Signal,
    /// Given-up targets with hung disks, and since when, on the clock of [`clock::since_boot`].
    given_up: BTreeMap<TargetId, Duration>,
    /// Time for which a disk that hung has to work before a restart.
    pause: Duration,
    /// Whether no registration of this process was answered yet.
    first: bool,
    /// Load of the machine.
    machine: Machine,
    /// The last logged state.
    registered: Option<bool>,
    /// Writes keys that have come, so that reports wait for no disk.
    keeps: Option<JoinHandle>,
}

impl Registrar {
    /// `shutdown` ends [`Registrar::run`].
    pub(crate) fn new(
        (shared, pools): (Arc<Shared>, Arc<Pools>),
        metadata: Vec<Address>,
        tcp: String,
        unix: String,
        domain: String,
        (shutdown, pause): (Signal, Duration),
    ) -> Self {
        let machine = Machine::default();
        let (first, registered, given_up) = (true, None, BTreeMap::new());
        Self {
            shared,
            pools,
            metadata,
            tcp,
            unix,
            domain,
            shutdown,
            given_up,
            pause,
            first,
            machine,
            registered,
            keeps: None,
        }
    }

    /// Stays registered until the server stops.
    pub(crate) fn run(mut self) {
        let mut backoff = FIRST_BACKOFF;
        loop {
            // Also while nobody asks for a report.
            self.shared.disks.iter().for_each(|disk| disk.chores.look());
            self.begin_anew();
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

    /// Stays registered until an error occurs; `Interrupted` when the server stops.
    fn stay_registered(&mut self, address: &Address) -> Result<std::convert::Infallible> {
        let mut conn = self.connect(address)?;
        let request = RegisterRequest {
            host: host_name(),
            domain: self.domain.clone(),
            tcp: self.tcp.clone(),
            unix: self.unix.clone(),
            first: self.first,
            runs: self.shared.runs.clone(),
            targets: self.report(),
        };
        let mut reply = self.exchange(&mut conn, &request)?;
        self.first = false;
        self.registered = Some(true);
        tracing::info!("registered with metadata server {address}");
        loop {
            self.pause(&reply)?;
            self.begin_anew();
            let acting = self.shared.copies.acting();
            let machine = self.machine.load(clock::uptime(), MachineCounts::now());
            let (revoked, targets) = (self.shared.revoked.upto(), self.report());
            let request = HeartbeatRequest { acting, revoked, machine, targets };
            reply = self.exchange(&mut conn, &request)?;
        }
    }

    fn connect(&self, address: &Address) -> Result<BlockingConn> {
        let Shared { server, server_key, cluster, .. } = &*self.shared;
        let wait = self.exchange_wait();
        connect((*server, server_key.clone(), *cluster), address, &wait)
    }

    fn exchange<R: Request<Reply = HeartbeatReply>>(
        &mut self,
        conn: &mut BlockingConn,
        request: &R,
    ) -> Result<HeartbeatReply> {
        let wait = self.exchange_wait();
        let sent = clock::since_boot();
        let reply: HeartbeatReply = exchange(conn, request, &wait)?;
        // First: nobody is served below it.
        let least = reply.protection;
        if let Some(before) = self.shared.protection.set(least).filter(|before| *before > least) {
            tracing::warn!(
                "{}: the metadata server requires protection `{least}` of connections now, and \
                 required `{before}` before: if nobody has changed it, give all metadata servers \
                 the same `protection` in meta.toml",
                conn.address()
            );
        }
        self.shared.copies.standings.adopt(&reply, sent);
        for (target, oldest) in &reply.oldest_keys {
            if let Some(disk) = self.shared.disk(*target) {
                disk.served.oldest_key.store(oldest.0, Relaxed);
            }
        }
        self.keep_keys(&reply);
        // Last: a server that has just started serves from then on.
        self.shared.revoked.adopt(&reply.revoked, clock::unix_now().as_millis() as u64);
        self.shared.busy_percent.store(reply.busy_percent, Relaxed);
        for disk in &self.shared.disks {
            disk.progress.ordered(disk.served.id, &reply.fill);
            disk.builds.ordered(disk.served.id, &reply.build);
            disk.chores.answered(disk.served.id, &reply);
        }
        self.give_up(&reply.give_up);
        Ok(reply)
    }

    /// Keeps targets' own keys that the metadata server has brought. They are reported, and used, when
    /// they are on disk; until then they come again.
    fn keep_keys(&mut self, reply: &HeartbeatReply) {
        if reply.own_keys.is_empty() || self.keeps.as_ref().is_some_and(|it| !it.is_finished()) {
            return;
        }
        let mut new = Vec::new();
        for own in &reply.own_keys {
            let file = self.shared.key_files.get(&own.target).cloned();
            if let Some((disk, file)) = self.shared.disk(own.target).zip(file) {
                let (generation, from) = (own.generation, own.from);
                let key = LaterKey { generation, from, key: own.open(&self.shared.server_key) };
                new.push((disk.served.clone(), file, key));
            }
        }
        let keep = move || {
            for (served, file, key) in new {
                let oldest = KeyGeneration(served.oldest_key.load(Relaxed));
                let later = served.keys.later_with(key, oldest);
                match key_files::write(&file, &later) {
                    Ok(()) => served.keys.set_later(later),
                    Err(error) => tracing::warn!("a new key of target {}: {error}", served.id),
                }
            }
        };
        self.keeps = spawn("weir-keys", keep)
            .inspect_err(|error| tracing::warn!("cannot keep new keys: {error}"))
            .ok();
    }

    /// Gives up targets whose disks still hang: their columns with several copies are not served
    /// any more, nor reported, as if the server had been killed. Hung operations may end at any
    /// time then.
    fn give_up(&mut self, targets: &[TargetId]) {
        for disk in &self.shared.disks {
            let target = disk.served.id;
            if self.given_up.contains_key(&target) {
                // What came in at the moment in which it was.
                self.refuse(disk);
                continue;
            }
            let Some(hangs) = disk.at_work.hangs().filter(|_| targets.contains(&target)) else {
                continue;
            };
            tracing::error!(
                "{}: its disk has been at one operation for {} s: others go on without it, until \
                 that has ended",
                disk.store.name(),
                hangs.as_secs()
            );
            self.shared.copies.standings.give_up(target);
            self.given_up.insert(target, clock::since_boot());
            self.refuse(disk);
        }
    }

    /// Refuses waiting requests to a given-up target.
    fn refuse(&self, disk: &Disk) {
        let (copies, target) = (&self.shared.copies, disk.served.id);
        if let Err(error) = copies.standings.is_kept(target) {
            self.pools.refuse(target, &error);
            disk.refuse_copies(&error);
        }
    }

    /// Restarts the server when all operations of given-up targets have ended: then none of them
    /// can take effect later. It waits while any of its disks hangs, because ending the server
    /// waits for that.
    fn begin_anew(&self) {
        let is_well = |(target, then): (&TargetId, &Duration)| {
            self.shared.disk(*target).is_none_or(|disk| disk.has_answered_since(*then + self.pause))
        };
        let hangs = |disk: &Arc<Disk>| disk.at_work.hangs().is_some();
        let all_are_well = self.given_up.iter().all(is_well);
        if !self.given_up.is_empty() && all_are_well && !self.shared.disks.iter().any(hangs) {
            self.shared.anew.store(true, Relaxed);
            self.shutdown.raise();
        }
    }

    /// Waits until the next heartbeat is due.
    fn pause(&self, reply: &HeartbeatReply) -> Result<()> {
        let interval_ms = reply.interval_ms.clamp(*INTERVAL_MS.start(), *INTERVAL_MS.end());
        self.sleep(Duration::from_millis(interval_ms.into()))
    }

    fn report(&self) -> Vec<TargetReport> {
        let mut room = MAX_REPORTED;
        let targets = self.shared.disks.iter().map(|disk| {
            let target = disk.served.id;
            disk.at_work.look();
            let hangs_ms = disk.at_work.hangs().map_or(0, |time| time.as_millis() as u64);
            if self.given_up.contains_key(&target) {
                disk.chores.look();
                let Health { usage, trouble } = disk.health();
                return TargetReport {
                    usage,
                    disk: disk.device,
                    hangs_ms,
                    given_up: true,
                    ..nothing(target, trouble)
                };
            }
            // Before gaps are looked at: what is distrusted is among them.
            let Batch { removed, distrusted } = disk.chores.say(&mut room);
            let Health { usage, trouble } = disk.health();
            disk.chores.look();
            let gaps = self.gaps(disk);
            // What is lacking here others may lack, too.
            let lacks = |from, to| {
                let of = |target| disk.store.gaps().lacks(from, target, &(0..MAX_FILE_BYTES));
                of(to) || of(target)
            };
            let filled = disk.progress.filled(lacks);
            let unreachable = self.shared.copies.unreachable.of(target);
            let own = disk.served.keys.latest();
            TargetReport {
                target,
                usage,
                disk: disk.device,
                trouble,
                removed,
                gaps,
                filled,
                built: disk.builds.built(),
                unreachable,
                distrusted,
                hangs_ms,
                given_up: false,
                work: disk.work(),
                own_key: own.0,
                own_key_from: own.1,
            }
        });
        let unopened = self.shared.unopened.iter().map(|unopened| {
            nothing(unopened.served.id, unopened.served.unopened.clone().unwrap_or_default())
        });
        targets.chain(unopened).collect()
    }

    /// Gaps of copies, as far as they are known here under the present epoch.
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

    /// The wait for one exchange.
    fn exchange_wait(&self) -> Wait {
        // One server may have the path of a socket beside its address.
        let on_network = |address: &&Address| address.unix_path().is_none();
        let several = self.metadata.iter().filter(on_network).count() > 1;
        self.wait(Duration::from_millis(if several { EXCHANGE_OF_SEVERAL_MS } else { EXCHANGE_MS }))
    }

    fn wait(&self, time: Duration) -> Wait {
        Wait::until(clock::now() + time).interruptible(self.shutdown.fd().map(|fd| fd.as_raw_fd()))
    }

    /// Sleeps. Errors: `Interrupted` when the server stops.
    fn sleep(&self, time: Duration) -> Result<()> {
        match self.shutdown.wait(Some(time)) {
            Ok(false) => Ok(()),
            Ok(true) => Err(ErrorKind::Interrupted.into()),
            Err(e) => Err(std::io::Error::from(e).into()),
        }
    }
}

/// Checks whether the metadata server accepts the key of a data server. Nothing is registered.
///
/// Errors: `AuthFailed` if it does not, with the reason: for example the server was removed from
/// the cluster; `Unreachable`, `TimedOut`.
pub fn try_key(metadata: &str, server: ServerId, key: Key, cluster: [u8; 16]) -> Result<()> {
    let wait = Wait::until(clock::now() + Duration::from_millis(EXCHANGE_MS));
    connect((server, key, cluster), &Address::parse(metadata)?, &wait).map(drop)
}

/// Connects to the metadata server of a cluster, as one of its data servers.
pub(crate) fn connect(
    (server, key, cluster): (ServerId, Key, [u8; 16]),
    address: &Address,
    wait: &Wait,
) -> Result<BlockingConn> {
    let hello = Hello {
        version: VERSION,
        identity: Identity::Server(server),
        nonce: random_bytes()?,
        session: SessionId(0),
        name: format!("data server {server} on {}", host_name()),
        host: host_name(),
        // The metadata server knows what is required.
        protection: Level::Args,
    };
    let (conn, welcome) = BlockingConn::connect(address, key, &hello, wait)?;
    if welcome.cluster != cluster {
        let what = "it is of another cluster than our targets";
        return Err(Error::new(ErrorKind::AuthFailed, what));
    }
    Ok(conn)
}

/// Sends one request and waits for the reply.
pub(crate) fn exchange<R: Request>(
    conn: &mut BlockingConn,
    request: &R,
    wait: &Wait,
) -> Result<R::Reply> {
    let header = Header::request(R::OP, conn.next_request_id());
    conn.send(header, request, &[], &[], wait)?;
    conn.recv_reply(wait)
}

/// A report of a target with nothing but its trouble.
pub(crate) fn nothing(target: TargetId, trouble: String) -> TargetReport {
    TargetReport {
        target,
        usage: FsUsage::default(),
        disk: DiskId::UNKNOWN,
        trouble,
        removed: Vec::new(),
        gaps: Vec::new(),
        filled: Vec::new(),
        built: Vec::new(),
        unreachable: Vec::new(),
        distrusted: Vec::new(),
        hangs_ms: 0,
        given_up: false,
        work: TargetWork::default(),
        own_key: KeyGeneration(0),
        own_key_from: KeyGeneration(0),
    }
}
