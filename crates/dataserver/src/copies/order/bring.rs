//! Brings postponed changes to all other copies, before anything is promised of all copies.

use crate::copies::mend::Mender;
use crate::copies::push::{Push, column_of};
use crate::disk::Disk;
use crate::machine::change::{Change, others};
use crate::standing::roles::Orders;
use crate::state::Shared;
use crate::state::suspects::Suspect;
use weir_store::RangeSet;
use weir_types::{ErrorKind, Result, TargetId};

/// Brings postponed changes to all copies, before anything is promised to be durable.
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

/// Repairs bytes that have rotted here and are to be brought to another copy. That copy may have
/// most of them already, since gaps are noted in whole parts.
fn mend(mender: &Mender<'_>, lacking: &RangeSet) -> Result<()> {
    for range in lacking.iter() {
        let suspect = Suspect::Bytes(range);
        let mended = mender.mend(&suspect);
        mender.count(&suspect, &mended);
        mended?;
    }
    Ok(())
}

/// The other copies that are not done without and lack bytes of an object, each with its position
/// and the bytes.
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
