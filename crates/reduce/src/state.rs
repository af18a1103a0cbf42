//! What is there, and what is wrong with it.

use crate::blocks::{Found, look};
use crate::failure::Done;
use crate::stream::Watch;
use crate::tree::Tree;
use serde::Serialize;
use std::collections::BTreeSet;
use weir_layout::set::Block;

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
    /// Files in no set.
    pub other_files: u64,
    /// Bytes of these, each file once.
    pub other_logical_bytes: u64,
    /// Bytes of all their copies.
    pub other_stored_bytes: u64,
    /// What is neither file nor directory, or has no name in UTF-8.
    pub left_alone: u64,
}

impl Usage {
    /// What sets cost beside their files' bytes, in percent; none without bytes.
    pub fn overhead_percent(&self) -> Option<f64> {
        let more = self.stored_bytes.saturating_sub(self.logical_bytes) as f64;
        (self.logical_bytes > 0).then(|| more * 100.0 / self.logical_bytes as f64)
    }
}

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Trouble {
    /// A copy or a parity is not there.
    Missing,
    /// Its bytes are not those that were written.
    Rotten,
    /// The file was written since it was encoded.
    Changed,
    /// A record of a set is not there, or is rotten.
    Record,
    /// More is missing than the code bears.
    Lost,
}

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What.
    pub trouble: Trouble,
    /// The file, parity or set.
    pub what: String,
    /// On which target, if it is about one.
    pub target: Option<u32>,
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
    let mut usage = Usage { left_alone: tree.files.left_alone, ..Usage::default() };
    let mut encoded = BTreeSet::new();
    for record in tree.sets.values() {
        usage.sets += 1;
        usage.files += record.set.members.len() as u64;
        usage.logical_bytes += record.set.logical_bytes();
        usage.stored_bytes += record.set.stored_bytes();
        encoded.extend(record.set.members.iter().map(|member| member.what.path.as_str()));
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
    let mut findings = Vec::new();
    for path in &tree.rotten_records {
        let what = path.display().to_string();
        findings.push(Finding { trouble: Trouble::Record, what, target: None });
    }
    for record in tree.sets.values() {
        let there = tree.recorded.get(&record.id);
        for target in record.targets() {
            if !there.is_some_and(|there| there.contains(&target)) {
                let (what, target) = (record.name(), Some(target.0));
                findings.push(Finding { trouble: Trouble::Record, what, target });
            }
        }
        let found = look(tree, record, watch)?;
        for (block, target) in record.set.blocks() {
            let trouble = match found.get(&block) {
                Some(Found::Good) => continue,
                Some(Found::Rotten) => Trouble::Rotten,
                Some(Found::Changed) => Trouble::Changed,
                Some(Found::Missing) | None => Trouble::Missing,
            };
            let what = match block {
                Block::Member { member, .. } => record.set.members[member].what.path.clone(),
                Block::Parity(row) => record.parity_name(row),
            };
            findings.push(Finding { trouble, what, target: Some(target.0) });
        }
        let is_good = |block: &Block| found.get(block) == Some(&Found::Good);
        let version = |block: Block| is_good(&block).then(|| record.set.generation(block));
        if record.set.recover(version).is_err() {
            findings.push(Finding { trouble: Trouble::Lost, what: record.name(), target: None });
        }
    }
    Ok(Verified { usage: usage(tree), findings })
}
