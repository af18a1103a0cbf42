//! What is there, and what is wrong with it.

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

/// How much there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// Sets.
    pub sets: u64,
    /// Files in sets.
    pub files: u64,
    /// Bytes of these, each file once.
    pub logical_bytes: u64,
    /// Bytes of the copies that sets keep, and of parities.
    pub stored_bytes: u64,
    /// Files that were removed from sets that are not cleaned yet; not counted above.
    pub dead_files: u64,
    /// Bytes of the copies that sets keep of these: a part of those stored.
    pub dead_bytes: u64,
    /// Files in no set.
    pub other_files: u64,
    /// Bytes of these, each file once.
    pub other_logical_bytes: u64,
    /// Bytes of all their copies.
    pub other_stored_bytes: u64,
    /// What is neither file nor directory, has no name in UTF-8, is on another file system, or
    /// cannot be looked at.
    pub left_alone: u64,
}

impl Usage {
    /// What sets cost beside their files' bytes, in percent; none without bytes.
    pub fn overhead_percent(&self) -> Option<f64> {
        let more = self.stored_bytes.saturating_sub(self.logical_bytes) as f64;
        (self.logical_bytes > 0).then(|| more * 100.0 / self.logical_bytes as f64)
    }
}

/// What verification has found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Verified {
    /// How much there is.
    pub usage: Usage,
    /// What is wrong.
    pub findings: Vec<Finding>,
}

/// How much there is, from names and records alone.
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
    /// How much there is, from names and records alone.
    pub fn usage(&self) -> Usage {
        usage(self)
    }

    /// Bytes that a verification or a repair reads at least.
    pub fn bytes_in_sets(&self) -> u64 {
        self.sets.values().map(|record| record.set.stored_bytes()).sum()
    }
}

/// Reads everything in sets and compares it with what was encoded.
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

/// The members of a set that do not come back.
pub(crate) fn lost(
    tree: &Tree,
    record: &Record,
    found: &BTreeMap<Block, Found>,
    why: &Unrecoverable,
) -> Vec<Finding> {
    let members = record.set.members.iter().enumerate().filter(|(member, known)| {
        let mut copies =
            (0..known.targets.len()).map(|copy| Block::Member { member: *member, copy });
        // One that was written since is reported as that.
        copies.all(|block| matches!(found.get(&block), Some(Found::Missing | Found::Rotten(_))))
    });
    let name = |member| tree.describe(record, Block::Member { member, copy: 0 });
    let what = members.map(|(member, _)| format!("{}: {why}", name(member)));
    what.map(|what| Finding { trouble: Trouble::Lost, what, target: None }).collect()
}
