//! Converts errors and panics to Java exceptions.

use jni::JNIEnv;
use std::panic::{AssertUnwindSafe, catch_unwind};
use weir_connect::Problem;
use weir_types::{Error, ErrorKind};

/// Why a call failed.
pub enum Fault {
    /// An error of Weir.
    Weir(Error),
    /// An error of the JNI, or a pending Java exception.
    Jni(jni::errors::Error),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Fault::Weir(error)
    }
}

impl From<Problem> for Fault {
    fn from(problem: Problem) -> Self {
        Fault::Weir(Error::new(problem.kind, problem.to_string()))
    }
}

impl From<ErrorKind> for Fault {
    fn from(kind: ErrorKind) -> Self {
        Fault::Weir(kind.into())
    }
}

impl From<jni::errors::Error> for Fault {
    fn from(error: jni::errors::Error) -> Self {
        Fault::Jni(error)
    }
}

/// The exception class for a kind of error.
fn class_of(kind: ErrorKind) -> &'static str {
    use ErrorKind as K;
    match kind {
        // Something on the path was removed meanwhile.
        K::NotFound | K::Stale => "java/io/FileNotFoundException",
        K::Exists => "org/apache/hadoop/fs/FileAlreadyExistsException",
        K::NotDirectory => "org/apache/hadoop/fs/ParentNotDirectoryException",
        K::NotEmpty => "org/apache/hadoop/fs/PathIsNotEmptyDirectoryException",
        K::NotPermitted
        | K::AccessDenied
        | K::ReadOnly
        | K::AuthFailed
        | K::NotAdministrator
        | K::BadCapability
        | K::BadTicket => "org/apache/hadoop/security/AccessControlException",
        K::Unreachable => "java/net/ConnectException",
        K::TimedOut => "java/net/SocketTimeoutException",
        K::Interrupted => "java/io/InterruptedIOException",
        K::Unsupported => "java/lang/UnsupportedOperationException",
        K::NoAttribute => "weir/hadoop/NoAttributeException",
        K::IsDirectory
        | K::InvalidArgument
        | K::NameTooLong
        | K::NoSpace
        | K::TooManyLinks
        | K::AttributeRange
        | K::TooBig
        | K::FileTooLarge
        | K::SymlinkLoop
        | K::VersionMismatch
        | K::Protocol
        | K::Corrupt
        | K::ChecksumMismatch
        | K::Io
        | K::TargetMissing
        | K::Busy
        | K::Overloaded
        | K::SessionExpired
        | K::BadHandle
        | K::TooManyOpen
        | K::CrossDevice
        | K::Internal
        | K::OutOfRange
        | K::LeaseLost
        | K::Deadlock
        | K::NoLocks
        | K::WouldBlock
        | K::NotCurrent
        | K::NotStaged
        | K::NotLeader
        | K::QuotaExceeded => "java/io/IOException",
    }
}

/// Runs the body of a call. After an error or a panic an exception is pending, and the returned
/// value is ignored by Java.
pub fn guard<'l, T: Default>(
    env: &mut JNIEnv<'l>,
    body: impl FnOnce(&mut JNIEnv<'l>) -> Result<T, Fault>,
) -> T {
    let (class, message) = match catch_unwind(AssertUnwindSafe(|| body(env))) {
        Ok(Ok(value)) => return value,
        Ok(Err(Fault::Weir(error))) => (class_of(error.kind), error.to_string()),
        Ok(Err(Fault::Jni(error))) => {
            ("java/io/IOException", format!("the call from Java is not as it should be: {error}"))
        }
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
            let text = text.unwrap_or_else(|| "no message".to_owned());
            ("java/io/IOException", format!("internal error of the client of Weir: {text}"))
        }
    };
    // A pending Java exception has more information. If no exception can be made, the JVM has one
    // of its own.
    if !env.exception_check().unwrap_or(true) {
        let _thrown = env.throw_new(class, message);
    }
    T::default()
}
