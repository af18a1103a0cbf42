//! Rebalancing: an administrator's order to even out the used space. It works in rounds, each of
//! which moves half of the surplus of the fullest targets, until none is further from the mean than
//! allowed. A restart of the server ends it; unfinished moves are dropped.

use crate::machine::moment::Moment;
use crate::machine::state::MetaMachine;
use crate::machine::state::mover::order::Rebalance;
use crate::machine::store::fault;
use crate::mover::even::Uneven;
use crate::ops::move_copies;
use crate::schema::key;
use weir_metastore::{Engine, Tx, key_after};
use weir_types::{ClientId, Error, ErrorKind, FileId, Result};
use weir_wire::meta::RebalanceRequest;

/// Files in one step.
const FILES_PER_STEP: usize = 16;
/// Time after a round for targets to report their use.
const SETTLE_MS: u64 = 5_000;
/// The most waits for returning targets. A target that waits for an administrator may never return.
const MAX_WAITS: u32 = 120;
/// The most rounds; each halves the imbalance.
const MAX_ROUNDS: u32 = 24;

impl<E: Engine> MetaMachine<E> {
    /// Starts or stops rebalancing.
    ///
    /// # Errors
    /// `NotAdministrator`, `InvalidArgument`.
    pub(in crate::machine) fn rebalance(
        &mut self,
        client: ClientId,
        request: &RebalanceRequest,
    ) -> Result<()> {
        self.require_administrator(client)?;
        if !(1..=100).contains(&request.within_percent) {
            let what = "`within` is a percentage from 1 to 100 of the targets' space";
            return Err(Error::new(ErrorKind::InvalidArgument, what));
        }
        self.end_rebalance(if request.stop { "stopped" } else { "begun anew" });
        if !request.stop {
            tracing::info!(within_percent = request.within_percent, "rebalancing");
            self.mover.rebalance = Some(Rebalance {
                within_percent: request.within_percent,
                rounds: 0,
                walk: None,
                uneven: Uneven::default(),
                moved: 0,
                looked_again: false,
                awaits: false,
                waits: 0,
                next_ms: Some(0),
            });
        }
        Ok(())
    }

    fn end_rebalance(&mut self, why: &str) {
        if self.mover.rebalance.take().is_some() {
            tracing::info!("rebalancing ends: {why}");
            // What is half done goes no further.
            self.mover.relieved.clear();
            self.mover.sites.close(Default::default());
            self.mover.look_at_all();
        }
    }

    /// Begins a round, or ends the order.
    pub(super) fn tick_rebalance(&mut self, now: Moment) {
        let busy = self.mover.is_working();
        let Some(order) = &mut self.mover.rebalance else { return };
        if order.walk.is_some() || busy {
            return;
        }
        let Some(at_ms) = order.next_ms else {
            order.next_ms = Some(now.monotonic_ms + SETTLE_MS);
            return;
        };
        if now.monotonic_ms < at_ms {
            return;
        }
        order.uneven = Uneven::of(&self.cluster.map());
        let even = order.uneven.percent() <= u64::from(order.within_percent);
        let in_vain = order.rounds > 0 && order.moved == 0;
        // What was written just before the order may not have been told yet.
        let early = even && order.rounds == 0 && !order.looked_again;
        let waits = in_vain && !even && order.uneven.awaits_some() && order.waits < MAX_WAITS;
        if early || waits {
            (order.looked_again, order.awaits) = (true, in_vain);
            order.waits += u32::from(waits);
            order.next_ms = Some(now.monotonic_ms + SETTLE_MS);
            return;
        }
        let idle = in_vain && !std::mem::take(&mut order.awaits);
        if even || idle || order.rounds == MAX_ROUNDS {
            let why = if even { "targets are even" } else { "nothing more can be moved" };
            return self.end_rebalance(why);
        }
        (order.rounds, order.moved, order.next_ms) = (order.rounds + 1, 0, None);
        order.walk = Some((key::inode(FileId(0)), 0));
        self.mover.relieved.clear();
        self.mover.sites.close(order.uneven.full());
    }

    /// Searches some files for copies to move.
    pub(super) fn step_rebalance(&mut self) -> Result<()> {
        let Some(mut order) = self.mover.rebalance.take() else { return Ok(()) };
        let result = self.look_for_copies(&mut order);
        self.mover.rebalance = Some(order);
        result
    }

    fn look_for_copies(&mut self, order: &mut Rebalance) -> Result<()> {
        let (_, end) = key::inodes();
        for _ in 0..FILES_PER_STEP {
            let Some((next, from)) = order.walk.take() else { return Ok(()) };
            let mut tx = Tx::new(&self.engine);
            let found = tx.range(&next, &end, 1)?;
            let Some((at, _)) = found.first() else { return Ok(()) };
            let file = key::inode_file(at)?;
            let from = if **at == *next { from } else { 0 };
            let sites = &self.mover.sites;
            let found = move_copies::relieve(&mut tx, file, from, sites, &mut order.uneven);
            let (found, more) = match found.map_err(fault) {
                // The audit tells of it.
                Err(error) if matches!(error.kind, ErrorKind::Corrupt | ErrorKind::Unsupported) => {
                    tracing::error!(file = file.0, "rebalancing goes on without it: {error}");
                    (Vec::new(), None)
                }
                found => found?,
            };
            order.walk = Some(match more {
                Some(more) => (at.to_vec(), more),
                None => (key_after(at).into_vec(), 0),
            });
            if !found.is_empty() {
                order.moved += found.len() as u64;
                self.mover.relieved.extend(found);
                self.mover.wished(file);
            }
        }
        Ok(())
    }
}
