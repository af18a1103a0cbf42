//! Files that are in two sets: a new one, and a stale one that is dissolved once all of its files
//! are in new sets. A command that is stopped in between leaves them so.

use crate::record::{FileFacts, Record, SetId};
use crate::tree::Tree;
use blake3::Hash;
use std::collections::{BTreeMap, BTreeSet};
use weir_layout::set::Member;
use weir_types::TargetId;

/// For each file that is in several sets, these sets in order: whether all of the set's records are
/// in place, its `again`, and its id.
pub struct Doubles(BTreeMap<String, BTreeSet<(bool, u64, SetId)>>);

impl Doubles {
    /// Finds them among all sets of the tree. The sets in `torn` lack records.
    pub fn of(tree: &Tree, torn: &BTreeSet<SetId>) -> Self {
        let mut first = BTreeMap::new();
        let mut all: BTreeMap<String, BTreeSet<(bool, u64, SetId)>> = BTreeMap::new();
        for record in tree.sets.values() {
            let set = (!torn.contains(&record.id), record.again, record.id);
            for member in tree.living(record) {
                let path = member.what.path.as_str();
                if let Some(other) = first.insert(path, set) {
                    all.entry(path.to_owned()).or_default().extend([other, set]);
                }
            }
        }
        Self(all)
    }

    /// Whether a complete set has a file that a newer set contains as well.
    pub fn is_older(&self, id: SetId, path: &str) -> bool {
        let newest = self.0.get(path).and_then(BTreeSet::last);
        let is_whole = self.whole(path).any(|whole| whole == id);
        is_whole && newest.is_some_and(|(.., newest)| *newest != id)
    }

    /// Whether a newer set contains other bytes of a member.
    pub fn is_replaced(&self, tree: &Tree, record: &Record, member: &Member<FileFacts>) -> bool {
        let all = self.0.get(&member.what.path).into_iter().flatten();
        let newer = all.filter(|(_, again, id)| (*again, *id) > (record.again, record.id));
        let mut newer = newer.filter_map(|(.., id)| tree.sets.get(id));
        newer.any(|record| {
            tree.living(record).any(|other| {
                other.what.path == member.what.path && other.what.hash != member.what.hash
            })
        })
    }

    /// The sets that have a file, if it is in several.
    pub fn all(&self, path: &str) -> impl Iterator<Item = SetId> + '_ {
        self.0.get(path).into_iter().flatten().map(|(.., id)| *id)
    }

    /// The sets of [`Doubles::all`] that have all of their records.
    pub fn whole(&self, path: &str) -> impl Iterator<Item = SetId> + '_ {
        let all = self.0.get(path).into_iter().flatten();
        all.filter(|(is_whole, ..)| *is_whole).map(|(.., id)| *id)
    }
}

/// Whether one of several sets keeps the same bytes of a file on a target.
pub fn is_kept(
    tree: &Tree,
    mut sets: impl Iterator<Item = SetId>,
    (path, hash): (&str, Hash),
    target: TargetId,
) -> bool {
    sets.any(|id| {
        tree.sets.get(&id).is_some_and(|record| {
            tree.living(record).any(|member| {
                member.what.path == path
                    && member.what.hash == hash
                    && member.targets.contains(&target)
            })
        })
    })
}
