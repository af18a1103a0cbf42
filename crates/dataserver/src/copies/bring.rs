//! Bringing what was put off to all other copies, before something is promised of all of them.

use super::change::{Change, others};
use super::mend::Mender;
use super::push::{Push, column_of};
use super::repair::Suspect;
use super::roles::Orders;
use crate::disk::Disk;
use crate::service::Shared;
use weir_store::RangeSet;
use weir_types::{ErrorKind, Result, TargetId};

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
        match push.catch_up(&lacking, &mut Vec::new()) {
            Err(error) if error.kind == ErrorKind::Corrupt => {
                mend(&Mender { shared, disk, object }, &lacking)?;
                push.catch_up(&lacking, &mut Vec::new())?;
            }
            brought => brought?,
        }
    }
    Ok(())
}

/// Some of what is to be brought has rotted here since. Another copy may have it: most of what
/// is noted as lacking there has been brought already, since whole parts are noted.
fn mend(mender: &Mender<'_>, lacking: &RangeSet) -> Result<()> {
    let Mender { shared, disk, object } = *mender;
    for range in lacking.iter() {
        let suspect = Suspect::Bytes(range);
        let mended = mender.mend(&suspect);
        shared.copies.repairs.count(shared, disk, object, &suspect, &mended);
        mended?;
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
