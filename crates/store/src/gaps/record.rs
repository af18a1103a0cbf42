//! The bytes of the gap log: sectors of 512 bytes, little endian, each with its own checksum. A
//! disk writes a sector whole or not at all. So a sector that is not all zeros and fails its
//! checksum has rotted, and a torn write cannot be confused with damage.

use crate::superblock::TargetIdentity;
use std::ops::Range;
use weir_types::checksum::crc32c;
use weir_types::{
    ColumnIndex, CopyIndex, Decode, DecodeError, Encode, FileId, ObjectId, Reader, SegmentIndex,
    TargetId,
};

/// Bytes per sector.
pub(crate) const SECTOR: usize = 512;
/// Records per sector.
pub(crate) const SECTOR_RECORDS: usize = (SECTOR - HEAD) / RECORD;
const HEAD: usize = 32;
const RECORD: usize = 40;
const MAGIC: [u8; 4] = *b"WGAP";
const VERSION: u32 = 1;

/// One entry of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// The copy of an object on another target, or on this one, lacks bytes.
    Note { object: ObjectId, behind: TargetId, copy: CopyIndex, bytes: Range<u64> },
    /// The copy has received the bytes.
    Clear { object: ObjectId, behind: TargetId, copy: CopyIndex, bytes: Range<u64> },
    /// The gaps of files with these ids are unknown.
    Lost { files: Range<u64> },
    /// The gaps of all files are known again.
    Found,
    /// The run of the machine in which the following records were written.
    Run { id: u128 },
}

const NOTE: u8 = 1;
const CLEAR: u8 = 2;
const LOST: u8 = 3;
const FOUND: u8 = 4;
const RUN: u8 = 5;

/// The fields that every record has space for.
type Fields = (u8, (ObjectId, (TargetId, (CopyIndex, (u64, u64)))));

const NO_OBJECT: ObjectId = ObjectId {
    file: FileId(0),
    segment: SegmentIndex(0),
    column: ColumnIndex(0),
    copy: CopyIndex(0),
};

impl Record {
    fn to_fields(&self) -> Fields {
        let plain = |kind, (a, b)| (kind, (NO_OBJECT, (TargetId(0), (CopyIndex(0), (a, b)))));
        match self {
            Record::Note { object, behind, copy, bytes } => {
                (NOTE, (*object, (*behind, (*copy, (bytes.start, bytes.end)))))
            }
            Record::Clear { object, behind, copy, bytes } => {
                (CLEAR, (*object, (*behind, (*copy, (bytes.start, bytes.end)))))
            }
            Record::Lost { files } => plain(LOST, (files.start, files.end)),
            Record::Found => plain(FOUND, (0, 0)),
            Record::Run { id } => plain(RUN, (*id as u64, (*id >> 64) as u64)),
        }
    }

    /// Returns `None` for fields that this program never writes.
    fn from_fields(fields: Fields) -> Option<Self> {
        let (kind, (object, (behind, (copy, (a, b))))) = fields;
        let record = match kind {
            NOTE if a < b => Record::Note { object, behind, copy, bytes: a..b },
            CLEAR if a < b => Record::Clear { object, behind, copy, bytes: a..b },
            LOST if a < b => Record::Lost { files: a..b },
            FOUND => Record::Found,
            RUN => Record::Run { id: u128::from(b) << 64 | u128::from(a) },
            _ => return None,
        };
        (record.to_fields() == fields).then_some(record)
    }
}

/// The first sector of a log.
pub(crate) fn head(identity: TargetIdentity) -> [u8; SECTOR] {
    let mut fields = Vec::with_capacity(SECTOR);
    (VERSION, 0u32).encode(&mut fields);
    identity.encode(&mut fields);
    sealed(&fields)
}

/// Sector number `index`, which is not the first, with at most
/// [`SECTOR_RECORDS`] records.
pub(crate) fn sector(index: u32, records: &[Record]) -> [u8; SECTOR] {
    let mut fields = Vec::with_capacity(SECTOR);
    (VERSION, index).encode(&mut fields);
    (records.len() as u32).encode(&mut fields);
    fields.resize(HEAD - 8, 0);
    for record in records {
        let start = fields.len();
        record.to_fields().encode(&mut fields);
        fields.resize(start + RECORD, 0);
    }
    sealed(&fields)
}

fn sealed(fields: &[u8]) -> [u8; SECTOR] {
    let mut bytes = [0; SECTOR];
    bytes[..4].copy_from_slice(&MAGIC);
    bytes[8..8 + fields.len()].copy_from_slice(fields);
    let check = crc32c(&bytes[8..]);
    bytes[4..8].copy_from_slice(&check.to_le_bytes());
    bytes
}

/// The contents of a log.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Contents {
    pub(super) records: Vec<Record>,
    /// Number of sectors up to the last written one.
    pub(super) used: usize,
    /// Whether a sector has rotted, so that records may be missing.
    pub(super) damaged: bool,
    /// The format version of a sector with another version, if there is one.
    pub(super) unknown_version: Option<u32>,
}

/// Decodes the bytes of a log of this target.
pub(super) fn read(bytes: &[u8], identity: TargetIdentity) -> Contents {
    let (sectors, rest) = bytes.as_chunks::<SECTOR>();
    let mut contents = Contents { damaged: !rest.is_empty(), ..Contents::default() };
    if sectors.is_empty() {
        contents.damaged = true;
    }
    for (index, bytes) in sectors.iter().enumerate() {
        if index > 0 && bytes.iter().all(|&b| b == 0) {
            continue;
        }
        contents.used = index + 1;
        match understand(bytes, index, identity) {
            Ok(records) => contents.records.extend(records),
            Err(Some(version)) => contents.unknown_version = Some(version),
            Err(None) => contents.damaged = true,
        }
    }
    contents
}

/// Decodes the records of a sector. The error is an unknown format version, or damage.
pub(crate) fn understand(
    bytes: &[u8; SECTOR],
    index: usize,
    identity: TargetIdentity,
) -> Result<Vec<Record>, Option<u32>> {
    let check = crc32c(&bytes[8..]).to_le_bytes();
    if bytes[..4] != MAGIC || bytes[4..8] != check {
        return Err(None);
    }
    let mut r = Reader::new(&bytes[8..]);
    let version = u32::decode(&mut r).map_err(|_| None)?;
    if version != VERSION {
        return Err(Some(version));
    }
    if index == 0 {
        return if *bytes == head(identity) { Ok(Vec::new()) } else { Err(None) };
    }
    let records = records(&mut r).ok().flatten().ok_or(None)?;
    // The checksum is right, but this program would not write these bytes.
    if sector(index as u32, &records) == *bytes { Ok(records) } else { Err(None) }
}

fn records(r: &mut Reader<'_>) -> Result<Option<Vec<Record>>, DecodeError> {
    let (_index, count) = <(u32, u32)>::decode(r)?;
    r.take(HEAD - 20)?;
    let count = (count as usize).min(SECTOR_RECORDS);
    let one = |r: &mut Reader<'_>| -> Result<Option<Record>, DecodeError> {
        let mut r = Reader::new(r.take(RECORD)?);
        Ok(Record::from_fields(Decode::decode(&mut r)?))
    };
    (0..count).map(|_| one(r)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_types::ServerId;

    const IDENTITY: TargetIdentity =
        TargetIdentity { cluster: [9; 16], target: TargetId(3), server: ServerId(2) };

    fn some() -> Vec<Record> {
        let object = ObjectId {
            file: FileId(0x1122),
            segment: SegmentIndex(3),
            column: ColumnIndex(4),
            copy: CopyIndex(5),
        };
        let (behind, copy, bytes) = (TargetId(7), CopyIndex(1), 6..u64::MAX);
        vec![
            Record::Note { object, behind, copy, bytes: bytes.clone() },
            Record::Clear { object, behind, copy, bytes },
            Record::Lost { files: 0..1 << 16 },
            Record::Found,
            Record::Run { id: 7 << 64 | 8 },
        ]
    }

    fn log(sectors: &[[u8; SECTOR]]) -> Vec<u8> {
        sectors.concat()
    }

    #[test]
    fn the_fields_are_where_the_format_document_says() {
        let bytes = head(IDENTITY);
        assert_eq!(&bytes[..4], b"WGAP");
        assert_eq!(bytes[8..16], [1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[16..32], [9; 16]);
        assert_eq!(bytes[32..40], [3, 0, 0, 0, 2, 0, 0, 0]);
        let bytes = sector(9, &some());
        assert_eq!(
            bytes[8..32],
            [[1, 0, 0, 0, 9, 0, 0, 0], [5, 0, 0, 0, 0, 0, 0, 0], [0; 8]].concat()
        );
        assert_eq!(bytes[32..48], [1, 0x22, 0x11, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 4, 0, 5]);
        assert_eq!(bytes[48..53], [7, 0, 0, 0, 1]);
        assert_eq!(bytes[53..61], [6, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[61..72], [255, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0]);
        assert_eq!((bytes[72], bytes[112], bytes[152], bytes[192]), (2, 3, 4, 5));
        assert_eq!(
            bytes[192 + 21..192 + 37],
            [[8, 0, 0, 0, 0, 0, 0, 0], [7, 0, 0, 0, 0, 0, 0, 0]].concat()
        );
    }

    #[test]
    fn what_was_written_is_read_and_every_flipped_bit_is_noticed() {
        let whole = log(&[head(IDENTITY), sector(1, &some()), [0; SECTOR], sector(3, &some())]);
        let contents = read(&whole, IDENTITY);
        let records = [some(), some()].concat();
        let expected = Contents { records, used: 4, damaged: false, unknown_version: None };
        assert_eq!(contents, expected);
        for bit in 0..whole.len() * 8 {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(read(&bytes, IDENTITY).damaged, "bit {bit}");
        }
    }

    #[test]
    fn another_log_no_log_and_a_later_one_are_told_apart() {
        assert!(read(&[], IDENTITY).damaged);
        assert!(read(&[0; 2 * SECTOR], IDENTITY).damaged);
        let other = TargetIdentity { target: TargetId(4), ..IDENTITY };
        assert!(read(&head(other), IDENTITY).damaged);
        assert!(read(&log(&[head(IDENTITY), sector(2, &some())]), IDENTITY).damaged, "misplaced");
        let mut later = head(IDENTITY);
        later[8] = 2;
        let check = crc32c(&later[8..]);
        later[4..8].copy_from_slice(&check.to_le_bytes());
        let contents = read(&later, IDENTITY);
        assert_eq!((contents.unknown_version, contents.damaged), (Some(2), false));
    }
}
