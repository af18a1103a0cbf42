//! Pieces of an object in a request, and how they are cut at the borders of blocks.

use weir_types::checksum::crc32c;
use weir_types::limits::{BLOCK, BLOCK_BYTES, MAX_FILE_BYTES, MAX_PIECES};
use weir_types::{Error, ErrorKind, Result};

/// CRC-32C of 4096 zeros, the checksum that a slot of zero stands for.
pub(crate) const ZERO_BLOCK_CHECK: u32 = 0x98f9_4189;

/// Refuses pieces beyond the limits. Returns the sum of their lengths, bytes.
pub(crate) fn check_pieces(pieces: &[(u64, u64)]) -> Result<u64> {
    if pieces.len() > MAX_PIECES {
        let message = format!("{} pieces in one request, at most {MAX_PIECES}", pieces.len());
        return Err(Error::new(ErrorKind::InvalidArgument, message));
    }
    let mut total = 0u64;
    for &(offset, len) in pieces {
        let end = offset.checked_add(len).filter(|&end| end <= MAX_FILE_BYTES);
        total = match end.and_then(|_| total.checked_add(len)) {
            Some(total) => total,
            None => {
                let message = format!("offset {offset} plus length {len} is out of range");
                return Err(Error::new(ErrorKind::InvalidArgument, message));
            }
        };
    }
    Ok(total)
}

/// Number of cuts of a piece: one for each block that it touches.
pub(crate) fn cut_count(offset: u64, len: u64) -> usize {
    if len == 0 { 0 } else { ((offset + len - 1) / BLOCK - offset / BLOCK + 1) as usize }
}

/// Cuts the bytes of a piece at block borders. The piece begins at `offset` of the object.
pub(crate) fn cuts(offset: u64, bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let to_border = (BLOCK - offset % BLOCK) as usize;
    let (first, rest) = bytes.split_at(to_border.min(bytes.len()));
    (!first.is_empty()).then_some(first).into_iter().chain(rest.chunks(BLOCK_BYTES))
}

/// The slot of a block of 4096 bytes.
pub(crate) fn slot_of(block: &[u8; BLOCK_BYTES]) -> u32 {
    crc32c(block) ^ ZERO_BLOCK_CHECK
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_block_of_zeros_has_a_slot_of_zero() {
        assert_eq!(slot_of(&[0; BLOCK_BYTES]), 0);
    }

    #[test]
    fn pieces_beyond_the_limits_are_refused() {
        assert_eq!(check_pieces(&[(0, 5), (MAX_FILE_BYTES - 1, 1)]).unwrap(), 6);
        for bad in [(u64::MAX, 1), (0, u64::MAX), (MAX_FILE_BYTES, 1), (u64::MAX, u64::MAX)] {
            assert_eq!(check_pieces(&[bad]).unwrap_err().kind, ErrorKind::InvalidArgument);
        }
        assert!(check_pieces(&vec![(0, 1); MAX_PIECES + 1]).is_err());
    }

    proptest! {
        #[test]
        fn cuts_are_the_piece_cut_at_blocks(offset in 0..20_000u64, len in 0..20_000usize) {
            let bytes = vec![0; len];
            let (mut at, mut count) = (offset, 0);
            for cut in cuts(offset, &bytes) {
                prop_assert_eq!(at / BLOCK, (at + cut.len() as u64 - 1) / BLOCK);
                at += cut.len() as u64;
                prop_assert!(at % BLOCK == 0 || at == offset + len as u64);
                count += 1;
            }
            prop_assert_eq!(at, offset + len as u64);
            prop_assert_eq!(count, cut_count(offset, len as u64));
        }
    }
}
