//! Permissions: the rules of POSIX, with Linux's errors.

use crate::fault::Outcome;
use crate::schema::Inode;
use weir_types::{Caller, ErrorKind, FileKind};
use weir_wire::Rights;

/// Permission to read.
pub const READ: u16 = 4;
/// Permission to write, or to change the names in a directory.
pub const WRITE: u16 = 2;
/// Permission to look up names in a directory.
pub const SEARCH: u16 = 1;

/// Set user id on execution.
pub const SETUID: u16 = 0o4000;
/// Set group id on execution. In a setgid directory new files get its group.
pub const SETGID: u16 = 0o2000;
/// Sticky bit: only owners may remove names.
pub const STICKY: u16 = 0o1000;
/// All bits of a mode.
pub const MODE_BITS: u16 = 0o7777;
/// Bits of the file's group; the mask of an access control list.
const GROUP_BITS: u16 = 0o070;

/// Whether the caller is the superuser, who may do everything.
pub fn is_root(caller: &Caller) -> bool {
    caller.uid == 0
}

/// Whether the caller owns the file, or may act as if.
pub fn owns(caller: &Caller, inode: &Inode) -> bool {
    is_root(caller) || caller.uid == inode.uid
}

/// Whether the permission bits, or the access control list, give the caller all of `wanted`.
///
/// A list with an empty mask is ignored, as by Linux and so by the kernel of every mount. Its users
/// and groups are then judged by the bits for the file's group or for others.
pub fn allows(caller: &Caller, inode: &Inode, wanted: u16) -> bool {
    if is_root(caller) {
        return true;
    }
    if let Some(acl) = inode.acl.as_ref().filter(|_| inode.mode & GROUP_BITS != 0) {
        return acl.allows(caller, (inode.uid, inode.gid), wanted);
    }
    let class = if caller.uid == inode.uid {
        inode.mode >> 6
    } else if caller.in_group(inode.gid) {
        inode.mode >> 3
    } else {
        inode.mode
    };
    class & wanted == wanted
}

/// # Errors
/// `AccessDenied`.
pub fn require(caller: &Caller, inode: &Inode, wanted: u16) -> Outcome<()> {
    if allows(caller, inode, wanted) { Ok(()) } else { Err(ErrorKind::AccessDenied.into()) }
}

/// The permission bits that rights to data need.
pub fn bits_for(rights: Rights) -> u16 {
    let read = if rights.allow(Rights::READ) { READ } else { 0 };
    let write = if rights.allow(Rights::WRITE) { WRITE } else { 0 };
    read | write
}

/// Checks that the caller may remove or replace this name of a directory.
///
/// # Errors
/// `AccessDenied` without write and search permission, `NotPermitted` in a sticky directory where
/// the caller owns neither it nor the file.
pub fn require_removal(caller: &Caller, dir: &Inode, victim: &Inode) -> Outcome<()> {
    require(caller, dir, WRITE | SEARCH)?;
    let sticky = dir.mode & STICKY != 0;
    if sticky && !is_root(caller) && caller.uid != dir.uid && caller.uid != victim.uid {
        return Err(ErrorKind::NotPermitted.into());
    }
    Ok(())
}

/// Gives a new file its owner, group and mode (umask and default access control list are applied
/// later). In a setgid directory it gets the directory's group, and a new directory the bit too.
pub fn give_owner(caller: &Caller, parent: &Inode, mode: u16, inode: &mut Inode) {
    inode.uid = caller.uid;
    inode.gid = caller.gid;
    inode.mode = mode & MODE_BITS;
    if parent.mode & SETGID != 0 {
        inode.gid = parent.gid;
        if inode.kind == FileKind::Directory {
            inode.mode |= SETGID;
            return;
        }
    }
    // A program that runs as a group must have been made by a member of it.
    let foreign = !is_root(caller) && !caller.in_group(inode.gid);
    if inode.kind != FileKind::Directory && inode.mode & 0o010 != 0 && foreign {
        inode.mode &= !SETGID;
    }
}

/// The mode after a change of owner or contents by this caller: set-user-id and set-group-id bits
/// are cleared. Without group execute permission the latter bit is a mark for locking, which
/// members of the group keep (Linux since 6.2).
pub fn without_privilege(caller: &Caller, inode: &Inode) -> u16 {
    if inode.kind == FileKind::Directory {
        return inode.mode;
    }
    let foreign = !is_root(caller) && !caller.in_group(inode.gid);
    let setgid = if inode.mode & 0o010 != 0 || foreign { SETGID } else { 0 };
    inode.mode & !(SETUID | setgid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Body;
    use weir_types::{FileId, Timestamp};

    fn inode(uid: u32, gid: u32, mode: u16) -> Inode {
        let mut inode = Inode::new(FileKind::Fifo, FileId::ROOT, Timestamp(0), Body::Other);
        (inode.uid, inode.gid, inode.mode) = (uid, gid, mode);
        inode
    }

    fn caller(uid: u32, gid: u32, groups: &[u32]) -> Caller {
        Caller { uid, gid, groups: groups.to_vec() }
    }

    #[test]
    fn only_the_first_class_that_fits_counts() {
        let file = inode(10, 20, 0o047);
        assert!(!allows(&caller(10, 20, &[]), &file, READ), "the owner has no bits");
        assert!(allows(&caller(11, 20, &[]), &file, READ), "the group reads");
        assert!(!allows(&caller(11, 20, &[]), &file, WRITE));
        assert!(allows(&caller(11, 1, &[5, 20]), &file, READ), "by a supplementary group");
        assert!(!allows(&caller(11, 1, &[5, 20]), &file, WRITE));
        assert!(allows(&caller(12, 1, &[]), &file, READ | WRITE | SEARCH), "others do all");
        assert!(allows(&Caller::ROOT, &inode(10, 20, 0), READ | WRITE));
    }

    #[test]
    fn setgid_is_inherited_by_directories_and_kept_from_strangers() {
        let parent = inode(0, 50, SETGID | 0o777);
        let mut file = inode(0, 0, 0);
        give_owner(&caller(10, 20, &[]), &parent, SETGID | 0o775, &mut file);
        assert_eq!((file.uid, file.gid, file.mode), (10, 50, 0o775));
        give_owner(&caller(10, 20, &[50]), &parent, SETGID | 0o775, &mut file);
        assert_eq!(file.mode, SETGID | 0o775, "a member of the group keeps it");
    }

    #[test]
    fn privilege_goes_with_a_change_of_owner() {
        let member = caller(1, 5, &[1]);
        assert_eq!(without_privilege(&member, &inode(1, 1, 0o6755)), 0o755);
        let marked = inode(1, 1, 0o6745);
        assert_eq!(without_privilege(&member, &marked), 0o2745, "a mark for locking stays");
        assert_eq!(without_privilege(&caller(1, 5, &[]), &marked), 0o745);
    }
}
