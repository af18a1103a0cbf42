//! `weir stat`, and how attributes are displayed.

use crate::args::Stat;
use crate::failure::{Done, Failures};
use crate::files::name::{RemoteName, shown};
use crate::files::owners::Owners;
use crate::files::remote::{RemoteTree, Sessions};
use crate::output::{print, print_json};
use crate::text::{mode_string, named, utc_time};
use serde_json::{Value, json};
use weir_types::{Attr, CONSISTENCY_XATTR, ErrorKind, FileKind, Timestamp};

/// Runs `weir stat`.
pub fn run(stat: &Stat) -> Done {
    let mut sessions = Sessions::default();
    let mut failures = Failures::default();
    let mut all = Vec::new();
    for text in &stat.paths {
        let found = RemoteName::parse(text).and_then(|name| {
            let tree = sessions.tree(&stat.client, &name, "stat")?;
            let attr = tree.attr(&name.path, false)?;
            let link = match attr.kind {
                FileKind::Symlink => {
                    let link = tree.client.readlink(&tree.context, attr.file);
                    Some(link.map_err(tree.about(&name.path))?)
                }
                _ => None,
            };
            let hint = match attr.kind {
                FileKind::File | FileKind::Directory => hint(&tree, &attr),
                _ => Ok(None),
            };
            let hint = hint.map_err(tree.about(&name.path))?;
            if stat.json {
                let mut value = describe(&name.path, &attr, link.as_deref());
                if let Some(hint) = hint {
                    value["consistency"] = json!(hint);
                }
                all.push(value);
                return Ok(());
            }
            let hint = hint.map(|hint| format!("Consistency: {hint}\n")).unwrap_or_default();
            print(&format!("{}{hint}", text_of(&name.path, &attr, link.as_deref())))
        });
        failures.keep(found);
    }
    if stat.json {
        print_json(&all)?;
    }
    failures.end()
}

/// The consistency hint of a file or directory, if the caller may read it.
fn hint(tree: &RemoteTree, attr: &Attr) -> weir_types::Result<Option<String>> {
    match tree.client.get_xattr(&tree.context, attr.file, CONSISTENCY_XATTR) {
        Ok(value) => Ok(Some(String::from_utf8_lossy(&value).into_owned())),
        Err(e) if matches!(e.kind, ErrorKind::NoAttribute | ErrorKind::AccessDenied) => Ok(None),
        Err(e) => Err(e),
    }
}

fn text_of(path: &[u8], attr: &Attr, link: Option<&[u8]>) -> String {
    let link = link.map(|l| format!(" -> {}", shown(l))).unwrap_or_default();
    format!(
        "  File: {}\n  Size: {}\tIO unit: {}\t{}\n Inode: {}\tLinks: {}\tGeneration: {}\n\
         Access: ({:04o}/{})\tUid: ({}/{})\tGid: ({}/{})\nAccess: {}\nModify: {}\nChange: {}\n",
        named(shown(path) + &link),
        attr.size,
        attr.preferred_io_bytes,
        kind_name(attr.kind),
        attr.file,
        attr.nlink,
        attr.generation,
        attr.mode,
        mode_string(kind_letter(attr.kind), attr.mode),
        attr.uid,
        Owners::users().name(attr.uid),
        attr.gid,
        Owners::groups().name(attr.gid),
        utc_time(attr.atime),
        utc_time(attr.mtime),
        utc_time(attr.ctime),
    )
}

/// Attributes as JSON. Times are seconds since 1970 as text with a fraction, so that nanoseconds
/// are kept.
pub fn describe(path: &[u8], attr: &Attr, link: Option<&[u8]>) -> Value {
    let time = |t: Timestamp| format!("{}.{:09}", t.seconds(), t.nanos());
    let mut value = json!({
        "path": shown(path),
        "kind": kind_name(attr.kind),
        "inode": attr.file.0,
        "mode": format!("{:04o}", attr.mode),
        "links": attr.nlink,
        "uid": attr.uid,
        "gid": attr.gid,
        "size": attr.size,
        "io_unit_bytes": attr.preferred_io_bytes,
        "generation": attr.generation.0,
        "atime": time(attr.atime),
        "mtime": time(attr.mtime),
        "ctime": time(attr.ctime),
    });
    if let Some(link) = link {
        value["target"] = json!(shown(link));
    }
    value
}

/// The letter for a kind of file that `ls -l` prints.
pub fn kind_letter(kind: FileKind) -> char {
    match kind {
        FileKind::File => '-',
        FileKind::Directory => 'd',
        FileKind::Symlink => 'l',
        FileKind::Fifo => 'p',
        FileKind::Socket => 's',
        FileKind::CharDevice => 'c',
        FileKind::BlockDevice => 'b',
    }
}

fn kind_name(kind: FileKind) -> &'static str {
    match kind {
        FileKind::File => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symlink",
        FileKind::Fifo => "fifo",
        FileKind::Socket => "socket",
        FileKind::CharDevice => "character device",
        FileKind::BlockDevice => "block device",
    }
}
