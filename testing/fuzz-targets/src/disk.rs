//! What stands on disks: objects, targets, the log of the metadata engine.
//!
//! A checksum guards these bytes, and no fuzzer guesses one. So every target
//! runs twice: on the bytes as they are, and with the checksum set right.

use crate::random::Gen;
use crate::sample::Sample;
use weir_metastore::export::{ExportHeader, ExportReader, ExportWriter};
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

/// A sector of a target's intent log.
pub(crate) fn intent_sector(data: &[u8]) {
    let mut bytes = [0; STORE_BYTES];
    let len = data.len().min(STORE_BYTES);
    bytes[..len].copy_from_slice(&data[..len]);
    for _ in 0..2 {
        if let Some(again) = store::intent_sector(&bytes) {
            assert_eq!(again, bytes);
        }
        let check = crc32c(&bytes[8..]);
        bytes[4..8].copy_from_slice(&check.to_le_bytes());
    }
}

pub(crate) fn intent_sector_example(g: &mut Gen) -> Vec<u8> {
    let (cluster, (target, server)) = Sample::sample(g);
    let identity = weir_store::TargetIdentity { cluster, target, server };
    let marks = (0..g.below(16)).map(|_| (ObjectId::sample(g), g.number(), g.number()));
    let marks: Vec<_> = marks.collect();
    let index = g.below(3) as u32;
    store::intent_sector_bytes(g.number(), index, identity, &marks).to_vec()
}

/// A sector of a target's gap log.
pub(crate) fn gap_sector(data: &[u8]) {
    let mut bytes = [0; STORE_BYTES];
    let len = data.len().min(STORE_BYTES);
    bytes[..len].copy_from_slice(&data[..len]);
    // The head names the target, and is refused by any other.
    let number =
        |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let mut cluster = [0; 16];
    cluster.copy_from_slice(&bytes[16..32]);
    let (target, server) = (number(32).into(), number(36).into());
    let identity = weir_store::TargetIdentity { cluster, target, server };
    for _ in 0..2 {
        if let Some(again) = store::gap_sector(&bytes, identity) {
            assert_eq!(again, bytes);
        }
        let check = crc32c(&bytes[8..]);
        bytes[4..8].copy_from_slice(&check.to_le_bytes());
    }
}

pub(crate) fn gap_sector_example(g: &mut Gen) -> Vec<u8> {
    let (cluster, (target, server)) = Sample::sample(g);
    let identity = weir_store::TargetIdentity { cluster, target, server };
    let ranges: Vec<_> = (0..g.below(13)).map(|_| (g.number(), g.number())).collect();
    let (index, object) = (g.below(3) as u32, ObjectId::sample(g));
    store::gap_sector_bytes(index, identity, object, &ranges).to_vec()
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
    let Some(length) = data.get(12..16) else { return };
    let body = u32::from_le_bytes([length[0], length[1], length[2], length[3]]) as usize;
    let total = body.saturating_add(40).next_multiple_of(8);
    if total <= data.len() {
        let mut bytes = data.to_vec();
        let check = crc32c(&bytes[40..total]);
        bytes[8..12].copy_from_slice(&check.to_le_bytes());
        let check = crc32c(&bytes[8..40]);
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

/// A file of `weir meta export`.
pub(crate) fn metadata_export(data: &[u8]) {
    read_export(data);
    let mut bytes = data.to_vec();
    set_export_checksums(&mut bytes);
    read_export(&bytes);
}

fn read_export(bytes: &[u8]) {
    let Ok(mut reader) = ExportReader::new(bytes) else { return };
    let mut writer = ExportWriter::new(Vec::new(), reader.header()).expect("memory");
    loop {
        match reader.next_chunk() {
            Ok(Some(records)) => {
                for (key, value) in records {
                    writer.record(&key, &value).expect("what was read can be written");
                }
            }
            Ok(None) => break,
            Err(_) => return,
        }
    }
    let (again, totals) = writer.finish().expect("memory");
    assert_eq!(totals, reader.totals());
    assert!(ExportReader::new(&again[..]).is_ok());
}

/// Makes every checksum of an export right, as far as its lengths make sense.
fn set_export_checksums(bytes: &mut [u8]) {
    let Some(header) = bytes.get(12..40) else { return };
    let mut running = crc32c(header).to_le_bytes();
    bytes[8..12].copy_from_slice(&running);
    let mut at = 40;
    while bytes.len() >= at + 32 {
        let length = [bytes[at + 8], bytes[at + 9], bytes[at + 10], bytes[at + 11]];
        let end = (at + 32).saturating_add(u32::from_le_bytes(length) as usize);
        let is_chunk = bytes[at..].starts_with(b"CHNK");
        if let (true, Some(records)) = (is_chunk, bytes.get(at + 32..end)) {
            let check = crc32c(records).to_le_bytes();
            bytes[at + 24..at + 28].copy_from_slice(&check);
        }
        bytes[at + 28..at + 32].copy_from_slice(&running);
        running = crc32c(&bytes[at + 8..at + 32]).to_le_bytes();
        bytes[at + 4..at + 8].copy_from_slice(&running);
        at = end;
    }
}

pub(crate) fn metadata_export_example(g: &mut Gen) -> Vec<u8> {
    let header =
        ExportHeader { cluster: Sample::sample(g), sequence: weir_metastore::Sequence(g.number()) };
    let mut writer = ExportWriter::new(Vec::new(), header).expect("memory");
    let keys: std::collections::BTreeSet<_> =
        (0..g.below(6)).map(|_| [g.bytes(20), vec![1]].concat()).collect();
    for key in keys {
        writer.record(&key, &g.bytes(60)).expect("in order");
    }
    writer.finish().expect("memory").0
}
