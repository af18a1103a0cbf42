//! Association rules from frequent itemsets: how often a transaction with the left side also has
//! the right side. No I/O.

use crate::apriori::{Sets, candidates};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Frequent itemsets, each with the number of transactions that contain it.
pub type Frequent = BTreeMap<Vec<u32>, u64>;

/// Maximum number of rules.
pub const MAX_RULES: usize = 1 << 22;

/// A rule: transactions with the left side often have the right side too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The left side.
    pub left: Vec<u32>,
    /// The right side.
    pub right: Vec<u32>,
    /// Number of transactions with both sides.
    pub support: u64,
    /// Number of transactions with the left side.
    pub left_support: u64,
}

impl Rule {
    /// Share of the transactions with the left side that have the right side.
    #[must_use]
    pub fn confidence(&self) -> f64 {
        self.support as f64 / self.left_support as f64
    }

    fn of(frequent: &Frequent, whole: &[u32], right: &[u32], support: u64) -> Option<Self> {
        let left: Vec<u32> = whole.iter().copied().filter(|item| !right.contains(item)).collect();
        let left_support = *frequent.get(&left)?;
        Some(Self { left, right: right.to_vec(), support, left_support })
    }
}

/// All rules with at least this confidence: highest confidence first, then most frequent first.
///
/// # Errors
/// There are more than [`MAX_RULES`].
pub fn rules(frequent: &Frequent, confidence: f64) -> Result<Vec<Rule>, String> {
    let mut found = Vec::new();
    for (whole, support) in frequent.iter().filter(|(set, _)| set.len() > 1) {
        // More items on the right side never raise the confidence, so right sides grow as
        // candidates do.
        let mut rights = Sets { size: 1, items: whole.clone() };
        while !rights.is_empty() && rights.size < whole.len() {
            let mut sure = Sets { size: rights.size, items: Vec::new() };
            for right in rights.iter() {
                let rule = Rule::of(frequent, whole, right, *support);
                if let Some(rule) = rule.filter(|rule| rule.confidence() >= confidence) {
                    sure.items.extend_from_slice(right);
                    found.push(rule);
                }
            }
            if found.len() > MAX_RULES {
                return Err(format!("more than {MAX_RULES} rules: ask for more --confidence"));
            }
            rights = candidates(&sure).map_err(|e| e.to_string())?;
        }
    }
    sort(&mut found);
    Ok(found)
}

/// Sorts rules in the order of the report.
pub fn sort(rules: &mut [Rule]) {
    rules.sort_by(|a, b| {
        // Compares a.support / a.left with b.support / b.left, exactly.
        let cross =
            |one: &Rule, other: &Rule| u128::from(one.support) * u128::from(other.left_support);
        let rest = |rule: &Rule| (Reverse(rule.support), rule.left.clone(), rule.right.clone());
        cross(b, a).cmp(&cross(a, b)).then_with(|| rest(a).cmp(&rest(b)))
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_has_the_support_of_both_sides_and_the_confidence_of_the_left() {
        let of = |items: &[u32], count| (items.to_vec(), count);
        let frequent: Frequent = [
            of(&[1], 4),
            of(&[2], 5),
            of(&[3], 6),
            of(&[1, 2], 3),
            of(&[1, 3], 4),
            of(&[2, 3], 4),
            of(&[1, 2, 3], 3),
        ]
        .into();
        let found = rules(&frequent, 0.75).unwrap();
        let told: Vec<(&[u32], &[u32], u64, u64)> =
            found.iter().map(|r| (&r.left[..], &r.right[..], r.support, r.left_support)).collect();
        let expected: [(&[u32], &[u32], u64, u64); 7] = [
            (&[1], &[3], 4, 4),
            (&[1, 2], &[3], 3, 3),
            (&[2], &[3], 4, 5),
            (&[1], &[2], 3, 4),
            (&[1], &[2, 3], 3, 4),
            (&[1, 3], &[2], 3, 4),
            (&[2, 3], &[1], 3, 4),
        ];
        assert_eq!(told, expected);
        assert_eq!(rules(&frequent, 1.0).unwrap().len(), 2);
    }
}
