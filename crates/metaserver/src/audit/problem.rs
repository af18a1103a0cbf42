//! What can be wrong.

use weir_types::{FileId, Generation, ObjectId, SegmentIndex, TargetId};
use weir_wire::quota::QuotaSubject;

/// The kinds of problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// An object that no file has.
    OrphanObject,
    /// An object that was written and is not there.
    MissingObject,
    /// A column of which every copy was on targets that were removed.
    LostColumn,
    /// A column of which no copy can be read now.
    AwayColumn,
    /// A part of a column of which the copies that are there do not have the last changes.
    LackingColumn,
    /// An object on a target, or with a number, where its file's layout has none.
    MisplacedObject,
    /// An object of a file that is on the list of objects to be removed.
    DoomedObject,
    /// A file whose objects hold more than its size says.
    Size,
    /// A name without a file, a file without a name, or names that contradict
    /// each other.
    Name,
    /// A count of links or attributes that is not what is there.
    Count,
    /// Segments that do not follow one another as they must.
    Layout,
    /// Records that nothing leads to: they take space and do no harm.
    Leftover,
    /// A record that makes no sense.
    Record,
    /// A file among the objects of a target that no object has.
    StrayFile,
    /// A quota counts something else than there is.
    Quota,
}

impl Kind {
    /// Its name for programs.
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

/// An object that was written and that its target does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Where it should be.
    pub target: TargetId,
    /// Which.
    pub object: ObjectId,
    /// Where its segment begins in the file.
    pub segment_start: u64,
    /// First byte of the file that it held.
    pub first: u64,
    /// Last byte of the file that it held; those in between belong to it only
    /// if the segment has one column.
    pub last: u64,
}

/// A file that is longer than its size says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Short {
    /// What the size says.
    pub size: u64,
    /// Where the last byte ends that an object holds.
    pub found: u64,
    /// The generation of the file.
    pub generation: Generation,
    /// Grows at each change of the file: whether it is still as it was seen.
    pub change: u64,
    /// The object that reaches furthest.
    pub object: ObjectId,
    /// The target that holds it.
    pub target: TargetId,
    /// Its length that was seen.
    pub object_len: u64,
}

/// What a problem is about, besides its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Nothing else.
    File,
    /// An object that is there.
    Object {
        /// Who holds it.
        target: TargetId,
        /// Which.
        object: ObjectId,
        /// Its length, bytes.
        len: u64,
    },
    /// An object that is not there.
    Lost(Lost),
    /// A file that is too short.
    Short(Short),
    /// A column that cannot be read.
    Column {
        /// Where its copies are or were.
        targets: Vec<TargetId>,
    },
    /// What a quota says is used.
    Quota(QuotaSubject),
}

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// In a word.
    pub kind: Kind,
    /// The file or directory, if it is about one.
    pub file: Option<FileId>,
    /// For people, without the file's name.
    pub what: String,
    /// What else it is about.
    pub subject: Subject,
}

impl Problem {
    pub(super) fn new(kind: Kind, file: FileId, what: impl Into<String>) -> Self {
        Self { kind, file: Some(file), what: what.into(), subject: Subject::File }
    }

    /// A problem that is not about one file.
    pub fn of_no_file(kind: Kind, what: impl Into<String>) -> Self {
        Self { kind, file: None, what: what.into(), subject: Subject::File }
    }

    /// Whether a cluster in use may look like this for a moment: ask its
    /// servers before you say so.
    pub fn needs_confirmation(&self) -> bool {
        matches!(self.kind, Kind::OrphanObject | Kind::MissingObject | Kind::Size)
    }

    /// The segment that a lost object belonged to.
    pub fn lost_segment(&self) -> Option<SegmentIndex> {
        match &self.subject {
            Subject::Lost(lost) => Some(lost.object.segment),
            _ => None,
        }
    }
}
