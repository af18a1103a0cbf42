//! Local paths that may be longer than a system call accepts.

use rustix::fs::{CWD, Mode, OFlags, openat};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The most bytes of a path in one system call. `PATH_MAX` is 4096 with the final zero.
const MOST: usize = 4000;

/// A path that every system call accepts, valid while this exists.
pub struct Near {
    path: PathBuf,
    /// A directory on the way, with which the path begins.
    _dir: Option<OwnedFd>,
}

impl Near {
    /// Opens the directories on the way of a long path part by part.
    pub fn new(mut path: &[u8]) -> io::Result<Self> {
        let mut dir: Option<OwnedFd> = None;
        while path.len() > MOST {
            let slash = path[..MOST].iter().rposition(|b| *b == b'/').filter(|slash| *slash > 0);
            // No file name is as long as that.
            let slash = slash.ok_or_else(|| io::Error::from(rustix::io::Errno::NAMETOOLONG))?;
            let part = Path::new(OsStr::from_bytes(&path[..slash]));
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            dir = Some(match &dir {
                None => openat(CWD, part, flags, Mode::empty())?,
                Some(at) => openat(at, part, flags, Mode::empty())?,
            });
            path = &path[slash + 1..];
        }
        let rest = OsStr::from_bytes(path);
        let path = match &dir {
            None => PathBuf::from(rest),
            // This path names the directory in every call, including those that take no descriptor.
            Some(dir) => Path::new("/proc/self/fd").join(dir.as_raw_fd().to_string()).join(rest),
        };
        Ok(Self { path, _dir: dir })
    }

    /// The path for a system call.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_longer_than_any_call_takes_leads_to_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let mut path = dir.path().as_os_str().as_bytes().to_vec();
        for _ in 0..100 {
            path.push(b'/');
            path.extend_from_slice(&[b'd'; 200]);
            std::fs::create_dir(Near::new(&path).unwrap().path()).unwrap();
        }
        path.extend_from_slice(b"/file");
        std::fs::write(Near::new(&path).unwrap().path(), "deep").unwrap();
        assert_eq!(std::fs::read(Near::new(&path).unwrap().path()).unwrap(), b"deep");
        path.extend_from_slice(b"/no");
        assert!(std::fs::metadata(Near::new(&path).unwrap().path()).is_err());
    }
}
