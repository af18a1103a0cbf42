//! The inode: everything of a file but its names, segments and attributes.

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

/// The preferred size of calls where there is no layout.
const OTHER_IO_BYTES: u32 = 4096;
/// Cookies 1 and 2 are left to clients for `.` and `..`.
pub const FIRST_COOKIE: u64 = 3;

/// What is stored of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inode {
    /// What it is.
    pub kind: FileKind,
    /// Permission bits with setuid, setgid and sticky.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names that point here; of a directory 2 and one for each subdirectory.
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
    /// Grows at each change.
    pub change: u64,
    /// Grows at each truncation.
    pub generation: Generation,
    /// The version of capabilities.
    pub capability_version: u64,
    /// The directory that it is in; of a file with several names, the one of
    /// the name that was made or moved last.
    pub parent: FileId,
    /// Extended attributes.
    pub xattrs: u32,
    /// Bytes of their names, with one more for each.
    pub xattr_name_bytes: u32,
    /// What only its kind has.
    pub body: Body,
    /// When it was made; not known of files from before that was kept.
    pub birth: Option<Timestamp>,
    /// One of its extended attributes is an access control list.
    pub has_acl: bool,
    /// One is the list that new files of this directory get.
    pub has_default_acl: bool,
    /// Of a regular file: where it may have holes.
    pub holes: Holes,
    /// That list, once it was looked up ([`Inode::has_acl`]); not stored here.
    pub acl: Option<Acl>,
}

/// What only some kinds of file have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// A directory.
    Directory(Directory),
    /// A regular file.
    File(RegularFile),
    /// Anything else.
    Other,
}

/// What only directories have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directory {
    /// The cookie of the next entry.
    pub next_cookie: u64,
    /// What new files get.
    pub default_layout: LayoutSpec,
}
weir_types::codec_struct!(Directory { next_cookie, default_layout });

/// What only regular files have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegularFile {
    /// What it was laid out by; more segments follow it.
    pub spec: LayoutSpec,
    /// Position of its first column in target order.
    pub base: u32,
    /// Grows at each change of any segment.
    pub epoch: Epoch,
    /// Which list of segments is in use. Emptying the file begins a new one,
    /// so that it takes the same time however many segments there are.
    pub list: u32,
    /// The number of the next segment; numbers are never used again.
    pub next_segment: u32,
    /// Preferred size of calls, bytes.
    pub io_bytes: u32,
    /// A truncation that objects may not have seen.
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
    /// A file that is still to be laid out.
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

    /// The layout with these segments of it, for a file that nobody else writes.
    pub fn layout(&self, segments: Vec<Segment>) -> FileLayout {
        let (kind, duplication) = (self.spec.kind, self.spec.duplication.unwrap_or_default());
        let placement = self.spec.placement.of(kind);
        let columns = segments.first().map_or(0, |segment| segment.columns.len());
        let acting = duplication.acting(columns, 1);
        let (base, epoch) = (self.base, self.epoch);
        FileLayout { kind, base, epoch, duplication, acting, placement, segments }
    }

    /// Takes over what a new layout says, except its segments.
    pub fn adopt(&mut self, layout: &FileLayout) {
        self.base = layout.base;
        self.io_bytes = preferred_io_bytes(layout);
    }
}

impl Inode {
    /// A new file of one name (or directory), without permission bits or owner.
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

    /// An empty directory's body.
    pub fn empty_directory(default_layout: LayoutSpec) -> Body {
        Body::Directory(Directory { next_cookie: FIRST_COOKIE, default_layout })
    }

    /// Whether a writer has died, and nobody has asked the objects since how long
    /// the file is.
    pub fn size_unknown(&self) -> bool {
        match &self.body {
            Body::File(file) => {
                file.pending_truncate.as_ref().is_some_and(|pending| pending.size == TO_THE_END)
            }
            _ => false,
        }
    }

    /// Whether it ends with anything after what only its kind has.
    fn has_end(&self) -> bool {
        self.birth.is_some() || self.has_acl || self.has_default_acl || self.holes != Holes::None
    }

    /// Notes that something but the contents changed.
    pub fn changed(&mut self, now: Timestamp) {
        self.ctime = now;
        self.change += 1;
    }

    /// Notes that the contents changed.
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

/// What an inode ends with is missing from those that were stored before it was kept.
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
