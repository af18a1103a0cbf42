//! Byte by byte: the reference for the other kernels, which also leave their last bytes to it.

use super::job::Job;
use crate::gf::NIBBLES;

/// Computes all bytes from an offset on.
pub(super) fn run<const N: usize>(job: &mut Job<'_, '_, N>, from: usize) {
    for (i, output) in job.outputs.iter_mut().enumerate() {
        let output = &mut output[from..];
        if !job.add {
            output.fill(0);
        }
        for (source, factors) in job.sources.iter().zip(job.factors) {
            let pairs = output.iter_mut().zip(&source[from..]);
            match factors[i] {
                0 => {}
                1 => pairs.for_each(|(sum, byte)| *sum ^= byte),
                factor => {
                    let table = &NIBBLES[usize::from(factor)];
                    let product = |x: usize| table[x & 15] ^ table[16 + (x >> 4)];
                    pairs.for_each(|(sum, byte)| *sum ^= product(usize::from(*byte)));
                }
            }
        }
    }
}
