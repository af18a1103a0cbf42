//! AVX2: two byte shuffles look up 32 products. Rows of powers need no tables: doubling is a shift
//! and a conditional reduction.

use super::job::Job;
use crate::gf::{NIBBLES, REDUCTION};
use std::arch::x86_64::{
    __m128i, __m256i, _mm_loadu_si128, _mm256_add_epi8, _mm256_and_si256,
    _mm256_broadcastsi128_si256, _mm256_cmpgt_epi8, _mm256_loadu_si256, _mm256_set1_epi8,
    _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_srli_epi16, _mm256_storeu_si256,
    _mm256_xor_si256,
};

const VECTOR: usize = size_of::<__m256i>();
/// Vectors of each source in one step. Fewer than without tables, which take registers.
const LOOKED_UP: usize = 2;
const DOUBLED: usize = 4;

/// Computes all whole steps; returns the offset that is left for the scalar kernel.
#[target_feature(enable = "avx2")]
pub(super) fn run<const N: usize>(job: &mut Job<'_, '_, N>) -> usize {
    let step = VECTOR * if job.has_powers { DOUBLED } else { LOOKED_UP };
    let end = job.len() - job.len() % step;
    for at in (0..end).step_by(step) {
        // SAFETY: all sources and outputs have one length (`Job::new`), and `end` is at most this
        // length. `at` is at least one step before `end`.
        unsafe {
            if job.has_powers {
                powers::<N, DOUBLED>(job, at)
            } else {
                products::<N, LOOKED_UP>(job, at)
            }
        }
    }
    end
}

/// # Safety
/// Sources and outputs have at least `V` vectors from `at` on.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn products<const N: usize, const V: usize>(job: &mut Job<'_, '_, N>, at: usize) {
    let mut sums = [[_mm256_setzero_si256(); V]; N];
    if job.add {
        for (sums, output) in sums.iter_mut().zip(&job.outputs) {
            // SAFETY: by the contract of this function.
            *sums = unsafe { load(output, at) };
        }
    }
    for (source, factors) in job.sources.iter().zip(job.factors) {
        // SAFETY: by the contract of this function.
        let bytes = unsafe { load(source, at) };
        for (sums, &factor) in sums.iter_mut().zip(factors) {
            add(sums, if factor == 1 { bytes } else { multiply(factor, bytes) });
        }
    }
    // SAFETY: by the contract of this function.
    unsafe { store(job, at, &sums) };
}

/// `Σ g^(r·j)·source(j)` for output `r`, the last source first.
///
/// # Safety
/// Sources and outputs have at least `V` vectors from `at` on.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn powers<const N: usize, const V: usize>(job: &mut Job<'_, '_, N>, at: usize) {
    let mut sums = [[_mm256_setzero_si256(); V]; N];
    for source in job.sources.iter().rev() {
        // SAFETY: by the contract of this function.
        let bytes = unsafe { load(source, at) };
        for (row, sums) in sums.iter_mut().enumerate() {
            for sum in sums.iter_mut() {
                for _ in 0..row {
                    *sum = double(*sum);
                }
            }
            add(sums, bytes);
        }
    }
    // SAFETY: by the contract of this function.
    unsafe { store(job, at, &sums) };
}

/// # Safety
/// There are at least `V` vectors from `at` on.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn load<const V: usize>(bytes: &[u8], at: usize) -> [__m256i; V] {
    let vector = |i: usize| {
        // SAFETY: by the contract of this function, and `i < V`.
        unsafe { _mm256_loadu_si256(bytes.as_ptr().add(at + i * VECTOR).cast()) }
    };
    std::array::from_fn(vector)
}

/// # Safety
/// Outputs have at least `V` vectors from `at` on.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn store<const N: usize, const V: usize>(
    job: &mut Job<'_, '_, N>,
    at: usize,
    sums: &[[__m256i; V]; N],
) {
    for (output, sums) in job.outputs.iter_mut().zip(sums) {
        for (i, sum) in sums.iter().enumerate() {
            // SAFETY: by the contract of this function, and `i < V`.
            unsafe { _mm256_storeu_si256(output.as_mut_ptr().add(at + i * VECTOR).cast(), *sum) };
        }
    }
}

#[target_feature(enable = "avx2")]
#[inline]
fn add<const V: usize>(sums: &mut [__m256i; V], products: [__m256i; V]) {
    for (sum, product) in sums.iter_mut().zip(products) {
        *sum = _mm256_xor_si256(*sum, product);
    }
}

#[target_feature(enable = "avx2")]
#[inline]
fn double(bytes: __m256i) -> __m256i {
    let negative = _mm256_cmpgt_epi8(_mm256_setzero_si256(), bytes);
    let reduction = _mm256_and_si256(negative, _mm256_set1_epi8(REDUCTION as i8));
    _mm256_xor_si256(_mm256_add_epi8(bytes, bytes), reduction)
}

#[target_feature(enable = "avx2")]
#[inline]
fn multiply<const V: usize>(factor: u8, bytes: [__m256i; V]) -> [__m256i; V] {
    let table: *const __m128i = NIBBLES[usize::from(factor)].as_ptr().cast();
    // SAFETY: a table has 32 bytes: two halves of 16.
    let halves = unsafe { (_mm_loadu_si128(table), _mm_loadu_si128(table.add(1))) };
    let (low, high) =
        (_mm256_broadcastsi128_si256(halves.0), _mm256_broadcastsi128_si256(halves.1));
    let mask = _mm256_set1_epi8(15);
    let mut products = bytes;
    for product in &mut products {
        let upper = _mm256_and_si256(_mm256_srli_epi16::<4>(*product), mask);
        let lower = _mm256_and_si256(*product, mask);
        *product =
            _mm256_xor_si256(_mm256_shuffle_epi8(low, lower), _mm256_shuffle_epi8(high, upper));
    }
    products
}
