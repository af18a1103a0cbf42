//! The mounts of Weir in the kernel's mount table.

use crate::failure::{Done, Failure};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// A mount of Weir.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeirMount {
    /// The mountpoint.
    pub mountpoint: PathBuf,
    /// The source of the mount, which identifies the cluster.
    pub source: String,
    /// The number of the FUSE connection.
    pub connection: String,
    /// The options that the kernel applies to this mount: `ro`, `nosuid` and the like.
    pub options: String,
}

const TABLE: &str = "/proc/self/mountinfo";

/// Lists all mounts of Weir.
pub fn all() -> Done<Vec<WeirMount>> {
    let table = std::fs::read(TABLE).map_err(|e| Failure::file(Path::new(TABLE), e))?;
    Ok(parse(&table))
}

/// The mount at exactly this path.
pub fn at(mountpoint: &Path) -> Done<Option<WeirMount>> {
    Ok(all()?.into_iter().rev().find(|m| m.mountpoint == mountpoint))
}

/// The mount that contains a path, and the path relative to its root.
pub fn holding(path: &Path) -> Done<Option<(WeirMount, PathBuf)>> {
    let table = std::fs::read(TABLE).map_err(|e| Failure::file(Path::new(TABLE), e))?;
    // The innermost mount decides, whether it is of Weir or not.
    let innermost = entries(&table)
        .filter(|e| path.starts_with(&e.mountpoint))
        .max_by_key(|e| e.mountpoint.components().count());
    Ok(innermost.and_then(|e| {
        let below = path.strip_prefix(&e.mountpoint).ok()?.to_owned();
        Some((e.weir()?, below))
    }))
}

/// The mount whose files have this device number.
pub fn of_device(dev: u64) -> Done<Option<WeirMount>> {
    let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev).to_string());
    // Only device numbers that no disk has.
    if major != 0 {
        return Ok(None);
    }
    Ok(all()?.into_iter().find(|mount| mount.connection == minor))
}

struct Entry {
    mountpoint: PathBuf,
    options: String,
    kind: String,
    source: String,
    /// The device number as `major:minor`.
    device: String,
}

impl Entry {
    fn weir(self) -> Option<WeirMount> {
        let ours =
            self.kind == "fuse.weir" || (self.kind == "fuse" && self.source.starts_with("weir:"));
        let connection = self.device.split_once(':').map_or("", |(_, minor)| minor).to_owned();
        let (mountpoint, source, options) = (self.mountpoint, self.source, self.options);
        ours.then_some(WeirMount { mountpoint, source, connection, options })
    }
}

fn parse(table: &[u8]) -> Vec<WeirMount> {
    entries(table).filter_map(Entry::weir).collect()
}

// 36 35 98:0 /root /mountpoint options [fields] - kind source options
fn entries(table: &[u8]) -> impl Iterator<Item = Entry> {
    table.split(|b| *b == b'\n').filter_map(|line| {
        let fields: Vec<&[u8]> = line.split(|b| *b == b' ').collect();
        let dash = fields.iter().position(|f| *f == b"-")?;
        Some(Entry {
            mountpoint: PathBuf::from(OsString::from_vec(unescape(fields.get(4)?))),
            options: String::from_utf8(fields.get(5)?.to_vec()).ok()?,
            kind: String::from_utf8(unescape(fields.get(dash + 1)?)).ok()?,
            source: String::from_utf8(unescape(fields.get(dash + 2)?)).ok()?,
            device: String::from_utf8(fields.get(2)?.to_vec()).ok()?,
        })
    })
}

/// Replaces the escapes `\ooo` that the kernel writes for space, tab, newline and backslash.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        let code = tail
            .get(..3)
            .filter(|_| first == b'\\')
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        match code {
            Some(byte) => {
                out.push(byte);
                rest = &tail[3..];
            }
            None => {
                out.push(first);
                rest = tail;
            }
        }
    }
    out
}

/// The first few programs that use a mounted file system, by number and name. Only links in /proc
/// are read, so this never waits for the file system.
pub fn users(mountpoint: &Path) -> Vec<String> {
    const MOST: usize = 8;
    let inside = |link: &Path| std::fs::read_link(link).is_ok_and(|to| to.starts_with(mountpoint));
    let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
    processes
        .flatten()
        .filter(|p| p.file_name().as_bytes().iter().all(u8::is_ascii_digit))
        .filter(|p| {
            let process = p.path();
            let mut descriptors = std::fs::read_dir(process.join("fd")).into_iter().flatten();
            inside(&process.join("cwd"))
                || inside(&process.join("root"))
                || inside(&process.join("exe"))
                || descriptors.any(|d| d.is_ok_and(|d| inside(&d.path())))
        })
        .map(|p| {
            let name = std::fs::read_to_string(p.path().join("comm")).unwrap_or_default();
            format!("{} ({})", name.trim(), p.file_name().display())
        })
        .take(MOST)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &[u8] = b"25 1 0:23 / / rw,relatime - ext4 /dev/vda rw\n\
        60 25 0:50 / /mnt/two\\040words rw,nosuid shared:3 - fuse.weir weir:/var/lib/weir/default rw\n\
        61 25 0:51 / /mnt/ssh rw - fuse.sshfs host:/ rw\n\
        garbage\n";

    #[test]
    fn weir_mounts_are_found_in_the_kernels_table() {
        assert_eq!(
            parse(SAMPLE),
            [WeirMount {
                mountpoint: "/mnt/two words".into(),
                source: "weir:/var/lib/weir/default".into(),
                connection: "50".into(),
                options: "rw,nosuid".into(),
            }]
        );
    }

    #[test]
    fn a_program_inside_a_directory_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let held = std::fs::File::create(dir.path().join("held")).unwrap();
        let users = users(&dir.path().canonicalize().unwrap());
        drop(held);
        assert!(users.iter().any(|u| u.contains(&std::process::id().to_string())), "{users:?}");
    }
}
