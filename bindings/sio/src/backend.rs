//! The interface between the library and a file system. Arguments are already checked.

use crate::core::codes::Result;
use crate::core::control::{Caching, Layout};
use crate::core::hint::{Hint, Pattern};
use crate::core::list::Span;
use crate::core::name::Name;
use std::any::Any;

/// Identifies a file, whatever its names.
pub type Identity = (u64, u64);

/// How a file is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct How {
    /// Open for reading.
    pub read: bool,
    /// Open for writing.
    pub write: bool,
    /// Create the file, which must not exist.
    pub create: bool,
    /// Caching on this node.
    pub caching: Caching,
    /// Layout of a new file.
    pub layout: Option<Layout>,
}

/// Attributes stored with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attribute {
    /// The label of the application.
    Label,
    /// Number of preallocated bytes.
    Preallocation,
}

impl Attribute {
    /// The name of the extended attribute that stores it.
    pub fn name(self) -> &'static str {
        match self {
            Attribute::Label => "user.sio.label",
            Attribute::Preallocation => "user.sio.preallocation",
        }
    }
}

/// A file system.
pub trait Backend: Send + Sync {
    /// Opens or creates a file.
    ///
    /// # Errors
    /// `FileNotFound`, `AlreadyExists`, `IncorrectMode` if permissions forbid it, and others.
    fn open(&self, name: &Name, how: How) -> Result<Box<dyn OpenFile>>;

    /// The identity of the file with a name.
    ///
    /// # Errors
    /// `FileNotFound`.
    fn identify(&self, name: &Name) -> Result<Identity>;

    /// Checks whether a file with this name could be created.
    ///
    /// # Errors
    /// `FileNotFound` if its directory does not exist.
    fn check_directory(&self, name: &Name) -> Result<()>;

    /// Removes a name.
    fn unlink(&self, name: &Name) -> Result<()>;

    /// Renames a file. The new name must not exist.
    ///
    /// # Errors
    /// `AlreadyExists`.
    fn rename(&self, old: &Name, new: &Name) -> Result<()>;

    /// Checks whether files can have this layout.
    ///
    /// # Errors
    /// `OpUnsupported`.
    fn check_layout(&self, layout: &Layout) -> Result<()>;
}

/// An open file. All calls may be made from many threads.
pub trait OpenFile: Any + Send + Sync {
    /// The identity of the file.
    fn identity(&self) -> Identity;

    /// Reads spans into a buffer of their total length. Returns the number of bytes before the
    /// first one that lies beyond the end of the file.
    fn read(&self, spans: &[Span], buffer: &mut [u8], pattern: Pattern) -> Result<u64>;

    /// Writes spans that do not overlap.
    fn write(&self, spans: &[Span], data: &[u8]) -> Result<()>;

    /// The present size.
    fn size(&self) -> Result<u64>;

    /// Truncates or extends the file.
    fn set_size(&self, size: u64) -> Result<()>;

    /// Disk space of the file, bytes.
    fn allocation(&self) -> Result<u64>;

    /// Preallocates space from the beginning; the size stays.
    fn preallocate(&self, bytes: u64) -> Result<()>;

    /// Makes writes visible to other nodes.
    fn propagate(&self, spans: Option<&[Span]>) -> Result<()>;

    /// Drops cached bytes, so that they are read again.
    fn refresh(&self, spans: Option<&[Span]>) -> Result<()>;

    /// Makes all writes durable.
    fn sync(&self) -> Result<()>;

    /// The layout of the file.
    fn layout(&self) -> Result<Layout>;

    /// Granularity of the cache, bytes.
    fn consistency_unit(&self) -> u64;

    /// An attribute; `None` if it was never set.
    fn attribute(&self, attribute: Attribute) -> Result<Option<Vec<u8>>>;

    /// Sets an attribute.
    fn set_attribute(&self, attribute: Attribute, value: &[u8]) -> Result<()>;

    /// Copies bytes from a file of the same backend. Returns the number of bytes before its end.
    fn copy_from(&self, source: &dyn OpenFile, from: Span, to: u64) -> Result<u64>;

    /// Passes on a hint.
    fn advise(&self, hint: &Hint);

    /// Waits until all writes have arrived, and reports a failed one. The file is then dropped.
    fn close(&self) -> Result<()>;
}
