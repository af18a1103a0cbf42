//! Data servers: their addresses, tickets and connections.

mod asking;
mod bell;
mod choosing;
mod connect;
mod detours;
mod known;
mod map;
mod paces;
mod pool;
mod questions;
mod route;

use self::bell::Bell;
pub(crate) use self::choosing::{Choosable, Choosing, Slot, Waits};
use self::known::Known;
pub(crate) use self::pool::DataConn;
use self::pool::Pool;
pub(crate) use self::route::Detours;
use crate::config::ClientConfig;
use crate::core::copies::{self, Failure, Purpose, next_copy, no_current_copy};
use crate::core::pace::Paces;
use crate::counters::Counters;
use crate::presence::Peer;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use weir_host::clock;
use weir_host::sync::{Mutex, RwLock};
use weir_net::random_bytes;
use weir_types::{ColumnIndex, CopyIndex, Error, ObjectId, Result, Segment, ServerId, TargetId};
use weir_wire::ticket::SealedTicket;

/// A copy of this machine is not preferred if a MiB takes so many times as long as on most targets.
/// Reads of others make what a disk takes differ by two.
const SLOW_NEAR: f64 = 3.0;
/// The most idle connections to each server, if descriptors suffice.
const MAX_IDLE: usize = 64;
/// The most idle connections to each server, if descriptors are scarce.
const MIN_IDLE: usize = 4;
/// Longest wait for the map where other copies can be asked without it, milliseconds.
pub(crate) const MAP_WAIT_MS: u64 = 1000;
/// A server that gave no reply is asked again after this time, if other copies do reply,
/// milliseconds.
const DOUBT_MS: u64 = 2000;

/// All data servers.
pub(crate) struct Servers {
    config: Arc<ClientConfig>,
    counters: Arc<Counters>,
    host: String,
    known: RwLock<Known>,
    tickets: Mutex<BTreeMap<ServerId, SealedTicket>>,
    /// Random number of this client: see [`weir_wire::handshake::Attempt`].
    run: u64,
    /// The most connections that may be made before they are needed.
    max_ahead: usize,
    /// Whether it uses files with several copies.
    chooses: AtomicBool,
    /// Whether a target was found in another state than in the map.
    outdated: AtomicBool,
    /// The last used number of staged bytes.
    tickets_used: AtomicU64,
    /// Speeds of the targets.
    paces: Arc<Mutex<Paces>>,
    /// Wakes the thread that asks for loads.
    bell: Bell,
}

impl Servers {
    /// `descriptors` is the number of descriptors that this process may have.
    pub(crate) fn new(
        config: Arc<ClientConfig>,
        counters: Arc<Counters>,
        descriptors: u64,
    ) -> Result<Self> {
        let max_idle = (descriptors / 64).clamp(MIN_IDLE as u64, MAX_IDLE as u64) as usize;
        let host = weir_net::host_name();
        Ok(Self {
            config,
            counters,
            known: RwLock::new(Known::new(max_idle, host.clone())),
            host,
            tickets: Mutex::default(),
            run: u64::from_le_bytes(random_bytes()?),
            max_ahead: (descriptors / 8) as usize,
            chooses: AtomicBool::new(false),
            outdated: AtomicBool::new(false),
            tickets_used: AtomicU64::new(0),
            paces: Arc::default(),
            bell: Bell::default(),
        })
    }

    /// The copy of a column to ask next.
    pub(crate) fn next_copy(
        &self,
        purpose: Purpose,
        segment: &Segment,
        column: ColumnIndex,
        tried: &[CopyIndex],
    ) -> Option<(CopyIndex, TargetId)> {
        let known = self.known.read();
        let chosen = next_copy(purpose, segment, column, tried, |target| known.of(target));
        self.chooses.store(true, Relaxed);
        chosen
    }

    /// Whether a target is online and its server has replied lately.
    pub(crate) fn is_ready(&self, target: TargetId) -> bool {
        let known = self.known.read().of(target);
        known.is_some_and(|known| known.state.is_online() && !known.doubtful)
    }

    /// Whether a target is known not to be online, or its server to have given no reply lately.
    pub(crate) fn is_out(&self, target: TargetId) -> bool {
        let known = self.known.read().of(target);
        let out = known.is_some_and(|known| !known.state.is_online() || known.doubtful);
        if out {
            // So that it is heard of when it is back.
            self.chooses.store(true, Relaxed);
        }
        out
    }

    /// The copy of a column on a target, if it is whole and the target is ready.
    pub(crate) fn ready_copy(
        &self,
        segment: &Segment,
        column: ColumnIndex,
        target: TargetId,
    ) -> Option<(CopyIndex, TargetId)> {
        self.chooses.store(true, Relaxed);
        let mut all = copies::copies_of(segment, column);
        let found = all.find(|(copy, on)| *on == target && !segment.is_filling(column, *copy));
        found.filter(|_| self.is_ready(target))
    }

    /// Whether the server of a target is on this machine.
    pub(crate) fn is_here(&self, target: TargetId) -> bool {
        self.known.read().targets.get(&target).is_some_and(|target| target.is_here)
    }

    /// The copy on this machine, if readers prefer it and its disk does not take much longer than
    /// most others.
    pub(crate) fn near_copy(
        &self,
        segment: &Segment,
        column: ColumnIndex,
    ) -> Option<(CopyIndex, TargetId)> {
        if !self.config.prefers_near {
            return None;
        }
        let near = copies::copies_of(segment, column).find(|(_, target)| self.is_here(*target))?;
        let ready = self.ready_copy(segment, column, near.1)?;
        (!self.is_slower(near.1, SLOW_NEAR)).then_some(ready)
    }

    /// A number for staged bytes that this client has not used.
    pub(crate) fn next_ticket(&self) -> u64 {
        self.tickets_used.fetch_add(1, Relaxed)
    }

    /// The error when no copy of an object's column can be used.
    pub(crate) fn no_current_copy(
        &self,
        object: ObjectId,
        segment: &Segment,
        failures: &[Failure],
    ) -> Error {
        let known = self.known.read();
        let name = |target| known.name(target);
        no_current_copy(object, segment, failures, |target| known.of(target), name)
    }

    /// Records whether the server of a target has replied lately.
    pub(crate) fn doubt(&self, target: TargetId, doubtful: bool) {
        let Some(pool) = self.pool(target) else { return };
        let until_ms = clock::uptime().as_millis() as u64 + DOUBT_MS;
        pool.doubtful_until_ms.store(if doubtful { until_ms } else { 0 }, Relaxed);
        let mut paces = self.paces.lock();
        match doubtful {
            true => paces.silent(target, clock::uptime().as_micros() as u64),
            false => paces.answered(target),
        }
    }

    /// The server of a target, as far as is known.
    pub(crate) fn peer(&self, target: TargetId) -> Option<Peer> {
        self.known.read().targets.get(&target).map(|target| Peer::Data(target.server))
    }

    fn pool(&self, target: TargetId) -> Option<Arc<Pool>> {
        let known = self.known.read();
        known.pools.get(&known.targets.get(&target)?.server).cloned()
    }
}
