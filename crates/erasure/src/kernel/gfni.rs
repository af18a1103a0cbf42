//! GFNI with AVX-512: one instruction multiplies 64 bytes by a matrix over GF(2). `gf2p8mulb` is no
//! use here: its polynomial is 0x11b.

use super::job::Job;
use crate::gf::MATRICES;
use std::arch::x86_64::{
    __m512i, _mm512_gf2p8affine_epi64_epi8, _mm512_loadu_si512, _mm512_set1_epi64,
    _mm512_setzero_si512, _mm512_storeu_si512, _mm512_xor_si512,
};

const VECTOR: usize = size_of::<__m512i>();
/// Vectors of each source in one step.
const VECTORS: usize = 4;
const STEP: usize = VECTOR * VECTORS;

/// Computes all whole steps; returns the offset that is left for the scalar kernel.
#[target_feature(enable = "avx512f,gfni")]
pub(super) fn run<const N: usize>(job: &mut Job<'_, '_, N>) -> usize {
    let end = job.len() - job.len() % STEP;
    for at in (0..end).step_by(STEP) {
        let sums = if job.has_powers { powers(job, at) } else { products(job, at) };
        for (output, sums) in job.outputs.iter_mut().zip(sums) {
            for (i, sum) in sums.into_iter().enumerate() {
                // SAFETY: `end` is at most the length of the output, and `at` is one step before
                // it.
                unsafe { _mm512_storeu_si512(output.as_mut_ptr().add(at + i * VECTOR).cast(), sum) }
            }
        }
    }
    end
}

#[target_feature(enable = "avx512f,gfni")]
#[inline]
fn products<const N: usize>(job: &Job<'_, '_, N>, at: usize) -> [[__m512i; VECTORS]; N] {
    let mut sums = [[_mm512_setzero_si512(); VECTORS]; N];
    if job.add {
        for (sums, output) in sums.iter_mut().zip(&job.outputs) {
            // SAFETY: all outputs are as long as the sources (`Job::new`), and a step fits.
            *sums = unsafe { load(output, at) };
        }
    }
    for (source, factors) in job.sources.iter().zip(job.factors) {
        // SAFETY: all sources and outputs have one length (`Job::new`), and a step fits.
        let bytes = unsafe { load(source, at) };
        for (sums, factor) in sums.iter_mut().zip(factors) {
            let matrix = _mm512_set1_epi64(MATRICES[usize::from(*factor)] as i64);
            for (sum, bytes) in sums.iter_mut().zip(bytes) {
                let product = _mm512_gf2p8affine_epi64_epi8::<0>(bytes, matrix);
                *sum = _mm512_xor_si512(*sum, product);
            }
        }
    }
    sums
}

/// `Σ g^(r·j)·source(j)` for output `r`, the last source first.
#[target_feature(enable = "avx512f,gfni")]
#[inline]
fn powers<const N: usize>(job: &Job<'_, '_, N>, at: usize) -> [[__m512i; VECTORS]; N] {
    let mut sums = [[_mm512_setzero_si512(); VECTORS]; N];
    for source in job.sources.iter().rev() {
        // SAFETY: all sources and outputs have one length (`Job::new`), and a step fits.
        let bytes = unsafe { load(source, at) };
        for (row, sums) in sums.iter_mut().enumerate() {
            let matrix = _mm512_set1_epi64(MATRICES[1 << row] as i64);
            for (sum, bytes) in sums.iter_mut().zip(bytes) {
                if row > 0 {
                    *sum = _mm512_gf2p8affine_epi64_epi8::<0>(*sum, matrix);
                }
                *sum = _mm512_xor_si512(*sum, bytes);
            }
        }
    }
    sums
}

/// # Safety
/// There are at least `at + STEP` bytes.
#[target_feature(enable = "avx512f")]
#[inline]
unsafe fn load(bytes: &[u8], at: usize) -> [__m512i; VECTORS] {
    let vector = |i: usize| {
        // SAFETY: by the contract of this function, and `i < VECTORS`.
        unsafe { _mm512_loadu_si512(bytes.as_ptr().add(at + i * VECTOR).cast()) }
    };
    std::array::from_fn(vector)
}
