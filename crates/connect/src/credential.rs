//! The credential of a client: its number, its key, and the addresses of the metadata server, in
//! one file of mode 0600.

use crate::{Problem, program_name, secret};
use serde::Deserialize;
use std::path::Path;
use weir_client::{Client, ClientConfig};
use weir_types::{ClientId, Error, ErrorKind};
use weir_wire::{Key, Level};

/// A client's credential.
#[derive(Clone, Debug)]
pub struct Credential {
    /// Name of the cluster, for people.
    pub cluster: String,
    /// The number of the client.
    pub client: ClientId,
    /// The key of the client.
    pub key: Key,
    /// Addresses of the metadata server in order of preference: `address:port`, or the path of a
    /// Unix socket.
    pub metadata: Vec<String>,
    /// The purpose of the credential, for people.
    pub note: String,
    /// The lowest level of protection of the client's connections.
    pub protection: Level,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CredentialFile {
    cluster: String,
    client: u64,
    key: String,
    metadata: Vec<String>,
    #[serde(default)]
    note: String,
    #[serde(default)]
    protection: Option<String>,
}

impl Credential {
    /// Reads a credential file.
    pub fn read(path: &Path) -> Result<Self, Problem> {
        let text = secret::read(path).map_err(|e| e.about("no client credential"))?;
        // The parser's own message would quote the line, and so the key.
        let bad = |what: &str| {
            Problem::new(
                ErrorKind::InvalidArgument,
                format!("{}: not a client credential: {what}", path.display()),
            )
            .hint("`weir key new` makes one")
        };
        let file: CredentialFile =
            toml::from_str(&text).map_err(|e| bad(e.message().lines().next().unwrap_or("")))?;
        if file.metadata.is_empty() {
            return Err(bad("no address of a metadata server"));
        }
        let protection = file.protection.as_deref().map_or(Ok(Level::Args), Level::parse);
        Ok(Self {
            protection: protection.map_err(|e| bad(&format!("protection: {e}")))?,
            cluster: file.cluster,
            client: ClientId(file.client),
            key: Key::from_hex(&file.key).ok_or_else(|| bad("its key is not 64 hex digits"))?,
            metadata: file.metadata,
            note: file.note,
        })
    }

    /// The client configuration for this credential. `weir clients` shows `program`.
    pub fn client_config(&self, program: &str) -> ClientConfig {
        let address = self.metadata.first().cloned().unwrap_or_default();
        let mut config = ClientConfig::new(address, self.client, self.key.clone());
        config.metadata.clone_from(&self.metadata);
        config.cluster.clone_from(&self.cluster);
        config.name = program_name(program);
        config.protection = self.protection;
        config
    }

    /// Connects with the defaults of [`ClientConfig`].
    pub fn connect(&self, program: &str) -> Result<Client, Problem> {
        Client::connect(self.client_config(program)).map_err(|e| self.not_connected(e))
    }

    /// The error if the cluster, which is named in it, cannot be reached.
    pub fn not_connected(&self, error: Error) -> Problem {
        Problem::from(error).about(format!("cannot connect to cluster {}", self.cluster))
    }

    /// Writes a new credential file.
    pub fn write_new(&self, path: &Path) -> Result<(), Problem> {
        let quoted = |text: &str| toml::Value::from(text).to_string();
        let metadata: Vec<String> = self.metadata.iter().map(|a| quoted(a)).collect();
        let protection = match self.protection {
            Level::Args => String::new(),
            level => format!("protection = {}\n", quoted(level.label())),
        };
        let text = format!(
            "# A client's credential for a Weir cluster. Whoever has it can use the cluster.\n\
             cluster = {}\nclient = {}\nkey = {}\nmetadata = [{}]\nnote = {}\n{protection}",
            quoted(&self.cluster),
            self.client,
            quoted(&self.key.to_hex()),
            metadata.join(", "),
            quoted(&self.note),
        );
        secret::write_new(path, &text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_survives_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("client.toml");
        let credential = Credential {
            cluster: "quoted \" name".into(),
            client: ClientId(7),
            key: Key::from_bytes([7; 32]),
            metadata: vec!["/run/meta.sock".into(), "127.0.0.1:1".into()],
            note: String::new(),
            protection: Level::Data,
        };
        credential.write_new(&path).unwrap();
        let back = Credential::read(&path).unwrap();
        assert_eq!(back.cluster, credential.cluster);
        assert_eq!(back.client, credential.client);
        assert_eq!(back.key, credential.key);
        assert_eq!(back.metadata, credential.metadata);
        assert_eq!(back.protection, credential.protection);
        let text = secret::read(&path).unwrap().replace("\"data\"", "\"most\"");
        let other = dir.path().join("other.toml");
        secret::write_new(&other, &text).unwrap();
        let problem = Credential::read(&other).unwrap_err().to_string();
        assert!(problem.contains("args, data or private"), "{problem}");
    }

    #[test]
    fn a_damaged_credential_is_refused_without_showing_its_key() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("client.toml");
        secret::write_new(
            &path,
            "cluster = \"a\"\nclient = 1\nkey = \"0123secret\"\nmetadata = 1\n",
        )
        .unwrap();
        let message = Credential::read(&path).unwrap_err().to_string();
        assert!(message.contains("not a client credential"));
        assert!(!message.contains("0123secret"), "{message}");
    }
}
