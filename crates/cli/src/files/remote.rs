//! The files of a cluster, by path.

use crate::args::ClientChoice;
use crate::cluster::credential::Credential;
use crate::failure::{Done, Failure};
use crate::files::name::{RemoteName, child, shown, split};
use crate::files::tree::{Meta, Sink, Source, Tree};
use crate::settings::{self, Cluster};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use weir_client::{Client, ClientConfig, Context, CreateOptions, File, set_nothing};
use weir_types::limits::MAX_READDIR_ENTRIES;
use weir_types::{Attr, Caller, Error, ErrorKind, FileId, FileKind};
use weir_wire::Rights;
use weir_wire::meta::{DirEntry, SetTime};

/// Connects to a cluster with a credential.
pub fn connect(credential: &Credential, purpose: &str) -> Done<Client> {
    try_to_connect(credential, purpose).map_err(|e| {
        Failure::from(e).about(format!("cannot connect to cluster {}", credential.cluster))
    })
}

/// The same, for who says it in words of its own.
pub fn try_to_connect(credential: &Credential, purpose: &str) -> Result<Client, Error> {
    let address = credential.metadata.first().cloned().unwrap_or_default();
    let mut config = ClientConfig::new(address, credential.client, credential.key.clone());
    config.metadata.clone_from(&credential.metadata);
    config.cluster.clone_from(&credential.cluster);
    config.name = format!("weir {purpose}");
    Client::connect(config)
}

/// In the name of the user who runs this program.
pub fn caller() -> Caller {
    let groups = rustix::process::getgroups().unwrap_or_default();
    Caller {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        groups: groups.into_iter().map(|g| g.as_raw()).collect(),
    }
}

/// The files of a cluster.
pub struct RemoteTree {
    /// The session.
    pub client: Client,
    /// In whose name.
    pub context: Context,
    prefix: String,
    identity: String,
    /// Directories seen, so that a deep path is not looked up part by part for
    /// each file in it. Bounded: emptied when full.
    directories: Mutex<HashMap<Vec<u8>, FileId>>,
}

/// Directories that are remembered.
const MAX_DIRECTORIES: usize = 65_536;

/// The clusters that a command's arguments name: one session for each.
#[derive(Default)]
pub struct Sessions {
    trees: HashMap<Option<String>, Arc<RemoteTree>>,
}

impl Sessions {
    /// The cluster of a name; connects when it is the first one there.
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
    /// Connects to a cluster; `prefix` stands before paths in messages.
    pub fn open(cluster: &Cluster, prefix: String, purpose: &str) -> Done<Self> {
        let credential = cluster.credential()?;
        Ok(Self {
            client: connect(&credential, purpose)?,
            context: Context::of(caller()),
            prefix,
            identity: cluster.source(),
            directories: Mutex::default(),
        })
    }

    /// Puts the file's name in front of an error.
    pub fn about(&self, path: &[u8]) -> impl Fn(Error) -> Failure + use<'_> {
        let name = format!("{}{}", self.prefix, shown(path));
        move |e| Failure::from(e).about(&name)
    }

    /// Attributes of a file.
    pub fn attr(&self, path: &[u8], follow: bool) -> Done<Attr> {
        self.find(path, follow).map_err(self.about(path))
    }

    fn find(&self, path: &[u8], follow: bool) -> Result<Attr, Error> {
        if let Some((dir, name)) = split(path)
            && let Some(parent) = self.remembered(dir)
        {
            let attr = self.client.lookup(&self.context, parent, name)?;
            if !(follow && attr.kind == FileKind::Symlink) {
                return Ok(attr);
            }
        }
        self.client.resolve(&self.context, path, follow)
    }

    /// The directory of a path, and the last part of it.
    pub fn parent<'p>(&self, path: &'p [u8]) -> Done<(FileId, &'p [u8])> {
        let Some((dir, name)) = split(path) else {
            return Err(Failure::new(format!("{}/ is the root directory", self.prefix)));
        };
        if let Some(parent) = self.remembered(dir) {
            return Ok((parent, name));
        }
        let attr = self.attr(dir, true)?;
        if attr.kind != FileKind::Directory {
            return Err(self.about(dir)(ErrorKind::NotDirectory.into()));
        }
        self.remember(dir, attr.file);
        Ok((attr.file, name))
    }

    /// The entries of a directory with their attributes, sorted by name.
    pub fn entries(&self, dir: FileId) -> Result<Vec<DirEntry>, Error> {
        let mut entries: Vec<DirEntry> = Vec::new();
        let mut cookie = 0;
        loop {
            let most = MAX_READDIR_ENTRIES as u32;
            let page = self.client.readdir(&self.context, dir, cookie, most, true)?;
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

    /// Opens a file with some rights.
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
        self.directories.lock().unwrap_or_else(PoisonError::into_inner).get(dir).copied()
    }

    fn remember(&self, dir: &[u8], file: FileId) {
        let mut directories = self.directories.lock().unwrap_or_else(PoisonError::into_inner);
        if directories.len() >= MAX_DIRECTORIES {
            directories.clear();
        }
        directories.insert(dir.to_vec(), file);
    }

    fn handle(&self, path: &[u8], file: File) -> RemoteFile {
        RemoteFile { file, context: self.context.clone(), name: self.shown(path) }
    }
}

impl Tree for RemoteTree {
    fn shown(&self, path: &[u8]) -> String {
        format!("{}{}", self.prefix, shown(path))
    }

    fn stat(&self, path: &[u8], follow: bool) -> Done<Option<Meta>> {
        match self.find(path, follow) {
            Ok(attr) => Ok(Some(meta(&attr))),
            Err(e) if e.kind == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(self.about(path)(e)),
        }
    }

    fn list(&self, path: &[u8]) -> Done<Vec<(Vec<u8>, Meta)>> {
        let dir = self.attr(path, true)?.file;
        let mut list = Vec::new();
        for entry in self.entries(dir).map_err(self.about(path))? {
            let attr = match entry.attr {
                Some(attr) => attr,
                None => self.attr(&child(path, &entry.name), false)?,
            };
            list.push((entry.name.0, meta(&attr)));
        }
        Ok(list)
    }

    fn make_dir(&self, path: &[u8], mode: u16) -> Done {
        let (parent, name) = self.parent(path)?;
        let made = self.client.mkdir(&self.context, parent, name, mode);
        self.remember(path, made.map_err(self.about(path))?.file);
        Ok(())
    }

    fn read_link(&self, path: &[u8]) -> Done<Vec<u8>> {
        let link = self.attr(path, false)?.file;
        self.client.readlink(&self.context, link).map_err(self.about(path))
    }

    fn make_link(&self, path: &[u8], target: &[u8]) -> Done {
        let (parent, name) = self.parent(path)?;
        let make = || self.client.symlink(&self.context, parent, name, target);
        let made = match make() {
            Err(e) if e.kind == ErrorKind::Exists => {
                let there = self.attr(path, false)?;
                if there.kind != FileKind::Symlink {
                    return Err(self.about(path)(e));
                }
                self.client.unlink(&self.context, parent, name).and_then(|_| make())
            }
            made => made,
        };
        made.map(drop).map_err(self.about(path))
    }

    fn open(&self, path: &[u8]) -> Done<Box<dyn Source>> {
        let (file, _) = self.open_file(path, Rights::READ)?;
        Ok(Box::new(self.handle(path, file)))
    }

    fn create(&self, path: &[u8], mode: u16) -> Done<Box<dyn Sink>> {
        let (parent, name) = self.parent(path)?;
        let options = CreateOptions {
            mode,
            truncate: true,
            rights: Rights::WRITE,
            ..CreateOptions::default()
        };
        let (file, _) =
            self.client.create(&self.context, parent, name, &options).map_err(self.about(path))?;
        Ok(Box::new(self.handle(path, file)))
    }

    fn set_meta(&self, path: &[u8], meta: &Meta) -> Done {
        let file = self.attr(path, false)?.file;
        let mut request = set_nothing(file);
        request.atime = Some(SetTime::At(meta.atime));
        request.mtime = Some(SetTime::At(meta.mtime));
        if meta.kind != FileKind::Symlink {
            request.mode = Some(meta.mode);
        }
        if self.context.caller.uid == 0 {
            request.uid = Some(meta.uid);
            request.gid = Some(meta.gid);
        }
        self.client.setattr(&self.context, &request).map(drop).map_err(self.about(path))
    }

    fn is(&self, other: &str) -> bool {
        self.identity == other
    }

    fn identity(&self) -> String {
        self.identity.clone()
    }
}

fn meta(attr: &Attr) -> Meta {
    Meta {
        kind: attr.kind,
        mode: attr.mode,
        uid: attr.uid,
        gid: attr.gid,
        size: attr.size,
        atime: attr.atime,
        mtime: attr.mtime,
        identity: (0, attr.file.0),
    }
}

struct RemoteFile {
    file: File,
    context: Context,
    name: String,
}

impl RemoteFile {
    fn failed(&self, error: Error) -> Failure {
        Failure::from(error).about(&self.name)
    }
}

impl Source for RemoteFile {
    fn in_cluster(&self) -> Option<&File> {
        Some(&self.file)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Done<usize> {
        self.file.read_at(&self.context, offset, buffer).map_err(|e| self.failed(e))
    }
}

impl Sink for RemoteFile {
    fn copy_at(&self, source: &dyn Source, offset: u64, len: u64) -> Done<Option<u64>> {
        let Some(from) = source.in_cluster() else { return Ok(None) };
        match from.copy_range(&self.context, offset, &self.file, offset, len) {
            Ok(n) => Ok(Some(n)),
            // Two sessions: of two clusters, or of two keys.
            Err(e) if e.kind == ErrorKind::CrossDevice => Ok(None),
            Err(e) => Err(self.failed(e)),
        }
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> Done {
        self.file.write_at(&self.context, offset, bytes).map_err(|e| self.failed(e))
    }

    fn finish(&self) -> Done {
        self.file.flush(&self.context).map_err(|e| self.failed(e))
    }
}
