//! The input of a kernel: sources, outputs and factors.

use crate::gf::{MAX_POWER_ROWS, power};

/// Outputs that are computed in one pass over the sources.
pub(crate) const MAX_OUTPUTS: usize = 4;

/// A computation. Each source has a factor for each output; all sources and outputs have one
/// length.
pub(crate) struct Job<'a, 'b, const N: usize> {
    pub(super) factors: &'a [[u8; N]],
    pub(super) sources: &'a [&'a [u8]],
    pub(super) outputs: [&'b mut [u8]; N],
    /// Whether the sums are added to the present bytes of the outputs.
    pub(super) add: bool,
    /// Whether the factor of source `j` for output `r` is `g^(r·j)` everywhere. Then Horner's rule
    /// needs no tables.
    pub(super) has_powers: bool,
}

impl<'a, 'b, const N: usize> Job<'a, 'b, N> {
    /// Panics unless all lengths are equal: the kernels rely on it.
    pub(crate) fn new(
        factors: &'a [[u8; N]],
        sources: &'a [&'a [u8]],
        outputs: [&'b mut [u8]; N],
        add: bool,
    ) -> Self {
        const { assert!(0 < N && N <= MAX_OUTPUTS) };
        let len = outputs[0].len();
        assert!(outputs.iter().all(|output| output.len() == len), "outputs of one length");
        assert!(sources.iter().all(|source| source.len() == len), "sources of that length");
        assert_eq!(factors.len(), sources.len(), "factors for each source");
        let is_power =
            |(j, factors): (usize, &[u8; N])| (0..N).all(|row| factors[row] == power(row * j));
        let has_powers = !add && N <= MAX_POWER_ROWS && factors.iter().enumerate().all(is_power);
        Self { factors, sources, outputs, add, has_powers }
    }

    /// Length of each source and output, bytes.
    pub(super) fn len(&self) -> usize {
        self.outputs[0].len()
    }
}
