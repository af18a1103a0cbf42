//! Members that were removed from sets. Their names are gone; their bytes stay beside the parities
//! until the set is cleaned, because the other members are decoded with them.
//!
//! A member is dead as soon as one copy of it has its new name, or one directory has its mark.

use crate::record::{Record, SetId};
use std::collections::{BTreeMap, BTreeSet};
use weir_types::TargetId;

/// The directories whose files say that a member is dead.
#[derive(Clone, Debug, Default)]
pub struct Signs {
    /// Targets that have the mark.
    pub marked: BTreeSet<TargetId>,
    /// Targets that have the bytes under their new name.
    pub held: BTreeSet<TargetId>,
}

/// The dead members of each set.
#[derive(Clone, Debug, Default)]
pub struct Dead(BTreeMap<SetId, BTreeMap<usize, Signs>>);

impl Dead {
    /// Notes a name in a directory's state that says that a member is dead; ignores other names.
    pub fn add(&mut self, target: TargetId, name: &str) {
        let Some((id, member, is_mark)) = parse(name) else { return };
        let signs = self.0.entry(id).or_default().entry(member).or_default();
        let to = if is_mark { &mut signs.marked } else { &mut signs.held };
        to.insert(target);
    }

    /// Whether a member is dead.
    pub fn has(&self, id: SetId, member: usize) -> bool {
        self.0.get(&id).is_some_and(|members| members.contains_key(&member))
    }

    /// Whether a file of any directory says that a member of the set is dead. The record of the set
    /// may be gone.
    pub fn knows(&self, id: SetId) -> bool {
        self.0.contains_key(&id)
    }

    /// The directories that say that a member is dead.
    pub fn signs(&self, id: SetId, member: usize) -> Signs {
        self.0.get(&id).and_then(|members| members.get(&member)).cloned().unwrap_or_default()
    }

    /// Numbers of the dead members of a set.
    pub fn members<'a>(&'a self, record: &'a Record) -> impl Iterator<Item = usize> + 'a {
        let members = self.0.get(&record.id).into_iter().flat_map(BTreeMap::keys).copied();
        members.filter(|member| *member < record.set.members.len())
    }

    /// Targets of a set that lack the mark of one of its dead members.
    pub fn unmarked(&self, record: &Record) -> BTreeSet<TargetId> {
        let lacking = self.members(record).flat_map(|member| {
            let marked = self.signs(record.id, member).marked;
            record.targets().into_iter().filter(move |target| !marked.contains(target))
        });
        lacking.collect()
    }

    /// Whether every copy of the set's dead members still exists.
    pub fn are_held(&self, record: &Record) -> bool {
        self.members(record).all(|member| {
            let held = self.signs(record.id, member).held;
            record.set.members[member].targets.iter().all(|target| held.contains(target))
        })
    }
}

/// The set and the member that a name stands for, and whether the name is a mark.
pub fn parse(name: &str) -> Option<(SetId, usize, bool)> {
    let (id, rest) = name.split_once('.')?;
    let (number, is_mark) = match (rest.strip_prefix("dead"), rest.strip_prefix('m')) {
        (Some(number), _) => (number, true),
        (None, Some(number)) => (number, false),
        (None, None) => return None,
    };
    Some((SetId::parse(id)?, number.parse().ok()?, is_mark))
}
