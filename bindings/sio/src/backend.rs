//! What the interface needs of a file system. Arguments are checked already.

use crate::core::codes::Result;
use crate::core::control::{Caching, Layout};
use crate::core::hint::{Hint, Pattern};
use crate::core::list::Span;
use crate::core::name::Name;
use std::any::Any;

/// Tells files apart, whatever their names.
pub type Identity = (u64, u64);

/// How a file is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct How {
    /// To read.
    pub read: bool,
    /// To write.
    pub write: bool,
    /// It must not exist yet.
    pub create: bool,
    /// How far it is kept here.
    pub caching: Caching,
    /// How it is laid out, if it is created.
    pub layout: Option<Layout>,
}

/// What is kept with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attribute {
    /// The label of the application.
    Label,
    /// How many bytes were reserved.
    Preallocation,
}

impl Attribute {
    /// The name of the extended attribute that has it.
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
    /// `FileNotFound`, `AlreadyExists`, `IncorrectMode` if permissions forbid it, and the rest.
    fn open(&self, name: &Name, how: How) -> Result<Box<dyn OpenFile>>;

    /// Which file a name is of.
    ///
    /// # Errors
    /// `FileNotFound`.
    fn identify(&self, name: &Name) -> Result<Identity>;

    /// Whether files may be created where this name would be.
    ///
    /// # Errors
    /// `FileNotFound` if its directory does not exist.
    fn check_directory(&self, name: &Name) -> Result<()>;

    /// Removes a name.
    fn unlink(&self, name: &Name) -> Result<()>;

    /// Moves a name to one that does not exist.
    ///
    /// # Errors
    /// `AlreadyExists`.
    fn rename(&self, old: &Name, new: &Name) -> Result<()>;

    /// Whether files can be laid out so.
    ///
    /// # Errors
    /// `OpUnsupported`.
    fn check_layout(&self, layout: &Layout) -> Result<()>;
}

/// An open file. All calls may be made from many threads.
pub trait OpenFile: Any + Send + Sync {
    /// Which file it is.
    fn identity(&self) -> Identity;

    /// Reads spans into a buffer that is as long as all of them; returns how many bytes there are
    /// before the first that lies behind the end of the file.
    fn read(&self, spans: &[Span], buffer: &mut [u8], pattern: Pattern) -> Result<u64>;

    /// Writes spans that do not overlap.
    fn write(&self, spans: &[Span], data: &[u8]) -> Result<()>;

    /// The size now.
    fn size(&self) -> Result<u64>;

    /// Cuts or extends.
    fn set_size(&self, size: u64) -> Result<()>;

    /// Bytes of disk that it takes.
    fn allocation(&self) -> Result<u64>;

    /// Reserves room from the beginning; the size stays.
    fn preallocate(&self, bytes: u64) -> Result<()>;

    /// Others see what was written.
    fn propagate(&self, spans: Option<&[Span]>) -> Result<()>;

    /// What is kept is read anew.
    fn refresh(&self, spans: Option<&[Span]>) -> Result<()>;

    /// Everything is on disk.
    fn sync(&self) -> Result<()>;

    /// How it lies on its servers.
    fn layout(&self) -> Result<Layout>;

    /// Bytes that are kept or dropped together.
    fn consistency_unit(&self) -> u64;

    /// An attribute; `None` if it was never set.
    fn attribute(&self, attribute: Attribute) -> Result<Option<Vec<u8>>>;

    /// Sets one.
    fn set_attribute(&self, attribute: Attribute, value: &[u8]) -> Result<()>;

    /// Copies bytes from a file of the same backend; returns how many there were before its end.
    fn copy_from(&self, source: &dyn OpenFile, from: Span, to: u64) -> Result<u64>;

    /// What is going to be done.
    fn advise(&self, hint: &Hint);

    /// What was written before has arrived, or why not. The file is then dropped.
    fn close(&self) -> Result<()>;
}
