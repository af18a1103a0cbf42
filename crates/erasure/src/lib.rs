//! Erasure codes over GF(2^8): RAID 5, RAID 6 (P and Q) and Reed-Solomon codes
//! of `k` members and `m` parities.
//!
//! A set has `k` members, numbered from 0, and `m` parities, numbered from `k`.
//! Each parity is `Σ c(r,j)·member(j)`, byte by byte. Members may differ in
//! length: a short one counts as zeros at its end, and a parity is as long as
//! the longest member. A part of a set at equal offsets is a set as well, so
//! callers pass as much at a time as they like.
//!
//! Code of our own, since the crates there are do not fit. `reed-solomon-simd`
//! works over GF(2^16) by FFT: its parities are neither P and Q, nor can they be
//! updated, extended or merged. `rusty_erasure` has the bytes of ISA-L; its P
//! and Q are up to a third faster, its other codes no faster. It wants a newer
//! Rust than Weir and members of one length. The kernels are checked against Debian's ISA-L byte for byte.
//!
//! Invariants: every loss of at most `m` blocks is decoded (`code.rs` tests it
//! exhaustively). Every kernel computes the same bytes as the scalar one
//! (`tests/kernels.rs`).

mod code;
mod gf;
mod kernel;
mod repair;
mod span;

pub use code::{Code, MAX_MEMBERS, MAX_PARITIES, MIN_MEMBERS, Unfit, merge};
pub use kernel::Kernel;
pub use repair::{Lost, Repair};
