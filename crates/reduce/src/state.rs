//! Space usage of a tree, and its verification.

use crate::blocks::{self, Found, look};
use crate::doubles::Doubles;
use crate::failure::Done;
use crate::finding::{Finding, Trouble};
use crate::record::Record;
use crate::stream::Watch;
use crate::tree::Tree;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use weir_layout::set::{Block, Unrecoverable};

/// Space usage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// Number of sets.
    pub sets: u64,
    /// Number of files in sets.
    pub files: u64,
    /// Bytes of the files in sets, each file once.
    pub logical_bytes: u64,
    /// Bytes of the copies that sets keep, and of parities.
    pub stored_bytes: u64,
    /// Number of removed files whose bytes stay because their set is not cleaned yet. Not counted
    /// in the fields above.
    pub dead_files: u64,
    /// Bytes of the copies that sets keep of these removed files. A part of `stored_bytes`.
    pub dead_bytes: u64,
    /// Number of files in no set.
    pub other_files: u64,
    /// Bytes of the files in no set, each file once.
    pub other_logical_bytes: u64,
    /// Bytes of all copies of the files in no set.
    pub other_stored_bytes: u64,
    /// Number of names that are neither file nor directory, not UTF-8, on another file system, or
    /// unreadable.
    pub left_alone: u64,
}

impl Usage {
    /// Space that sets take beyond their files' bytes, percent. `None` if there are no bytes.
    pub fn overhead_percent(&self) -> Option<f64> {
        let more = self.stored_bytes.saturating_sub(self.logical_bytes) as f64;
        (self.logical_bytes > 0).then(|| more * 100.0 / self.logical_bytes as f64)
    }
}

/// The result of a verification.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Verified {
    /// Space usage of the tree.
    pub usage: Usage,
    /// What is wrong.
    pub findings: Vec<Finding>,
}

/// Space usage, from file names and records alone.
pub(crate) fn usage(tree: &Tree) -> Usage {
    let left_alone = tree.files.left_alone + tree.files.failed.len() as u64;
    let mut usage = Usage { left_alone, ..Usage::default() };
    let mut encoded = BTreeSet::new();
    for record in tree.sets.values() {
        usage.sets += 1;
        usage.stored_bytes += record.set.stored_bytes();
        for (number, member) in record.set.members.iter().enumerate() {
            if tree.dead.has(record.id, number) {
                usage.dead_files += 1;
                usage.dead_bytes += member.len * member.targets.len() as u64;
                continue;
            }
            usage.files += 1;
            usage.logical_bytes += member.len;
            encoded.insert(member.what.path.as_str());
        }
    }
    let others = tree.files.files.iter().filter(|(path, _)| !encoded.contains(path.as_str()));
    for (_, copies) in others {
        usage.other_files += 1;
        usage.other_logical_bytes += copies.values().map(|copy| copy.len).max().unwrap_or(0);
        usage.other_stored_bytes += copies.values().map(|copy| copy.len).sum::<u64>();
    }
    usage
}

impl Tree {
    /// Space usage, from file names and records alone.
    pub fn usage(&self) -> Usage {
        usage(self)
    }

    /// Lower bound of the bytes that a verification or a repair reads.
    pub fn bytes_in_sets(&self) -> u64 {
        self.sets.values().map(|record| record.set.stored_bytes()).sum()
    }
}

/// Reads all blocks of all sets and compares them with the records.
pub fn verify(tree: &Tree, watch: Watch<'_>) -> Done<Verified> {
    let mut findings = tree.files.failed.clone();
    for path in &tree.rotten_records {
        let what = path.display().to_string();
        findings.push(Finding { trouble: Trouble::Record, what, target: None });
    }
    let doubles = Doubles::of(tree, &BTreeSet::new());
    for record in tree.sets.values() {
        let there = tree.recorded.get(&record.id);
        let unmarked = tree.dead.unmarked(record);
        for target in record.targets() {
            let is_marked = !unmarked.contains(&target);
            if !is_marked || !there.is_some_and(|there| there.contains(&target)) {
                let (what, target) = (record.name(), Some(target.0));
                findings.push(Finding { trouble: Trouble::Record, what, target });
            }
        }
        let found = look(tree, record, &doubles, watch)?;
        findings.extend(blocks::findings(tree, record, &found));
        let is_good = |block: &Block| found.get(block) == Some(&Found::Good);
        let version = |block: Block| is_good(&block).then(|| record.set.generation(block));
        if let Err(why) = record.set.recover(version) {
            findings.extend(lost(tree, record, &found, &why));
        }
    }
    Ok(Verified { usage: usage(tree), findings })
}

/// The members of a set that cannot be restored.
pub(crate) fn lost(
    tree: &Tree,
    record: &Record,
    found: &BTreeMap<Block, Found>,
    why: &Unrecoverable,
) -> Vec<Finding> {
    let members = record.set.members.iter().enumerate().filter(|(member, known)| {
        let mut copies =
            (0..known.targets.len()).map(|copy| Block::Member { member: *member, copy });
        // A member that was written after encoding has a finding of its own.
        copies.all(|block| matches!(found.get(&block), Some(Found::Missing | Found::Rotten(_))))
    });
    let name = |member| tree.describe(record, Block::Member { member, copy: 0 });
    let what = members.map(|(member, _)| format!("{}: {why}", name(member)));
    what.map(|what| Finding { trouble: Trouble::Lost, what, target: None }).collect()
}
