//! Verifies the checksums on disk, to find rot before it is read: the tree page by page, then the
//! log segment by segment.

use crate::directory::{Home, damage};
use crate::engine::Verified;
use crate::log::segment_name;
use crate::record::{
    NEXT_MARK_OFFSET, RECORDS_START, SYNCED_MARK_OFFSET, SegmentHeader, decode_mark, decode_record,
};
use crate::tree::Tree;
use weir_host::thread::uninterrupted;
use weir_types::{Error, Result};

/// Pages of the tree in one step.
const PAGES_AT_ONCE: u64 = 256;
/// Places from here on are in the log: this value plus the first sequence of a segment.
const LOG: u64 = 1 << 63;
/// Bytes of a mark.
const MARK_BYTES: usize = 16;

/// One step from `place` on. `current`: the segment in use, and its bytes that are written.
pub(crate) fn verify(
    home: &Home,
    tree: &Tree,
    current: (&str, u64),
    place: u64,
) -> Result<Verified> {
    if place >= LOG {
        return verify_log(home, current, place & !LOG);
    }
    let mut damaged = Vec::new();
    // redb waits for the lock that this takes.
    let next = uninterrupted(|| tree.pages().verify(place, PAGES_AT_ONCE, &mut damaged));
    let next = next.map_err(|e| Error::from(e).context("verify the metadata tree"))?;
    let bytes = PAGES_AT_ONCE * 4096;
    Ok(Verified { damage: damaged, bytes, next: Some(next.unwrap_or(LOG)) })
}

fn verify_log(home: &Home, current: (&str, u64), from: u64) -> Result<Verified> {
    let mut segments = home.segments()?;
    segments.sort_by_key(|segment| segment.first);
    let mut rest = segments.into_iter().filter(|segment| segment.first.0 >= from);
    let Some(segment) = rest.next() else {
        return Ok(Verified::default());
    };
    let next = rest.next().map(|segment| segment.first.0 | LOG);
    // redb may just have taken the segment in.
    let Some(mut bytes) = home.read(&segment.name)? else {
        return Ok(Verified { next, ..Verified::default() });
    };
    if segment.name == current.0 {
        bytes.truncate(usize::try_from(current.1).unwrap_or(usize::MAX));
    }
    let mut found = Verified { bytes: bytes.len() as u64, next, ..Verified::default() };
    let mut wrong = |offset: usize, what: &str| {
        let error = damage(home.display(&segment.name), offset as u64, what);
        found.damage.push(error.to_string());
    };
    match SegmentHeader::decode(&bytes) {
        Ok(header) if segment_name(header.first) == segment.name => {}
        _ => wrong(0, "segment header"),
    }
    for offset in [SYNCED_MARK_OFFSET, NEXT_MARK_OFFSET] {
        let blank =
            bytes.get(offset..offset + MARK_BYTES).is_none_or(|mark| mark == [0; MARK_BYTES]);
        if !blank && decode_mark(&bytes, offset).is_none() {
            wrong(offset, "a mark");
        }
    }
    let mut offset = RECORDS_START;
    while offset < bytes.len() {
        match decode_record(&bytes[offset..]) {
            Some((_, len)) => offset += len,
            // The start of the next record is unknown.
            None => {
                wrong(offset, "a record");
                break;
            }
        }
    }
    Ok(found)
}
