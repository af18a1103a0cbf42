//! The files of a cluster, by path.

use crate::args::ClientChoice;
use crate::failure::{Done, Failure};
use crate::files::name::{RemoteName, shown, split};
use crate::files::tree::ClusterSign;
use crate::settings::{self, Cluster};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use weir_client::{Client, Context, File};
use weir_connect::Credential;
use weir_types::limits::MAX_READDIR_ENTRIES;
use weir_types::{Attr, Error, ErrorKind, FileId, FileKind};
use weir_wire::Rights;
use weir_wire::meta::DirEntry;

pub use weir_connect::caller;

/// Connects to a cluster with a credential.
pub fn connect(credential: &Credential, purpose: &str) -> Done<Client> {
    try_to_connect(credential, purpose).map_err(|e| credential.not_connected(e).into())
}

/// As [`connect`], but returns the error itself for callers that word the failure themselves.
pub fn try_to_connect(credential: &Credential, purpose: &str) -> Result<Client, Error> {
    Client::connect(credential.client_config(&format!("weir {purpose}")))
}

/// The files of a cluster.
pub struct RemoteTree {
    /// The session with the cluster.
    pub client: Arc<Client>,
    /// The user in whose name files are accessed.
    pub context: Context,
    prefix: String,
    pub(super) identity: String,
    pub(super) sign: ClusterSign,
    directories: Mutex<Directories>,
    /// The owner of new files: the key may map the user to another one.
    pub(super) owner: OnceLock<u32>,
}

/// A cache of directories, so that a deep path is not looked up component by component for each
/// file. It is cleared when it is full.
#[derive(Default)]
struct Directories {
    known: HashMap<Vec<u8>, FileId>,
    /// The bytes of all cached paths.
    bytes: usize,
}

/// The most bytes of paths in the cache.
const MAX_DIRECTORY_BYTES: usize = 16 << 20;

/// The clusters that the arguments of a command name, with one session for each.
#[derive(Default)]
pub struct Sessions {
    trees: HashMap<Option<String>, Arc<RemoteTree>>,
}

impl Sessions {
    /// The cluster of a name. Connects when the cluster is first used.
    pub fn tree(
        &mut self,
        choice: &ClientChoice,
        name: &RemoteName,
        purpose: &str,
    ) -> Done<Arc<RemoteTree>> {
        if let Some(tree) = self.trees.get(&name.cluster) {
            return Ok(tree.clone());
        }
        let cluster = match &name.cluster {
            Some(name) => Cluster::Here(settings::named(name)?),
            None => settings::cluster(choice)?,
        };
        let prefix = match &name.cluster {
            Some(cluster) => format!("weir://{cluster}"),
            None => "weir:".to_owned(),
        };
        let tree = Arc::new(RemoteTree::open(&cluster, prefix, purpose)?);
        self.trees.insert(name.cluster.clone(), tree.clone());
        Ok(tree)
    }
}

impl RemoteTree {
    /// Connects to a cluster. `prefix` is written before paths in messages.
    pub fn open(cluster: &Cluster, prefix: String, purpose: &str) -> Done<Self> {
        let credential = cluster.credential()?;
        Ok(Self {
            client: Arc::new(connect(&credential, purpose)?),
            context: Context::of(caller()),
            prefix,
            identity: cluster.source(),
            sign: ClusterSign {
                source: cluster.source(),
                name: credential.cluster,
                metadata: credential.metadata,
            },
            directories: Mutex::default(),
            owner: OnceLock::new(),
        })
    }

    /// Adds the file's name to an error.
    pub fn about(&self, path: &[u8]) -> impl Fn(Error) -> Failure + use<'_> {
        let name = format!("{}{}", self.prefix, shown(path));
        move |e| Failure::from(e).about(&name)
    }

    /// Attributes of a file.
    pub fn attr(&self, path: &[u8], follow: bool) -> Done<Attr> {
        self.find(path, follow).map_err(self.about(path))
    }

    /// As [`RemoteTree::attr`], with the error as it is.
    pub fn find(&self, path: &[u8], follow: bool) -> Result<Attr, Error> {
        let Some((dir, name)) = split(path) else {
            return self.client.getattr(&self.context, FileId::ROOT);
        };
        let attr = self.client.lookup(&self.context, self.directory(dir)?, name)?;
        if follow && attr.kind == FileKind::Symlink {
            return self.client.resolve(&self.context, path, true);
        }
        Ok(attr)
    }

    fn directory(&self, dir: &[u8]) -> Result<FileId, Error> {
        if let Some(known) = self.remembered(dir) {
            return Ok(known);
        }
        let attr = self.client.resolve(&self.context, dir, true)?;
        if attr.kind != FileKind::Directory {
            return Err(ErrorKind::NotDirectory.into());
        }
        self.remember(dir, attr.file);
        Ok(attr.file)
    }

    /// The directory of a path, and the path's last component.
    pub fn parent<'p>(&self, path: &'p [u8]) -> Done<(FileId, &'p [u8])> {
        let Some((dir, name)) = split(path) else {
            return Err(Failure::new(format!("{}/ is the root directory", self.prefix)));
        };
        Ok((self.directory(dir).map_err(self.about(dir))?, name))
    }

    /// The entries of a directory with their attributes, sorted by name.
    pub fn entries(&self, dir: FileId) -> Result<Vec<DirEntry>, Error> {
        let mut entries: Vec<DirEntry> = Vec::new();
        let (mut cookie, mut last) = (0, 0);
        loop {
            let most = MAX_READDIR_ENTRIES as u32;
            let page = self.client.readdir(&self.context, dir, (cookie, last), most, true)?;
            last = page.last;
            cookie = page.entries.last().map_or(cookie, |e| e.cookie);
            let nothing = page.entries.is_empty();
            entries
                .extend(page.entries.into_iter().filter(|e| &*e.name != b"." && &*e.name != b".."));
            if page.end || nothing {
                break;
            }
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    /// Opens a file with the given rights.
    pub fn open_file(&self, path: &[u8], rights: Rights) -> Done<(File, Attr)> {
        let attr = self.attr(path, true)?;
        match attr.kind {
            FileKind::File => {}
            FileKind::Directory => return Err(self.about(path)(ErrorKind::IsDirectory.into())),
            _ => return Err(Failure::new("not a regular file").about(self.shown(path))),
        }
        self.client.open(&self.context, attr.file, rights).map_err(self.about(path))
    }

    fn remembered(&self, dir: &[u8]) -> Option<FileId> {
        if dir == b"/" {
            return Some(FileId::ROOT);
        }
        let directories = self.directories.lock().unwrap_or_else(PoisonError::into_inner);
        directories.known.get(dir).copied()
    }

    pub(super) fn remember(&self, dir: &[u8], file: FileId) {
        let mut directories = self.directories.lock().unwrap_or_else(PoisonError::into_inner);
        if directories.bytes + dir.len() > MAX_DIRECTORY_BYTES {
            *directories = Directories::default();
        }
        if directories.known.insert(dir.to_vec(), file).is_none() {
            directories.bytes += dir.len();
        }
    }

    /// The path as the user would write it.
    pub fn shown(&self, path: &[u8]) -> String {
        format!("{}{}", self.prefix, shown(path))
    }
}
