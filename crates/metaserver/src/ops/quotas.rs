//! What quotas say to those who write.

use crate::ops::{Context, Outcome, access};
use crate::quota::{self, AHEAD_PART, MAX_AHEAD_BYTES, RoomNews};
use crate::schema::{Body, Inode};
use weir_metastore::Tx;
use weir_types::FileId;

/// Adds a file's quota to a reply: the writer learns whether one applies, and its granted space
/// counts for the present quotas.
pub(crate) fn note(
    tx: &mut Tx<'_>,
    ctx: &mut Context<'_>,
    file: FileId,
    inode: &Inode,
    up_to: Option<u64>,
) -> Outcome<()> {
    if ctx.quotas.is_empty() || !matches!(inode.body, Body::File(_)) {
        return Ok(());
    }
    let mut subjects = quota::share(tx, ctx.quotas, file, inode)?.subjects;
    subjects.retain(|subject| ctx.quotas.limits_bytes(*subject));
    ctx.effects.room_limited = !subjects.is_empty();
    ctx.effects.room = Some(RoomNews { file, size: inode.size, subjects, up_to });
    Ok(())
}

/// How far a file may grow for a writer that is about to write up to `end`; `None` if no quota
/// applies. The grant is recorded.
///
/// # Errors
/// `QuotaExceeded`.
pub(crate) fn room(
    tx: &mut Tx<'_>,
    ctx: &mut Context<'_>,
    (file, inode): (FileId, &Inode),
    end: u64,
) -> Outcome<Option<u64>> {
    if ctx.quotas.is_empty() {
        return Ok(None);
    }
    let mut subjects = quota::share(tx, ctx.quotas, file, inode)?.subjects;
    subjects.retain(|subject| ctx.quotas.limits_bytes(*subject));
    if subjects.is_empty() {
        return Ok(None);
    }
    let (mut left, mut tightest) = (u128::MAX, None);
    for subject in &subjects {
        let Some(record) = quota::record(tx, *subject)? else { continue };
        let Some(limit) = record.limits.bytes else { continue };
        let taken = record.used_bytes + ctx.quotas.grants.by_others(*subject, file);
        let free = u128::from(limit).saturating_sub(taken);
        if free < left {
            (left, tightest) = (free, Some((*subject, limit)));
        }
    }
    let left = u64::try_from(left).unwrap_or(u64::MAX);
    // What others may write of the file already costs nothing more.
    let may = inode.size.saturating_add(left);
    let end = end.max(inode.size);
    let up_to = match tightest {
        _ if end <= may => end + ((may - end) / AHEAD_PART).min(MAX_AHEAD_BYTES),
        _ if end == inode.size || is_exempt(ctx) => end,
        Some((subject, limit)) => return Err(quota::exceeded(subject, &format!("{limit} bytes"))),
        None => end,
    };
    ctx.effects.room_limited = true;
    ctx.effects.room = Some(RoomNews { file, size: inode.size, subjects, up_to: Some(up_to) });
    Ok(Some(up_to))
}

/// Whether the caller is exempt from limits: the superuser, as on Linux (`CAP_SYS_RESOURCE`). Its
/// files count all the same.
pub(crate) fn is_exempt(ctx: &Context<'_>) -> bool {
    access::is_root(ctx.caller)
}
