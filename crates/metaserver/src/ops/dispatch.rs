//! Maps the operation of a message to its function.

use crate::ops::confine::{self, Confined, Shown};
use crate::ops::{self, Context, Outcome};
use weir_metastore::Tx;
use weir_types::codec::Reader;
use weir_types::{Encode, ErrorKind};
use weir_wire::lease::{AcquireRequest, RecoveredRequest};
use weir_wire::message::{Op, Request};
use weir_wire::meta::*;
use weir_wire::quota::RoomRequest;
use weir_wire::targets::AcceptLossesRequest;

/// Protection of a request against being carried out twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// No protection: it changes nothing.
    Harmless,
    /// Repeating it does no harm to the store, so it may come without a mutation id; with one it is
    /// carried out once.
    Tolerable,
    /// It must carry a mutation id.
    Once,
}

/// The protection of an operation's requests; `None` if it is not an operation on the namespace.
pub fn repeat_of(op: Op) -> Option<Repeat> {
    Some(match op {
        Op::Lookup
        | Op::GetAttr
        | Op::Readlink
        | Op::Readdir
        | Op::GetXattr
        | Op::ListXattr
        | Op::Statfs
        | Op::Room
        | Op::GetLayout
        | Op::Acquire
        | Op::AcceptLosses
        | Op::GetDefaultLayout => Repeat::Harmless,
        Op::Open
        | Op::Close
        | Op::Reassert
        | Op::Extend
        | Op::CommitSize
        | Op::Recovered
        | Op::Accessed
        | Op::TruncateDone => Repeat::Tolerable,
        op if op.is_for_once() => Repeat::Once,
        _ => return None,
    })
}

/// Whether the operation may use [`Context::fresh`].
pub fn takes_fresh_id(op: Op) -> bool {
    matches!(op, Op::Create | Op::Mkdir | Op::Symlink | Op::Rename)
}

/// Whether a successful operation enlarges the metadata, so that it is refused when the disk is
/// full. (A rename changes names, and may remove a file.)
pub fn needs_room(op: Op) -> bool {
    matches!(
        op,
        Op::Create | Op::Mkdir | Op::Symlink | Op::Link | Op::SetXattr | Op::SetLayout | Op::Extend
    )
}

/// Runs one operation: decodes the rest of the request, carries it out, encodes the reply.
pub fn dispatch(
    tx: &mut Tx<'_>,
    ctx: &mut Context<'_>,
    op: Op,
    body: Reader<'_>,
) -> Outcome<Vec<u8>> {
    match op {
        Op::Lookup => serve::<LookupRequest>(tx, ctx, body, ops::lookup::run),
        Op::GetAttr => serve::<GetAttrRequest>(tx, ctx, body, ops::getattr::run),
        Op::SetAttr => serve::<SetAttrRequest>(tx, ctx, body, ops::setattr::run),
        Op::Create => serve::<CreateRequest>(tx, ctx, body, ops::create::run),
        Op::Mkdir => serve::<MkdirRequest>(tx, ctx, body, ops::mkdir::run),
        Op::Unlink => serve::<UnlinkRequest>(tx, ctx, body, ops::unlink::run),
        Op::Rmdir => serve::<RmdirRequest>(tx, ctx, body, ops::rmdir::run),
        Op::Rename => serve::<RenameRequest>(tx, ctx, body, ops::rename::run),
        Op::Link => serve::<LinkRequest>(tx, ctx, body, ops::link::run),
        Op::Symlink => serve::<SymlinkRequest>(tx, ctx, body, ops::symlink::run),
        Op::Readlink => serve::<ReadlinkRequest>(tx, ctx, body, ops::readlink::run),
        Op::Readdir => serve::<ReaddirRequest>(tx, ctx, body, ops::readdir::run),
        Op::GetXattr => serve::<GetXattrRequest>(tx, ctx, body, ops::get_xattr::run),
        Op::SetXattr => serve::<SetXattrRequest>(tx, ctx, body, ops::set_xattr::run),
        Op::ListXattr => serve::<ListXattrRequest>(tx, ctx, body, ops::list_xattr::run),
        Op::RemoveXattr => serve::<RemoveXattrRequest>(tx, ctx, body, ops::remove_xattr::run),
        Op::Statfs => serve::<StatfsRequest>(tx, ctx, body, ops::statfs::run),
        Op::Room => serve::<RoomRequest>(tx, ctx, body, ops::room::run),
        Op::Open => serve::<OpenRequest>(tx, ctx, body, ops::open::run),
        Op::Close => serve::<CloseRequest>(tx, ctx, body, ops::close::run),
        Op::Reassert => serve::<ReassertRequest>(tx, ctx, body, ops::reassert::run),
        Op::GetLayout => serve::<GetLayoutRequest>(tx, ctx, body, ops::get_layout::run),
        Op::Extend => serve::<ExtendRequest>(tx, ctx, body, ops::extend::run),
        Op::CommitSize => serve::<CommitSizeRequest>(tx, ctx, body, ops::commit_size::run),
        Op::TruncateDone => serve::<TruncateDoneRequest>(tx, ctx, body, ops::truncate_done::run),
        Op::Accessed => serve::<AccessedRequest>(tx, ctx, body, ops::accessed::run),
        Op::Acquire => serve::<AcquireRequest>(tx, ctx, body, ops::acquire::run),
        Op::Recovered => serve::<RecoveredRequest>(tx, ctx, body, ops::recovered::run),
        Op::SetLayout => serve::<SetLayoutRequest>(tx, ctx, body, ops::set_layout::run),
        Op::AcceptLosses => serve::<AcceptLossesRequest>(tx, ctx, body, ops::accept_losses::run),
        Op::GetDefaultLayout => {
            serve::<GetDefaultLayoutRequest>(tx, ctx, body, ops::get_default_layout::run)
        }
        _ => Err(ErrorKind::Protocol.into()),
    }
}

fn serve<R: Request<Reply: Shown> + Confined>(
    tx: &mut Tx<'_>,
    ctx: &mut Context<'_>,
    mut body: Reader<'_>,
    operation: fn(&mut Tx<'_>, &mut Context<'_>, &R) -> Outcome<R::Reply>,
) -> Outcome<Vec<u8>> {
    let mut request = R::decode(&mut body).map_err(weir_types::Error::from)?;
    body.finish().map_err(weir_types::Error::from)?;
    confine::admit(tx, ctx, &mut request)?;
    let mut reply = operation(tx, ctx, &request)?;
    confine::show(ctx, &mut reply);
    let mut out = Vec::with_capacity(256);
    reply.encode(&mut out);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_that_makes_a_file_must_be_done_once() {
        for &op in Op::ALL {
            assert!(!takes_fresh_id(op) || repeat_of(op) == Some(Repeat::Once), "{}", op.label());
        }
    }
}
