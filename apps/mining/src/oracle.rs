//! An independent way to the same result, for comparison: all transactions in memory, lists of
//! transactions that are intersected depth first (Eclat), and rules by trying every subset.

use crate::rules::{Frequent, Rule, sort};

/// The longest itemset of which all subsets are tried.
const MAX_PARTS: usize = 20;

/// All transactions of a file.
#[derive(Default)]
pub struct Oracle {
    /// For each item, the transactions that contain it.
    lists: Vec<Vec<u32>>,
    transactions: u32,
}

impl Oracle {
    /// Adds a transaction.
    pub fn add(&mut self, items: &[u32]) {
        for item in items {
            let item = *item as usize;
            if self.lists.len() <= item {
                self.lists.resize_with(item + 1, Vec::new);
            }
            self.lists[item].push(self.transactions);
        }
        self.transactions += 1;
    }

    /// The itemsets of at most `most_items` items that are in at least `least` transactions.
    #[must_use]
    pub fn frequent(&self, least: u64, most_items: usize) -> Frequent {
        let mut found = Frequent::new();
        let items = self.lists.iter().enumerate().map(|(item, list)| (item as u32, list.clone()));
        let frequent: Vec<(u32, Vec<u32>)> =
            items.filter(|(_, list)| !list.is_empty() && list.len() as u64 >= least).collect();
        grow(&[], &frequent, least, most_items, &mut found);
        found
    }
}

fn grow(
    begin: &[u32],
    lists: &[(u32, Vec<u32>)],
    least: u64,
    most_items: usize,
    found: &mut Frequent,
) {
    for (n, (item, list)) in lists.iter().enumerate() {
        let set = [begin, &[*item]].concat();
        if set.len() < most_items {
            let both = lists[n + 1..].iter().map(|(other, of)| (*other, intersect(list, of)));
            let longer: Vec<_> = both.filter(|(_, both)| both.len() as u64 >= least).collect();
            grow(&set, &longer, least, most_items, found);
        }
        found.insert(set, list.len() as u64);
    }
}

fn intersect(one: &[u32], other: &[u32]) -> Vec<u32> {
    let (mut both, mut rest) = (Vec::new(), other.iter().peekable());
    for number in one {
        while rest.next_if(|next| *next < number).is_some() {}
        if rest.next_if_eq(&number).is_some() {
            both.push(*number);
        }
    }
    both
}

/// The rules, by trying every subset of every itemset as right side.
///
/// # Errors
/// An itemset is too long.
pub fn rules(frequent: &Frequent, confidence: f64) -> Result<Vec<Rule>, String> {
    let mut found = Vec::new();
    for (whole, support) in frequent {
        if whole.len() > MAX_PARTS {
            let most = 1usize << MAX_PARTS;
            return Err(format!(
                "an itemset has more than {most} parts to try: ask for a greater --support"
            ));
        }
        for part in 1u32..(1 << whole.len()) - 1 {
            let side = |right: bool| {
                let is_in = |n: usize| (part >> n & 1 == 1) == right;
                let items = whole.iter().enumerate().filter(|(n, _)| is_in(*n));
                items.map(|(_, item)| *item).collect::<Vec<u32>>()
            };
            let (left, right) = (side(false), side(true));
            let left_support = frequent.get(&left).copied().unwrap_or_default();
            let rule = Rule { left, right, support: *support, left_support };
            if rule.confidence() >= confidence {
                found.push(rule);
            }
        }
    }
    sort(&mut found);
    Ok(found)
}
