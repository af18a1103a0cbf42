//! Leases that clients held before the server restarted.

use crate::leases::ranges::{Room, whole, whole_blocks};
use crate::machine::state::MetaMachine;
use crate::machine::store::fault;
use crate::ops::acquire::may_hold;
use crate::ops::inodes;
use weir_metastore::{Engine, Tx};
use weir_types::{Result, SessionId};
use weir_wire::lease::{HeldLease, LeaseRange};
use weir_wire::meta::ReassertRequest;

impl<E: Engine> MetaMachine<E> {
    /// Takes over leases that a client held before the server restarted. Returns those that
    /// conflict.
    pub(super) fn reassert(
        &mut self,
        session: SessionId,
        asked: &ReassertRequest,
    ) -> Result<Vec<LeaseRange>> {
        let mut lost = Vec::new();
        for held in &asked.leases {
            if !self.holds_still(session, held)? {
                lost.push(held.lease.clone());
            }
        }
        if !asked.leases.is_empty() {
            self.leases.events.polls(session);
        }
        if asked.last {
            for (file, by_all) in self.opens.said_all(session) {
                self.left(session, file, by_all, false);
            }
            self.has_reasserted(session);
        }
        Ok(lost)
    }

    fn holds_still(&mut self, session: SessionId, held: &HeldLease) -> Result<bool> {
        let Some(lease) = whole_blocks(&held.lease) else { return Ok(true) };
        let ranges = &self.leases.ranges;
        let mut tx = Tx::new(&self.engine);
        let inode = inodes::find(&mut tx, lease.file).map_err(fault)?;
        if inode.is_none_or(|inode| inode.generation != held.generation) {
            self.leases.ranges.drop_file(session, lease.file);
            return Ok(false);
        }
        if ranges.covers(session, &lease) {
            return Ok(true);
        }
        // When that time is over others may have been there.
        let rights = self.opens.rights(session, lease.file);
        let fits = self.leases.grace.as_ref().is_some_and(|waited| waited.contains(&session))
            && rights.is_some_and(|rights| may_hold(rights, lease.mode))
            && ranges.in_the_way(session, &lease).is_empty()
            && ranges.room(session) != Room::No;
        if fits {
            let all = lease == whole(lease.file, lease.mode);
            let asked = (!all).then_some(&lease);
            self.leases.ranges.grant(session, &lease, asked);
        }
        Ok(fits)
    }
}
