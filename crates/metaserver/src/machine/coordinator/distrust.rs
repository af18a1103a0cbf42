//! Copies that may lack bytes of which only a removed target knew: an administrator has declared it
//! lost for good. The servers of these copies are told which they are, and note that they do not
//! serve them. The removal waits until all have confirmed.
//!
//! Bytes that other copies have are then taken from those. The rest is lost until an administrator
//! accepts, for each file, what is left (`weir accept-loss`).

use super::garbage::{CONFIRM_PAGE, confirm};
use crate::machine::state::MetaMachine;
use crate::schema::key;
use std::collections::BTreeSet;
use weir_metastore::Engine;
use weir_types::{ObjectId, Result, ServerId, TargetId};
use weir_wire::peer::TargetReport;

/// The most copies in one reply.
const MAX_NAMED: usize = 1024;

impl<E: Engine> MetaMachine<E> {
    /// Handles a server's confirmation.
    pub(super) fn take_distrusted(
        &mut self,
        server: ServerId,
        reports: &[TargetReport],
    ) -> Result<()> {
        for report in reports.iter().filter(|report| self.cluster.serves(server, report.target)) {
            for page in report.distrusted.chunks(CONFIRM_PAGE) {
                let keys = page.iter().map(|object| key::distrust(report.target, *object));
                confirm(&mut self.engine, keys.collect())?;
            }
        }
        Ok(())
    }

    /// Targets with copies that are not confirmed yet.
    pub(super) fn distrusting(&self) -> Result<BTreeSet<TargetId>> {
        let mut all = BTreeSet::new();
        for target in self.cluster.syncing() {
            if !self.distrusted(target, 1)?.is_empty() {
                all.insert(target);
            }
        }
        Ok(all)
    }

    /// The copies to tell a server. They need not be durable: if a power cut undoes the removal,
    /// the notes cost work and do no harm.
    pub(super) fn distrust_for(
        &self,
        server: ServerId,
        reports: &[TargetReport],
    ) -> Result<Vec<(TargetId, ObjectId)>> {
        let mut named = Vec::new();
        for report in reports.iter().filter(|report| self.cluster.serves(server, report.target)) {
            let objects = self.distrusted(report.target, MAX_NAMED - named.len())?;
            named.extend(objects.into_iter().map(|object| (report.target, object)));
        }
        Ok(named)
    }

    fn distrusted(&self, target: TargetId, limit: usize) -> Result<Vec<ObjectId>> {
        let (start, end) = key::distrust_of(target);
        let found = self.engine.range(&start, &end, limit);
        let found = found.map_err(weir_metastore::TxError::from)?;
        Ok(found.iter().map(|(at, _)| key::distrust_object(at)).collect::<Result<_, _>>()?)
    }
}
