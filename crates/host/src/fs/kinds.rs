//! Options and results of calls on files and directories.

/// How to open a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenHow {
    /// For reading only.
    pub read_only: bool,
    /// Creates the file if it does not exist.
    pub create: bool,
    /// With `create`: fails with `EXIST` if the file exists.
    pub exclusive: bool,
    /// Truncates the file to length 0.
    pub truncate: bool,
}

impl OpenHow {
    /// For reading.
    pub const READ: Self =
        Self { read_only: true, create: false, exclusive: false, truncate: false };
    /// For reading and writing; the file must exist.
    pub const WRITE: Self =
        Self { read_only: false, create: false, exclusive: false, truncate: false };
    /// For reading and writing; the file is created if it does not exist.
    pub const CREATE: Self =
        Self { read_only: false, create: true, exclusive: false, truncate: false };
    /// For reading and writing; the file is created or truncated.
    pub const REPLACE: Self =
        Self { read_only: false, create: true, exclusive: false, truncate: true };
}

/// Size and kind of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Length of a file, bytes.
    pub size: u64,
    /// Whether it is a regular file.
    pub is_file: bool,
    /// Whether it is a directory.
    pub is_directory: bool,
}

/// Space of a file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Total space, bytes.
    pub total_bytes: u64,
    /// Free space, bytes.
    pub free_bytes: u64,
    /// Total number of files that fit.
    pub total_files: u64,
    /// Number of further files that fit.
    pub free_files: u64,
}
