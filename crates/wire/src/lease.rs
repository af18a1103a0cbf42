//! Leases and events: how the metadata server keeps what clients cache true.
//!
//! `docs/leases.md` says what each means and why nothing stale is seen.

use crate::message::{records, requests};
use crate::meta::PendingTruncate;
use weir_types::codec::{Bytes, Decode, DecodeError, Encode, Reader};
use weir_types::{Attr, FileId, Generation};

/// Names of the directory in this answer (found or not found) may be kept.
pub const KEEP_NAMES: u8 = 1;
/// Attributes in this answer may be kept.
pub const KEEP_ATTRIBUTES: u8 = 2;
/// A lease of [`LeaseMode::Read`] on the whole file came with this open.
pub const LEASE_READ: u8 = 4;
/// A lease of [`LeaseMode::Write`] on the whole file came with this open.
pub const LEASE_WRITE: u8 = 8;
/// The size in this answer is the one before a writer that died
/// ([`PendingTruncate`]): whoever opens the file finds the right one.
pub const SIZE_UNKNOWN: u8 = 16;
/// A quota concerns the file in this answer: before it grows, who writes asks for room
/// ([`crate::quota::RoomRequest`]).
pub const ROOM_LIMITED: u8 = 32;
/// Every flag that there is.
pub const KEEP_ALL: u8 =
    KEEP_NAMES | KEEP_ATTRIBUTES | LEASE_READ | LEASE_WRITE | SIZE_UNKNOWN | ROOM_LIMITED;
/// The end of a lease that reaches as far as a file may grow.
pub const TO_THE_END: u64 = u64::MAX;

/// What a lease allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LeaseMode {
    /// To read, and keep what was read. Many may hold it.
    Read,
    /// To read and write, and keep what was written back for a while. Nobody
    /// else holds anything.
    Write,
}
weir_types::codec_tag!(LeaseMode { Read = 0, Write = 1 });

records! {
    /// A lease.
    LeaseRange {
        /// The file.
        file: FileId,
        /// Its first byte.
        start: u64,
        /// The byte after its last; [`TO_THE_END`]: however long the file gets.
        end: u64,
        /// What it allows.
        mode: LeaseMode,
    }
    /// A lease that a client says it holds.
    HeldLease {
        /// The lease.
        lease: LeaseRange,
        /// The generation of the file that it writes under.
        generation: Generation,
    }
    /// Something that a client has to obey, and then to acknowledge.
    Event {
        /// Grows by one at each event of the session.
        number: u64,
        /// What to do.
        what: EventKind,
    }
    /// An event has been obeyed.
    EventAck {
        /// The event.
        number: u64,
        /// Nothing at all is kept of this directory or file any more: no more
        /// events of names and attributes for it, please.
        forgotten: bool,
        /// Of a lease that is given up: a write under it has failed, and may still
        /// reach a data server. With it, everything that the client held of the
        /// file is given up, and the file is fenced before others are let in.
        unconfirmed: bool,
        /// Of a file that is about to lose a name: the session has it open from now on, to be
        /// closed like any other. Of attributes: it is to be told before the file loses a name.
        holds: bool,
    }
    /// What a poll brings.
    Events {
        /// Events that have not been acknowledged and are newer than asked for.
        events: Vec<Event>,
        /// So long after it was last heard of, a client's leases may be taken
        /// away, milliseconds.
        lease_ms: u64,
        /// Leases or kept names were taken away since the last poll, because
        /// nothing was heard: everything has to be given up.
        lapsed: bool,
    }
    /// What an [`AcquireRequest`] brings.
    Granted {
        /// At least what was asked for.
        lease: LeaseRange,
        /// The file now.
        attr: Attr,
        /// As in [`crate::meta::OpenFile`].
        pending_truncate: Option<PendingTruncate>,
    }
}

/// What an event asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A name of a directory is about to change, and with it the directory's
    /// attributes.
    Name {
        /// The directory.
        dir: FileId,
        /// The name.
        name: Bytes,
    },
    /// Attributes (or, of a directory, all names) are about to change.
    Attributes {
        /// The file.
        file: FileId,
    },
    /// Give up a lease: for [`LeaseMode::Read`] write back and keep reading,
    /// for [`LeaseMode::Write`] keep nothing of the range.
    Recall(LeaseRange),
    /// Report size and time of what was written, and go on.
    Report {
        /// The file.
        file: FileId,
    },
    /// A file is about to lose a name, perhaps its last: as for attributes.
    Removal {
        /// The file.
        file: FileId,
    },
}

requests! {
    /// Waits until there are events, at most a fraction of the lease time.
    /// Until its first poll, a session is given nothing to keep.
    PollEventsRequest(PollEvents) -> Events {
        /// The last event that arrived.
        have: u64,
    }
    /// Says that events have been obeyed.
    AckEventsRequest(AckEvents) -> () {
        /// Which.
        acks: Vec<EventAck>,
    }
    /// Asks for a lease; answered when everybody in the way has given up
    /// theirs, or is dead.
    AcquireRequest(Acquire) -> Granted {
        /// What is needed. The server may grant more.
        lease: LeaseRange,
    }
    /// The fence of this generation has reached all objects, and they end here.
    RecoveredRequest(Recovered) -> Attr {
        /// The file.
        file: FileId,
        /// The fence.
        generation: Generation,
        /// The size that the objects make.
        size: u64,
    }
    /// The client ends in good order: everything is written, nothing is open.
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
