//! Finds files named by a path on a mount or by weir:/path.

use crate::args::ClientChoice;
use crate::cluster::mounts;
use crate::failure::{Done, Failure};
use crate::files::name::{RemoteName, split};
use crate::files::remote::{RemoteTree, Sessions};
use crate::settings::Cluster;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use weir_types::Attr;

/// A file of a cluster.
pub struct Found {
    /// The cluster.
    pub tree: Arc<RemoteTree>,
    /// The path in the cluster.
    pub path: Vec<u8>,
    /// The name as the user wrote it.
    pub named: String,
}

/// Finds files in clusters; one session for each cluster.
pub struct Finder<'a> {
    choice: &'a ClientChoice,
    purpose: &'a str,
    sessions: Sessions,
    mounted: HashMap<String, Arc<RemoteTree>>,
}

impl<'a> Finder<'a> {
    /// A finder without any session yet.
    pub fn new(choice: &'a ClientChoice, purpose: &'a str) -> Self {
        Self { choice, purpose, sessions: Sessions::default(), mounted: HashMap::new() }
    }

    /// The cluster and path of a name. The file need not exist, but on a mount its directory must.
    pub fn find(&mut self, text: &OsString) -> Done<Found> {
        let named = text.display().to_string();
        if text.as_bytes().starts_with(b"weir:") {
            let name = RemoteName::parse(text)?;
            let tree = self.sessions.tree(self.choice, &name, self.purpose)?;
            return Ok(Found { tree, path: name.path, named });
        }
        let local = resolve(Path::new(text))?;
        let Some((mount, below)) = mounts::holding(Path::new(OsStr::from_bytes(&local)))? else {
            return Err(Failure::new("is not in a mounted Weir")
                .about(named)
                .hint("write weir:/path for a file of a cluster that is not mounted"));
        };
        let tree = match self.mounted.get(&mount.source) {
            Some(tree) => tree.clone(),
            None => {
                let unknown =
                    || Failure::new(format!("cannot tell the cluster of {}", mount.source));
                let cluster = Cluster::from_source(&mount.source).ok_or_else(unknown)?;
                let tree = Arc::new(RemoteTree::open(&cluster, "weir:".to_owned(), self.purpose)?);
                self.mounted.insert(mount.source, tree.clone());
                tree
            }
        };
        let mut path = b"/".to_vec();
        path.extend_from_slice(below.as_os_str().as_bytes());
        Ok(Found { tree, path, named })
    }
}

impl Found {
    /// Attributes of the file.
    pub fn attr(&self) -> Done<Attr> {
        self.tree.attr(&self.path, true)
    }
}

/// The path without symbolic links. The file need not exist.
fn resolve(path: &Path) -> Done<Vec<u8>> {
    match path.canonicalize() {
        Ok(path) => Ok(path.as_os_str().as_bytes().to_vec()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            let path = std::path::absolute(path).map_err(|e| Failure::file(path, e))?;
            let bytes = path.as_os_str().as_bytes();
            let Some((dir, name)) = split(bytes) else { return Err(Failure::file(&path, e)) };
            let dir = Path::new(OsStr::from_bytes(dir));
            let dir = dir.canonicalize().map_err(|e| Failure::file(dir, e))?;
            Ok(dir.join(OsStr::from_bytes(name)).as_os_str().as_bytes().to_vec())
        }
        Err(e) => Err(Failure::file(path, e)),
    }
}
