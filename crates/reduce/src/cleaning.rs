//! Dissolves stale sets: those of which enough was removed, and those with a member that has
//! changed. A set is dissolved, with all of its blocks, as soon as its other files are in other
//! sets, to make room.
//!
//! Invariant: as long as a set has a record, its blocks stay. A file that is in a newer set as well
//! has the copies of both sets. If the command is stopped there, the next one dissolves the older
//! set.

use crate::blocks;
use crate::candidate::Candidate;
use crate::doubles::Doubles;
use crate::failure::{Done, Failure};
use crate::finding::{Finding, Trouble, note};
use crate::place::{Place, is_copy};
use crate::record::{Record, SetId};
use crate::stream::{Watch, hash};
use crate::tree::{Tree, state_name};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use weir_types::TargetId;

/// Stale sets, each with its files that are in no other set yet.
#[derive(Default)]
pub struct Leaving {
    needed: BTreeMap<SetId, BTreeSet<String>>,
    of: BTreeMap<String, Vec<SetId>>,
    /// Sets whose files are all in other sets.
    free: Vec<SetId>,
    /// Sets that are dissolved at the end: they share bytes with a removed file whose removal from
    /// another set was interrupted. Without this name that file would look changed.
    late: BTreeSet<SetId>,
    /// Sets that have been dissolved.
    pub gone: BTreeSet<SetId>,
}

impl Leaving {
    /// Begins with the stale sets whose removals are complete. A file needs no other set if a good
    /// set that stays contains it, or if it is deleted and forgotten.
    pub fn begin(
        tree: &Tree,
        stale: &BTreeSet<SetId>,
        (doubles, forgotten): (&Doubles, &BTreeSet<String>),
        left: &mut Vec<Finding>,
        watch: Watch<'_>,
    ) -> Done<Self> {
        let (mut leaving, mut is_good) = (Self::default(), BTreeMap::new());
        for record in stale.iter().filter_map(|id| tree.sets.get(id)) {
            let is_over = |n| !tree.dead.signs(record.id, n).marked.is_empty();
            if !tree.dead.members(record).all(is_over) {
                continue;
            }
            let mut needed = BTreeSet::new();
            for member in tree.living(record) {
                let path = &member.what.path;
                let mut is_needed =
                    !forgotten.contains(path) || tree.files.files.contains_key(path);
                for id in doubles.whole(path).filter(|id| !stale.contains(id)) {
                    let Some(other) = tree.sets.get(&id) else { continue };
                    let is_good = match is_good.entry(id) {
                        Entry::Occupied(known) => *known.get(),
                        Entry::Vacant(place) => {
                            *place.insert(blocks::is_good(tree, other, doubles, left, watch)?)
                        }
                    };
                    is_needed &= !is_good;
                }
                if is_needed {
                    leaving.of.entry(path.clone()).or_default().push(record.id);
                    needed.insert(path.clone());
                }
            }
            if !needed.is_empty() && is_shared(tree, record) {
                leaving.late.insert(record.id);
            }
            match needed.is_empty() {
                true => leaving.free.push(record.id),
                false => drop(leaving.needed.insert(record.id, needed)),
            }
        }
        Ok(leaving)
    }

    /// Notes that these files are in a new set.
    pub fn encoded<'a>(&mut self, paths: impl Iterator<Item = &'a str>) {
        for path in paths {
            for id in self.of.remove(path).into_iter().flatten() {
                let Some(needed) = self.needed.get_mut(&id) else { continue };
                needed.remove(path);
                if needed.is_empty() {
                    self.needed.remove(&id);
                    self.free.extend(Some(id).filter(|id| !self.late.contains(id)));
                }
            }
        }
    }

    /// Notes that no further files will be encoded, which frees the late sets.
    pub fn end(&mut self) {
        let late = std::mem::take(&mut self.late);
        self.free.extend(late.into_iter().filter(|id| !self.needed.contains_key(id)));
    }

    /// Dissolves the sets whose files are all in other sets. Sets that could not be dissolved are
    /// added to `torn`: they may lack records.
    pub fn dissolve(
        &mut self,
        tree: &mut Tree,
        (torn, left): (&mut BTreeSet<SetId>, &mut Vec<Finding>),
        watch: Watch<'_>,
    ) -> Done {
        for id in std::mem::take(&mut self.free) {
            note(tree.dissolve(id, watch), None, left)?;
            let is_there = tree.sets.contains_key(&id);
            let those = if is_there { &mut *torn } else { &mut self.gone };
            those.insert(id);
        }
        Ok(())
    }
}

/// Why a file must not stay as copies without its sets. `None`: its copies are equal and durable,
/// so that it may.
pub fn unsafe_copy(tree: &Tree, file: &Candidate, watch: Watch<'_>) -> Done<Option<Finding>> {
    let wrong = |trouble, why: &str, target: &TargetId| {
        let what = format!("{}: {why}", file.path);
        Ok(Some(Finding { trouble, what, target: Some(target.0) }))
    };
    let mut hashes: BTreeSet<[u8; 32]> =
        file.expected.iter().map(|expected| *expected.as_bytes()).collect();
    for (target, copy) in &file.copies {
        let place = tree.file(&file.path, *target)?;
        let synced = place.open().and_then(|opened| {
            opened.sync_all()?;
            place.sync_name()?;
            Ok(opened)
        });
        let mut opened = synced.map_err(|e| Failure::file(&place.path(), e))?;
        hashes.insert(*hash(&mut opened, &place.path(), watch)?.0.as_bytes());
        if !is_copy(&place, copy) {
            return wrong(Trouble::Changed, "was written while it was read", target);
        }
        if hashes.len() > 1 {
            let why = "is not as it was encoded, or its copies differ";
            return wrong(Trouble::Differ, why, target);
        }
    }
    Ok(None)
}

/// Whether the bytes of a removed member have another name.
fn is_shared(tree: &Tree, record: &Record) -> bool {
    tree.dead.members(record).any(|member| {
        let held = tree.dead.signs(record.id, member).held;
        let dirs = held.iter().filter_map(|target| tree.targets.dir(*target));
        let mut places = dirs.map(|dir| Place::new(dir, state_name(&record.dead_name(member))));
        places.any(|place| place.metadata().is_ok_and(|meta| meta.nlink() > 1))
    })
}
