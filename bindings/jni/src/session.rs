//! A user's session with a cluster, and operations on paths.

use std::sync::Arc;
use weir_client::job::{JobReader, Member};
use weir_client::{Client, ClientConfig, Context, CreateOptions, File, LocatedPage, set_nothing};
use weir_types::limits::MAX_READDIR_ENTRIES;
use weir_types::{Attr, Caller, Error, ErrorKind, FileId, FileKind, FsUsage, Result, Timestamp};
use weir_wire::Rights;
use weir_wire::meta::{DirPage, RenameRequest, SetAttrRequest, SetTime};

/// A session, and its user.
pub struct Session {
    /// The client.
    pub client: Client,
    /// The user.
    pub context: Context,
}

/// Attributes to change; `None` leaves one unchanged.
#[derive(Default)]
pub struct Change {
    /// Permission bits.
    pub mode: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Modification time, milliseconds since 1970.
    pub mtime_ms: Option<i64>,
    /// Access time, milliseconds since 1970.
    pub atime_ms: Option<i64>,
}

impl Session {
    /// Opens a session, for a process of a job if there is one.
    pub fn open(config: ClientConfig, caller: Caller, job: Option<Member>) -> Result<Self> {
        let reader = job.map(|member| Arc::new(JobReader::new(member)));
        let context = Context { reader, ..Context::of(caller) };
        Ok(Self { client: Client::connect(config)?, context })
    }

    /// Attributes of a file.
    pub fn attr(&self, path: &str, follow: bool) -> Result<Attr> {
        self.client.resolve(&self.context, path.as_bytes(), follow)
    }

    /// The parent directory of a path, and the path's last part.
    fn parent<'p>(&self, path: &'p str) -> Result<(FileId, &'p [u8])> {
        let (dir, name) = split(path)?;
        let attr = self.attr(dir, true)?;
        match attr.kind {
            FileKind::Directory => Ok((attr.file, name.as_bytes())),
            _ => Err(Error::new(ErrorKind::NotDirectory, format!("{dir} is not a directory"))),
        }
    }

    /// A page of a directory.
    pub fn page(&self, dir: FileId, place: (u64, u64)) -> Result<DirPage> {
        self.client.readdir(&self.context, dir, place, MAX_READDIR_ENTRIES as u32, true)
    }

    /// A part of a directory with the attributes of each entry; only what is gone since has none.
    pub fn listed(&self, dir: FileId, place: (u64, u64)) -> Result<DirPage> {
        let mut page = self.page(dir, place)?;
        self.complete(&mut page)?;
        Ok(page)
    }

    /// The same, with where the files are.
    pub fn located(&self, dir: FileId, place: (u64, u64)) -> Result<LocatedPage> {
        let most = MAX_READDIR_ENTRIES as u32;
        let mut located = self.client.readdir_located(&self.context, dir, place, most)?;
        self.complete(&mut located.page)?;
        Ok(located)
    }

    /// Asks for the attributes that a page lacks.
    fn complete(&self, page: &mut DirPage) -> Result<()> {
        let is_own = |name: &[u8]| name == b"." || name == b"..";
        for entry in page.entries.iter_mut().filter(|entry| !is_own(&entry.name)) {
            // A page does not tell those of a file that somebody is writing or has just written.
            if entry.attr.is_none() {
                entry.attr = match self.client.getattr(&self.context, entry.file) {
                    Err(error) if is_gone(&error) => None,
                    found => Some(found?),
                };
            }
        }
        Ok(())
    }

    /// Opens an existing file.
    pub fn open_file(&self, path: &str, rights: Rights) -> Result<(File, Attr)> {
        let mut tries = 0;
        loop {
            let attr = self.attr(path, true)?;
            let named = |kind, what: &str| Err(Error::new(kind, format!("{path} is {what}")));
            match attr.kind {
                FileKind::File => {}
                FileKind::Directory => {
                    return named(ErrorKind::NotFound, "not a file but a directory");
                }
                _ => return named(ErrorKind::InvalidArgument, "not a regular file"),
            }
            tries += 1;
            match self.client.open(&self.context, attr.file, rights) {
                // Another file may have taken the name meanwhile.
                Err(error) if is_gone(&error) && tries < MAX_TRIES => {}
                opened => return opened,
            }
        }
    }

    /// Makes a file in an existing directory. An existing file is emptied, or without `overwrite`
    /// an error.
    pub fn create(&self, path: &str, overwrite: bool, masked: (u16, u16)) -> Result<(File, Attr)> {
        let (parent, name) = self.parent(path)?;
        let options = CreateOptions {
            mode: masked.0,
            umask: masked.1,
            exclusive: !overwrite,
            truncate: overwrite,
            rights: Rights::READ_WRITE,
            layout: None,
        };
        self.client.create(&self.context, parent, name, &options).map_err(|error| {
            match error.kind {
                ErrorKind::IsDirectory => {
                    Error::new(ErrorKind::Exists, format!("{path} is a directory"))
                }
                ErrorKind::Exists => Error::new(ErrorKind::Exists, format!("{path} exists")),
                _ => error,
            }
        })
    }

    /// Makes a directory and its missing parents.
    pub fn mkdirs(&self, path: &str, masked: (u16, u16)) -> Result<()> {
        let mut at = FileId::ROOT;
        for end in part_ends(path) {
            let part = &path[..end];
            let name = part.rsplit('/').next().unwrap_or_default().as_bytes();
            let found = match self.client.lookup(&self.context, at, name) {
                Err(error) if error.kind == ErrorKind::NotFound => {
                    match self.client.mkdir_masked(&self.context, at, name, masked) {
                        // Another process has made it first.
                        Err(error) if error.kind == ErrorKind::Exists => self.attr(part, true)?,
                        made => made?,
                    }
                }
                Ok(attr) if attr.kind == FileKind::Symlink => self.attr(part, true)?,
                found => found?,
            };
            if found.kind != FileKind::Directory {
                let (kind, what) = match end == path.len() {
                    true => (ErrorKind::Exists, "exists and is not a directory"),
                    false => (ErrorKind::NotDirectory, "is not a directory"),
                };
                return Err(Error::new(kind, format!("{part} {what}")));
            }
            at = found.file;
        }
        Ok(())
    }

    /// Renames a file or directory, atomically in the metadata server.
    pub fn rename(&self, from: &str, to: &str, replace: bool) -> Result<()> {
        let (parent, name) = self.parent(from)?;
        let (new_parent, new_name) = self.parent(to)?;
        let request = RenameRequest {
            parent,
            name: name.into(),
            new_parent,
            new_name: new_name.into(),
            no_replace: !replace,
            exchange: false,
            whiteout: false,
            hold: false,
        };
        self.client.rename(&self.context, &request)
    }

    /// Removes a file or directory, with `recursive` including its contents. The root itself stays.
    pub fn remove(&self, path: &str, recursive: bool) -> Result<()> {
        if part_ends(path).next().is_none() {
            return self.empty(FileId::ROOT);
        }
        let (parent, name) = self.parent(path)?;
        let attr = self.client.lookup(&self.context, parent, name)?;
        if attr.kind != FileKind::Directory {
            return self.client.unlink(&self.context, parent, name).map(drop);
        }
        if recursive {
            self.empty(attr.file)?;
        }
        self.client.rmdir(&self.context, parent, name)
    }

    /// Empties a directory without recursion, whatever the depth of the tree.
    fn empty(&self, dir: FileId) -> Result<()> {
        /// A directory to be emptied and then removed.
        struct Open {
            dir: FileId,
            name: Option<(FileId, Box<[u8]>)>,
        }
        let mut stack = vec![Open { dir, name: None }];
        while let Some(Open { dir, name }) = stack.pop() {
            let page = match self.page(dir, (0, 0)) {
                // Another process has removed it meanwhile.
                Err(error) if is_gone(&error) && name.is_some() => continue,
                page => page?,
            };
            let all = page.entries.iter().filter(|e| &*e.name != b"." && &*e.name != b"..");
            let (below, files): (Vec<_>, Vec<_>) =
                all.partition(|entry| entry.kind == FileKind::Directory);
            for entry in &files {
                gone(self.client.unlink(&self.context, dir, &entry.name).map(drop))?;
            }
            if below.is_empty() && page.end {
                if let Some((parent, name)) = name {
                    match self.client.rmdir(&self.context, parent, &name) {
                        // Another process has put something into it meanwhile.
                        Err(error) if error.kind == ErrorKind::NotEmpty => return Err(error),
                        result => gone(result)?,
                    }
                }
                continue;
            }
            stack.push(Open { dir, name });
            let below = below.into_iter();
            stack.extend(
                below.map(|entry| Open {
                    dir: entry.file,
                    name: Some((dir, (&*entry.name).into())),
                }),
            );
        }
        Ok(())
    }

    /// Changes attributes.
    pub fn change(&self, path: &str, change: &Change) -> Result<()> {
        let file = self.attr(path, true)?.file;
        let at = |ms: i64| SetTime::At(Timestamp(ms.saturating_mul(1_000_000)));
        let request = SetAttrRequest {
            mode: change.mode,
            uid: change.uid,
            gid: change.gid,
            atime: change.atime_ms.map(at),
            mtime: change.mtime_ms.map(at),
            ..set_nothing(file)
        };
        self.client.setattr(&self.context, &request).map(drop)
    }

    /// Truncates or extends a file.
    pub fn truncate(&self, path: &str, size: u64) -> Result<()> {
        let (file, _) = self.open_file(path, Rights::READ_WRITE)?;
        file.truncate(&self.context, size)?;
        file.close(&self.context)
    }

    /// Space of the file system, or what a quota leaves of it.
    pub fn usage(&self, path: &str) -> Result<FsUsage> {
        let file = self.attr(path, true)?.file;
        self.client.statfs(&self.context, file)
    }
}

/// Number of lookups of a file that is replaced repeatedly.
const MAX_TRIES: usize = 16;

/// Whether an error says that the file is gone.
fn is_gone(error: &Error) -> bool {
    matches!(error.kind, ErrorKind::NotFound | ErrorKind::Stale)
}

/// Ignores the error if the file is gone already.
fn gone(result: Result<()>) -> Result<()> {
    match result {
        Err(error) if is_gone(&error) => Ok(()),
        other => other,
    }
}

/// The parent directory of a path, and the path's last part.
fn split(path: &str) -> Result<(&str, &str)> {
    match path.rsplit_once('/') {
        Some((dir, name)) if !name.is_empty() => Ok((dir, name)),
        _ => Err(Error::new(ErrorKind::InvalidArgument, format!("{path} has no name"))),
    }
}

/// The end of each part of a path.
fn part_ends(path: &str) -> impl Iterator<Item = usize> + '_ {
    let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
    ends.filter(move |end| *end > 0 && !path[..*end].ends_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_gone_along_part_by_part() {
        let parts = |path: &str| -> Vec<String> {
            part_ends(path).map(|end| path[..end].to_owned()).collect()
        };
        assert_eq!(parts("/"), Vec::<String>::new());
        assert_eq!(parts("/a/bc/d"), ["/a", "/a/bc", "/a/bc/d"]);
        assert_eq!(split("/a/bc").unwrap(), ("/a", "bc"));
        assert_eq!(split("/a").unwrap(), ("", "a"));
        assert!(split("/").is_err());
    }
}
