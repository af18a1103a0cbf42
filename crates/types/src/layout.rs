//! The layout of a file: how its bytes are cut into segments and placed on targets. Only the data;
//! the maths is in `weir-layout`.

use crate::codec::{Decode, DecodeError, Encode, Reader};
use crate::id::{ColumnIndex, CopyIndex, Epoch, SegmentIndex, TargetId};
use crate::limits::{
    MAX_CODED_COLUMNS, MAX_COLUMNS, MAX_FILE_BYTES, MAX_PARITIES, MAX_STRIPE_UNIT_BYTES,
    MIN_CODED_COLUMNS, MIN_STRIPE_UNIT_BYTES,
};

/// The redundancy of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// Copies of each column; a single copy has no redundancy.
    #[default]
    Copies,
    /// An erasure code. As many of its columns and parities may be lost as it has parities.
    Coded,
}
crate::codec_tag!(Scheme { Copies = 0, Coded = 1 });

/// Whether a segment may be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SegmentState {
    /// The segment may be written.
    #[default]
    Open,
    /// The segment may not be written: it has parities, or they are being made.
    Sealed,
}
crate::codec_tag!(SegmentState { Open = 0, Sealed = 1 });

/// Who writes the copies, and when a write is acknowledged (CEFT-PVFS).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Duplication {
    /// The primary's server forwards a write, and acknowledges it when all copies have it.
    #[default]
    ServerSync,
    /// The primary's server acknowledges a write at once, and forwards it later.
    ServerAsync,
    /// The client sends a write to all copies and waits for all of them.
    ClientSync,
    /// The client sends a write to all copies and waits for the primary only.
    ClientAsync,
    /// `ServerSync` while the group has more servers than the file has writers; otherwise
    /// `ClientAsync`.
    Hybrid,
}

impl Duplication {
    /// The protocol in effect for a file of this many columns, on a group of as many servers, with
    /// this many clients that have it open for writing. Resolves `Hybrid`.
    pub fn acting(self, columns: usize, writers: usize) -> Self {
        match self {
            Duplication::Hybrid if columns > writers => Duplication::ServerSync,
            Duplication::Hybrid => Duplication::ClientAsync,
            other => other,
        }
    }

    /// Whether clients send writes to all copies.
    pub fn is_by_client(self) -> bool {
        matches!(self, Duplication::ClientSync | Duplication::ClientAsync)
    }

    /// Whether a write is acknowledged before all copies have it.
    pub fn is_later(self) -> bool {
        matches!(self, Duplication::ServerAsync | Duplication::ClientAsync)
    }
}
crate::codec_tag!(Duplication {
    ServerSync = 0,
    ServerAsync = 1,
    ClientSync = 2,
    ClientAsync = 3,
    Hybrid = 4,
});

/// Where the copies of a column are placed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Placement {
    /// The default: `Random` for chunked files, `Chained` for others.
    #[default]
    Usual,
    /// On the nodes that follow the one of the first copy (River's chained declustering).
    Chained,
    /// The nodes are in two groups: first copies are in one group, second copies in the other
    /// (CEFT-PVFS).
    Groups,
    /// On random distinct nodes (HDFS).
    Random,
    /// For chunked files: each chunk goes to that target of the file which the writer predicts to
    /// finish it first (graduated writing, 1.14). Further copies go to the targets that follow.
    Graduated,
}
crate::codec_tag!(Placement { Usual = 0, Chained = 1, Groups = 2, Random = 3, Graduated = 4 });

impl Placement {
    /// The placement in effect for this family of layouts. Resolves `Usual`.
    pub fn of(self, kind: LayoutKind) -> Self {
        match (self, kind) {
            (Self::Usual, LayoutKind::Chunked) => Self::Random,
            (Self::Usual, _) => Self::Chained,
            (chosen, _) => chosen,
        }
    }
}

/// One column: the targets of its copies, the primary first. Never empty.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Column {
    /// The target of each copy. The position of a copy is part of its object's id, so a removed
    /// copy is replaced by [`TargetId::NONE`].
    pub targets: Vec<TargetId>,
}

impl Column {
    /// The existing copies, in order.
    pub fn copies(&self) -> impl Iterator<Item = (CopyIndex, TargetId)> + Clone + '_ {
        let all = self.targets.iter().enumerate().map(|(copy, t)| (CopyIndex(copy as u8), *t));
        all.filter(|(_, target)| *target != TargetId::NONE)
    }
}
crate::codec_struct!(Column { targets });

/// A copy that is being made. It receives all writes, and is not read yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Filling {
    /// The column.
    pub column: ColumnIndex,
    /// The copy.
    pub copy: CopyIndex,
}
crate::codec_struct!(Filling { column, copy });

/// A contiguous byte range of a file with its own layout.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Segment {
    /// Number of the segment. It is part of the ids of its objects, and is never reused within the
    /// file.
    pub index: SegmentIndex,
    /// First byte of the file in this segment.
    pub start: u64,
    /// Length in bytes. `None`: open-ended, which only the last segment may be.
    pub len: Option<u64>,
    /// Stripe unit: consecutive bytes on one column.
    pub stripe_unit_bytes: u32,
    /// The columns, in stripe order. Never empty.
    pub columns: Vec<Column>,
    /// Its redundancy.
    pub scheme: Scheme,
    /// Whether it may be written.
    pub state: SegmentState,
    /// Grows at each change of this segment's layout.
    pub epoch: Epoch,
    /// Copies that are being made, sorted. Every column has at least one complete copy.
    pub filling: Vec<Filling>,
    /// The parities of a sealed segment; an open one has none. They are numbered like columns,
    /// after the last column.
    pub parities: Vec<Column>,
}

impl Segment {
    /// A column, or a parity, which are numbered after the columns.
    pub fn member(&self, number: usize) -> Option<&Column> {
        let parity = number.checked_sub(self.columns.len());
        parity.map_or_else(|| self.columns.get(number), |parity| self.parities.get(parity))
    }

    /// The columns and then the parities, each with its number.
    pub fn members(&self) -> impl Iterator<Item = (ColumnIndex, &Column)> + Clone {
        let all = self.columns.iter().chain(&self.parities).enumerate();
        all.map(|(number, member)| (ColumnIndex(number as u16), member))
    }

    /// Whether the segment has parities that replace lost columns.
    pub fn is_coded(&self) -> bool {
        self.scheme == Scheme::Coded
    }

    /// Whether a copy of a column is still being made.
    pub fn is_filling(&self, column: ColumnIndex, copy: CopyIndex) -> bool {
        self.filling.binary_search(&Filling { column, copy }).is_ok()
    }

    /// The first byte of the file after the segment.
    pub fn end(&self) -> u64 {
        self.len.map_or(MAX_FILE_BYTES, |len| self.start + len)
    }

    /// The target that holds a copy of a column, or of a parity.
    pub fn target(&self, column: usize, copy: CopyIndex) -> Option<TargetId> {
        self.member(column)?.targets.get(usize::from(copy.0)).copied()
    }

    /// The stripe map, which locates every byte of the segment.
    pub fn stripe(&self) -> StripeMap {
        StripeMap { unit_bytes: self.stripe_unit_bytes, columns: self.columns.len() as u16 }
    }
}

/// Tag in place of the scheme if copies are being made.
const FILLING: u8 = 0x40;
/// Tag in place of the scheme if there are parities.
const PARITIES: u8 = 0x41;

impl Encode for Segment {
    fn encode(&self, out: &mut Vec<u8>) {
        self.index.encode(out);
        self.start.encode(out);
        self.len.encode(out);
        self.stripe_unit_bytes.encode(out);
        self.columns.encode(out);
        // Encoded only if there are such copies, so that older segments stay readable.
        if !self.parities.is_empty() {
            (PARITIES, (self.scheme, (&self.filling, &self.parities))).encode(out);
        } else if !self.filling.is_empty() {
            (FILLING, &self.filling).encode(out);
        } else {
            self.scheme.encode(out);
        }
        self.state.encode(out);
        self.epoch.encode(out);
    }
}

impl Decode for Segment {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (index, start, len) = (Decode::decode(r)?, Decode::decode(r)?, Decode::decode(r)?);
        let (stripe_unit_bytes, columns) = (Decode::decode(r)?, Decode::decode(r)?);
        let mut filling: Vec<Filling> = Vec::new();
        let mut parities: Vec<Column> = Vec::new();
        let scheme = match u8::decode(r)? {
            PARITIES => {
                let scheme = Decode::decode(r)?;
                (filling, parities) = (Decode::decode(r)?, Decode::decode(r)?);
                if parities.is_empty() || !parities.iter().all(|p| p.copies().next().is_some()) {
                    return Err(DecodeError::BadValue);
                }
                scheme
            }
            FILLING => {
                filling = Decode::decode(r)?;
                if filling.is_empty() {
                    return Err(DecodeError::BadValue);
                }
                Scheme::Copies
            }
            tag => Scheme::from_bytes(&[tag])?,
        };
        let (state, epoch) = (Decode::decode(r)?, Decode::decode(r)?);
        let segment = Self {
            index,
            start,
            len,
            stripe_unit_bytes,
            columns,
            scheme,
            state,
            epoch,
            filling,
            parities,
        };
        let end = segment.start.checked_add(segment.len.unwrap_or(0));
        let fits = end.is_some_and(|end| end <= MAX_FILE_BYTES);
        let columns = segment.columns.len();
        let copies = segment.columns.first().map_or(0, |c| c.targets.len());
        let even = segment.members().all(|(_, c)| c.targets.len() == copies);
        let few = segment.parities.len() <= MAX_PARITIES
            && (MIN_CODED_COLUMNS..=MAX_CODED_COLUMNS).contains(&columns);
        let sealed = match segment.parities.is_empty() {
            true => segment.scheme == Scheme::Copies && segment.state == SegmentState::Open,
            false => segment.state == SegmentState::Sealed && few,
        };
        let there = |f: &Filling| {
            let target = segment.target(usize::from(f.column.0), f.copy);
            target.is_some_and(|target| target != TargetId::NONE)
        };
        let sorted = segment.filling.is_sorted_by(|a, b| a < b);
        // A column without a complete copy is invalid.
        let is_whole = |column: usize| {
            let mut there = segment.columns[column].copies();
            there.any(|(copy, _)| !segment.is_filling(ColumnIndex(column as u16), copy))
        };
        let whole = columns > MAX_COLUMNS || (0..columns).all(is_whole);
        let fillings = sorted && whole && segment.filling.iter().all(there);
        if !fits || columns > MAX_COLUMNS || copies == 0 || copies > 255 || !even || !fillings {
            return Err(DecodeError::BadValue);
        }
        if !sealed {
            return Err(DecodeError::BadValue);
        }
        segment.stripe().check()?;
        Ok(segment)
    }
}

/// Stripe unit and number of columns. With the number of its own column, a server can compute its
/// share of a region (PVFS, paper 0 section 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StripeMap {
    /// Stripe unit: consecutive bytes on one column.
    pub unit_bytes: u32,
    /// Number of columns.
    pub columns: u16,
}

impl StripeMap {
    /// Refuses numbers that no layout has.
    pub fn check(self) -> Result<(), DecodeError> {
        let unit_ok = (MIN_STRIPE_UNIT_BYTES..=MAX_STRIPE_UNIT_BYTES).contains(&self.unit_bytes)
            && self.unit_bytes.is_multiple_of(MIN_STRIPE_UNIT_BYTES);
        let columns_ok = (1..=MAX_COLUMNS).contains(&usize::from(self.columns));
        if unit_ok && columns_ok { Ok(()) } else { Err(DecodeError::BadValue) }
    }
}

impl Encode for StripeMap {
    fn encode(&self, out: &mut Vec<u8>) {
        self.unit_bytes.encode(out);
        self.columns.encode(out);
    }
}
impl Decode for StripeMap {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let map = Self { unit_bytes: Decode::decode(r)?, columns: Decode::decode(r)? };
        map.check()?;
        Ok(map)
    }
}

/// The families of layout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LayoutKind {
    /// PVFS: one segment, striped round robin from a base target.
    #[default]
    Striped,
    /// River: each fragment is a segment of one column. Sizes may differ; the last one is
    /// open-ended.
    Fragments,
    /// HDFS: segments of equal size, one column each, on random targets.
    Chunked,
}
crate::codec_tag!(LayoutKind { Striped = 0, Fragments = 1, Chunked = 2 });

/// A user's choice of layout, kept on directories as the default of new files. Zeros and empty
/// fields mean "choose for me".
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LayoutSpec {
    /// The family.
    pub kind: LayoutKind,
    /// Index of the first target in target order (striped, fragments). `None`: chosen to balance
    /// the load.
    pub base: Option<u32>,
    /// Number of targets; 0: all.
    pub count: u16,
    /// Striped: the stripe unit, bytes; 0: 64 KiB.
    pub stripe_unit_bytes: u32,
    /// Chunked: bytes of a chunk; 0: 64 MiB. Fragments: bytes of every
    /// fragment that has no entry in `fragment_bytes`; 0: 64 MiB.
    pub segment_bytes: u64,
    /// Fragments: the size of each, in order.
    pub fragment_bytes: Vec<u64>,
    /// Copies of each column; 0: 1; at most 8.
    pub copies: u8,
    /// How copies are written; `None`: [`Duplication::ServerSync`].
    pub duplication: Option<Duplication>,
    /// Where copies are placed.
    pub placement: Placement,
    /// Parities that replace the copies of a file which is no longer written; 0: none.
    pub parities: u8,
    /// Whether two copies of each column stay beside the parities.
    pub mirrors: bool,
    /// A file gets parities when it was not written for this long, seconds.
    pub encode_after_s: u32,
}

impl Encode for LayoutSpec {
    fn encode(&self, out: &mut Vec<u8>) {
        // One byte holds both, as below.
        let coded = if self.parities > 0 { CODED } else { 0 };
        (self.kind as u8 | coded | (self.placement as u8) << 4).encode(out);
        self.base.encode(out);
        self.count.encode(out);
        self.stripe_unit_bytes.encode(out);
        self.segment_bytes.encode(out);
        self.fragment_bytes.encode(out);
        // One byte holds both, the protocol in the upper half. So records without a protocol stay
        // readable.
        let protocol = match self.duplication {
            None => 0,
            Some(Duplication::ServerSync) => NAMED_SERVER_SYNC,
            Some(other) => other as u8,
        };
        (self.copies & LOWER_HALF | protocol << 4).encode(out);
        if self.parities > 0 {
            let mirrors = if self.mirrors { MIRRORS } else { 0 };
            (self.parities | mirrors, self.encode_after_s).encode(out);
        }
    }
}

/// In the lower half of the first byte: parities follow at the end.
const CODED: u8 = 0x08;

/// In the byte with the number of parities: two copies of each column stay.
const MIRRORS: u8 = 0x80;

/// Mask of the number of copies in the last byte, and of the family in the first byte.
const LOWER_HALF: u8 = 0x0f;

/// In this byte 0 means that no protocol is named, so this protocol has another number there.
const NAMED_SERVER_SYNC: u8 = 5;

impl Decode for LayoutSpec {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let both = u8::decode(r)?;
        let is_coded = both & CODED != 0;
        let kind = LayoutKind::from_bytes(&[both & LOWER_HALF & !CODED])?;
        let placement = Placement::from_bytes(&[both >> 4])?;
        let (base, count) = (Decode::decode(r)?, Decode::decode(r)?);
        let (stripe_unit_bytes, segment_bytes) = (Decode::decode(r)?, Decode::decode(r)?);
        let fragment_bytes = Decode::decode(r)?;
        let both = u8::decode(r)?;
        let duplication = match both >> 4 {
            0 => None,
            NAMED_SERVER_SYNC => Some(Duplication::ServerSync),
            tag => Some(Duplication::from_bytes(&[tag])?),
        };
        let copies = both & LOWER_HALF;
        let (both, encode_after_s) = match is_coded {
            true => (u8::decode(r)?, u32::decode(r)?),
            false => (0, 0),
        };
        let (parities, mirrors) = (both & !MIRRORS, both & MIRRORS != 0);
        if is_coded && !(1..=MAX_PARITIES).contains(&usize::from(parities)) {
            return Err(DecodeError::BadValue);
        }
        Ok(Self {
            kind,
            base,
            count,
            stripe_unit_bytes,
            segment_bytes,
            fragment_bytes,
            copies,
            duplication,
            placement,
            parities,
            mirrors,
            encode_after_s,
        })
    }
}

/// The layout of one file as a client uses it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileLayout {
    /// The family of its layout; later segments follow it.
    pub kind: LayoutKind,
    /// Position of the first column in target order. With the number of columns and the stripe unit
    /// it locates every byte of a striped file.
    pub base: u32,
    /// Grows at each change of any segment.
    pub epoch: Epoch,
    /// The chosen write protocol for copies.
    pub duplication: Duplication,
    /// The write protocol in effect; never [`Duplication::Hybrid`].
    pub acting: Duplication,
    /// The placement of copies; never `Usual`.
    pub placement: Placement,
    /// Sorted by start, without gaps or overlaps, from byte 0.
    pub segments: Vec<Segment>,
}
crate::codec_struct!(FileLayout { kind, base, epoch, duplication, acting, placement, segments });

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(columns: u32, parities: u32) -> Segment {
        let column = |target| Column { targets: vec![TargetId(target)] };
        let (scheme, state) = match parities {
            0 => (Scheme::Copies, SegmentState::Open),
            _ => (Scheme::Coded, SegmentState::Sealed),
        };
        Segment {
            index: SegmentIndex(1),
            start: 0,
            len: None,
            stripe_unit_bytes: 65536,
            columns: (0..columns).map(column).collect(),
            scheme,
            state,
            epoch: Epoch(2),
            filling: Vec::new(),
            parities: (columns..columns + parities).map(column).collect(),
        }
    }

    #[test]
    fn what_has_no_parities_is_stored_as_before_there_were_any() {
        let plain = segment(1, 0).to_bytes();
        // Index, start, no length, unit, one column of one target, scheme, state, epoch.
        let mut expected = vec![1, 0, 0, 0];
        expected.extend([0; 8]);
        expected.extend([0, 0, 0, 1, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        expected.extend([2, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(plain, expected);
        let spec = LayoutSpec { copies: 3, ..LayoutSpec::default() };
        let wished = LayoutSpec { parities: 2, encode_after_s: 60, ..spec.clone() };
        let (spec, wished) = (spec.to_bytes(), wished.to_bytes());
        assert_eq!((spec[0], wished[0]), (0, CODED));
        assert_eq!(
            (&wished[1..spec.len()], &wished[spec.len()..]),
            (&spec[1..], &[2, 60, 0, 0, 0][..])
        );
    }

    #[test]
    fn parities_are_stored_and_numbered_behind_the_columns() {
        let mut coded = segment(4, 2);
        coded.filling = vec![Filling { column: ColumnIndex(5), copy: CopyIndex(0) }];
        assert_eq!(Segment::from_bytes(&coded.to_bytes()), Ok(coded.clone()));
        assert_eq!(coded.target(4, CopyIndex(0)), Some(TargetId(4)));
        assert!(coded.is_filling(ColumnIndex(5), CopyIndex(0)) && coded.member(6).is_none());
        let spec = LayoutSpec { parities: 8, encode_after_s: 7, ..LayoutSpec::default() };
        let mirrors = LayoutSpec { parities: 1, mirrors: true, ..spec.clone() };
        for spec in [spec, mirrors] {
            assert_eq!(LayoutSpec::from_bytes(&spec.to_bytes()), Ok(spec));
        }
    }

    #[test]
    fn parities_that_no_segment_has_are_refused() {
        let refused = |segment: Segment| {
            assert_eq!(Segment::from_bytes(&segment.to_bytes()), Err(DecodeError::BadValue));
        };
        refused(segment(1, 2));
        refused(segment(33, 2));
        refused(segment(4, 9));
        refused(Segment { state: SegmentState::Open, ..segment(4, 2) });
        refused(Segment { scheme: Scheme::Coded, ..segment(4, 0) });
        refused(Segment { state: SegmentState::Sealed, ..segment(4, 0) });
        let nowhere = Column { targets: vec![TargetId::NONE] };
        refused(Segment { parities: vec![nowhere], ..segment(4, 1) });
        for mirrors in [false, true] {
            let spec = LayoutSpec { parities: 9, mirrors, ..LayoutSpec::default() };
            assert_eq!(LayoutSpec::from_bytes(&spec.to_bytes()), Err(DecodeError::BadValue));
        }
    }
}
