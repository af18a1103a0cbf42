//! Records that cross the ends of pieces of a file. Each record belongs to one piece, as in Hadoop,
//! however the pieces are read.

use std::ops::Range;
use weir_types::{Error, ErrorKind, Result};

/// The longest record, bytes.
pub const MAX_RECORD_BYTES: u64 = 64 << 20;

/// Kind of the records, which must not be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// Lines. A piece has the lines that begin after its first byte, up to and including one that
    /// begins directly behind its end. Whether a line begins with the first byte of a piece cannot
    /// be known without the byte before it. The first piece of a file also has the first line.
    Line,
    /// Records of this many bytes each, from the beginning of the file. A piece has the records
    /// that begin in it.
    Bytes(u64),
}

/// The records of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owned {
    /// Number of bytes at its beginning that belong to the piece before.
    pub skip: usize,
    /// Bytes behind its end that belong to it.
    pub more: More,
}

/// The bytes of a piece's records behind its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum More {
    /// Nothing.
    Nothing,
    /// This many bytes.
    Bytes(u64),
    /// All bytes to the end of a line.
    Line,
}

impl Record {
    /// Refuses impossible record sizes, and files with bytes behind the last whole record.
    ///
    /// # Errors
    /// `InvalidArgument`.
    pub fn check(self, file_bytes: u64) -> Result<()> {
        let invalid = |what: String| Err(Error::new(ErrorKind::InvalidArgument, what));
        match self {
            Self::Bytes(each) if !(1..=MAX_RECORD_BYTES).contains(&each) => {
                invalid("records of 1 byte to 64 MiB".to_owned())
            }
            Self::Bytes(each) if !file_bytes.is_multiple_of(each) => invalid(format!(
                "{} bytes are left behind its last record of {each} bytes",
                file_bytes % each
            )),
            _ => Ok(()),
        }
    }

    /// The records of a piece of a file; `None` if no record begins there.
    pub fn owned(self, piece: &Range<u64>, file_bytes: u64, bytes: &[u8]) -> Option<Owned> {
        match self {
            Self::Bytes(each) => {
                let from = piece.start.checked_next_multiple_of(each)?;
                let until = piece.end.checked_next_multiple_of(each)?.min(file_bytes);
                let more = match until.saturating_sub(piece.end) {
                    0 => More::Nothing,
                    bytes => More::Bytes(bytes),
                };
                (from < piece.end).then_some(Owned { skip: (from - piece.start) as usize, more })
            }
            Self::Line => {
                let first = bytes.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
                let skip = if piece.start == 0 { Some(0) } else { first };
                let is_last = piece.end >= file_bytes;
                let more = if is_last { More::Nothing } else { More::Line };
                // Behind the end of the file none begins.
                skip.filter(|skip| !is_last || *skip < bytes.len()).map(|skip| Owned { skip, more })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What all pieces of a file have, one after the other.
    fn pieces(record: Record, file: &[u8], ends: &[usize]) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        let mut start = 0;
        for end in ends.iter().copied().chain([file.len()]) {
            if end <= start {
                continue;
            }
            let (bytes, rest) = (&file[start..end], &file[end..]);
            let owned = record.owned(&(start as u64..end as u64), file.len() as u64, bytes);
            start = end;
            let Some(Owned { skip, more }) = owned else { continue };
            let more = match more {
                More::Nothing => 0,
                More::Bytes(bytes) => bytes as usize,
                More::Line => {
                    let end = rest.iter().position(|byte| *byte == b'\n');
                    end.map_or(rest.len(), |at| at + 1)
                }
            };
            all.push([&bytes[skip..], &rest[..more]].concat());
        }
        all
    }

    proptest! {
        #[test]
        fn every_record_is_whole_in_one_piece(
            file in prop::collection::vec(prop::sample::select(vec![b'a', b'b', b'\n']), 0..80),
            ends in prop::collection::vec(1usize..80, 0..8), each in 1usize..9,
        ) {
            let mut ends: Vec<_> = ends.into_iter().filter(|end| *end < file.len()).collect();
            ends.sort_unstable();
            let lines = pieces(Record::Line, &file, &ends);
            prop_assert_eq!(&lines.concat(), &file);
            let whole = lines.iter().rev().skip(1).all(|piece| piece.last() == Some(&b'\n'));
            prop_assert!(whole, "{:?}", lines);
            let file = &file[..file.len() - file.len() % each];
            let ends: Vec<_> = ends.into_iter().filter(|end| *end < file.len()).collect();
            let records = pieces(Record::Bytes(each as u64), file, &ends);
            prop_assert_eq!(&records.concat(), &file);
            prop_assert!(records.iter().all(|piece| piece.len() % each == 0));
        }
    }

    #[test]
    fn a_size_that_does_not_fit_a_file_is_refused() {
        assert!(Record::Bytes(0).check(0).is_err());
        assert!(Record::Bytes(MAX_RECORD_BYTES + 1).check(0).is_err());
        Record::Bytes(8).check(80).unwrap();
        let error = Record::Bytes(8).check(81).unwrap_err();
        assert!(error.message.contains("1 bytes are left"), "{error}");
        Record::Line.check(81).unwrap();
    }
}
