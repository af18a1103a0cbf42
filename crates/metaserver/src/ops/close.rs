//! Closes files.

use crate::ops::{Context, Outcome};
use weir_metastore::Tx;
use weir_wire::meta::CloseRequest;

/// Carries out the request.
pub fn run(_tx: &mut Tx<'_>, ctx: &mut Context<'_>, request: &CloseRequest) -> Outcome<()> {
    ctx.effects.closed.clone_from(&request.files);
    ctx.effects.unconfirmed.clone_from(&request.unconfirmed);
    Ok(())
}
