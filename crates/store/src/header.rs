//! The header of an object file: 512 bytes at the start of the file, little endian. It identifies
//! the object without any namespace.

use crate::geometry::HEADER_BYTES;
use weir_types::checksum::crc32c;
use weir_types::{Encode, Generation, ObjectId, Reader};

/// The first bytes of every object file.
const MAGIC: [u8; 8] = *b"WEIROBJ\0";
/// The format that this program writes.
const FORMAT_VERSION: u32 = 2;
/// The oldest format that this program reads. It has no era, so its objects count as old.
const OLDEST_VERSION: u32 = 1;
/// Position of the checksum of all bytes before it.
const CHECK_AT: usize = HEADER_BYTES - 4;

/// The fields of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) id: ObjectId,
    /// Generation of the last truncation. Writes of an older generation are refused.
    pub(crate) generation: Generation,
    /// The era of the target in which the object was first written to.
    pub(crate) born: u64,
    /// Whether a crash may have left checksums behind the object's end. This holds for objects of
    /// the format without an intent log.
    pub(crate) untidy: bool,
}

/// Why 512 bytes are not a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadHeader {
    /// Wrong magic or checksum, or fields that mean nothing.
    Damaged,
    /// A valid header of an unknown format version.
    Version(u32),
    /// A valid header with unknown flags or fields.
    Features,
    /// All zeros: the header was never written.
    Empty,
}

impl Header {
    /// Encodes the header: magic, format version, flags (0), file, segment, column, copy, a zero,
    /// generation, era of birth; zeros; CRC-32C of all bytes before it.
    pub(crate) fn to_disk(self) -> [u8; HEADER_BYTES] {
        let mut fields = Vec::with_capacity(HEADER_BYTES);
        (MAGIC, (FORMAT_VERSION, 0u32)).encode(&mut fields);
        (self.id, (0u8, (self.generation, self.born))).encode(&mut fields);
        let mut bytes = [0; HEADER_BYTES];
        bytes[..fields.len()].copy_from_slice(&fields);
        let check = crc32c(&bytes[..CHECK_AT]);
        bytes[CHECK_AT..].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    /// Reads and verifies the bytes on disk.
    pub(crate) fn from_disk(bytes: &[u8; HEADER_BYTES]) -> Result<Self, BadHeader> {
        if bytes.iter().all(|&b| b == 0) {
            return Err(BadHeader::Empty);
        }
        let (body, check) = bytes.split_at(CHECK_AT);
        if crc32c(body).to_le_bytes() != *check {
            return Err(BadHeader::Damaged);
        }
        let mut r = Reader::new(body);
        let mut parse = || -> Result<_, weir_types::DecodeError> {
            use weir_types::Decode;
            let magic: [u8; 8] = r.array()?;
            let (version, flags) = <(u32, u32)>::decode(&mut r)?;
            let (id, (zero, (generation, born))) =
                <(ObjectId, (u8, (Generation, u64)))>::decode(&mut r)?;
            let rest = r.take(r.remaining())?.iter().all(|&b| b == 0);
            let untidy = version == OLDEST_VERSION;
            let known = flags == 0 && zero == 0 && rest && !(untidy && born != 0);
            Ok((magic, version, known, Header { id, generation, born, untidy }))
        };
        match parse() {
            Ok((MAGIC, OLDEST_VERSION..=FORMAT_VERSION, true, header)) => Ok(header),
            Ok((MAGIC, OLDEST_VERSION..=FORMAT_VERSION, false, _)) => Err(BadHeader::Features),
            Ok((MAGIC, version, ..)) => Err(BadHeader::Version(version)),
            _ => Err(BadHeader::Damaged),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_types::{ColumnIndex, CopyIndex, FileId, SegmentIndex};

    fn header() -> Header {
        let id = ObjectId {
            file: FileId(0x1122_3344_5566_7788),
            segment: SegmentIndex(0xa1a2_a3a4),
            column: ColumnIndex(0xb1b2),
            copy: CopyIndex(0xc1),
        };
        Header { id, generation: Generation(7), born: 11, untidy: false }
    }

    #[test]
    fn the_fields_are_where_the_format_document_says() {
        let bytes = header().to_disk();
        assert_eq!(&bytes[..8], b"WEIROBJ\0");
        assert_eq!(bytes[8..16], [2, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[16..24], 0x1122_3344_5566_7788u64.to_le_bytes());
        assert_eq!(bytes[24..28], 0xa1a2_a3a4u32.to_le_bytes());
        assert_eq!(bytes[28..30], 0xb1b2u16.to_le_bytes());
        assert_eq!(bytes[30..32], [0xc1, 0]);
        assert_eq!(bytes[32..40], 7u64.to_le_bytes());
        assert_eq!(bytes[40..48], 11u64.to_le_bytes());
        assert!(bytes[48..508].iter().all(|&b| b == 0));
        assert_eq!(Header::from_disk(&bytes), Ok(header()));
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        for bit in 0..HEADER_BYTES * 8 {
            let mut bytes = header().to_disk();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Header::from_disk(&bytes), Err(BadHeader::Damaged), "bit {bit}");
        }
    }

    fn changed(changes: &[(usize, u8)]) -> [u8; HEADER_BYTES] {
        let mut bytes = header().to_disk();
        for &(at, value) in changes {
            bytes[at] = value;
        }
        let check = crc32c(&bytes[..CHECK_AT]);
        bytes[CHECK_AT..].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    #[test]
    fn a_later_format_is_told_apart_from_damage() {
        assert_eq!(Header::from_disk(&changed(&[(8, 3)])), Err(BadHeader::Version(3)));
        for at in [12, 31, 48, 507] {
            let bytes = changed(&[(at, 1)]);
            assert_eq!(Header::from_disk(&bytes), Err(BadHeader::Features), "byte {at}");
        }
        assert_eq!(Header::from_disk(&[0; HEADER_BYTES]), Err(BadHeader::Empty));
    }

    #[test]
    fn a_header_of_the_first_format_is_of_an_old_object() {
        let old = Header { born: 0, untidy: true, ..header() };
        assert_eq!(Header::from_disk(&changed(&[(8, 1), (40, 0)])), Ok(old));
        assert_eq!(Header::from_disk(&changed(&[(8, 1)])), Err(BadHeader::Features));
    }
}
