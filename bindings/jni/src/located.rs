//! Where the bytes of a file are, in the blocks that schedulers of Hadoop know.
//!
//! The hosts of a block stand in the order in which it is best read there: those that have most of
//! it first, and of those that have as much, the ones whose disks give most now.

use crate::session::Session;
use std::collections::BTreeMap;
use weir_client::Location;
use weir_types::{ErrorKind, Result};
use weir_wire::Rights;

/// A block of a file.
#[derive(Debug, PartialEq, Eq)]
pub struct Block {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// Who has them, the best one first.
    pub hosts: Vec<String>,
}

/// What a host has of a block.
struct Share {
    host: String,
    bytes: u64,
    /// Of its slowest disk among those: the last one to end.
    bytes_per_s: Option<u64>,
    slow: bool,
}

/// The blocks of `block_bytes` that hold `range` (first byte and length) of a file.
pub fn blocks(
    session: &Session,
    path: &str,
    (start, len): (u64, u64),
    block_bytes: u64,
) -> Result<Vec<Block>> {
    if block_bytes == 0 {
        return Err(ErrorKind::InvalidArgument.into());
    }
    let (file, _) = session.open_file(path, Rights::READ)?;
    let size = session.client.getattr(&session.context, file.id())?.size;
    let end = start.saturating_add(len).min(size);
    let mut found = Vec::new();
    let mut at = start;
    while at < end {
        let block_end = (at / block_bytes + 1).saturating_mul(block_bytes).min(end);
        let mut shares = Vec::new();
        let mut from = at;
        // One call returns so many locations at the most.
        while from < block_end {
            let part = session.client.locations(&session.context, &file, from, block_end - from)?;
            let Some(last) = part.last() else { break };
            from = last.offset + last.len;
            gather(&mut shares, &part);
        }
        found.push(Block { offset: at, len: block_end - at, hosts: in_order(shares) });
        at = block_end;
    }
    file.close(&session.context)?;
    Ok(found)
}

/// Adds what hosts have of these locations.
fn gather(shares: &mut Vec<Share>, locations: &[Location]) {
    for location in locations {
        // A host that has two copies has these bytes once.
        let mut hosts: BTreeMap<&str, (Option<u64>, bool)> = BTreeMap::new();
        for copy in &location.copies {
            let place = &copy.place;
            if !copy.is_filling && place.state.is_online() && !place.host.is_empty() {
                hosts.entry(&place.host).or_insert((place.bytes_per_s, place.slow));
            }
        }
        for (host, (bytes_per_s, slow)) in hosts {
            match shares.iter_mut().find(|share| share.host == host) {
                Some(share) => {
                    share.bytes += location.len;
                    share.slow |= slow;
                    share.bytes_per_s = match (share.bytes_per_s, bytes_per_s) {
                        (Some(a), Some(b)) => Some(a.min(b)),
                        (a, b) => a.or(b),
                    };
                }
                None => {
                    let (host, bytes) = (host.to_owned(), location.len);
                    shares.push(Share { host, bytes, bytes_per_s, slow });
                }
            }
        }
    }
}

/// The best host first. A disk that nobody has read from of late counts as fast as any.
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
