//! Files read and written piece by piece, hashed on the way.

use crate::failure::{Done, Failure};
use blake3::{Hash, Hasher};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

/// Bytes of a piece. Of a set as many pieces are in memory as it has blocks.
pub const PIECE_BYTES: usize = 256 << 10;

/// How far something has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// So many bytes were read.
    Read(u64),
    /// Something is about to change on disk.
    Change,
}

/// Is told of every step, and ends the work there if it fails.
pub type Watch<'a> = &'a mut dyn FnMut(Step) -> Done;

/// Fills the piece as far as there are bytes; returns how many.
pub fn read_piece(mut file: impl Read, path: &Path, piece: &mut [u8]) -> Done<usize> {
    let mut filled = 0;
    while filled < piece.len() {
        match file.read(&mut piece[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(Failure::file(path, error)),
        }
    }
    Ok(filled)
}

/// The hash and the length of a file.
pub fn hash(file: &mut File, path: &Path, watch: Watch<'_>) -> Done<(Hash, u64)> {
    let (mut hasher, mut len) = (Hasher::new(), 0);
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let count = read_piece(&*file, path, &mut piece)?;
        if count == 0 {
            return Ok((hasher.finalize(), len));
        }
        hasher.update(&piece[..count]);
        len += count as u64;
        watch(Step::Read(count as u64))?;
    }
}
