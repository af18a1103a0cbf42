//! Carries out the calls in a real directory.

use super::Tree;
use super::model::{DIR_MODE, FILE_MODE};
use super::op::{Answer, Kind, Op, Over, Said, Set};
use super::snapshot::{Entry, Snapshot};
use crate::Outcome;
use crate::truncate::truncate;
use rustix::fs::{
    CWD, FileType, Mode, OFlags, RenameFlags, XattrFlags, getxattr, listxattr, removexattr,
    renameat_with, setxattr,
};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Longer than any value of the exercise.
const MAX_XATTR: usize = 4096;

/// A directory that holds the tree.
pub struct Disk {
    root: PathBuf,
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

fn kind(file_type: FileType) -> Result<Kind, Errno> {
    match file_type {
        FileType::RegularFile => Ok(Kind::File),
        FileType::Directory => Ok(Kind::Dir),
        FileType::Symlink => Ok(Kind::Symlink),
        _ => Err(Errno::IO),
    }
}

fn kind_of(metadata: &Metadata) -> Result<Kind, Errno> {
    kind(FileType::from_raw_mode(metadata.mode()))
}

impl Tree for Disk {
    fn perform(&self, op: &Op) -> Said {
        self.call(op).map_err(|e| errno(&e))
    }

    fn snapshot(&self) -> Outcome<Snapshot> {
        let mut snapshot = Snapshot::default();
        self.collect("", &mut snapshot)?;
        Ok(snapshot)
    }
}

impl Disk {
    /// Takes a directory.
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// Whether the directory supports user extended attributes.
    pub fn keeps_xattrs(&self) -> bool {
        let kept = setxattr(&self.root, "user.probe", b"", XattrFlags::empty()).is_ok();
        kept && removexattr(&self.root, "user.probe").is_ok()
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    fn call(&self, op: &Op) -> std::io::Result<Answer> {
        match op {
            Op::Create { path, exclusive, truncate } => {
                let mut options = OpenOptions::new();
                options.write(true).create(true).mode(FILE_MODE);
                options.create_new(*exclusive).truncate(*truncate).open(self.at(path))?;
            }
            Op::Append { path, text } => {
                let mut file = OpenOptions::new().append(true).open(self.at(path))?;
                file.write_all(text.as_bytes())?;
            }
            Op::Read { path } => {
                let mut bytes = Vec::new();
                File::open(self.at(path))?.read_to_end(&mut bytes)?;
                return Ok(Answer::Bytes(bytes));
            }
            Op::Truncate { path, len } => truncate(&self.at(path), *len)?,
            Op::MakeDir { path } => fs::DirBuilder::new().mode(DIR_MODE).create(self.at(path))?,
            Op::RemoveDir { path } => fs::remove_dir(self.at(path))?,
            Op::Symlink { path, target } => std::os::unix::fs::symlink(target, self.at(path))?,
            Op::ReadLink { path } => {
                let target = fs::read_link(self.at(path))?;
                return Ok(Answer::Bytes(target.into_os_string().into_encoded_bytes()));
            }
            Op::Link { from, to } => fs::hard_link(self.at(from), self.at(to))?,
            Op::Rename { from, to, over } => {
                let flags = match over {
                    Over::Replace => RenameFlags::empty(),
                    Over::Keep => RenameFlags::NOREPLACE,
                    Over::Exchange => RenameFlags::EXCHANGE,
                };
                renameat_with(CWD, self.at(from), CWD, self.at(to), flags)?;
            }
            Op::Unlink { path } => fs::remove_file(self.at(path))?,
            Op::Chmod { path, mode } => {
                fs::set_permissions(self.at(path), fs::Permissions::from_mode(*mode))?;
            }
            Op::SetXattr { path, name, value, how } => {
                let flags = match how {
                    Set::Any => XattrFlags::empty(),
                    Set::New => XattrFlags::CREATE,
                    Set::Old => XattrFlags::REPLACE,
                };
                setxattr(self.at(path), *name, value.as_bytes(), flags)?;
            }
            Op::GetXattr { path, name } => {
                return Ok(Answer::Bytes(self.xattr(&self.at(path), name)?));
            }
            Op::RemoveXattr { path, name } => removexattr(self.at(path), *name)?,
            Op::Stat { path, follow } => {
                let path = self.at(path);
                let metadata =
                    if *follow { fs::metadata(path)? } else { fs::symlink_metadata(path)? };
                let kind = kind_of(&metadata)?;
                return Ok(Answer::Attributes {
                    kind,
                    mode: metadata.mode() & 0o7777,
                    links: metadata.nlink(),
                    size: if kind == Kind::Dir { 0 } else { metadata.size() },
                });
            }
            Op::List { path } => return Ok(Answer::Entries(self.list(path)?)),
        }
        Ok(Answer::Done)
    }

    fn xattr(&self, path: &Path, name: &str) -> Result<Vec<u8>, Errno> {
        let mut value = vec![0; MAX_XATTR];
        let len = getxattr(path, name, &mut value[..])?;
        value.truncate(len);
        Ok(value)
    }

    /// Uses the kinds that the listing itself reports.
    fn list(&self, path: &str) -> Result<BTreeMap<String, Kind>, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(self.at(path), flags, Mode::empty())?;
        let mut entries = BTreeMap::new();
        for entry in rustix::fs::Dir::read_from(dir)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name == "." || name == ".." {
                continue;
            }
            let mut file_type = entry.file_type();
            if file_type == FileType::Unknown {
                let metadata = fs::symlink_metadata(self.at(path).join(&name));
                file_type = FileType::from_raw_mode(metadata.map_err(|e| errno(&e))?.mode());
            }
            if entries.insert(name, kind(file_type)?).is_some() {
                // An entry that exists during the whole listing appears once.
                return Err(Errno::NOTUNIQ);
            }
        }
        Ok(entries)
    }

    fn collect(&self, above: &str, into: &mut Snapshot) -> Outcome {
        let dir = above.trim_end_matches('/');
        let listed = self.list(dir).map_err(|e| format!("{}: {e}", self.at(dir).display()))?;
        for (name, kind) in listed {
            let path = format!("{above}{name}");
            let failed = |e: std::io::Error| format!("{}: {e}", self.at(&path).display());
            let metadata = fs::symlink_metadata(self.at(&path)).map_err(failed)?;
            let (bytes, xattrs) = match kind {
                Kind::Symlink => {
                    let target = fs::read_link(self.at(&path)).map_err(failed)?;
                    (target.into_os_string().into_encoded_bytes(), BTreeMap::new())
                }
                Kind::File => {
                    let bytes = fs::read(self.at(&path)).map_err(failed)?;
                    (bytes, self.xattrs(&path).map_err(|e| failed(e.into()))?)
                }
                Kind::Dir => (Vec::new(), self.xattrs(&path).map_err(|e| failed(e.into()))?),
            };
            into.add(
                path.clone(),
                metadata.ino(),
                Entry {
                    kind: kind_of(&metadata).map_err(|e| failed(e.into()))?,
                    mode: metadata.mode() & 0o7777,
                    links: metadata.nlink(),
                    bytes,
                    xattrs,
                    same_as: String::new(),
                },
            );
            if kind == Kind::Dir {
                self.collect(&format!("{path}/"), into)?;
            }
        }
        Ok(())
    }

    fn xattrs(&self, path: &str) -> Result<BTreeMap<String, Vec<u8>>, Errno> {
        let path = self.at(path);
        let mut names = vec![0u8; MAX_XATTR];
        let len = match listxattr(&path, &mut names[..]) {
            Err(Errno::OPNOTSUPP) => 0,
            len => len?,
        };
        let names = names[..len].split(|b| *b == 0).filter(|n| n.starts_with(b"user."));
        let value = |name: &[u8]| {
            let name = String::from_utf8_lossy(name).into_owned();
            let value = self.xattr(&path, &name)?;
            Ok((name, value))
        };
        names.map(value).collect()
    }
}
