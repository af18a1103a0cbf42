//! The model's tree of names, on the C interface.

use super::{checked, done, list, stat_of, text};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::ffi::{CString, c_int};
use std::path::Path;
use weir::files::{weir_close, weir_open};
use weir::handles::{weir_file_t, weir_fs_t};
use weir::io::{weir_append, weir_pread};
use weir::names::{
    weir_chmod, weir_link, weir_mkdir, weir_readlink, weir_rename, weir_rmdir, weir_stat_t,
    weir_symlink, weir_truncate, weir_unlink,
};
use weir::xattrs::{weir_getxattr, weir_listxattr, weir_removexattr, weir_setxattr};
use weir_exercise::Outcome;
use weir_exercise::tree::Tree;
use weir_exercise::tree::op::{Answer, Kind, Op, Over, Said, Set};
use weir_exercise::tree::snapshot::{Entry, Snapshot};

/// Larger than any value of the exercise.
const MOST: usize = 1 << 20;

/// A directory of a connected cluster.
pub struct CTree {
    fs: weir_fs_t,
    root: String,
}

fn kind_of(stat: &weir_stat_t) -> Kind {
    match stat.mode & libc::S_IFMT {
        libc::S_IFREG => Kind::File,
        libc::S_IFDIR => Kind::Dir,
        libc::S_IFLNK => Kind::Symlink,
        other => panic!("mode {other:#o}"),
    }
}

/// The value returned by a call that first reports its length.
fn value(call: impl FnOnce(*mut u8, usize) -> i64) -> Result<Vec<u8>, Errno> {
    let mut value = vec![0; MOST];
    let len = checked(call(value.as_mut_ptr(), MOST))?;
    value.truncate(len as usize);
    Ok(value)
}

impl CTree {
    /// The tree below a directory.
    pub fn new(fs: weir_fs_t, root: &str) -> Self {
        Self { fs, root: root.to_owned() }
    }

    fn at(&self, path: &str) -> CString {
        text(&Path::new(&self.root).join(path))
    }

    fn with_file<T>(
        &self,
        path: &str,
        (flags, mode): (c_int, u32),
        run: impl FnOnce(weir_file_t) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let (path, mut file) = (self.at(path), 0);
        // SAFETY: path and place live until it returns.
        done(unsafe { weir_open(self.fs, path.as_ptr(), flags, mode, &mut file) })?;
        let result = run(file);
        done(weir_close(file))?;
        result
    }

    fn bytes(&self, path: &str) -> Result<Vec<u8>, Errno> {
        self.with_file(path, (libc::O_RDONLY, 0), |file| {
            // SAFETY: the memory lives until it returns.
            value(|at, len| unsafe { weir_pread(file, at.cast(), len, 0) })
        })
    }

    fn target(&self, path: &str) -> Result<Vec<u8>, Errno> {
        let path = self.at(path);
        // SAFETY: path and memory live until it returns.
        value(|at, len| unsafe { weir_readlink(self.fs, path.as_ptr(), at.cast(), len) })
    }

    fn xattr(&self, path: &str, name: &str) -> Result<Vec<u8>, Errno> {
        let (path, name) = (self.at(path), CString::new(name).unwrap());
        let (fs, path, name) = (self.fs, path.as_ptr(), name.as_ptr());
        // SAFETY: texts and memory live until it returns.
        value(|at, len| unsafe { weir_getxattr(fs, path, name, at.cast(), len) })
    }

    fn xattrs(&self, path: &str) -> Result<BTreeMap<String, Vec<u8>>, Errno> {
        let at_path = self.at(path);
        let (fs, of) = (self.fs, at_path.as_ptr());
        // SAFETY: text and memory live until it returns.
        let names = value(|at, len| unsafe { weir_listxattr(fs, of, at.cast(), len) })?;
        let names = names.split(|byte| *byte == 0).filter(|name| name.starts_with(b"user."));
        let named = |name: &[u8]| {
            let name = std::str::from_utf8(name).unwrap().to_owned();
            Ok((name.clone(), self.xattr(path, &name)?))
        };
        names.map(named).collect()
    }

    fn call(&self, op: &Op) -> Said {
        let fs = self.fs;
        // SAFETY: all texts and places live until the calls return.
        unsafe {
            match op {
                Op::Create { path, exclusive, truncate } => {
                    let exclusive = if *exclusive { libc::O_EXCL } else { 0 };
                    let truncate = if *truncate { libc::O_TRUNC } else { 0 };
                    let flags = libc::O_WRONLY | libc::O_CREAT | exclusive | truncate;
                    self.with_file(path, (flags, 0o600), |_| Ok(()))?;
                }
                Op::Append { path, text } => {
                    let flags = (libc::O_WRONLY | libc::O_APPEND, 0);
                    self.with_file(path, flags, |file| {
                        let at = std::ptr::null_mut();
                        done(weir_append(file, text.as_ptr().cast(), text.len(), at))
                    })?;
                }
                Op::Read { path } => return self.bytes(path).map(Answer::Bytes),
                Op::Truncate { path, len } => {
                    done(weir_truncate(fs, self.at(path).as_ptr(), *len))?;
                }
                Op::MakeDir { path } => done(weir_mkdir(fs, self.at(path).as_ptr(), 0o700))?,
                Op::RemoveDir { path } => done(weir_rmdir(fs, self.at(path).as_ptr()))?,
                Op::Symlink { path, target } => {
                    let target = CString::new(target.as_str()).unwrap();
                    done(weir_symlink(fs, target.as_ptr(), self.at(path).as_ptr()))?;
                }
                Op::ReadLink { path } => return self.target(path).map(Answer::Bytes),
                Op::Link { from, to } => {
                    done(weir_link(fs, self.at(from).as_ptr(), self.at(to).as_ptr()))?;
                }
                Op::Rename { from, to, over } => {
                    let flags = match over {
                        Over::Replace => 0,
                        Over::Keep => libc::RENAME_NOREPLACE,
                        Over::Exchange => libc::RENAME_EXCHANGE,
                    };
                    done(weir_rename(fs, self.at(from).as_ptr(), self.at(to).as_ptr(), flags))?;
                }
                Op::Unlink { path } => done(weir_unlink(fs, self.at(path).as_ptr()))?,
                Op::Chmod { path, mode } => done(weir_chmod(fs, self.at(path).as_ptr(), *mode))?,
                Op::SetXattr { path, name, value, how } => {
                    let flags = match how {
                        Set::Any => 0,
                        Set::New => libc::XATTR_CREATE,
                        Set::Old => libc::XATTR_REPLACE,
                    };
                    let (path, name) = (self.at(path), CString::new(*name).unwrap());
                    let (value, len) = (value.as_ptr().cast(), value.len());
                    done(weir_setxattr(fs, path.as_ptr(), name.as_ptr(), value, len, flags))?;
                }
                Op::GetXattr { path, name } => return self.xattr(path, name).map(Answer::Bytes),
                Op::RemoveXattr { path, name } => {
                    let name = CString::new(*name).unwrap();
                    done(weir_removexattr(fs, self.at(path).as_ptr(), name.as_ptr()))?;
                }
                Op::Stat { path, follow } => {
                    let stat = stat_of(fs, &self.at(path), *follow)?;
                    let kind = kind_of(&stat);
                    return Ok(Answer::Attributes {
                        kind,
                        mode: stat.mode & 0o7777,
                        links: stat.nlink.into(),
                        size: if kind == Kind::Dir { 0 } else { stat.size },
                    });
                }
                Op::List { path } => {
                    let entries = list(fs, &self.at(path))?;
                    let count = entries.len();
                    let entries: BTreeMap<_, _> =
                        entries.into_iter().map(|(name, stat)| (name, kind_of(&stat))).collect();
                    // An entry that exists during the whole listing appears once.
                    return match entries.len() == count {
                        true => Ok(Answer::Entries(entries)),
                        false => Err(Errno::NOTUNIQ),
                    };
                }
            }
        }
        Ok(Answer::Done)
    }

    fn collect(&self, above: &str, into: &mut Snapshot) -> Result<(), Errno> {
        let mut listed = list(self.fs, &self.at(above.trim_end_matches('/')))?;
        // Sorted, so that all listings have one order.
        listed.sort_by(|one, other| one.0.cmp(&other.0));
        for (name, listed) in listed {
            let path = format!("{above}{name}");
            let stat = stat_of(self.fs, &self.at(&path), false)?;
            assert_eq!((stat.ino, kind_of(&stat)), (listed.ino, kind_of(&listed)), "{path}");
            let kind = kind_of(&stat);
            let (bytes, xattrs) = match kind {
                Kind::Symlink => (self.target(&path)?, BTreeMap::new()),
                Kind::File => (self.bytes(&path)?, self.xattrs(&path)?),
                Kind::Dir => (Vec::new(), self.xattrs(&path)?),
            };
            let (mode, links) = (stat.mode & 0o7777, stat.nlink.into());
            let entry = Entry { kind, mode, links, bytes, xattrs, same_as: String::new() };
            into.add(path.clone(), stat.ino, entry);
            if kind == Kind::Dir {
                self.collect(&format!("{path}/"), into)?;
            }
        }
        Ok(())
    }
}

impl Tree for CTree {
    fn perform(&self, op: &Op) -> Said {
        self.call(op)
    }

    fn snapshot(&self) -> Outcome<Snapshot> {
        let mut snapshot = Snapshot::default();
        self.collect("", &mut snapshot).map_err(|e| e.to_string())?;
        Ok(snapshot)
    }
}
