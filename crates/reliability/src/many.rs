//! Many groups that fail independently: the mean time until the first one loses data.

use crate::chain::Chain;
use crate::odds;

/// Steps of the integration per factor e of time. The integrand is analytic and
/// falls off on both sides, so the trapezoid rule converges exponentially.
const STEPS_PER_E: f64 = 5.0;

/// The integration begins this many factors of e below the scale of the result. The part below is
/// `exp(-37)` of it.
const BEFORE: f64 = 37.0;

/// The integration ends this many factors of e above the mean of the slowest group: survival falls
/// as `exp(-time / mean)`, and `exp(5) = 148` means are beyond any precision.
const AFTER: f64 = 5.0;

/// Mean hours until the first of `groups` equal, independent groups loses data. The number need not
/// be an integer.
///
/// It is the integral of the probability that all groups survive. If groups are repaired much
/// faster than they are lost, that is the mean time of one group divided by their number. Otherwise
/// the quotient would be too small.
pub fn mean_time_to_first_loss(group: &Chain, groups: f64) -> f64 {
    let one = group.mean_time_to_loss();
    if groups == 1.0 || !one.is_finite() {
        return one;
    }
    // Integrates over x, the logarithm of the time t: dt = t dx.
    let start = (one / groups).ln() - BEFORE;
    let steps = ((one.ln() + AFTER - start) * STEPS_PER_E).ceil().max(0.0) as u32;
    let mut sum = 0.0;
    for step in 0..=steps {
        let time = f64::exp(start + f64::from(step) / STEPS_PER_E);
        let survive = odds::all_spared(group.loss_within(time), groups);
        sum += time * survive;
        if survive < 1e-30 {
            break;
        }
    }
    sum / STEPS_PER_E
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64, relative: f64) {
        assert!((a - b).abs() <= relative * b.abs(), "{a:e} is not {b:e}");
    }

    #[test]
    fn the_first_of_many_disks_fails_so_many_times_sooner() {
        let mut disk = Chain::new(1);
        disk.lose(0, 1e-6);
        for groups in [2.0, 3.5, 100.0, 100_000.0] {
            close(mean_time_to_first_loss(&disk, groups), 1e6 / groups, 1e-9);
        }
    }

    /// Pairs without repair: one survives with probability `2 exp(-t) - exp(-2t)`. For two, the
    /// integral of its square is 4/2 - 4/3 + 1/4.
    #[test]
    fn groups_without_repair_last_longer_than_the_quotient_says() {
        let mut pair = Chain::new(2);
        pair.jump(0, 1, 2.0);
        pair.lose(1, 1.0);
        close(mean_time_to_first_loss(&pair, 1.0), 1.5, 1e-14);
        close(mean_time_to_first_loss(&pair, 2.0), 2.0 - 4.0 / 3.0 + 0.25, 1e-9);
    }
}
