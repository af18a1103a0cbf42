//! Records of who did what, as servers keep them for administrators.

use crate::capability::Rights;
use crate::data::AdminAccess;
use crate::message::{records, requests};
use weir_types::codec::Bytes;
use weir_types::{ClientId, FileId, SessionId};

/// The user in the record of a request whose capability was not signed: nobody knows it.
pub const UNKNOWN_USER: u32 = u32::MAX;
/// The most bytes of [`AuditRecord::about`]; the rest is cut.
pub const MAX_ABOUT_BYTES: usize = 64;
/// The most records of a page.
pub const MAX_AUDIT_PAGE: usize = 1024;

records! {
    /// Requests of one kind, by one user in one session, on one file, with one result.
    AuditRecord {
        /// Number of the record; later ones have greater numbers.
        number: u64,
        /// The client that the connection has authenticated as; 0 for another data server that
        /// reads on behalf of the session.
        client: ClientId,
        /// The session.
        session: SessionId,
        /// The user that the capability was made for, or that the request was sent for;
        /// [`UNKNOWN_USER`] if the capability was not signed.
        user: u32,
        /// The file, or the directory of the name in `about`; 0 for none.
        file: FileId,
        /// Code of the operation.
        op: u16,
        /// The rights that were asked for when a file was opened.
        rights: Rights,
        /// 0 for success, or the code of the error.
        status: u16,
        /// The name that was made or removed, or why the request was refused.
        about: Bytes,
        /// Number of requests.
        count: u64,
        /// Bytes that they have read or written.
        bytes: u64,
        /// Time of the first, milliseconds since 1970.
        first_unix_ms: u64,
        /// Time of the last, milliseconds since 1970.
        last_unix_ms: u64,
    }
    /// A page of records.
    AuditPage {
        /// By ascending number.
        records: Vec<AuditRecord>,
        /// Whether there are more.
        more: bool,
    }
}

requests! {
    /// Asks a data server for a page of the audit records of a target (administrators).
    ListAuditRequest(ListAudit) -> AuditPage {
        /// The target, and the right to administer it.
        access: AdminAccess,
        /// Records with greater numbers.
        after: u64,
    }
    /// Asks the metadata server for a page of its audit records (administrators).
    ListMetaAuditRequest(ListMetaAudit) -> AuditPage {
        /// Records with greater numbers.
        after: u64,
    }
}
