//! The operations, each with its request and reply.

use weir_types::{Decode, Encode};

macro_rules! ops {
    ($($(#[$meta:meta])* $name:ident = $code:literal, $label:literal;)*) => {
        /// An operation of the protocol.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u16)]
        pub enum Op { $($(#[$meta])* $name = $code,)* }

        impl Op {
            /// Every operation.
            pub const ALL: &'static [Op] = &[$(Op::$name,)*];

            /// The operation with this code.
            pub fn from_code(code: u16) -> Option<Self> {
                match code { $($code => Some(Op::$name),)* _ => None }
            }

            /// The name in counters and logs.
            pub fn label(self) -> &'static str {
                match self { $(Op::$name => $label,)* }
            }

            /// The index in [`Op::ALL`], for tables of counters.
            pub fn index(self) -> usize {
                Op::ALL.iter().position(|op| *op == self).unwrap_or(0)
            }
        }
    };
}

impl Op {
    /// Whether repeating the operation would have another effect than doing it once. Such a change
    /// of the namespace carries a number, so that it is done once.
    pub fn is_for_once(self) -> bool {
        matches!(
            self,
            Op::SetAttr
                | Op::Create
                | Op::Mkdir
                | Op::Unlink
                | Op::Rmdir
                | Op::Rename
                | Op::Link
                | Op::Symlink
                | Op::SetXattr
                | Op::RemoveXattr
                | Op::SetLayout
        )
    }
}

ops! {
    /// Opens a connection.
    Hello = 0x001, "hello";
    /// The server authenticates and challenges the client.
    Challenge = 0x002, "challenge";
    /// The client authenticates.
    Proof = 0x003, "proof";
    /// Keeps a session alive; measures the round trip.
    Ping = 0x010, "ping";
    /// Counters and state of a server.
    Status = 0x011, "status";
    /// Load of a target, and progress of its readers.
    Load = 0x012, "load";
    /// A page of the processes of jobs that read from a target.
    ListReaders = 0x013, "list_readers";
    /// Reads regions of an object.
    Read = 0x100, "read";
    /// Writes regions of an object.
    Write = 0x101, "write";
    /// Makes objects durable.
    Sync = 0x102, "sync";
    /// Sets the length of an object and fences older writes.
    Truncate = 0x103, "truncate";
    /// Length and generation of an object.
    StatObject = 0x104, "stat_object";
    /// A page of the objects of a target (administrators).
    ListObjects = 0x105, "list_objects";
    /// Verifies some of the objects of a target (administrators).
    Scrub = 0x106, "scrub";
    /// Removes objects that no file has (administrators).
    RemoveObjects = 0x107, "remove_objects";
    /// Punches a hole in an object.
    Punch = 0x108, "punch";
    /// Preallocates disk space for a range of an object.
    Allocate = 0x109, "allocate";
    /// Finds data or a hole in an object.
    Seek = 0x10a, "seek";
    /// Fences older writes to an object and asks for its length.
    Fence = 0x10b, "fence";
    /// Copies bytes of one object to another, without the client.
    Copy = 0x10c, "copy";
    /// Notes what a copy lacks (data servers).
    NoteGap = 0x10d, "note_gap";
    /// Gives a copy the length of another (data servers).
    Align = 0x10e, "align";
    /// Has rotted blocks of a copy replaced by the copy that orders (data servers).
    Repair = 0x10f, "repair";
    /// Stages the bytes of a write at a copy.
    Stage = 0x110, "stage";
    /// Turns the connection into a tunnel to the server of another copy.
    Forward = 0x111, "forward";
    /// A page of the bytes that copies on a target do not serve (administrators).
    ListLacking = 0x118, "list_lacking";
    /// Makes a copy serve its own bytes where newer ones are lost (administrators).
    AcceptLoss = 0x119, "accept_loss";
    /// A page of the audit records of a target (administrators).
    ListAudit = 0x11a, "list_audit";
    /// The cluster map.
    GetMap = 0x200, "get_map";
    /// Tickets for data servers.
    GetTickets = 0x201, "get_tickets";
    /// Finds a name.
    Lookup = 0x210, "lookup";
    /// Attributes of a file.
    GetAttr = 0x211, "getattr";
    /// Changes attributes.
    SetAttr = 0x212, "setattr";
    /// Makes a file (and opens it) or a special file.
    Create = 0x213, "create";
    /// Makes a directory.
    Mkdir = 0x214, "mkdir";
    /// Removes a name.
    Unlink = 0x215, "unlink";
    /// Removes a directory.
    Rmdir = 0x216, "rmdir";
    /// Moves a name.
    Rename = 0x217, "rename";
    /// Gives a file another name.
    Link = 0x218, "link";
    /// Makes a symbolic link.
    Symlink = 0x219, "symlink";
    /// Reads a symbolic link.
    Readlink = 0x21a, "readlink";
    /// Lists a directory.
    Readdir = 0x21b, "readdir";
    /// Reads an extended attribute.
    GetXattr = 0x21c, "getxattr";
    /// Sets an extended attribute.
    SetXattr = 0x21d, "setxattr";
    /// Lists extended attributes.
    ListXattr = 0x21e, "listxattr";
    /// Removes an extended attribute.
    RemoveXattr = 0x21f, "removexattr";
    /// Space of the file system.
    Statfs = 0x220, "statfs";
    /// Layout and capability of a file.
    Open = 0x221, "open";
    /// Says that files are no longer open.
    Close = 0x222, "close";
    /// Reports open files after a reconnect.
    Reassert = 0x223, "reassert";
    /// More segments of a layout.
    GetLayout = 0x224, "get_layout";
    /// Grants segments ahead of a writer.
    Extend = 0x225, "extend";
    /// Records size and time after writes.
    CommitSize = 0x226, "commit_size";
    /// Reports that a truncation has reached the objects.
    TruncateDone = 0x227, "truncate_done";
    /// Default layout of a directory, or layout of an empty file.
    SetLayout = 0x228, "set_layout";
    /// Default layout of a directory.
    GetDefaultLayout = 0x229, "get_default_layout";
    /// Makes all acknowledged metadata changes durable.
    SyncMeta = 0x22a, "sync_meta";
    /// Asks how far a file may grow.
    Room = 0x22b, "room";
    /// Reports times of reads.
    Accessed = 0x22c, "accessed";
    /// Waits for events of the session.
    PollEvents = 0x230, "poll_events";
    /// Acknowledges events.
    AckEvents = 0x231, "ack_events";
    /// Asks for a lease on a range of a file.
    Acquire = 0x232, "acquire";
    /// Reports that the fence against a dead writer has reached the objects.
    Recovered = 0x233, "recovered";
    /// Ends a session in good order.
    EndSession = 0x234, "end_session";
    /// Locks or unlocks bytes of a file for a program.
    SetLock = 0x238, "set_lock";
    /// Asks for a conflicting lock.
    TestLock = 0x239, "test_lock";
    /// Cancels a waiting lock request.
    CancelLock = 0x23a, "cancel_lock";
    /// Reports held locks after a reconnect.
    ReassertLocks = 0x23b, "reassert_locks";
    /// A capability for all objects (administrators).
    AdminCapability = 0x240, "admin_capability";
    /// How many sessions have files open (administrators).
    CountOpens = 0x241, "count_opens";
    /// A page of a snapshot of all metadata (administrators).
    ExportMeta = 0x242, "export_meta";
    /// Compares stored metadata with its checksums (administrators).
    VerifyMeta = 0x243, "verify_meta";
    /// Sets what a client may do (administrators).
    SetClient = 0x244, "set_client";
    /// A page of the recorded clients (administrators).
    ListClients = 0x245, "list_clients";
    /// A page of the sessions (administrators).
    ListSessions = 0x246, "list_sessions";
    /// A page of the locks and leases that sessions hold (administrators).
    ListHolds = 0x247, "list_holds";
    /// A page of the state of targets.
    ListTargets = 0x248, "list_targets";
    /// Sets whether a target is drained (administrators).
    SetTarget = 0x249, "set_target";
    /// Takes a target out of the cluster (administrators).
    RemoveTarget = 0x24a, "remove_target";
    /// Takes a data server without targets out of the cluster (administrators).
    RemoveServer = 0x24b, "remove_server";
    /// Balances the used space of targets.
    Rebalance = 0x24c, "rebalance";
    /// Gives new columns to a file whose columns have lost all copies (administrators).
    AcceptLosses = 0x24d, "accept_losses";
    /// Free ids for a new data server and a new target (administrators).
    FreeNumbers = 0x24e, "free_numbers";
    /// Number of files that have copies on some targets (administrators).
    CountCopies = 0x24f, "count_copies";
    /// Sets, removes or recounts a quota (administrators).
    SetQuota = 0x250, "set_quota";
    /// A page of all quotas, or the quotas of the caller.
    ListQuotas = 0x251, "list_quotas";
    /// Makes new working keys (administrators).
    RotateKeys = 0x252, "rotate_keys";
    /// A page of the audit records of the metadata server (administrators).
    ListMetaAudit = 0x253, "list_meta_audit";
    /// Registers a data server.
    Register = 0x300, "register";
    /// A data server reports and gets its instructions.
    Heartbeat = 0x301, "heartbeat";
    /// Address of another data server, and a ticket for it.
    FindPeer = 0x302, "find_peer";
    /// Locations of the copies of columns.
    FindCopies = 0x303, "find_copies";
    /// A page of the copies that a target should have of some files.
    ListCopies = 0x304, "list_copies";
}

/// A request message and its reply.
pub trait Request: Encode + Decode {
    /// The operation.
    const OP: Op;
    /// The reply on success. A failure is a [`weir_types::Error`].
    type Reply: Encode + Decode;
}

/// Declares request structs with their codec and [`Request`].
macro_rules! requests {
    ($($(#[$meta:meta])* $name:ident ($op:ident) -> $reply:ty {
        $($(#[$fmeta:meta])* $field:ident : $ty:ty),* $(,)?
    })*) => {$(
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name { $($(#[$fmeta])* pub $field: $ty,)* }
        weir_types::codec_struct!($name { $($field),* });
        impl $crate::message::Request for $name {
            const OP: $crate::message::Op = $crate::message::Op::$op;
            type Reply = $reply;
        }
    )*};
}
pub(crate) use requests;

/// Declares other message structs with their codec.
macro_rules! records {
    ($($(#[$meta:meta])* $name:ident { $($(#[$fmeta:meta])* $field:ident : $ty:ty),* $(,)? })*) => {$(
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $name { $($(#[$fmeta])* pub $field: $ty,)* }
        weir_types::codec_struct!($name { $($field),* });
    )*};
}
pub(crate) use records;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_labels_are_unique() {
        for (i, op) in Op::ALL.iter().enumerate() {
            assert_eq!(Op::from_code(*op as u16), Some(*op));
            assert_eq!(op.index(), i);
            assert!(Op::ALL.iter().filter(|o| o.label() == op.label()).count() == 1);
        }
    }
}
