//! Copies that may lack what only a target knew that was taken out of the cluster: an
//! administrator has said that it is lost for good. Their servers are told which, and
//! note that they do not serve them; until all have said so the target stays away.
//!
//! What of it other copies have comes from those then. The rest is lost until an
//! administrator accepts, for each file, what is left (`weir accept-loss`).

use super::MetaMachine;
use super::servers::{CONFIRM_PAGE, confirm};
use crate::schema::key;
use std::collections::BTreeSet;
use weir_metastore::Engine;
use weir_types::{ObjectId, Result, ServerId, TargetId};
use weir_wire::peer::TargetReport;

/// The most copies named in one reply.
const MAX_NAMED: usize = 1024;

impl<E: Engine> MetaMachine<E> {
    /// A server has noted what it was told.
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

    /// Targets that do not know yet what they may lack.
    pub(super) fn distrusting(&self) -> Result<BTreeSet<TargetId>> {
        let mut all = BTreeSet::new();
        for target in self.cluster.syncing() {
            if !self.distrusted(target, 1)?.is_empty() {
                all.insert(target);
            }
        }
        Ok(all)
    }

    /// What to tell a server. Not only what is durable: to note it does no harm but
    /// work, should the removal be undone by a power cut.
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
