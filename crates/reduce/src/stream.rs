//! Reads and writes files piece by piece and hashes the bytes on the way.

use crate::failure::{Done, Failure};
use blake3::{Hash, Hasher};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

/// Bytes of a piece. Each block of a set has one piece in memory.
pub const PIECE_BYTES: usize = 256 << 10;

/// Progress of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// This many bytes were read.
    Read(u64),
    /// A change on disk is about to be made.
    Change,
}

/// Callback for every step. If it fails, the work ends there.
pub type Watch<'a> = &'a mut dyn FnMut(Step) -> Done;

/// Fills a piece from a file; returns the bytes read, fewer only at the end of the file.
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
