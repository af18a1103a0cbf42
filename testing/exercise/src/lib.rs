//! Exercises for a POSIX file system, on one directory or on several mounts of the same file
//! system. A pure model predicts every result.
//!
//! - [`fsx`]: one file, compared with an array of bytes, step by step.
//! - [`tree`]: names, attributes and links, compared with a model and a local directory.
//! - [`concurrent`]: many threads and processes at once, whose observations must be explained by
//!   one order ([`linear`]).
//!
//! Nothing here depends on Weir. The exercises use plain system calls, so that they can be tried on
//! any other file system.

pub mod concurrent;
pub mod fsx;
pub mod linear;
pub mod tree;
mod truncate;

/// The result of an exercise: success, or what is wrong.
pub type Outcome<T = ()> = Result<T, String>;

/// A seed from `WEIR_SEED`, or from the time.
pub fn seed_of_run() -> u64 {
    let given = std::env::var("WEIR_SEED").ok().and_then(|s| s.parse().ok());
    given.unwrap_or_else(|| {
        std::time::UNIX_EPOCH.elapsed().map_or(1, |since| since.as_nanos() as u64)
    })
}
