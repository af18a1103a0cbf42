//! `weir cat` and `weir mkdir`.

use crate::args::{Cat, Mkdir};
use crate::failure::{Done, for_each};
use crate::files::copy::to_stdout;
use crate::files::name::RemoteName;
use crate::files::remote::{RemoteTree, Sessions};
use crate::files::tree::Tree;
use weir_types::FileKind;

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
                // Another process made it at the same time.
                Err(_) if tree.stat(dir, true)?.is_some() => {}
                made => made?,
            }
        }
    }
    Ok(())
}
