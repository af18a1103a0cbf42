//! Finds the files of a target.

use crate::copy::Copy;
use crate::failure::{Done, Failure, is_absent};
use crate::finding::{Finding, Trouble};
use crate::record::STATE;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use weir_types::TargetId;

/// Maximum depth of directories.
const MAX_DEPTH: usize = 256;
/// Maximum number of files with different paths: their names are kept in memory.
const MAX_FILES: usize = 10_000_000;

/// The copies of each file, by path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// Regular files.
    pub files: BTreeMap<String, BTreeMap<TargetId, Copy>>,
    /// Number of names that are left alone: not a regular file, not UTF-8, or on another file
    /// system.
    pub left_alone: u64,
    /// Findings about names that could not be looked at.
    pub failed: Vec<Finding>,
}

impl Files {
    /// Adds the files of a target.
    pub fn add(&mut self, target: TargetId, dir: &Path) -> Done {
        let device = std::fs::metadata(dir).map_err(|e| Failure::file(dir, e))?.dev();
        self.walk((target, device), dir, "", 0)
    }

    fn walk(&mut self, of: (TargetId, u64), dir: &Path, prefix: &str, depth: usize) -> Done {
        let entries = match std::fs::read_dir(dir) {
            _ if depth > MAX_DEPTH => {
                let why = format!("more than {MAX_DEPTH} directories within each other");
                self.fail(of.0, format!("{}: {why}", dir.display()));
                return Ok(());
            }
            Ok(entries) => entries,
            Err(error) => {
                self.fail_with(of.0, dir, &error);
                return Ok(());
            }
        };
        for entry in entries {
            let path = match entry {
                Ok(entry) => entry.path(),
                Err(error) => {
                    self.fail_with(of.0, dir, &error);
                    break;
                }
            };
            let meta = match std::fs::symlink_metadata(&path) {
                Ok(meta) => meta,
                Err(error) => {
                    self.fail_with(of.0, &path, &error);
                    continue;
                }
            };
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
                self.left_alone += 1;
                continue;
            };
            // Skipped at every depth: a directory may contain what was a target of another tree.
            if name == STATE {
                continue;
            }
            let name = format!("{prefix}{name}");
            match () {
                () if meta.is_dir() && meta.dev() == of.1 => {
                    self.walk(of, &path, &format!("{name}/"), depth + 1)?;
                }
                () if meta.is_file() => {
                    self.files.entry(name).or_default().insert(of.0, Copy::of(&meta));
                }
                () => self.left_alone += 1,
            }
            if self.files.len() > MAX_FILES {
                let why = format!("more than {MAX_FILES} files: make several trees of them");
                return Err(Failure::other(why));
            }
        }
        Ok(())
    }

    /// A file that was removed during the scan is absent, not a failure.
    fn fail_with(&mut self, target: TargetId, path: &Path, error: &std::io::Error) {
        if !is_absent(error) {
            self.fail(target, format!("{}: {error}", path.display()));
        }
    }

    fn fail(&mut self, target: TargetId, what: String) {
        self.failed.push(Finding { trouble: Trouble::Failed, what, target: Some(target.0) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

    #[test]
    fn what_is_on_another_file_system_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("inner");
        std::fs::create_dir(&inner).unwrap();
        std::fs::write(dir.path().join("file"), b"1").unwrap();
        if mount("none", &inner, "tmpfs", MountFlags::empty(), None).is_err() {
            eprintln!("skipped: needs root");
            return;
        }
        let written = std::fs::write(inner.join("file"), b"2");
        let mut files = Files::default();
        let added = files.add(TargetId(0), dir.path());
        unmount(&inner, UnmountFlags::DETACH).unwrap();
        written.unwrap();
        added.unwrap();
        assert_eq!((files.files.len(), files.left_alone), (1, 1), "{files:?}");
    }
}
