//! The files of this machine.

use crate::failure::{Done, Failure};
use crate::files::tree::{Meta, Sink, Source, Tree};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};
use std::ffi::OsStr;
use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{
    DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, lchown, symlink,
};
use std::path::{Path, PathBuf};
use weir_types::{FileKind, Timestamp};

/// The files of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct LocalTree;

fn path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

fn failed(bytes: &[u8]) -> impl Fn(std::io::Error) -> Failure + '_ {
    move |e| Failure::file(path(bytes), e)
}

fn meta(m: &std::fs::Metadata) -> Meta {
    Meta {
        kind: FileKind::from_mode(m.mode()).unwrap_or(FileKind::File),
        mode: (m.mode() & 0o7777) as u16,
        uid: m.uid(),
        gid: m.gid(),
        size: m.size(),
        atime: Timestamp::new(m.atime(), m.atime_nsec() as u32),
        mtime: Timestamp::new(m.mtime(), m.mtime_nsec() as u32),
        identity: (m.dev(), m.ino()),
    }
}

impl Tree for LocalTree {
    fn shown(&self, bytes: &[u8]) -> String {
        path(bytes).display().to_string()
    }

    fn stat(&self, bytes: &[u8], follow: bool) -> Done<Option<Meta>> {
        let found = if follow {
            std::fs::metadata(path(bytes))
        } else {
            std::fs::symlink_metadata(path(bytes))
        };
        match found {
            Ok(m) => Ok(Some(meta(&m))),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(failed(bytes)(e)),
        }
    }

    fn list(&self, bytes: &[u8]) -> Done<Vec<(Vec<u8>, Meta)>> {
        let mut entries = Vec::new();
        for entry in std::fs::read_dir(path(bytes)).map_err(failed(bytes))? {
            let entry = entry.map_err(failed(bytes))?;
            let m = match entry.metadata() {
                // Removed since the directory was read.
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => continue,
                m => m.map_err(failed(entry.path().as_os_str().as_bytes()))?,
            };
            entries.push((entry.file_name().as_bytes().to_vec(), meta(&m)));
        }
        Ok(entries)
    }

    fn make_dir(&self, bytes: &[u8], mode: u16) -> Done {
        DirBuilder::new().mode(u32::from(mode)).create(path(bytes)).map_err(failed(bytes))
    }

    fn read_link(&self, bytes: &[u8]) -> Done<Vec<u8>> {
        let target = std::fs::read_link(path(bytes)).map_err(failed(bytes))?;
        Ok(target.as_os_str().as_bytes().to_vec())
    }

    fn make_link(&self, bytes: &[u8], target: &[u8]) -> Done {
        let is_link = std::fs::symlink_metadata(path(bytes)).is_ok_and(|m| m.is_symlink());
        if is_link {
            std::fs::remove_file(path(bytes)).map_err(failed(bytes))?;
        }
        symlink(path(target), path(bytes)).map_err(failed(bytes))
    }

    fn open(&self, bytes: &[u8]) -> Done<Box<dyn Source>> {
        let file = File::open(path(bytes)).map_err(failed(bytes))?;
        Ok(Box::new(LocalFile { file, path: path(bytes).to_owned() }))
    }

    fn create(&self, bytes: &[u8], mode: u16) -> Done<Box<dyn Sink>> {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(u32::from(mode))
            .open(path(bytes))
            .map_err(failed(bytes))?;
        Ok(Box::new(LocalFile { file, path: path(bytes).to_owned() }))
    }

    fn set_meta(&self, bytes: &[u8], meta: &Meta) -> Done {
        // The owner first: a change of owner clears setuid and setgid.
        match lchown(path(bytes), Some(meta.uid), Some(meta.gid)) {
            Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => {}
            done => done.map_err(failed(bytes))?,
        }
        if meta.kind != FileKind::Symlink {
            let permissions = Permissions::from_mode(u32::from(meta.mode));
            std::fs::set_permissions(path(bytes), permissions).map_err(failed(bytes))?;
        }
        let time = |t: Timestamp| Timespec { tv_sec: t.seconds(), tv_nsec: i64::from(t.nanos()) };
        let times =
            Timestamps { last_access: time(meta.atime), last_modification: time(meta.mtime) };
        utimensat(CWD, path(bytes), &times, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|e| failed(bytes)(e.into()))
    }

    fn is(&self, other: &str) -> bool {
        self.identity() == other
    }

    fn identity(&self) -> String {
        "local".to_owned()
    }
}

struct LocalFile {
    file: File,
    path: PathBuf,
}

impl Source for LocalFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Done<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.file.read_at(&mut buffer[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(Failure::file(&self.path, e)),
            }
        }
        Ok(filled)
    }
}

impl Sink for LocalFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Done {
        self.file.write_all_at(bytes, offset).map_err(|e| Failure::file(&self.path, e))
    }

    fn finish(&self) -> Done {
        Ok(())
    }
}
