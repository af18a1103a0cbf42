//! Finds the cluster for a program in C, by the rules of the program `weir`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use weir_client::ClientConfig;
use weir_connect::{Choice, Credential, Problem};
use weir_types::{Error, ErrorKind, Result};

/// The configuration for a connection. `named` is a credential file or a state directory if it
/// contains a `/`, or else the name of a cluster. `None`: the cluster that environment and
/// configuration choose.
///
/// # Errors
/// `NotFound`, `AccessDenied` or `InvalidArgument`, with the file and what to do.
pub fn cluster(named: Option<&[u8]>, program: &str) -> Result<ClientConfig> {
    credential(named).map(|found| found.client_config(program)).map_err(|problem| {
        let Problem { kind, message, hint } = problem;
        Error::new(kind, hint.into_iter().fold(message, |text, hint| format!("{text}; {hint}")))
    })
}

fn credential(named: Option<&[u8]>) -> Result<Credential, Problem> {
    let Some(named) = named else { return Choice::from_environment().credential() };
    if named.contains(&b'/') {
        let path = Path::new(OsStr::from_bytes(named));
        let file = if path.is_dir() { path.join("client.toml") } else { path.to_owned() };
        return Credential::read(&file);
    }
    let name = std::str::from_utf8(named);
    let name = name.map_err(|_| Problem::new(ErrorKind::InvalidArgument, "a name is not UTF-8"))?;
    Choice { name: Some(name.to_owned()), ..Choice::default() }.credential()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use weir_types::ClientId;

    #[test]
    fn a_credential_is_found_by_its_directory_and_refused_without_showing_its_key() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("client.toml");
        let key = "ab".repeat(32);
        let text = format!("cluster = \"a\"\nclient = 7\nkey = \"{key}\"\nmetadata = [\"h:1\"]\n");
        let with = |text: &str, mode| {
            std::fs::write(&file, text).unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
            cluster(Some(dir.path().as_os_str().as_bytes()), "test")
        };
        let config = with(&text, 0o600).unwrap();
        assert_eq!((config.cluster.as_str(), config.client), ("a", ClientId(7)));
        for (text, mode) in [(text.as_str(), 0o604), ("key = 0123", 0o600), ("", 0o600)] {
            let error = with(text, mode).unwrap_err().to_string();
            assert!(error.contains("client.toml") && !error.contains("0123"), "{error}");
        }
        for name in ["", "..", "a b"] {
            let error = cluster(Some(name.as_bytes()), "test").unwrap_err();
            assert_eq!(error.kind, ErrorKind::InvalidArgument);
        }
    }
}
