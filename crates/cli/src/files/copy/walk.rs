//! Walks the sources, makes directories, and hands out everything else to the threads. The
//! directories on the path are kept in a stack, each with one page of its entries, so that memory
//! is limited in deep and in large trees.

use super::dirs::{Dir, release};
use super::partial::Leftovers;
use super::place::Place;
use super::work::{Copier, Task};
use crate::failure::{Done, Failure};
use crate::files::name::split;
use crate::files::tree::{Meta, Pages};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex};
use weir_types::{ErrorKind, FileKind};

/// Walks the sources.
pub struct Walk<'a> {
    copier: &'a Copier,
    tasks: SyncSender<Task>,
    recursive: bool,
}

/// A directory, and what is left to do in it.
struct Level {
    dir: Arc<Dir>,
    pages: Box<dyn Pages>,
    page: std::vec::IntoIter<(Vec<u8>, Meta)>,
}

impl<'a> Walk<'a> {
    pub fn new(copier: &'a Copier, tasks: SyncSender<Task>, recursive: bool) -> Self {
        Self { copier, tasks, recursive }
    }

    /// Copies one argument to the destination or into it.
    pub fn source(&mut self, from: &Place, to: &Place, into: bool) -> Done {
        let follow = !self.recursive;
        let Some(mut meta) = from.tree.stat(&from.path, follow)? else {
            return Err(Failure::new(ErrorKind::NotFound.text()).about(from.shown()));
        };
        let mut to = match split(&from.path) {
            Some((_, name)) if into => to.child(name),
            _ => to.clone(),
        };
        if meta.kind == FileKind::Directory {
            if !self.recursive {
                return Err(Failure::new("is a directory")
                    .about(from.shown())
                    .hint("-r copies it"));
            }
            let there = to.tree.stat(&to.path, false)?;
            if !into && there.is_some_and(|there| there.kind == FileKind::Symlink) {
                to.path = to.tree.real_path(&to.path)?;
            }
            if to.is_below(from) {
                return Err(into_itself(from));
            }
            for above in to.way()? {
                if from.is_one(&meta, &to, &above)? {
                    return Err(into_itself(from));
                }
            }
            return self.tree(from.clone(), to, meta);
        }
        let mut node = false;
        if !self.recursive {
            // As in cp(1): the bytes from a pipe or device are copied, an existing pipe or device
            // receives the bytes, and a link to a file is followed.
            if meta.kind != FileKind::File {
                (meta.kind, meta.size) = (FileKind::File, 0);
            }
            let there = to.tree.stat(&to.path, true)?;
            node = there
                .is_some_and(|there| !matches!(there.kind, FileKind::File | FileKind::Directory));
            if !node {
                to.path = to.tree.real_path(&to.path)?;
            }
        }
        let left = match split(&to.path) {
            Some((dir, _)) if self.copier.resume => Leftovers::find(&to.tree, dir)?.take(&to),
            _ => Vec::new(),
        };
        self.send(Task { dir: None, from: from.clone(), to, meta, left, node })
    }

    fn send(&self, task: Task) -> Done {
        self.copier.progress.found(task.meta.size);
        // The threads end only after this side closes the channel.
        self.tasks.send(task).map_err(|_| Failure::new("the copying threads are gone"))
    }

    fn tree(&mut self, from: Place, root: Place, meta: Meta) -> Done {
        let mut stack = vec![self.enter(None, from, root.clone(), meta)?];
        // As in cp(1): the path does not always tell whether this is the copy itself.
        let copy = root.tree.stat(&root.path, false)?;
        while let Some(level) = stack.last_mut() {
            let Some((name, meta)) = level.page.next() else {
                match level.pages.next() {
                    Ok(page) if !page.is_empty() => {
                        level.page = page.into_iter();
                        continue;
                    }
                    // If the listing failed, the other entries are missing, and the directory is
                    // done.
                    done => self.copier.keep(done.map(drop)),
                }
                let dir = stack.pop().map(|level| level.dir);
                release(dir, |dir| self.copier.finish_dir(dir));
                continue;
            };
            let dir = level.dir.clone();
            let (from, to) = (dir.from.child(&name), dir.to.child(&name));
            if meta.kind != FileKind::Directory {
                let left = dir.left_of(&to);
                self.send(Task { dir: Some(dir), from, to, meta, left, node: false })?;
                continue;
            }
            let is_copy = match &copy {
                Some(copy) => from.is_one(&meta, &root, copy)?,
                None => false,
            };
            if is_copy {
                self.copier.keep(Err(into_itself(&from)));
                continue;
            }
            match self.enter(Some(dir), from, to, meta) {
                Ok(level) => stack.push(level),
                failed => self.copier.keep(failed.map(drop)),
            }
        }
        Ok(())
    }

    /// Begins a directory.
    fn enter(&self, parent: Option<Arc<Dir>>, from: Place, to: Place, meta: Meta) -> Done<Level> {
        match self.open(parent.as_deref(), &from, &to, &meta) {
            Ok(Opened { pages, is_new, inherits, leftovers }) => {
                let leftovers = Mutex::new(leftovers);
                let dir = Arc::new(Dir { parent, from, to, meta, is_new, inherits, leftovers });
                Ok(Level { dir, pages, page: Vec::new().into_iter() })
            }
            Err(failure) => {
                release(parent, |dir| self.copier.finish_dir(dir));
                Err(failure)
            }
        }
    }

    fn open(&self, parent: Option<&Dir>, from: &Place, to: &Place, meta: &Meta) -> Done<Opened> {
        from.check_depth()?;
        to.check_depth()?;
        // Below the arguments no link is followed, whoever has put it there.
        let pages = from.tree.clone().pages(&from.path, parent.is_none())?;
        match to.tree.stat(&to.path, false)? {
            None => {
                let mode = meta.mode & 0o777 & !self.copier.umask | 0o700;
                to.tree.make_dir(&to.path, mode)?;
                // The new directory has inherited the default list for new files.
                let inherits = parent
                    .map_or_else(|| self.copier.inherits(to), |parent| Ok(parent.inherits))?;
                Ok(Opened { pages, is_new: true, inherits, leftovers: Leftovers::default() })
            }
            Some(there) if there.kind == FileKind::Directory => {
                let leftovers = match self.copier.resume {
                    true => Leftovers::find(&to.tree, &to.path)?,
                    false => Leftovers::default(),
                };
                let inherits = self.copier.inherits(to)?;
                Ok(Opened { pages, is_new: false, inherits, leftovers })
            }
            Some(_) => Err(Failure::new(ErrorKind::NotDirectory.text()).about(to.shown())),
        }
    }
}

fn into_itself(from: &Place) -> Failure {
    Failure::new("cannot be copied into itself").about(from.shown())
}

/// A directory that has been begun.
struct Opened {
    pages: Box<dyn Pages>,
    is_new: bool,
    inherits: bool,
    leftovers: Leftovers,
}
