//! Counts files from before a quota was set, some in each transaction. Files with ids below
//! `counted_to` are counted; each transaction advances that.

use super::{Quotas, record, share};
use crate::fault::Outcome;
use crate::schema::{self, ALL_COUNTED, Inode, QuotaRecord, key};
use std::collections::BTreeMap;
use weir_metastore::Tx;
use weir_types::{Error, FileId};
use weir_wire::quota::QuotaSubject;

/// Files in one transaction.
const PAGE: usize = 512;
/// The most quotas that are advanced in one transaction.
const TOGETHER: usize = 64;

/// Advances the quotas that are furthest behind by one step. Returns their new records; none if all
/// files are counted.
pub(crate) fn count(tx: &mut Tx<'_>, quotas: &Quotas) -> Outcome<Vec<(QuotaSubject, QuotaRecord)>> {
    let Some(&from) = quotas.counting.values().min() else { return Ok(Vec::new()) };
    let behind = quotas.counting.iter().filter(|(_, at)| **at == from).map(|(s, _)| *s);
    let mut group: BTreeMap<QuotaSubject, QuotaRecord> = BTreeMap::new();
    for subject in behind.take(TOGETHER) {
        if let Some(record) = record(tx, subject)? {
            group.insert(subject, record);
        }
    }
    // From where others are on, all go together.
    let others = quotas.counting.values().filter(|at| **at > from).min();
    let (_, end) = key::inodes();
    let end = others.map_or(end, |at| key::inode(*at));
    let page = tx.peek_range(&key::inode(from), &end, PAGE)?;
    for (at, bytes) in &page {
        let file = key::inode_file(at).map_err(Error::from)?;
        let inode: Inode = schema::decode(bytes, "of an inode")?;
        let share = share(tx, quotas, file, &inode)?;
        for subject in &share.subjects {
            if let Some(record) = group.get_mut(subject) {
                record.used_files += 1;
                record.used_bytes += u128::from(share.bytes);
            }
        }
    }
    let counted_to = match page.last() {
        Some((last, _)) if page.len() == PAGE => {
            FileId(key::inode_file(last).map_err(Error::from)?.0 + 1)
        }
        _ => others.copied().unwrap_or(ALL_COUNTED),
    };
    for (subject, record) in &mut group {
        record.counted_to = counted_to;
        tx.put(&key::quota(*subject), &schema::encode(record))?;
    }
    Ok(group.into_iter().collect())
}
