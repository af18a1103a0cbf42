//! Errors at a boundary: a kind with a retry class and an errno, and a message that says what to
//! do.

use crate::codec::{Decode, DecodeError, Encode, Reader};
use std::fmt;

/// The result of operations that may fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// How a caller may retry after an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// The same request fails again.
    Never,
    /// The same request may succeed a moment later.
    Later,
    /// Retry after getting a fresh layout, capability or ticket.
    Refresh,
    /// Retry after connecting again.
    Reconnect,
}

macro_rules! error_kinds {
    ($($(#[$meta:meta])* $name:ident = $code:literal, $errno:ident, $retry:ident, $text:literal;)*) => {
        /// The kinds of error, with their code on the wire.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u16)]
        pub enum ErrorKind {
            $($(#[$meta])* #[doc = $text] $name = $code,)*
        }

        impl ErrorKind {
            /// Every kind, for tables and tests.
            pub const ALL: &'static [ErrorKind] = &[$(ErrorKind::$name,)*];

            /// The kind with this code on the wire.
            pub fn from_code(code: u16) -> Option<Self> {
                match code {
                    $($code => Some(ErrorKind::$name),)*
                    _ => None,
                }
            }

            /// The errno of the kind.
            pub fn errno(self) -> i32 {
                match self {
                    $(ErrorKind::$name => errno::$errno,)*
                }
            }

            /// How a caller may retry.
            pub fn retry(self) -> Retry {
                match self {
                    $(ErrorKind::$name => Retry::$retry,)*
                }
            }

            /// A short description for people.
            pub fn text(self) -> &'static str {
                match self {
                    $(ErrorKind::$name => $text,)*
                }
            }
        }
    };
}

error_kinds! {
    NotFound = 1, ENOENT, Never, "no such file or directory";
    Exists = 2, EEXIST, Never, "file exists";
    NotDirectory = 3, ENOTDIR, Never, "not a directory";
    IsDirectory = 4, EISDIR, Never, "is a directory";
    NotEmpty = 5, ENOTEMPTY, Never, "directory not empty";
    NotPermitted = 6, EPERM, Never, "operation not permitted";
    AccessDenied = 7, EACCES, Never, "permission denied";
    InvalidArgument = 8, EINVAL, Never, "invalid argument";
    NameTooLong = 9, ENAMETOOLONG, Never, "file name too long";
    NoSpace = 10, ENOSPC, Never, "no space left";
    ReadOnly = 11, EROFS, Never, "read-only";
    TooManyLinks = 12, EMLINK, Never, "too many links";
    NoAttribute = 13, ENODATA, Never, "no such attribute";
    AttributeRange = 14, ERANGE, Never, "attribute value does not fit";
    TooBig = 15, E2BIG, Never, "value too large";
    FileTooLarge = 16, EFBIG, Never, "file too large";
    SymlinkLoop = 17, ELOOP, Never, "too many levels of symbolic links";
    Stale = 18, ESTALE, Refresh, "file handle or layout is out of date";
    BadCapability = 19, EACCES, Refresh, "capability refused";
    BadTicket = 20, EACCES, Refresh, "ticket refused";
    AuthFailed = 21, EACCES, Never, "authentication failed: wrong or missing key";
    VersionMismatch = 22, EPROTO, Never, "the two programs speak different protocol versions";
    Protocol = 23, EPROTO, Reconnect, "malformed message";
    Corrupt = 24, EIO, Never, "stored data does not match its checksum";
    ChecksumMismatch = 25, EIO, Later, "data was damaged on the way";
    Io = 26, EIO, Never, "input/output error";
    TargetMissing = 27, EIO, Refresh, "target is not served here";
    Unreachable = 28, EIO, Reconnect, "server cannot be reached";
    TimedOut = 29, ETIMEDOUT, Reconnect, "no answer in time";
    Busy = 30, EBUSY, Later, "busy";
    Overloaded = 31, EAGAIN, Later, "server is overloaded";
    Interrupted = 32, EINTR, Never, "interrupted";
    Unsupported = 33, EOPNOTSUPP, Never, "operation not supported";
    SessionExpired = 34, ESTALE, Refresh, "session has expired";
    BadHandle = 35, EBADF, Never, "bad file descriptor";
    TooManyOpen = 36, ENFILE, Later, "too many open files";
    CrossDevice = 37, EXDEV, Never, "cross-device link";
    Internal = 38, EIO, Never, "internal error";
    NotAdministrator = 39, EPERM, Never, "only an administrator's key may do this";
    OutOfRange = 40, ENXIO, Never, "no such offset";
    LeaseLost = 41, EIO, Never, "the lease was lost: this client was cut off for too long";
    Deadlock = 42, EDEADLK, Never, "waiting for the lock would never end";
    NoLocks = 43, ENOLCK, Never, "too many locks";
    WouldBlock = 44, EAGAIN, Never, "another process holds a lock";
    NotCurrent = 45, EIO, Refresh, "this copy cannot be used now";
    NotStaged = 46, EIO, Later, "the bytes of a write were not left here";
    QuotaExceeded = 47, EDQUOT, Never, "disk quota exceeded";
    NotLeader = 48, EIO, Reconnect, "this metadata server does not lead";
}

/// Linux error numbers, so that this crate needs no libc.
#[allow(missing_docs)]
pub mod errno {
    pub const EPERM: i32 = 1;
    pub const ENOENT: i32 = 2;
    pub const EINTR: i32 = 4;
    pub const EIO: i32 = 5;
    pub const ENXIO: i32 = 6;
    pub const E2BIG: i32 = 7;
    pub const EBADF: i32 = 9;
    pub const EAGAIN: i32 = 11;
    pub const EACCES: i32 = 13;
    pub const EBUSY: i32 = 16;
    pub const EEXIST: i32 = 17;
    pub const EXDEV: i32 = 18;
    pub const ENOTDIR: i32 = 20;
    pub const EISDIR: i32 = 21;
    pub const EINVAL: i32 = 22;
    pub const ENFILE: i32 = 23;
    pub const EFBIG: i32 = 27;
    pub const ENOSPC: i32 = 28;
    pub const EROFS: i32 = 30;
    pub const EMLINK: i32 = 31;
    pub const ERANGE: i32 = 34;
    pub const EDEADLK: i32 = 35;
    pub const ENAMETOOLONG: i32 = 36;
    pub const ENOLCK: i32 = 37;
    pub const ENOTEMPTY: i32 = 39;
    pub const ELOOP: i32 = 40;
    pub const ENODATA: i32 = 61;
    pub const EPROTO: i32 = 71;
    pub const EOPNOTSUPP: i32 = 95;
    pub const ETIMEDOUT: i32 = 110;
    pub const ESTALE: i32 = 116;
    pub const EDQUOT: i32 = 122;
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// An error: its kind and, where that helps, a message that names the server, target or file and
/// says what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The kind.
    pub kind: ErrorKind,
    /// Where the error occurred and what to do; empty if the kind says enough.
    pub message: String,
    /// For damage (`Corrupt`, `ChecksumMismatch`): the first byte of the damaged block in the
    /// object. With the layout, a caller can compute which bytes of the file are damaged.
    pub at: Option<u64>,
}

impl Error {
    /// An error with a message.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), at: None }
    }

    /// Sets the first damaged byte of the object.
    #[must_use]
    pub fn at(self, object_offset: u64) -> Self {
        Self { at: Some(object_offset), ..self }
    }

    /// Puts a context in front of the message: `context: message`.
    #[must_use]
    pub fn context(mut self, context: impl fmt::Display) -> Self {
        self.message = if self.message.is_empty() {
            format!("{context}: {}", self.kind)
        } else {
            format!("{context}: {}", self.message)
        };
        self
    }
}

impl From<ErrorKind> for Error {
    fn from(kind: ErrorKind) -> Self {
        Self { kind, message: String::new(), at: None }
    }
}

impl From<DecodeError> for Error {
    fn from(e: DecodeError) -> Self {
        Self::new(ErrorKind::Protocol, e.to_string())
    }
}

/// An error of the operating system, by its number.
impl From<std::io::Error> for Error {
    fn from(e: std::io::Error) -> Self {
        use std::io::ErrorKind as K;
        let kind = match e.kind() {
            K::NotFound => ErrorKind::NotFound,
            K::AlreadyExists => ErrorKind::Exists,
            K::PermissionDenied => ErrorKind::AccessDenied,
            K::StorageFull | K::QuotaExceeded => ErrorKind::NoSpace,
            K::ReadOnlyFilesystem => ErrorKind::ReadOnly,
            K::NotADirectory => ErrorKind::NotDirectory,
            K::IsADirectory => ErrorKind::IsDirectory,
            K::DirectoryNotEmpty => ErrorKind::NotEmpty,
            K::FileTooLarge => ErrorKind::FileTooLarge,
            K::InvalidInput => ErrorKind::InvalidArgument,
            K::Interrupted => ErrorKind::Interrupted,
            K::TimedOut | K::WouldBlock => ErrorKind::TimedOut,
            K::ResourceBusy | K::AddrInUse => ErrorKind::Busy,
            K::ConnectionRefused
            | K::ConnectionReset
            | K::ConnectionAborted
            | K::BrokenPipe
            | K::NotConnected
            | K::HostUnreachable
            | K::NetworkUnreachable
            | K::UnexpectedEof => ErrorKind::Unreachable,
            _ => ErrorKind::Io,
        };
        Self::new(kind, e.to_string())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.message.is_empty() { self.kind.fmt(f) } else { f.write_str(&self.message) }
    }
}

impl std::error::Error for Error {}

/// The longest message that is sent with an error.
const MAX_MESSAGE_BYTES: usize = 1024;

impl Encode for Error {
    fn encode(&self, out: &mut Vec<u8>) {
        (self.kind as u16).encode(out);
        let mut end = self.message.len().min(MAX_MESSAGE_BYTES);
        while !self.message.is_char_boundary(end) {
            end -= 1;
        }
        self.message[..end].encode(out);
        self.at.encode(out);
    }
}

impl Decode for Error {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let kind = ErrorKind::from_code(u16::decode(r)?).ok_or(DecodeError::BadValue)?;
        let message = String::decode(r)?;
        if message.len() > MAX_MESSAGE_BYTES {
            return Err(DecodeError::TooLong);
        }
        Ok(Self { kind, message, at: Decode::decode(r)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_survives_the_wire_and_has_an_errno() {
        for &kind in ErrorKind::ALL {
            let error = Error::new(kind, "target 3 of server 1");
            assert_eq!(Error::from_bytes(&error.to_bytes()).unwrap(), error);
            assert!(kind.errno() > 0);
        }
    }

    #[test]
    fn a_long_message_is_cut_at_a_character() {
        let error = Error::new(ErrorKind::Io, "é".repeat(2000));
        let back = Error::from_bytes(&error.to_bytes()).unwrap();
        assert_eq!(back.message, "é".repeat(512));
        let too_long = (ErrorKind::Io as u16, "x".repeat(1025)).to_bytes();
        assert_eq!(Error::from_bytes(&too_long), Err(DecodeError::TooLong));
    }
}
