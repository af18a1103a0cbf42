//! Plain files below a directory, on any POSIX file system.

use crate::backend::{Attribute, Backend, How, Identity, OpenFile};
use crate::core::codes::{Code, Failure, Result};
use crate::core::control::{Caching, Layout};
use crate::core::hint::{Hint, Pattern};
use crate::core::list::Span;
use crate::core::name::Name;
use rustix::fs::{
    self, Advice, AtFlags, FallocateFlags, Mode, OFlags, RenameFlags, XattrFlags, fgetxattr,
    fsetxattr,
};
use rustix::io::{Errno, pread, pwrite};
use std::any::Any;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Bytes per step of a copy if the kernel cannot copy.
const STEP_BYTES: usize = 1 << 20;

/// A directory of plain files.
pub struct Plain {
    root: OwnedFd,
}

impl Plain {
    /// Attaches a directory.
    ///
    /// # Errors
    /// `FileNotFound`, and those of the file system.
    pub fn new(directory: &Path) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = fs::open(directory, flags, Mode::empty())
            .map_err(|error| failure(error, &directory.display()))?;
        Ok(Self { root })
    }
}

fn failure(error: Errno, what: &dyn std::fmt::Display) -> Failure {
    let code = match error {
        Errno::NOENT => Code::FileNotFound,
        Errno::EXIST => Code::AlreadyExists,
        Errno::NAMETOOLONG | Errno::ISDIR | Errno::NOTDIR | Errno::LOOP => Code::InvalidFilename,
        Errno::ACCESS | Errno::PERM | Errno::ROFS => Code::IncorrectMode,
        Errno::NOSPC | Errno::DQUOT => Code::NoSpace,
        Errno::OPNOTSUPP | Errno::NOSYS => Code::OpUnsupported,
        _ => Code::IoFailed,
    };
    let why = std::io::Error::from(error);
    Failure::new(code, format!("{what}: {why}"))
}

impl Backend for Plain {
    fn open(&self, name: &Name, how: How) -> Result<Box<dyn OpenFile>> {
        let mut flags = match (how.read, how.write) {
            (true, false) => OFlags::RDONLY,
            (false, _) => OFlags::WRONLY,
            (true, true) => OFlags::RDWR,
        };
        flags |= OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        if how.create {
            flags |= OFlags::CREATE | OFlags::EXCL;
        }
        if how.caching == Caching::None {
            flags |= OFlags::DSYNC;
        }
        let file = fs::openat(&self.root, name.bytes(), flags, Mode::from_raw_mode(0o666))
            .map_err(|error| failure(error, name))?;
        let stat = fs::fstat(&file).map_err(|error| failure(error, name))?;
        if fs::FileType::from_raw_mode(stat.st_mode) != fs::FileType::RegularFile {
            return Err(Failure::new(Code::InvalidFilename, format!("{name} is no regular file")));
        }
        let identity = (stat.st_dev, stat.st_ino);
        Ok(Box::new(PlainFile { file, identity, caching: how.caching, name: name.to_string() }))
    }

    fn identify(&self, name: &Name) -> Result<Identity> {
        let stat = fs::statat(&self.root, name.bytes(), AtFlags::empty())
            .map_err(|error| failure(error, name))?;
        Ok((stat.st_dev, stat.st_ino))
    }

    fn check_directory(&self, name: &Name) -> Result<()> {
        let directory = match name.split().0 {
            [] => b".",
            directory => directory,
        };
        let stat = fs::statat(&self.root, directory, AtFlags::empty())
            .map_err(|error| failure(error, name))?;
        match fs::FileType::from_raw_mode(stat.st_mode) {
            fs::FileType::Directory => Ok(()),
            _ => Err(failure(Errno::NOTDIR, name)),
        }
    }

    fn unlink(&self, name: &Name) -> Result<()> {
        fs::unlinkat(&self.root, name.bytes(), AtFlags::empty())
            .map_err(|error| failure(error, name))
    }

    fn rename(&self, old: &Name, new: &Name) -> Result<()> {
        let (root, from, to) = (&self.root, old.bytes(), new.bytes());
        let done = match fs::renameat_with(root, from, root, to, RenameFlags::NOREPLACE) {
            // On a file system without this flag (NFS): a link never replaces a name either.
            Err(Errno::INVAL | Errno::NOSYS) => fs::linkat(root, from, root, to, AtFlags::empty())
                .and_then(|()| fs::unlinkat(root, from, AtFlags::empty())),
            done => done,
        };
        done.map_err(|error| failure(error, &format!("{old} to {new}")))
    }

    fn check_layout(&self, _layout: &Layout) -> Result<()> {
        Err(Failure::new(Code::OpUnsupported, "a plain file has no layout to set"))
    }
}

struct PlainFile {
    file: OwnedFd,
    identity: Identity,
    caching: Caching,
    name: String,
}

impl PlainFile {
    fn failure(&self, error: Errno) -> Failure {
        failure(error, &self.name)
    }

    /// Reads until the buffer is full or the file ends.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            match pread(&self.file, &mut buffer[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(bytes) => done += bytes,
                Err(Errno::INTR) => {}
                Err(error) => return Err(self.failure(error)),
            }
        }
        Ok(done)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<()> {
        let mut done = 0;
        while done < data.len() {
            match pwrite(&self.file, &data[done..], offset + done as u64) {
                Ok(0) => return Err(self.failure(Errno::IO)),
                Ok(bytes) => done += bytes,
                Err(Errno::INTR) => {}
                Err(error) => return Err(self.failure(error)),
            }
        }
        Ok(())
    }

    /// Passes on advice; an error is ignored.
    fn advise_span(&self, span: Span, advice: Advice) {
        let _ = fs::fadvise(&self.file, span.start, NonZeroU64::new(span.len), advice);
    }

    fn drop_pages(&self, spans: Option<&[Span]>) {
        let all = [Span { start: 0, len: 0 }];
        for span in spans.unwrap_or(&all) {
            self.advise_span(*span, Advice::DontNeed);
        }
    }

    fn copy_by_hand(&self, source: &Self, from: Span, to: u64) -> Result<u64> {
        let mut buffer = vec![0; STEP_BYTES.min(from.len as usize)];
        let mut done = 0;
        while done < from.len {
            let want = (from.len - done).min(STEP_BYTES as u64) as usize;
            let bytes = source.read_at(from.start + done, &mut buffer[..want])?;
            self.write_at(to + done, &buffer[..bytes])?;
            done += bytes as u64;
            if bytes < want {
                break;
            }
        }
        Ok(done)
    }
}

impl OpenFile for PlainFile {
    fn identity(&self) -> Identity {
        self.identity
    }

    fn read(&self, spans: &[Span], buffer: &mut [u8], pattern: Pattern) -> Result<u64> {
        if self.caching == Caching::None {
            self.drop_pages(Some(spans));
        }
        let mut done = 0;
        for span in spans {
            let want = span.len as usize;
            let bytes = self.read_at(span.start, &mut buffer[done..done + want])?;
            done += bytes;
            if bytes < want {
                break;
            }
        }
        if pattern == Pattern::ReadOnce {
            self.drop_pages(Some(spans));
        }
        Ok(done as u64)
    }

    fn write(&self, spans: &[Span], data: &[u8]) -> Result<()> {
        let mut rest = data;
        for span in spans {
            let (here, later) = rest.split_at(span.len as usize);
            self.write_at(span.start, here)?;
            rest = later;
        }
        Ok(())
    }

    fn size(&self) -> Result<u64> {
        fs::fstat(&self.file).map(|stat| stat.st_size as u64).map_err(|e| self.failure(e))
    }

    fn set_size(&self, size: u64) -> Result<()> {
        fs::ftruncate(&self.file, size).map_err(|error| self.failure(error))
    }

    fn allocation(&self) -> Result<u64> {
        let stat = fs::fstat(&self.file).map_err(|error| self.failure(error))?;
        Ok(stat.st_blocks as u64 * 512)
    }

    fn preallocate(&self, bytes: u64) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        // Most file systems allocate all free space before they find that it is not enough.
        let room = fs::fstatvfs(&self.file).map_err(|error| self.failure(error))?;
        if bytes > room.f_bavail.saturating_mul(room.f_frsize) {
            return Err(self.failure(Errno::NOSPC));
        }
        fs::fallocate(&self.file, FallocateFlags::KEEP_SIZE, 0, bytes)
            .map_err(|error| self.failure(error))
    }

    fn propagate(&self, _spans: Option<&[Span]>) -> Result<()> {
        // The kernel shows the bytes on this node at once; a file server has them after this.
        fs::fdatasync(&self.file).map_err(|error| self.failure(error))
    }

    fn refresh(&self, spans: Option<&[Span]>) -> Result<()> {
        self.drop_pages(spans);
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        fs::fsync(&self.file).map_err(|error| self.failure(error))
    }

    fn layout(&self) -> Result<Layout> {
        let stat = fs::fstat(&self.file).map_err(|error| self.failure(error))?;
        Ok(Layout { width: Some(1), depth: Some(stat.st_blksize as u64), algorithm: true })
    }

    fn consistency_unit(&self) -> u64 {
        1
    }

    fn attribute(&self, attribute: Attribute) -> Result<Option<Vec<u8>>> {
        let mut value = vec![0; crate::core::limits::MAX_LABEL_LEN];
        match fgetxattr(&self.file, attribute.name(), &mut value[..]) {
            Ok(bytes) => {
                value.truncate(bytes);
                Ok(Some(value))
            }
            Err(Errno::NODATA) => Ok(None),
            Err(error) => Err(self.failure(error)),
        }
    }

    fn set_attribute(&self, attribute: Attribute, value: &[u8]) -> Result<()> {
        fsetxattr(&self.file, attribute.name(), value, XattrFlags::empty())
            .map_err(|error| self.failure(error))
    }

    fn copy_from(&self, source: &dyn OpenFile, from: Span, to: u64) -> Result<u64> {
        let any: &dyn Any = source;
        let Some(source) = any.downcast_ref::<Self>() else {
            return Err(Failure::new(Code::OpUnsupported, "the files are of different systems"));
        };
        let (mut read_at, mut write_at, mut done) = (from.start, to, 0);
        while done < from.len {
            let (from_at, to_at) = (Some(&mut read_at), Some(&mut write_at));
            let want = usize::try_from(from.len - done).unwrap_or(usize::MAX);
            match fs::copy_file_range(&source.file, from_at, &self.file, to_at, want) {
                Ok(0) => break,
                Ok(bytes) => done += bytes as u64,
                Err(Errno::INTR) => {}
                Err(Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                    let rest = Span { start: from.start + done, len: from.len - done };
                    return Ok(done + self.copy_by_hand(source, rest, to + done)?);
                }
                Err(error) => return Err(self.failure(error)),
            }
        }
        Ok(done)
    }

    fn advise(&self, hint: &Hint) {
        let pattern = match hint.pattern {
            Pattern::Unknown => None,
            Pattern::Sequential => Some(Advice::Sequential),
            Pattern::Reverse
            | Pattern::RandomPartial
            | Pattern::RandomComplete
            | Pattern::ReadOnce
            | Pattern::Records(_) => Some(Advice::Random),
        };
        let all = [Span { start: 0, len: 0 }];
        let spans = if hint.spans.is_empty() { &all[..] } else { &hint.spans };
        // The kernel keeps one pattern for each descriptor, whatever the range.
        if let Some(pattern) = pattern.filter(|_| hint.spans.is_empty()) {
            self.advise_span(all[0], pattern);
        }
        for span in spans {
            if hint.will_use && !hint.write {
                self.advise_span(*span, Advice::WillNeed);
            }
            if hint.no_further_use {
                self.advise_span(*span, Advice::DontNeed);
            }
        }
    }

    fn close(&self) -> Result<()> {
        Ok(())
    }
}
