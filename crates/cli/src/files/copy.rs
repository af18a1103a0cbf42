//! `weir cp`: one thread walks the source, others copy; a big file is copied
//! in pieces by several of them.

use crate::args::Cp;
use crate::failure::{Done, Failure};
use crate::files::local::LocalTree;
use crate::files::name::{Name, child, split};
use crate::files::progress::Progress;
use crate::files::remote::{RemoteTree, Sessions};
use crate::files::tree::{Meta, Sink, Source, Tree};
use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use weir_types::{ErrorKind, FileKind};

/// Bytes that one thread copies of a big file before it takes the next piece.
const PIECE_BYTES: u64 = 64 << 20;
/// Bytes of one read and one write: the most that one call sends as one
/// request to each server.
const CALL_BYTES: usize = 4 << 20;
/// Files that wait for a thread.
const QUEUE: usize = 1024;
/// The deepest directory that is copied: deeper ones are a loop.
const MAX_DEPTH: usize = 512;

/// Threads that copy one big file.
const THREADS_PER_FILE: u64 = 4;

/// A file or directory of some tree.
#[derive(Clone)]
struct Place {
    tree: Arc<dyn Tree>,
    path: Vec<u8>,
}

impl Place {
    fn shown(&self) -> String {
        self.tree.shown(&self.path)
    }

    fn child(&self, name: &[u8]) -> Self {
        Self { tree: self.tree.clone(), path: child(&self.path, name) }
    }

    /// Whether it is in the other one, or is it.
    fn is_below(&self, other: &Place) -> bool {
        let rest = self.path.strip_prefix(other.path.as_slice());
        let inside = |rest: &[u8]| rest.is_empty() || rest[0] == b'/' || other.path == b"/";
        self.tree.is(&other.tree.identity()) && rest.is_some_and(inside)
    }
}

/// Runs `weir cp`.
pub fn run(cp: &Cp) -> Done {
    let (destination, sources) = match cp.paths.split_last() {
        Some((last, rest)) if !rest.is_empty() => (last, rest),
        _ => return Err(Failure::new("cp needs a source and a destination")),
    };
    let mut sessions = Sessions::default();
    if let [source] = sources
        && copy_stream(cp, &mut sessions, source, destination)?
    {
        return Ok(());
    }
    let to = place(cp, &mut sessions, destination)?;
    let to_dir = to.tree.stat(&to.path, true)?.is_some_and(|meta| meta.kind == FileKind::Directory);
    if sources.len() > 1 && !to_dir {
        return Err(Failure::new(ErrorKind::NotDirectory.text()).about(to.shown()));
    }
    let copier = Copier {
        preserve: cp.preserve,
        progress: Progress::start(cp.quiet),
        failed: AtomicBool::new(false),
    };
    let (tasks, queue) = sync_channel(QUEUE);
    let queue = Mutex::new(queue);
    let directories = std::thread::scope(|scope| {
        for _ in 0..cp.jobs {
            scope.spawn(|| copier.work(&queue));
        }
        let mut walk =
            Walk { copier: &copier, tasks, recursive: cp.recursive, directories: Vec::new() };
        for source in sources {
            let done =
                place(cp, &mut sessions, source).and_then(|from| walk.source(&from, &to, to_dir));
            copier.keep(done);
        }
        walk.directories
    });
    // The deepest first, and all after the files in them: writing into a
    // directory changes its time, and may need rights that it is to lose.
    for (tree, path, meta) in directories.into_iter().rev() {
        copier.keep(tree.set_meta(&path, &meta));
    }
    copier.progress.finish();
    if copier.failed.load(Ordering::Relaxed) { Err(Failure::new("")) } else { Ok(()) }
}

fn place(cp: &Cp, sessions: &mut Sessions, text: &OsString) -> Done<Place> {
    match Name::parse(text)? {
        Name::Stream => Err(Failure::new("'-' can only be the one source or the destination")),
        Name::Local(path) => {
            let path = std::path::absolute(&path).map_err(|e| Failure::file(&path, e))?;
            Ok(Place { tree: Arc::new(LocalTree), path: path.as_os_str().as_bytes().to_vec() })
        }
        Name::Remote(name) => {
            let tree: Arc<RemoteTree> = sessions.tree(&cp.client, &name, "cp")?;
            Ok(Place { tree, path: name.path })
        }
    }
}

/// Copies from standard input or to standard output, if one of them is meant.
fn copy_stream(
    cp: &Cp,
    sessions: &mut Sessions,
    source: &OsString,
    destination: &OsString,
) -> Done<bool> {
    match (Name::parse(source)?, Name::parse(destination)?) {
        (Name::Stream, Name::Remote(_)) => {
            let to = place(cp, sessions, destination)?;
            if to.tree.stat(&to.path, true)?.is_some_and(|m| m.kind == FileKind::Directory) {
                return Err(Failure::new(ErrorKind::IsDirectory.text()).about(to.shown()));
            }
            from_stdin(&*to.tree.create(&to.path, 0o644)?)?;
        }
        (Name::Remote(_), Name::Stream) => {
            let from = place(cp, sessions, source)?;
            to_stdout(&*from.tree.open(&from.path)?)?;
        }
        (Name::Stream, _) | (_, Name::Stream) => {
            return Err(Failure::new("with '-', the other side has to be weir:/path"));
        }
        (Name::Local(_), Name::Local(_)) => {
            return Err(Failure::new("neither side is in the cluster")
                .hint("write weir:/path for a file of the cluster; for local copies there is cp"));
        }
        _ => return Ok(false),
    }
    Ok(true)
}

fn from_stdin(sink: &dyn Sink) -> Done {
    let mut input = std::io::stdin().lock();
    let mut buffer = vec![0; CALL_BYTES];
    let mut offset = 0;
    loop {
        let n = match input.read(&mut buffer) {
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
            n => {
                n.map_err(|e| Failure::from(weir_types::Error::from(e)).about("standard input"))?
            }
        };
        if n == 0 {
            return sink.finish();
        }
        sink.write_at(offset, &buffer[..n])?;
        offset += n as u64;
    }
}

/// Prints a whole file. A reader that has gone is no failure.
pub fn to_stdout(source: &dyn Source) -> Done {
    let mut output = std::io::stdout().lock();
    let mut buffer = vec![0; CALL_BYTES];
    let mut offset = 0;
    loop {
        let n = source.read_at(offset, &mut buffer)?;
        if n == 0 {
            return Ok(());
        }
        match output.write_all(&buffer[..n]).and_then(|()| output.flush()) {
            Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => return Ok(()),
            done => done
                .map_err(|e| Failure::from(weir_types::Error::from(e)).about("standard output"))?,
        }
        offset += n as u64;
    }
}

/// A file to copy.
struct Task {
    from: Place,
    to: Place,
    meta: Meta,
}

/// A file that is being copied, by one thread or several.
struct FileCopy {
    source: Box<dyn Source>,
    sink: Box<dyn Sink>,
    /// The next piece that nobody has taken.
    next: AtomicU64,
    pieces: u64,
}

struct Copier {
    preserve: bool,
    progress: Progress,
    failed: AtomicBool,
}

impl Copier {
    /// Says a failure, above the progress bar; the copy goes on.
    fn keep(&self, done: Done) {
        if let Err(failure) = done {
            self.progress.suspend(|| failure.say());
            self.failed.store(true, Ordering::Relaxed);
        }
    }

    fn work(&self, tasks: &Mutex<Receiver<Task>>) {
        let mut buffer = vec![0; CALL_BYTES];
        loop {
            // The lock is held while waiting: the next task goes to one thread.
            let task = tasks.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(task) = task else { return };
            self.keep(self.file(&task, &mut buffer));
        }
    }

    fn file(&self, task: &Task, buffer: &mut [u8]) -> Done {
        let (from, to) = (&task.from, &task.to);
        self.progress.at(from.shown());
        let copy = FileCopy {
            source: from.tree.open(&from.path)?,
            sink: to.tree.create(&to.path, task.meta.mode & 0o777)?,
            next: AtomicU64::new(0),
            pieces: task.meta.size.div_ceil(PIECE_BYTES).max(1),
        };
        let helpers = copy.pieces.min(THREADS_PER_FILE) - 1;
        std::thread::scope(|scope| {
            let others: Vec<_> = (0..helpers)
                .map(|_| scope.spawn(|| self.pieces(&copy, &mut vec![0; CALL_BYTES])))
                .collect();
            let mine = self.pieces(&copy, buffer);
            others.into_iter().fold(mine, |all, other| {
                all.and(other.join().unwrap_or_else(|_| Err(Failure::new("a thread panicked"))))
            })
        })?;
        copy.sink.finish()?;
        drop(copy);
        if self.preserve { to.tree.set_meta(&to.path, &task.meta) } else { Ok(()) }
    }

    /// Copies pieces of a file until all are taken.
    fn pieces(&self, copy: &FileCopy, buffer: &mut [u8]) -> Done {
        loop {
            let piece = copy.next.fetch_add(1, Ordering::Relaxed);
            if piece >= copy.pieces {
                return Ok(());
            }
            let last = piece + 1 == copy.pieces;
            let mut offset = piece * PIECE_BYTES;
            // The last one goes on to wherever the file ends by now.
            let end = if last { u64::MAX } else { offset + PIECE_BYTES };
            while offset < end {
                let copied = copy.sink.copy_at(&*copy.source, offset, end - offset)?;
                if let Some(n) = copied {
                    if n == 0 {
                        break;
                    }
                    self.progress.done(n);
                    offset += n;
                    continue;
                }
                let want = buffer.len().min(usize::try_from(end - offset).unwrap_or(usize::MAX));
                let n = copy.source.read_at(offset, &mut buffer[..want])?;
                if n == 0 {
                    break;
                }
                copy.sink.write_at(offset, &buffer[..n])?;
                self.progress.done(n as u64);
                offset += n as u64;
            }
        }
    }
}

/// Walks the sources, makes directories and links, hands out files.
struct Walk<'a> {
    copier: &'a Copier,
    tasks: SyncSender<Task>,
    recursive: bool,
    /// Directories made, whose attributes are set in the end.
    directories: Vec<(Arc<dyn Tree>, Vec<u8>, Meta)>,
}

impl Walk<'_> {
    /// Copies one argument: to the destination, or into it.
    fn source(&mut self, from: &Place, to: &Place, into: bool) -> Done {
        let follow = !self.recursive;
        let Some(meta) = from.tree.stat(&from.path, follow)? else {
            return Err(Failure::new(ErrorKind::NotFound.text()).about(from.shown()));
        };
        let to = match split(&from.path) {
            Some((_, name)) if into => to.child(name),
            _ => to.clone(),
        };
        if meta.kind == FileKind::Directory {
            if !self.recursive {
                return Err(Failure::new("is a directory")
                    .about(from.shown())
                    .hint("-r copies it"));
            }
            if to.is_below(from) {
                return Err(Failure::new("cannot be copied into itself").about(from.shown()));
            }
        }
        self.copy(from, to, meta, 0)
    }

    fn copy(&mut self, from: &Place, to: Place, meta: Meta, depth: usize) -> Done {
        match meta.kind {
            FileKind::Directory => self.directory(from, to, meta, depth),
            FileKind::Symlink => {
                let target = from.tree.read_link(&from.path)?;
                to.tree.make_link(&to.path, &target)?;
                if self.copier.preserve { to.tree.set_meta(&to.path, &meta) } else { Ok(()) }
            }
            FileKind::File => self.file(from, to, meta),
            _ => {
                Err(Failure::new("neither file, directory nor link: not copied")
                    .about(from.shown()))
            }
        }
    }

    fn file(&mut self, from: &Place, to: Place, meta: Meta) -> Done {
        if from.tree.is(&to.tree.identity()) {
            let there = to.tree.stat(&to.path, true)?;
            if there.is_some_and(|there| there.identity == meta.identity) {
                let both = format!("{} and {}", from.shown(), to.shown());
                return Err(Failure::new("are the same file").about(both));
            }
        }
        self.copier.progress.found(meta.size);
        let task = Task { from: from.clone(), to, meta };
        // The threads end only after this side hangs up.
        self.tasks.send(task).map_err(|_| Failure::new("the copying threads are gone"))
    }

    fn directory(&mut self, from: &Place, to: Place, meta: Meta, depth: usize) -> Done {
        if depth > MAX_DEPTH {
            return Err(Failure::new("directories are too deep").about(from.shown()));
        }
        match to.tree.stat(&to.path, true)? {
            None => to.tree.make_dir(&to.path, meta.mode & 0o777 | 0o700)?,
            Some(there) if there.kind == FileKind::Directory => {}
            Some(_) => {
                return Err(Failure::new(ErrorKind::NotDirectory.text()).about(to.shown()));
            }
        }
        if self.copier.preserve {
            self.directories.push((to.tree.clone(), to.path.clone(), meta));
        }
        for (name, meta) in from.tree.list(&from.path)? {
            let done = self.copy(&from.child(&name), to.child(&name), meta, depth + 1);
            self.copier.keep(done);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local(path: &str) -> Place {
        Place { tree: Arc::new(LocalTree), path: path.into() }
    }

    #[test]
    fn a_directory_is_not_copied_into_itself() {
        assert!(local("/a/b").is_below(&local("/a")));
        assert!(local("/a").is_below(&local("/a")));
        assert!(!local("/ab").is_below(&local("/a")));
        assert!(local("/ab").is_below(&local("/")));
    }

    #[test]
    fn a_big_file_is_copied_whole_by_several_threads() {
        let dir = tempfile::tempdir().unwrap();
        let place = |name: &str| Place {
            tree: Arc::new(LocalTree),
            path: dir.path().join(name).as_os_str().as_bytes().to_vec(),
        };
        let (from, to) = (place("from"), place("to"));
        let bytes: Vec<u8> = (0..2 * PIECE_BYTES + 12_345).map(|i| (i / 7 % 251) as u8).collect();
        std::fs::write(dir.path().join("from"), &bytes).unwrap();
        let meta = LocalTree.stat(&from.path, true).unwrap().unwrap();
        let copier = Copier {
            preserve: true,
            progress: Progress::start(true),
            failed: AtomicBool::new(false),
        };
        copier.file(&Task { from, to, meta }, &mut vec![0; CALL_BYTES]).unwrap();
        assert!(std::fs::read(dir.path().join("to")).unwrap() == bytes);
    }
}
