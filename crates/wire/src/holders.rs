//! Sessions and what they hold, as shown to administrators.

use crate::message::{records, requests};
use weir_types::codec::Bytes;
use weir_types::{ClientId, FileId, SessionId};

/// State of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionStanding {
    /// The session was heard of within the lease time.
    Live,
    /// The session was not heard of within the lease time: what it holds is revoked when another
    /// session needs it.
    Silent,
    /// Something was revoked from the session, and it has not acknowledged that yet.
    CutOff,
}
weir_types::codec_tag!(SessionStanding { Live = 0, Silent = 1, CutOff = 2 });

/// Kind of a lock or lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldKind {
    /// A lock of `fcntl(2)`.
    Posix,
    /// A lock of `flock(2)`.
    Flock,
    /// A lease: the right of a client to cache a file, or to write it back later.
    Lease,
}
weir_types::codec_tag!(HoldKind { Posix = 0, Flock = 1, Lease = 2 });

records! {
    /// A session as the metadata server sees it.
    SessionView {
        /// The session.
        session: SessionId,
        /// The client that the session has authenticated as.
        client: ClientId,
        /// Name of that client's key; empty if it has none.
        key_name: String,
        /// The program's own name.
        program: String,
        /// Host of the program; empty if unknown.
        host: String,
        /// Age of the session, milliseconds; `None` if it is older than the metadata server's
        /// process.
        since_ms: Option<u64>,
        /// Time since the session was last heard of, milliseconds.
        silent_ms: u64,
        /// Number of files that it has open.
        open_files: u64,
        /// Number of files that it has leases on.
        leased_files: u64,
        /// Number of locks that it holds.
        locks: u64,
        /// Number of locks that it waits for.
        waiting: u64,
        /// State of the session.
        standing: SessionStanding,
    }
    /// A page of the list of sessions.
    SessionPage {
        /// The sessions, by ascending id.
        sessions: Vec<SessionView>,
        /// A session that was silent for this long may lose what it holds, milliseconds.
        lease_ms: u64,
        /// A session that was silent for this long ends, milliseconds.
        timeout_ms: u64,
        /// Whether this is the last page.
        end: bool,
    }
    /// Position in the list of locks and leases.
    #[derive(Copy)]
    HoldPlace {
        /// The file.
        file: FileId,
        /// Number of its entries that earlier pages have shown.
        skip: u64,
    }
    /// A lock or lease on a file.
    Hold {
        /// The session that holds it or waits for it.
        session: SessionId,
        /// The file.
        file: FileId,
        /// One of the file's names. Empty if it has none, or if its directory is too large to
        /// search.
        path: Bytes,
        /// Kind of the lock or lease.
        kind: HoldKind,
        /// Whether it is exclusive.
        exclusive: bool,
        /// First byte.
        start: u64,
        /// Last byte. [`crate::lock::LAST_BYTE`] or more stands for the end of the file.
        last: u64,
        /// Process that asked for the lock.
        pid: u32,
        /// Time that the lock was waited for, milliseconds; `None` if it is held.
        waits_ms: Option<u64>,
    }
    /// A page of the list of locks and leases.
    HoldPage {
        /// By file: held locks, then waiting locks in order of arrival, then leases.
        holds: Vec<Hold>,
        /// Where the next page begins; `None` at the end.
        next: Option<HoldPlace>,
    }
}

requests! {
    /// Asks for a page of the sessions (administrators).
    ListSessionsRequest(ListSessions) -> SessionPage {
        /// Sessions with greater ids.
        after: SessionId,
    }
    /// Asks for a page of the locks and leases of sessions (administrators).
    ListHoldsRequest(ListHolds) -> HoldPage {
        /// Where to begin; `None`: at the beginning.
        place: Option<HoldPlace>,
        /// Only those on this file.
        file: Option<FileId>,
        /// Only those of this session.
        session: Option<SessionId>,
        /// Only those of this kind.
        kind: Option<HoldKind>,
        /// Only locks that are waited for.
        waiting: bool,
    }
}
