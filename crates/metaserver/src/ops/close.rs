//! Closes files.

use crate::ops::{Context, Outcome, commit_size, inodes};
use weir_metastore::Tx;
use weir_types::ErrorKind;
use weir_types::limits::MAX_WRITTEN_SEGMENTS;
use weir_wire::Rights;
use weir_wire::meta::CloseRequest;

/// Carries out the request.
pub fn run(tx: &mut Tx<'_>, ctx: &mut Context<'_>, request: &CloseRequest) -> Outcome<()> {
    let segments = request.written.iter().map(|(_, written)| written.len()).sum::<usize>();
    if request.written.len().max(segments) > MAX_WRITTEN_SEGMENTS {
        return Err(ErrorKind::TooBig.into());
    }
    for (file, written) in &request.written {
        // The session may be another one than when it wrote, or the file be gone.
        let inode = match ctx.has_open(*file, Rights::WRITE) {
            true => inodes::find(tx, *file)?,
            false => None,
        };
        if let Some(Ok(body)) = inode.as_ref().map(inodes::regular) {
            commit_size::note_columns(tx, *file, body, written)?;
        }
    }
    ctx.effects.closed.clone_from(&request.files);
    ctx.effects.unconfirmed.clone_from(&request.unconfirmed);
    Ok(())
}
