//! What files and directories are asked for, and what they tell.

/// How to open a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenHow {
    /// For reading only.
    pub read_only: bool,
    /// Make it if it is not there.
    pub create: bool,
    /// Fail with `EXIST` if it is there.
    pub exclusive: bool,
    /// Empty it.
    pub truncate: bool,
}

impl OpenHow {
    /// For reading.
    pub const READ: Self =
        Self { read_only: true, create: false, exclusive: false, truncate: false };
    /// For reading and writing; it must be there.
    pub const WRITE: Self =
        Self { read_only: false, create: false, exclusive: false, truncate: false };
    /// For reading and writing; made if it is not there.
    pub const CREATE: Self =
        Self { read_only: false, create: true, exclusive: false, truncate: false };
    /// For reading and writing; made, or emptied.
    pub const REPLACE: Self =
        Self { read_only: false, create: true, exclusive: false, truncate: true };
}

/// What is known of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Length of a file, bytes.
    pub size: u64,
    /// Whether it is a regular file.
    pub is_file: bool,
    /// Whether it is a directory.
    pub is_directory: bool,
}

/// Room on a file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// All of it, bytes.
    pub total_bytes: u64,
    /// What may still be used, bytes.
    pub free_bytes: u64,
    /// Files that it can hold.
    pub total_files: u64,
    /// Files that it can still take.
    pub free_files: u64,
}
