//! Objects that belong to no file any more: data servers are told to remove them, until they have
//! confirmed that.

use crate::machine::moment::Moment;
use crate::machine::state::MetaMachine;
use crate::schema::key;
use weir_metastore::{Engine, Tx, key_after, transact};
use weir_types::{Error, ObjectId, Result, ServerId, TargetId};
use weir_wire::peer::TargetReport;

/// The most objects for removal in one reply.
pub(super) const MAX_REMOVALS: usize = 1024;
/// Confirmed removals handled in one transaction.
pub(super) const CONFIRM_PAGE: usize = 100;

impl<E: Engine> MetaMachine<E> {
    /// Objects for the server to remove, a fair share for each target.
    pub(super) fn removals(
        &mut self,
        server: ServerId,
        reports: &[TargetReport],
        now: Moment,
    ) -> Result<Vec<(TargetId, ObjectId)>> {
        let mut remove = Vec::new();
        for (done, report) in reports.iter().enumerate() {
            if report.given_up || !self.cluster.serves(server, report.target) {
                continue;
            }
            let share = (MAX_REMOVALS - remove.len()) / (reports.len() - done);
            let objects = self.garbage(report.target, share, now)?;
            remove.extend(objects.into_iter().map(|object| (report.target, object)));
        }
        Ok(remove)
    }

    /// The next garbage of a target. Only durable garbage: after a power cut a file may have its
    /// name again, and need its objects.
    fn garbage(&mut self, target: TargetId, limit: usize, now: Moment) -> Result<Vec<ObjectId>> {
        let (start, end) = key::garbage_of(target);
        let synced = self.engine.synced();
        let from = self.background.garbage_from.remove(&target).unwrap_or(start);
        let found = self.engine.range(&from, &end, limit).map_err(weir_metastore::TxError::from)?;
        let mut objects = Vec::with_capacity(found.len());
        for (key, value) in &found {
            let object = key::garbage_object(key)?;
            if value.version <= synced && self.mover.dropped.is_due(object, now.monotonic_ms) {
                objects.push(object);
            }
        }
        // Round and round, so that an object that cannot be removed does not
        // keep others waiting.
        if let Some((last, _)) = found.last().filter(|_| found.len() == limit) {
            self.background.garbage_from.insert(target, key_after(last).into_vec());
        }
        Ok(objects)
    }
}

/// Removes the records of completed removals. Returns how many of them were known.
pub(super) fn confirm(engine: &mut dyn Engine, keys: Vec<Vec<u8>>) -> Result<u64> {
    let (count, _) = transact(engine, |tx: &mut Tx<'_>| {
        let mut count = 0;
        for key in &keys {
            if tx.get(key)?.is_some() {
                tx.delete(key)?;
                count += 1;
            }
        }
        Ok::<u64, Error>(count)
    })?;
    Ok(count)
}
