//! Sizes in bytes.

/// `48MiB`, `64K`, `4096`; not nothing.
pub fn size(text: &str) -> std::result::Result<u64, String> {
    match weir_types::size::parse_size(text)? {
        0 => Err("must not be 0".to_owned()),
        bytes => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units_of_1024() {
        assert_eq!(size("48MiB"), Ok(48 << 20));
        assert_eq!(size("64K"), Ok(64 << 10));
        assert_eq!(size("4096"), Ok(4096));
        assert!(size("0").is_err() && size("MiB").is_err() && size("3 apples").is_err());
    }
}
