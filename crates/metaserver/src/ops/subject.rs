//! What the audit record of a request names.

use weir_types::codec::{Bytes, Reader};
use weir_types::{Decode, FileId};
use weir_wire::Rights;
use weir_wire::message::Op;
use weir_wire::meta::*;

/// The file of a request, or the directory of its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// The file or directory.
    pub file: FileId,
    /// The name in that directory.
    pub name: Option<Bytes>,
    /// The rights asked for.
    pub rights: Rights,
    /// The directory and the name that a file is moved to.
    pub to: Option<(FileId, Bytes)>,
}

/// What a request names; `None` for requests that are never recorded.
pub fn of(op: Op, mut body: Reader<'_>) -> Option<Subject> {
    fn read<R: Decode>(body: &mut Reader<'_>) -> Option<R> {
        R::decode(body).ok()
    }
    let of_file = |file| Subject { file, name: None, rights: Rights::NONE, to: None };
    let named = |file, name| Subject { name: Some(name), ..of_file(file) };
    let body = &mut body;
    Some(match op {
        Op::Open => {
            let OpenRequest { file, rights } = read(body)?;
            Subject { rights, ..of_file(file) }
        }
        Op::Create => {
            let CreateRequest { parent, name, rights, .. } = read(body)?;
            Subject { rights, ..named(parent, name) }
        }
        Op::Mkdir => read(body).map(|MkdirRequest { parent, name, .. }| named(parent, name))?,
        Op::Symlink => read(body).map(|SymlinkRequest { parent, name, .. }| named(parent, name))?,
        Op::Unlink => read(body).map(|UnlinkRequest { parent, name, .. }| named(parent, name))?,
        Op::Rmdir => read(body).map(|RmdirRequest { parent, name }| named(parent, name))?,
        Op::Rename => {
            let RenameRequest { parent, name, new_parent, new_name, .. } = read(body)?;
            Subject { to: Some((new_parent, new_name)), ..named(parent, name) }
        }
        // Any name may be looked for: it says nothing.
        Op::Lookup => read(body).map(|LookupRequest { parent, .. }| of_file(parent))?,
        Op::Link => read(body).map(|LinkRequest { file, .. }| of_file(file))?,
        Op::SetAttr => read(body).map(|SetAttrRequest { file, .. }| of_file(file))?,
        Op::SetXattr => read(body).map(|SetXattrRequest { file, .. }| of_file(file))?,
        Op::RemoveXattr => read(body).map(|RemoveXattrRequest { file, .. }| of_file(file))?,
        Op::SetLayout => read(body).map(|SetLayoutRequest { file, .. }| of_file(file))?,
        Op::Readdir => read(body).map(|ReaddirRequest { dir, .. }| of_file(dir))?,
        _ => return None,
    })
}

/// Whether a request is recorded if it succeeds. Others are recorded if they are refused.
pub fn is_recorded(op: Op) -> bool {
    op == Op::Open || op.is_for_once()
}

/// Whether the record of a successful request says the name. Requests that make something are summed
/// up by directory: there may be millions.
pub fn says_name(op: Op) -> bool {
    matches!(op, Op::Unlink | Op::Rmdir | Op::Rename)
}
