//! How many segments wait for parities, get some, and have some, and the room that they take.

use weir_types::{Scheme, Segment, SegmentState};

/// Segments of files that get parities, and their bytes if they have no holes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coding {
    /// Segments that have only copies.
    pub waiting: u64,
    /// Segments whose parities are being made.
    pub sealed: u64,
    /// Segments whose parities count.
    pub coded: u64,
    /// Bytes of files.
    pub logical_bytes: u64,
    /// Bytes of columns, parities and all copies.
    pub stored_bytes: u64,
    /// The part of these that goes when all segments have parities, and no copies that need not stay.
    pub reclaimable_bytes: u64,
}

impl Coding {
    /// A segment that gets so many parities, and keeps so many copies of its columns. `bytes` says
    /// what a column or parity has.
    pub fn of(
        segment: &Segment,
        (parities, copies): (u8, u8),
        bytes: impl Fn(usize) -> u64,
    ) -> Self {
        let columns = segment.columns.len();
        let logical_bytes = (0..columns).map(&bytes).sum::<u64>();
        let of = |(number, copies): (usize, usize)| bytes(number).saturating_mul(copies as u64);
        let members = segment.members().map(|(number, member)| {
            let number = usize::from(number.0);
            (number, member.copies().count())
        });
        let stored_bytes = members.map(of).sum::<u64>();
        let kept = logical_bytes.saturating_mul(copies.into());
        let least = kept.saturating_add(of((columns, parities.into())));
        let (coded, sealed) = match (segment.scheme, segment.state) {
            (Scheme::Coded, _) => (1, 0),
            (Scheme::Copies, SegmentState::Sealed) => (0, 1),
            (Scheme::Copies, SegmentState::Open) => (0, 0),
        };
        Self {
            waiting: 1 - coded - sealed,
            sealed,
            coded,
            logical_bytes,
            stored_bytes,
            reclaimable_bytes: stored_bytes.saturating_sub(least),
        }
    }

    /// Adds others.
    pub fn add(&mut self, more: &Self) {
        self.each(more, u64::saturating_add);
    }

    /// Takes others away.
    pub fn subtract(&mut self, less: &Self) {
        self.each(less, u64::saturating_sub);
    }

    fn each(&mut self, other: &Self, with: fn(u64, u64) -> u64) {
        let Self { waiting, sealed, coded, logical_bytes, stored_bytes, reclaimable_bytes } = self;
        *waiting = with(*waiting, other.waiting);
        *sealed = with(*sealed, other.sealed);
        *coded = with(*coded, other.coded);
        *logical_bytes = with(*logical_bytes, other.logical_bytes);
        *stored_bytes = with(*stored_bytes, other.stored_bytes);
        *reclaimable_bytes = with(*reclaimable_bytes, other.reclaimable_bytes);
    }

    /// Number of segments.
    pub fn segments(&self) -> u64 {
        self.waiting.saturating_add(self.sealed).saturating_add(self.coded)
    }

    /// Names and values for status messages.
    pub fn list(&self) -> Vec<(String, u64)> {
        vec![
            ("encoding.bytes.logical".into(), self.logical_bytes),
            ("encoding.bytes.reclaimable".into(), self.reclaimable_bytes),
            ("encoding.bytes.stored".into(), self.stored_bytes),
            ("encoding.segments.coded".into(), self.coded),
            ("encoding.segments.sealed".into(), self.sealed),
            ("encoding.segments.waiting".into(), self.waiting),
        ]
    }
}
