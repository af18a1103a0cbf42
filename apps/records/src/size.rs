//! Numbers of bytes as people write them.

/// Bytes, with an optional unit: k, M, G, T or KiB, MiB.. (powers of 1024), or kB, MB, GB, TB
/// (powers of 1000).
///
/// # Errors
/// What is wrong with the text.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor: u64 = match unit.trim() {
        "" | "B" => 1,
        "k" | "K" | "KiB" => 1 << 10,
        "M" | "MiB" => 1 << 20,
        "G" | "GiB" => 1 << 30,
        "T" | "TiB" => 1 << 40,
        "kB" | "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        other => return Err(format!("unknown unit '{other}': use KiB, MiB, GiB, kB, MB, GB")),
    };
    let number: u64 = number.parse().map_err(|_| "not a size: try 1GiB".to_owned())?;
    number.checked_mul(factor).ok_or_else(|| "too large".to_owned())
}

/// Bytes per second in megabytes (1,000,000 bytes).
#[must_use]
pub fn megabytes_per_second(bytes: u64, seconds: f64) -> f64 {
    bytes as f64 / 1e6 / seconds.max(1e-9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_of_both_kinds_are_known() {
        for (text, bytes) in [("0", 0), ("838", 838), ("2M", 2 << 20), ("300MB", 300_000_000)] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for bad in ["", "x", "1 furlong", "-1", "99999999999999999999", "99999999999T"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }
}
