//! The bytes of the operation log: segment headers and records. Drawn in
//! `docs/format-metastore.md`; change both together.

use crate::engine::{Key, MAX_OPERATIONS, MAX_REQUEST_BYTES, Sequence, Value, Write, is_key};
use weir_types::Reader;
use weir_types::checksum::crc32c;

/// The version of the log that this program writes, and the only one it reads.
pub(crate) const LOG_VERSION: u32 = 2;
/// Bytes of a segment header.
pub(crate) const SEGMENT_HEADER_BYTES: usize = 40;
/// Offset of the mark that says up to which commit the log is durable.
pub(crate) const SYNCED_MARK_OFFSET: usize = SEGMENT_HEADER_BYTES;
/// Offset of the mark that names the next segment of the log.
pub(crate) const NEXT_MARK_OFFSET: usize = SYNCED_MARK_OFFSET + MARK_BYTES;
/// Offset of the first record in a segment.
pub(crate) const RECORDS_START: usize = NEXT_MARK_OFFSET + MARK_BYTES;
/// Records begin at multiples of this.
pub(crate) const ALIGNMENT: usize = 8;

const SEGMENT_MAGIC: [u8; 8] = *b"WEIRMLOG";
const MARK_BYTES: usize = 16;
const RECORD_MAGIC: [u8; 4] = *b"WMR2";
const RECORD_HEADER_BYTES: usize = 40;
const WRITE_HEADER_BYTES: usize = 8;
const PUT: u8 = 0;
const DELETE: u8 = 1;

const _: () = {
    assert!(RECORDS_START.is_multiple_of(ALIGNMENT));
    assert!(RECORD_HEADER_BYTES.is_multiple_of(ALIGNMENT));
    // Ensures that every request within the limits fits a record.
    assert!(WRITE_HEADER_BYTES <= crate::engine::OPERATION_OVERHEAD_BYTES);
    assert!(MAX_REQUEST_BYTES <= u32::MAX as usize);
};

/// Id of one boot of the machine; zeros: unknown.
pub(crate) type BootId = [u8; 16];

/// The start of a log segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    /// The sequence of the first record, which may not be written yet.
    pub first: Sequence,
    /// The boot of the machine during which the segment was written.
    pub boot: BootId,
}

/// Why a segment header was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderFault {
    /// The header is truncated, or does not match its checksum.
    Damaged,
    /// The header is intact, but of a version that this program does not know.
    UnknownVersion(u32),
}

impl SegmentHeader {
    pub fn encode(&self) -> [u8; SEGMENT_HEADER_BYTES] {
        let mut bytes = [0; SEGMENT_HEADER_BYTES];
        bytes[0..8].copy_from_slice(&SEGMENT_MAGIC);
        bytes[12..16].copy_from_slice(&LOG_VERSION.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.first.0.to_le_bytes());
        bytes[24..40].copy_from_slice(&self.boot);
        let crc = crc32c(&bytes[12..]);
        bytes[8..12].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, HeaderFault> {
        let fields = || {
            let mut r = Reader::new(bytes.get(..SEGMENT_HEADER_BYTES)?);
            let magic: [u8; 8] = r.array().ok()?;
            let crc = u32::from_le_bytes(r.array().ok()?);
            let version = u32::from_le_bytes(r.array().ok()?);
            let first = Sequence(u64::from_le_bytes(r.array().ok()?));
            let boot = r.array().ok()?;
            let intact = magic == SEGMENT_MAGIC && crc == crc32c(&bytes[12..SEGMENT_HEADER_BYTES]);
            intact.then_some((version, Self { first, boot }))
        };
        match fields() {
            None => Err(HeaderFault::Damaged),
            Some((LOG_VERSION, header)) => Ok(header),
            Some((version, _)) => Err(HeaderFault::UnknownVersion(version)),
        }
    }
}

/// A sequence with a checksum, as it stands at `offset` of a segment.
pub(crate) fn encode_mark(offset: usize, sequence: Sequence) -> [u8; MARK_BYTES] {
    let mut bytes = [0; MARK_BYTES];
    bytes[..8].copy_from_slice(&sequence.0.to_le_bytes());
    bytes[12] = offset as u8;
    let crc = crc32c(&[&bytes[..8], &bytes[12..]].concat());
    bytes[8..12].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// The mark at `offset` of a segment; `None` if there is no intact one.
pub(crate) fn decode_mark(segment: &[u8], offset: usize) -> Option<Sequence> {
    let bytes = segment.get(offset..offset + MARK_BYTES)?;
    let sequence = Sequence(u64::from_le_bytes(bytes[..8].try_into().ok()?));
    (bytes == encode_mark(offset, sequence)).then_some(sequence)
}

/// One commit in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// Its sequence.
    pub sequence: Sequence,
    /// The last commit that was known to be durable when this one was appended. It proves that
    /// damage before that commit is no lost write.
    pub synced: Sequence,
    /// Its changes.
    pub writes: Vec<Write>,
}

/// Upper bound of the bytes of a record with these writes.
pub(crate) fn max_record_bytes(writes: &[Write]) -> usize {
    RECORD_HEADER_BYTES + writes.iter().map(Write::request_bytes).sum::<usize>() + ALIGNMENT
}

/// Appends a record. The writes have passed [`crate::Commit::validate`].
pub(crate) fn encode_record(
    out: &mut Vec<u8>,
    sequence: Sequence,
    synced: Sequence,
    writes: &[Write],
) {
    let start = out.len();
    out.extend_from_slice(&RECORD_MAGIC);
    out.extend_from_slice(&[0; 12]); // two checksums and the length, known below
    out.extend_from_slice(&sequence.0.to_le_bytes());
    out.extend_from_slice(&synced.0.to_le_bytes());
    out.extend_from_slice(&(writes.len() as u16).to_le_bytes());
    out.extend_from_slice(&[0; 6]);
    for Write { key, value } in writes {
        out.extend_from_slice(&[if value.is_some() { PUT } else { DELETE }, 0]);
        out.extend_from_slice(&(key.len() as u16).to_le_bytes());
        let value = value.as_deref().unwrap_or_default();
        out.extend_from_slice(&(value.len() as u32).to_le_bytes());
        out.extend_from_slice(key);
        out.extend_from_slice(value);
    }
    let body = start + RECORD_HEADER_BYTES;
    let body_bytes = (out.len() - body) as u32;
    out.resize(start + (out.len() - start).next_multiple_of(ALIGNMENT), 0);
    let crc = crc32c(&out[body..]);
    out[start + 8..start + 12].copy_from_slice(&crc.to_le_bytes());
    out[start + 12..start + 16].copy_from_slice(&body_bytes.to_le_bytes());
    let crc = crc32c(&out[start + 8..body]);
    out[start + 4..start + 8].copy_from_slice(&crc.to_le_bytes());
}

/// The intact header of a record.
struct RecordHeader {
    body_crc: u32,
    body_bytes: usize,
    sequence: Sequence,
    synced: Sequence,
    count: usize,
}

impl RecordHeader {
    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut r = Reader::new(bytes.get(..RECORD_HEADER_BYTES)?);
        let magic: [u8; 4] = r.array().ok()?;
        let crc = u32::from_le_bytes(r.array().ok()?);
        if magic != RECORD_MAGIC || crc != crc32c(&bytes[8..RECORD_HEADER_BYTES]) {
            return None;
        }
        let header = Self {
            body_crc: u32::from_le_bytes(r.array().ok()?),
            body_bytes: u32::from_le_bytes(r.array().ok()?) as usize,
            sequence: Sequence(u64::from_le_bytes(r.array().ok()?)),
            synced: Sequence(u64::from_le_bytes(r.array().ok()?)),
            count: u16::from_le_bytes(r.array().ok()?) as usize,
        };
        let zeros: [u8; 6] = r.array().ok()?;
        let sound = header.body_bytes <= MAX_REQUEST_BYTES
            && header.count <= MAX_OPERATIONS
            && zeros == [0; 6];
        sound.then_some(header)
    }

    /// Bytes of the whole record.
    fn total(&self) -> usize {
        (RECORD_HEADER_BYTES + self.body_bytes).next_multiple_of(ALIGNMENT)
    }
}

/// Decodes the record at the start of `bytes`: the record and its length. `None` if there is no
/// intact record.
pub(crate) fn decode_record(bytes: &[u8]) -> Option<(Record, usize)> {
    let header = RecordHeader::decode(bytes)?;
    let total = header.total();
    let padded = bytes.get(RECORD_HEADER_BYTES..total)?;
    if header.body_crc != crc32c(padded) {
        return None;
    }
    let (body, padding) = padded.split_at(header.body_bytes);
    if padding.iter().any(|&byte| byte != 0) {
        return None;
    }
    let mut body = Reader::new(body);
    let writes = (0..header.count).map(|_| decode_write(&mut body)).collect::<Option<Vec<_>>>()?;
    body.finish().ok()?;
    Some((Record { sequence: header.sequence, synced: header.synced, writes }, total))
}

/// Whether `bytes`, the rest of a segment, may be the beginning of a record whose append was
/// interrupted. Bytes that are as long as the record claims are not.
pub(crate) fn is_cut_short(bytes: &[u8]) -> bool {
    bytes.len() < RECORD_HEADER_BYTES
        || RecordHeader::decode(bytes).is_some_and(|header| header.total() > bytes.len())
}

fn decode_write(r: &mut Reader<'_>) -> Option<Write> {
    let [kind, zero] = r.array().ok()?;
    let key_bytes = u16::from_le_bytes(r.array().ok()?) as usize;
    let value_bytes = u32::from_le_bytes(r.array().ok()?) as usize;
    let key = Key::from(r.take(key_bytes).ok()?);
    let value = Value::from(r.take(value_bytes).ok()?);
    let value = match kind {
        PUT => Some(value),
        DELETE if value.is_empty() => None,
        _ => return None,
    };
    (zero == 0 && is_key(&key)).then_some(Write { key, value })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn write() -> impl Strategy<Value = Write> {
        let bytes = |n| proptest::collection::vec(any::<u8>(), n);
        (bytes(1..40), proptest::option::of(bytes(0..60)))
            .prop_map(|(k, v)| Write { key: k.into(), value: v.map(Into::into) })
    }

    proptest! {
        #[test]
        fn records_round_trip_and_any_flipped_bit_is_noticed(
            writes in proptest::collection::vec(write(), 0..6),
            sequence in any::<u64>(), synced in any::<u64>(), flip in any::<usize>(),
        ) {
            let mut bytes = Vec::new();
            encode_record(&mut bytes, Sequence(sequence), Sequence(synced), &writes);
            let len = bytes.len();
            prop_assert_eq!(len % ALIGNMENT, 0);
            bytes.extend_from_slice(b"whatever follows");
            let (record, taken) = decode_record(&bytes).unwrap();
            prop_assert_eq!(taken, len);
            prop_assert_eq!(
                record,
                Record { sequence: Sequence(sequence), synced: Sequence(synced), writes }
            );
            let bit = flip % (len * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(decode_record(&bytes), None);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(decode_record(&bytes[..len - 1]), None);
        }

        #[test]
        fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut with_magic = RECORD_MAGIC.to_vec();
            with_magic.extend_from_slice(&bytes);
            let _ = decode_record(&with_magic);
            let _ = SegmentHeader::decode(&bytes);
        }
    }

    #[test]
    fn a_segment_header_of_another_version_is_told_from_a_damaged_one() {
        let header = SegmentHeader { first: Sequence(7), boot: [3; 16] };
        let mut bytes = header.encode();
        assert_eq!(SegmentHeader::decode(&bytes), Ok(header));
        bytes[12] = 9;
        assert_eq!(SegmentHeader::decode(&bytes), Err(HeaderFault::Damaged));
        let crc = crc32c(&bytes[12..]);
        bytes[8..12].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(SegmentHeader::decode(&bytes), Err(HeaderFault::UnknownVersion(9)));
    }

    /// The bytes that `docs/format-metastore.md` shows.
    #[test]
    fn the_example_of_the_format_document_is_what_is_written() {
        let writes = [
            Write { key: b"a".as_slice().into(), value: Some(b"xyz".as_slice().into()) },
            Write { key: b"b".as_slice().into(), value: None },
        ];
        let mut bytes = Vec::new();
        encode_record(&mut bytes, Sequence(2), Sequence(1), &writes);
        let hex: Vec<String> =
            bytes.chunks(16).map(|row| row.iter().map(|b| format!("{b:02x}")).collect()).collect();
        let document = include_str!("../../../docs/format-metastore.md");
        for row in hex {
            assert!(document.contains(&row), "docs/format-metastore.md lacks {row}");
        }
    }
}
