//! The inode: everything of a file except its names, segments and extended attributes.

use crate::acl::Acl;
use crate::schema::Holes;
use weir_layout::preferred_io_bytes;
use weir_types::codec::{DecodeError, Reader};
use weir_types::{
    Attr, Decode, Encode, Epoch, Extras, FileId, FileKind, FileLayout, Generation, LayoutSpec,
    Segment, Timestamp,
};
use weir_wire::lease::TO_THE_END;
use weir_wire::meta::PendingTruncate;

/// Preferred size of calls without a layout.
const OTHER_IO_BYTES: u32 = 4096;
/// Cookies 1 and 2 are reserved for clients' `.` and `..`.
pub const FIRST_COOKIE: u64 = 3;

/// The stored record of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inode {
    /// Kind of the file.
    pub kind: FileKind,
    /// Permission bits with setuid, setgid and sticky.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of names; for a directory 2 and one for each subdirectory.
    pub nlink: u32,
    /// Device number of device files.
    pub rdev: u32,
    /// Committed size, bytes.
    pub size: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the contents.
    pub mtime: Timestamp,
    /// Last change of anything.
    pub ctime: Timestamp,
    /// Number of the last change.
    pub change: u64,
    /// Number of the last truncation or fence.
    pub generation: Generation,
    /// Always 1: revocations are numbered for all files together.
    pub capability_version: u64,
    /// Its directory; for a file with several names, that of the name made or moved last.
    pub parent: FileId,
    /// Number of extended attributes.
    pub xattrs: u32,
    /// Bytes of their names, plus one for each.
    pub xattr_name_bytes: u32,
    /// Fields of its kind.
    pub body: Body,
    /// Time of creation; unknown for older files.
    pub birth: Option<Timestamp>,
    /// Whether it has an access control list.
    pub has_acl: bool,
    /// Whether the directory has a default list for new files.
    pub has_default_acl: bool,
    /// For a regular file: where it may have holes.
    pub holes: Holes,
    /// The access control list, once it was looked up ([`Inode::has_acl`]); not stored here.
    pub acl: Option<Acl>,
}

/// Fields of some kinds of files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// A directory.
    Directory(Directory),
    /// A regular file.
    File(RegularFile),
    /// Anything else.
    Other,
}

/// Fields of directories.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directory {
    /// Cookie of the next entry.
    pub next_cookie: u64,
    /// Default layout of new files.
    pub default_layout: LayoutSpec,
}
weir_types::codec_struct!(Directory { next_cookie, default_layout });

/// Fields of regular files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegularFile {
    /// Its layout spec, which later segments follow.
    pub spec: LayoutSpec,
    /// Position of its first column in target order.
    pub base: u32,
    /// Number of the last change of any segment.
    pub epoch: Epoch,
    /// The list of segments in use. Emptying the file begins a new list, so that it takes the same
    /// time however many segments there are.
    pub list: u32,
    /// Index of the next segment. Indexes are never used again.
    pub next_segment: u32,
    /// Preferred size of calls, bytes.
    pub io_bytes: u32,
    /// A truncation that may not have reached all objects.
    pub pending_truncate: Option<PendingTruncate>,
}
weir_types::codec_struct!(RegularFile {
    spec,
    base,
    epoch,
    list,
    next_segment,
    io_bytes,
    pending_truncate
});

impl RegularFile {
    /// A file without a layout yet.
    pub fn unplaced(spec: LayoutSpec) -> Self {
        Self {
            spec,
            base: 0,
            epoch: Epoch(0),
            list: 0,
            next_segment: 0,
            io_bytes: 0,
            pending_truncate: None,
        }
    }

    /// The layout with some of its segments, for a file that no other session writes.
    pub fn layout(&self, segments: Vec<Segment>) -> FileLayout {
        let (kind, duplication) = (self.spec.kind, self.spec.duplication.unwrap_or_default());
        let placement = self.spec.placement.of(kind);
        let columns = segments.first().map_or(0, |segment| segment.columns.len());
        let acting = duplication.acting(columns, 1);
        let (base, epoch) = (self.base, self.epoch);
        FileLayout { kind, base, epoch, duplication, acting, placement, segments }
    }

    /// Takes over a new layout, except its segments.
    pub fn adopt(&mut self, layout: &FileLayout) {
        self.base = layout.base;
        self.io_bytes = preferred_io_bytes(layout);
    }
}

impl Inode {
    /// A new file with one name (or a directory), without permission bits or owner.
    pub fn new(kind: FileKind, parent: FileId, now: Timestamp, body: Body) -> Self {
        Self {
            kind,
            mode: 0,
            uid: 0,
            gid: 0,
            nlink: if kind == FileKind::Directory { 2 } else { 1 },
            rdev: 0,
            size: 0,
            atime: now,
            mtime: now,
            ctime: now,
            change: 1,
            generation: Generation(1),
            capability_version: 1,
            parent,
            xattrs: 0,
            xattr_name_bytes: 0,
            body,
            birth: Some(now),
            has_acl: false,
            has_default_acl: false,
            holes: Holes::None,
            acl: None,
        }
    }

    /// The fields of an empty directory.
    pub fn empty_directory(default_layout: LayoutSpec) -> Body {
        Body::Directory(Directory { next_cookie: FIRST_COOKIE, default_layout })
    }

    /// Whether a writer has died, and the size was not determined from the objects since.
    pub fn size_unknown(&self) -> bool {
        match &self.body {
            Body::File(file) => {
                file.pending_truncate.as_ref().is_some_and(|pending| pending.size == TO_THE_END)
            }
            _ => false,
        }
    }

    /// Whether optional fields follow those of its kind.
    fn has_end(&self) -> bool {
        self.birth.is_some() || self.has_acl || self.has_default_acl || self.holes != Holes::None
    }

    /// Records a change of something other than the contents.
    pub fn changed(&mut self, now: Timestamp) {
        self.ctime = now;
        self.change += 1;
    }

    /// Records a change of the contents.
    pub fn modified(&mut self, now: Timestamp) {
        self.mtime = now;
        self.changed(now);
    }

    /// The attributes as clients see them.
    pub fn attr(&self, file: FileId) -> Attr {
        Attr {
            file,
            kind: self.kind,
            mode: self.mode,
            nlink: self.nlink,
            uid: self.uid,
            gid: self.gid,
            rdev: self.rdev,
            size: self.size,
            atime: self.atime,
            mtime: self.mtime,
            ctime: self.ctime,
            change: self.change,
            generation: self.generation,
            preferred_io_bytes: match &self.body {
                Body::File(file) => file.io_bytes,
                _ => OTHER_IO_BYTES,
            },
            birth: self.birth,
            extras: Extras {
                any: self.xattrs > 0,
                acl: self.has_acl,
                default_acl: self.has_default_acl,
            },
            sparse: self.holes != Holes::None,
        }
    }
}

impl Encode for Inode {
    fn encode(&self, out: &mut Vec<u8>) {
        self.kind.encode(out);
        self.mode.encode(out);
        self.uid.encode(out);
        self.gid.encode(out);
        self.nlink.encode(out);
        self.rdev.encode(out);
        self.size.encode(out);
        self.atime.encode(out);
        self.mtime.encode(out);
        self.ctime.encode(out);
        self.change.encode(out);
        self.generation.encode(out);
        self.capability_version.encode(out);
        self.parent.encode(out);
        self.xattrs.encode(out);
        self.xattr_name_bytes.encode(out);
        match &self.body {
            Body::Directory(body) => body.encode(out),
            Body::File(body) => body.encode(out),
            Body::Other => {}
        }
        if self.has_end() {
            self.birth.encode(out);
            self.has_acl.encode(out);
            self.has_default_acl.encode(out);
            self.holes.encode(out);
        }
    }
}

/// Optional fields at the end are missing from older inodes.
impl Decode for Inode {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let kind = FileKind::decode(r)?;
        let mut inode = Self {
            kind,
            mode: Decode::decode(r)?,
            uid: Decode::decode(r)?,
            gid: Decode::decode(r)?,
            nlink: Decode::decode(r)?,
            rdev: Decode::decode(r)?,
            size: Decode::decode(r)?,
            atime: Decode::decode(r)?,
            mtime: Decode::decode(r)?,
            ctime: Decode::decode(r)?,
            change: Decode::decode(r)?,
            generation: Decode::decode(r)?,
            capability_version: Decode::decode(r)?,
            parent: Decode::decode(r)?,
            xattrs: Decode::decode(r)?,
            xattr_name_bytes: Decode::decode(r)?,
            body: match kind {
                FileKind::Directory => Body::Directory(Decode::decode(r)?),
                FileKind::File => Body::File(Decode::decode(r)?),
                _ => Body::Other,
            },
            birth: None,
            has_acl: false,
            has_default_acl: false,
            holes: Holes::None,
            acl: None,
        };
        if r.remaining() > 0 {
            inode.birth = Decode::decode(r)?;
            inode.has_acl = Decode::decode(r)?;
            inode.has_default_acl = Decode::decode(r)?;
            inode.holes = Decode::decode(r)?;
            if !inode.has_end() {
                return Err(DecodeError::BadValue);
            }
        }
        Ok(inode)
    }
}

impl Decode for Box<Inode> {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Inode::decode(r).map(Box::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_round_trips() {
        let bodies = [
            (FileKind::Directory, Inode::empty_directory(LayoutSpec::default())),
            (FileKind::File, Body::File(RegularFile::unplaced(LayoutSpec::default()))),
            (FileKind::Fifo, Body::Other),
        ];
        for (kind, body) in bodies {
            let inode = Inode::new(kind, FileId(9), Timestamp(5), body);
            assert_eq!(Inode::from_bytes(&inode.to_bytes()).unwrap(), inode);
            // As it was stored before times of birth were kept.
            let before = Inode { birth: None, ..inode.clone() };
            let bytes = before.to_bytes();
            assert_eq!(bytes.len() + 11, inode.to_bytes().len());
            assert_eq!(Inode::from_bytes(&bytes).unwrap(), before);
            let with_acl = Inode { has_acl: true, ..before };
            assert_eq!(Inode::from_bytes(&with_acl.to_bytes()).unwrap(), with_acl);
            for (holes, bytes) in [(Holes::From(7), 9), (Holes::Anywhere, 1)] {
                let sparse = Inode { holes, ..inode.clone() };
                assert_eq!(Inode::from_bytes(&sparse.to_bytes()).unwrap(), sparse);
                assert_eq!(sparse.to_bytes().len(), inode.to_bytes().len() + bytes);
            }
        }
    }
}
