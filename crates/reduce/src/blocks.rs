//! Compares every block of a set with the set's record.

use crate::copy::Copy;
use crate::doubles::Doubles;
use crate::failure::{Done, Failure, is_absent, is_unreadable};
use crate::finding::{Finding, Trouble};
use crate::place::Place;
use crate::record::{FileFacts, Record};
use crate::stream::{Watch, hash};
use crate::tree::Tree;
use blake3::Hash;
use std::collections::BTreeMap;
use weir_layout::set::{Block, Member};

/// The state of a block, compared with its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The bytes are those that were encoded.
    Good,
    /// The block is missing.
    Missing,
    /// The bytes differ, although nobody has written the file.
    Rotten(Copy),
    /// The file was written after it was encoded, here or on another target, or a newer set has
    /// other bytes of it.
    Changed,
    /// The disk cannot read it, or it is not a regular file.
    Unreadable,
}

impl Found {
    /// Whether a repair must leave this block alone: a user has written it, or it cannot be read.
    pub fn is_kept(self) -> bool {
        matches!(self, Self::Changed | Self::Unreadable)
    }
}

/// Reads and judges all blocks of a set.
pub fn look(
    tree: &Tree,
    record: &Record,
    doubles: &Doubles,
    watch: Watch<'_>,
) -> Done<BTreeMap<Block, Found>> {
    let mut all = BTreeMap::new();
    for (block, target) in record.set.blocks() {
        let found = match tree.place(record, block, target) {
            None => Found::Missing,
            Some(place) => look_at(tree, record, block, &place, watch)?,
        };
        all.insert(block, found);
    }
    let members = record.set.members.iter().enumerate();
    for (member, known) in members.filter(|(member, _)| !tree.dead.has(record.id, *member)) {
        let blocks = (0..known.targets.len()).map(|copy| Block::Member { member, copy });
        let is_written = blocks.clone().any(|block| all.get(&block) == Some(&Found::Changed));
        let is_old = || doubles.is_replaced(tree, record, known);
        if is_written || is_old() || is_replaced(tree, known, watch)? {
            let others = blocks.filter(|block| all.get(block) != Some(&Found::Good));
            others.collect::<Vec<_>>().into_iter().for_each(|block| {
                all.insert(block, Found::Changed);
            });
        }
    }
    Ok(all)
}

/// Whether a target outside the set has another version of a member.
pub fn is_replaced(tree: &Tree, member: &Member<FileFacts>, watch: Watch<'_>) -> Done<bool> {
    let Some(copies) = tree.files.files.get(&member.what.path) else { return Ok(false) };
    for (target, copy) in copies.iter().filter(|(target, _)| !member.targets.contains(target)) {
        // This may be an old copy that has rotted.
        if copy.len == member.len && member.what.modified.contains(&copy.modified) {
            continue;
        }
        let place = tree.file(&member.what.path, *target)?;
        let read = place.open().map_err(|e| Failure::file(&place.path(), e));
        match read.and_then(|mut file| hash(&mut file, &place.path(), watch)) {
            Ok((hash, _)) if hash == member.what.hash => {}
            Err(Failure::System { source, .. }) if is_absent(&source) => {}
            Ok(_) | Err(Failure::System { .. }) => return Ok(true),
            Err(failure) => return Err(failure),
        }
    }
    Ok(false)
}

/// The findings about a set whose blocks are in these states.
pub fn findings(tree: &Tree, record: &Record, found: &BTreeMap<Block, Found>) -> Vec<Finding> {
    let wrong = record.set.blocks().filter_map(|(block, target)| {
        let trouble = match found.get(&block) {
            Some(Found::Good) => return None,
            Some(Found::Rotten(_)) => Trouble::Rotten,
            Some(Found::Unreadable) => Trouble::Failed,
            Some(Found::Changed) => Trouble::Changed,
            Some(Found::Missing) | None => Trouble::Missing,
        };
        let what = tree.describe(record, block);
        Some(Finding { trouble, what, target: Some(target.0) })
    });
    wrong.collect()
}

/// Whether all blocks of a set are good. Bad blocks are added to the findings, except files that
/// were written after they were encoded: the caller encodes those again.
pub fn is_good(
    tree: &Tree,
    record: &Record,
    doubles: &Doubles,
    left: &mut Vec<Finding>,
    watch: Watch<'_>,
) -> Done<bool> {
    let found = look(tree, record, doubles, watch)?;
    let wrong = findings(tree, record, &found).into_iter();
    left.extend(wrong.filter(|finding| finding.trouble != Trouble::Changed));
    Ok(found.values().all(|found| *found == Found::Good))
}

/// Parities of all sets that are missing or have a wrong length. Reads no file.
pub fn lacking(tree: &Tree) -> Vec<Finding> {
    let mut all = Vec::new();
    for record in tree.sets.values() {
        for (row, parity) in record.set.parities.iter().enumerate() {
            let block = Block::Parity(row);
            let Some(place) = tree.place(record, block, parity.target) else { continue };
            let trouble = match place.metadata() {
                Ok(meta) if meta.is_file() && meta.len() == record.set.parity_bytes() => continue,
                Ok(_) => Trouble::Rotten,
                Err(error) if is_absent(&error) => Trouble::Missing,
                Err(_) => Trouble::Failed,
            };
            let what = tree.describe(record, block);
            all.push(Finding { trouble, what, target: Some(parity.target.0) });
        }
    }
    all
}

fn look_at(
    tree: &Tree,
    record: &Record,
    block: Block,
    place: &Place,
    watch: Watch<'_>,
) -> Done<Found> {
    let mut file = match place.open() {
        Ok(file) => file,
        Err(error) if is_absent(&error) => return Ok(Found::Missing),
        Err(_) => return Ok(Found::Unreadable),
    };
    let hash = match hash(&mut file, &place.path(), watch) {
        Ok((hash, _)) => Some(hash),
        Err(Failure::System { source, .. }) if is_unreadable(&source) => None,
        Err(Failure::System { .. }) => return Ok(Found::Unreadable),
        Err(failure) => return Err(failure),
    };
    Ok(match file.metadata() {
        Ok(meta) => {
            let found = judge(record, block, hash, Copy::of(&meta));
            // Nobody writes a removed member.
            let is_dead = matches!(block, Block::Member { member, .. }
                if tree.dead.has(record.id, member));
            match found {
                Found::Changed if is_dead => Found::Rotten(Copy::of(&meta)),
                found => found,
            }
        }
        Err(_) => Found::Unreadable,
    })
}

/// Judges a block by its hash. `None`: the disk could not read all of it.
fn judge(record: &Record, block: Block, hash: Option<Hash>, copy: Copy) -> Found {
    match block {
        Block::Parity(row) if hash == Some(record.parities[row]) => Found::Good,
        Block::Parity(_) => Found::Rotten(copy),
        Block::Member { member, copy: number } => {
            let known = &record.set.members[member];
            match () {
                () if hash == Some(known.what.hash) => Found::Good,
                () if copy.len == known.len && copy.modified == known.what.modified[number] => {
                    Found::Rotten(copy)
                }
                () => Found::Changed,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_layout::set::{Parity, Set};
    use weir_types::TargetId;

    #[test]
    fn a_bad_sector_in_a_file_that_was_written_since_is_no_rot_of_what_was_encoded() {
        let hash = blake3::hash(b"old");
        let what = FileFacts {
            path: "file".to_owned(),
            hash,
            mode: 0,
            owner: (0, 0),
            modified: vec![(7, 7)],
        };
        let member = Member { what, generation: 0, len: 3, targets: vec![TargetId(0)] };
        let parities = (1..3).map(|i| Parity { generation: 0, target: TargetId(i) }).collect();
        let code = "raid6".parse().unwrap();
        let set = Set { code, members: vec![member], parities };
        let record = Record::new(set, vec![hash; 2], 0).unwrap();
        let copy =
            Copy { len: 3, modified: (7, 7), changed: (7, 7), id: (0, 0), mode: 0, owner: (0, 0) };
        let block = Block::Member { member: 0, copy: 0 };
        let judge = |hash, copy| judge(&record, block, hash, copy);
        assert_eq!(judge(None, copy), Found::Rotten(copy));
        assert_eq!(judge(None, Copy { modified: (8, 0), ..copy }), Found::Changed);
        assert_eq!(judge(None, Copy { len: 4, ..copy }), Found::Changed);
        assert_eq!(judge(Some(hash), Copy { modified: (8, 0), ..copy }), Found::Good);
    }
}
