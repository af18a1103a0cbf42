//! Handles a report of open files after a restart of the server.

use crate::ops::{Context, Outcome, acls, confine};
use crate::schema::{self, Inode, key};
use weir_metastore::Tx;
use weir_wire::Rights;
use weir_wire::lease::LeaseRange;
use weir_wire::meta::ReassertRequest;

/// Carries out the request. Files that are gone, or out of the client's reach, are skipped: their
/// next use returns an error.
pub fn run(
    tx: &mut Tx<'_>,
    ctx: &mut Context<'_>,
    request: &ReassertRequest,
) -> Outcome<Vec<LeaseRange>> {
    ctx.effects.reasserts_anew = request.first;
    let held = request.held.iter().map(|file| (*file, true));
    for (file, is_held) in request.files.iter().map(|file| (*file, false)).chain(held) {
        // Looked at without a check: what is open is not in the store.
        let Some(bytes) = tx.peek(&key::inode(file))? else { continue };
        if !confine::reaches(tx, ctx, file)? {
            continue;
        }
        let mut inode: Inode = schema::decode(&bytes, "of an inode")?;
        if inode.has_acl {
            inode.acl = Some(acls::peek(tx, file)?);
        }
        if ctx.opens.rights(ctx.session, file).is_none() {
            ctx.opens.check_room(ctx.session)?;
        }
        // Who only holds a file does not write it.
        let rights = match is_held {
            true => Rights::NONE,
            false => confine::rights_again(&ctx.limits, &inode),
        };
        ctx.effects.reasserted.push((file, rights));
    }
    Ok(Vec::new())
}
