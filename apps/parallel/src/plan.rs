//! Assignment of blocks to processes before the run: by equal shares, or by location.

/// The part of a block on a machine, and the present speed of its disk.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    /// The name of the machine.
    pub host: String,
    /// Bytes of the block on that machine.
    pub bytes: u64,
    /// Bytes per second of the disk; 0: unknown.
    pub bytes_per_s: u64,
}

/// Equal shares, in order: returns the process of each of `blocks` blocks.
pub fn shares(blocks: usize, ranks: usize) -> Vec<usize> {
    (0..blocks).map(|block| block * ranks / blocks.max(1)).collect()
}

/// Assigns blocks to processes by location; `hosts` has the machine of each process. A block goes
/// to a process whose machine has most of its bytes. Among several, it goes to the one that would
/// finish first, by disk speed and blocks assigned so far. No process gets more than an equal
/// share; remaining blocks go to the processes with the fewest.
pub fn by_places(blocks: &[Vec<Place>], hosts: &[String]) -> Vec<usize> {
    let limit = blocks.len().div_ceil(hosts.len().max(1));
    let mut load = vec![0; hosts.len()];
    let mut of: Vec<Option<usize>> = vec![None; blocks.len()];
    for (block, places) in blocks.iter().enumerate() {
        // If the speed of any disk is unknown, all count as equal.
        let known = places.iter().all(|place| place.bytes_per_s > 0);
        let ends = |rank: usize, place: &Place| {
            let pace = if known { place.bytes_per_s as f64 } else { 1.0 };
            (load[rank] + 1) as f64 / pace
        };
        let near = places.iter().filter(|place| place.bytes > 0).flat_map(|place| {
            let here = (0..hosts.len()).filter(|rank| hosts[*rank] == place.host);
            here.filter(|rank| load[*rank] < limit).map(move |rank| (rank, place))
        });
        let near = near.min_by(|(a, at), (b, bt)| {
            bt.bytes.cmp(&at.bytes).then_with(|| ends(*a, at).total_cmp(&ends(*b, bt)))
        });
        let near = near.map(|(rank, _)| rank);
        if let Some(rank) = near {
            load[rank] += 1;
            of[block] = Some(rank);
        }
    }
    let mut least = |of: Option<usize>| {
        of.unwrap_or_else(|| {
            let rank = (0..hosts.len()).min_by_key(|rank| load[*rank]).unwrap_or(0);
            load[rank] += 1;
            rank
        })
    };
    of.into_iter().map(&mut least).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(places: &[(&str, u64, u64)]) -> Vec<Place> {
        let place = |&(host, bytes, bytes_per_s): &(&str, u64, u64)| Place {
            host: host.to_owned(),
            bytes,
            bytes_per_s,
        };
        places.iter().map(place).collect()
    }

    fn hosts(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn shares_are_in_order_and_differ_by_one_block() {
        assert_eq!(shares(7, 3), [0, 0, 0, 1, 1, 2, 2]);
        assert_eq!(shares(2, 5), [0, 2]);
        assert!(shares(0, 3).is_empty());
    }

    #[test]
    fn a_block_is_read_where_most_of_it_is() {
        let blocks = [at(&[("a", 1, 0), ("b", 3, 0)]), at(&[("a", 4, 0)])];
        assert_eq!(by_places(&blocks, &hosts(&["a", "b"])), [1, 0]);
    }

    #[test]
    fn of_two_copies_the_one_on_the_faster_disk_is_read() {
        let two = at(&[("slow", 4, 10), ("fast", 4, 40)]);
        assert_eq!(by_places(&[two], &hosts(&["slow", "fast"])), [1]);
    }

    #[test]
    fn a_machine_keeps_room_for_what_no_other_has() {
        let both = at(&[("a", 4, 40), ("b", 4, 41)]);
        let blocks = [vec![both; 4], vec![at(&[("b", 4, 41)])]].concat();
        assert_eq!(by_places(&blocks, &hosts(&["a", "b"])), [1, 0, 1, 0, 1]);
    }

    #[test]
    fn what_one_machine_has_too_much_of_is_read_by_others() {
        let blocks = vec![at(&[("a", 4, 0)]); 8];
        let of = by_places(&blocks, &hosts(&["a", "b", "c", "d"]));
        let counts = [0, 1, 2, 3].map(|rank| of.iter().filter(|of| **of == rank).count());
        assert_eq!(counts, [2; 4]);
    }

    #[test]
    fn processes_of_one_machine_share_its_blocks() {
        let blocks = [vec![at(&[("a", 4, 0)]); 4], vec![at(&[("b", 4, 0)]); 2]].concat();
        let of = by_places(&blocks, &hosts(&["a", "a", "b"]));
        assert_eq!(of, [0, 1, 0, 1, 2, 2]);
    }
}
