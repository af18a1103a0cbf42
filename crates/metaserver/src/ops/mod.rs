//! The operations: one file for each, pure functions over a transaction.
//!
//! No I/O, no clock, no randomness: everything besides the request and the store comes from the
//! [`Context`]. Changes in memory after the commit are returned there too ([`Effects`]), because a
//! transaction with a conflict is run again, and must have changed nothing.

pub mod accept_losses;
pub mod access;
pub mod accessed;
mod acls;
pub mod acquire;
pub mod close;
pub mod collect;
pub(crate) mod columns;
pub mod commit_size;
pub(crate) mod confine;
pub mod create;
mod deletion;
pub mod dispatch;
pub mod extend;
pub mod get_default_layout;
pub mod get_layout;
pub mod get_xattr;
pub mod getattr;
pub(crate) mod hints;
pub(crate) mod inodes;
mod layouts;
pub mod link;
pub(crate) mod links;
pub(crate) mod list_copies;
pub mod list_xattr;
pub mod lookup;
pub mod mkdir;
pub mod move_copies;
mod names;
pub mod open;
pub mod parities;
pub(crate) mod quotas;
pub mod readdir;
pub mod readlink;
pub mod reassert;
pub mod recovered;
pub mod remove_xattr;
pub mod rename;
mod revoke;
pub mod rmdir;
pub mod room;
pub mod root;
pub mod scope;
pub mod set_layout;
pub mod set_xattr;
pub mod setattr;
pub mod statfs;
pub mod subject;
pub mod symlink;
pub mod truncate_done;
mod truncation;
pub mod unlink;
mod xattrs;

use crate::open_files::OpenFiles;
use crate::quota::{Quotas, RoomNews};
use crate::revoked::Revoked;
use crate::schema::{Inode, ServerRecord};
use crate::signing::{Grant, Signer};
use std::collections::{BTreeMap, BTreeSet};
use weir_layout::{Pairs, TargetInfo};
use weir_types::{
    Attr, Caller, Column, FileId, FsUsage, LayoutSpec, Restrictions, Segment, ServerId, SessionId,
    TargetId, Timestamp,
};
use weir_wire::meta::TargetLoad;
use weir_wire::quota::QuotaSubject;
use weir_wire::{Rights, SignedCapability};

pub use crate::fault::{Fault, Outcome};

/// Changes in memory after the transaction of an operation is committed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// Whether [`Context::fresh`] was used.
    pub fresh_used: bool,
    /// A file that the session has opened.
    pub opened: Option<(FileId, Rights)>,
    /// Whether the session begins to report its open files.
    pub reasserts_anew: bool,
    /// Files that the session reports as open, and its rights.
    pub reasserted: Vec<(FileId, Rights)>,
    /// Files that the session has closed.
    pub closed: Vec<FileId>,
    /// Those among them with writes that may still arrive.
    pub unconfirmed: Vec<FileId>,
    /// A file that lost its last name and may be open.
    pub orphaned: Option<FileId>,
    /// A file without names that has got one.
    pub named: Option<FileId>,
    /// Whether a dead list was queued.
    pub dead_list: bool,
    /// Whether a file has several copies, for the first time.
    pub mirrored: bool,
    /// Targets with first copies of a new file in two groups, once for each copy.
    pub primaries: Vec<TargetId>,
    /// Columns that were placed.
    pub placed: Vec<Column>,
    /// A file of which other copies are wanted.
    pub copies: Option<FileId>,
    /// A file that may get parities when nobody writes it any more.
    pub to_encode: Option<FileId>,
    /// Whether copies of a file are not where they should be, for lack of targets.
    pub makeshift: bool,
    /// Whether copies of a column were placed on one server.
    pub on_one_server: bool,
    /// Targets that got copies while not online.
    pub given_while_away: BTreeSet<TargetId>,
    /// A file, and the number of its columns whose loss an administrator has accepted.
    pub losses_accepted: Option<(FileId, u64)>,
    /// Whether objects will be changed because of the reply: then a power cut must not undo it, nor
    /// its numbers be used again.
    pub objects_follow: bool,
    /// Whether the size in the reply is unknown: see [`weir_wire::lease::SIZE_UNKNOWN`].
    pub size_unknown: bool,
    /// Whether a quota applies to the file in the reply: see [`weir_wire::lease::ROOM_LIMITED`].
    pub room_limited: bool,
    /// How far the session may write it.
    pub(crate) room: Option<RoomNews>,
    /// Quotas that were removed with their directories.
    pub quotas_gone: Vec<QuotaSubject>,
    /// A file whose capabilities are void.
    pub revoked: Option<FileId>,
    /// Until when the store says from now on that there may be revocations.
    pub marked_until_ms: Option<u64>,
    /// Attributes of files and directories that were changed and are not in the reply.
    pub also: Vec<Attr>,
}

/// The cluster, for operations.
#[derive(Clone, Debug, Default)]
pub struct ClusterView {
    /// All targets, in target order.
    pub targets: Vec<TargetInfo>,
    /// Space of the online targets.
    pub usage: FsUsage,
    /// A target that is out of service, and the reason.
    pub trouble: Option<String>,
    /// Whether there are, or were, files with several copies.
    pub mirrored: bool,
    /// Speeds of online targets, as far as they are known.
    pub loads: BTreeMap<TargetId, TargetLoad>,
    /// Pairs of targets that got copies of one column lately.
    pub pairs: Pairs,
}

impl ClusterView {
    /// A target; `None` if it is not in the cluster (any more).
    pub(crate) fn target(&self, target: TargetId) -> Option<&TargetInfo> {
        let at = self.targets.binary_search_by_key(&target, |info| info.target).ok()?;
        self.targets.get(at)
    }
}

/// Says for which files the attributes in the store may be out of date.
pub trait Unsettled {
    /// Whether another session may write to a file, or a change of it is waiting. A listing then
    /// leaves its attributes out.
    fn is_unsettled(&self, session: SessionId, file: FileId) -> bool;
}

/// Everything that an operation may know besides its request and the store.
pub struct Context<'a> {
    /// The present time.
    pub now: Timestamp,
    /// The caller.
    pub caller: &'a Caller,
    /// Restrictions of its client.
    pub limits: Restrictions,
    /// The session.
    pub session: SessionId,
    /// Host of its client; empty if unknown.
    pub host: &'a str,
    /// An id that no file has had.
    pub fresh: FileId,
    /// Targets for new data.
    pub cluster: &'a ClusterView,
    /// The data servers.
    pub servers: &'a BTreeMap<ServerId, ServerRecord>,
    /// Open files.
    pub opens: &'a OpenFiles,
    /// Signs capabilities.
    pub signer: &'a Signer,
    /// What was revoked.
    pub revoked: &'a Revoked,
    /// Quotas.
    pub quotas: &'a Quotas,
    /// What other clients hold.
    pub leases: &'a dyn Unsettled,
    /// Layout of files whose directories have no default layout.
    pub default_layout: &'a LayoutSpec,
    /// Changes in memory after the commit.
    pub effects: Effects,
}

impl Context<'_> {
    /// Records the attributes of a file or directory that is changed and is not in the reply.
    fn changes(&mut self, file: FileId, inode: &Inode) {
        if inode.nlink > 0 && !inode.size_unknown() {
            self.effects.also.push(inode.attr(file));
        }
    }

    /// Milliseconds since 1970.
    pub fn now_unix_ms(&self) -> u64 {
        u64::try_from(self.now.0 / 1_000_000).unwrap_or(0)
    }

    /// A capability for the targets of these segments.
    fn sign(&self, file: FileId, rights: Rights, segments: &[Segment]) -> SignedCapability {
        let now_unix_ms = self.now_unix_ms();
        let (session, user) = (self.session, self.caller.uid);
        let grant = Grant { file, session, user, rights, now_unix_ms };
        self.signer.sign(grant, segments)
    }

    /// Whether the session has the file open with these rights: an open descriptor's rights outlive
    /// the permissions that it was opened under.
    pub(crate) fn has_open(&self, file: FileId, rights: Rights) -> bool {
        self.opens.rights(self.session, file).is_some_and(|have| have.allow(rights))
    }
}
