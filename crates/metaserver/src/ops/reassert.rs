//! After the server came back: these files are open.

use crate::ops::{Context, Outcome};
use crate::schema::key;
use weir_metastore::Tx;
use weir_wire::lease::LeaseRange;
use weir_wire::meta::ReassertRequest;

/// Does it. Files that are gone are passed over: their next use says so.
pub fn run(
    tx: &mut Tx<'_>,
    ctx: &mut Context<'_>,
    request: &ReassertRequest,
) -> Outcome<Vec<LeaseRange>> {
    for &file in &request.files {
        // Looked at without a check: what is open is not in the store.
        if tx.peek(&key::inode(file))?.is_some() {
            ctx.opens.check_room(ctx.session)?;
            ctx.effects.reasserted.push(file);
        }
    }
    Ok(Vec::new())
}
