//! Voids the capabilities for a file when its owner, permissions or access control list let anybody
//! do less with its data than before.

use crate::ops::{Context, Outcome};
use crate::schema::Inode;
use weir_metastore::Tx;
use weir_types::{FileId, FileKind};

/// Bits of the mode that permit reading or writing.
const DATA_BITS: u16 = 0o666;

/// What says who may do what with a file's data. Without an access control list.
#[derive(Clone, Copy)]
pub(crate) struct Standing {
    mode: u16,
    uid: u32,
    gid: u32,
    has_acl: bool,
}

impl Standing {
    pub(crate) fn of(inode: &Inode) -> Self {
        let Inode { mode, uid, gid, has_acl, .. } = *inode;
        Self { mode: mode & DATA_BITS, uid, gid, has_acl }
    }

    fn owner(self) -> u16 {
        self.mode >> 6
    }

    fn group(self) -> u16 {
        self.mode >> 3 & 7
    }

    fn others(self) -> u16 {
        self.mode & 7
    }
}

/// Whether a change may let somebody other than the superuser do less with the data. When files are
/// copied by the superuser, with their owners, it mostly takes nothing away.
pub(crate) fn takes_rights(before: Standing, after: Standing) -> bool {
    let moves = (before.uid, before.gid) != (after.uid, after.gid);
    if before.mode & !after.mode != 0 || moves && (before.has_acl || after.has_acl) {
        return true;
    }
    let fewer = |had: u16, has: u16| had & !has != 0;
    // In a class that they leave or enter, people may be of any other class before and after.
    let of_owner = before.uid != after.uid
        && (before.uid != 0 && fewer(before.owner(), after.group() & after.others())
            || after.uid != 0 && fewer(before.group() | before.others(), after.owner()));
    let of_group = before.gid != after.gid
        && (fewer(before.group(), after.others()) || fewer(before.others(), after.group()));
    of_owner || of_group
}

/// Voids the capabilities. A session that has the file open may get new ones: an open descriptor
/// outlives permissions.
pub(crate) fn run(
    tx: &mut Tx<'_>,
    ctx: &mut Context<'_>,
    (file, inode): (FileId, &Inode),
) -> Outcome<()> {
    if inode.kind == FileKind::File {
        ctx.effects.marked_until_ms = ctx.revoked.mark(tx, ctx.now_unix_ms())?;
        ctx.effects.revoked = Some(file);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::access;
    use crate::schema::Body;
    use weir_types::{Caller, Timestamp};

    /// All that can be said with the bits to read, two users and two groups, besides the superuser.
    fn all() -> Vec<(Standing, Inode)> {
        let bits = |it: u16| (it & 4) << 6 | (it & 2) << 4 | (it & 1) << 2;
        let mut all = Vec::new();
        let owners = || (0..3).flat_map(|uid| (0..3).map(move |gid| (uid, gid)));
        for (mode, (uid, gid)) in (0..8).flat_map(|it| owners().map(move |of| (bits(it), of))) {
            let new = Inode::new(FileKind::File, FileId::ROOT, Timestamp(0), Body::Other);
            let inode = Inode { mode, uid, gid, ..new };
            all.push((Standing::of(&inode), inode));
        }
        all
    }

    #[test]
    fn whoever_loses_a_right_is_noticed() {
        let all = all();
        let mut kept = 0;
        for (before, old) in &all {
            for (after, new) in &all {
                let loses = |(uid, gid): (u32, u32)| {
                    let caller = Caller { uid, gid, groups: Vec::new() };
                    access::allows(&caller, old, access::READ)
                        && !access::allows(&caller, new, access::READ)
                };
                let somebody = (0..4).flat_map(|u| (0..4).map(move |g| (u, g))).any(loses);
                let noticed = takes_rights(*before, *after);
                assert!(noticed || !somebody, "{:?} to {:?}", old, new);
                kept += u32::from(!noticed);
            }
        }
        assert!(kept > 1000, "{kept}");
    }

    #[test]
    fn a_file_that_the_superuser_gives_away_takes_nothing() {
        let of = |mode, uid, gid| Standing { mode, uid, gid, has_acl: false };
        assert!(!takes_rights(of(0o600, 0, 0), of(0o600, 7, 7)));
        assert!(!takes_rights(of(0o600, 7, 7), of(0o644, 7, 7)));
        assert!(takes_rights(of(0o600, 7, 7), of(0o600, 8, 7)));
        assert!(takes_rights(Standing { has_acl: true, ..of(0o600, 0, 0) }, of(0o600, 7, 7)));
    }
}
