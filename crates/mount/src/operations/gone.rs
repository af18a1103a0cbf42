//! Removed files that the kernel still has.
//!
//! To the cluster they do not exist any more. But a program with a directory open, or as its
//! current directory, may still list it, and finds it empty (`ENOENT` rather than `ESTALE`), even
//! if another mount has removed it; the kernel asks for its attributes first. And a program that
//! holds a file by `O_PATH` alone, or a pipe or a device, which the cluster is not told of, may ask
//! for its attributes. Changes of such a file are made in this mount's memory: no other mount can
//! find it.

use crate::open::access::now_ns;
use crate::translate::groupless;
use crate::weirfs::WeirFs;
use weir_client::Context;
use weir_fuse::{Errno, Reply, RequestContext};
use weir_types::{
    ACL_ACCESS, ACL_DEFAULT, Attr, Error, ErrorKind, FileId, FileKind, Result, Timestamp,
};
use weir_wire::meta::{SetAttrRequest, SetTime};

/// Attributes of a file.
pub(crate) enum Found {
    Now(Attr),
    /// Attributes at its removal: nothing newer is known.
    Last(Attr),
}

impl WeirFs {
    /// Present or last attributes of a file.
    pub(crate) fn attr_or_last(&self, by: &Context, file: FileId) -> Result<Found> {
        let found = now_or_last(self.client.getattr(by, file), || self.nodes.gone(file));
        self.is_told(&found);
        found
    }

    /// Changes attributes of a file, or of its remembered state. The kernel has checked the
    /// caller's permission.
    pub(crate) fn set_attr_or_last(&self, by: &Context, set: &SetAttrRequest) -> Result<Found> {
        let last = || match set.size {
            Some(_) => None,
            None => self.nodes.change_gone(set.file, |last| change(last, set)),
        };
        let found = now_or_last(self.client.setattr(by, set), last);
        self.is_told(&found);
        found
    }

    /// The reply to a new name for a file in a directory: one of them may be gone.
    pub(crate) fn of_link<T>(
        &self,
        ctx: &RequestContext<'_>,
        dir: FileId,
        answer: Result<T>,
    ) -> Reply<T> {
        let is_stale = |error: &Error| error.kind == ErrorKind::Stale;
        if answer.as_ref().is_err_and(is_stale) {
            let dir_is_gone =
                self.client.getattr(&groupless(ctx), dir).is_err_and(|e| is_stale(&e));
            // If the file is gone the kernel looks once more what has its name.
            if dir_is_gone || self.pins.tries_again(ctx.pid) {
                return Err(Errno::ENOENT);
            }
        }
        self.found(ctx, answer)
    }

    fn is_told(&self, found: &Result<Found>) {
        if let Ok(Found::Now(attr)) = found {
            self.nodes.is_told(attr);
        }
    }

    /// The reply to a change of a file. For a removed directory it is that of a local file system.
    /// A caller that came by a name looks it up again.
    pub(crate) fn of_node<T>(&self, file: FileId, answer: Result<T>) -> Reply<T> {
        match answer {
            Err(error) if error.kind == ErrorKind::Stale && self.nodes.is_directory(file) => {
                Err(Errno::ENOENT)
            }
            answer => Ok(answer?),
        }
    }

    /// The reply about extended attributes. For a removed file it is only known whether it had none
    /// of them.
    pub(crate) fn of_attributes<T>(
        &self,
        file: FileId,
        answer: Result<T>,
        had: impl FnOnce(&Attr) -> bool,
        none: Result<T>,
    ) -> Result<T> {
        match answer {
            Err(error) if error.kind == ErrorKind::Stale => match self.nodes.gone(file) {
                Some(last) if !had(&last) => none,
                _ => Err(error),
            },
            answer => answer,
        }
    }
}

/// The reply about names in a directory. If that was removed, by any mount, it is empty: the kernel
/// must not look for another one, since the caller may have this one open.
pub(crate) fn in_directory<T>(answer: Result<T>) -> Reply<T> {
    match answer {
        Err(error) if error.kind == ErrorKind::Stale => Err(Errno::ENOENT),
        answer => Ok(answer?),
    }
}

/// Whether a removed file may have had the attribute of that name. In a directory an access control
/// list counts as missing, because there is nothing left to do.
pub(crate) fn may_have_had(last: &Attr, name: &[u8]) -> bool {
    match name {
        ACL_ACCESS => last.extras.acl && last.kind != FileKind::Directory,
        ACL_DEFAULT => last.extras.default_acl,
        _ => last.extras.any,
    }
}

fn now_or_last(now: Result<Attr>, last: impl FnOnce() -> Option<Attr>) -> Result<Found> {
    match now {
        Err(error) if error.kind == ErrorKind::Stale => last().map(Found::Last).ok_or(error),
        now => now.map(Found::Now),
    }
}

fn change(last: &mut Attr, set: &SetAttrRequest) {
    let now = Timestamp(now_ns());
    let time = |time: Option<SetTime>, before| match time {
        None => before,
        Some(SetTime::Now) => now,
        Some(SetTime::At(at)) => at,
    };
    // It does not run as somebody else any more (of a directory the bits say other things).
    if (set.uid.is_some() || set.gid.is_some()) && last.kind != FileKind::Directory {
        let for_group = if last.mode & 0o010 != 0 { 0o2000 } else { 0 };
        last.mode &= !(0o4000 | for_group);
    }
    last.mode = set.mode.unwrap_or(last.mode);
    last.uid = set.uid.unwrap_or(last.uid);
    last.gid = set.gid.unwrap_or(last.gid);
    last.atime = time(set.atime, last.atime);
    last.mtime = time(set.mtime, last.mtime);
    last.ctime = now;
}
