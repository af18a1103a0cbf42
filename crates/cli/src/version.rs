//! The text of `weir --version`.

/// Program, protocol and on-disk format versions.
pub const LINE: &str = concat!(env!("CARGO_PKG_VERSION"), " (protocol 15, format 2)");

#[cfg(test)]
mod tests {
    #[test]
    fn the_protocol_version_is_the_one_that_is_spoken() {
        let protocol = format!("protocol {},", weir_wire::frame::VERSION);
        assert!(super::LINE.contains(&protocol));
    }
}
