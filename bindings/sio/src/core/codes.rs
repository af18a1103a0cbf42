//! Result codes with a text for each, and failures with a reason.

use std::fmt;

macro_rules! codes {
    ($($name:ident = $value:literal, $c:literal, $text:literal;)*) => {
        /// The result of a call. The numbers are Weir's own: the SIO report defines only the names.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(i32)]
        pub enum Code {
            $(#[doc = $text] $name = $value,)*
        }

        impl Code {
            /// Every code, with its name in C.
            pub const ALL: &'static [(Code, &'static str)] = &[$((Code::$name, $c),)*];

            /// A sentence for people, with a final NUL.
            pub fn text(self) -> &'static std::ffi::CStr {
                match self {
                    $(Code::$name => {
                        const TEXT: &std::ffi::CStr =
                            match std::ffi::CStr::from_bytes_with_nul(concat!($text, "\0").as_bytes()) {
                                Ok(text) => text,
                                Err(_) => panic!("a text has no NUL inside"),
                            };
                        TEXT
                    })*
                }
            }

            /// The code with this number.
            pub fn from_number(number: i32) -> Option<Self> {
                match number {
                    $($value => Some(Code::$name),)*
                    _ => None,
                }
            }
        }
    };
}

codes! {
    Success = 0, "SIO_SUCCESS", "success";
    AlreadyExists = 1, "SIO_ERR_ALREADY_EXISTS", "a file of this name exists already";
    ControlFailed = 2, "SIO_ERR_CONTROL_FAILED",
        "a mandatory control failed: the results of the controls say why";
    ControlNotAttempted = 3, "SIO_ERR_CONTROL_NOT_ATTEMPTED",
        "the control was not attempted, because a mandatory one failed";
    ControlNotOnTest = 4, "SIO_ERR_CONTROL_NOT_ON_TEST", "the control has no meaning for sio_test";
    ControlWouldHaveSucceeded = 5, "SIO_ERR_CONTROL_WOULD_HAVE_SUCCEEDED",
        "the control was checked and not carried out: it would have succeeded";
    ControlsClash = 6, "SIO_ERR_CONTROLS_CLASH", "an earlier control of the list sets the same";
    FileNotFound = 7, "SIO_ERR_FILE_NOT_FOUND", "no such file";
    FileOpen = 8, "SIO_ERR_FILE_OPEN", "the file is open in this process: close it first";
    IncorrectMode = 9, "SIO_ERR_INCORRECT_MODE",
        "the mode is not valid, or the file was not opened in a mode that allows this";
    InvalidClass = 10, "SIO_ERR_INVALID_CLASS", "no such class of hints";
    InvalidDescriptor = 11, "SIO_ERR_INVALID_DESCRIPTOR", "no open file has this descriptor";
    InvalidExtension = 12, "SIO_ERR_INVALID_EXTENSION", "there is no such extension";
    InvalidFileList = 13, "SIO_ERR_INVALID_FILE_LIST", "the list of file ranges is not valid";
    InvalidFilename = 14, "SIO_ERR_INVALID_FILENAME", "the file name is not valid";
    InvalidHandle = 15, "SIO_ERR_INVALID_HANDLE", "the handle is not valid, or was completed";
    InvalidMemoryList = 16, "SIO_ERR_INVALID_MEMORY_LIST", "the list of memory ranges is not valid";
    InvalidParticipant = 17, "SIO_ERR_INVALID_PARTICIPANT",
        "the collective has no such participant, or the participant has joined already";
    IoCanceled = 18, "SIO_ERR_IO_CANCELED", "the operation was cancelled";
    IoFailed = 19, "SIO_ERR_IO_FAILED", "input or output failed";
    IoInProgress = 20, "SIO_ERR_IO_IN_PROGRESS", "an asynchronous operation is in progress";
    MaxAsyncOutstandingExceeded = 21, "SIO_ERR_MAX_ASYNC_OUTSTANDING_EXCEEDED",
        "too many asynchronous operations: ask for the status of some first";
    MaxOpenExceeded = 22, "SIO_ERR_MAX_OPEN_EXCEEDED", "too many open files: close some first";
    MixedCollAndAsync = 23, "SIO_ERR_MIXED_COLL_AND_ASYNC",
        "the list has handles of collective and of other operations";
    NoSpace = 24, "SIO_ERR_NO_SPACE", "no space left";
    OnlyAtCreate = 25, "SIO_ERR_ONLY_AT_CREATE", "this can be set only when a file is created";
    OnlyAtOpen = 26, "SIO_ERR_ONLY_AT_OPEN", "this can be set only when a file is opened";
    OpUnsupported = 27, "SIO_ERR_OP_UNSUPPORTED", "the operation is not supported";
    UnequalLists = 28, "SIO_ERR_UNEQUAL_LISTS", "the lists of file and memory differ in bytes";
    InvalidArgument = 101, "SIO_ERR_INVALID_ARGUMENT", "an argument is NULL or out of range";
    NotAttached = 102, "SIO_ERR_NOT_ATTACHED",
        "no file system is attached in this process: call sio_attach or set SIO_FILES";
}

/// A code and its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The result of the call.
    pub code: Code,
    /// What happened, to what; empty if the code says enough.
    pub reason: String,
}

/// The result of what may fail.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

impl Failure {
    /// A failure with a reason.
    pub fn new(code: Code, reason: impl Into<String>) -> Self {
        Self { code, reason: reason.into() }
    }
}

impl From<Code> for Failure {
    fn from(code: Code) -> Self {
        Self { code, reason: String::new() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.code.text().to_str().unwrap_or_default();
        match self.reason.is_empty() {
            true => f.write_str(text),
            false => write!(f, "{text}: {}", self.reason),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_number_and_a_text_of_its_own() {
        let mut texts = std::collections::BTreeSet::new();
        for &(code, name) in Code::ALL {
            assert_eq!(Code::from_number(code as i32), Some(code), "{name}");
            assert!(texts.insert(code.text()), "{name}");
        }
        assert_eq!(Code::from_number(-1), None);
        assert_eq!(Code::from_number(29), None);
    }
}
