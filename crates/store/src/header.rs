//! The header of an object file: 512 bytes at the start of the file, little
//! endian, so that an object can be identified without any namespace.

use crate::geometry::HEADER_BYTES;
use weir_types::checksum::crc32c;
use weir_types::{Encode, Generation, ObjectId, Reader};

/// The first bytes of every object file.
const MAGIC: [u8; 8] = *b"WEIROBJ\0";
/// The format that this program writes, and the only one that it reads.
const FORMAT_VERSION: u32 = 1;
/// Where the checksum of the bytes before it is.
const CHECK_AT: usize = HEADER_BYTES - 4;

/// What an object says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) id: ObjectId,
    /// The last truncation; writes issued before it are refused.
    pub(crate) generation: Generation,
}

/// Why 512 bytes are not a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadHeader {
    /// Wrong magic or checksum, or fields that mean nothing.
    Damaged,
    /// A valid header of another format version.
    Version(u32),
}

impl Header {
    /// The bytes on disk: magic, format version, flags (0), file, segment,
    /// column, copy, a zero, generation; zeros; CRC-32C of all before it.
    pub(crate) fn to_disk(self) -> [u8; HEADER_BYTES] {
        let mut fields = Vec::with_capacity(HEADER_BYTES);
        (MAGIC, (FORMAT_VERSION, 0u32)).encode(&mut fields);
        (self.id, (0u8, self.generation)).encode(&mut fields);
        let mut bytes = [0; HEADER_BYTES];
        bytes[..fields.len()].copy_from_slice(&fields);
        let check = crc32c(&bytes[..CHECK_AT]);
        bytes[CHECK_AT..].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    /// Reads and verifies the bytes on disk.
    pub(crate) fn from_disk(bytes: &[u8; HEADER_BYTES]) -> Result<Self, BadHeader> {
        let (body, check) = bytes.split_at(CHECK_AT);
        if crc32c(body).to_le_bytes() != *check {
            return Err(BadHeader::Damaged);
        }
        let mut r = Reader::new(body);
        let mut parse = || -> Result<_, weir_types::DecodeError> {
            use weir_types::Decode;
            let magic: [u8; 8] = r.array()?;
            let (version, _flags) = <(u32, u32)>::decode(&mut r)?;
            let (id, (_zero, generation)) = <(ObjectId, (u8, Generation))>::decode(&mut r)?;
            Ok((magic, version, Header { id, generation }))
        };
        match parse() {
            Ok((MAGIC, FORMAT_VERSION, header)) => Ok(header),
            Ok((MAGIC, version, _)) => Err(BadHeader::Version(version)),
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
        Header { id, generation: Generation(7) }
    }

    #[test]
    fn the_fields_are_where_the_format_document_says() {
        let bytes = header().to_disk();
        assert_eq!(&bytes[..8], b"WEIROBJ\0");
        assert_eq!(bytes[8..16], [1, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[16..24], 0x1122_3344_5566_7788u64.to_le_bytes());
        assert_eq!(bytes[24..28], 0xa1a2_a3a4u32.to_le_bytes());
        assert_eq!(bytes[28..30], 0xb1b2u16.to_le_bytes());
        assert_eq!(bytes[30..32], [0xc1, 0]);
        assert_eq!(bytes[32..40], 7u64.to_le_bytes());
        assert!(bytes[40..508].iter().all(|&b| b == 0));
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

    #[test]
    fn a_later_format_is_told_apart_from_damage() {
        let mut bytes = header().to_disk();
        bytes[8] = 2;
        let check = crc32c(&bytes[..CHECK_AT]);
        bytes[CHECK_AT..].copy_from_slice(&check.to_le_bytes());
        assert_eq!(Header::from_disk(&bytes), Err(BadHeader::Version(2)));
    }
}
