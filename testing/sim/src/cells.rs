//! The contents of cells, and their interpretation.

use crate::history::{CELL_BYTES, MAX_TAG, TORN, cell_of_record};

/// The bytes of consecutive cells that one write fills.
pub fn fill(file: u8, first: u32, cells: u32, tag: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(cells as usize * CELL_BYTES);
    for cell in first..first + cells {
        for word in 0..CELL_BYTES as u64 / 8 {
            bytes.extend_from_slice(&(tag ^ place(file, cell, word)).to_le_bytes());
        }
    }
    bytes
}

/// The bytes of a record at any place: its cells are numbered.
pub fn record(file: u8, cells: u32, tag: u64) -> Vec<u8> {
    (0..cells).flat_map(|cell| fill(file, 0, 1, cell_of_record(tag, cell))).collect()
}

/// Interprets cells in which records may begin anywhere.
pub fn records(file: u8, bytes: &[u8]) -> Vec<u64> {
    bytes.chunks(CELL_BYTES).map(|bytes| tag(file, 0, bytes)).collect()
}

/// The tags of whole cells; 0: zeros; [`TORN`]: anything else.
pub fn tags(file: u8, first: u32, bytes: &[u8]) -> Vec<u64> {
    let cells = bytes.chunks(CELL_BYTES).zip(first..);
    cells.map(|(bytes, cell)| tag(file, cell, bytes)).collect()
}

fn tag(file: u8, cell: u32, bytes: &[u8]) -> u64 {
    if bytes.len() == CELL_BYTES && bytes.iter().all(|b| *b == 0) {
        return 0;
    }
    let mut tag = None;
    for (word, bytes) in bytes.chunks(8).enumerate() {
        let Ok(bytes) = bytes.try_into() else { return TORN };
        let found = u64::from_le_bytes(bytes) ^ place(file, cell, word as u64);
        if *tag.get_or_insert(found) != found {
            return TORN;
        }
    }
    match tag {
        Some(tag) if bytes.len() == CELL_BYTES && tag <= MAX_TAG => tag,
        _ => TORN,
    }
}

/// Differs for every word of every cell, so that misplaced bytes are noticed.
fn place(file: u8, cell: u32, word: u64) -> u64 {
    let at = (u64::from(file) << 56) | (u64::from(cell) << 16) | (word + 1);
    at.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1 << 63
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_tells_who_wrote_it_and_where() {
        assert_eq!(records(1, &record(1, 2, 77)), [77, cell_of_record(77, 1)]);
        let bytes = fill(1, 5, 2, 77);
        assert_eq!(tags(1, 5, &bytes), [77, 77]);
        assert_eq!(tags(1, 6, &bytes), [TORN, TORN]);
        assert_eq!(tags(2, 5, &bytes), [TORN, TORN]);
        assert_eq!(tags(1, 5, &[0; 512]), [0]);
        let mut torn = bytes.clone();
        torn[600] ^= 1;
        assert_eq!(tags(1, 5, &torn), [77, TORN]);
        assert_eq!(tags(1, 5, &bytes[..700]), [77, TORN]);
    }
}
