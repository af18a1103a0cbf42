//! Who is connected, and who holds what: as people see it.

use crate::message::{records, requests};
use weir_types::codec::Bytes;
use weir_types::{ClientId, FileId, SessionId};

/// What a session is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionStanding {
    /// It was heard of within the lease time.
    Live,
    /// It was not: what it holds is taken from it when somebody needs it.
    Silent,
    /// Something was taken from it, and it has not said yet that it knows.
    CutOff,
}
weir_types::codec_tag!(SessionStanding { Live = 0, Silent = 1, CutOff = 2 });

/// What is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldKind {
    /// A lock of `fcntl(2)`.
    Posix,
    /// A lock of `flock(2)`.
    Flock,
    /// A lease: what a client may keep of the file, or write later.
    Lease,
}
weir_types::codec_tag!(HoldKind { Posix = 0, Flock = 1, Lease = 2 });

records! {
    /// A session as the metadata server sees it.
    SessionView {
        /// The session.
        session: SessionId,
        /// The client whose key it has proved.
        client: ClientId,
        /// What that key is called; empty: nothing.
        key_name: String,
        /// What the program calls itself.
        program: String,
        /// Where it runs; empty: not known.
        host: String,
        /// For how long it has been there, milliseconds; `None`: since before the metadata
        /// server began.
        since_ms: Option<u64>,
        /// When it was heard of last, milliseconds ago.
        silent_ms: u64,
        /// Files that it has open.
        open_files: u64,
        /// Files that it has leases on.
        leased_files: u64,
        /// Locks that it holds,
        locks: u64,
        /// and waits for.
        waiting: u64,
        /// What it is good for.
        standing: SessionStanding,
    }
    /// A part of the list of sessions.
    SessionPage {
        /// In the order of their numbers.
        sessions: Vec<SessionView>,
        /// After so long a silence what a session holds may be taken from it, milliseconds,
        lease_ms: u64,
        /// and after so long it ends.
        timeout_ms: u64,
        /// Whether the list ends here.
        end: bool,
    }
    /// How far a look at what is held has come.
    #[derive(Copy)]
    HoldPlace {
        /// The file,
        file: FileId,
        /// and what is held of it already looked at.
        skip: u64,
    }
    /// A lock or lease on a file.
    Hold {
        /// Who has it.
        session: SessionId,
        /// The file.
        file: FileId,
        /// One of its names; empty: it has none, or is in a directory too large to look for it.
        path: Bytes,
        /// What it is.
        kind: HoldKind,
        /// Nobody else may have it.
        exclusive: bool,
        /// The first byte,
        start: u64,
        /// and the last; [`crate::lock::LAST_BYTE`] or more: to the end of the file.
        last: u64,
        /// The process that asked for a lock.
        pid: u32,
        /// For how long it has been waited for, milliseconds; `None`: it is held.
        waits_ms: Option<u64>,
    }
    /// A part of what is held.
    HoldPage {
        /// By file: locks that are held, then those that are waited for in the order of their
        /// arrival, then leases.
        holds: Vec<Hold>,
        /// Go on here; `None`: that was all.
        next: Option<HoldPlace>,
    }
}

requests! {
    /// A page of the sessions (administrators).
    ListSessionsRequest(ListSessions) -> SessionPage {
        /// Those with greater numbers.
        after: SessionId,
    }
    /// A page of what sessions hold (administrators).
    ListHoldsRequest(ListHolds) -> HoldPage {
        /// Go on here; `None`: begin.
        place: Option<HoldPlace>,
        /// Of this file only.
        file: Option<FileId>,
        /// Of this session only.
        session: Option<SessionId>,
        /// Of this kind only.
        kind: Option<HoldKind>,
        /// Only what is waited for.
        waiting: bool,
    }
}
