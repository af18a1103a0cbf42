//! Mean and standard deviation.

/// Of several trials.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    pub mean: f64,
    /// Of the sample; 0 of one value.
    pub deviation: f64,
}

impl Spread {
    /// Of no value: zero.
    pub fn of(values: &[f64]) -> Self {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count.max(1.0);
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        Self { mean, deviation: (squares / (count - 1.0).max(1.0)).sqrt() }
    }
}

#[cfg(test)]
mod tests {
    use super::Spread;

    #[test]
    fn deviation_is_that_of_a_sample() {
        assert_eq!(Spread::of(&[1.0, 3.0]), Spread { mean: 2.0, deviation: 2f64.sqrt() });
        assert_eq!(Spread::of(&[5.0]), Spread { mean: 5.0, deviation: 0.0 });
        assert_eq!(Spread::of(&[]), Spread::default());
    }
}
