//! Candidates and their counts: which itemsets may be frequent, and how many transactions contain
//! each. No I/O.
//!
//! Invariant: the frequent itemsets alone determine the candidates and their order. So all clients
//! count the same candidates, and their counts are added position by position.

use std::fmt;

/// Maximum number of candidates in a pass: 128 MiB of counts.
pub const MAX_CANDIDATES: usize = 1 << 24;

/// Itemsets of one size, each in ascending order, and sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sets {
    /// Number of items in each set.
    pub size: usize,
    /// The items of all sets, one set after another.
    pub items: Vec<u32>,
}

impl Sets {
    /// Number of sets.
    #[must_use]
    pub fn len(&self) -> usize {
        self.items.len().checked_div(self.size).unwrap_or_default()
    }

    /// Whether there are no sets.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Each set.
    pub fn iter(&self) -> impl Iterator<Item = &[u32]> {
        self.items.chunks_exact(self.size.max(1))
    }

    fn get(&self, at: usize) -> &[u32] {
        &self.items[at * self.size..(at + 1) * self.size]
    }

    fn contains(&self, set: impl Fn(usize) -> u32) -> bool {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            let found = self.get(middle);
            match (0..self.size).map(|i| found[i].cmp(&set(i))).find(|order| order.is_ne()) {
                None => return true,
                Some(std::cmp::Ordering::Less) => low = middle + 1,
                Some(_) => high = middle,
            }
        }
        false
    }
}

/// A pass has too many candidates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany {
    /// Number of items in each candidate.
    pub size: usize,
}

impl fmt::Display for TooMany {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = self.size;
        write!(
            f,
            "more than {MAX_CANDIDATES} candidates of {size} items: ask for a greater --support"
        )
    }
}

/// The itemsets with one more item whose subsets may all be frequent. Pairs of sets that differ
/// only in their last items are joined, and dropped if any subset is not frequent.
///
/// # Errors
/// There are too many.
pub fn candidates(frequent: &Sets) -> Result<Sets, TooMany> {
    let (old, size) = (frequent.size, frequent.size + 1);
    let mut joined = Sets { size, items: Vec::new() };
    for first in 0..frequent.len() {
        let one = frequent.get(first);
        for second in first + 1..frequent.len() {
            let other = frequent.get(second);
            if one[..old - 1] != other[..old - 1] {
                break;
            }
            let last = other[old - 1];
            let whole = |i: usize| if i < old { one[i] } else { last };
            // Without its last item, or the one before it, the candidate is one of the two joined
            // sets.
            let is_possible = (0..old - 1)
                .all(|without| frequent.contains(|i| whole(if i < without { i } else { i + 1 })));
            if is_possible {
                joined.items.extend_from_slice(one);
                joined.items.push(last);
                if joined.len() > MAX_CANDIDATES {
                    return Err(TooMany { size });
                }
            }
        }
    }
    Ok(joined)
}

/// Counts the transactions that contain each candidate.
pub struct Counter {
    counts: Vec<u64>,
    /// Whether any candidate has the item with this number.
    is_used: Vec<bool>,
    kind: Kind,
    kept: Vec<u32>,
}

enum Kind {
    /// All pairs of `items` items, numbered by their ranks.
    Pairs { ranks: Vec<u32>, items: usize },
    /// A tree of the candidates' prefixes.
    Tree(Vec<Level>),
}

/// The nodes at one depth, sorted below each parent.
#[derive(Default)]
struct Level {
    items: Vec<u32>,
    /// Index of each node's first child. The children of a node end where those of the next begin.
    children: Vec<usize>,
}

impl Counter {
    /// A counter for the candidates that follow from these frequent sets.
    ///
    /// # Errors
    /// There are too many.
    pub fn new(frequent: &Sets) -> Result<Self, TooMany> {
        let mut is_used = vec![false; frequent.items.iter().max().map_or(0, |i| *i as usize + 1)];
        if frequent.size == 1 {
            let items = frequent.len();
            let pairs = items * items.saturating_sub(1) / 2;
            if pairs > MAX_CANDIDATES {
                return Err(TooMany { size: 2 });
            }
            let mut ranks = vec![0; is_used.len()];
            for (rank, item) in frequent.items.iter().enumerate() {
                (ranks[*item as usize], is_used[*item as usize]) = (rank as u32, true);
            }
            let kind = Kind::Pairs { ranks, items };
            return Ok(Self { counts: vec![0; pairs], is_used, kind, kept: Vec::new() });
        }
        let candidates = candidates(frequent)?;
        candidates.items.iter().for_each(|item| is_used[*item as usize] = true);
        let (counts, kind) = (vec![0; candidates.len()], Kind::Tree(tree(&candidates)));
        Ok(Self { counts, is_used, kind, kept: Vec::new() })
    }

    /// Counts a transaction. Its items must be in ascending order.
    pub fn add(&mut self, items: &[u32]) {
        self.kept.clear();
        let is_used = |item: &u32| self.is_used.get(*item as usize) == Some(&true);
        self.kept.extend(items.iter().copied().filter(is_used));
        match &self.kind {
            Kind::Pairs { ranks, items } => {
                for (n, one) in self.kept.iter().enumerate() {
                    let one = ranks[*one as usize] as usize;
                    // Index of the first pair with this item.
                    let begin = one * (2 * items - one - 1) / 2;
                    for other in &self.kept[n + 1..] {
                        let other = ranks[*other as usize] as usize;
                        self.counts[begin + other - one - 1] += 1;
                    }
                }
            }
            Kind::Tree(levels) => {
                if let Some(first) = levels.first() {
                    walk(levels, 0..first.items.len(), &self.kept, &mut self.counts);
                }
            }
        }
    }

    /// The counts, in the order of [`candidates`].
    #[must_use]
    pub fn counts(self) -> Vec<u64> {
        self.counts
    }
}

fn tree(candidates: &Sets) -> Vec<Level> {
    let mut levels: Vec<Level> = (0..candidates.size).map(|_| Level::default()).collect();
    let mut before: Option<&[u32]> = None;
    for set in candidates.iter() {
        let common = before.map_or(0, |b| b.iter().zip(set).take_while(|(a, b)| a == b).count());
        for depth in common..set.len() {
            let children = levels.get(depth + 1).map_or(0, |next| next.items.len());
            levels[depth].items.push(set[depth]);
            levels[depth].children.push(children);
        }
        before = Some(set);
    }
    for depth in 0..levels.len() {
        let end = levels.get(depth + 1).map_or(0, |next| next.items.len());
        levels[depth].children.push(end);
    }
    levels
}

/// Counts the candidates below these nodes that are contained in the items. A node of the last
/// level is the candidate with the same number.
fn walk(levels: &[Level], mut nodes: std::ops::Range<usize>, items: &[u32], counts: &mut [u64]) {
    let Some((level, below)) = levels.split_first() else { return };
    for (n, item) in items.iter().enumerate() {
        if items.len() - n < levels.len() {
            return;
        }
        match level.items[nodes.clone()].binary_search(item) {
            Ok(at) => {
                let node = nodes.start + at;
                if below.is_empty() {
                    counts[node] += 1;
                } else {
                    let children = level.children[node]..level.children[node + 1];
                    walk(below, children, &items[n + 1..], counts);
                }
                nodes.start = node + 1;
            }
            Err(at) => nodes.start += at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn candidates_are_joined_and_pruned() {
        // The example of Agrawal and Srikant: {1,3,4,5} contains {1,4,5}, which is not frequent.
        let frequent = Sets {
            size: 3,
            items: [[1, 2, 3], [1, 2, 4], [1, 3, 4], [1, 3, 5], [2, 3, 4]].concat(),
        };
        assert_eq!(candidates(&frequent).unwrap(), Sets { size: 4, items: vec![1, 2, 3, 4] });
        let none = Sets { size: 1, items: vec![] };
        assert!(candidates(&none).unwrap().is_empty());
    }

    #[test]
    fn too_many_candidates_are_refused_before_memory_is_taken() {
        let many = Sets { size: 1, items: (0..100_000).collect() };
        assert_eq!(Counter::new(&many).err(), Some(TooMany { size: 2 }));
        assert_eq!(candidates(&many), Err(TooMany { size: 2 }));
    }

    proptest! {
        #[test]
        fn each_candidate_is_counted_in_each_transaction_that_has_it(
            transactions in prop::collection::vec(prop::collection::btree_set(0u32..12, 1..10), 1..30),
            size in 1usize..4,
            part in prop::collection::vec(any::<bool>(), 300),
        ) {
            // Random sets of this size, in order.
            let mut all = vec![Vec::new()];
            for _ in 0..size {
                let longer = |set: &Vec<u32>| {
                    let set = set.clone();
                    let from = set.last().map_or(0, |last| last + 1);
                    (from..12).map(move |item| [&set[..], &[item]].concat()).collect::<Vec<_>>()
                };
                all = all.iter().flat_map(longer).collect();
            }
            let kept = all.into_iter().zip(part).filter(|(_, kept)| *kept).map(|(set, _)| set);
            let frequent = Sets { size, items: kept.flatten().collect() };
            let expected = candidates(&frequent).unwrap();
            let mut counter = Counter::new(&frequent).unwrap();
            let sorted: Vec<Vec<u32>> =
                transactions.iter().map(|items| items.iter().copied().collect()).collect();
            sorted.iter().for_each(|items| counter.add(items));
            let has = |set: &[u32]| {
                transactions.iter().filter(|t| set.iter().all(|item| t.contains(item))).count() as u64
            };
            let counts: Vec<u64> = expected.iter().map(has).collect();
            prop_assert_eq!(counter.counts(), counts);
        }
    }
}
