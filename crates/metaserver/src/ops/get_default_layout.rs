//! The default layout that new files of a directory get.

use crate::ops::{Context, Outcome, inodes};
use weir_metastore::Tx;
use weir_types::LayoutSpec;
use weir_wire::meta::GetDefaultLayoutRequest;

/// Carries out the request.
pub fn run(
    tx: &mut Tx<'_>,
    _ctx: &mut Context<'_>,
    request: &GetDefaultLayoutRequest,
) -> Outcome<LayoutSpec> {
    let mut inode = inodes::load_directory(tx, request.dir)?;
    Ok(inodes::directory(&mut inode)?.default_layout.clone())
}
