//! Where a server listens: a TCP address or the path of a Unix socket.

use std::fmt;
use std::path::{Path, PathBuf};
use weir_types::{Error, ErrorKind, Result};

/// The longest path that fits a Unix socket address on Linux.
const MAX_UNIX_PATH_BYTES: usize = 107;

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// `host:port`; the host may be a name, which is looked up when connecting.
    Tcp(String),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

impl Address {
    /// Parses `host:port`, `/path/of/socket` or `unix:path`.
    ///
    /// Errors: `InvalidArgument`, with an example of a valid address.
    pub fn parse(text: &str) -> Result<Self> {
        let bad = |why: &str| {
            let message = format!(
                "address `{text}` {why}; give `host:port` (10.0.0.1:7700) or the path of a Unix socket"
            );
            Err(Error::new(ErrorKind::InvalidArgument, message))
        };
        let path = text.strip_prefix("unix:").or_else(|| text.starts_with('/').then_some(text));
        if let Some(path) = path {
            return match path.len() {
                0 => bad("is empty"),
                1..=MAX_UNIX_PATH_BYTES => Ok(Address::Unix(PathBuf::from(path))),
                _ => bad("is longer than the 107 bytes that a Unix socket's path may have"),
            };
        }
        match text.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() => match port.parse::<u16>() {
                Ok(_) => Ok(Address::Tcp(text.to_string())),
                Err(_) => bad("has no valid port"),
            },
            _ => bad("has no port"),
        }
    }

    /// The path, if this is a Unix socket.
    pub fn unix_path(&self) -> Option<&Path> {
        match self {
            Address::Tcp(_) => None,
            Address::Unix(path) => Some(path),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(host_port) => f.write_str(host_port),
            Address::Unix(path) => path.display().fmt(f),
        }
    }
}

impl std::str::FromStr for Address {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_addresses_are_read_and_shown() {
        for text in ["127.0.0.1:7700", "node-3.cluster:1", "[::1]:7700", "/run/weir/1.sock"] {
            assert_eq!(Address::parse(text).unwrap().to_string(), text);
        }
        let unix = Address::parse("unix:weir.sock").unwrap();
        assert_eq!(unix, Address::Unix("weir.sock".into()));
    }

    #[test]
    fn bad_addresses_are_refused_with_an_example() {
        let long = format!("/{}", "x".repeat(200));
        for text in ["", "host", ":1", "host:", "host:99999", "unix:", &long] {
            let error = Address::parse(text).unwrap_err();
            assert!(error.message.contains("host:port"), "{text}: {error}");
        }
    }
}
