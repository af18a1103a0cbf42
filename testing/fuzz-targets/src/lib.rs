//! One function for each decoder of bytes that nobody vouches for: from the
//! wire, from a disk, from the kernel, from a C program. Fuzzers of any kind call them.
//!
//! A target panics if a promise is broken: decoders never panic, never
//! allocate much more than they were given, and what decodes encodes to the
//! same bytes again. `tests/smoke.rs` runs all of them for a while on stable
//! Rust; the directory `testing/fuzz/` of the repository is for `cargo fuzz`.
//!
//! A new decoder gets a line in [`targets`]; operations are checked to be
//! complete.

mod c;
mod disk;
mod frames;
mod fuse;
mod layouts;
pub mod random;
mod records;
pub mod sample;
mod sio;
pub mod targets;

pub use random::Gen;
pub use targets::*;
