//! Files are removed from sets: their names at once, their bytes when their set is cleaned.
//!
//! Invariant: marks are written when no copy has its old name any more. So a file of the old
//! name, where there is a mark, is another one, whatever its length and time.

use crate::copy::Copy;
use crate::durable::{Instead, remove};
use crate::failure::{Done, Failure};
use crate::finding::{Finding, Trouble, note};
use crate::place::{Place, is_copy};
use crate::record::{Record, SetId};
use crate::state::{Usage, usage};
use crate::stream::{Step, Watch};
use crate::tree::{Tree, missing, state_name};
use crate::wishes::{Waits, Wishes};
use serde::Serialize;
use std::collections::BTreeSet;
use weir_types::TargetId;

/// What removal has done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Removed {
    /// Files of sets, whose bytes stay until their set is cleaned.
    pub marked: u64,
    /// Bytes of these, with all copies that sets keep.
    pub marked_bytes: u64,
    /// Copies that are gone.
    pub removed_copies: u64,
    /// Bytes of these.
    pub removed_bytes: u64,
    /// How much there is now.
    pub usage: Usage,
    /// What could not be removed.
    pub left: Vec<Finding>,
}

/// Ends removals that were stopped, and writes the marks of a set to its targets that lack
/// them. Returns how many changes that took.
pub fn settle(tree: &mut Tree, record: &Record, watch: Watch<'_>) -> Done<u64> {
    let mut changes = 0;
    for member in tree.dead.members(record).collect::<Vec<_>>() {
        if tree.dead.signs(record.id, member).marked.is_empty() {
            changes += hold(tree, record, member, watch)?;
        }
        changes += mark(tree, record, member, watch)?;
    }
    Ok(changes)
}

/// Gives the copies of a member that are there their new names. Returns how many.
fn hold(tree: &mut Tree, record: &Record, member: usize, watch: Watch<'_>) -> Done<u64> {
    let known = &record.set.members[member];
    let held = tree.dead.signs(record.id, member).held;
    let mut count = 0;
    for (target, modified) in known.targets.iter().zip(&known.what.modified) {
        let from = tree.file(&known.what.path, *target)?;
        let is_it = from.metadata().is_ok_and(|meta| {
            let copy = Copy::of(&meta);
            meta.is_file() && (copy.len, copy.modified) == (known.len, *modified)
        });
        // Where its bytes are already, a file of the old name is another one.
        if !is_it || held.contains(target) {
            continue;
        }
        let dir = tree.targets.dir(*target).ok_or_else(|| missing(*target))?;
        let to = Place::new(dir, state_name(&record.dead_name(member)));
        watch(Step::Change)?;
        from.move_to(&to).map_err(|e| Failure::file(&from.path(), e))?;
        tree.dead.add(*target, &record.dead_name(member));
        count += 1;
    }
    Ok(count)
}

/// Marks a member as dead on all targets of its set. Returns on how many it was not.
fn mark(tree: &mut Tree, record: &Record, member: usize, watch: Watch<'_>) -> Done<u64> {
    let mut count = 0;
    for target in record.targets() {
        if tree.dead.signs(record.id, member).marked.contains(&target) {
            continue;
        }
        let dir = tree.targets.dir(target).ok_or_else(|| missing(target))?;
        let place = Place::new(dir, state_name(&record.mark_name(member)));
        tree.unnamed(target)?.name(&place, Instead::Anything, watch)?;
        tree.dead.add(target, &record.mark_name(member));
        count += 1;
    }
    Ok(count)
}

/// Sets that are to be cleaned: of which enough is dead, whose dead members have no bytes any
/// more, or which are where room is short.
pub fn to_clean(tree: &Tree, wishes: &Wishes, waits: &Waits) -> BTreeSet<SetId> {
    let is_due = |record: &&Record| {
        let dead: Vec<usize> = tree.dead.members(record).collect();
        let bytes: u64 = dead.iter().map(|member| record.set.members[*member].len).sum();
        let share = u128::from(bytes) * 100;
        let enough = u128::from(record.set.logical_bytes()) * u128::from(wishes.clean_percent);
        !dead.is_empty()
            && (share >= enough
                || dead.len() == record.set.members.len()
                || !tree.dead.are_held(record)
                || record.targets().iter().any(|target| waits.is_low(*target)))
    };
    tree.sets.values().filter(is_due).map(|record| record.id).collect()
}

/// Removes files. The bytes of those in sets stay until their sets are cleaned.
pub fn remove_files(tree: &mut Tree, files: &BTreeSet<String>, watch: Watch<'_>) -> Done<Removed> {
    let mut done = Removed::default();
    for record in tree.sets.values().cloned().collect::<Vec<_>>() {
        tree.complete(&record, watch)?;
        settle(tree, &record, watch)?;
    }
    tree.rescan()?;
    for path in files {
        let is_there = tree.files.files.contains_key(path);
        if !is_there && tree.sets.values().all(|record| live(tree, record, path).is_none()) {
            return Err(Failure::other(format!(
                "there is no file `{path}` to remove: give its path from the directories on, \
                 without `./`"
            )));
        }
    }
    for path in files {
        let removed = remove_file(tree, path, &mut done, watch);
        note(removed, None, &mut done.left)?;
    }
    tree.rescan()?;
    done.usage = usage(tree);
    Ok(done)
}

/// The member of a set that has such a path and is not dead.
fn live(tree: &Tree, record: &Record, path: &str) -> Option<usize> {
    let mut members = record.set.members.iter().enumerate();
    let is_it = |member: &usize| !tree.dead.has(record.id, *member);
    members.find(|(_, known)| known.what.path == path).map(|(n, _)| n).filter(is_it)
}

fn remove_file(tree: &mut Tree, path: &str, done: &mut Removed, watch: Watch<'_>) -> Done {
    let of = |record: &Record| live(tree, record, path).map(|member| (record.clone(), member));
    let sets: Vec<(Record, usize)> = tree.sets.values().filter_map(of).collect();
    let copies = tree.files.files.get(path).cloned().unwrap_or_default();
    let kept: BTreeSet<TargetId> = sets
        .iter()
        .flat_map(|(record, member)| &record.set.members[*member].targets)
        .copied()
        .collect();
    let is_known = |copy: &Copy| {
        sets.is_empty()
            || sets.iter().any(|(record, member)| {
                let known = &record.set.members[*member];
                copy.len == known.len && known.what.modified.contains(&copy.modified)
            })
    };
    if let Some((target, _)) = copies.iter().find(|(_, copy)| !is_known(copy)) {
        let what = format!("{path}: was written since it was encoded: `weir reduce encode` first");
        done.left.push(Finding { trouble: Trouble::Changed, what, target: Some(target.0) });
        return Ok(());
    }
    // Copies that no set keeps, first: else they would come back as a new file.
    for (target, copy) in copies.iter().filter(|(target, _)| !kept.contains(target)) {
        let place = tree.file(path, *target)?;
        if !is_copy(&place, copy) {
            let what = format!("{path}: was written or removed meanwhile");
            done.left.push(Finding { trouble: Trouble::Changed, what, target: Some(target.0) });
            return Ok(());
        }
        remove(&place, watch)?;
        done.removed_copies += 1;
        done.removed_bytes += copy.len;
    }
    for (record, member) in &sets {
        hold(tree, record, *member, watch)?;
        mark(tree, record, *member, watch)?;
    }
    if let Some((record, member)) = sets.first() {
        let known = &record.set.members[*member];
        done.marked += 1;
        done.marked_bytes += known.len * known.targets.len() as u64;
    }
    Ok(())
}
