//! Files are no longer open.

use crate::ops::{Context, Outcome};
use weir_metastore::Tx;
use weir_wire::meta::CloseRequest;

/// Does it.
pub fn run(_tx: &mut Tx<'_>, ctx: &mut Context<'_>, request: &CloseRequest) -> Outcome<()> {
    ctx.effects.closed.clone_from(&request.files);
    ctx.effects.unconfirmed.clone_from(&request.unconfirmed);
    Ok(())
}
