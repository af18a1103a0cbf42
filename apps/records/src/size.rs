//! Sizes and rates as people write and read them.

pub use weir_types::size::parse_size;

/// Converts to megabytes (1,000,000 bytes) per second.
#[must_use]
pub fn megabytes_per_second(bytes: u64, seconds: f64) -> f64 {
    bytes as f64 / 1e6 / seconds.max(1e-9)
}
