//! Leases and events, by which the metadata server keeps clients' caches coherent.
//!
//! `docs/leases.md` explains each of them, and why no client sees stale data.

use crate::message::{records, requests};
use crate::meta::PendingTruncate;
use weir_types::codec::{Bytes, Decode, DecodeError, Encode, Reader};
use weir_types::{Attr, FileId, Generation};

/// Names of the directory in this reply (found or not found) may be cached.
pub const KEEP_NAMES: u8 = 1;
/// Attributes in this reply may be cached.
pub const KEEP_ATTRIBUTES: u8 = 2;
/// A lease of [`LeaseMode::Read`] on the whole file came with this open.
pub const LEASE_READ: u8 = 4;
/// A lease of [`LeaseMode::Write`] on the whole file came with this open.
pub const LEASE_WRITE: u8 = 8;
/// The size in this reply is the one from before a writer that died ([`PendingTruncate`]). A client
/// that opens the file finds the right size.
pub const SIZE_UNKNOWN: u8 = 16;
/// A quota applies to the file in this reply. Before the file grows, the writer has to ask for
/// space ([`crate::quota::RoomRequest`]).
pub const ROOM_LIMITED: u8 = 32;
/// The reply to a change is followed by [`Also`], which may be cached.
pub const HAS_ALSO: u8 = 64;
/// All flags.
pub const KEEP_ALL: u8 = KEEP_NAMES
    | KEEP_ATTRIBUTES
    | LEASE_READ
    | LEASE_WRITE
    | SIZE_UNKNOWN
    | ROOM_LIMITED
    | HAS_ALSO;
/// The end of a lease that covers any growth of the file.
pub const TO_THE_END: u64 = u64::MAX;

/// What a lease allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LeaseMode {
    /// The holder may read and cache what was read. Many clients may hold it.
    Read,
    /// The holder may read and write, and delay its writes for a while. No other client holds a
    /// lease there.
    Write,
}
weir_types::codec_tag!(LeaseMode { Read = 0, Write = 1 });

records! {
    /// A lease on a range of a file.
    LeaseRange {
        /// The file.
        file: FileId,
        /// First byte.
        start: u64,
        /// End, exclusive; [`TO_THE_END`] covers any growth of the file.
        end: u64,
        /// What the lease allows.
        mode: LeaseMode,
    }
    /// A lease that a client claims to hold.
    HeldLease {
        /// The lease.
        lease: LeaseRange,
        /// The generation of the file under which the client writes.
        generation: Generation,
    }
    /// An instruction that a client has to carry out and then acknowledge.
    Event {
        /// Number of the event. It grows by one with each event of the session.
        number: u64,
        /// The instruction.
        what: EventKind,
    }
    /// Acknowledgement of an event that was carried out.
    EventAck {
        /// Number of the event.
        number: u64,
        /// The client caches nothing of this directory or file any more, and wants no more events
        /// of names and attributes for it.
        forgotten: bool,
        /// For a lease that is given up: a write under it has failed, and may still reach a data
        /// server. All leases of the client on the file are then given up, and the file is fenced
        /// before another client gets a lease.
        unconfirmed: bool,
        /// For a file that is about to lose a name: the session counts it as open from now on, and
        /// will close it. For attributes: the client wants an event before the file loses a name.
        holds: bool,
    }
    /// Reply to a poll.
    Events {
        /// Events that are newer than asked for and not acknowledged.
        events: Vec<Event>,
        /// A client's leases may be revoked this long after it was last heard of, milliseconds.
        lease_ms: u64,
        /// Leases or cached names were revoked since the last poll, because the client was silent.
        /// The client has to drop everything.
        lapsed: bool,
    }
    /// Follows the reply to a change with [`HAS_ALSO`]: what else has changed, as it is now. Names of
    /// the directories among it, as they follow from the change, may be cached too.
    Also {
        /// Attributes of files and directories.
        attributes: Vec<Attr>,
    }
    /// Reply to an [`AcquireRequest`].
    Granted {
        /// The granted lease, which covers at least what was asked for.
        lease: LeaseRange,
        /// The file's present attributes.
        attr: Attr,
        /// As in [`crate::meta::OpenFile`].
        pending_truncate: Option<PendingTruncate>,
    }
}

/// What an event tells the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A name of a directory is about to change, and with it the directory's attributes.
    Name {
        /// The directory.
        dir: FileId,
        /// The name.
        name: Bytes,
    },
    /// Attributes of a file are about to change, or all names of a directory.
    Attributes {
        /// The file.
        file: FileId,
    },
    /// A lease is recalled. A lease of [`LeaseMode::Read`] is left: write back and keep reading.
    /// For [`LeaseMode::Write`]: keep nothing of the range.
    Recall(LeaseRange),
    /// The client has to report size and time of what it has written, and may go on.
    Report {
        /// The file.
        file: FileId,
    },
    /// A file is about to lose a name, perhaps its last. The client reacts as for attributes.
    Removal {
        /// The file.
        file: FileId,
    },
}

requests! {
    /// Waits for events, at most for a fraction of the lease time. Before its first poll a session
    /// may cache nothing.
    PollEventsRequest(PollEvents) -> Events {
        /// Number of the last event that arrived.
        have: u64,
    }
    /// Acknowledges events that were carried out.
    AckEventsRequest(AckEvents) -> () {
        /// The acknowledgements.
        acks: Vec<EventAck>,
    }
    /// Asks for a lease. The reply comes when every conflicting lease was given up or its client is
    /// dead.
    AcquireRequest(Acquire) -> Granted {
        /// The needed lease. The server may grant more.
        lease: LeaseRange,
    }
    /// Reports that the fence of this generation has reached all objects, and the size that follows
    /// from their lengths.
    RecoveredRequest(Recovered) -> Attr {
        /// The file.
        file: FileId,
        /// Generation of the fence.
        generation: Generation,
        /// Size of the file according to its objects, bytes.
        size: u64,
    }
    /// Ends the session in good order: everything is written, nothing is open.
    EndSessionRequest(EndSession) -> () {}
}

impl Encode for EventKind {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            EventKind::Name { dir, name } => {
                out.push(0);
                dir.encode(out);
                name.encode(out);
            }
            EventKind::Attributes { file } => {
                out.push(1);
                file.encode(out);
            }
            EventKind::Recall(lease) => {
                out.push(2);
                lease.encode(out);
            }
            EventKind::Report { file } => {
                out.push(3);
                file.encode(out);
            }
            EventKind::Removal { file } => {
                out.push(4);
                file.encode(out);
            }
        }
    }
}

impl Decode for EventKind {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match u8::decode(r)? {
            0 => EventKind::Name { dir: Decode::decode(r)?, name: Decode::decode(r)? },
            1 => EventKind::Attributes { file: Decode::decode(r)? },
            2 => EventKind::Recall(Decode::decode(r)?),
            3 => EventKind::Report { file: Decode::decode(r)? },
            4 => EventKind::Removal { file: Decode::decode(r)? },
            _ => return Err(DecodeError::BadValue),
        })
    }
}
