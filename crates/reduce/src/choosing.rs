//! Chooses which of the waiting files form the next set.

use crate::candidate::Candidate;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use weir_layout::set::{Arrangement, SetCode};
use weir_types::TargetId;

/// Number of waiting files that are considered for a place in a set.
const LOOK_AHEAD: usize = 1000;

/// Chooses the members of a set, in their order. The first choice are files that spread the reads
/// evenly over the disks and are nearly as long as the first file. Then any file that fits.
pub fn choose(
    waiting: &VecDeque<Candidate>,
    arrangement: &mut Arrangement,
    (code, targets): (SetCode, usize),
) -> Vec<(usize, Vec<TargetId>)> {
    let mut chosen: BTreeMap<usize, Vec<TargetId>> = BTreeMap::new();
    let mut load: BTreeMap<TargetId, usize> = BTreeMap::new();
    // A file that does not fit among few members does not fit among more.
    let mut refused = BTreeSet::new();
    let (copies, longest) = waiting.front().map_or((0, 0), |first| (first.copies.len(), first.len));
    let even = (code.members() * copies).div_ceil(targets);
    for at_most in [Some(even), Some(even + 1), None] {
        for (i, candidate) in waiting.iter().enumerate().take(LOOK_AHEAD) {
            if arrangement.is_full() {
                break;
            }
            let fits = |at_most| {
                let loads = candidate.copies.keys().filter_map(|target| load.get(target));
                loads.max().is_none_or(|most| *most < at_most) && candidate.len >= longest / 8 * 7
            };
            if chosen.contains_key(&i) || refused.contains(&i) || !at_most.is_none_or(fits) {
                continue;
            }
            let held: Vec<TargetId> = candidate.copies.keys().copied().collect();
            let Some(targets) = arrangement.add(&held, false) else {
                refused.insert(i);
                continue;
            };
            chosen.insert(i, targets);
            held.iter().for_each(|target| *load.entry(*target).or_default() += 1);
        }
    }
    chosen.into_iter().collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // A panic is how a test fails.
mod tests {
    use super::*;
    use crate::copy::Copy;
    use weir_layout::Home;
    use weir_layout::set::Site;
    use weir_types::ServerId;

    /// Eight files of each of ten nodes, in the order in which they wait. The node's own disk has a
    /// copy of each of its files.
    fn of_nodes(len: impl Fn(usize) -> u64) -> VecDeque<Candidate> {
        let file = |n: usize| {
            let (node, step) = (n / 8, 1 + n % 8);
            let targets = [node, node + step, node + step + 1];
            let copy = Copy {
                len: len(n),
                modified: (0, 0),
                changed: (0, 0),
                id: (0, n as u64),
                mode: 0,
                owner: (0, 0),
            };
            Candidate {
                path: format!("node{node}/file{n}"),
                copies: targets.map(|t| (TargetId(t as u32 % 10), copy)).into_iter().collect(),
                len: len(n),
                expected: None,
                again: 0,
                sets: Vec::new(),
            }
        };
        (0..80).map(file).collect()
    }

    fn chosen(waiting: &VecDeque<Candidate>) -> Vec<usize> {
        let site = |n| Site { target: TargetId(n), home: Home::alone(ServerId(n)) };
        let sites: Vec<Site> = (0..10).map(site).collect();
        let code: SetCode = "raid6".parse().unwrap();
        let mut arrangement = Arrangement::new(code, &sites).unwrap();
        choose(waiting, &mut arrangement, (code, 10)).into_iter().map(|(i, _)| i).collect()
    }

    #[test]
    fn no_disk_has_most_of_what_is_read_for_a_set() {
        let waiting = of_nodes(|_| 1000);
        let members = chosen(&waiting);
        assert_eq!(members.len(), 8);
        let reads = |target| {
            let all = members.iter().filter(|i| waiting[**i].copies.contains_key(&target));
            all.count()
        };
        let most = (0..10).map(TargetId).map(reads).max();
        // 24 copies on 10 disks; all files of the first node would be 8 on its disk.
        assert!(most <= Some(3), "{most:?}: {members:?}");
    }

    #[test]
    fn files_of_one_length_are_together_even_if_one_disk_has_all_of_them() {
        let waiting = of_nodes(|n| if n < 8 { 1000 } else { 10 });
        assert_eq!(chosen(&waiting), [0, 1, 2, 3, 4, 5, 6, 7]);
    }
}
