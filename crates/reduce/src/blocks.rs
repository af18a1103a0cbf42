//! What became of each block of a set.

use crate::failure::{Done, Failure};
use crate::record::Record;
use crate::scan::Copy;
use crate::stream::{Watch, hash};
use crate::tree::Tree;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::ErrorKind;
use weir_layout::set::Block;

/// What there is of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// What was encoded.
    Good,
    /// Nothing.
    Missing,
    /// Other bytes, though nobody has written the file.
    Rotten,
    /// A file that was written since it was encoded.
    Changed,
}

/// Reads and judges all blocks of a set.
pub fn look(tree: &Tree, record: &Record, watch: Watch<'_>) -> Done<BTreeMap<Block, Found>> {
    let mut all = BTreeMap::new();
    for (block, target) in record.set.blocks() {
        let found = match tree.path(record, block, target) {
            None => Found::Missing,
            Some(path) => match File::open(&path) {
                Err(error) if is_absent(&error) => Found::Missing,
                Err(error) => return Err(Failure::file(&path, error)),
                Ok(mut file) => match hash(&mut file, &path, watch) {
                    // A disk that cannot read a sector has lost it.
                    Err(Failure::System { source, .. }) if is_unreadable(&source) => Found::Rotten,
                    Err(failure) => return Err(failure),
                    Ok((hash, _)) => {
                        let meta = file.metadata().map_err(|e| Failure::file(&path, e))?;
                        judge(record, block, hash, Copy::of(&meta))
                    }
                },
            },
        };
        all.insert(block, found);
    }
    Ok(all)
}

fn judge(record: &Record, block: Block, hash: blake3::Hash, copy: Copy) -> Found {
    match block {
        Block::Parity(row) if record.parities[row] == hash => Found::Good,
        Block::Parity(_) => Found::Rotten,
        Block::Member { member, copy: number } => {
            let known = &record.set.members[member];
            match () {
                () if known.what.hash == hash => Found::Good,
                () if copy.len == known.len && copy.modified == known.what.modified[number] => {
                    Found::Rotten
                }
                () => Found::Changed,
            }
        }
    }
}

fn is_absent(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

fn is_unreadable(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error())
}
