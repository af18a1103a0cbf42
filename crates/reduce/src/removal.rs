//! Removes files from sets: their names at once, their bytes when their set is cleaned.
//!
//! Invariant: marks are written only when no copy in the set has its old name, apart from copies
//! that another set keeps as well; or when another file was put back under that name. So where
//! there is a mark, a file of the old name is a different file, whatever its length and time.

use crate::copy::Copy;
use crate::durable::{Instead, remove};
use crate::failure::{Done, Failure, is_absent};
use crate::finding::{Finding, Trouble, note};
use crate::place::{Place, is_copy};
use crate::record::{FileFacts, Record, SetId};
use crate::state::{Usage, usage};
use crate::stream::{Step, Watch, hash};
use crate::tree::{Tree, missing, state_name};
use crate::wishes::{Waits, Wishes};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use weir_layout::set::Member;
use weir_types::TargetId;

/// The result of a removal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Removed {
    /// Number of removed members whose bytes stay until their set is cleaned.
    pub marked: u64,
    /// Bytes of these members, with all copies that sets keep.
    pub marked_bytes: u64,
    /// Number of removed copies.
    pub removed_copies: u64,
    /// Bytes of the removed copies.
    pub removed_bytes: u64,
    /// Space usage after the command.
    pub usage: Usage,
    /// Findings about files that could not be removed.
    pub left: Vec<Finding>,
}

/// Completes interrupted removals of a set, and writes missing marks to its targets. Returns the
/// number of changes.
pub fn settle(tree: &mut Tree, record: &Record, watch: Watch<'_>) -> Done<u64> {
    let mut changes = 0;
    for member in tree.dead.members(record).collect::<Vec<_>>() {
        let signs = tree.dead.signs(record.id, member);
        if signs.marked.is_empty() && !is_put_back(tree, (record, member), &signs.held)? {
            let path = &record.set.members[member].what.path;
            let sets = living(tree, |of| of == path).remove(path).unwrap_or_default();
            changes += hold(tree, (record, member), &sets, watch)?.0;
        }
        changes += mark(tree, record, member, watch)?;
    }
    Ok(changes)
}

/// Marks forgotten files that have no copy left as removed. So they are not restored, even if their
/// sets stay for a while.
pub fn forget(
    tree: &mut Tree,
    forgotten: &BTreeSet<String>,
    left: &mut Vec<Finding>,
    watch: Watch<'_>,
) -> Done {
    let is_gone = |path: &str| forgotten.contains(path) && !tree.files.files.contains_key(path);
    for (record, member) in living(tree, is_gone).into_values().flatten() {
        let known = &record.set.members[member];
        let mut places = known.targets.iter().map(|target| tree.file(&known.what.path, *target));
        // If a directory cannot be looked at, it may have the file.
        let is_absent = |place: Done<Place>| {
            place.is_ok_and(|place| place.metadata().is_err_and(|error| is_absent(&error)))
        };
        if places.all(is_absent) {
            note(mark(tree, &record, member, watch), None, left)?;
        }
    }
    Ok(())
}

/// Whether another file has the old name of a removed member on a target that has the member's
/// bytes under the new name. Then the other copies may be of that file as well, and stay.
fn is_put_back(
    tree: &Tree,
    (record, member): (&Record, usize),
    held: &BTreeSet<TargetId>,
) -> Done<bool> {
    let id = |place: &Place| match place.metadata() {
        Ok(meta) => Ok(Some(Copy::of(&meta).id)),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(Failure::file(&place.path(), error)),
    };
    for target in held {
        let Some(dir) = tree.targets.dir(*target) else { continue };
        let there = id(&tree.file(&record.set.members[member].what.path, *target)?)?;
        // If another set keeps the file too, the bytes have two names.
        let bytes = id(&Place::new(dir, state_name(&record.dead_name(member))))?;
        if there.is_some() && there != bytes {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a copy has the encoded bytes: by its modification time or, if that has changed, by its
/// hash.
fn is_member(
    known: &Member<FileFacts>,
    place: &Place,
    copy: &Copy,
    watch: Watch<'_>,
) -> Done<bool> {
    if copy.len != known.len || known.what.modified.contains(&copy.modified) {
        return Ok(copy.len == known.len);
    }
    let mut file = place.open().map_err(|e| Failure::file(&place.path(), e))?;
    Ok(hash(&mut file, &place.path(), watch)?.0 == known.what.hash)
}

/// Renames the copies of a member to their new names. Copies that another one of `sets` keeps get
/// the new name as a second one. Returns how many were renamed, and where another file stands in
/// the way. A target that has the new name has no copy under the old one.
fn hold(
    tree: &mut Tree,
    (record, member): (&Record, usize),
    sets: &[(Record, usize)],
    watch: Watch<'_>,
) -> Done<(u64, Option<TargetId>)> {
    let known = &record.set.members[member];
    let (mut count, mut other) = (0, None);
    let held = tree.dead.signs(record.id, member).held;
    for target in known.targets.iter().filter(|target| !held.contains(target)) {
        let from = tree.file(&known.what.path, *target)?;
        let meta = match from.metadata() {
            Ok(meta) if meta.is_file() => meta,
            Ok(_) => continue,
            Err(error) if is_absent(&error) => continue,
            // It may have the copy.
            Err(error) => return Err(Failure::file(&from.path(), error)),
        };
        let is_shared = sets.iter().any(|(set, member)| {
            let is_other = set.id != record.id && !tree.dead.has(set.id, *member);
            is_other && set.set.members[*member].targets.contains(target)
        });
        if !is_member(known, &from, &Copy::of(&meta), watch)? {
            other = other.or(Some(*target).filter(|_| !is_shared));
            continue;
        }
        let dir = tree.targets.dir(*target).ok_or_else(|| missing(*target))?;
        let to = Place::new(dir, state_name(&record.dead_name(member)));
        watch(Step::Change)?;
        let named = if is_shared { from.link_to(&to) } else { from.move_to(&to) };
        named.map_err(|e| Failure::file(&from.path(), e))?;
        tree.dead.add(*target, &record.dead_name(member));
        count += 1;
    }
    Ok((count, other))
}

/// Marks a member as dead on all targets of its set. Returns on how many the mark was missing. A
/// failure on one target does not keep the others from being marked: each mark keeps the file from
/// being restored.
fn mark(tree: &mut Tree, record: &Record, member: usize, watch: Watch<'_>) -> Done<u64> {
    let (mut count, mut refused) = (0, None);
    for target in record.targets() {
        if tree.dead.signs(record.id, member).marked.contains(&target) {
            continue;
        }
        match mark_on(tree, record, (member, target), watch) {
            Ok(()) => count += 1,
            Err(failure @ Failure::System { .. }) => refused = refused.or(Some(failure)),
            Err(failure) => return Err(failure),
        }
    }
    refused.map_or(Ok(count), Err)
}

fn mark_on(
    tree: &mut Tree,
    record: &Record,
    (member, target): (usize, TargetId),
    watch: Watch<'_>,
) -> Done {
    let dir = tree.targets.dir(target).ok_or_else(|| missing(target))?;
    let place = Place::new(dir, state_name(&record.mark_name(member)));
    tree.unnamed(target)?.name(&place, Instead::Anything, watch)?;
    tree.dead.add(target, &record.mark_name(member));
    Ok(())
}

/// Sets that are to be cleaned: enough of them is dead, or none of their dead members has bytes, or
/// one of their targets is short of space.
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

/// Removes files. The bytes of files in sets stay until their sets are cleaned.
pub fn remove_files(tree: &mut Tree, files: &BTreeSet<String>, watch: Watch<'_>) -> Done<Removed> {
    let (mut done, mut settled) = (Removed::default(), 0);
    for record in tree.sets.values().cloned().collect::<Vec<_>>() {
        let completed = tree.complete(&record, watch);
        let changes = completed.and_then(|()| settle(tree, &record, watch));
        settled += note(changes, None, &mut done.left)?.unwrap_or(1);
    }
    if settled > 0 {
        tree.rescan()?;
    }
    // The directories that could not be read may have copies.
    done.left.extend(tree.files.failed.iter().cloned());
    let mut sets = living(tree, |path| files.contains(path));
    let is_there =
        |path: &&String| tree.files.files.contains_key(*path) || sets.contains_key(*path);
    if let Some(path) = files.iter().find(|path| !is_there(path)) {
        return Err(Failure::other(format!(
            "there is no file `{path}` to remove: give its path from the directories on, \
             without `./`"
        )));
    }
    for path in files {
        let sets = sets.remove(path).unwrap_or_default();
        let removed = remove_file(tree, path, &sets, &mut done, watch);
        note(removed, None, &mut done.left)?;
    }
    tree.rescan()?;
    done.usage = usage(tree);
    Ok(done)
}

/// The sets that contain the selected files, with the numbers of these members. Dead members are
/// left out.
fn living(tree: &Tree, is_it: impl Fn(&str) -> bool) -> BTreeMap<String, Vec<(Record, usize)>> {
    let mut all: BTreeMap<String, Vec<(Record, usize)>> = BTreeMap::new();
    for record in tree.sets.values() {
        for (member, known) in record.set.members.iter().enumerate() {
            let path = known.what.path.as_str();
            if is_it(path) && !tree.dead.has(record.id, member) {
                all.entry(path.to_owned()).or_default().push((record.clone(), member));
            }
        }
    }
    all
}

fn remove_file(
    tree: &mut Tree,
    path: &str,
    sets: &[(Record, usize)],
    done: &mut Removed,
    watch: Watch<'_>,
) -> Done {
    let changed = |what: &str, target: TargetId| {
        let what = format!("{path}: {what}");
        Finding { trouble: Trouble::Changed, what, target: Some(target.0) }
    };
    let mut extra = Vec::new();
    for (target, copy) in tree.files.files.get(path).cloned().unwrap_or_default() {
        let place = tree.file(path, target)?;
        let (mut is_known, mut is_kept) = (sets.is_empty(), false);
        for (record, member) in sets {
            let known = &record.set.members[*member];
            if is_member(known, &place, &copy, watch)? {
                is_known = true;
                is_kept |= known.targets.contains(&target);
            }
        }
        if !is_known {
            let what = "was written since it was encoded: `weir reduce encode` first";
            done.left.push(changed(what, target));
            return Ok(());
        }
        if !is_kept {
            extra.push((target, copy, place));
        }
    }
    // Copies that no set keeps go first: otherwise they would come back as a new file.
    for (target, copy, place) in extra {
        if !is_copy(&place, &copy) {
            done.left.push(changed("was written or removed meanwhile", target));
            return Ok(());
        }
        remove(&place, watch)?;
        done.removed_copies += 1;
        done.removed_bytes += copy.len;
    }
    for (record, member) in sets {
        if let (_, Some(target)) = hold(tree, (record, *member), sets, watch)? {
            done.left.push(changed("was written meanwhile", target));
            return Ok(());
        }
        mark(tree, record, *member, watch)?;
    }
    if let Some((record, member)) = sets.first() {
        let known = &record.set.members[*member];
        done.marked += 1;
        done.marked_bytes += known.len * known.targets.len() as u64;
    }
    Ok(())
}
