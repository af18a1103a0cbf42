//! Decoders of on-disk bytes, for `weir-fuzz-targets` only. Each takes bytes, decodes them and
//! returns them encoded again.

use crate::directories::parse_name;
use crate::gaps::record;
use crate::geometry::HEADER_BYTES;
use crate::header::Header;
use crate::intents::sector::{Body, Head, Record, SECTOR_RECORDS, Sector};
use crate::superblock::{self, TargetIdentity};
use weir_types::{CopyIndex, Generation, ObjectId, TargetId};

/// Reads the header of an object.
pub fn object_header(bytes: &[u8; HEADER_BYTES]) -> Option<[u8; HEADER_BYTES]> {
    Header::from_disk(bytes).ok().map(Header::to_disk)
}

/// Writes the header of an object.
pub fn object_header_bytes(id: ObjectId, generation: Generation) -> [u8; HEADER_BYTES] {
    Header { id, generation, born: generation.0 / 2, untidy: false }.to_disk()
}

/// Reads a superblock of 512 bytes.
pub fn superblock(bytes: &[u8; 512]) -> Option<[u8; 512]> {
    superblock_of_any_length(bytes)
}

/// Reads a superblock.
pub fn superblock_of_any_length(bytes: &[u8]) -> Option<[u8; 512]> {
    superblock::from_disk(bytes)
        .ok()
        .map(|block| superblock::to_disk(block.identity, block.gap_log))
}

/// Writes a superblock.
pub fn superblock_bytes(identity: TargetIdentity) -> [u8; 512] {
    superblock::to_disk(identity, identity.server.0 % 2 == 1)
}

/// Reads a sector of the intent log.
pub fn intent_sector(bytes: &[u8; 512]) -> Option<[u8; 512]> {
    Sector::from_disk(bytes).ok().map(|sector| sector.to_disk())
}

/// Writes a sector of the intent log: its head, or marks of this object.
pub fn intent_sector_bytes(
    sequence: u64,
    index: u32,
    identity: TargetIdentity,
    ranges: &[(ObjectId, u64, u64)],
) -> [u8; 512] {
    let body = if index == 0 {
        Body::Head(Head {
            identity,
            clean: sequence.is_multiple_of(2),
            era: sequence / 3,
            snapshot_sectors: 0,
        })
    } else {
        let ranges = ranges.iter().take(SECTOR_RECORDS);
        Body::Records(ranges.map(|&(id, first, end)| Record::Range { id, first, end }).collect())
    };
    Sector { sequence, index, body }.to_disk()
}

/// Reads a sector of the gap log, at the index that the sector itself states.
pub fn gap_sector(bytes: &[u8; 512], identity: TargetIdentity) -> Option<[u8; 512]> {
    let index = u32::from_le_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]);
    let records = record::understand(bytes, index as usize, identity).ok()?;
    Some(if index == 0 { record::head(identity) } else { record::sector(index, &records) })
}

/// Writes a sector of the gap log: its head, or notes and clears of this object.
pub fn gap_sector_bytes(
    index: u32,
    identity: TargetIdentity,
    object: ObjectId,
    ranges: &[(u64, u64)],
) -> [u8; 512] {
    if index == 0 {
        return record::head(identity);
    }
    let (behind, copy) = (identity.target, CopyIndex(index as u8));
    let note = |(i, &(start, len)): (usize, &(u64, u64))| {
        let bytes = start / 2..(start / 2).saturating_add(len).max(start / 2 + 1);
        match i % 4 {
            0 => record::Record::Note { object, behind, copy, bytes },
            1 => record::Record::Clear { object, behind: TargetId(start as u32), copy, bytes },
            2 => record::Record::Lost { files: bytes },
            _ => record::Record::Run { id: u128::from(start) },
        }
    };
    let records: Vec<_> =
        ranges.iter().take(record::SECTOR_RECORDS).enumerate().map(note).collect();
    record::sector(index, &records)
}

/// Reads the name of an object's file.
pub fn object_name(name: &str) -> Option<ObjectId> {
    parse_name(name)
}

/// The name of an object's file.
pub fn object_name_of(id: ObjectId) -> String {
    format!("f{id}")
}
