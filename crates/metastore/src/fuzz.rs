//! Decoders of the operation log, exported only for `weir-fuzz-targets`. Each encodes again what it
//! decoded, and returns those bytes.

use crate::engine::{Sequence, Write};
use crate::record::{SEGMENT_HEADER_BYTES, SegmentHeader, decode_record, encode_record};

/// Decodes the record at the start of `bytes`. Returns it, encoded again, and its length.
pub fn log_record(bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
    let (record, taken) = decode_record(bytes)?;
    let mut again = Vec::new();
    encode_record(&mut again, record.sequence, record.synced, &record.writes);
    Some((again, taken))
}

/// Writes a record.
pub fn log_record_bytes(sequence: u64, synced: u64, writes: &[Write]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_record(&mut bytes, Sequence(sequence), Sequence(synced), writes);
    bytes
}

/// Reads the header of a segment.
pub fn segment_header(bytes: &[u8]) -> Option<[u8; SEGMENT_HEADER_BYTES]> {
    SegmentHeader::decode(bytes).ok().map(|header| header.encode())
}

/// Writes the header of a segment.
pub fn segment_header_bytes(first: u64, boot: [u8; 16]) -> [u8; SEGMENT_HEADER_BYTES] {
    SegmentHeader { first: Sequence(first), boot }.encode()
}
