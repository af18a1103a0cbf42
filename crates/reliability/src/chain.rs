//! Absorbing Markov chains in continuous time. A chain jumps between states at given rates, starts
//! in state 0, and has one absorbing state: loss.
//!
//! Invariant: nothing is subtracted, except one term that cannot cancel (see `step_matrix`). The
//! elimination is that of W. K. Grassmann, M. I. Taksar and D. P. Heyman ("Regenerative analysis
//! and steady state distributions for Markov chains", 1985) with the time spent as reward. It keeps
//! full precision where Gaussian elimination of `I - Q` would lose all of it.

/// An absorbing chain. Rates are per hour.
#[derive(Clone, Debug)]
pub struct Chain {
    states: usize,
    /// `rates[from * states + to]`; the diagonal is zero.
    rates: Vec<f64>,
    /// Rate from each state to loss.
    losses: Vec<f64>,
}

impl Chain {
    /// A chain with this many states and no transitions.
    pub fn new(states: usize) -> Self {
        Self { states, rates: vec![0.0; states * states], losses: vec![0.0; states] }
    }

    /// Adds a transition between two states. A transition from a state to itself has no effect.
    pub fn jump(&mut self, from: usize, to: usize, rate: f64) {
        if from != to {
            self.rates[from * self.states + to] += rate;
        }
    }

    /// Adds a transition to loss.
    pub fn lose(&mut self, from: usize, rate: f64) {
        self.losses[from] += rate;
    }

    /// Mean time from state 0 to loss, in hours; infinite if loss cannot be
    /// reached.
    pub fn mean_time_to_loss(&self) -> f64 {
        let n = self.states;
        let mut rates = self.rates.clone();
        let mut losses = self.losses.clone();
        // Mean time spent in states already eliminated, per unit of time in this state.
        let mut weights = vec![1.0; n];
        for last in (1..n).rev() {
            let ways = &rates[last * n..last * n + last];
            let out = losses[last] + ways.iter().sum::<f64>();
            let onward: Vec<(usize, f64)> =
                ways.iter().enumerate().filter(|(_, r)| **r > 0.0).map(|(j, r)| (j, *r)).collect();
            for from in 0..last {
                let into = rates[from * n + last];
                if into == 0.0 {
                    continue;
                }
                let share = into / out;
                for &(to, rate) in onward.iter().filter(|(to, _)| *to != from) {
                    rates[from * n + to] += share * rate;
                }
                losses[from] += share * losses[last];
                weights[from] += share * weights[last];
            }
        }
        weights[0] / losses[0]
    }

    /// Probability that loss is reached within this time, from state 0.
    pub fn loss_within(&self, hours: f64) -> f64 {
        let n = self.states;
        let out = |i: usize| self.losses[i] + self.rates[i * n..(i + 1) * n].iter().sum::<f64>();
        let fastest = (0..n).map(out).fold(0.0, f64::max);
        if !(fastest > 0.0 && hours > 0.0) {
            return 0.0;
        }
        // Twice the fastest rate, so that the probability to stay is at least one half.
        let tick_rate = 2.0 * fastest;
        let ticks = hours * tick_rate;
        let doublings = ticks.log2().ceil().max(0.0) as i32;
        let mut step = self.step_matrix(tick_rate, ticks / f64::powi(2.0, doublings));
        for _ in 0..doublings {
            step = normalised(product(&step, &step, n + 1), n + 1);
        }
        step[n]
    }

    /// Probabilities to be in each state (the last is loss) after `ticks` <= 1
    /// ticks of a clock of this rate: the exponential of the rates as a series
    /// of matrices without negative entries.
    fn step_matrix(&self, tick_rate: f64, ticks: f64) -> Vec<f64> {
        let (n, width) = (self.states, self.states + 1);
        let mut tick = vec![0.0; width * width];
        for from in 0..n {
            let mut out = self.losses[from];
            for to in 0..n {
                let rate = self.rates[from * n + to];
                tick[from * width + to] = rate / tick_rate;
                out += rate;
            }
            tick[from * width + n] = self.losses[from] / tick_rate;
            // `out` is at most half the tick rate.
            tick[from * width + from] = (tick_rate - out) / tick_rate;
        }
        tick[width * width - 1] = 1.0;
        // 1 / 28! is far below the precision of f64, even relative to the smallest entry, which
        // needs as many consecutive jumps as there are states.
        let mut sum = identity(width);
        for term in (1..=28 + width).rev() {
            let mut next = product(&tick, &sum, width);
            next.iter_mut().for_each(|x| *x *= ticks / term as f64);
            (0..width).for_each(|i| next[i * width + i] += 1.0);
            sum = next;
        }
        normalised(sum, width)
    }
}

fn identity(width: usize) -> Vec<f64> {
    let mut matrix = vec![0.0; width * width];
    (0..width).for_each(|i| matrix[i * width + i] = 1.0);
    matrix
}

fn product(a: &[f64], b: &[f64], width: usize) -> Vec<f64> {
    let mut c = vec![0.0; width * width];
    for i in 0..width {
        for (k, &x) in a[i * width..(i + 1) * width].iter().enumerate() {
            if x > 0.0 {
                let row = &b[k * width..(k + 1) * width];
                c[i * width..(i + 1) * width].iter_mut().zip(row).for_each(|(c, b)| *c += x * b);
            }
        }
    }
    c
}

/// Scales each row to the sum 1. Rounding errors would otherwise double with each squaring.
fn normalised(mut matrix: Vec<f64>, width: usize) -> Vec<f64> {
    for row in matrix.chunks_exact_mut(width) {
        let sum: f64 = row.iter().sum();
        row.iter_mut().for_each(|x| *x /= sum);
    }
    matrix
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64, relative: f64) {
        assert!((a - b).abs() <= relative * b.abs(), "{a:e} is not {b:e}");
    }

    /// Two copies that fail at rate `fail` and are repaired at rate `repair`.
    fn pair(fail: f64, repair: f64) -> Chain {
        let mut chain = Chain::new(2);
        chain.jump(0, 1, 2.0 * fail);
        chain.jump(1, 0, repair);
        chain.lose(1, fail);
        chain
    }

    #[test]
    fn one_disk_lasts_exponentially_long() {
        let mut disk = Chain::new(1);
        disk.lose(0, 0.01);
        close(disk.mean_time_to_loss(), 100.0, 1e-15);
        for hours in [1e-9, 1e-3, 1.0, 50.0, 400.0, 3000.0] {
            close(disk.loss_within(hours), -f64::exp_m1(-0.01 * hours), 1e-11);
        }
    }

    #[test]
    fn a_mirrored_pair_lasts_as_its_formula_says_at_any_scale() {
        for (fail, repair) in [(0.1, 1.0), (1e-6, 0.1), (1e-12, 1e6), (1.0, 1e-9)] {
            let expected = (3.0 * fail + repair) / (2.0 * fail * fail);
            close(pair(fail, repair).mean_time_to_loss(), expected, 1e-14);
        }
    }

    /// The survival of a pair is a sum of two exponentials.
    #[test]
    fn loss_within_a_time_agrees_with_the_closed_form() {
        let (fail, repair) = (0.02, 0.5);
        let sum: f64 = 3.0 * fail + repair;
        let root = (sum * sum - 8.0 * fail * fail).sqrt();
        let (slow, fast) = ((sum - root) / 2.0, (sum + root) / 2.0);
        for hours in [0.5, 5.0, 100.0, 2000.0, 20_000.0] {
            let survives =
                (fast * f64::exp(-slow * hours) - slow * f64::exp(-fast * hours)) / (fast - slow);
            close(pair(fail, repair).loss_within(hours), 1.0 - survives, 1e-9);
        }
    }

    #[test]
    fn tiny_probabilities_keep_their_digits() {
        // To first order: two failures within a time in which nothing is repaired.
        close(pair(1e-12, 1e-9).loss_within(1.0), 1e-24, 1e-6);
        // Long after the start: time over mean time.
        let chain = pair(1e-9, 0.1);
        close(chain.loss_within(1e4), 1e4 / chain.mean_time_to_loss(), 1e-2);
    }

    #[test]
    fn what_cannot_be_lost_is_not() {
        let mut chain = Chain::new(2);
        chain.jump(0, 1, 1.0);
        chain.jump(1, 0, 1.0);
        assert_eq!(chain.mean_time_to_loss(), f64::INFINITY);
        assert_eq!(chain.loss_within(1e6), 0.0);
        assert_eq!(pair(0.1, 1.0).loss_within(0.0), 0.0);
    }
}
