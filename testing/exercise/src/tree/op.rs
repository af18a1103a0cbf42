//! Calls on names, and their results.

use rustix::io::Errno;
use std::collections::BTreeMap;

/// Names below the root of the exercise, joined by slashes.
pub type Path = String;

/// How `rename` treats an existing name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// `rename`.
    Replace,
    /// `RENAME_NOREPLACE`.
    Keep,
    /// `RENAME_EXCHANGE`.
    Exchange,
}

/// How `setxattr` treats an existing attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Set {
    /// The attribute may or may not exist.
    Any,
    /// `XATTR_CREATE`.
    New,
    /// `XATTR_REPLACE`.
    Old,
}

/// A call.
#[allow(missing_docs)] // The fields are the arguments of the call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// `open` with `O_CREAT`.
    Create { path: Path, exclusive: bool, truncate: bool },
    /// `open` with `O_APPEND`, and `write`.
    Append { path: Path, text: String },
    /// `open` and `read`.
    Read { path: Path },
    /// `truncate`.
    Truncate { path: Path, len: u64 },
    /// `mkdir`.
    MakeDir { path: Path },
    /// `rmdir`.
    RemoveDir { path: Path },
    /// `symlink`; `target` is relative to the link.
    Symlink { path: Path, target: Path },
    /// `readlink`.
    ReadLink { path: Path },
    /// `link`.
    Link { from: Path, to: Path },
    /// `renameat2`.
    Rename { from: Path, to: Path, over: Over },
    /// `unlink`.
    Unlink { path: Path },
    /// `chmod`.
    Chmod { path: Path, mode: u32 },
    /// `setxattr`.
    SetXattr { path: Path, name: &'static str, value: String, how: Set },
    /// `getxattr`.
    GetXattr { path: Path, name: &'static str },
    /// `removexattr`.
    RemoveXattr { path: Path, name: &'static str },
    /// `stat` or `lstat`.
    Stat { path: Path, follow: bool },
    /// `getdents`, with the kinds that it reports.
    List { path: Path },
}

/// The type of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Symlink,
}

/// The result of a successful call.
#[allow(missing_docs)] // The fields are those of `stat`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// No result.
    Done,
    /// The bytes read.
    Bytes(Vec<u8>),
    /// Attributes. The size of a directory is not compared.
    Attributes { kind: Kind, mode: u32, links: u64, size: u64 },
    /// The entries of a directory without `.` and `..`.
    Entries(BTreeMap<String, Kind>),
}

/// The result of a call.
pub type Said = Result<Answer, Errno>;

const NAMES: &[&str] = &["a", "b", "c", "d", "e"];
const XATTRS: &[&str] = &["user.one", "user.two"];

/// A random path: few names, so that calls collide.
fn path(rng: &mut fastrand::Rng) -> Path {
    let depth = [1, 1, 2, 2, 2, 3, 3, 4][rng.usize(..8)];
    let names: Vec<&str> = (0..depth).map(|_| NAMES[rng.usize(..NAMES.len())]).collect();
    names.join("/")
}

/// A random call.
pub fn choose(rng: &mut fastrand::Rng) -> Op {
    let mut path = || path(rng);
    let (path, other) = (path(), path());
    let xattr = XATTRS[rng.usize(..XATTRS.len())];
    match rng.u32(..100) {
        0..12 => Op::Create { path, exclusive: rng.bool(), truncate: rng.u32(..4) == 0 },
        12..19 => Op::Append { path, text: "x".repeat(rng.usize(1..20_000)) },
        19..23 => Op::Read { path },
        23..27 => Op::Truncate { path, len: rng.u64(..30_000) },
        27..39 => Op::MakeDir { path },
        39..43 => Op::RemoveDir { path },
        43..48 => Op::Symlink { path, target: other },
        48..50 => Op::ReadLink { path },
        50..56 => Op::Link { from: path, to: other },
        56..70 => {
            let over = match rng.u32(..6) {
                0 => Over::Keep,
                1 => Over::Exchange,
                _ => Over::Replace,
            };
            Op::Rename { from: path, to: other, over }
        }
        70..76 => Op::Unlink { path },
        76..79 => Op::Chmod { path, mode: rng.u32(..0o1000) },
        79..83 => {
            let how = [Set::Any, Set::New, Set::Old][rng.usize(..3)];
            Op::SetXattr { path, name: xattr, value: format!("v{}", rng.u32(..)), how }
        }
        83..85 => Op::GetXattr { path, name: xattr },
        85..87 => Op::RemoveXattr { path, name: xattr },
        87..95 => Op::Stat { path, follow: rng.bool() },
        _ => Op::List { path },
    }
}
