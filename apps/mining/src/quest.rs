//! Transactions like those of the generator of IBM's Quest project. Items are bought in patterns,
//! consecutive patterns share items, and a customer leaves out a part of a pattern.
//!
//! Lengths are 1 + Poisson. Weights of items and patterns are exponential, and the bought share of
//! a pattern is normal. A pattern that does not fit is moved to the next transaction in half of the
//! cases.

use fastrand::Rng;

/// Parameters of the generator.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// Mean number of items in a transaction.
    pub length: f64,
    /// Number of different items.
    pub items: u32,
    /// Number of patterns.
    pub patterns: u32,
    /// Mean number of items in a pattern.
    pub pattern_length: f64,
    /// Mean share of a pattern's items that come from the previous pattern.
    pub correlation: f64,
    /// Mean share of a pattern that is bought.
    pub kept: f64,
    /// Seed of the contents.
    pub seed: u64,
}

/// Variance of the bought share.
const VARIANCE: f64 = 0.1;

struct Pattern {
    items: Vec<u32>,
    kept: f64,
}

/// An endless generator of transactions.
pub struct Quest {
    rng: Rng,
    length: f64,
    patterns: Vec<Pattern>,
    weights: Vec<f64>,
    /// The pattern that did not fit the last transaction.
    waiting: Option<Vec<u32>>,
}

impl Quest {
    /// A generator whose patterns follow from the seed.
    #[must_use]
    pub fn new(spec: Spec) -> Self {
        let mut rng = Rng::with_seed(spec.seed);
        let item_weights = weights(spec.items, &mut rng);
        let mut patterns: Vec<Pattern> = Vec::with_capacity(spec.patterns as usize);
        for _ in 0..spec.patterns {
            let length =
                (1 + poisson(spec.pattern_length - 1.0, &mut rng)).min(spec.items as usize);
            let mut items = Vec::with_capacity(length);
            if let Some(before) = patterns.last() {
                let shared = (length as f64 * spec.correlation * exponential(&mut rng)).round();
                let shared = (shared as usize).min(length).min(before.items.len());
                let mut from = before.items.clone();
                rng.shuffle(&mut from);
                items.extend_from_slice(&from[..shared]);
            }
            while items.len() < length {
                let item = pick(&item_weights, &mut rng) as u32;
                // Rare items are chosen by number, so that the loop ends.
                let is_new = |item: &u32| !items.contains(item);
                let item = Some(item).filter(is_new).or_else(|| {
                    let from = rng.u32(0..spec.items);
                    (from..spec.items).chain(0..from).find(is_new)
                });
                items.extend(item);
            }
            let kept = spec.kept + VARIANCE.sqrt() * normal(&mut rng);
            patterns.push(Pattern { items, kept });
        }
        let weights = weights(spec.patterns, &mut rng);
        Self { rng, length: spec.length, patterns, weights, waiting: None }
    }

    /// The next transaction: its items in ascending order, at least one.
    pub fn transaction(&mut self) -> Vec<u32> {
        loop {
            let length = 1 + poisson(self.length - 1.0, &mut self.rng);
            let mut items: Vec<u32> = Vec::with_capacity(length);
            while items.len() < length {
                let mut part = self.waiting.take().unwrap_or_else(|| self.bought());
                let fits = items.len() + part.len() <= length;
                if !fits && !items.is_empty() && self.rng.bool() {
                    self.waiting = Some(part);
                    break;
                }
                items.append(&mut part);
                if !fits {
                    break;
                }
            }
            items.sort_unstable();
            items.dedup();
            if !items.is_empty() {
                return items;
            }
        }
    }

    /// The bought part of a pattern.
    fn bought(&mut self) -> Vec<u32> {
        let pattern = &self.patterns[pick(&self.weights, &mut self.rng)];
        let mut items = pattern.items.clone();
        while items.len() > 1 && self.rng.f64() > pattern.kept {
            items.swap_remove(self.rng.usize(0..items.len()));
        }
        items
    }
}

/// Cumulative sums of exponential weights; the last one is the total.
fn weights(count: u32, rng: &mut Rng) -> Vec<f64> {
    let sums = (0..count).scan(0.0, |sum, _| {
        *sum += exponential(rng);
        Some(*sum)
    });
    sums.collect()
}

fn pick(sums: &[f64], rng: &mut Rng) -> usize {
    let at = rng.f64() * sums.last().copied().unwrap_or_default();
    sums.partition_point(|sum| *sum <= at).min(sums.len().saturating_sub(1))
}

fn exponential(rng: &mut Rng) -> f64 {
    -(1.0 - rng.f64()).ln()
}

fn normal(rng: &mut Rng) -> f64 {
    (2.0 * exponential(rng)).sqrt() * (std::f64::consts::TAU * rng.f64()).cos()
}

/// A Poisson-distributed number: events at mean distance 1 within `mean`.
fn poisson(mean: f64, rng: &mut Rng) -> usize {
    let (mut events, mut at) = (0, exponential(rng));
    while at < mean {
        events += 1;
        at += exponential(rng);
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEC: Spec = Spec {
        length: 10.0,
        items: 100,
        patterns: 30,
        pattern_length: 4.0,
        correlation: 0.25,
        kept: 0.75,
        seed: 3,
    };

    #[test]
    fn transactions_have_their_mean_length_and_follow_from_the_seed() {
        let make = |seed| {
            let mut quest = Quest::new(Spec { seed, ..SPEC });
            (0..5000).map(|_| quest.transaction()).collect::<Vec<_>>()
        };
        let all = make(3);
        assert!(all == make(3) && all != make(4));
        let mean = all.iter().map(Vec::len).sum::<usize>() as f64 / all.len() as f64;
        assert!((6.0..12.0).contains(&mean), "{mean}");
        for items in &all {
            assert!(
                !items.is_empty()
                    && items.is_sorted_by(|a, b| a < b)
                    && items.iter().all(|i| *i < 100)
            );
        }
        // Because of the patterns, some pair is bought far more often than by chance.
        let pairs =
            |a: u32, b: u32| all.iter().filter(|t| t.contains(&a) && t.contains(&b)).count();
        let most =
            (0..100).flat_map(|a| (0..a).map(move |b| (a, b))).map(|(a, b)| pairs(a, b)).max();
        assert!(most > Some(5000 / 20), "{most:?}");
    }

    #[test]
    fn more_items_in_a_pattern_than_there_are_end_all_the_same() {
        let spec = Spec { items: 3, patterns: 5, pattern_length: 50.0, ..SPEC };
        assert!(Quest::new(spec).transaction().len() <= 3);
    }
}
