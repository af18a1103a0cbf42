//! The record of a set: its blocks, the check of their places, and the recovery of lost blocks.

use super::arrange::Site;
use super::code::{NoSuchCode, SetCode};
use crate::place::{Apart, Spread};
use std::collections::{BTreeMap, BTreeSet};
use weir_erasure::{Lost, Repair};
use weir_types::TargetId;

/// A set. `M` names a member: a column object of a sealed segment, or a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Set<M> {
    /// Its code.
    pub code: SetCode,
    /// At most as many members as the code has.
    pub members: Vec<Member<M>>,
    /// The parities, in the order of the rows of the code.
    pub parities: Vec<Parity>,
}

/// A member as it was when it was encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member<M> {
    /// Identifies the member.
    pub what: M,
    /// Its version.
    pub generation: u64,
    /// Its length, bytes.
    pub len: u64,
    /// The targets of its copies.
    pub targets: Vec<TargetId>,
}

/// A parity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parity {
    /// Its version.
    pub generation: u64,
    /// Its target.
    pub target: TargetId,
}

/// A block of a set: the part that is on one target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Block {
    /// A copy of a member.
    Member {
        /// Number of the member.
        member: usize,
        /// Number of the copy.
        copy: usize,
    },
    /// A parity, by its row.
    Parity(usize),
}

/// What is wrong with the places of a set's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The set has more members than its code, or another number of copies or parities.
    Shape,
    /// The target is unknown.
    Unknown(TargetId),
    /// Two blocks are on this target.
    Shared(TargetId),
    /// This block could be in a domain, on a machine or on a server with fewer others.
    Close(Block),
    /// The two copies of this member are on one node.
    OneNode(usize),
    /// These two members are on the same pair of nodes.
    SamePair(usize, usize),
    /// P is on a node of this member.
    ParityBeside(usize),
}

/// How to restore the lost blocks of a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// Lost copies, each with the copy from which it is made. That source may itself be one of
    /// `decoded`.
    pub copied: Vec<(Block, Block)>,
    /// The blocks to decode.
    pub decoded: Vec<Block>,
    /// The decoding, and the blocks that it reads, in its order. `None` stands for an empty member.
    pub repair: Option<(Repair, Vec<Option<Block>>)>,
}

impl<M> Set<M> {
    /// All blocks with their targets.
    pub fn blocks(&self) -> impl Iterator<Item = (Block, TargetId)> + '_ {
        let copies = self.members.iter().enumerate().flat_map(|(member, known)| {
            let copies = known.targets.iter().enumerate();
            copies.map(move |(copy, target)| (Block::Member { member, copy }, *target))
        });
        let rows = self.parities.iter().enumerate();
        copies.chain(rows.map(|(row, parity)| (Block::Parity(row), parity.target)))
    }

    /// Bytes of the members, once each.
    pub fn logical_bytes(&self) -> u64 {
        self.members.iter().map(|member| member.len).sum()
    }

    /// Bytes on disk.
    pub fn stored_bytes(&self) -> u64 {
        self.code.stored_bytes(self.members.iter().map(|member| member.len))
    }

    /// Bytes of a parity.
    pub fn parity_bytes(&self) -> u64 {
        self.members.iter().map(|member| member.len).max().unwrap_or(0)
    }

    /// The recorded version of a block.
    pub fn generation(&self, block: Block) -> u64 {
        match block {
            Block::Member { member, .. } => self.members[member].generation,
            Block::Parity(row) => self.parities[row].generation,
        }
    }

    /// Checks the places of the blocks, given all targets.
    ///
    /// # Errors
    /// The first fault.
    pub fn check(&self, sites: &[Site]) -> Result<(), Fault> {
        let copies = self.code.copies();
        if self.members.len() > self.code.members()
            || self.members.iter().any(|member| member.targets.len() != copies)
            || self.parities.len() != self.code.parities()
        {
            return Err(Fault::Shape);
        }
        let sites: BTreeMap<TargetId, Site> =
            sites.iter().map(|site| (site.target, *site)).collect();
        if let Some((_, target)) = self.blocks().find(|(_, target)| !sites.contains_key(target)) {
            return Err(Fault::Unknown(target));
        }
        match self.code {
            SetCode::Raid5Mirror { .. } => self.check_pairs(&sites),
            _ => self.check_apart(&sites),
        }
    }

    fn check_apart(&self, sites: &BTreeMap<TargetId, Site>) -> Result<(), Fault> {
        let mut used = BTreeSet::new();
        if let Some((_, target)) = self.blocks().find(|(_, target)| !used.insert(*target)) {
            return Err(Fault::Shared(target));
        }
        let spread = |targets: &BTreeSet<TargetId>| {
            Spread::of(targets.iter().map(|target| sites[target].home))
        };
        let now = spread(&used);
        for (block, target) in self.blocks() {
            let others = used.iter().filter(|other| **other != target);
            let home = sites[&target].home;
            if Apart::of(home, others.map(|other| sites[other].home)) == Apart::Domain {
                continue;
            }
            for free in sites.keys().filter(|free| !used.contains(free)) {
                let mut moved = used.clone();
                moved.remove(&target);
                moved.insert(*free);
                if spread(&moved) > now {
                    return Err(Fault::Close(block));
                }
            }
        }
        Ok(())
    }

    /// Servers count as nodes here: domains and machines contain whole servers.
    fn check_pairs(&self, sites: &BTreeMap<TargetId, Site>) -> Result<(), Fault> {
        let node = |target: &TargetId| sites[target].home.server;
        let mut pairs = BTreeMap::new();
        for (i, member) in self.members.iter().enumerate() {
            let mut pair: Vec<_> = member.targets.iter().map(node).collect();
            pair.sort_unstable();
            if pair[0] == pair[1] {
                return Err(Fault::OneNode(i));
            }
            if self.parities.iter().any(|parity| pair.contains(&node(&parity.target))) {
                return Err(Fault::ParityBeside(i));
            }
            if let Some(other) = pairs.insert(pair, i) {
                return Err(Fault::SamePair(other, i));
            }
        }
        Ok(())
    }

    /// How to restore all lost blocks. `found` returns the version of a block that exists, if any.
    /// A version other than the recorded one counts as lost.
    ///
    /// # Errors
    /// If more is lost than the code can restore.
    pub fn recover(&self, found: impl Fn(Block) -> Option<u64>) -> Result<Recovery, Unrecoverable> {
        let code = self.code.code().map_err(Unrecoverable::Code)?;
        let is_there = |block: Block| found(block) == Some(self.generation(block));
        let (mut copied, mut decoded, mut wanted) = (Vec::new(), Vec::new(), Vec::new());
        let mut present = vec![true; code.blocks()];
        // The copy of each member that is read.
        let mut read = vec![0; self.members.len()];
        for (i, member) in self.members.iter().enumerate() {
            let copies = 0..member.targets.len();
            let block = |copy| Block::Member { member: i, copy };
            let good = copies.clone().find(|&copy| is_there(block(copy)));
            read[i] = good.unwrap_or(0);
            if good.is_none() {
                present[i] = false;
                wanted.push(i);
                decoded.push(block(0));
            }
            let others = copies.filter(|&copy| copy != read[i] && !is_there(block(copy)));
            copied.extend(others.map(|copy| (block(copy), block(read[i]))));
        }
        for row in (0..self.parities.len()).filter(|&row| !is_there(Block::Parity(row))) {
            present[code.members() + row] = false;
            wanted.push(code.members() + row);
            decoded.push(Block::Parity(row));
        }
        if wanted.is_empty() {
            return Ok(Recovery { copied, decoded, repair: None });
        }
        let repair = match code.repair(&present, &wanted) {
            Ok(repair) => repair,
            Err(why) => {
                copied.retain(|(_, from)| is_there(*from));
                return Err(Unrecoverable::Lost { why, copied });
            }
        };
        let source = |&index: &usize| match index.checked_sub(code.members()) {
            Some(row) => Some(Block::Parity(row)),
            None => read.get(index).map(|&copy| Block::Member { member: index, copy }),
        };
        let sources = repair.sources().iter().map(source).collect();
        Ok(Recovery { copied, decoded, repair: Some((repair, sources)) })
    }
}

/// Why blocks cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unrecoverable {
    /// The recorded code does not exist.
    Code(NoSuchCode),
    /// More is lost than the code can restore.
    Lost {
        /// What is lost.
        why: Lost,
        /// Lost copies that can still be made from other copies, each with its source.
        copied: Vec<(Block, Block)>,
    },
}

impl std::fmt::Display for Unrecoverable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(why) => why.fmt(f),
            Self::Lost { why, .. } => why.fmt(f),
        }
    }
}

impl std::error::Error for Unrecoverable {}
