//! Directory listings in the kernel's format.

use zerocopy::{FromBytes, IntoBytes};

use crate::protocol::abi;
use crate::protocol::args::{DirEntry, NodeId};
use crate::protocol::encode;
use weir_types::FileId;

/// Receives the entries of a directory until the reply is full.
#[derive(Debug)]
pub struct DirSink<'a> {
    out: &'a mut [u8],
    used: usize,
    plus: bool,
}

impl<'a> DirSink<'a> {
    pub(crate) fn new(out: &'a mut [u8], plus: bool) -> Self {
        Self { out, used: 0, plus }
    }

    /// Whether entries should include the attributes of their files, which saves the kernel a
    /// lookup of each. An entry may come without.
    pub fn wants_entries(&self) -> bool {
        self.plus
    }

    /// Adds an entry. Returns `false` if it does not fit: stop, and the kernel asks again from the
    /// `next_offset` of the last entry.
    #[must_use]
    pub fn push(&mut self, entry: &DirEntry<'_>) -> bool {
        let head = if self.plus { size_of::<abi::EntryOut>() } else { 0 };
        let length = head + size_of::<abi::Dirent>() + entry.name.len();
        let padded = length.next_multiple_of(size_of::<u64>());
        let Some(space) = self.out[self.used..].get_mut(..padded) else { return false };
        let (entry_out, rest) = space.split_at_mut(head);
        if self.plus {
            // The dots must not count as lookups.
            let known = entry.entry.filter(|_| entry.name != b"." && entry.name != b"..");
            let raw = known.map(encode::entry).unwrap_or_default();
            entry_out.copy_from_slice(raw.as_bytes());
        }
        let (dirent, name) = rest.split_at_mut(size_of::<abi::Dirent>());
        let raw = abi::Dirent {
            ino: visible(entry.node),
            off: entry.next_offset,
            namelen: entry.name.len() as u32,
            kind: entry.kind.dirent_type(),
        };
        dirent.copy_from_slice(raw.as_bytes());
        let (name, padding) = name.split_at_mut(entry.name.len());
        name.copy_from_slice(entry.name);
        padding.fill(0);
        self.used += padded;
        true
    }

    /// Bytes so far.
    pub(crate) fn used(&self) -> usize {
        self.used
    }
}

/// An entry of a listing with attributes.
pub(crate) struct Given {
    pub(crate) node: NodeId,
    /// The file, if its attributes have a lifetime.
    pub(crate) lasting: Option<FileId>,
    pub(crate) name_lasts: bool,
}

/// What the kernel is told by a listing with attributes.
pub(crate) fn given(mut listing: &[u8]) -> impl Iterator<Item = Given> {
    std::iter::from_fn(move || {
        let (entry, rest) = abi::EntryOut::read_from_prefix(listing).ok()?;
        let (dirent, _) = abi::Dirent::read_from_prefix(rest).ok()?;
        let length = size_of::<abi::EntryOut>() + size_of::<abi::Dirent>();
        let length = (length + dirent.namelen as usize).next_multiple_of(size_of::<u64>());
        listing = listing.get(length..)?;
        let lasts = entry.attr_valid > 0 || entry.attr_valid_nsec > 0;
        Some(Given {
            node: entry.nodeid,
            lasting: lasts.then_some(FileId(entry.attr.ino)),
            name_lasts: entry.entry_valid > 0 || entry.entry_valid_nsec > 0,
        })
    })
    .filter(|given| given.node != 0)
}

/// Replaces inode number 0, whose entries programs skip.
fn visible(node: NodeId) -> u64 {
    if node == 0 { u64::MAX } else { node }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_types::FileKind;

    fn entry<'a>(name: &'a [u8], next_offset: u64) -> DirEntry<'a> {
        DirEntry { node: 9, kind: FileKind::File, name, next_offset, entry: None }
    }

    #[test]
    fn entries_are_padded_and_refused_when_full() {
        let mut buffer = [0xff; 70];
        let mut sink = DirSink::new(&mut buffer, false);
        assert!(sink.push(&entry(b"abc", 1)));
        assert!(sink.push(&entry(b"12345678", 2)));
        assert!(!sink.push(&entry(b"x", 3)));
        assert_eq!(sink.used(), 64);
        assert_eq!(&buffer[24..32], b"abc\0\0\0\0\0");
        assert_eq!(buffer[20], 8); // DT_REG
        assert_eq!(&buffer[56..64], b"12345678");
    }

    #[test]
    fn an_entry_without_attributes_is_no_lookup() {
        let mut buffer = [0xff; 200];
        let mut sink = DirSink::new(&mut buffer, true);
        assert!(sink.push(&entry(b"a", 1)));
        assert_eq!(sink.used(), 160);
        assert_eq!(&buffer[..8], &[0; 8]);
    }
}
