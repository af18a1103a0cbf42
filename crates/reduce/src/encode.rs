//! Files are joined to sets, their parities computed, and copies removed.

use crate::blocks::{Found, is_replaced, look};
use crate::candidate::Candidate;
use crate::copy::Copy;
use crate::durable::{Instead, remove};
use crate::failure::{Done, Failure, is_absent};
use crate::finding::{Finding, Trouble, note};
use crate::making::{Made, make, open};
use crate::place::{Place, is_copy};
use crate::record::{FileFacts, Record, STATE, SetId, generation};
use crate::removal::{settle, to_clean};
use crate::state::{Usage, usage};
use crate::stream::{Watch, hash};
use crate::tree::{Tree, missing};
use crate::wishes::{Waits, Wishes};
use blake3::{Hash, Hasher};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use weir_layout::set::{Arrangement, Member, Parity, Set, SetCode};
use weir_types::TargetId;

/// Files that are looked at for a place in a set.
const LOOK_AHEAD: usize = 1000;
/// Bytes that a record has about for each member beside its path, and for each parity.
const RECORD_BYTES: u64 = 250;

/// What encoding has done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Encoded {
    /// Sets that were made.
    pub sets: u64,
    /// Files that were encoded.
    pub files: u64,
    /// Copies that were removed.
    pub removed_copies: u64,
    /// Bytes of these.
    pub removed_bytes: u64,
    /// Sets that are gone since enough of their files was removed.
    pub cleaned: u64,
    /// Files that stay as copies until they are older.
    pub waiting: u64,
    /// Bytes of all copies of these.
    pub waiting_bytes: u64,
    /// How much there is now.
    pub usage: Usage,
    /// What was not encoded, since something is wrong with it.
    pub left: Vec<Finding>,
}

/// Encodes the files that are in no set yet, as far as it is wished. Sets with members that were
/// written since, or that are forgotten since they were removed on purpose, and sets of which
/// enough was removed, are dissolved when their other members are in new ones. What fails is left
/// as it is, and the rest goes on.
pub fn encode(tree: &mut Tree, code: SetCode, wishes: &Wishes, watch: Watch<'_>) -> Done<Encoded> {
    let forgotten = &wishes.forgotten;
    let waits = Waits::new(tree, wishes)?;
    let sites = tree.sites();
    let arrange = || Arrangement::new(code, &sites).map_err(|e| Failure::other(e.to_string()));
    arrange()?;
    check_forgotten(tree, forgotten)?;
    let mut done = Encoded::default();
    // Then a record may be missing, and nothing is removed that it may need.
    let mut is_torn = false;
    let (mut settled, mut whole) = (0, Vec::new());
    for record in tree.sets.values().cloned().collect::<Vec<_>>() {
        let completed = tree.complete(&record, watch);
        match note(completed.and_then(|()| settle(tree, &record, watch)), None, &mut done.left)? {
            Some(changes) => {
                settled += changes;
                whole.push(record);
            }
            None => is_torn = true,
        }
    }
    if settled > 0 {
        tree.rescan()?;
    }
    for record in &whole {
        remove_extra(tree, record, &mut done, watch)?;
    }
    if done.removed_copies > 0 {
        tree.rescan()?;
    }
    done.left.extend(tree.files.failed.iter().cloned());
    let to_clean = to_clean(tree, wishes, &waits);
    let stale = stale(tree, (forgotten, &to_clean), &mut done, watch)?;
    let mut waiting =
        VecDeque::from(candidates(tree, &stale, |copies| waits.wait(code, copies), &mut done));
    while !waiting.is_empty() {
        let mut arrangement = arrange()?;
        let chosen = choose(&waiting, &mut arrangement, (code, sites.len()));
        let parities = arrangement.parities();
        let members: Vec<(Candidate, Vec<TargetId>)> =
            chosen.iter().map(|(i, targets)| (waiting[*i].clone(), targets.clone())).collect();
        if !is_worth_it(code, &members) {
            // The first of them would not be in a better one: it has the fewest to be with.
            let first = chosen.first().map_or(0, |(i, _)| *i);
            if let Some(alone) = waiting.remove(first)
                && alone.copies.len() <= code.bears()
            {
                let (trouble, what) = (Trouble::FewCopies, alone.path);
                done.left.push(Finding { trouble, what, target: None });
            }
            continue;
        }
        let made = one_set(tree, code, &members, &parities, &mut done, watch);
        match note(made, None, &mut done.left)? {
            Some(Some((bad, finding))) => {
                done.left.push(finding);
                waiting.remove(chosen[bad].0);
            }
            made => {
                is_torn |= made.is_none();
                // They are among the first: it costs little to take them out.
                for (i, _) in chosen.iter().rev() {
                    waiting.remove(*i);
                }
            }
        }
    }
    if !is_torn {
        for id in covered(tree, &stale, forgotten) {
            if note(tree.dissolve(id, watch), None, &mut done.left)?.is_some() {
                done.cleaned += u64::from(to_clean.contains(&id));
            }
        }
        note(tree.remove_orphans(watch), None, &mut done.left)?;
    }
    tree.rescan()?;
    done.usage = usage(tree);
    Ok(done)
}

/// Chooses the members of a set, in their order: first those whose copies are spread evenly, so
/// that no disk has most of what is read, and that are nearly as long as the first; then any.
fn choose(
    waiting: &VecDeque<Candidate>,
    arrangement: &mut Arrangement,
    (code, targets): (SetCode, usize),
) -> Vec<(usize, Vec<TargetId>)> {
    let mut chosen: BTreeMap<usize, Vec<TargetId>> = BTreeMap::new();
    let mut load: BTreeMap<TargetId, usize> = BTreeMap::new();
    let (copies, longest) = waiting.front().map_or((0, 0), |first| (first.copies.len(), first.len));
    let even = (code.members() * copies).div_ceil(targets);
    for at_most in [Some(even), Some(even + 1), None] {
        for (i, candidate) in waiting.iter().enumerate().take(LOOK_AHEAD) {
            if arrangement.is_full() {
                break;
            }
            let fits = |at_most| {
                let loads = candidate.copies.keys().filter_map(|target| load.get(target));
                loads.max().is_none_or(|most| *most < at_most) && candidate.len >= longest / 8 * 7
            };
            if chosen.contains_key(&i) || !at_most.is_none_or(fits) {
                continue;
            }
            let held: Vec<TargetId> = candidate.copies.keys().copied().collect();
            if let Some(targets) = arrangement.add(&held, false) {
                chosen.insert(i, targets);
                held.iter().for_each(|target| *load.entry(*target).or_default() += 1);
            }
        }
    }
    chosen.into_iter().collect()
}

/// A path that is in no set is a slip of the pen: the file would come back.
fn check_forgotten(tree: &Tree, forgotten: &BTreeSet<String>) -> Done {
    let members = tree.sets.values().flat_map(|record| tree.living(record));
    let paths: BTreeSet<&str> = members.map(|member| member.what.path.as_str()).collect();
    match forgotten.iter().find(|path| !paths.contains(path.as_str())) {
        None => Ok(()),
        Some(path) => Err(Failure::other(format!(
            "no set has a file `{path}` to forget: give its path as `weir reduce verify` does, \
             from the directories on and without `./`"
        ))),
    }
}

/// Whether a set is better than the copies there are, with its records.
fn is_worth_it(code: SetCode, members: &[(Candidate, Vec<TargetId>)]) -> bool {
    let now: u64 = members.iter().map(|(file, _)| file.len * file.copies.len() as u64).sum();
    let then = code.stored_bytes(members.iter().map(|(file, _)| file.len));
    let kept: BTreeSet<TargetId> = members.iter().flat_map(|(_, kept)| kept).copied().collect();
    let parities = code.parities() as u64;
    let paths: u64 = members.iter().map(|(file, _)| RECORD_BYTES + file.path.len() as u64).sum();
    let records = (paths + parities * RECORD_BYTES) * (kept.len() as u64 + parities);
    let is_in_danger = |(file, _): &(Candidate, Vec<TargetId>)| file.copies.len() <= code.bears();
    !members.is_empty() && (then + records < now || members.iter().any(is_in_danger))
}

/// Sets that are to be cleaned, or of which a member was written since, or is forgotten.
fn stale(
    tree: &Tree,
    (forgotten, to_clean): (&BTreeSet<String>, &BTreeSet<SetId>),
    done: &mut Encoded,
    watch: Watch<'_>,
) -> Done<BTreeSet<SetId>> {
    let mut stale = to_clean.clone();
    for record in tree.sets.values() {
        for member in tree.living(record) {
            let path = &member.what.path;
            if forgotten.contains(path) {
                stale.insert(record.id);
            }
            if is_replaced(tree, member, watch)? {
                stale.insert(record.id);
                continue;
            }
            for (target, modified) in member.targets.iter().zip(&member.what.modified) {
                let copy = tree.files.files.get(path).and_then(|copies| copies.get(target));
                if copy.is_some_and(|copy| (copy.len, copy.modified) == (member.len, *modified)) {
                    continue;
                }
                let place = tree.file(path, *target)?;
                let hashed = place.open().map_err(|e| Failure::file(&place.path(), e));
                let hashed = hashed.and_then(|mut file| hash(&mut file, &place.path(), watch));
                if let Err(Failure::System { source, .. }) = &hashed
                    && is_absent(source)
                {
                    if !forgotten.contains(path) {
                        let (what, target) = (path.clone(), Some(target.0));
                        done.left.push(Finding { trouble: Trouble::Missing, what, target });
                    }
                    continue;
                }
                if let Some((hash, _)) = note(hashed, Some(*target), &mut done.left)?
                    && hash != member.what.hash
                {
                    stale.insert(record.id);
                }
            }
        }
    }
    Ok(stale)
}

/// Sets of which nothing is needed any more: their members are in others, or forgotten.
fn covered(tree: &Tree, stale: &BTreeSet<SetId>, forgotten: &BTreeSet<String>) -> Vec<SetId> {
    let others = tree.sets.values().filter(|record| !stale.contains(&record.id));
    let others: BTreeSet<&str> =
        others.flat_map(|r| tree.living(r).map(|member| member.what.path.as_str())).collect();
    let is_covered = |id: &&SetId| {
        tree.sets.get(id).is_some_and(|record| {
            let mut members = tree.living(record).map(|member| &member.what.path);
            members.all(|path| others.contains(path.as_str()) || forgotten.contains(path))
        })
    };
    stale.iter().filter(is_covered).copied().collect()
}

/// Files in no set that stays, the longest first, so that members are of similar length.
fn candidates(
    tree: &Tree,
    stale: &BTreeSet<SetId>,
    waits: impl Fn(&BTreeMap<TargetId, Copy>) -> bool,
    done: &mut Encoded,
) -> Vec<Candidate> {
    let (mut encoded, mut expected) = (BTreeSet::new(), BTreeMap::new());
    for record in tree.sets.values() {
        for member in tree.living(record) {
            match stale.contains(&record.id) {
                true => drop(expected.insert(member.what.path.as_str(), member)),
                false => drop(encoded.insert(member.what.path.as_str())),
            }
        }
    }
    let mut all = Vec::new();
    for (path, copies) in &tree.files.files {
        if encoded.contains(path.as_str()) {
            continue;
        }
        let lens: BTreeSet<u64> = copies.values().map(|copy| copy.len).collect();
        let files: BTreeSet<(u64, u64)> = copies.values().map(|copy| copy.id).collect();
        let why = match () {
            () if lens.len() > 1 => "its copies differ in length",
            () if files.len() < copies.len() => "two of its copies are one file: a link or a mount",
            () => "",
        };
        let Some(len) = lens.first().copied().filter(|_| why.is_empty()) else {
            let (trouble, what) = (Trouble::Differ, format!("{path}: {why}"));
            done.left.push(Finding { trouble, what, target: None });
            continue;
        };
        if len == 0 {
            continue;
        }
        if waits(copies) {
            done.waiting += 1;
            done.waiting_bytes += len * copies.len() as u64;
            continue;
        }
        let is_as_it_was = |member: &&&Member<FileFacts>| {
            let mut times = copies.values().map(|copy| copy.modified);
            len == member.len && times.all(|time| member.what.modified.contains(&time))
        };
        let expected = expected.get(path.as_str()).filter(is_as_it_was);
        all.push(Candidate {
            path: path.clone(),
            copies: copies.clone(),
            len,
            expected: expected.map(|member| member.what.hash),
        });
    }
    all.sort_by(|a, b| b.len.cmp(&a.len).then_with(|| a.path.cmp(&b.path)));
    all
}

/// Makes a set. Returns which member is not as it should be, if one is not; then nothing
/// has changed.
fn one_set(
    tree: &mut Tree,
    code: SetCode,
    members: &[(Candidate, Vec<TargetId>)],
    parities: &[TargetId],
    done: &mut Encoded,
    watch: Watch<'_>,
) -> Done<Option<(usize, Finding)>> {
    let bad = |i: usize, trouble, what: &str, target: TargetId| {
        let what = format!("{}: {what}", members[i].0.path);
        Ok(Some((i, Finding { trouble, what, target: Some(target.0) })))
    };
    let failed = |i: usize, failure: Failure| match failure {
        Failure::System { .. } => {
            let (trouble, what) = (Trouble::Failed, failure.to_string());
            Ok(Some((i, Finding { trouble, what, target: None })))
        }
        Failure::Other(_) => Err(failure),
    };
    let mut inputs = Vec::new();
    for (i, (candidate, targets)) in members.iter().enumerate() {
        match open(tree, &candidate.path, targets[0]) {
            Ok(input) => inputs.push(input),
            Err(failure) => return failed(i, failure),
        }
    }
    let mut outputs = Vec::new();
    for target in parities {
        outputs.push((tree.unnamed(*target)?, Hasher::new()));
    }
    let Made { hashes, mut seen } = match make(tree, code, members, (&inputs, &mut outputs), watch)?
    {
        Ok(made) => made,
        Err((i, failure)) => return failed(i, failure),
    };
    for (i, (candidate, targets)) in members.iter().enumerate() {
        let others = candidate.copies.keys().filter(|target| **target != targets[0]);
        for target in std::iter::once(&targets[0]).chain(others) {
            match seen.remove(&(i, *target)) {
                Some(Err(failure)) => return failed(i, failure),
                Some(Ok(seen)) if seen.hash.is_some_and(|hash| hash != hashes[i]) => {
                    let what = format!("its copies on targets {} and {target} differ", targets[0]);
                    return bad(i, Trouble::Differ, &what, *target);
                }
                Some(Ok(seen)) if seen.is_kept => {}
                Some(Ok(_)) | None => {
                    return bad(i, Trouble::Changed, "was written while it was read", *target);
                }
            }
            if candidate.expected.is_some_and(|expected| expected != hashes[i]) {
                let what = "is rotten: `weir reduce repair` first";
                return bad(i, Trouble::Rotten, what, targets[0]);
            }
        }
    }
    let member = |((candidate, targets), hash): (&(Candidate, Vec<TargetId>), &Hash)| {
        let copy = candidate.copies[&targets[0]];
        let what = FileFacts {
            path: candidate.path.clone(),
            hash: *hash,
            mode: copy.mode,
            owner: copy.owner,
            modified: targets.iter().map(|target| candidate.copies[target].modified).collect(),
        };
        let generation = generation(hash);
        Member { what, generation, len: candidate.len, targets: targets.clone() }
    };
    let parity_hashes: Vec<Hash> = outputs.iter().map(|(_, hasher)| hasher.finalize()).collect();
    let places = parities.iter().zip(&parity_hashes);
    let set = Set {
        code,
        members: members.iter().zip(&hashes).map(member).collect(),
        parities: places
            .map(|(target, hash)| Parity { generation: generation(hash), target: *target })
            .collect(),
    };
    if let Err(fault) = set.check(&tree.sites()) {
        return Err(Failure::other(format!("a set of {code} has a wrong place: {fault:?}")));
    }
    let record = Record::new(set, parity_hashes)?;
    for (row, (file, _)) in outputs.into_iter().enumerate() {
        let dir = tree.targets.dir(parities[row]).ok_or_else(|| missing(parities[row]))?;
        let place = Place::new(dir, format!("{STATE}/{}", record.parity_name(row)));
        file.name(&place, Instead::Anything, watch)?;
    }
    tree.complete(&record, watch)?;
    tree.sets.insert(record.id, record);
    done.sets += 1;
    done.files += members.len() as u64;
    for (candidate, targets) in members {
        for (target, copy) in candidate.copies.iter().filter(|(t, _)| !targets.contains(t)) {
            remove_copy(tree, &candidate.path, (*target, *copy), done, watch)?;
        }
    }
    Ok(None)
}

/// Copies that a set does not keep: somebody was stopped before removing them. They stay while
/// anything of the set is not as it should be.
fn remove_extra(tree: &Tree, record: &Record, done: &mut Encoded, watch: Watch<'_>) -> Done {
    let mut extra = Vec::new();
    for member in tree.living(record) {
        let Some(copies) = tree.files.files.get(&member.what.path) else { continue };
        let others = copies.iter().filter(|(target, _)| !member.targets.contains(target));
        extra.extend(others.map(|(target, copy)| (member, *target, *copy)));
    }
    if extra.is_empty() || !look(tree, record, watch)?.values().all(|found| *found == Found::Good) {
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
        let hashed = note(hashed, Some(target), &mut done.left)?;
        if kept.len() == member.targets.len()
            && !kept.contains(&copy.id)
            && hashed.is_some_and(|(hash, _)| hash == member.what.hash)
        {
            remove_copy(tree, path, (target, copy), done, watch)?;
        }
    }
    Ok(())
}

/// Removes a copy, unless somebody has written it meanwhile.
fn remove_copy(
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

#[cfg(test)]
#[allow(clippy::unwrap_used)] // A panic is how a test fails.
mod tests {
    use super::*;
    use weir_layout::Home;
    use weir_layout::set::Site;
    use weir_types::ServerId;

    /// Eight files of each of ten nodes, whose disk has a copy of each; as they wait.
    fn of_nodes(len: impl Fn(usize) -> u64) -> VecDeque<Candidate> {
        let file = |n: usize| {
            let (node, step) = (n / 8, 1 + n % 8);
            let targets = [node, node + step, node + step + 1];
            let copy = Copy {
                len: len(n),
                modified: (0, 0),
                changed: (0, 0),
                id: (0, n as u64),
                mode: 0,
                owner: (0, 0),
            };
            Candidate {
                path: format!("node{node}/file{n}"),
                copies: targets.map(|t| (TargetId(t as u32 % 10), copy)).into_iter().collect(),
                len: len(n),
                expected: None,
            }
        };
        (0..80).map(file).collect()
    }

    fn chosen(waiting: &VecDeque<Candidate>) -> Vec<usize> {
        let site = |n| Site { target: TargetId(n), home: Home::alone(ServerId(n)) };
        let sites: Vec<Site> = (0..10).map(site).collect();
        let code: SetCode = "raid6".parse().unwrap();
        let mut arrangement = Arrangement::new(code, &sites).unwrap();
        choose(waiting, &mut arrangement, (code, 10)).into_iter().map(|(i, _)| i).collect()
    }

    #[test]
    fn no_disk_has_most_of_what_is_read_for_a_set() {
        let waiting = of_nodes(|_| 1000);
        let members = chosen(&waiting);
        assert_eq!(members.len(), 8);
        let reads = |target| {
            let all = members.iter().filter(|i| waiting[**i].copies.contains_key(&target));
            all.count()
        };
        let most = (0..10).map(TargetId).map(reads).max();
        // 24 copies on 10 disks; all files of the first node would be 8 on its disk.
        assert!(most <= Some(3), "{most:?}: {members:?}");
    }

    #[test]
    fn files_of_one_length_are_together_even_if_one_disk_has_all_of_them() {
        let waiting = of_nodes(|n| if n < 8 { 1000 } else { 10 });
        assert_eq!(chosen(&waiting), [0, 1, 2, 3, 4, 5, 6, 7]);
    }
}
