//! Records of names, segments and garbage.

use weir_types::codec::{Bytes, DecodeError, Reader};
use weir_types::{Decode, Encode, FileId, FileKind, Segment};

/// Value of a name, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dentry {
    /// The file.
    pub file: FileId,
    /// Its kind.
    pub kind: FileKind,
    /// Its cookie in listings.
    pub cookie: u64,
}
weir_types::codec_struct!(Dentry { file, kind, cookie });

/// Value of a name, by cookie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListEntry {
    /// The name.
    pub name: Bytes,
    /// The file.
    pub file: FileId,
    /// Its kind.
    pub kind: FileKind,
}
weir_types::codec_struct!(ListEntry { name, file, kind });

/// Consecutive segments of a file; at most [`weir_types::limits::SEGMENT_PAGE`]. All pages but the
/// last of a list are full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentPage {
    /// The segments.
    pub segments: Vec<Segment>,
}
weir_types::codec_struct!(SegmentPage { segments });

/// Which columns of the segments of a page were ever written, as far as writers have reported. Such
/// an object that is missing on its target is lost, and not a hole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WrittenPage {
    /// For each segment of the page, in order (missing ones: none): column `c` is bit `c % 8` of
    /// byte `c / 8`.
    pub columns: Vec<Bytes>,
}
weir_types::codec_struct!(WrittenPage { columns });

impl WrittenPage {
    /// Whether a column of the segment at a position of the page was written.
    pub fn has(&self, position: usize, column: usize) -> bool {
        let byte = self.columns.get(position).and_then(|bits| bits.get(column / 8));
        byte.is_some_and(|byte| byte & (1 << (column % 8)) != 0)
    }

    /// Adds columns below `count` to those of a segment. Returns whether any of them is new.
    pub fn add(&mut self, position: usize, columns: &[u8], count: usize) -> bool {
        let mut new = false;
        for column in 0..count.min(columns.len() * 8) {
            if columns[column / 8] & (1 << (column % 8)) == 0 || self.has(position, column) {
                continue;
            }
            if self.columns.len() <= position {
                self.columns.resize(position + 1, Bytes::default());
            }
            let bits = &mut self.columns[position].0;
            if bits.len() <= column / 8 {
                bits.resize(column / 8 + 1, 0);
            }
            bits[column / 8] |= 1 << (column % 8);
            new = true;
        }
        new
    }

    /// Marks a column of the segment at a position as empty again.
    pub fn remove(&mut self, position: usize, column: usize) {
        let bits = self.columns.get_mut(position).and_then(|bits| bits.0.get_mut(column / 8));
        if let Some(byte) = bits {
            *byte &= !(1 << (column % 8));
        }
    }
}

/// A file without a name that may be open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Orphan {
    /// Directories whose quotas count it: those above its last name. It has no other path to them.
    pub counted_in: Vec<FileId>,
}

/// Nothing is written without quotas, as in older versions.
impl Encode for Orphan {
    fn encode(&self, out: &mut Vec<u8>) {
        if !self.counted_in.is_empty() {
            self.counted_in.encode(out);
        }
    }
}

impl Decode for Orphan {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        if r.remaining() == 0 {
            return Ok(Self::default());
        }
        let counted_in = Vec::decode(r)?;
        if counted_in.is_empty() { Err(DecodeError::BadValue) } else { Ok(Self { counted_in }) }
    }
}

/// A list of segments without a file, which is to become garbage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeadList {
    /// Whether the extended attributes of the file go too.
    pub xattrs: bool,
    /// Number of objects of the list's last page that are garbage already.
    pub objects_done: u32,
}
weir_types::codec_struct!(DeadList { xattrs, objects_done });

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_added_once_and_only_those_that_the_segment_has() {
        let mut page = WrittenPage::default();
        assert!(page.add(2, &[0b101, 0xff], 10));
        let written: Vec<_> = (0..20).filter(|&c| page.has(2, c)).collect();
        assert_eq!(written, [0, 2, 8, 9]);
        assert!(!page.add(2, &[0b101, 0xff], 10), "nothing is new");
        assert!(!page.has(1, 0) && !page.has(3, 0));
        assert!(!page.add(0, &[], 4) && !page.add(0, &[0, 0], 16));
        assert_eq!(page.columns.len(), 3);
    }
}
