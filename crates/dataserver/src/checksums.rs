//! The checksums of bytes as an object has them: one for each cut at a block.

use weir_layout::{Piece, cuts};
use weir_types::checksum::crc32c;

/// The checksums of bytes that begin at `offset` of an object.
pub(crate) fn checksums(offset: u64, bytes: &[u8]) -> Vec<u32> {
    let mut rest = bytes;
    let piece = Piece { object_offset: offset, len: bytes.len() as u64 };
    let cut = |len: usize| {
        let (cut, tail) = rest.split_at(len);
        rest = tail;
        crc32c(cut)
    };
    cuts(&[piece]).map(|c| c.len).map(cut).collect()
}
