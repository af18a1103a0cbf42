//! Closes files.

use crate::ops::{Context, Fault, Outcome, commit_size, inodes};
use crate::schema::{self, Inode, key};
use weir_metastore::{MAX_OPERATIONS, Tx};
use weir_types::limits::MAX_WRITTEN_SEGMENTS;
use weir_types::{ErrorKind, FileId};
use weir_wire::Rights;
use weir_wire::meta::{CloseRequest, WrittenColumns};

/// Checks of a transaction for each segment: a page of segments (as a range that has one row), and
/// the record of its written columns.
const CHECKS: usize = 3;

const _: () = assert!(CHECKS * MAX_WRITTEN_SEGMENTS < MAX_OPERATIONS);

/// Carries out the request.
pub fn run(tx: &mut Tx<'_>, ctx: &mut Context<'_>, request: &CloseRequest) -> Outcome<()> {
    let segments = request.written.iter().map(|(_, written)| written.len()).sum::<usize>();
    if request.written.len().max(segments) > MAX_WRITTEN_SEGMENTS {
        return Err(ErrorKind::TooBig.into());
    }
    for (file, written) in &request.written {
        match note_columns(tx, ctx, *file, written) {
            // What is amiss with one file must not keep others open.
            Err(Fault::Refused(_)) => {}
            noted => noted?,
        }
    }
    ctx.effects.closed.clone_from(&request.files);
    ctx.effects.unconfirmed.clone_from(&request.unconfirmed);
    Ok(())
}

fn note_columns(
    tx: &mut Tx<'_>,
    ctx: &Context<'_>,
    file: FileId,
    written: &[WrittenColumns],
) -> Outcome<()> {
    // The session may be another one than when it wrote.
    if !ctx.has_open(file, Rights::WRITE) {
        return Ok(());
    }
    // Looked at without a check: a file that goes, or is emptied, takes along its pages of segments,
    // and these are checked.
    let Some(bytes) = tx.peek(&key::inode(file))? else { return Ok(()) };
    let inode: Inode = schema::decode(&bytes, "of an inode")?;
    commit_size::note_columns(tx, file, inodes::regular(&inode)?, written)
}
