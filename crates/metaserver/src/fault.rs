//! Why an operation has no result.

use weir_metastore::TxError;
use weir_types::{Error, ErrorKind};

/// Why an operation has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// It is refused: the client gets this error, and the same one for a repeated request.
    #[error(transparent)]
    Refused(Error),
    /// The engine has failed: nothing is known, nothing is stored.
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

/// Result of an operation.
pub type Outcome<T> = Result<T, Fault>;
