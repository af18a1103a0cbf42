//! Background deletion, in bounded transactions.

use crate::ops::{ClusterView, Context, Outcome, deletion, inodes, layouts};
use crate::schema::{self, DeadList, key};
use weir_metastore::Tx;
use weir_types::{FileId, SessionId};

/// Keys handled in one transaction.
const PAGE: usize = 100;

/// Removes a file without a name that is not open any more.
pub fn orphan(tx: &mut Tx<'_>, ctx: &mut Context<'_>, file: FileId) -> Outcome<()> {
    tx.delete(&key::orphan(file))?;
    match inodes::find(tx, file)? {
        Some(inode) if inode.nlink == 0 => deletion::forget(tx, ctx, file, &inode),
        _ => Ok(()),
    }
}

/// Carries out one step of removing a dead list. Returns whether nothing is left of it.
pub fn dead_list(tx: &mut Tx<'_>, cluster: &ClusterView, file: FileId, list: u32) -> Outcome<bool> {
    let at = key::dead(file, list);
    let Some(bytes) = tx.get(&at)? else { return Ok(true) };
    let mut record: DeadList = schema::decode(&bytes, "of a dead list")?;
    if record.xattrs {
        let (start, end) = key::xattrs_of(file);
        let found = delete_some(tx, &start, &end)?;
        record.xattrs = found == PAGE;
        tx.put(&at, &schema::encode(&record))?;
        return Ok(false);
    }
    let Some((page_key, page)) = layouts::last_page(tx, file, list)? else {
        tx.delete(&at)?;
        return Ok(true);
    };
    let mut objects = page
        .iter()
        .flat_map(|segment| deletion::objects_of(file, segment))
        .skip(record.objects_done as usize);
    for (target, object) in objects.by_ref().take(PAGE) {
        deletion::note_garbage(tx, cluster, target, object)?;
    }
    if objects.next().is_some() {
        record.objects_done += PAGE as u32;
    } else {
        record.objects_done = 0;
        tx.delete(&page_key)?;
        tx.delete(&key::written(file, list, page.first().map_or(0, |s| s.start)))?;
    }
    tx.put(&at, &schema::encode(&record))?;
    Ok(false)
}

/// Carries out one step of removing an ended session. Returns whether nothing is left of it.
pub fn session(tx: &mut Tx<'_>, session: SessionId) -> Outcome<bool> {
    let (start, end) = key::slots_of(session);
    if delete_some(tx, &start, &end)? == PAGE {
        return Ok(false);
    }
    tx.delete(&key::session(session))?;
    Ok(true)
}

/// Deletes the first keys of a range. Returns their number.
fn delete_some(tx: &mut Tx<'_>, start: &[u8], end: &[u8]) -> Outcome<usize> {
    let found = tx.range(start, end, PAGE)?;
    for (key, _) in &found {
        tx.delete(key)?;
    }
    Ok(found.len())
}
