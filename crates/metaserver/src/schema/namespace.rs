//! Records of names, segments and what is to be removed.

use weir_types::codec::Bytes;
use weir_types::{FileId, FileKind, Segment};

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dentry {
    /// The file.
    pub file: FileId,
    /// Its kind.
    pub kind: FileKind,
    /// Where the name stands in listings.
    pub cookie: u64,
}
weir_types::codec_struct!(Dentry { file, kind, cookie });

/// The same, found by its place in listings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListEntry {
    /// The name.
    pub name: Bytes,
    /// The file.
    pub file: FileId,
    /// Its kind.
    pub kind: FileKind,
}
weir_types::codec_struct!(ListEntry { name, file, kind });

/// Segments of a file that follow one another; at most
/// [`weir_types::limits::SEGMENT_PAGE`], and all but the last page of a list
/// have so many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentPage {
    /// The segments.
    pub segments: Vec<Segment>,
}
weir_types::codec_struct!(SegmentPage { segments });

/// A file without a name that may be open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Orphan {}
weir_types::codec_struct!(Orphan {});

/// A list of segments that no file has any more, on its way to the garbage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeadList {
    /// Whether the extended attributes of the file go too.
    pub xattrs: bool,
    /// Objects of the list's last page that are in the garbage already.
    pub objects_done: u32,
}
weir_types::codec_struct!(DeadList { xattrs, objects_done });
