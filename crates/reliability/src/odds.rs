//! Probabilities of repeated independent events, without cancellation.

/// Probability that at least one of `times` independent events of probability
/// `p` happens.
pub fn any(p: f64, times: f64) -> f64 {
    if p >= 1.0 {
        return if times > 0.0 { 1.0 } else { 0.0 };
    }
    -f64::exp_m1(times * f64::ln_1p(-p))
}

/// Probability that none of `times` independent events of probability `p` happens.
pub fn all_spared(p: f64, times: f64) -> f64 {
    if p >= 1.0 {
        return if times > 0.0 { 0.0 } else { 1.0 };
    }
    f64::exp(times * f64::ln_1p(-p))
}

/// Probability that exactly `k` of `n` independent events happen.
pub fn exactly(k: u32, n: u32, p: f64) -> f64 {
    if k > n {
        return 0.0;
    }
    choose(f64::from(n), k) * p.powi(k as i32) * all_spared(p, f64::from(n - k))
}

/// Probability that more than `k` of `n` independent events happen.
pub fn more_than(k: u32, n: u32, p: f64) -> f64 {
    if f64::from(n) * p > f64::from(k) + 1.0 {
        // The result is not small here, so the subtraction loses no precision.
        return f64::max(1.0 - (0..=k).map(|i| exactly(i, n, p)).sum::<f64>(), 0.0);
    }
    let mut term = exactly(k + 1, n, p);
    let mut sum = 0.0;
    for i in k + 1..=n {
        sum += term;
        if term <= sum * 1e-18 {
            break;
        }
        term *= f64::from(n - i) / f64::from(i + 1) * p / (1.0 - p);
    }
    sum
}

/// The binomial coefficient: ways to choose `k` of `n`.
pub fn choose(n: f64, k: u32) -> f64 {
    (0..k).map(f64::from).map(|i| (n - i).max(0.0) / (i + 1.0)).product()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_and_many_agree_with_what_can_be_counted() {
        assert_eq!(choose(5.0, 2), 10.0);
        assert_eq!(choose(3.0, 4), 0.0);
        assert_eq!(choose(7.0, 0), 1.0);
        assert!((any(0.5, 3.0) - 0.875).abs() < 1e-15);
        assert!((all_spared(0.5, 3.0) - 0.125).abs() < 1e-15);
        assert_eq!((any(1.0, 2.0), all_spared(1.0, 2.0), any(1.0, 0.0)), (1.0, 0.0, 0.0));
        assert!((any(1e-20, 1e3) / 1e-17 - 1.0).abs() < 1e-12);
        assert!((more_than(1, 3, 0.5) - 0.5).abs() < 1e-15);
        assert!((more_than(0, 4, 1e-18) / 4e-18 - 1.0).abs() < 1e-12);
        assert_eq!(more_than(3, 3, 0.9), 0.0);
        assert!((more_than(2, 5000, 0.9) - 1.0).abs() < 1e-12);
    }
}
