//! Checks of host names, which data servers and clients report, and of failure domain names, which
//! administrators choose.

use crate::error::{Error, ErrorKind, Result};
use crate::limits::{MAX_DOMAIN_BYTES, MAX_HOST_BYTES};

/// Refuses a host name that is too long or cannot be printed. An empty name means that it is
/// unknown.
///
/// # Errors
/// `InvalidArgument`, with what to change.
pub fn check_host(host: &str) -> Result<()> {
    let why = match host {
        _ if host.len() > MAX_HOST_BYTES => format!("is longer than {MAX_HOST_BYTES} bytes"),
        _ if host.chars().any(char::is_control) => "has control characters".to_owned(),
        _ => return Ok(()),
    };
    let message = format!("the host name `{}` {why}: give the machine another one", shown(host));
    Err(Error::new(ErrorKind::InvalidArgument, message))
}

/// Refuses an invalid name of a failure domain: it must be one word.
///
/// # Errors
/// `InvalidArgument`, with what to change.
pub fn check_domain(domain: &str) -> Result<()> {
    let may_be = |c: char| c.is_ascii_alphanumeric() || "-_./:".contains(c);
    if (1..=MAX_DOMAIN_BYTES).contains(&domain.len()) && domain.chars().all(may_be) {
        return Ok(());
    }
    let message = format!(
        "`{}` is no name of a failure domain: use 1 to {MAX_DOMAIN_BYTES} letters, digits and \
         -_./: as in rack7",
        shown(domain)
    );
    Err(Error::new(ErrorKind::InvalidArgument, message))
}

/// The beginning of an arbitrary text, safe to print.
fn shown(text: &str) -> String {
    text.chars().take(80).flat_map(char::escape_default).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_cannot_be_kept_or_shown_are_refused() {
        for good in ["", "node-1", "n1.example.org", "kn\u{f6}del"] {
            check_host(good).unwrap();
        }
        check_host(&"n".repeat(MAX_HOST_BYTES)).unwrap();
        let long = check_host(&"n".repeat(MAX_HOST_BYTES + 1)).unwrap_err();
        assert!(long.message.contains("longer than 255") && long.message.len() < 200, "{long}");
        let odd = check_host("a\nb").unwrap_err();
        assert!(odd.message.contains("`a\\nb` has control characters"), "{odd}");
    }

    #[test]
    fn a_domain_is_named_by_a_word() {
        for good in ["rack7", "hall-2/row_B/rack.7", "7", &"r".repeat(MAX_DOMAIN_BYTES)] {
            check_domain(good).unwrap();
        }
        for bad in ["", "rack 7", "r\n", "r\u{e4}ck", &"r".repeat(MAX_DOMAIN_BYTES + 1)] {
            let error = check_domain(bad).unwrap_err();
            assert!(error.message.contains("1 to 64 letters"), "{error}");
        }
    }
}
