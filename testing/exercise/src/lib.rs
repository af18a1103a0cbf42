//! Exercises for a POSIX file system, on one directory or on several that are
//! mounts of the same: each knows by a pure model what must come out.
//!
//! - [`fsx`]: one file, against an array of bytes, step by step.
//! - [`tree`]: names, attributes and links, against a model and a local directory.
//! - [`concurrent`]: many threads and processes at once; what they saw must
//!   be explained by one order ([`linear`]).
//!
//! Nothing here knows of Weir: plain system calls, so that the exercises can
//! be tried on any other file system.

pub mod concurrent;
pub mod fsx;
pub mod linear;
pub mod tree;
mod truncate;

/// What an exercise found: nothing wrong, or what.
pub type Outcome<T = ()> = Result<T, String>;

/// A seed from `WEIR_SEED`, or from the time.
pub fn seed_of_run() -> u64 {
    let given = std::env::var("WEIR_SEED").ok().and_then(|s| s.parse().ok());
    given.unwrap_or_else(|| {
        std::time::UNIX_EPOCH.elapsed().map_or(1, |since| since.as_nanos() as u64)
    })
}
