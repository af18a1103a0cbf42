//! Extra copies: those that no set keeps. They are removed when their file is in a set whose blocks
//! are all good.

use crate::blocks::is_good;
use crate::copy::Copy;
use crate::doubles::{Doubles, is_kept};
use crate::durable::remove;
use crate::encoded::Encoded;
use crate::failure::{Done, Failure};
use crate::finding::{Finding, Trouble, note};
use crate::making::open;
use crate::place::is_copy;
use crate::record::{Record, SetId};
use crate::stream::{Watch, hash};
use crate::tree::Tree;
use std::collections::BTreeSet;
use weir_types::TargetId;

/// Removes the extra copies of all sets whose records are in place.
pub fn remove_extra(
    tree: &mut Tree,
    torn: &BTreeSet<SetId>,
    done: &mut Encoded,
    watch: Watch<'_>,
) -> Done {
    let (doubles, before) = (Doubles::of(tree, torn), done.removed_copies);
    for record in tree.sets.values().filter(|record| !torn.contains(&record.id)) {
        of_set(tree, record, &doubles, done, watch)?;
    }
    match done.removed_copies > before {
        true => tree.rescan(),
        false => Ok(()),
    }
}

/// Extra copies of a set, left by a command that was stopped before it removed them. They stay
/// while any block of the set is not good.
fn of_set(
    tree: &Tree,
    record: &Record,
    doubles: &Doubles,
    done: &mut Encoded,
    watch: Watch<'_>,
) -> Done {
    let mut extra = Vec::new();
    for member in tree.living(record) {
        let (path, hash) = (member.what.path.as_str(), member.what.hash);
        let Some(copies) = tree.files.files.get(path) else { continue };
        if doubles.is_older(record.id, path) {
            continue;
        }
        let is_extra = |target: &TargetId| {
            let others = doubles.all(path).filter(|id| *id != record.id);
            !member.targets.contains(target) && !is_kept(tree, others, (path, hash), *target)
        };
        let others = copies.iter().filter(|(target, _)| is_extra(target));
        extra.extend(others.map(|(target, copy)| (member, *target, *copy)));
    }
    if extra.is_empty() || !is_good(tree, record, doubles, &mut done.left, watch)? {
        return Ok(());
    }
    for (member, target, copy) in extra {
        let path = member.what.path.as_str();
        let mut kept = BTreeSet::new();
        for target in &member.targets {
            let (place, copies) = (tree.file(path, *target)?, &tree.files.files[path]);
            let synced = place.open().and_then(|file| {
                file.sync_all()?;
                place.sync_name()
            });
            let synced = synced.map_err(|e| Failure::file(&place.path(), e));
            if note(synced, Some(*target), &mut done.left)?.is_some()
                && let Some(copy) = copies.get(target).filter(|copy| is_copy(&place, copy))
            {
                kept.insert(copy.id);
            }
        }
        let hashed =
            open(tree, path, target).and_then(|(mut file, at)| hash(&mut file, &at, watch));
        let Some((hash, _)) = note(hashed, Some(target), &mut done.left)? else { continue };
        if hash != member.what.hash {
            let (trouble, what) = (Trouble::Rotten, path.to_owned());
            done.left.push(Finding { trouble, what, target: Some(target.0) });
            continue;
        }
        if kept.len() == member.targets.len() && !kept.contains(&copy.id) {
            remove_copy(tree, path, (target, copy), done, watch)?;
        }
    }
    Ok(())
}

/// Removes a copy, unless it has changed since it was looked at.
pub fn remove_copy(
    tree: &Tree,
    file: &str,
    (target, copy): (TargetId, Copy),
    done: &mut Encoded,
    watch: Watch<'_>,
) -> Done {
    let place = tree.file(file, target)?;
    if !is_copy(&place, &copy) {
        let what = format!("{file}: was written or removed while it was read");
        done.left.push(Finding { trouble: Trouble::Changed, what, target: Some(target.0) });
        return Ok(());
    }
    if note(remove(&place, watch), Some(target), &mut done.left)?.is_some() {
        done.removed_copies += 1;
        done.removed_bytes += copy.len;
    }
    Ok(())
}
