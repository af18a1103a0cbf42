//! What is counted.

use weir_types::codec::Bytes;
use weir_types::{ClientId, ErrorKind, FileId, SessionId};
use weir_wire::audit::{AuditRecord, MAX_ABOUT_BYTES, UNKNOWN_USER};
use weir_wire::{Op, Rights};

/// Requests that are summed up: those that are alike in all of this.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Event {
    /// See [`AuditRecord::client`].
    pub client: ClientId,
    /// The session.
    pub session: SessionId,
    /// See [`AuditRecord::user`].
    pub user: u32,
    /// See [`AuditRecord::file`].
    pub file: FileId,
    /// The operation.
    pub op: Op,
    /// The rights that a file was opened with.
    pub rights: Rights,
    /// The error; `None` for success.
    pub status: Option<ErrorKind>,
    /// See [`AuditRecord::about`].
    pub about: Bytes,
}

impl Event {
    /// Text for [`Event::about`], cut to its length.
    pub fn about(text: &[u8]) -> Bytes {
        Bytes::from(&text[..text.len().min(MAX_ABOUT_BYTES)])
    }

    /// What is told of it when its client has had very many: neither the session nor the name; of
    /// what was refused not the file either, since that costs nobody anything.
    pub(crate) fn coarse(self, knows_user: bool) -> Self {
        let (is_done, by_server) = (self.status.is_none(), self.client == ClientId(0));
        Self {
            // Of what another data server has read it is the session that tells who.
            session: if by_server { self.session } else { SessionId(0) },
            user: if knows_user { self.user } else { UNKNOWN_USER },
            file: if is_done { self.file } else { FileId(0) },
            about: Self::about(b"and more that were not told apart"),
            ..self
        }
    }

    /// The record of this event.
    pub(crate) fn record(self, number: u64, sum: Sum) -> AuditRecord {
        AuditRecord {
            number,
            client: self.client,
            session: self.session,
            user: self.user,
            file: self.file,
            op: self.op as u16,
            rights: self.rights,
            status: self.status.map_or(0, |kind| kind as u16),
            about: self.about,
            count: sum.count,
            bytes: sum.bytes,
            first_unix_ms: sum.first_unix_ms,
            last_unix_ms: sum.last_unix_ms,
        }
    }
}

/// How often an event has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sum {
    /// Number of requests.
    pub count: u64,
    /// Bytes read or written.
    pub bytes: u64,
    /// Time of the first, milliseconds since 1970.
    pub first_unix_ms: u64,
    /// Time of the last, milliseconds since 1970.
    pub last_unix_ms: u64,
}

impl Sum {
    /// One request.
    pub fn one(bytes: u64, now_unix_ms: u64) -> Self {
        Self { count: 1, bytes, first_unix_ms: now_unix_ms, last_unix_ms: now_unix_ms }
    }

    /// Adds further requests.
    pub fn add(&mut self, more: Self) {
        self.count = self.count.saturating_add(more.count);
        self.bytes = self.bytes.saturating_add(more.bytes);
        self.first_unix_ms = self.first_unix_ms.min(more.first_unix_ms);
        self.last_unix_ms = self.last_unix_ms.max(more.last_unix_ms);
    }
}
