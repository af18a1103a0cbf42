//! The pieces in which a disk is read. A read that begins where the previous one has ended
//! continues its piece. Any other read begins a new piece, which needs a seek.

use weir_types::ObjectId;

/// The most bytes that count of a piece begun in an earlier period. Otherwise one long piece would
/// dominate the mean of many short ones.
const MAX_BEFORE_BYTES: u64 = 4 << 20;
/// The largest mean that is reported, KiB.
const MAX_KIB: u64 = 1 << 20;

/// Pieces since the last report.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    /// End of the last piece.
    at: Option<(ObjectId, u64)>,
    /// Its length so far.
    last_bytes: u64,
    bytes: u64,
    count: u64,
}

impl Pieces {
    /// Records a read that is about to go to the disk.
    pub(crate) fn asked(&mut self, object: ObjectId, offset: u64, len: u64) {
        if self.at != Some((object, offset)) {
            self.last_bytes = 0;
            self.count += 1;
        } else if self.count == 0 {
            self.bytes = self.last_bytes.min(MAX_BEFORE_BYTES);
            self.count = 1;
        }
        self.last_bytes = self.last_bytes.saturating_add(len);
        self.bytes = self.bytes.saturating_add(len);
        self.at = Some((object, offset.saturating_add(len)));
    }

    /// Records a read from memory: the kernel has read it ahead, if it continues the piece.
    pub(crate) fn was_in_memory(&mut self, object: ObjectId, offset: u64, len: u64) {
        if self.at == Some((object, offset)) {
            self.at = Some((object, offset.saturating_add(len)));
        }
    }

    /// Mean size of the pieces, at least 1. Later pieces are counted anew.
    pub(crate) fn take_mean_kib(&mut self) -> u32 {
        // One read may take longer than until it is asked for again.
        let mean = self.bytes.checked_div(self.count).unwrap_or(self.last_bytes);
        (self.bytes, self.count) = (0, 0);
        (mean >> 10).clamp(1, MAX_KIB) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_types::FileId;

    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;

    fn object(file: u64) -> ObjectId {
        ObjectId { file: FileId(file), ..ObjectId::FIRST }
    }

    #[test]
    fn what_goes_on_where_the_last_one_ended_is_the_same_piece() {
        let mut pieces = Pieces::default();
        let of = |file, offsets: &[u64], pieces: &mut Pieces| {
            offsets.iter().for_each(|at| pieces.asked(object(file), at * MIB, MIB));
        };
        of(1, &[0, 1, 2, 3], &mut pieces);
        of(2, &[4, 5, 7, 6], &mut pieces);
        // 4, 2, 1 and 1 MiB.
        assert_eq!(pieces.take_mean_kib(), 2 * 1024);
        of(2, &[8, 9], &mut pieces);
        assert_eq!(pieces.take_mean_kib(), 2 * 1024);
    }

    #[test]
    fn a_slow_disk_that_reads_one_long_piece_does_not_seem_to_read_short_ones() {
        let mut pieces = Pieces::default();
        for n in 0..20 {
            pieces.asked(object(1), n * MIB, MIB);
            let kib = u64::from(pieces.take_mean_kib());
            assert_eq!(kib, (n + 1).min(5) * 1024);
        }
        assert_eq!(pieces.take_mean_kib(), 20 * 1024, "it is still at it");
        // And many short ones are not long because of it.
        pieces.asked(object(1), 20 * MIB, 4 * KIB);
        (0..100).for_each(|n| pieces.asked(object(2), n * MIB, 4 * KIB));
        assert!(pieces.take_mean_kib() < 50);
        pieces.asked(object(2), 0, 10);
        assert_eq!(pieces.take_mean_kib(), 1);
    }

    #[test]
    fn what_the_kernel_has_read_ahead_does_not_end_a_piece() {
        let mut pieces = Pieces::default();
        pieces.asked(object(1), 0, MIB);
        pieces.was_in_memory(object(2), MIB, MIB);
        pieces.was_in_memory(object(1), MIB, MIB);
        pieces.asked(object(1), 2 * MIB, MIB);
        assert_eq!(pieces.take_mean_kib(), 2 * 1024);
        pieces.was_in_memory(object(1), 0, MIB);
        pieces.asked(object(1), MIB, MIB);
        assert_eq!(pieces.take_mean_kib(), 1024);
    }
}
