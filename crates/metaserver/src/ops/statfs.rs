//! Returns the space of the file system: the sum over the online targets, or what quotas of
//! enclosing directories leave of it.

use crate::ops::{Context, Outcome};
use crate::quota;
use weir_metastore::Tx;
use weir_types::FsUsage;
use weir_wire::meta::StatfsRequest;

/// Carries out the request.
pub fn run(tx: &mut Tx<'_>, ctx: &mut Context<'_>, request: &StatfsRequest) -> Outcome<FsUsage> {
    quota::space(tx, ctx.quotas, request.file, ctx.cluster.usage)
}
