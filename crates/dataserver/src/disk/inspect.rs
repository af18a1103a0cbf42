//! Administrators' requests to a target's store, as protocol messages.

use weir_store::{Damage as StoreDamage, ELSEWHERE, Gap, RangeSet};
use weir_store::{ScrubCursor as StoreCursor, Target};
use weir_types::limits::{
    MAX_BODY_BYTES, MAX_LACKING_OBJECTS, MAX_LACKING_RANGES, MAX_OBJECT_PAGE, MAX_SCRUB_BYTES,
};
use weir_types::{ObjectId, Result};
use weir_wire::data::{
    Damage, Lacking, LackingPage, Mended, ObjectEntry, ObjectPage, ScrubCursor, ScrubFinding,
    ScrubPage,
};

/// The most bytes of a failure's reason in the reply to a scrub.
pub(crate) const MAX_REASON: usize = 160;

const _: () = {
    // A full page of each fits a body: 23 bytes for an object, and less than
    // 300 for a finding and why it was not repaired, of which there is at most one for each 4 KiB that is
    // verified (and one run more than was asked for).
    assert!(MAX_OBJECT_PAGE * 23 < MAX_BODY_BYTES / 2);
    assert!(MAX_LACKING_OBJECTS * (32 + MAX_LACKING_RANGES * 16) < MAX_BODY_BYTES / 2);
    assert!((MAX_SCRUB_BYTES as usize + (4 << 20)) / 4096 * (300 + MAX_REASON) < MAX_BODY_BYTES);
    assert!(weir_store::HASH_DIRECTORIES <= 1 << 16);
};

/// A page of the objects.
pub(crate) fn list(store: &Target, after: Option<ObjectId>, max: usize) -> Result<ObjectPage> {
    let listing = store.list(after, max)?;
    let entry = |(object, len)| ObjectEntry { object, len };
    let objects = listing.objects.into_iter().map(entry).collect();
    Ok(ObjectPage { objects, strays: listing.strays, next: listing.next })
}

/// Bytes that copies do not serve because another has other bytes.
pub(crate) fn lacking(store: &Target, from: ObjectId, max: usize) -> LackingPage {
    let mut page = LackingPage { objects: Vec::new(), next: None };
    let mut gap = match store.gaps().of(from, ELSEWHERE) {
        Some(bytes) => Some(Gap { object: from, copy: from.copy, bytes }),
        None => store.gaps().next(ELSEWHERE, Some(from)),
    };
    while let Some(Gap { object, bytes, .. }) = gap {
        if page.objects.len() == max {
            page.next = Some(object);
            break;
        }
        page.objects.push(Lacking { object, ranges: ranges(&bytes) });
        gap = store.gaps().next(ELSEWHERE, Some(object));
    }
    page
}

/// The ranges for a reply. The last one covers all that would be too many.
fn ranges(bytes: &RangeSet) -> Vec<(u64, u64)> {
    let mut all: Vec<(u64, u64)> = bytes.iter().map(|range| (range.start, range.end)).collect();
    if let (true, Some(last)) = (all.len() > MAX_LACKING_RANGES, all.last().copied()) {
        all.truncate(MAX_LACKING_RANGES);
        all[MAX_LACKING_RANGES - 1].1 = last.1;
    }
    all
}

/// Verifies some of the objects.
pub(crate) fn scrub(
    store: &Target,
    cursor: Option<ScrubCursor>,
    budget_bytes: u32,
) -> Result<ScrubPage> {
    let from = cursor.map_or_else(StoreCursor::default, |cursor| StoreCursor {
        hash: usize::from(cursor.hash),
        done: cursor.done,
        offset: cursor.offset,
    });
    let step = store.scrub(&from, u64::from(budget_bytes))?;
    let findings = step.findings.into_iter().map(|found| ScrubFinding {
        object: found.object,
        path: found.path,
        offset: found.offset,
        len: found.len,
        damage: damage(found.damage),
        what: found.what,
        mended: Mended::No,
    });
    let next = step.next.map(|next| ScrubCursor {
        hash: next.hash as u16,
        done: next.done,
        offset: next.offset,
    });
    Ok(ScrubPage { findings: findings.collect(), objects: step.objects, bytes: step.bytes, next })
}

fn damage(damage: StoreDamage) -> Damage {
    match damage {
        StoreDamage::Block => Damage::Block,
        StoreDamage::Header => Damage::Header,
        StoreDamage::BehindEnd => Damage::BehindEnd,
        StoreDamage::Unreadable => Damage::Unreadable,
        StoreDamage::Stranger => Damage::Stranger,
        StoreDamage::Superblock => Damage::Superblock,
        StoreDamage::IntentLog => Damage::IntentLog,
    }
}
