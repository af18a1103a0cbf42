//! Transactions like those of the generator of IBM's Quest project: items are bought in patterns,
//! patterns share items with the one before, and a customer leaves out a part of a pattern.
//!
//! Lengths are 1 + Poisson. Weights of items and patterns are exponential, and the part of a
//! pattern that is kept is normal. A pattern that does not fit goes to the next transaction half
//! of the times.

use fastrand::Rng;

/// What is generated.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// Mean items of a transaction.
    pub length: f64,
    /// Different items.
    pub items: u32,
    /// Patterns.
    pub patterns: u32,
    /// Mean items of a pattern.
    pub pattern_length: f64,
    /// Mean part of a pattern that is of the one before.
    pub correlation: f64,
    /// Mean part of a pattern that is bought.
    pub kept: f64,
    /// Decides the contents.
    pub seed: u64,
}

/// Variance of the part that is bought.
const VARIANCE: f64 = 0.1;

struct Pattern {
    items: Vec<u32>,
    kept: f64,
}

/// Makes transactions without an end.
pub struct Quest {
    rng: Rng,
    length: f64,
    patterns: Vec<Pattern>,
    weights: Vec<f64>,
    /// The pattern that did not fit into the last transaction.
    waiting: Option<Vec<u32>>,
}

impl Quest {
    /// With patterns that follow from the seed.
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
                // Rare items are found by number, so that this ends.
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

    /// What is bought of a pattern.
    fn bought(&mut self) -> Vec<u32> {
        let pattern = &self.patterns[pick(&self.weights, &mut self.rng)];
        let mut items = pattern.items.clone();
        while items.len() > 1 && self.rng.f64() > pattern.kept {
            items.swap_remove(self.rng.usize(0..items.len()));
        }
        items
    }
}

/// Sums of exponential weights, the last of which is the whole.
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

/// As many events of a mean distance of 1 as fit into the mean.
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
        // Patterns: some pair is bought far more often than chance has it.
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
