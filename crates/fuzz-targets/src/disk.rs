//! What stands on disks: objects, targets, the log of the metadata engine.
//!
//! A checksum guards these bytes, and no fuzzer guesses one. So every target
//! runs twice: on the bytes as they are, and with the checksum set right.

use crate::random::Gen;
use crate::sample::Sample;
use weir_metastore::fuzz as metastore;
use weir_store::fuzz as store;
use weir_types::ObjectId;
use weir_types::checksum::crc32c;

/// Bytes of an object header and of a superblock; the last 4 are the checksum.
const STORE_BYTES: usize = 512;

/// What is understood can be written, and is then understood the same way.
fn stable<const N: usize>(bytes: [u8; N], decode: fn(&[u8; N]) -> Option<[u8; N]>) {
    if let Some(again) = decode(&bytes) {
        assert_eq!(decode(&again), Some(again));
    }
}

fn with_and_without_checksum(
    data: &[u8],
    decode: fn(&[u8; STORE_BYTES]) -> Option<[u8; STORE_BYTES]>,
) {
    let mut bytes = [0; STORE_BYTES];
    let len = data.len().min(STORE_BYTES);
    bytes[..len].copy_from_slice(&data[..len]);
    stable(bytes, decode);
    let check = crc32c(&bytes[..STORE_BYTES - 4]);
    bytes[STORE_BYTES - 4..].copy_from_slice(&check.to_le_bytes());
    stable(bytes, decode);
}

/// The header of an object's file.
pub(crate) fn object_header(data: &[u8]) {
    with_and_without_checksum(data, store::object_header);
}

pub(crate) fn object_header_example(g: &mut Gen) -> Vec<u8> {
    store::object_header_bytes(Sample::sample(g), Sample::sample(g)).to_vec()
}

/// The superblock of a target.
pub(crate) fn superblock(data: &[u8]) {
    with_and_without_checksum(data, store::superblock);
    // Of any other length it is damaged.
    assert!(data.len() == STORE_BYTES || store::superblock_of_any_length(data).is_none());
}

pub(crate) fn superblock_example(g: &mut Gen) -> Vec<u8> {
    let (cluster, (target, server)) = Sample::sample(g);
    let identity = weir_store::TargetIdentity { cluster, target, server };
    store::superblock_bytes(identity).to_vec()
}

/// The name of an object's file: one spelling each, and no way out of the directory.
pub(crate) fn object_name(data: &[u8]) {
    let Ok(name) = std::str::from_utf8(data) else { return };
    if let Some(id) = store::object_name(name) {
        assert!(!name.contains('/'));
        assert_eq!(store::object_name_of(id), name);
    }
}

pub(crate) fn object_name_example(g: &mut Gen) -> Vec<u8> {
    store::object_name_of(ObjectId::sample(g)).into_bytes()
}

/// One record of the operation log.
pub(crate) fn log_record(data: &[u8]) {
    decoded_record(data);
    let Some(length) = data.get(8..12) else { return };
    let body = u32::from_le_bytes([length[0], length[1], length[2], length[3]]) as usize;
    let total = body.saturating_add(32).next_multiple_of(8);
    if total <= data.len() {
        let mut bytes = data.to_vec();
        let check = crc32c(&bytes[8..total]);
        bytes[4..8].copy_from_slice(&check.to_le_bytes());
        decoded_record(&bytes);
    }
}

fn decoded_record(bytes: &[u8]) {
    if let Some((again, taken)) = metastore::log_record(bytes) {
        assert!(taken <= bytes.len());
        assert_eq!(metastore::log_record(&again), Some((again.clone(), again.len())));
    }
}

pub(crate) fn log_record_example(g: &mut Gen) -> Vec<u8> {
    let writes = (0..g.below(4))
        .map(|_| weir_metastore::Write {
            key: [g.bytes(20), vec![1]].concat().into(),
            value: (!g.one_in(3)).then(|| g.bytes(40).into()),
        })
        .collect::<Vec<_>>();
    metastore::log_record_bytes(g.number(), g.number(), &writes)
}

/// The header of a segment of the operation log.
pub(crate) fn log_segment_header(data: &[u8]) {
    let mut bytes = data.to_vec();
    for _ in 0..2 {
        if let Some(again) = metastore::segment_header(&bytes) {
            assert_eq!(again, bytes[..again.len()]);
        }
        if bytes.len() < 40 {
            return;
        }
        let check = crc32c(&bytes[12..40]);
        bytes[8..12].copy_from_slice(&check.to_le_bytes());
    }
}

pub(crate) fn log_segment_header_example(g: &mut Gen) -> Vec<u8> {
    metastore::segment_header_bytes(g.number(), Sample::sample(g)).to_vec()
}
