//! Which files there are in a target.

use crate::failure::{Done, Failure};
use crate::record::STATE;
use std::collections::BTreeMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use weir_types::TargetId;

/// Directories within each other, at the most.
const MAX_DEPTH: usize = 256;

/// A copy of a file, as it is in a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy {
    /// Bytes.
    pub len: u64,
    /// When it was changed last: seconds since 1970, and nanoseconds.
    pub modified: (i64, u32),
    /// Permissions.
    pub mode: u32,
    /// Owner and group.
    pub owner: (u32, u32),
}

impl Copy {
    /// Of a file.
    pub fn of(meta: &Metadata) -> Self {
        Self {
            len: meta.len(),
            modified: (meta.mtime(), u32::try_from(meta.mtime_nsec()).unwrap_or(0)),
            mode: meta.mode() & 0o7777,
            owner: (meta.uid(), meta.gid()),
        }
    }
}

/// The copies of each file, by path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// Regular files.
    pub files: BTreeMap<String, BTreeMap<TargetId, Copy>>,
    /// What is left alone: no regular file, or its name is not UTF-8.
    pub left_alone: u64,
}

impl Files {
    /// Adds the files of a target.
    pub fn add(&mut self, target: TargetId, dir: &Path) -> Done {
        self.walk(target, dir, "", 0)
    }

    fn walk(&mut self, target: TargetId, dir: &Path, prefix: &str, depth: usize) -> Done {
        if depth > MAX_DEPTH {
            let why = format!("more than {MAX_DEPTH} directories within each other");
            return Err(Failure::other(format!("{}: {why}", dir.display())));
        }
        for entry in std::fs::read_dir(dir).map_err(|e| Failure::file(dir, e))? {
            let path = entry.map_err(|e| Failure::file(dir, e))?.path();
            let meta = std::fs::symlink_metadata(&path).map_err(|e| Failure::file(&path, e))?;
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
                self.left_alone += 1;
                continue;
            };
            if depth == 0 && name == STATE {
                continue;
            }
            let name = format!("{prefix}{name}");
            match () {
                () if meta.is_dir() => self.walk(target, &path, &format!("{name}/"), depth + 1)?,
                () if meta.is_file() => {
                    self.files.entry(name).or_default().insert(target, Copy::of(&meta));
                }
                () => self.left_alone += 1,
            }
        }
        Ok(())
    }
}
