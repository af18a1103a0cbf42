//! Space of the file system: the sum over the targets that are online.

use crate::ops::{Context, Outcome};
use weir_metastore::Tx;
use weir_types::FsUsage;
use weir_wire::meta::StatfsRequest;

/// Does it.
pub fn run(_tx: &mut Tx<'_>, ctx: &mut Context<'_>, _: &StatfsRequest) -> Outcome<FsUsage> {
    Ok(ctx.cluster.usage)
}
