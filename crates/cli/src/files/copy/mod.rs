//! `weir cp`: one thread walks the source, others copy. Several threads copy pieces of a big file.
//! A file has a temporary name until it is complete, so a file under its own name is always
//! complete ([`partial`]).

mod bytes;
mod dirs;
mod links;
mod partial;
mod place;
mod stream;
mod walk;
mod work;

pub use stream::to_stdout;

use crate::args::{Cp, Kept};
use crate::failure::{Done, Failure};
use crate::files::local::LocalTree;
use crate::files::name::Name;
use crate::files::remote::Sessions;
use crate::files::tree::Keep;
use place::Place;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use walk::Walk;
use weir_types::{ErrorKind, FileKind};
use work::Copier;

/// Files that may wait for a thread.
const QUEUE: usize = 256;

/// The trees and paths of the command's arguments.
struct Places<'a> {
    cp: &'a Cp,
    sessions: Sessions,
    local: Arc<LocalTree>,
}

/// Runs `weir cp`.
pub fn run(cp: &Cp) -> Done {
    let (destination, sources) = match cp.paths.split_last() {
        Some((last, rest)) if !rest.is_empty() => (last, rest),
        _ => return Err(Failure::new("cp needs a source and a destination")),
    };
    let mut places = Places { cp, sessions: Sessions::default(), local: Arc::new(LocalTree) };
    // From a pipe only the bytes can be kept.
    let from_pipe = sources.iter().any(|source| source == "-");
    let copier = Copier::new(cp, if from_pipe { Keep::default() } else { keep(cp) })?;
    if let [source] = sources
        && places.copy_stream(&copier, source, destination)?
    {
        return copier.end();
    }
    let to = places.find(destination)?;
    let is_dir = to.tree.stat(&to.path, true)?.is_some_and(|meta| meta.kind == FileKind::Directory);
    let to_dir = is_dir && !cp.no_target_directory;
    if sources.len() > 1 && !to_dir {
        return Err(Failure::new(ErrorKind::NotDirectory.text()).about(to.shown()));
    }
    let (tasks, queue) = sync_channel(QUEUE);
    let queue = Mutex::new(queue);
    std::thread::scope(|scope| {
        for _ in 0..cp.jobs {
            scope.spawn(|| copier.work(&queue));
        }
        let mut walk = Walk::new(&copier, tasks, cp.recursive || cp.archive);
        for source in sources {
            let done = places.find(source).and_then(|from| {
                if cp.resume && sources.len() == 1 {
                    require_plain(cp, &from, &to, is_dir)?;
                }
                walk.source(&from, &to, to_dir)
            });
            copier.keep(done);
        }
    });
    if cp.fsync {
        copier.keep(to.tree.sync_all(&to.parent_or_self(is_dir)));
    }
    copier.end()
}

/// Fails if a copy with `--resume` could mean something else in its second run. If the destination
/// directory is missing, cp makes it the copy of the source; if it exists, cp copies into it.
fn require_plain(cp: &Cp, from: &Place, to: &Place, is_dir: bool) -> Done {
    let text = cp.paths.last().map(|path| path.as_bytes()).unwrap_or_default();
    let into = [&b"/"[..], b"/.", b"/.."].iter().any(|end| text.ends_with(end))
        || matches!(text, b"." | b".." | b"weir:");
    if cp.no_target_directory || (into && is_dir) {
        return Ok(());
    }
    let source = from.tree.stat(&from.path, false)?;
    if source.is_none_or(|meta| meta.kind != FileKind::Directory) || !(is_dir || into) {
        return Ok(());
    }
    let what = if is_dir { "is there already" } else { ErrorKind::NotFound.text() };
    Err(Failure::new(what).about(to.shown()).hint(format!(
        "-T: it is, or becomes, the copy of {}; with a / at its end and made before: \
         the copy is in it",
        from.shown()
    )))
}

/// Reads from the flags what to keep.
fn keep(cp: &Cp) -> Keep {
    let all = cp.archive || cp.preserve.contains(&Kept::All);
    let has = |kept: Kept| all || cp.preserve.contains(&kept);
    Keep {
        mode: has(Kept::Mode),
        owner: has(Kept::Ownership),
        // By the times the next run recognises complete files.
        times: has(Kept::Timestamps) || cp.resume,
        links: has(Kept::Links),
        xattrs: has(Kept::Xattr),
    }
}

impl Places<'_> {
    fn find(&mut self, text: &OsString) -> Done<Place> {
        match Name::parse(text)? {
            Name::Stream => Err(Failure::new("'-' can only be the one source or the destination")),
            Name::Local(path) => {
                let path = std::path::absolute(&path).map_err(|e| Failure::file(&path, e))?;
                let path = path.as_os_str().as_bytes().to_vec();
                Ok(Place { tree: self.local.clone(), path })
            }
            Name::Remote(name) => {
                let tree = self.sessions.tree(&self.cp.client, &name, "cp")?;
                Ok(Place { tree, path: name.path })
            }
        }
    }

    /// Copies from standard input or to standard output if an argument says so. Returns whether it
    /// did.
    fn copy_stream(
        &mut self,
        copier: &Copier,
        source: &OsString,
        destination: &OsString,
    ) -> Done<bool> {
        let names = (Name::parse(source)?, Name::parse(destination)?);
        if self.cp.resume && matches!(names, (Name::Stream, _) | (_, Name::Stream)) {
            return Err(Failure::new("--resume: a copy from or to a pipe cannot be continued")
                .hint("copy from or to a file, or start again without --resume"));
        }
        match names {
            (Name::Stream, Name::Remote(_)) => {
                let to = self.find(destination)?;
                copier.copy_stdin(&to)?;
                if self.cp.fsync {
                    to.tree.sync_all(&to.parent_or_self(false))?;
                }
            }
            (Name::Remote(_), Name::Stream) => {
                let from = self.find(source)?;
                to_stdout(&*from.tree.open(&from.path, None)?)?;
            }
            (Name::Stream, _) | (_, Name::Stream) => {
                return Err(Failure::new("with '-', the other side has to be weir:/path"));
            }
            (Name::Local(_), Name::Local(_)) => {
                return Err(Failure::new("neither side is in the cluster").hint(
                    "write weir:/path for a file of the cluster; for local copies there is cp",
                ));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}
