//! Lists the copies that a target should have, a page at a time, for a target that has lost its gap
//! log.

use crate::ops::{Outcome, columns, layouts};
use crate::schema::{self, Body, Inode, key};
use std::ops::Range;
use weir_metastore::Tx;
use weir_types::{
    ColumnIndex, CopyIndex, Error, FileId, ObjectId, Segment, SegmentIndex, TargetId,
};
use weir_wire::peer::CopyPage;

/// Inodes read at a time.
const INODES: usize = 64;

/// Limits of one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    /// The most objects; one segment may exceed it.
    pub objects: usize,
    /// The most records read; it may be exceeded a little.
    pub records: usize,
}

/// The copies on a target of columns with other copies, ascending, of files in a range, after
/// `after`.
///
/// # Errors
/// `Corrupt`, naming the file.
pub(crate) fn list_copies(
    tx: &mut Tx<'_>,
    target: TargetId,
    files: Range<FileId>,
    after: Option<ObjectId>,
    room: Room,
) -> Outcome<CopyPage> {
    let first = after.map_or(files.start, |after| after.file.max(files.start));
    let mut list = List { target, after, room, page: CopyPage { objects: Vec::new(), next: None } };
    let (mut start, end) = (key::inode(first), key::inode(files.end));
    while start < end {
        let inodes = tx.range(&start, &end, INODES)?;
        for (at, bytes) in &inodes {
            let (file, _) = key::owner_and_rest(at).map_err(Error::from)?;
            let inode = schema::decode(bytes, "of an inode")?;
            if list.file(tx, file, &inode)? {
                return Ok(list.page);
            }
        }
        match inodes.last() {
            Some((last, _)) if inodes.len() == INODES => {
                start = weir_metastore::key_after(last).into_vec()
            }
            _ => break,
        }
    }
    Ok(list.page)
}

struct List {
    target: TargetId,
    after: Option<ObjectId>,
    room: Room,
    page: CopyPage,
}

impl List {
    /// Adds a file. Returns whether the page ends there.
    fn file(&mut self, tx: &mut Tx<'_>, file: FileId, inode: &Inode) -> Outcome<bool> {
        self.room.records = self.room.records.saturating_sub(1);
        if let Body::File(body) = &inode.body {
            let from = self.after.filter(|after| after.file == file);
            let from = from.map_or(SegmentIndex(0), |after| after.segment);
            let mut next = columns::page_from(tx, (file, body.list), from)?;
            while let Some(page) = next {
                self.room.records = self.room.records.saturating_sub(1);
                for segment in &page {
                    self.segment(file, segment);
                    if self.is_full() {
                        self.page.next = Some(last_of(file, segment.index));
                        return Ok(true);
                    }
                }
                let (Some(first), Some(last)) = (page.first(), page.last()) else { break };
                let more = layouts::page_at(tx, file, body.list, last.end())?;
                let is_later = more.first().is_some_and(|more| more.start > first.start);
                next = Some(more).filter(|_| is_later);
            }
        }
        if self.is_full() {
            self.page.next = Some(last_of(file, SegmentIndex(u32::MAX)));
        }
        Ok(self.is_full())
    }

    fn is_full(&self) -> bool {
        self.room.records == 0 || self.page.objects.len() >= self.room.objects
    }

    fn segment(&mut self, file: FileId, segment: &Segment) {
        let several = segment.members().filter(|(_, column)| column.copies().count() > 1);
        for (column_index, column) in several {
            let here = column.copies().filter(|(_, target)| *target == self.target);
            for (copy, _) in here {
                let object = ObjectId { file, segment: segment.index, column: column_index, copy };
                if self.after.is_none_or(|after| object > after) {
                    self.page.objects.push(object);
                }
            }
        }
    }
}

/// The greatest id that an object of a segment can have.
fn last_of(file: FileId, segment: SegmentIndex) -> ObjectId {
    ObjectId { file, segment, column: ColumnIndex(u16::MAX), copy: CopyIndex(u8::MAX) }
}
