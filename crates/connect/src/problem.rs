//! Why a cluster was not found or not reached, and what to do about it.

use std::fmt;
use std::path::Path;
use weir_types::{Error, ErrorKind};

/// What happened, and what to do about it.
#[derive(Clone, Debug)]
pub struct Problem {
    /// Kind of the error; its errno is [`ErrorKind::errno`].
    pub kind: ErrorKind,
    /// What happened, naming the file, server or address.
    pub message: String,
    /// What to do.
    pub hint: Option<String>,
}

impl Problem {
    /// A problem without a hint.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hint: None }
    }

    /// An error in what the caller has asked for.
    pub(crate) fn argument(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidArgument, message)
    }

    /// Adds what to do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Puts a subject in front: `subject: message`.
    #[must_use]
    pub fn about(mut self, subject: impl fmt::Display) -> Self {
        self.message = format!("{subject}: {}", self.message);
        self
    }

    /// An error of the operating system, with the file's name.
    pub fn file(path: &Path, error: impl Into<std::io::Error>) -> Self {
        let mut problem = Self::from(Error::from(error.into()));
        if let Some(number) = problem.message.find(" (os error ") {
            problem.message.truncate(number);
        }
        problem.about(path.display())
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "\n  {}", hint.replace('\n', "\n  ")),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Problem {}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let message = error.to_string();
        // Some messages already say what to do.
        let advice = advice(error.kind).filter(|_| !message.contains("`weir "));
        Self { hint: advice.map(str::to_owned), ..Self::new(error.kind, message) }
    }
}

/// Advice for kinds of errors whose message has none.
fn advice(kind: ErrorKind) -> Option<&'static str> {
    Some(match kind {
        ErrorKind::Unreachable | ErrorKind::TimedOut => {
            "is the cluster running? `weir status` shows its servers, `weir up` starts those \
             that do not run"
        }
        ErrorKind::AuthFailed => {
            "use a credential of this cluster: client.toml in its state directory, or one made \
             with `weir key new`"
        }
        ErrorKind::NoSpace => "`weir df` shows the space of each target",
        ErrorKind::TargetMissing => "`weir status` shows which servers and targets run",
        _ => return None,
    })
}
