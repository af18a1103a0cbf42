//! Sizes and rates as people write and read them.

pub use weir_types::size::parse_size;

/// Bytes per second in megabytes (1,000,000 bytes).
#[must_use]
pub fn megabytes_per_second(bytes: u64, seconds: f64) -> f64 {
    bytes as f64 / 1e6 / seconds.max(1e-9)
}
