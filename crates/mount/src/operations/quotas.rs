//! The caller's quotas, as the value of [`QUOTA_XATTR`] of any file on the mount. The attribute is
//! not stored with the file, cannot be set, and is not listed. So a user without a key of the
//! cluster can see them, as `weir quota` shows them.

use crate::translate::context;
use crate::weirfs::WeirFs;
use weir_fuse::{NodeId, Reply, RequestContext};
use weir_types::FileId;
use weir_wire::quota::{QUOTA_XATTR, QuotaInfo, QuotaLimits, QuotaSubject};

/// Whether this is the attribute's name.
pub(crate) fn is_quota(name: &[u8]) -> bool {
    name == QUOTA_XATTR.as_bytes()
}

impl WeirFs {
    /// A line for each quota: of the caller, of its groups, and the tightest one of the enclosing
    /// directories.
    pub(crate) fn quotas(&self, ctx: &RequestContext<'_>, node: NodeId) -> Reply<Vec<u8>> {
        let ctx = context(ctx);
        let file = self.nodes.file(node).unwrap_or(FileId::ROOT);
        let mut text: String = self.client.own_quotas(&ctx)?.iter().map(QuotaInfo::line).collect();
        let (here, all) =
            (self.client.statfs(&ctx, file)?, self.client.statfs(&ctx, FileId::ROOT)?);
        let limit = |here: u64, all: u64| (here != all).then_some(here);
        let limits = QuotaLimits {
            bytes: limit(here.total_bytes, all.total_bytes),
            files: limit(here.total_files, all.total_files),
        };
        if limits != QuotaLimits::default() {
            let used =
                |limit: Option<u64>, free: u64| limit.map_or(0, |all| all.saturating_sub(free));
            let info = QuotaInfo {
                subject: QuotaSubject::Directory(file),
                limits,
                used_bytes: used(limits.bytes, here.free_bytes),
                used_files: used(limits.files, here.free_files),
                granted_bytes: 0,
                counting: false,
            };
            text += &info.line();
        }
        Ok(text.into_bytes())
    }
}
