//! The bytes of the operation log: segment headers and records. Drawn in
//! `docs/format-metastore.md`; change both together.

use crate::engine::{Key, MAX_OPERATIONS, MAX_REQUEST_BYTES, Sequence, Value, Write, is_key};
use weir_types::Reader;
use weir_types::checksum::crc32c;

/// The version of the log that this program writes, and the only one it reads.
pub(crate) const LOG_VERSION: u32 = 1;
/// Bytes of a segment header.
pub(crate) const SEGMENT_HEADER_BYTES: usize = 40;
/// Records begin at multiples of this.
pub(crate) const ALIGNMENT: usize = 8;

const SEGMENT_MAGIC: [u8; 8] = *b"WEIRMLOG";
const RECORD_MAGIC: [u8; 4] = *b"WMR1";
const RECORD_HEADER_BYTES: usize = 32;
const WRITE_HEADER_BYTES: usize = 8;
const PUT: u8 = 0;
const DELETE: u8 = 1;

const _: () = {
    assert!(SEGMENT_HEADER_BYTES.is_multiple_of(ALIGNMENT));
    assert!(RECORD_HEADER_BYTES.is_multiple_of(ALIGNMENT));
    // So that whatever passes the limits of a request fits a record.
    assert!(WRITE_HEADER_BYTES <= crate::engine::OPERATION_OVERHEAD_BYTES);
    assert!(MAX_REQUEST_BYTES <= u32::MAX as usize);
};

/// What tells one run of the machine from the next; zeros: unknown.
pub(crate) type BootId = [u8; 16];

/// The start of a log segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    /// The sequence of the first record, when there is one.
    pub first: Sequence,
    /// The run of the machine that wrote the segment.
    pub boot: BootId,
}

/// Why a segment header was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderFault {
    /// Cut short, or not matching its checksum.
    Damaged,
    /// Intact, and of a version that this program does not know.
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

/// One commit as it stands in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// The commit.
    pub sequence: Sequence,
    /// The last commit that was known to be durable when this was appended:
    /// proof, for whoever finds damage before it.
    pub synced: Sequence,
    /// What it changed.
    pub writes: Vec<Write>,
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
    out.extend_from_slice(&[0; 8]); // checksum and body length, known below
    out.extend_from_slice(&(writes.len() as u16).to_le_bytes());
    out.extend_from_slice(&[0; 2]);
    out.extend_from_slice(&sequence.0.to_le_bytes());
    out.extend_from_slice(&synced.0.to_le_bytes());
    for Write { key, value } in writes {
        out.extend_from_slice(&[if value.is_some() { PUT } else { DELETE }, 0]);
        out.extend_from_slice(&(key.len() as u16).to_le_bytes());
        let value = value.as_deref().unwrap_or_default();
        out.extend_from_slice(&(value.len() as u32).to_le_bytes());
        out.extend_from_slice(key);
        out.extend_from_slice(value);
    }
    let body_bytes = (out.len() - start - RECORD_HEADER_BYTES) as u32;
    out.resize(start + (out.len() - start).next_multiple_of(ALIGNMENT), 0);
    out[start + 8..start + 12].copy_from_slice(&body_bytes.to_le_bytes());
    let crc = crc32c(&out[start + 8..]);
    out[start + 4..start + 8].copy_from_slice(&crc.to_le_bytes());
}

/// Reads the record at the start of `bytes`: it, and how many bytes it takes.
/// `None` if there is no intact record.
pub(crate) fn decode_record(bytes: &[u8]) -> Option<(Record, usize)> {
    let mut r = Reader::new(bytes);
    if r.array::<4>().ok()? != RECORD_MAGIC {
        return None;
    }
    let crc = u32::from_le_bytes(r.array().ok()?);
    let body_bytes = u32::from_le_bytes(r.array().ok()?) as usize;
    if body_bytes > MAX_REQUEST_BYTES {
        return None;
    }
    let total = (RECORD_HEADER_BYTES + body_bytes).next_multiple_of(ALIGNMENT);
    if crc != crc32c(bytes.get(8..total)?) {
        return None;
    }
    let count = u16::from_le_bytes(r.array().ok()?) as usize;
    let zeros: [u8; 2] = r.array().ok()?;
    let sequence = Sequence(u64::from_le_bytes(r.array().ok()?));
    let synced = Sequence(u64::from_le_bytes(r.array().ok()?));
    let mut body = Reader::new(r.take(body_bytes).ok()?);
    let padding = r.take(total - RECORD_HEADER_BYTES - body_bytes).ok()?;
    let zero = zeros.iter().chain(padding).all(|&byte| byte == 0);
    if count > MAX_OPERATIONS || !zero {
        return None;
    }
    let writes = (0..count).map(|_| decode_write(&mut body)).collect::<Option<Vec<_>>>()?;
    body.finish().ok()?;
    Some((Record { sequence, synced, writes }, total))
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
