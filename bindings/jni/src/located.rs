//! Locations of a file's bytes, as blocks for Hadoop's schedulers.
//!
//! The hosts of a block are ordered by preference: hosts with more bytes of it first; among equal
//! ones, those whose disks are faster at present.

use crate::session::Session;
use std::collections::BTreeMap;
use std::ops::Range;
use weir_client::{LocatedPage, Location};
use weir_types::{ErrorKind, Result};
use weir_wire::Rights;

/// Maximum number of blocks of a file. Blocks of a larger file are larger.
const MAX_BLOCKS: u64 = 65_536;
/// Maximum number of requests for locations. Blocks beyond their replies have no hosts.
const MAX_CALLS: usize = 256;

/// Of a file that has more blocks or pieces than this, a page of a directory tells none: it is asked
/// alone, when its turn comes.
const MAX_IN_PAGE: usize = 4_096;

/// A block of a file.
#[derive(Debug, PartialEq, Eq)]
pub struct Block {
    /// First byte.
    pub offset: u64,
    /// Length, bytes.
    pub len: u64,
    /// Hosts that have the bytes, the best one first.
    pub hosts: Vec<String>,
}

/// The part of a block on a host.
struct Share {
    host: String,
    bytes: u64,
    /// Speed of the slowest disk that holds the part: it finishes last.
    bytes_per_s: Option<u64>,
    slow: bool,
}

/// The blocks that contain `range` (first byte and length) of a file. They have `block_bytes`, or
/// more if there would be too many.
pub fn blocks(
    session: &Session,
    path: &str,
    (start, len): (u64, u64),
    block_bytes: u64,
) -> Result<Vec<Block>> {
    if block_bytes == 0 {
        return Err(ErrorKind::InvalidArgument.into());
    }
    let (file, attr) = session.open_file(path, Rights::READ)?;
    let end = start.saturating_add(len).min(attr.size.max(file.size()));
    let mut blocks = Blocks::new(start..end, block_bytes);
    let mut from = start;
    // A call returns a limited number of locations.
    for _ in 0..MAX_CALLS {
        if from >= end {
            break;
        }
        let part = session.client.locations(&session.context, &file, from, end - from)?;
        let Some(last) = part.last() else { break };
        from = last.offset + last.len;
        part.iter().for_each(|location| blocks.add(location));
    }
    file.close(&session.context)?;
    Ok(blocks.end())
}

/// All blocks of the file of an entry of a page. `None`: the page does not have all its locations, or
/// they are very many.
pub fn of_entry(located: &LocatedPage, entry: usize, block_bytes: u64) -> Option<Vec<Block>> {
    let size = located.page.entries.get(entry)?.attr.as_ref()?.size;
    if !fits_in_page(size, block_bytes) {
        return None;
    }
    let locations = located.locations(entry, MAX_IN_PAGE)?;
    let mut blocks = Blocks::new(0..size, block_bytes);
    locations.iter().for_each(|location| blocks.add(location));
    Some(blocks.end())
}

/// Whether a page may have all blocks of a file of this size.
fn fits_in_page(size: u64, block_bytes: u64) -> bool {
    block_bytes > 0 && size.div_ceil(block_bytes) <= MAX_IN_PAGE as u64
}

/// The blocks of a range, and the parts of them on hosts that are known so far.
struct Blocks {
    range: Range<u64>,
    block_bytes: u64,
    shares: Vec<Vec<Share>>,
}

impl Blocks {
    fn new(range: Range<u64>, block_bytes: u64) -> Self {
        let count = |block_bytes: u64| match range.is_empty() {
            true => 0,
            false => (range.end - 1) / block_bytes - range.start / block_bytes + 1,
        };
        let block_bytes =
            block_bytes.saturating_mul(count(block_bytes).div_ceil(MAX_BLOCKS).max(1));
        let count = count(block_bytes);
        let shares = (0..count).map(|_| Vec::new()).collect();
        Self { range, block_bytes, shares }
    }

    /// The bytes of the range in a block.
    fn bytes(&self, block: usize) -> Range<u64> {
        let first = (self.range.start / self.block_bytes + block as u64) * self.block_bytes;
        let end = first.saturating_add(self.block_bytes).min(self.range.end);
        first.max(self.range.start)..end
    }

    /// Adds a location to each block that it overlaps.
    fn add(&mut self, location: &Location) {
        // A host with two copies counts once.
        let mut hosts: BTreeMap<&str, (Option<u64>, bool)> = BTreeMap::new();
        for copy in &location.copies {
            let place = &copy.place;
            if !copy.is_filling && place.state.is_online() && !place.host.is_empty() {
                hosts.entry(&place.host).or_insert((place.bytes_per_s, place.slow));
            }
        }
        let (mut at, end) = (location.offset, location.offset + location.len);
        while at < end {
            let block = (at / self.block_bytes - self.range.start / self.block_bytes) as usize;
            let until = self.bytes(block).end.min(end);
            let Some(shares) = self.shares.get_mut(block).filter(|_| until > at) else { return };
            for (host, (bytes_per_s, slow)) in &hosts {
                gather(shares, host, until - at, (*bytes_per_s, *slow));
            }
            at = until;
        }
    }

    fn end(mut self) -> Vec<Block> {
        let all = std::mem::take(&mut self.shares).into_iter().enumerate();
        all.map(|(block, shares)| {
            let bytes = self.bytes(block);
            Block { offset: bytes.start, len: bytes.end - bytes.start, hosts: in_order(shares) }
        })
        .collect()
    }
}

/// Adds bytes to a host's share.
fn gather(shares: &mut Vec<Share>, host: &str, bytes: u64, (rate, slow): (Option<u64>, bool)) {
    match shares.iter_mut().find(|share| share.host == host) {
        Some(share) => {
            share.bytes += bytes;
            share.slow |= slow;
            share.bytes_per_s = match (share.bytes_per_s, rate) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
        }
        None => shares.push(Share { host: host.to_owned(), bytes, bytes_per_s: rate, slow }),
    }
}

/// Sorts the hosts, the best one first. A disk without recent reads counts as fast.
fn in_order(mut shares: Vec<Share>) -> Vec<String> {
    shares.sort_by_key(|share| {
        let rate = share.bytes_per_s.unwrap_or(u64::MAX);
        (share.slow, std::cmp::Reverse((share.bytes, rate)))
    });
    shares.into_iter().map(|share| share.host).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use weir_client::{LocatedCopy, TargetPlace};
    use weir_types::{CopyIndex, TargetId};
    use weir_wire::map::TargetState;

    fn location(offset: u64, len: u64, hosts: &[&str]) -> Location {
        let copy = |(copy, host): (usize, &&str)| LocatedCopy {
            copy: CopyIndex(copy as u8),
            is_filling: false,
            place: Arc::new(TargetPlace {
                target: TargetId(copy as u32),
                server: None,
                host: (*host).to_owned(),
                address: String::new(),
                domain: String::new(),
                state: TargetState::Online,
                slow: false,
                bytes_per_s: None,
                in_flight: 0,
            }),
        };
        let copies = hosts.iter().enumerate().map(copy).collect();
        Location { offset, len, object_offset: 0, copies }
    }

    #[test]
    fn a_location_counts_for_each_block_that_has_any_of_it() {
        let mut blocks = Blocks::new(50..250, 100);
        // Before the requested part of the first block, across a border, and within the last block.
        blocks.add(&location(50, 70, &["a", "a"]));
        blocks.add(&location(120, 30, &["b"]));
        blocks.add(&location(150, 100, &["c", "b"]));
        let block = |offset, len, hosts: &[&str]| Block {
            offset,
            len,
            hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
        };
        let want =
            [block(50, 50, &["a"]), block(100, 100, &["b", "c", "a"]), block(200, 50, &["b", "c"])];
        assert_eq!(blocks.end(), want);
        assert!(Blocks::new(7..7, 100).end().is_empty());
    }

    #[test]
    fn a_file_of_very_many_blocks_has_larger_ones() {
        let mut blocks = Blocks::new(5..1 << 62, 64 << 20);
        blocks.add(&location(1 << 60, 100, &["a"]));
        let all = blocks.end();
        assert!(all.len() as u64 <= MAX_BLOCKS + 1, "{}", all.len());
        let ends = all.iter().map(|block| block.offset + block.len);
        let starts = all.iter().map(|block| block.offset).skip(1).chain([1 << 62]);
        assert!(ends.eq(starts) && all[0].offset == 5);
        assert!(all.iter().skip(1).all(|block| block.offset % (64 << 20) == 0));
        let named: Vec<&Block> = all.iter().filter(|block| !block.hosts.is_empty()).collect();
        assert!(matches!(&named[..], [one] if one.offset <= 1 << 60), "{named:?}");
        assert_eq!(Blocks::new(0..1 << 62, 1).end().len() as u64, MAX_BLOCKS);
        assert_eq!(Blocks::new(0..MAX_BLOCKS, 1).block_bytes, 1);
    }

    #[test]
    fn a_page_has_no_blocks_of_a_file_of_very_many() {
        assert!(fits_in_page(0, 64 << 20) && fits_in_page(4_096, 1));
        assert!(!fits_in_page(4_097, 1) && !fits_in_page(1 << 62, 64 << 20));
        assert!(!fits_in_page(1, 0));
    }

    #[test]
    fn hosts_stand_by_what_they_have_and_then_by_what_their_disks_give() {
        let share = |host: &str, bytes, bytes_per_s, slow| {
            let host = host.to_owned();
            Share { host, bytes, bytes_per_s, slow }
        };
        let shares = vec![
            share("slow", 9, Some(90), true),
            share("less", 4, Some(80), false),
            share("brake", 8, Some(10), false),
            share("fast", 8, Some(70), false),
        ];
        assert_eq!(in_order(shares), ["fast", "brake", "less", "slow"]);
    }
}
