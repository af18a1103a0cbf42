//! Checksums: a piece of an object is cut at block boundaries, and each cut has a checksum of
//! exactly its bytes. The first and the last cut of a piece may be parts of blocks.

use crate::share::Piece;
use weir_types::limits::{BLOCK, BLOCK_BYTES};

/// A part of a piece that lies inside one block of the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cut {
    /// Its first byte in the object.
    pub object_offset: u64,
    /// Its bytes: 1 to [`BLOCK_BYTES`].
    pub len: usize,
}

impl Cut {
    /// Whether it is a whole block.
    pub fn is_whole(&self) -> bool {
        self.len == BLOCK_BYTES
    }
}

/// The cuts of the pieces, in the order of their bytes in the payload.
pub fn cuts(pieces: &[Piece]) -> impl Iterator<Item = Cut> + '_ {
    pieces.iter().flat_map(piece_cuts)
}

fn piece_cuts(piece: &Piece) -> impl Iterator<Item = Cut> + use<> {
    let end = piece.end();
    let mut at = piece.object_offset;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let len = (BLOCK - at % BLOCK).min(end - at);
        let cut = Cut { object_offset: at, len: len as usize };
        at += len;
        Some(cut)
    })
}

/// Number of cuts that [`cuts`] yields, computed without iterating.
pub fn cut_count(pieces: &[Piece]) -> u64 {
    pieces
        .iter()
        .filter(|piece| piece.len > 0)
        .map(|piece| (piece.end() - 1) / BLOCK - piece.object_offset / BLOCK + 1)
        .sum()
}

/// Removes from `pieces` all bytes beyond an object length; keeps the order. Returns the bytes that
/// are left. The other bytes read as zeros and are not sent.
pub fn clip(pieces: &mut Vec<Piece>, object_len: u64) -> u64 {
    let mut total = 0;
    pieces.retain_mut(|piece| {
        piece.len = piece.len_within(object_len);
        total += piece.len;
        piece.len > 0
    });
    total
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use weir_types::limits::{MAX_CHECKSUMS, MAX_PAYLOAD_BYTES, MAX_PIECES};

    fn any_pieces() -> impl Strategy<Value = Vec<Piece>> {
        proptest::collection::vec((0u64..40_000, 1u64..20_000), 0..8).prop_map(|raw| {
            raw.into_iter().map(|(object_offset, len)| Piece { object_offset, len }).collect()
        })
    }

    fn bytes(pieces: &[Piece]) -> Vec<u64> {
        pieces.iter().flat_map(|p| p.object_offset..p.end()).collect()
    }

    proptest! {
        #[test]
        fn cuts_are_the_bytes_of_the_pieces_block_by_block(pieces in any_pieces()) {
            let all: Vec<Cut> = cuts(&pieces).collect();
            let walked: Vec<u64> =
                all.iter().flat_map(|c| c.object_offset..c.object_offset + c.len as u64).collect();
            prop_assert_eq!(walked, bytes(&pieces));
            prop_assert_eq!(cut_count(&pieces), all.len() as u64);
            for cut in all {
                let last = cut.object_offset + cut.len as u64 - 1;
                prop_assert_eq!(cut.object_offset / BLOCK, last / BLOCK);
                prop_assert_eq!(cut.is_whole(), cut.len == 4096);
            }
        }

        #[test]
        fn a_clipped_piece_holds_what_exists(pieces in any_pieces(), object_len in 0u64..60_000) {
            let exist: Vec<u64> =
                bytes(&pieces).into_iter().filter(|&offset| offset < object_len).collect();
            let mut clipped = pieces;
            prop_assert_eq!(clip(&mut clipped, object_len), exist.len() as u64);
            prop_assert_eq!(bytes(&clipped), exist);
            prop_assert!(clipped.iter().all(|piece| piece.len > 0));
        }
    }

    #[test]
    fn the_worst_request_fits_the_checksums_of_one_frame() {
        // All pieces have partial blocks at both ends and fill one frame together.
        let len = (MAX_PAYLOAD_BYTES / MAX_PIECES) as u64;
        let pieces: Vec<Piece> = (0..MAX_PIECES as u64)
            .map(|i| Piece { object_offset: i * 2 * BLOCK + BLOCK - 1, len })
            .collect();
        assert!(cut_count(&pieces) <= MAX_CHECKSUMS as u64);
    }
}
