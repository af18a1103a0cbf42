//! Names of files on the command line: `weir:/path`, `weir://CLUSTER/path`, `-`, and local paths.

use crate::failure::{Done, Failure};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// A file of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteName {
    /// The name of the cluster; `None` for the cluster that the flags choose.
    pub cluster: Option<String>,
    /// The path from the root. It begins with `/` and has no empty or `.` components.
    pub path: Vec<u8>,
}

/// An argument of cp.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Name {
    /// Standard input or output.
    Stream,
    /// A file of this machine.
    Local(PathBuf),
    /// A file of a cluster.
    Remote(RemoteName),
}

impl Name {
    /// Parses an argument of cp.
    pub fn parse(text: &OsStr) -> Done<Self> {
        match text.as_bytes() {
            b"-" => Ok(Name::Stream),
            b"" => Err(Failure::new("an empty file name")),
            bytes if bytes.starts_with(b"weir:") => Ok(Name::Remote(RemoteName::parse(text)?)),
            _ => Ok(Name::Local(PathBuf::from(text))),
        }
    }
}

impl RemoteName {
    /// Parses an argument that is always in a cluster, so `weir:` may be left out.
    pub fn parse(text: &OsStr) -> Done<Self> {
        let bytes = text.as_bytes();
        let Some(rest) = bytes.strip_prefix(b"weir:") else {
            return Ok(Self { cluster: None, path: clean(bytes)? });
        };
        let Some(rest) = rest.strip_prefix(b"//") else {
            return Ok(Self { cluster: None, path: clean(rest)? });
        };
        let end = rest.iter().position(|b| *b == b'/').unwrap_or(rest.len());
        let cluster = String::from_utf8(rest[..end].to_vec())
            .map_err(|_| Failure::new("the name of a cluster is not UTF-8"))?;
        // `weir:///path` is the chosen cluster, as `file:///path` is this host.
        let cluster = Some(cluster).filter(|name| !name.is_empty());
        Ok(Self { cluster, path: clean(&rest[end..])? })
    }
}

/// Returns the path with exactly one `/` before each component. Refuses `..`, whose meaning depends
/// on symbolic links in an unexpected way.
fn clean(path: &[u8]) -> Done<Vec<u8>> {
    let mut out = Vec::with_capacity(path.len() + 1);
    for part in path.split(|b| *b == b'/').filter(|p| !p.is_empty() && *p != b".") {
        if part == b".." {
            return Err(Failure::new(format!(
                "{}: '..' cannot be used in names of a cluster's files",
                String::from_utf8_lossy(path)
            )));
        }
        out.push(b'/');
        out.extend_from_slice(part);
    }
    if out.is_empty() {
        out.push(b'/');
    }
    Ok(out)
}

/// The path of an entry of a directory.
pub fn child(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = dir.to_vec();
    if !path.ends_with(b"/") {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

/// The directory and the last component of a path; `None` for the root.
pub fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let slash = path.iter().rposition(|b| *b == b'/')?;
    let name = &path[slash + 1..];
    let dir = if slash == 0 { &path[..1] } else { &path[..slash] };
    (!name.is_empty()).then_some((dir, name))
}

/// A path for display.
pub fn shown(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote(text: &str) -> (Option<String>, String) {
        let name = RemoteName::parse(OsStr::new(text)).unwrap();
        (name.cluster, shown(&name.path))
    }

    #[test]
    fn names_in_clusters_are_recognised() {
        assert_eq!(remote("weir:/a/b"), (None, "/a/b".into()));
        assert_eq!(remote("weir:a//b/./c/"), (None, "/a/b/c".into()));
        assert_eq!(remote("weir:"), (None, "/".into()));
        assert_eq!(remote("weir://two/a"), (Some("two".into()), "/a".into()));
        assert_eq!(remote("weir:///a"), (None, "/a".into()));
        assert_eq!(remote("/a"), (None, "/a".into()));
        assert!(RemoteName::parse(OsStr::new("weir:/a/../b")).is_err());
    }

    #[test]
    fn what_is_not_in_a_cluster_is_local() {
        assert_eq!(Name::parse(OsStr::new("-")).unwrap(), Name::Stream);
        assert_eq!(Name::parse(OsStr::new("./weir:x")).unwrap(), Name::Local("./weir:x".into()));
    }

    #[test]
    fn paths_split_into_directory_and_name() {
        assert_eq!(split(b"/a/b"), Some((&b"/a"[..], &b"b"[..])));
        assert_eq!(split(b"/a"), Some((&b"/"[..], &b"a"[..])));
        assert_eq!(split(b"/"), None);
    }
}
