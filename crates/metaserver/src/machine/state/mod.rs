//! What a metadata server keeps in memory, by subject. No module here carries out a request;
//! [`MetaMachine`] has all the subjects.

pub(super) mod background;
pub(super) mod clients;
pub(super) mod cluster;
pub(super) mod counters;
pub(super) mod exports;
pub(super) mod leases;
pub(super) mod lock_table;
pub(super) mod mover;
pub(super) mod recorded;
pub(super) mod sessions;
pub(super) mod waiting;

use super::moment::{Moment, Times};
use crate::keys::WorkingKeys;
use crate::observed::Members;
use crate::open_files::OpenFiles;
use crate::quota::Quotas;
use crate::revoked::Revoked;
use crate::schema::FormatRecord;
use crate::signing::Signer;
use crate::target_keys::TargetKeys;
use background::Background;
use clients::Clients;
use cluster::Cluster;
use counters::Counters;
use exports::Exports;
use leases::Leases;
use lock_table::LockTable;
use mover::Mover;
use recorded::Recorded;
use sessions::Sessions;
use std::collections::BTreeSet;
use std::sync::Arc;
use weir_audit::Log;
use weir_metastore::{Engine, IdAllocator, Sequence};
use weir_types::{FileId, FsUsage, Result};
use weir_wire::{Key, Level};

/// The metadata server.
pub struct MetaMachine<E: Engine> {
    pub(super) engine: E,
    pub(super) times: Times,
    /// The lowest level of protection of connections to servers of the cluster.
    pub(super) protection: Level,
    pub(super) format: FormatRecord,
    pub(super) keys: WorkingKeys,
    pub(super) target_keys: TargetKeys,
    pub(super) signer: Signer,
    pub(super) revoked: Revoked,
    pub(super) ids: IdAllocator,
    /// An id taken from `ids` that is not used yet.
    pub(super) spare_id: Option<u64>,
    pub(super) sessions: Sessions,
    pub(super) opens: OpenFiles,
    pub(super) orphans: BTreeSet<FileId>,
    pub(super) cluster: Cluster,
    pub(super) background: Background,
    pub(super) clients: Clients,
    pub(super) exports: Exports,
    pub(super) counters: Counters,
    pub(super) leases: Leases,
    pub(super) table: LockTable,
    pub(super) mover: Mover,
    pub(super) quotas: Quotas,
    /// Commit of the present map.
    pub(super) map_at: Sequence,
    pub(super) nonces: Key,
    pub(super) nonce_count: u64,
    pub(super) instance: u64,
    pub(super) started_ms: u64,
    /// Space of the metadata's disk; 0 if unknown.
    pub(super) room: FsUsage,
    /// What the metadata servers hold, if there are several.
    pub(super) members: Option<Members>,
    pub(super) recorded: Recorded,
    pub(super) last_tick_ms: u64,
    /// Whether replies have waited for the journal for long.
    pub(super) is_stalled: bool,
    pub(super) connections: u32,
}

impl<E: Engine> MetaMachine<E> {
    /// Sets the boot of the machine: from it clients learn whether acknowledged, unsynced changes
    /// may be lost.
    pub fn set_boot(&mut self, boot: u32) {
        self.instance = self.instance & 0xffff_ffff | u64::from(boot) << 32;
    }

    /// Sets the term of this leader of several servers with one journal. Events are numbered by it,
    /// because the clocks of the servers may differ.
    pub fn set_term(&mut self, term: u64) {
        self.leases.events.set_term(term);
    }

    /// Sets where it is recorded who did what.
    pub fn set_audit(&mut self, log: Arc<Log>) {
        self.recorded = Recorded::in_log(log);
    }

    /// Until when keys count that are replaced now. At once, also for a data server whose clock, or
    /// this one's later, is behind.
    pub(super) fn old_until(&self, at_once: bool, now: Moment) -> u64 {
        if at_once { 0 } else { self.revoked.lasts_until(now.unix_ms()) }
    }

    /// Adds what was counted to the log: when the server ends.
    pub fn end_audit(&mut self) {
        self.recorded.hand_over();
    }

    /// Sets what the metadata servers of the cluster hold.
    pub fn set_members(&mut self, members: Members) {
        self.members = Some(members);
    }

    /// Sets the space of the metadata's disk.
    pub fn set_room(&mut self, room: FsUsage) {
        self.room = room;
    }

    /// The counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The engine, for closing it.
    pub fn into_engine(self) -> E {
        self.engine
    }

    /// The engine, for reading.
    pub fn engine(&self) -> &E {
        &self.engine
    }

    /// The engine, for injecting failures in a test or simulation.
    pub fn engine_mut(&mut self) -> &mut E {
        &mut self.engine
    }

    /// Takes over results of the engine's background work.
    pub fn poll(&mut self) -> Result<()> {
        self.engine.poll()
    }

    /// The last commit that survives a power cut.
    pub fn synced(&self) -> Sequence {
        self.engine.synced()
    }
}
