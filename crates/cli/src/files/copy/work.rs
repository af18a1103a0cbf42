//! The work of the threads: each takes a file, symbolic link or device and makes it at the
//! destination.

use super::bytes::{Buffers, CALL_BYTES, FileCopy, PIECE_BYTES};
use super::dirs::{Dir, release};
use super::links::{FileKey, Links, Turn};
use super::partial;
use super::place::Place;
use crate::args::Cp;
use crate::failure::{Done, Failure};
use crate::files::progress::Progress;
use crate::files::tree::{Held, Keep, Making, Meta, PRIVILEGE, Sink, Source, Take, Tree};
use crate::logging;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};
use weir_types::{ErrorKind, FileKind};

/// The mode of an incomplete file: only its owner may use it.
const PARTIAL_MODE: u16 = 0o600;
/// The prefix of extended attributes with access control lists.
const ACL: &[u8] = b"system.posix_acl_";
const ACCESS_LIST: &[u8] = b"system.posix_acl_access";
const DEFAULT_LIST: &[u8] = b"system.posix_acl_default";

/// Something to copy that is not a directory.
pub struct Task {
    /// The containing directory; `None` for an argument of the command.
    pub dir: Option<Arc<Dir>>,
    pub from: Place,
    pub to: Place,
    pub meta: Meta,
    /// The leftovers of earlier runs.
    pub left: Vec<Vec<u8>>,
    /// Whether the destination is an existing pipe or device, which gets the bytes.
    pub node: bool,
}

/// A file that is being made.
pub struct Partial {
    pub sink: Box<dyn Sink>,
    path: Vec<u8>,
    /// Bytes that an earlier run wrote.
    there: u64,
    /// The mode of an empty file that is being filled in place. It gets its mode and name back if
    /// something fails.
    adopted: Option<u16>,
    /// Whether the file is locked. Others may take it over if the lock is lost.
    locked: bool,
    /// The attributes that the complete file gets.
    meta: Meta,
    keep: Keep,
}

/// Carries out tasks.
pub struct Copier {
    keep: Keep,
    pub resume: bool,
    fsync: bool,
    quiet: bool,
    pub umask: u16,
    pub progress: Progress,
    failed: AtomicBool,
    /// Distinguishes temporary names of this run from those of others.
    run: u64,
    links: Links,
    /// The number of files that were complete already; `continued` counts those of earlier runs
    /// that were continued.
    complete: AtomicU64,
    continued: AtomicU64,
    /// The number of access control lists that the destination does not support; `lost_attributes`
    /// counts other attributes.
    lost_lists: AtomicU64,
    lost_attributes: AtomicU64,
}

impl Copier {
    pub fn new(cp: &Cp, keep: Keep) -> Done<Self> {
        let mut run = [0; 8];
        getrandom::fill(&mut run)
            .map_err(|e| Failure::new(format!("no random bytes for names: {e}")))?;
        // The umask can only be read by setting it; there are no other threads yet.
        let umask = rustix::process::umask(rustix::fs::Mode::empty());
        rustix::process::umask(umask);
        Ok(Self {
            keep,
            resume: cp.resume,
            fsync: cp.fsync,
            quiet: cp.quiet,
            umask: umask.as_raw_mode() as u16,
            progress: Progress::start(cp.quiet),
            failed: AtomicBool::new(false),
            run: u64::from_le_bytes(run),
            links: Links::default(),
            complete: AtomicU64::new(0),
            continued: AtomicU64::new(0),
            lost_lists: AtomicU64::new(0),
            lost_attributes: AtomicU64::new(0),
        })
    }

    /// Prints a failure above the progress bar. The copy continues.
    pub fn keep(&self, done: Done) {
        if let Err(failure) = done {
            self.progress.suspend(|| failure.say());
            self.failed.store(true, Ordering::Relaxed);
        }
    }

    /// Prints the summary, and fails if something failed.
    pub fn end(&self) -> Done {
        self.progress.finish();
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        if self.resume && !self.quiet {
            let (complete, continued) = (count(&self.complete), count(&self.continued));
            logging::say(&format!(
                "weir: {complete} files were complete, {continued} were gone on with"
            ));
        }
        if count(&self.lost_lists) > 0 {
            let lists = count(&self.lost_lists);
            logging::say(&format!(
                "weir: {lists} access control lists were left out: files there have none"
            ));
        }
        if count(&self.lost_attributes) > 0 {
            let lost = count(&self.lost_attributes);
            logging::say(&format!(
                "weir: {lost} extended attributes were left out: files there have none such"
            ));
        }
        if self.failed.load(Ordering::Relaxed) { Err(Failure::new("")) } else { Ok(()) }
    }

    /// Carries out tasks until there are no more.
    pub fn work(&self, tasks: &Mutex<Receiver<Task>>) {
        let mut buffers = Buffers::default();
        loop {
            // The lock is held while waiting, so that one thread gets the next task.
            let task = tasks.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(task) = task else { return };
            self.progress.at(task.from.shown());
            self.keep(self.task(&task, &mut buffers));
            release(task.dir, |dir| self.finish_dir(dir));
        }
    }

    /// Gives a directory its attributes after everything in it is done.
    pub fn finish_dir(&self, dir: &Dir) {
        let mut meta = dir.meta.clone();
        let mut keep = self.keep;
        if !keep.mode && dir.is_new {
            // The directory was made with a mode that permits writing into it.
            meta.mode &= 0o777 & !self.umask;
            keep.mode = meta.mode & 0o700 != 0o700;
        }
        if !(keep.mode || keep.owner || keep.times || keep.xattrs) {
            return;
        }
        let lists = Lists { access: true, default: dir.is_new };
        let held = dir.to.tree.held(&dir.to.path, FileKind::Directory);
        let from = Listed::at(&dir.from, &dir.meta);
        self.keep(held.and_then(|held| self.give(from, &*held, (&meta, keep), lists)));
    }

    /// Whether new files in a directory inherit an access control list that has to be removed.
    pub fn inherits(&self, dir: &Place) -> Done<bool> {
        let is_list = |(name, _): &(Vec<u8>, Vec<u8>)| name == DEFAULT_LIST;
        Ok(self.keep.xattrs && dir.tree.xattrs(&dir.path, None)?.iter().any(is_list))
    }

    fn task(&self, task: &Task, buffers: &mut Buffers) -> Done {
        if !(self.keep.links && task.meta.nlink > 1) {
            return self.copy(task, buffers);
        }
        let tree = Arc::as_ptr(&task.from.tree).cast::<()>() as usize;
        let file: FileKey = (tree, task.meta.identity);
        match self.links.enter(file, task.meta.nlink) {
            Turn::First => {
                let done = self.copy(task, buffers);
                self.links.copied(file, done.is_ok().then_some(task.to.path.as_slice()));
                done
            }
            Turn::Link(copy) => {
                self.progress.done(task.meta.size);
                self.link(&copy, &task.to)
            }
            Turn::Alone => {
                self.copy(task, buffers)?;
                Err(Failure::new(
                    "too many files with several names: this name gets a copy of its \
                    own",
                )
                .about(task.from.shown()))
            }
        }
    }

    fn link(&self, copy: &[u8], to: &Place) -> Done {
        let first = to.tree.stat(copy, false)?;
        let there = to.tree.stat(&to.path, false)?;
        match (&first, &there) {
            (Some(first), Some(there)) if first.identity == there.identity => Ok(()),
            _ => self.replace(to, there.as_ref(), |path| to.tree.link(copy, path)),
        }
    }

    fn copy(&self, task: &Task, buffers: &mut Buffers) -> Done {
        let Task { from, to, meta, .. } = task;
        let there = to.tree.stat(&to.path, false)?;
        if there.as_ref().is_some_and(|there| there.identity == meta.identity)
            && from.tree.is(&to.tree.identity())
        {
            let both = format!("{} and {}", from.shown(), to.shown());
            return Err(Failure::new("are the same file").about(both));
        }
        match meta.kind {
            FileKind::File => self.file(task, there.as_ref(), buffers),
            FileKind::Symlink => self.symlink(task, there.as_ref()),
            _ => self.node(task, there.as_ref()),
        }
    }

    /// Makes something that is complete as soon as it exists, such as a link. If the name is taken,
    /// it is made under a temporary name and then renamed.
    fn replace(&self, to: &Place, there: Option<&Meta>, make: impl Fn(&[u8]) -> Done) -> Done {
        let Some(there) = there else { return make(&to.path) };
        if there.kind == FileKind::Directory {
            return Err(Failure::new(ErrorKind::IsDirectory.text()).about(to.shown()));
        }
        let partial = partial::path_for(&to.path, self.run, false)?;
        make(&partial).map_err(|failure| named(failure, &partial, to))?;
        to.tree.rename(&partial, &to.path).inspect_err(|_| drop(to.tree.remove(&partial)))
    }

    fn symlink(&self, task: &Task, there: Option<&Meta>) -> Done {
        let Task { from, to, meta, .. } = task;
        let target = from.tree.read_link(&from.path)?;
        let is_same = match there {
            Some(there) if there.kind == FileKind::Symlink => {
                to.tree.read_link(&to.path)? == target
            }
            _ => false,
        };
        if !is_same {
            self.replace(to, there, |path| to.tree.make_link(path, &target))?;
        }
        let held = to.tree.held(&to.path, FileKind::Symlink)?;
        self.give(Listed::at(from, meta), &*held, (meta, self.keep), Lists::default())
    }

    fn node(&self, task: &Task, there: Option<&Meta>) -> Done {
        let Task { from, to, meta, .. } = task;
        let mut meta = meta.clone();
        if !self.keep.mode {
            meta.mode &= 0o777 & !self.umask;
        }
        let same = |there: &Meta| there.kind == meta.kind && there.rdev == meta.rdev;
        if !there.is_some_and(same) {
            self.replace(to, there, |path| to.tree.make_node(path, &meta, meta.mode))?;
        }
        let held = to.tree.held(&to.path, meta.kind)?;
        let keep = Keep { mode: true, ..self.keep };
        let lists = Lists { access: true, default: false };
        self.give(Listed::at(from, &meta), &*held, (&meta, keep), lists)
    }

    /// Copies the attributes to keep from one file to another. The owner comes first, because a
    /// change of owner clears privileges; the times come last.
    fn give(
        &self,
        from: Listed<'_>,
        held: &dyn Held,
        (meta, keep): (&Meta, Keep),
        lists: Lists,
    ) -> Done {
        if !keep.xattrs {
            return held.set_meta(meta, keep).map(drop);
        }
        let mut meta = meta.clone();
        if !held.set_meta(&meta, Keep { mode: false, times: false, ..keep })? {
            meta.mode &= !PRIVILEGE;
        }
        let lists = if keep.mode { lists } else { Lists::default() };
        self.attributes(from, held, lists)?;
        held.set_meta(&meta, Keep { owner: false, ..keep }).map(drop)
    }

    /// Copies extended attributes and access control lists, as far as the destination supports
    /// them.
    fn attributes(&self, from: Listed<'_>, held: &dyn Held, lists: Lists) -> Done {
        let all = match from {
            Listed::Open(source) => source.xattrs()?,
            Listed::At(place, identity) => place.tree.xattrs(&place.path, Some(identity))?,
        };
        for (list, removed) in [(ACCESS_LIST, lists.access), (DEFAULT_LIST, lists.default)] {
            if removed && all.iter().all(|(name, _)| name != list) {
                held.remove_xattr(list)?;
            }
        }
        for (name, value) in all {
            if !held.set_xattr(&name, &value)? {
                let lost = match name.starts_with(ACL) {
                    true => &self.lost_lists,
                    false => &self.lost_attributes,
                };
                lost.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    }
}

/// The file from which attributes are copied: exactly the one that was listed or opened, even if
/// another one has its name by now.
#[derive(Clone, Copy)]
pub enum Listed<'a> {
    Open(&'a dyn Source),
    At(&'a Place, (u64, u64)),
}

impl<'a> Listed<'a> {
    fn at(place: &'a Place, meta: &Meta) -> Self {
        Self::At(place, meta.identity)
    }
}

/// The access control lists to remove unless the source has them, because they may be inherited. An
/// inherited list changes the mode, so they are removed only if the mode is set afterwards.
#[derive(Clone, Copy, Default)]
pub struct Lists {
    access: bool,
    default: bool,
}

impl Copier {
    fn file(&self, task: &Task, there: Option<&Meta>, buffers: &mut Buffers) -> Done {
        let Task { from, to, meta, left, .. } = task;
        if task.node {
            let (source, sink) = (from.tree.open(&from.path, None)?, to.tree.open_node(&to.path)?);
            return self.fill_node(&*source, &*sink);
        }
        if there.is_some_and(|there| there.kind == FileKind::Directory) {
            return Err(Failure::new(ErrorKind::IsDirectory.text()).about(to.shown()));
        }
        if let Some(there) = there
            && self.resume
            && is_complete(meta, there)
        {
            self.complete.fetch_add(1, Ordering::Relaxed);
            self.progress.done(meta.size);
            left.iter().for_each(|left| drop(remove_left(&*to.tree, left)));
            return self.complete_meta(task, there);
        }
        // An argument of the command may be a link, or a pipe.
        let listed = task.dir.as_ref().map(|_| meta.identity);
        let source = from.tree.open(&from.path, listed)?;
        let partial = self.begin(to, (meta, there), left.clone())?;
        let copy = FileCopy::new(&*source, &*partial.sink, partial.there, meta.size);
        // A new file has only lists that it inherits from its directory.
        let inherits = task.dir.as_ref().is_none_or(|dir| dir.inherits);
        let access = inherits || partial.there > 0 || partial.adopted.is_some();
        let done = self
            .bytes(&copy, buffers)
            .and_then(|()| self.require_lock(&partial, to))
            .and_then(|()| copy.end())
            .and_then(|()| {
                let lists = Lists { access, default: false };
                self.complete(&partial, to, Some((Listed::Open(&*source), lists)))
            });
        self.end_partial(done, &partial, to)
    }

    /// Updates the attributes that may have changed although the bytes have not.
    fn complete_meta(&self, task: &Task, there: &Meta) -> Done {
        let (meta, keep) = (&task.meta, self.keep);
        let mode = keep.mode && there.mode != meta.mode;
        let owner = keep.owner && (there.uid, there.gid) != (meta.uid, meta.gid);
        if !(mode || owner) {
            return Ok(());
        }
        let held = task.to.tree.held(&task.to.path, FileKind::File)?;
        let lists = Lists { access: true, default: false };
        // A change of owner removes some of the attributes.
        if !(keep.xattrs && owner) {
            return held.set_meta(meta, keep).map(drop);
        }
        let listed = task.dir.as_ref().map(|_| meta.identity);
        let source = task.from.tree.open(&task.from.path, listed)?;
        self.give(Listed::Open(&*source), &*held, (meta, keep), lists)
    }

    fn fill_node(&self, source: &dyn Source, sink: &dyn Sink) -> Done {
        let mut buffer = vec![0; CALL_BYTES];
        let mut offset = 0;
        loop {
            let n = source.read_at(offset, &mut buffer)?;
            if n == 0 {
                return Ok(());
            }
            sink.write_at(offset, &buffer[..n])?;
            offset += n as u64;
            self.progress.done(n as u64);
        }
    }

    /// Begins a file under a temporary name, or continues one that an earlier run left.
    pub fn begin(
        &self,
        to: &Place,
        (meta, there): (&Meta, Option<&Meta>),
        left: Vec<Vec<u8>>,
    ) -> Done<Partial> {
        let there = there.filter(|there| there.kind == FileKind::File);
        let (last, mut keep) = self.finally(meta, there);
        let locked = self.resume || meta.size >= PIECE_BYTES;
        let path = partial::path_for(&to.path, self.run, locked)?;
        if let Some(sink) = self.go_on(to, left, &path)? {
            keep.mode = true;
            let there = sink.size()?;
            self.continued.fetch_add(1, Ordering::Relaxed);
            return Ok(Partial {
                sink,
                path,
                there,
                adopted: None,
                locked: true,
                meta: last,
                keep,
            });
        }
        let layout = match there {
            Some(_) => to.tree.layout(&to.path)?,
            None => None,
        };
        if let (Some(there), Some(_)) = (there, &layout)
            && (there.size, there.nlink) == (0, 1)
            && let Some(partial) = self.adopt(to, there, (&last, keep))?
        {
            return Ok(partial);
        }
        keep.mode |= locked || there.is_some();
        let mode = if keep.mode { PARTIAL_MODE } else { last.mode };
        let making = Making { mode, like: layout.as_ref(), locked };
        let made = to.tree.create(&path, &making);
        let sink = made.map_err(|failure| named(failure, &path, to))?;
        Ok(Partial { sink, path, there: 0, adopted: None, locked, meta: last, keep })
    }

    /// The mode, owner and times of the complete file. What is not to be kept stays as it was in a
    /// replaced file.
    fn finally(&self, meta: &Meta, there: Option<&Meta>) -> (Meta, Keep) {
        let (mut last, mut keep) = (meta.clone(), self.keep);
        if !keep.mode {
            last.mode = there.map_or(meta.mode & !self.umask, |there| there.mode) & 0o777;
        }
        if let Some(there) = there
            && !keep.owner
        {
            (last.uid, last.gid) = (there.uid, there.gid);
            keep.owner = true;
        }
        (last, keep)
    }

    /// Takes over a leftover of an earlier run under a temporary name of this run.
    fn go_on(&self, to: &Place, left: Vec<Vec<u8>>, path: &[u8]) -> Done<Option<Box<dyn Sink>>> {
        let mut found = None;
        for left in left {
            if found.is_some() || !partial::may_go_on(&left) {
                remove_left(&*to.tree, &left)?;
            } else if let Some(sink) = to.tree.take_over(&left, Take::GoOn)? {
                to.tree.rename(&left, path)?;
                found = Some(sink);
            }
        }
        Ok(found)
    }

    /// Fills an empty file with a layout, as `weir mkfile` makes it, in place. While it is
    /// incomplete it has a temporary name and only its owner may use it. `None` if it is not empty
    /// any more and has to be replaced like others.
    fn adopt(
        &self,
        to: &Place,
        there: &Meta,
        (meta, keep): (&Meta, Keep),
    ) -> Done<Option<Partial>> {
        let path = partial::path_for(&to.path, self.run, true)?;
        to.tree.rename(&to.path, &path)?;
        let restore = || to.tree.rename(&path, &to.path);
        let taken = to.tree.take_over(&path, Take::Fill).and_then(|taken| {
            let now = to.tree.stat(&path, false)?;
            Ok((taken, now))
        });
        let sink = match taken {
            Ok((Some(sink), Some(now))) => {
                if (now.size, now.identity) != (0, sink.identity()?) {
                    restore()?;
                    return Ok(None);
                }
                sink
            }
            Ok(_) => {
                restore()?;
                return Err(Failure::new("is locked by another program").about(to.shown()));
            }
            Err(failure) => {
                restore()?;
                return Err(failure);
            }
        };
        // A user who may only write the file cannot change its mode.
        let closed = set_mode(&*sink, there, PARTIAL_MODE).is_ok();
        let keep = Keep { mode: keep.mode || closed, ..keep };
        let (adopted, meta) = (Some(there.mode), meta.clone());
        Ok(Some(Partial { sink, path, there: 0, adopted, locked: true, meta, keep }))
    }

    /// Fails if another run has taken over the file meanwhile because this one seemed dead.
    pub fn require_lock(&self, partial: &Partial, to: &Place) -> Done {
        if !partial.locked {
            return Ok(());
        }
        partial.sink.relock()?;
        if is_there(partial, to)? { Ok(()) } else { Err(replaced(to)) }
    }

    /// Gives a completely written file its attributes and then its name.
    pub fn complete(
        &self,
        partial: &Partial,
        to: &Place,
        from: Option<(Listed<'_>, Lists)>,
    ) -> Done {
        partial.sink.finish()?;
        let given = (&partial.meta, partial.keep);
        match from {
            Some((from, lists)) => self.give(from, &*partial.sink, given, lists)?,
            None => drop(partial.sink.set_meta(given.0, given.1)?),
        }
        if self.fsync {
            partial.sink.sync()?;
        }
        // The owner of a local directory may have put another file there.
        if partial.sink.in_cluster().is_none() && !is_there(partial, to)? {
            return Err(replaced(to));
        }
        to.tree.rename(&partial.path, &to.path)
    }

    /// Removes an incomplete file after a failure, unless a later run may continue it.
    pub fn end_partial(&self, done: Done, partial: &Partial, to: &Place) -> Done {
        let Err(failure) = done else { return Ok(()) };
        let failure = named(failure, &partial.path, to);
        // The first failure is more informative than later ones.
        if !is_there(partial, to).unwrap_or(false) {
            return Err(failure);
        }
        if let Some(mode) = partial.adopted {
            let emptied = partial.sink.set_size(0);
            drop(set_mode(&*partial.sink, &partial.meta, mode));
            drop(emptied.and_then(|()| to.tree.rename(&partial.path, &to.path)));
        } else if !self.resume {
            drop(to.tree.remove(&partial.path));
        }
        Err(failure)
    }
}

/// Whether the temporary name still leads to the file.
fn is_there(partial: &Partial, to: &Place) -> Done<bool> {
    let identity = partial.sink.identity()?;
    Ok(to.tree.stat(&partial.path, false)?.is_some_and(|there| there.identity == identity))
}

fn replaced(to: &Place) -> Failure {
    Failure::new("was replaced while it was copied").about(to.shown())
}

fn set_mode(held: &dyn Held, meta: &Meta, mode: u16) -> Done<bool> {
    held.set_meta(&Meta { mode, ..meta.clone() }, Keep { mode: true, ..Keep::default() })
}

/// Removes a leftover of an earlier run unless some process is still writing it.
fn remove_left(tree: &dyn Tree, left: &[u8]) -> Done {
    // The lock is held until the file is gone.
    let Some(_held) = tree.take_over(left, Take::Remove)? else { return Ok(()) };
    match tree.remove(left) {
        Err(_) if tree.stat(left, false)?.is_none() => Ok(()),
        done => done,
    }
}

/// Turns a failure about an incomplete file into one about the final file.
fn named(failure: Failure, partial: &[u8], to: &Place) -> Failure {
    let message = failure.message.replace(&to.tree.shown(partial), &to.shown());
    Failure { message, ..failure }
}

/// Whether a file is a complete copy of another one. Size and time show this, since a copy gets its
/// name and times only after all bytes.
fn is_complete(from: &Meta, there: &Meta) -> bool {
    there.kind == FileKind::File && (there.size, there.mtime) == (from.size, from.mtime)
}

#[cfg(test)]
impl Copier {
    pub fn for_test() -> Self {
        use clap::Parser;
        #[derive(Parser)]
        struct Only {
            #[command(flatten)]
            cp: Cp,
        }
        let only = Only::parse_from(["cp", "--quiet", "from", "to"]);
        Copier::new(&only.cp, Keep::default()).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::local::LocalTree;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{MetadataExt, symlink};

    #[test]
    fn a_link_in_the_place_of_what_is_copied_does_not_lead_to_another_file() {
        let dir = tempfile::tempdir().unwrap();
        let victim = dir.path().join("victim");
        std::fs::write(&victim, "victim").unwrap();
        let mode = std::fs::metadata(&victim).unwrap().mode();
        let to = dir.path().join("f").as_os_str().as_bytes().to_vec();
        let to = Place { tree: Arc::new(LocalTree), path: to };
        let victim_is = to.tree.stat(victim.as_os_str().as_bytes(), false).unwrap().unwrap();
        let copier = Copier::for_test();
        let mut partial = copier.begin(&to, (&victim_is, None), Vec::new()).unwrap();
        (partial.meta.mode, partial.keep.mode) = (0o4777, true);
        to.tree.remove(&partial.path).unwrap();
        symlink("victim", std::ffi::OsStr::from_bytes(&partial.path)).unwrap();
        let done = copier.complete(&partial, &to, None);
        let failure = copier.end_partial(done, &partial, &to).unwrap_err();
        assert!(failure.message.contains("was replaced"), "{}", failure.message);
        assert_eq!(std::fs::metadata(&victim).unwrap().mode(), mode);
        assert!(to.tree.stat(&to.path, false).unwrap().is_none());
        // Likewise, a directory that has become a link does not get the attributes of the
        // directory.
        let link = dir.path().join("link");
        symlink("victim", &link).unwrap();
        assert!(to.tree.held(link.as_os_str().as_bytes(), FileKind::Directory).is_err());
    }
}
