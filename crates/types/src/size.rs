//! Parses and prints sizes in bytes.

/// Parses a size: a number and a unit. K, M, G, T (also k, m, g, t, and KiB to TiB) are powers of
/// 1024; kB (or KB), MB, GB, TB are powers of 1000.
///
/// # Errors
/// What is wrong with the text.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor: u64 = match unit.trim() {
        "" | "B" => 1,
        "k" | "K" | "KiB" => 1 << 10,
        "m" | "M" | "MiB" => 1 << 20,
        "g" | "G" | "GiB" => 1 << 30,
        "t" | "T" | "TiB" => 1 << 40,
        "kB" | "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        other => return Err(format!("unknown unit '{other}': use K, M, G, T or kB, MB, GB, TB")),
    };
    let number: u64 = number.parse().map_err(|_| "not a size: try 64K or 1G".to_owned())?;
    number.checked_mul(factor).ok_or_else(|| "too large".to_owned())
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
