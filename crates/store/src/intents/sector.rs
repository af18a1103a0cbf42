//! The bytes of the intent log: sectors of 512 bytes, each with its own checksum. A disk writes a
//! sector whole or not at all, so a sector that fails its checksum has rotted. A torn write cannot
//! be confused with damage.

use crate::superblock::TargetIdentity;
use weir_types::checksum::crc32c;
use weir_types::{Decode, Encode, ObjectId, Reader};

/// Bytes per sector.
pub(crate) const SECTOR: usize = 512;
/// Records per sector.
pub(crate) const SECTOR_RECORDS: usize = (SECTOR - HEAD) / RECORD;
const HEAD: usize = 32;
const RECORD: usize = 32;
const MAGIC: [u8; 4] = *b"WINT";
const FORMAT_VERSION: u32 = 1;
const CLEAN: u32 = 1;

/// A mark: something that recovery has to examine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Record {
    /// Granules `first..end` of an object. An `end` of `u64::MAX` means up to the object's end.
    Range { id: ObjectId, first: u64, end: u64 },
    /// Young objects of files whose ids are in this window.
    Window(u64),
}

const RANGE: u8 = 1;
const WINDOW: u8 = 2;

/// The first sector of an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) identity: TargetIdentity,
    /// Whether the target was closed, with everything durable and nothing suspect.
    pub(crate) clean: bool,
    /// Objects born in this era or later are young.
    pub(crate) era: u64,
    /// Number of sectors of records that were written together with this one.
    pub(crate) snapshot_sectors: u32,
}

/// The contents of a sector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    Head(Head),
    Records(Vec<Record>),
}

/// A sector and its position in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sector {
    /// Number of rewrites of the log. It distinguishes the sectors of this filling of an area from
    /// those of the one before.
    pub(crate) sequence: u64,
    /// Number of the sector within its area.
    pub(crate) index: u32,
    pub(crate) body: Body,
}

/// Why 512 bytes are not a sector of the intent log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadSector {
    /// All zeros: never written.
    Empty,
    /// Wrong checksum, or fields that mean nothing.
    Damaged,
    /// Another format version, or unknown flags.
    Unknown(u32),
}

impl Sector {
    /// Encodes the sector, with at most [`SECTOR_RECORDS`] records.
    pub(crate) fn to_disk(&self) -> [u8; SECTOR] {
        let mut fields = Vec::with_capacity(SECTOR);
        (self.sequence, (FORMAT_VERSION, self.index)).encode(&mut fields);
        match &self.body {
            Body::Head(head) => {
                (0u32, u32::from(head.clean)).encode(&mut fields);
                (head.era, head.snapshot_sectors).encode(&mut fields);
                head.identity.encode(&mut fields);
            }
            Body::Records(records) => {
                (records.len() as u32, 0u32).encode(&mut fields);
                for record in records {
                    record.encode(&mut fields);
                }
            }
        }
        let mut bytes = [0; SECTOR];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[8..8 + fields.len()].copy_from_slice(&fields);
        let check = crc32c(&bytes[8..]);
        bytes[4..8].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    pub(crate) fn from_disk(bytes: &[u8; SECTOR]) -> Result<Self, BadSector> {
        if bytes.iter().all(|&b| b == 0) {
            return Err(BadSector::Empty);
        }
        let check = crc32c(&bytes[8..]).to_le_bytes();
        if bytes[..4] != MAGIC || bytes[4..8] != check {
            return Err(BadSector::Damaged);
        }
        let mut r = Reader::new(&bytes[8..]);
        let decoded = decode(&mut r).map_err(|_| BadSector::Damaged)?;
        match decoded {
            Ok(sector) if sector.to_disk() == *bytes => Ok(sector),
            // A valid checksum over bytes that this program would not write.
            Ok(_) => Err(BadSector::Unknown(FORMAT_VERSION)),
            Err(version) => Err(BadSector::Unknown(version)),
        }
    }
}

/// Decodes a sector. The inner error is an unknown format version or unknown flags.
fn decode(r: &mut Reader<'_>) -> Result<Result<Sector, u32>, weir_types::DecodeError> {
    let (sequence, (version, index)) = <(u64, (u32, u32))>::decode(r)?;
    if version != FORMAT_VERSION {
        return Ok(Err(version));
    }
    let (count, flags) = <(u32, u32)>::decode(r)?;
    let body = if index == 0 {
        let (era, snapshot_sectors) = Decode::decode(r)?;
        let identity = TargetIdentity::decode(r)?;
        Body::Head(Head { identity, clean: flags == CLEAN, era, snapshot_sectors })
    } else {
        let count = (count as usize).min(SECTOR_RECORDS);
        Body::Records((0..count).map(|_| Record::decode(r)).collect::<Result<_, _>>()?)
    };
    Ok(Ok(Sector { sequence, index, body }))
}

impl Encode for Record {
    fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        match self {
            Record::Range { id, first, end } => (RANGE, (*id, (*first, *end))).encode(out),
            Record::Window(window) => (WINDOW, *window).encode(out),
        }
        out.resize(start + RECORD, 0);
    }
}

impl Decode for Record {
    fn decode(r: &mut Reader<'_>) -> Result<Self, weir_types::DecodeError> {
        let mut r = Reader::new(r.take(RECORD)?);
        match u8::decode(&mut r)? {
            RANGE => {
                let (id, (first, end)) = Decode::decode(&mut r)?;
                Ok(Record::Range { id, first, end })
            }
            WINDOW => Ok(Record::Window(u64::decode(&mut r)?)),
            _ => Err(weir_types::DecodeError::BadValue),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_types::{ColumnIndex, CopyIndex, FileId, SegmentIndex, ServerId, TargetId};

    const IDENTITY: TargetIdentity =
        TargetIdentity { cluster: [9; 16], target: TargetId(3), server: ServerId(2) };

    fn head() -> Sector {
        let head = Head { identity: IDENTITY, clean: true, era: 5, snapshot_sectors: 2 };
        Sector { sequence: 7, index: 0, body: Body::Head(head) }
    }

    fn records() -> Sector {
        let id = ObjectId {
            file: FileId(0x1122),
            segment: SegmentIndex(3),
            column: ColumnIndex(4),
            copy: CopyIndex(5),
        };
        let range = Record::Range { id, first: 6, end: u64::MAX };
        let mut all = vec![Record::Window(1 << 40); SECTOR_RECORDS];
        all[0] = range;
        Sector { sequence: 7, index: 9, body: Body::Records(all) }
    }

    #[test]
    fn the_fields_are_where_the_format_document_says() {
        let bytes = head().to_disk();
        assert_eq!(&bytes[..4], b"WINT");
        assert_eq!(bytes[8..16], 7u64.to_le_bytes());
        assert_eq!(bytes[16..32], [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(bytes[32..40], 5u64.to_le_bytes());
        assert_eq!(bytes[40..44], [2, 0, 0, 0]);
        assert_eq!(bytes[44..60], [9; 16]);
        assert_eq!(bytes[60..68], [3, 0, 0, 0, 2, 0, 0, 0]);
        let bytes = records().to_disk();
        assert_eq!(bytes[16..32], [1, 0, 0, 0, 9, 0, 0, 0, 15, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[32..48], [1, 0x22, 0x11, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 4, 0, 5]);
        assert_eq!(bytes[48..64], [6, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255]);
        assert_eq!(bytes[64..73], [2, 0, 0, 0, 0, 0, 1, 0, 0]);
    }

    #[test]
    fn sectors_come_back_and_every_flipped_bit_is_noticed() {
        for sector in [head(), records()] {
            let bytes = sector.to_disk();
            assert_eq!(Sector::from_disk(&bytes), Ok(sector));
            for bit in 0..SECTOR * 8 {
                let mut bytes = bytes;
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(Sector::from_disk(&bytes), Err(BadSector::Damaged), "bit {bit}");
            }
        }
        assert_eq!(Sector::from_disk(&[0; SECTOR]), Err(BadSector::Empty));
    }

    #[test]
    fn what_a_later_program_wrote_is_told_apart_from_damage() {
        for (at, value) in [(16, 2), (28, 3), (500, 1)] {
            let mut bytes = head().to_disk();
            bytes[at] = value;
            let check = crc32c(&bytes[8..]);
            bytes[4..8].copy_from_slice(&check.to_le_bytes());
            assert!(matches!(Sector::from_disk(&bytes), Err(BadSector::Unknown(_))), "byte {at}");
        }
    }
}
