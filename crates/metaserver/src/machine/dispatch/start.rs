//! The start: what the store has becomes the state in memory.

use crate::machine::administration::rotate;
use crate::machine::commit::revoke;
use crate::machine::moment::{Moment, Times};
use crate::machine::state::MetaMachine;
use crate::machine::state::background::Background;
use crate::machine::state::clients::Clients;
use crate::machine::state::cluster::Cluster;
use crate::machine::state::counters::Counters;
use crate::machine::state::exports::Exports;
use crate::machine::state::leases::Leases;
use crate::machine::state::lock_table::LockTable;
use crate::machine::state::mover::Mover;
use crate::machine::state::recorded::Recorded;
use crate::machine::state::sessions::{Session, Sessions};
use crate::machine::store::each;
use crate::open_files::OpenFiles;
use crate::quota::Quotas;
use crate::schema::{self, SessionRecord, key};
use crate::signing::Signer;
use std::collections::BTreeSet;
use weir_metastore::{Engine, IdAllocator};
use weir_types::{FsUsage, Result};
use weir_wire::key::MasterKey;
use weir_wire::{Key, Level};

/// File ids reserved at a time, more than are used while a reservation becomes durable.
const ID_BLOCK: u64 = 1 << 17;
/// The first file id after the root's.
const FIRST_ID: u64 = 2;

impl<E: Engine> MetaMachine<E> {
    /// Starts on an engine made by [`crate::init::initialize`]. `entropy` is 32 fresh random bytes.
    ///
    /// # Errors
    /// `NotFound` (the engine is empty: not initialised), `AuthFailed` (the master key is another
    /// cluster's), and those of the engine.
    pub fn open(
        mut engine: E,
        times: Times,
        master: MasterKey,
        entropy: [u8; 32],
        now: Moment,
    ) -> Result<Self> {
        let (format, age) = crate::init::check_format(&engine, &master)?;
        crate::init::upgrade(&mut engine, &format, age)?;
        let mut ids = IdAllocator::open(&mut engine, key::IDS, FIRST_ID, ID_BLOCK)?;
        let entropy = Key::from_bytes(entropy);
        let cluster = Cluster::load(&engine, now.monotonic_ms)?;
        let keys = rotate::load(&engine)?;
        let mut signer = Signer::new(master, keys.generation(), times.capability_ms);
        let target_keys = rotate::load_own(&engine)?;
        signer.set_own(target_keys.replaced());
        signer.prepare(cluster.view.targets.iter().map(|t| t.target));
        let lasts_ms = times.capability_ms.max(times.ticket_ms);
        let (revoked, number) = revoke::load(&mut engine, &mut ids, lasts_ms, now)?;
        signer.revoked(number);
        let mut machine = Self {
            times,
            protection: Level::Args,
            format,
            keys,
            target_keys,
            signer,
            revoked,
            ids,
            spare_id: None,
            sessions: Sessions::default(),
            opens: OpenFiles::new(true),
            orphans: BTreeSet::new(),
            cluster,
            background: Background::default(),
            clients: Clients::load(&engine)?,
            exports: Exports::default(),
            counters: Counters::default(),
            leases: Leases::default(),
            table: LockTable::default(),
            mover: Mover::new(now),
            quotas: Quotas::load(&engine)?,
            map_at: engine.sequence(),
            instance: u64::from_le_bytes(first_eight(&entropy.mac("weir 1 instance", &[]).0)),
            nonces: entropy,
            nonce_count: 0,
            started_ms: now.monotonic_ms,
            room: FsUsage::default(),
            members: None,
            recorded: Recorded::default(),
            last_tick_ms: now.monotonic_ms,
            is_stalled: false,
            connections: 0,
            engine,
        };
        machine.load(now)?;
        Ok(machine)
    }

    /// Finds sessions and files without names of earlier processes.
    fn load(&mut self, now: Moment) -> Result<()> {
        let (start, end) = key::sessions();
        each(&self.engine, start, &end, |key, bytes| {
            let session = key::session_id(key)?;
            let record: SessionRecord = schema::decode(bytes, "of a session")?;
            if record.ended {
                self.background.ended.push_back(session);
            } else {
                let known = Session::new(record.client, now.monotonic_ms, false);
                self.sessions.by_id.insert(session, known);
            }
            Ok(())
        })?;
        self.leases = Leases::new(now.unix_ms(), self.sessions.by_id.keys().copied().collect());
        self.find_orphans()?;
        if self.sessions.by_id.is_empty() {
            self.settle();
        }
        Ok(())
    }
}

fn first_eight(bytes: &[u8; 16]) -> [u8; 8] {
    let mut eight = [0; 8];
    eight.copy_from_slice(&bytes[..8]);
    eight
}
