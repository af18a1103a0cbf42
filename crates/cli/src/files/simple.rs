//! `weir cat`, `weir rm` and `weir mkdir`.

use crate::args::{Cat, Mkdir, Rm};
use crate::failure::{Done, Failure, for_each};
use crate::files::copy::to_stdout;
use crate::files::name::{RemoteName, child, split};
use crate::files::remote::{RemoteTree, Sessions};
use crate::files::tree::Tree;
use weir_types::{ErrorKind, FileId, FileKind};

/// The deepest directory that rm goes into.
const MAX_DEPTH: usize = 2048;

/// Runs `weir cat`.
pub fn cat(cat: &Cat) -> Done {
    let mut sessions = Sessions::default();
    for_each(&cat.paths, |text| {
        let name = RemoteName::parse(text)?;
        let tree = sessions.tree(&cat.client, &name, "cat")?;
        to_stdout(&*tree.open(&name.path, None)?)
    })
}

/// Runs `weir mkdir`.
pub fn mkdir(mkdir: &Mkdir) -> Done {
    let mut sessions = Sessions::default();
    for_each(&mkdir.paths, |text| {
        let name = RemoteName::parse(text)?;
        let tree = sessions.tree(&mkdir.client, &name, "mkdir")?;
        if mkdir.parents {
            make_parents(&tree, &name.path)?;
            match tree.stat(&name.path, true)? {
                Some(meta) if meta.kind == FileKind::Directory => return Ok(()),
                _ => {}
            }
        }
        tree.make_dir(&name.path, mkdir.mode)
    })
}

fn make_parents(tree: &RemoteTree, path: &[u8]) -> Done {
    let slashes = path.iter().enumerate().skip(1).filter(|(_, b)| **b == b'/');
    for (end, _) in slashes {
        let dir = &path[..end];
        if tree.stat(dir, true)?.is_none() {
            match tree.make_dir(dir, 0o755) {
                // Somebody else made it at the same time.
                Err(_) if tree.stat(dir, true)?.is_some() => {}
                made => made?,
            }
        }
    }
    Ok(())
}

/// Runs `weir rm`.
pub fn rm(rm: &Rm) -> Done {
    let mut sessions = Sessions::default();
    for_each(&rm.paths, |text| {
        let name = RemoteName::parse(text)?;
        let tree = sessions.tree(&rm.client, &name, "rm")?;
        let path = &name.path;
        if split(path).is_none() {
            return Err(
                Failure::new("the root directory cannot be removed").about(tree.shown(path))
            );
        }
        let Some(meta) = tree.stat(path, false)? else {
            let missing = || Failure::new(ErrorKind::NotFound.text()).about(tree.shown(path));
            return if rm.force { Ok(()) } else { Err(missing()) };
        };
        let (parent, last) = tree.parent(path)?;
        if meta.kind != FileKind::Directory {
            return tree
                .client
                .unlink(&tree.context, parent, last)
                .map(drop)
                .map_err(tree.about(path));
        }
        if !rm.recursive {
            let failure = Failure::new("is a directory").about(tree.shown(path));
            return Err(failure.hint("-r removes it with all that is in it"));
        }
        remove_tree(&tree, path, FileId(meta.identity.1), 0)?;
        tree.client.rmdir(&tree.context, parent, last).map_err(tree.about(path))
    })
}

/// Removes everything in a directory.
fn remove_tree(tree: &RemoteTree, path: &[u8], dir: FileId, depth: usize) -> Done {
    if depth > MAX_DEPTH {
        return Err(Failure::new("directories are too deep").about(tree.shown(path)));
    }
    let entries = tree.entries(dir).map_err(tree.about(path))?;
    for_each(&entries, |entry| {
        let below = child(path, &entry.name);
        if entry.kind == FileKind::Directory {
            remove_tree(tree, &below, entry.file, depth + 1)?;
            tree.client.rmdir(&tree.context, dir, &entry.name).map_err(tree.about(&below))
        } else {
            tree.client
                .unlink(&tree.context, dir, &entry.name)
                .map(drop)
                .map_err(tree.about(&below))
        }
    })
}
