//! Bringing what was put off to all other copies, before something is promised of all of them.

use super::change::{Change, others};
use super::push::{Push, column_of};
use super::roles::Orders;
use crate::disk::Disk;
use crate::service::Shared;
use weir_store::RangeSet;
use weir_types::{Result, TargetId};

/// Before anything is promised to be durable, all copies get what was put off.
pub(super) fn bring_all(
    shared: &Shared,
    disk: &Disk,
    change: &Change,
    orders: &Orders,
) -> Result<()> {
    for (to, lacking) in to_bring(disk, change, orders) {
        let (object, column) = (change.access.object, &column_of(&change.access));
        let pace = &|_| Ok(());
        let push = Push { shared, disk, object, column, to, pace };
        push.catch_up(&lacking, &mut Vec::new())?;
    }
    Ok(())
}

/// The other copies that are not done without and lack something of an object yet, by their
/// positions, and what.
pub(super) fn to_bring<'a>(
    disk: &'a Disk,
    change: &'a Change,
    orders: &Orders,
) -> impl Iterator<Item = (usize, RangeSet)> + use<'a> {
    let access = &change.access;
    let away: Vec<TargetId> = orders.lacking.iter().chain(&orders.dispensable).copied().collect();
    let others: Vec<_> = others(&access.copies, disk.served.id, &away).collect();
    let lacks = |(to, target)| Some((to, disk.store.gaps().of(access.object, target)?));
    others.into_iter().filter_map(lacks)
}
