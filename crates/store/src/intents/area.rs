//! The file `intents`: two areas of sectors. One area is in use. A rewrite fills the other, which
//! becomes valid once it is durable as a whole.

use super::sector::{BadSector, Body, Head, Record, SECTOR, SECTOR_RECORDS, Sector};
use crate::superblock::TargetIdentity;
use std::collections::BTreeSet;

/// Sectors per area: 1 MiB.
pub(crate) const AREA_SECTORS: usize = 2048;
/// Bytes of an area.
pub(crate) const AREA_BYTES: usize = AREA_SECTORS * SECTOR;
/// Bytes of the file.
pub(crate) const FILE_BYTES: usize = 2 * AREA_BYTES;

/// Number of sectors for this many records.
pub(crate) fn sectors_of(records: usize) -> usize {
    records.div_ceil(SECTOR_RECORDS)
}

/// The sectors of a new area: its head and the records that it starts with.
pub(crate) fn snapshot(
    identity: TargetIdentity,
    sequence: u64,
    era: u64,
    clean: bool,
    records: &[Record],
) -> Vec<u8> {
    let snapshot_sectors = sectors_of(records.len()) as u32;
    let head = Head { identity, clean, era, snapshot_sectors };
    let mut bytes = Sector { sequence, index: 0, body: Body::Head(head) }.to_disk().to_vec();
    bytes.extend(append(sequence, 1, records));
    bytes
}

/// Encodes records to be appended as sectors from number `index` on.
pub(crate) fn append(sequence: u64, index: usize, records: &[Record]) -> Vec<u8> {
    let chunks = records.chunks(SECTOR_RECORDS).enumerate();
    chunks
        .flat_map(|(i, records)| {
            let body = Body::Records(records.to_vec());
            Sector { sequence, index: (index + i) as u32, body }.to_disk()
        })
        .collect()
}

/// The contents of the log when a target is opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Contents {
    /// The newest complete area.
    pub(crate) newest: Option<Newest>,
    pub(crate) records: BTreeSet<Record>,
    /// Whether a sector has rotted, so that marks may be missing.
    pub(crate) damaged: bool,
    /// The highest sequence number in any sector.
    pub(crate) max_sequence: u64,
    /// The format version of a sector with an unknown version or unknown flags, if there is one.
    pub(crate) unknown_version: Option<u32>,
}

/// The valid area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Newest {
    pub(crate) area: usize,
    pub(crate) clean: bool,
    pub(crate) era: u64,
}

/// Decodes the file. `bytes` must be [`FILE_BYTES`] long.
pub(crate) fn read(bytes: &[u8], identity: TargetIdentity) -> Contents {
    let mut contents = Contents { damaged: bytes.len() != FILE_BYTES, ..Contents::default() };
    let mut best: Option<(u64, Newest, BTreeSet<Record>)> = None;
    for (area, bytes) in bytes.chunks_exact(AREA_BYTES).enumerate() {
        let sectors = sectors(bytes, &mut contents);
        let Some(Sector { sequence, body: Body::Head(head), .. }) = sectors.first() else {
            continue;
        };
        if head.identity != identity {
            contents.damaged = true;
            continue;
        }
        let of_this = || sectors[1..].iter().filter(|s| s.sequence == *sequence);
        let in_snapshot = of_this().filter(|s| s.index <= head.snapshot_sectors).count();
        let newer = best.as_ref().is_none_or(|(best, ..)| best < sequence);
        if in_snapshot == head.snapshot_sectors as usize && newer {
            let records = of_this().flat_map(|s| match &s.body {
                Body::Records(records) => records.clone(),
                Body::Head(_) => Vec::new(),
            });
            let newest = Newest { area, clean: head.clean, era: head.era };
            best = Some((*sequence, newest, records.collect()));
        }
    }
    match best {
        Some((_, newest, records)) => {
            contents.newest = Some(newest);
            contents.records = records;
        }
        None => contents.damaged = true,
    }
    contents
}

/// The valid sectors of an area.
fn sectors(bytes: &[u8], contents: &mut Contents) -> Vec<Sector> {
    let mut found = Vec::new();
    for (i, bytes) in bytes.as_chunks::<SECTOR>().0.iter().enumerate() {
        match Sector::from_disk(bytes) {
            Ok(sector) if sector.index as usize == i => {
                contents.max_sequence = contents.max_sequence.max(sector.sequence);
                found.push(sector);
            }
            Ok(_) | Err(BadSector::Damaged) => contents.damaged = true,
            Err(BadSector::Empty) => {}
            Err(BadSector::Unknown(version)) => contents.unknown_version = Some(version),
        }
    }
    found
}

/// File positions, bytes, of rotted sectors.
pub(crate) fn damaged_positions(bytes: &[u8]) -> Vec<u64> {
    let sectors = bytes.as_chunks::<SECTOR>().0.iter().enumerate();
    let damaged = sectors.filter(|(i, sector)| match Sector::from_disk(sector) {
        Ok(sector) => sector.index as usize != i % AREA_SECTORS,
        Err(bad) => bad != BadSector::Empty,
    });
    damaged.map(|(i, _)| (i * SECTOR) as u64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_types::{ServerId, TargetId};

    const IDENTITY: TargetIdentity =
        TargetIdentity { cluster: [9; 16], target: TargetId(3), server: ServerId(2) };

    fn windows(range: std::ops::Range<u64>) -> Vec<Record> {
        range.map(Record::Window).collect()
    }

    fn file(areas: [&[u8]; 2]) -> Vec<u8> {
        let mut bytes = vec![0; FILE_BYTES];
        bytes[..areas[0].len()].copy_from_slice(areas[0]);
        bytes[AREA_BYTES..][..areas[1].len()].copy_from_slice(areas[1]);
        bytes
    }

    #[test]
    fn the_newest_whole_area_counts_with_what_was_added() {
        let old = snapshot(IDENTITY, 4, 1, true, &windows(0..40));
        let mut new = snapshot(IDENTITY, 5, 2, false, &windows(100..120));
        new.extend(append(5, 3, &windows(200..203)));
        let contents = read(&file([&old, &new]), IDENTITY);
        assert_eq!(contents.newest, Some(Newest { area: 1, clean: false, era: 2 }));
        let expected: BTreeSet<_> =
            windows(100..120).into_iter().chain(windows(200..203)).collect();
        assert_eq!(contents.records, expected);
        assert!(!contents.damaged);
        // The second sector of its snapshot did not reach the disk, so the old area counts.
        let torn = read(&file([&old, &new[..2 * SECTOR]]), IDENTITY);
        assert_eq!(torn.newest, Some(Newest { area: 0, clean: true, era: 1 }));
        assert_eq!((torn.damaged, torn.records.len(), torn.max_sequence), (false, 40, 5));
    }

    #[test]
    fn sectors_of_an_earlier_filling_do_not_count() {
        let old = snapshot(IDENTITY, 4, 1, false, &windows(0..60));
        let new = snapshot(IDENTITY, 6, 3, false, &windows(7..8));
        let mut bytes = file([&old, &[]]);
        bytes[..new.len()].copy_from_slice(&new);
        assert_eq!(read(&bytes, IDENTITY).records, windows(7..8).into_iter().collect());
    }

    #[test]
    fn damage_is_told_apart_from_what_was_never_written() {
        let mut new = snapshot(IDENTITY, 5, 2, false, &windows(100..120));
        assert!(!read(&file([&[], &new]), IDENTITY).damaged);
        new[700] ^= 1;
        assert!(read(&file([&[], &new]), IDENTITY).damaged);
        assert_eq!(damaged_positions(&file([&[], &new])), [(AREA_BYTES + SECTOR) as u64]);
        assert!(read(&file([&[], &[]]), IDENTITY).damaged, "no area at all");
        assert!(read(&[], IDENTITY).damaged);
        let other = TargetIdentity { target: TargetId(9), ..IDENTITY };
        assert!(read(&file([&new, &[]]), other).damaged);
    }
}
