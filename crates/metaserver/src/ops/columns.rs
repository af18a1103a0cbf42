//! Finds the column of an object. Pages of segments are stored by their bytes in the file, and
//! objects name a segment by its index; both ascend along a list.

use crate::ops::{Outcome, inodes, layouts};
use crate::schema::{Body, Inode};
use weir_metastore::Tx;
use weir_types::limits::MAX_FILE_BYTES;
use weir_types::{FileId, ObjectId, Segment, SegmentIndex};

/// The most pages that are read to find a segment. Each halves the range that is left.
const MAX_PROBES: usize = 64;
const _: () = assert!(MAX_FILE_BYTES.ilog2() < MAX_PROBES as u32);

/// Location of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    /// Inode of its file.
    pub inode: Inode,
    /// Page with its segment.
    pub page: Vec<Segment>,
    /// Position of the segment in the page.
    pub at: usize,
}

impl Placed {
    /// The segment.
    pub(crate) fn segment(&self) -> &Segment {
        &self.page[self.at]
    }
}

/// The location of an object's column, whichever copy it is; `None` if no file has it any more. A
/// file without a name still has its columns while it is open.
pub(crate) fn find(tx: &mut Tx<'_>, object: ObjectId) -> Outcome<Option<Placed>> {
    let Some(inode) = inodes::find(tx, object.file)? else { return Ok(None) };
    let Body::File(body) = &inode.body else { return Ok(None) };
    let found = segment(tx, (object.file, body.list), object.segment)?;
    let has_column =
        |(page, at): &(Vec<Segment>, usize)| page[*at].member(object.column.0.into()).is_some();
    Ok(found.filter(has_column).map(|(page, at)| Placed { inode, page, at }))
}

/// The first page of a list that has a segment with this index or a later one.
pub(crate) fn page_from(
    tx: &mut Tx<'_>,
    (file, list): (FileId, u32),
    index: SegmentIndex,
) -> Outcome<Option<Vec<Segment>>> {
    let first = layouts::first_page(tx, file, list)?;
    if first.last().is_some_and(|last| last.index >= index) {
        return Ok(Some(first));
    }
    // Bytes of the file in which it begins, and the best one up to now.
    let (mut low, mut high) = (first.last().map_or(MAX_FILE_BYTES, Segment::end), MAX_FILE_BYTES);
    let mut found = None;
    for _ in 0..MAX_PROBES {
        if low >= high {
            break;
        }
        let probe = low + (high - low) / 2;
        let page = layouts::page_at(tx, file, list, probe)?;
        let Some((page_first, page_last)) = page.first().zip(page.last()) else { break };
        if page_last.index < index {
            low = page_last.end().max(probe + 1);
        } else {
            high = page_first.start;
            found = Some(page);
        }
    }
    Ok(found)
}

/// The page with a segment of a list, and its position there.
fn segment(
    tx: &mut Tx<'_>,
    (file, list): (FileId, u32),
    index: SegmentIndex,
) -> Outcome<Option<(Vec<Segment>, usize)>> {
    let first = layouts::first_page(tx, file, list)?;
    let Some(segment) = first.first() else { return Ok(None) };
    // Right at once where segments are of equal size.
    let ahead = u64::from(index.0.saturating_sub(segment.index.0));
    let mut probe = ahead.saturating_mul(segment.len.unwrap_or(0)).min(MAX_FILE_BYTES - 1);
    // Bytes of the file in which it can be.
    let (mut low, mut high) = (0, MAX_FILE_BYTES);
    for _ in 0..MAX_PROBES {
        let page = layouts::page_at(tx, file, list, probe)?;
        let Some((page_first, page_last)) = page.first().zip(page.last()) else { break };
        if let Some(at) = page.iter().position(|s| s.index == index) {
            return Ok(Some((page, at)));
        }
        match index < page_first.index {
            true => high = page_first.start,
            false => low = page_last.end(),
        }
        if low >= high {
            break;
        }
        probe = low + (high - low) / 2;
    }
    Ok(None)
}
