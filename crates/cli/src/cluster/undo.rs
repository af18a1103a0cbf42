//! What a command made and started, and how to undo it if a later step fails.

use crate::cluster::process::Process;
use crate::cluster::state::StateDir;
use crate::failure::{Done, Failure};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// What this run made or started, to be undone if a later step fails.
pub struct Undo {
    pub state: StateDir,
    pub fresh: bool,
    /// The daemons that were started; their pid files are in `pid_files`.
    pub processes: Vec<Process>,
    pub pid_files: Vec<PathBuf>,
    pub mountpoint: Option<PathBuf>,
    /// The directories of targets outside the state directory, with what they held before.
    elsewhere: Vec<(PathBuf, Before)>,
}

/// The earlier state of a directory.
enum Before {
    /// The directory had these entries.
    Names(BTreeSet<OsString>),
    /// The directory was missing, and so were this many of its parents.
    Nothing { missing_parents: usize },
}

impl Before {
    /// Records the state of a directory. A directory that cannot be read is an error, since entries
    /// may be deleted on the basis of this record.
    fn of(dir: &Path) -> std::io::Result<Self> {
        if !is_missing(dir)? {
            let names = std::fs::read_dir(dir)?.map(|entry| Ok(entry?.file_name()));
            return Ok(Self::Names(names.collect::<std::io::Result<_>>()?));
        }
        let mut missing_parents = 0;
        for parent in dir.ancestors().skip(1) {
            if !is_missing(parent)? {
                break;
            }
            missing_parents += 1;
        }
        Ok(Self::Nothing { missing_parents })
    }
}

/// Whether nothing is at a path. A dangling symbolic link counts as something.
fn is_missing(path: &Path) -> std::io::Result<bool> {
    match path.symlink_metadata() {
        Ok(_) => Ok(false),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(true),
        Err(e) => Err(e),
    }
}

impl Undo {
    /// For a new cluster of which only the directories exist.
    pub fn of_new(state: &StateDir) -> Self {
        Self {
            state: state.clone(),
            fresh: true,
            processes: Vec::new(),
            pid_files: Vec::new(),
            mountpoint: None,
            elsewhere: Vec::new(),
        }
    }

    /// For an existing cluster.
    pub fn of_existing(state: &StateDir) -> Self {
        Self { fresh: false, ..Self::of_new(state) }
    }

    /// Records the contents of directories in which targets are about to be made. These contents
    /// will be kept.
    pub fn may_change(&mut self, dirs: &[PathBuf]) -> Done {
        let before = |dir: &PathBuf| match Before::of(dir) {
            Ok(before) => Ok((dir.clone(), before)),
            Err(e) => Err(Failure::file(dir, e)
                .hint("it has to be a directory that can be read, or not be there yet")),
        };
        self.elsewhere = dirs.iter().map(before).collect::<Done<_>>()?;
        Ok(())
    }

    /// Keeps the started daemons running, whatever fails later.
    pub fn leave(&mut self) {
        self.processes.clear();
        self.pid_files.clear();
    }

    /// Undoes everything.
    pub fn run(self) {
        for process in self.processes.into_iter().rev() {
            if let Err(failure) = process.stop(true) {
                failure.say();
            }
        }
        for pid_file in self.pid_files {
            let _ = std::fs::remove_file(pid_file);
        }
        if let Some(mountpoint) = self.mountpoint {
            let _ = std::fs::remove_dir(mountpoint);
        }
        if self.fresh
            && let Err(failure) = self.state.purge()
        {
            failure.say();
        }
        for (dir, before) in self.elsewhere {
            let before = match before {
                Before::Names(before) => before,
                Before::Nothing { missing_parents } => {
                    let _ = std::fs::remove_dir_all(&dir);
                    for parent in dir.ancestors().skip(1).take(missing_parents) {
                        // This fails if other files were put there meanwhile, and the directory
                        // stays.
                        let _ = std::fs::remove_dir(parent);
                    }
                    continue;
                }
            };
            for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
                let is_made = !before.contains(&entry.file_name());
                let _ = match entry.file_type() {
                    Ok(kind) if is_made && kind.is_dir() => std::fs::remove_dir_all(entry.path()),
                    Ok(_) if is_made => std::fs::remove_file(entry.path()),
                    _ => Ok(()),
                };
            }
        }
    }
}
