//! Kinds of problems.

use weir_types::{FileId, Generation, ObjectId, SegmentIndex, TargetId};
use weir_wire::quota::QuotaSubject;

/// Kind of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// An object without a file.
    OrphanObject,
    /// A written object that is missing.
    MissingObject,
    /// A column whose copies were all on removed targets.
    LostColumn,
    /// A column without a readable copy at present.
    AwayColumn,
    /// A part of a column whose present copies lack the last changes.
    LackingColumn,
    /// An object on a target, or with a number, that its file's layout does not have.
    MisplacedObject,
    /// An object of an existing file that is on the list of objects to remove.
    DoomedObject,
    /// A file whose objects extend beyond its size.
    Size,
    /// A name without a file, a file without a name, or contradictory names.
    Name,
    /// A wrong count of links or attributes.
    Count,
    /// Segments that are not consecutive.
    Layout,
    /// Unused records: they take space and do no harm.
    Leftover,
    /// An invalid record.
    Record,
    /// A file among the objects of a target that is not an object.
    StrayFile,
    /// A quota with a wrong count.
    Quota,
}

impl Kind {
    /// The name for programs.
    pub fn label(self) -> &'static str {
        match self {
            Kind::OrphanObject => "orphan-object",
            Kind::MissingObject => "missing-object",
            Kind::LostColumn => "lost-column",
            Kind::AwayColumn => "away-column",
            Kind::LackingColumn => "lacking-column",
            Kind::MisplacedObject => "misplaced-object",
            Kind::DoomedObject => "doomed-object",
            Kind::Size => "size",
            Kind::Name => "name",
            Kind::Count => "count",
            Kind::Layout => "layout",
            Kind::Leftover => "leftover",
            Kind::Record => "record",
            Kind::StrayFile => "stray-file",
            Kind::Quota => "quota",
        }
    }
}

/// A written object that is missing on its target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Its target.
    pub target: TargetId,
    /// The object.
    pub object: ObjectId,
    /// First byte of its segment in the file.
    pub segment_start: u64,
    /// First byte of the file in it.
    pub first: u64,
    /// Last byte of the file in it. Bytes between the two belong to it only if the segment has one
    /// column.
    pub last: u64,
}

/// A file that is longer than its size says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Short {
    /// The recorded size.
    pub size: u64,
    /// End of the last byte in any object.
    pub found: u64,
    /// The generation of the file.
    pub generation: Generation,
    /// Number of the file's last change, which shows whether it has changed since.
    pub change: u64,
    /// The object that extends furthest.
    pub object: ObjectId,
    /// The target of that object.
    pub target: TargetId,
    /// Its length at that time.
    pub object_len: u64,
}

/// The subject of a problem, besides its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The file only.
    File,
    /// An existing object.
    Object {
        /// Its target.
        target: TargetId,
        /// The object.
        object: ObjectId,
        /// Its length, bytes.
        len: u64,
    },
    /// A missing object.
    Lost(Lost),
    /// A file with too small a size.
    Short(Short),
    /// An unreadable column.
    Column {
        /// Targets that have or had its copies.
        targets: Vec<TargetId>,
    },
    /// A quota with a wrong count.
    Quota(QuotaSubject),
}

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Its kind.
    pub kind: Kind,
    /// The file or directory, if it concerns one.
    pub file: Option<FileId>,
    /// Description for messages, without the file's name.
    pub what: String,
    /// Its subject besides the file.
    pub subject: Subject,
}

impl Problem {
    pub(super) fn new(kind: Kind, file: FileId, what: impl Into<String>) -> Self {
        Self { kind, file: Some(file), what: what.into(), subject: Subject::File }
    }

    /// A problem that concerns no single file.
    pub fn of_no_file(kind: Kind, what: impl Into<String>) -> Self {
        Self { kind, file: None, what: what.into(), subject: Subject::File }
    }

    /// Whether a cluster in use may look like this for a moment, so that its servers have to be
    /// asked before it is reported.
    pub fn needs_confirmation(&self) -> bool {
        matches!(self.kind, Kind::OrphanObject | Kind::MissingObject | Kind::Size)
    }

    /// The segment of a missing object.
    pub fn lost_segment(&self) -> Option<SegmentIndex> {
        match &self.subject {
            Subject::Lost(lost) => Some(lost.object.segment),
            _ => None,
        }
    }
}
