//! Files through the client library.

use crate::failure::{Done, Failure};
use crate::files::Files;
use crate::order::SyncKind;
use serde::Deserialize;
use std::path::Path;
use std::sync::Arc;
use weir_client::{Client, ClientConfig, Context, CreateOptions, File, Transport};
use weir_types::{ClientId, ErrorKind, FileId};
use weir_wire::capability::Rights;
use weir_wire::{Key, Level};

/// A session with the cluster.
#[derive(Clone)]
pub struct Library {
    client: Arc<Client>,
    context: Context,
}

/// The credential file of `weir up`.
#[derive(Deserialize)]
struct Credential {
    cluster: String,
    client: u64,
    key: String,
    metadata: Vec<String>,
    #[serde(default)]
    protection: Option<String>,
}

impl Library {
    /// Opens a session over TCP.
    pub fn connect(credential: &Path, verify: bool) -> Done<Self> {
        Self::connect_by(credential, verify, Transport::Tcp)
    }

    /// Opens a session over a given transport.
    pub fn connect_by(credential: &Path, verify: bool, transport: Transport) -> Done<Self> {
        Self::session_of(config(credential, verify, transport)?)
    }

    /// Opens a session without read-ahead and write-behind.
    pub fn connect_without_cache(credential: &Path) -> Done<Self> {
        Self::session_of(config(credential, true, Transport::Tcp)?.without_cache())
    }

    fn session_of(config: ClientConfig) -> Done<Self> {
        Ok(Self { client: Arc::new(Client::connect(config)?), context: Context::root() })
    }

    /// The client, and the user of its calls.
    pub fn session(&self) -> (&Client, &Context) {
        (&self.client, &self.context)
    }

    fn find(&self, path: &str) -> Done<FileId> {
        Ok(self.client.resolve(&self.context, path.as_bytes(), true)?.file)
    }

    /// Writes a file of `len` bytes, repeating `data`.
    pub fn write_file(&self, path: &str, data: &[u8], len: u64) -> Done {
        let file = self.open_write(path)?;
        for offset in (0..len).step_by(data.len()) {
            self.write(&file, offset, data)?;
        }
        self.close(file)
    }

    /// The parent directory and the last name of a path.
    fn parent<'a>(&self, path: &'a str) -> Done<(FileId, &'a str)> {
        match path.rsplit_once('/') {
            Some((dir, name)) => Ok((self.find(dir)?, name)),
            None => Ok((FileId::ROOT, path)),
        }
    }
}

/// The configuration of a session.
fn config(credential: &Path, verify: bool, transport: Transport) -> Done<ClientConfig> {
    let text = std::fs::read_to_string(credential).map_err(|e| Failure::file(credential, e))?;
    // The parser's own message would quote the key.
    let found: Credential = toml::from_str(&text)
        .map_err(|_| Failure::other(format!("{}: not a credential", credential.display())))?;
    let key = Key::from_hex(&found.key).ok_or_else(|| Failure::other("not a key"))?;
    let is_asked = |address: &String| transport == Transport::Auto || !address.starts_with('/');
    let metadata: Vec<String> = found.metadata.into_iter().filter(is_asked).collect();
    let first = metadata
        .first()
        .ok_or_else(|| Failure::other("the credential has no TCP address"))?
        .clone();
    let protection = found.protection.as_deref().map_or(Ok(Level::Args), Level::parse);
    Ok(ClientConfig {
        protection: protection.map_err(Failure::other)?,
        cluster: found.cluster,
        metadata,
        name: "weir-bench".into(),
        transport,
        verify,
        ..ClientConfig::new(first, ClientId(found.client), key)
    })
}

impl Files for Library {
    type File = File;
    type Dir = FileId;

    fn open_read(&self, path: &str, _: bool) -> Done<File> {
        let (file, _) = self.client.open(&self.context, self.find(path)?, Rights::READ)?;
        Ok(file)
    }

    fn open_write(&self, path: &str) -> Done<File> {
        match self.client.resolve(&self.context, path.as_bytes(), true) {
            Ok(attr) => Ok(self.client.open(&self.context, attr.file, Rights::READ_WRITE)?.0),
            Err(error) if error.kind == ErrorKind::NotFound => {
                let (dir, name) = self.parent(path)?;
                let options = CreateOptions::default();
                Ok(self.client.create(&self.context, dir, name.as_bytes(), &options)?.0)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn read(&self, file: &File, offset: u64, buffer: &mut [u8]) -> Done<usize> {
        Ok(file.read_at(&self.context, offset, buffer)?)
    }

    fn write(&self, file: &File, offset: u64, data: &[u8]) -> Done {
        Ok(file.write_at(&self.context, offset, data)?)
    }

    fn sync(&self, file: &File, _: SyncKind) -> Done {
        Ok(file.sync(&self.context)?)
    }

    fn close(&self, file: File) -> Done {
        Ok(file.close(&self.context)?)
    }

    fn make_dir(&self, path: &str) -> Done {
        let (dir, name) = self.parent(path)?;
        self.client.mkdir(&self.context, dir, name.as_bytes(), 0o755)?;
        Ok(())
    }

    fn dir(&self, path: &str) -> Done<FileId> {
        self.find(path)
    }

    fn create(&self, dir: &FileId, name: &str) -> Done {
        let options = CreateOptions { exclusive: true, ..CreateOptions::default() };
        let (file, _) = self.client.create(&self.context, *dir, name.as_bytes(), &options)?;
        self.close(file)
    }

    fn stat(&self, dir: &FileId, name: &str) -> Done {
        self.client.lookup(&self.context, *dir, name.as_bytes())?;
        Ok(())
    }

    fn unlink(&self, dir: &FileId, name: &str) -> Done {
        self.client.unlink(&self.context, *dir, name.as_bytes())?;
        Ok(())
    }
}
