//! Which calls depend on the groups of their caller.
//!
//! The metadata server judges a request by the groups in it, and they have to be read from `/proc`
//! each time, since a program may change them. So they are left out where the cached attributes of
//! a file show that they do not matter. If the attributes have just changed and the server refuses,
//! the request is sent again with the groups.

use crate::translate::{context, groupless};
use crate::weirfs::WeirFs;
use weir_client::Context;
use weir_fuse::RequestContext;
use weir_types::{Attr, ErrorKind, FileId, Result};
use weir_wire::capability::Rights;
use weir_wire::meta::SetAttrRequest;

/// Permission bits of one class.
pub(crate) const READ: u16 = 0o4;
pub(crate) const WRITE: u16 = 0o2;
pub(crate) const SEARCH: u16 = 0o1;
/// Bits for changing the names in a directory.
pub(crate) const CHANGE: u16 = WRITE | SEARCH;

/// Bits for opening with these rights.
pub(crate) fn bits_of(rights: Rights) -> u16 {
    let read = if rights.allow(Rights::READ) { READ } else { 0 };
    let write = if rights.allow(Rights::WRITE) { WRITE } else { 0 };
    read | write
}

impl WeirFs {
    /// Makes a call that needs these permission bits on a file or directory.
    pub(crate) fn judged<T>(
        &self,
        ctx: &RequestContext<'_>,
        file: FileId,
        wanted: u16,
        call: impl Fn(&Context) -> Result<T>,
    ) -> Result<T> {
        self.judged_by_all(ctx, &[file], wanted, call)
    }

    /// As [`Self::judged`], for several files.
    pub(crate) fn judged_by_all<T>(
        &self,
        ctx: &RequestContext<'_>,
        files: &[FileId],
        wanted: u16,
        call: impl Fn(&Context) -> Result<T>,
    ) -> Result<T> {
        let is_clear = |file: &FileId| {
            let known = self.client.known_attr(*file);
            known.is_some_and(|attr| !groups_decide(&attr, ctx.uid, wanted))
        };
        if ctx.uid != 0 && (wanted == 0 || files.iter().all(is_clear)) {
            let refused = |kind| matches!(kind, ErrorKind::AccessDenied | ErrorKind::NotPermitted);
            match call(&groupless(ctx)) {
                Err(error) if refused(error.kind) => {}
                done => return done,
            }
        }
        call(&context(ctx))
    }
}

/// Whether the result of a change of attributes may depend on membership in the file's group,
/// beyond write permission: a change of owner clears setgid, or keeps it, and so does a change of
/// size where the file has it. `known`: what is known of the file.
pub(crate) fn groups_may_matter(set: &SetAttrRequest, known: Option<&Attr>) -> bool {
    let is_setgid = |mode: u16| u32::from(mode) & libc::S_ISGID != 0;
    let may_lose = set.size.is_some() && known.is_none_or(|attr| is_setgid(attr.mode));
    let is_plain =
        [set.mode.is_some(), set.atime.is_some(), set.mtime.is_some(), set.size.is_some()];
    set.mode.is_some_and(is_setgid)
        || may_lose
        || !is_plain.contains(&true)
        || set.uid.is_some()
        || set.gid.is_some()
}

/// Whether a user's groups decide if the user gets all of `wanted`.
fn groups_decide(attr: &Attr, uid: u32, wanted: u16) -> bool {
    if attr.uid == uid {
        return false;
    }
    // Members of the group and others have it alike, and no list says more.
    let (group, others) = (attr.mode >> 3, attr.mode);
    attr.extras.acl || group & others & wanted != wanted
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_types::{Extras, FileKind, Generation, Timestamp};

    fn attr(uid: u32, mode: u16, acl: bool) -> Attr {
        Attr {
            file: FileId(7),
            kind: FileKind::File,
            mode,
            nlink: 1,
            uid,
            gid: 50,
            rdev: 0,
            size: 1,
            atime: Timestamp(0),
            mtime: Timestamp(0),
            ctime: Timestamp(0),
            change: 1,
            generation: Generation(1),
            preferred_io_bytes: 4096,
            birth: None,
            extras: Extras { any: acl, acl, default_acl: false },
            sparse: false,
        }
    }

    #[test]
    fn groups_decide_for_others_than_the_owner_where_classes_differ_or_a_list_is_there() {
        let decide = |uid, mode, acl, wanted| groups_decide(&attr(1000, mode, acl), uid, wanted);
        assert!(!decide(1000, 0o000, true, READ), "the owner's entry comes first");
        assert!(!decide(1001, 0o644, false, READ), "group and others may alike");
        assert!(!decide(1001, 0o755, false, READ | SEARCH));
        assert!(decide(1001, 0o640, false, READ) && decide(1001, 0o604, false, READ));
        assert!(decide(1001, 0o600, false, READ), "by a capability of the key, perhaps");
        assert!(decide(1001, 0o664, false, WRITE) && decide(1001, 0o644, true, READ));
    }

    #[test]
    fn groups_may_matter_for_a_size_only_where_it_may_take_setgid() {
        let set = SetAttrRequest { size: Some(0), ..weir_client::set_nothing(FileId(7)) };
        assert!(!groups_may_matter(&set, Some(&attr(1000, 0o644, false))));
        assert!(groups_may_matter(&set, Some(&attr(1000, 0o2755, false))));
        assert!(groups_may_matter(&set, None));
        let set = SetAttrRequest { gid: Some(50), ..set };
        assert!(groups_may_matter(&set, Some(&attr(1000, 0o644, false))));
    }
}
