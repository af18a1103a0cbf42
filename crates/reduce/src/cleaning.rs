//! Sets that go: those of which enough was removed, or a file is another by now. Each goes as
//! soon as its files are in other sets, and all that it has goes with it, to make room.
//!
//! Invariant: as long as a set has a record, what it keeps stays where it is. So a file that
//! is in a newer set as well has the copies of both; who is stopped then leaves that so, and
//! the older set goes the next time.

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

/// Sets that go, with their files that are in no other set yet.
#[derive(Default)]
pub struct Leaving {
    needed: BTreeMap<SetId, BTreeSet<String>>,
    of: BTreeMap<String, Vec<SetId>>,
    /// Those of which no file is needed any more.
    free: Vec<SetId>,
    /// Those that have bytes of a removed file that is still there, since its removal from another
    /// set was stopped: without this name the file looks changed. They go at the end.
    late: BTreeSet<SetId>,
    /// Those that are gone.
    pub gone: BTreeSet<SetId>,
}

impl Leaving {
    /// Stale sets whose removals are at an end. A file needs no other set if another that stays
    /// has it and is as it should be, or if it is gone and forgotten.
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

    /// Some files are in a new set.
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

    /// No other files are encoded.
    pub fn end(&mut self) {
        let late = std::mem::take(&mut self.late);
        self.free.extend(late.into_iter().filter(|id| !self.needed.contains_key(id)));
    }

    /// Removes the sets of which no file is needed any more. One that stays may lack records.
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

/// Why a file may not stay as copies, without the sets that have it: it may if all copies are the
/// same, and durable.
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

/// Whether bytes of a removed file have another name.
fn is_shared(tree: &Tree, record: &Record) -> bool {
    tree.dead.members(record).any(|member| {
        let held = tree.dead.signs(record.id, member).held;
        let dirs = held.iter().filter_map(|target| tree.targets.dir(*target));
        let mut places = dirs.map(|dir| Place::new(dir, state_name(&record.dead_name(member))));
        places.any(|place| place.metadata().is_ok_and(|meta| meta.nlink() > 1))
    })
}
