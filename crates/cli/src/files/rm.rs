//! `weir rm`. The directories on the path are kept in a stack on the heap, so that trees may be of
//! any depth.

use crate::args::Rm;
use crate::failure::{Done, Failure, Failures};
use crate::files::name::{RemoteName, split};
use crate::files::remote::{RemoteTree, Sessions};
use crate::files::tree::Tree;
use crate::progress::Progress;
use crate::text::plain;
use std::ffi::OsStr;
use std::vec::IntoIter;
use weir_types::{Error, ErrorKind, FileId, FileKind};
use weir_wire::meta::DirEntry;

/// How many files are removed between two updates of the progress.
const FILES_BETWEEN: u64 = 64;

/// Runs `weir rm`.
pub fn run(rm: &Rm) -> Done {
    let mut sessions = Sessions::default();
    let progress = Progress::start(!rm.recursive, 0);
    let mut failures = Failures::default();
    for text in &rm.paths {
        let removed = remove(rm, &mut sessions, text, &progress);
        progress.suspend(|| failures.keep(removed));
    }
    progress.finish();
    failures.end()
}

fn remove(rm: &Rm, sessions: &mut Sessions, text: &OsStr, progress: &Progress) -> Done {
    let name = RemoteName::parse(text)?;
    let tree = sessions.tree(&rm.client, &name, "rm")?;
    let path = &name.path;
    if split(path).is_none() {
        return Err(Failure::new("the root directory cannot be removed").about(tree.shown(path)));
    }
    let Some(meta) = tree.stat(path, false)? else {
        let missing = || Failure::new(ErrorKind::NotFound.text()).about(tree.shown(path));
        return if rm.force { Ok(()) } else { Err(missing()) };
    };
    let (parent, last) = tree.parent(path)?;
    if meta.kind != FileKind::Directory {
        let removed = tree.client.unlink(&tree.context, parent, last).map(drop);
        let removed = if rm.force { unless_gone(removed) } else { removed };
        return removed.map_err(tree.about(path));
    }
    if !rm.recursive {
        let failure = Failure::new("is a directory").about(tree.shown(path));
        return Err(failure.hint("-r removes it with all that is in it"));
    }
    Removal::of(&tree, path, progress).run(parent, FileId(meta.identity.1))
}

/// A directory whose entries are being removed.
struct Level {
    dir: FileId,
    parent: FileId,
    left: IntoIter<DirEntry>,
    /// Something in the directory could not be removed, so the directory stays.
    stays: bool,
}

/// The removal of a tree.
struct Removal<'a> {
    tree: &'a RemoteTree,
    progress: &'a Progress,
    /// The path of the last of `levels`, or of a file in it.
    path: Vec<u8>,
    levels: Vec<Level>,
    failures: Failures,
    removed: u64,
}

impl<'a> Removal<'a> {
    fn of(tree: &'a RemoteTree, path: &[u8], progress: &'a Progress) -> Self {
        let (levels, failures) = (Vec::new(), Failures::default());
        Self { tree, progress, path: path.to_vec(), levels, failures, removed: 0 }
    }

    /// Removes the tree. Prints failures and continues with the rest.
    fn run(mut self, parent: FileId, dir: FileId) -> Done {
        self.enter(parent, dir);
        while let Some(level) = self.levels.last_mut() {
            let dir = level.dir;
            let Some(entry) = level.left.next() else {
                self.leave();
                continue;
            };
            self.path.push(b'/');
            self.path.extend_from_slice(&entry.name);
            if entry.kind == FileKind::Directory {
                self.enter(dir, entry.file);
                continue;
            }
            let removed = self.tree.client.unlink(&self.tree.context, dir, &entry.name);
            self.is_done(removed.map(drop));
            self.go_up();
        }
        self.failures.end()
    }

    /// Enters the directory at `path`.
    fn enter(&mut self, parent: FileId, dir: FileId) {
        match self.tree.entries(dir) {
            Ok(entries) => {
                let left = entries.into_iter();
                self.levels.push(Level { dir, parent, left, stays: false });
            }
            Err(error) => {
                self.is_done(Err(error));
                self.go_up();
            }
        }
    }

    /// Removes the directory at `path` after everything in it is done.
    fn leave(&mut self) {
        let Some(level) = self.levels.pop() else { return };
        if level.stays {
            self.stays();
        } else if let Some((_, name)) = split(&self.path) {
            let removed = self.tree.client.rmdir(&self.tree.context, level.parent, name);
            self.is_done(removed);
        }
        self.go_up();
    }

    fn is_done(&mut self, removed: Result<(), Error>) {
        if let Err(error) = unless_gone(removed) {
            let failure = self.tree.about(&self.path)(error);
            self.progress.suspend(|| self.failures.keep::<()>(Err(failure)));
            return self.stays();
        }
        self.removed += 1;
        if self.removed.is_multiple_of(FILES_BETWEEN) {
            let (removed, path) = (self.removed, &self.path);
            self.progress.say(|| format!("{removed} removed: {}", plain(&self.tree.shown(path))));
        }
    }

    /// Marks the last directory: something in it stays, so it must stay too.
    fn stays(&mut self) {
        if let Some(above) = self.levels.last_mut() {
            above.stays = true;
        }
    }

    fn go_up(&mut self) {
        let above = split(&self.path).map_or(0, |(dir, _)| dir.len());
        self.path.truncate(above);
    }
}

/// Ignores that another process has removed the file meanwhile.
fn unless_gone(removed: Result<(), Error>) -> Result<(), Error> {
    match removed {
        Err(error) if matches!(error.kind, ErrorKind::NotFound | ErrorKind::Stale) => Ok(()),
        other => other,
    }
}
