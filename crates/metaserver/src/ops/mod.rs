//! The operations: one file for each, pure functions over a transaction.
//!
//! No I/O, no clock, no randomness: all that an operation may know beyond its
//! request and the store is in its [`Context`]. What must happen in memory once
//! the transaction stands is returned there too ([`Effects`]): a transaction
//! that meets a conflict is run again, and must have changed nothing.

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
pub mod readdir;
pub mod readlink;
pub mod reassert;
pub mod recovered;
pub mod remove_xattr;
pub mod rename;
pub mod rmdir;
pub mod room;
pub mod root;
pub mod scope;
pub mod set_layout;
pub mod set_xattr;
pub mod setattr;
pub mod statfs;
pub mod symlink;
pub mod truncate_done;
mod truncation;
pub mod unlink;
mod xattrs;

use crate::open_files::OpenFiles;
use crate::quota::{Quotas, RoomNews};
use crate::schema::ServerRecord;
use crate::signing::{Grant, Signer};
use std::collections::{BTreeMap, BTreeSet};
use weir_layout::{Pairs, TargetInfo};
use weir_metastore::TxError;
use weir_types::{
    Caller, Column, Error, ErrorKind, FileId, FsUsage, LayoutSpec, Restrictions, Segment, ServerId,
    SessionId, TargetId, Timestamp,
};
use weir_wire::meta::TargetLoad;
use weir_wire::quota::QuotaSubject;
use weir_wire::{Rights, SignedCapability};

/// Why an operation gave no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// It may not be done: the client is told so, and told the same again if
    /// it repeats the request.
    #[error(transparent)]
    Refused(Error),
    /// The engine could not do it: nothing is known, nothing is kept.
    #[error(transparent)]
    Engine(TxError),
}

impl From<ErrorKind> for Fault {
    fn from(kind: ErrorKind) -> Self {
        Fault::Refused(kind.into())
    }
}
impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Fault::Refused(error)
    }
}
impl From<TxError> for Fault {
    fn from(error: TxError) -> Self {
        match error {
            // The operation asks for more than any transaction holds: it would
            // the next time too.
            TxError::TooManyOperations | TxError::TooLarge => Fault::Refused(error.into()),
            other => Fault::Engine(other),
        }
    }
}

/// What an operation comes to.
pub type Outcome<T> = Result<T, Fault>;

/// What happens in memory once the transaction of an operation stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// [`Context::fresh`] was used.
    pub fresh_used: bool,
    /// The session has opened a file.
    pub opened: Option<(FileId, Rights)>,
    /// The session begins to say what it has open.
    pub reasserts_anew: bool,
    /// Files that the session says it has open, and what it may do with them.
    pub reasserted: Vec<(FileId, Rights)>,
    /// Files that the session has closed.
    pub closed: Vec<FileId>,
    /// Those among them to which it may have written what comes yet.
    pub unconfirmed: Vec<FileId>,
    /// A file lost its last name and may be open.
    pub orphaned: Option<FileId>,
    /// A file that had no name has one.
    pub named: Option<FileId>,
    /// A dead list has been queued.
    pub dead_list: bool,
    /// A file has several copies, as none had before.
    pub mirrored: bool,
    /// Targets that hold first copies of a new file in two groups, each as often as it
    /// does.
    pub primaries: Vec<TargetId>,
    /// Columns that were placed.
    pub placed: Vec<Column>,
    /// Other copies of a file are wished.
    pub copies: Option<FileId>,
    /// Copies of a file are not where they should be, for want of targets.
    pub makeshift: bool,
    /// Copies of a column have been put on one server.
    pub on_one_server: bool,
    /// Targets that have been given copies, and are not online.
    pub given_while_away: BTreeSet<TargetId>,
    /// An administrator has accepted that so many columns of a file are lost.
    pub losses_accepted: Option<(FileId, u64)>,
    /// Objects will be changed by what the reply says: it must not be taken
    /// back by a power cut then, nor its numbers be given again.
    pub objects_follow: bool,
    /// The size that the reply tells is not known: see
    /// [`weir_wire::lease::SIZE_UNKNOWN`].
    pub size_unknown: bool,
    /// A quota limits the file that the reply is about: see [`weir_wire::lease::ROOM_LIMITED`].
    pub room_limited: bool,
    /// What the session may write of it.
    pub(crate) room: Option<RoomNews>,
    /// Quotas that went with their directories.
    pub quotas_gone: Vec<QuotaSubject>,
}

/// What is known of the cluster.
#[derive(Clone, Debug, Default)]
pub struct ClusterView {
    /// Every target, in target order.
    pub targets: Vec<TargetInfo>,
    /// Space of those that are online.
    pub usage: FsUsage,
    /// A target that is out of service, and why.
    pub trouble: Option<String>,
    /// There are, or were, files with several copies.
    pub mirrored: bool,
    /// How fast targets are that are online, as far as it is known.
    pub loads: BTreeMap<TargetId, TargetLoad>,
    /// Which targets were given copies of one column of late.
    pub pairs: Pairs,
}

impl ClusterView {
    /// A target; `None`: it is not, or no longer, in the cluster.
    pub(crate) fn target(&self, target: TargetId) -> Option<&TargetInfo> {
        let at = self.targets.binary_search_by_key(&target, |info| info.target).ok()?;
        self.targets.get(at)
    }
}

/// Says of which files the attributes in the store may be out of date.
pub trait Unsettled {
    /// Whether somebody else may write to a file, or a change of it is waiting:
    /// a listing leaves its attributes out.
    fn is_unsettled(&self, session: SessionId, file: FileId) -> bool;
}

/// All that an operation may know beyond its request and the store.
pub struct Context<'a> {
    /// The time.
    pub now: Timestamp,
    /// In whose name.
    pub caller: &'a Caller,
    /// What its client is held to.
    pub limits: Restrictions,
    /// The session.
    pub session: SessionId,
    /// The machine of its client; empty: not known.
    pub host: &'a str,
    /// An id that no file has had.
    pub fresh: FileId,
    /// Where new data can go.
    pub cluster: &'a ClusterView,
    /// The data servers.
    pub servers: &'a BTreeMap<ServerId, ServerRecord>,
    /// What is open.
    pub opens: &'a OpenFiles,
    /// Makes capabilities.
    pub signer: &'a Signer,
    /// Who may have how much.
    pub quotas: &'a Quotas,
    /// What other clients keep.
    pub leases: &'a dyn Unsettled,
    /// The layout where no directory says otherwise.
    pub default_layout: &'a LayoutSpec,
    /// What happens if this is committed.
    pub effects: Effects,
}

impl Context<'_> {
    /// Milliseconds since 1970.
    pub fn now_unix_ms(&self) -> u64 {
        u64::try_from(self.now.0 / 1_000_000).unwrap_or(0)
    }

    /// A capability for the targets of these segments.
    fn sign(
        &self,
        file: FileId,
        version: u64,
        rights: Rights,
        segments: &[Segment],
    ) -> SignedCapability {
        let now_unix_ms = self.now_unix_ms();
        let grant = Grant { file, version, session: self.session, rights, now_unix_ms };
        self.signer.sign(grant, segments)
    }

    /// Whether the session has the file open with these rights: what an open
    /// descriptor allows outlives the permissions that it was opened under.
    fn has_open(&self, file: FileId, rights: Rights) -> bool {
        self.opens.rights(self.session, file).is_some_and(|have| have.allow(rights))
    }
}
