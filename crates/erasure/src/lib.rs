//! Erasure codes over GF(2^8): RAID 5, RAID 6 (P and Q) and Reed-Solomon codes of `k` members and
//! `m` parities.
//!
//! A set has `k` members, numbered from 0, and `m` parities, numbered from `k`. Each parity is `Σ
//! c(r,j)·member(j)`, byte by byte. Members may differ in length: a short one counts as padded with
//! zeros, and a parity is as long as the longest member. Equal offsets of all blocks form a set as
//! well, so callers can work piece by piece.
//!
//! Why not an existing crate: `reed-solomon-simd` works over GF(2^16) by FFT; its parities are
//! neither P and Q, nor can they be updated, extended or merged. `rusty_erasure` computes the bytes
//! of ISA-L; its P and Q are up to a third faster, its other codes no faster. It needs a newer Rust
//! than Weir and members of one length. The kernels here are compared with Debian's ISA-L byte for
//! byte.
//!
//! Invariants: every loss of at most `m` blocks is decoded (`code.rs` tests it exhaustively). Every
//! kernel computes the same bytes as the scalar one (`tests/kernels.rs`).

mod code;
mod gf;
mod kernel;
mod repair;
mod span;

pub use code::{Code, MAX_MEMBERS, MAX_PARITIES, MIN_MEMBERS, Unfit, merge};
pub use kernel::Kernel;
pub use repair::{Lost, Repair};
