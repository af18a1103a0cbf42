//! Space of the file system: the sum over the targets that are online, or what quotas of the
//! directories above leave of it.

use crate::ops::{Context, Outcome};
use crate::quota;
use weir_metastore::Tx;
use weir_types::FsUsage;
use weir_wire::meta::StatfsRequest;

/// Does it.
pub fn run(tx: &mut Tx<'_>, ctx: &mut Context<'_>, request: &StatfsRequest) -> Outcome<FsUsage> {
    quota::space(tx, ctx.quotas, request.file, ctx.cluster.usage)
}
