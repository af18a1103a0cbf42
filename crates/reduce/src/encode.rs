//! Files are joined to sets, their parities computed, and copies removed.

use crate::durable::{Unnamed, remove};
use crate::failure::{Done, Failure};
use crate::record::{FileFacts, Record, STATE, SetId, generation};
use crate::scan::Copy;
use crate::state::{Finding, Trouble, Usage, usage};
use crate::stream::{PIECE_BYTES, Step, Watch, hash, read_piece};
use crate::tree::{Tree, missing};
use blake3::{Hash, Hasher};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::PathBuf;
use weir_layout::set::{Arrangement, Member, Parity, Set, SetCode};
use weir_types::TargetId;

/// Files that are looked at for a place in a set.
const LOOK_AHEAD: usize = 1000;

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
    /// How much there is now.
    pub usage: Usage,
    /// What was not encoded, since something is wrong with it.
    pub left: Vec<Finding>,
}

/// A file that may become a member.
#[derive(Clone)]
struct Candidate {
    path: String,
    copies: BTreeMap<TargetId, Copy>,
    len: u64,
    /// What it was when it was encoded the last time.
    expected: Option<Hash>,
}

/// Encodes all files that are in no set yet. Sets with members that were written since, or
/// that are `forgotten` since they were removed on purpose, are dissolved when their other
/// members are in new ones.
pub fn encode(
    tree: &mut Tree,
    code: SetCode,
    forgotten: &BTreeSet<String>,
    watch: Watch<'_>,
) -> Done<Encoded> {
    let sites = tree.sites();
    let arrange = || Arrangement::new(code, &sites).map_err(|e| Failure::other(e.to_string()));
    arrange()?;
    let mut done = Encoded::default();
    for record in tree.sets.values().cloned().collect::<Vec<_>>() {
        tree.complete(&record, watch)?;
        remove_extra(tree, &record, &mut done, watch)?;
    }
    let stale = stale(tree, forgotten, &mut done, watch)?;
    let mut waiting = candidates(tree, &stale, &mut done);
    while !waiting.is_empty() {
        let mut arrangement = arrange()?;
        let mut chosen = Vec::new();
        for (i, candidate) in waiting.iter().enumerate().take(LOOK_AHEAD) {
            let held: Vec<TargetId> = candidate.copies.keys().copied().collect();
            if let Some(targets) = arrangement.add(&held, false) {
                chosen.push((i, targets));
            }
            if arrangement.is_full() {
                break;
            }
        }
        let parities = arrangement.parities();
        let members: Vec<(Candidate, Vec<TargetId>)> =
            chosen.iter().map(|(i, targets)| (waiting[*i].clone(), targets.clone())).collect();
        if !arrangement.is_full() && !is_worth_it(code, &members) {
            // The first of them would not be in a better one: it has the fewest to be with.
            let first = chosen.first().map_or(0, |(i, _)| *i);
            let alone = waiting.remove(first);
            if alone.copies.len() <= code.bears() {
                let what = format!("{}: too few copies for a place in a set", alone.path);
                done.left.push(Finding { trouble: Trouble::Missing, what, target: None });
            }
            continue;
        }
        match one_set(tree, code, &members, &parities, &mut done, watch)? {
            None => {
                let used: BTreeSet<usize> = chosen.iter().map(|(i, _)| *i).collect();
                let mut at = 0..;
                waiting.retain(|_| !at.next().is_some_and(|i| used.contains(&i)));
            }
            Some((bad, finding)) => {
                done.left.push(finding);
                waiting.remove(chosen[bad].0);
            }
        }
    }
    for id in stale {
        if is_covered(tree, id, forgotten) {
            tree.dissolve(id, watch)?;
        }
    }
    if tree.rotten_records.is_empty() {
        tree.remove_orphans(watch)?;
    }
    tree.rescan()?;
    done.usage = usage(tree);
    Ok(done)
}

/// Whether a set that is not full is better than the copies there are.
fn is_worth_it(code: SetCode, members: &[(Candidate, Vec<TargetId>)]) -> bool {
    let now: u64 = members.iter().map(|(file, _)| file.len * file.copies.len() as u64).sum();
    let then = code.stored_bytes(members.iter().map(|(file, _)| file.len));
    let is_in_danger = |(file, _): &(Candidate, Vec<TargetId>)| file.copies.len() <= code.bears();
    !members.is_empty() && (then < now || members.iter().any(is_in_danger))
}

/// Sets of which a member was written since, or is forgotten.
fn stale(
    tree: &Tree,
    forgotten: &BTreeSet<String>,
    done: &mut Encoded,
    watch: Watch<'_>,
) -> Done<BTreeSet<SetId>> {
    let mut stale = BTreeSet::new();
    for record in tree.sets.values() {
        for member in &record.set.members {
            if forgotten.contains(&member.what.path) {
                stale.insert(record.id);
            }
            for (target, modified) in member.targets.iter().zip(&member.what.modified) {
                let copy = tree.files.files.get(&member.what.path).and_then(|c| c.get(target));
                let Some(copy) = copy else {
                    if !forgotten.contains(&member.what.path) {
                        let (what, target) = (member.what.path.clone(), Some(target.0));
                        done.left.push(Finding { trouble: Trouble::Missing, what, target });
                    }
                    continue;
                };
                if (copy.len, copy.modified) == (member.len, *modified) {
                    continue;
                }
                let (mut file, path) = open(tree, &member.what.path, *target)?;
                if hash(&mut file, &path, watch)?.0 != member.what.hash {
                    stale.insert(record.id);
                }
            }
        }
    }
    Ok(stale)
}

/// Whether nothing of a set is needed any more: its members are in other ones, or forgotten.
fn is_covered(tree: &Tree, id: SetId, forgotten: &BTreeSet<String>) -> bool {
    let others = tree.sets.values().filter(|record| record.id != id);
    let others: BTreeSet<&str> =
        others.flat_map(|r| r.set.members.iter().map(|member| member.what.path.as_str())).collect();
    tree.sets.get(&id).is_some_and(|record| {
        let mut members = record.set.members.iter().map(|member| member.what.path.as_str());
        members.all(|path| others.contains(path) || forgotten.contains(path))
    })
}

/// Files in no set that stays, the longest first, so that members are of similar length.
fn candidates(tree: &Tree, stale: &BTreeSet<SetId>, done: &mut Encoded) -> Vec<Candidate> {
    let (mut encoded, mut expected) = (BTreeSet::new(), BTreeMap::new());
    for record in tree.sets.values() {
        for member in &record.set.members {
            match stale.contains(&record.id) {
                true => drop(expected.insert(member.what.path.as_str(), member)),
                false => drop(encoded.insert(member.what.path.as_str())),
            }
        }
    }
    let mut all = Vec::new();
    for (path, copies) in &tree.files.files {
        let lens: BTreeSet<u64> = copies.values().map(|copy| copy.len).collect();
        let [len] = lens.iter().copied().collect::<Vec<_>>()[..] else {
            if !encoded.contains(path.as_str()) {
                let what = format!("{path}: its copies differ in length");
                done.left.push(Finding { trouble: Trouble::Changed, what, target: None });
            }
            continue;
        };
        if len == 0 || encoded.contains(path.as_str()) {
            continue;
        }
        let is_as_it_was = |member: &&&Member<FileFacts>| {
            let known = member.targets.iter().zip(&member.what.modified);
            let is_as_it_was = |(target, modified): (&TargetId, &(i64, u32))| {
                copies.get(target).is_some_and(|copy: &Copy| copy.modified == *modified)
            };
            len == member.len && known.clone().all(is_as_it_was)
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
    let mut inputs = Vec::new();
    for (candidate, targets) in members {
        inputs.push(open(tree, &candidate.path, targets[0])?);
    }
    let mut outputs = Vec::new();
    for target in parities {
        outputs.push((tree.unnamed(*target)?, Hasher::new()));
    }
    let hashes = compute(code, members, &mut inputs, &mut outputs, watch)?;
    for (i, (candidate, targets)) in members.iter().enumerate() {
        let (file, path) = &inputs[i];
        let meta = file.metadata().map_err(|e| Failure::file(path, e))?;
        if Copy::of(&meta) != candidate.copies[&targets[0]] {
            give_up(outputs)?;
            return bad(i, Trouble::Changed, "was written while it was read", targets[0]);
        }
        if candidate.expected.is_some_and(|expected| expected != hashes[i]) {
            give_up(outputs)?;
            let what = "is rotten: `weir reduce repair` first";
            return bad(i, Trouble::Rotten, what, targets[0]);
        }
        // What stays must be on disk before anything else goes, and the same.
        file.sync_all().map_err(|e| Failure::file(path, e))?;
        for target in candidate.copies.keys().filter(|target| **target != targets[0]) {
            let (mut other, path) = open(tree, &candidate.path, *target)?;
            if hash(&mut other, &path, watch)?.0 != hashes[i] {
                give_up(outputs)?;
                let what = format!("its copies on targets {} and {target} differ", targets[0]);
                return bad(i, Trouble::Changed, &what, *target);
            }
            if targets.contains(target) {
                other.sync_all().map_err(|e| Failure::file(&path, e))?;
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
        file.name(&dir.join(STATE).join(record.parity_name(row)), watch)?;
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

/// Reads all members and writes their parities; returns the hashes of the members.
fn compute(
    code: SetCode,
    members: &[(Candidate, Vec<TargetId>)],
    inputs: &mut [(File, PathBuf)],
    outputs: &mut [(Unnamed, Hasher)],
    watch: Watch<'_>,
) -> Done<Vec<Hash>> {
    let arithmetic = code.code().map_err(|e| Failure::other(e.to_string()))?;
    let longest = members.iter().map(|(candidate, _)| candidate.len).max().unwrap_or(0);
    let mut hashers = vec![Hasher::new(); members.len()];
    let mut pieces = vec![vec![0; PIECE_BYTES]; members.len()];
    let mut made = vec![vec![0; PIECE_BYTES]; outputs.len()];
    let mut at = 0;
    while at < longest {
        let len = PIECE_BYTES.min((longest - at) as usize);
        let mut slices: Vec<&[u8]> = Vec::with_capacity(arithmetic.members());
        for ((piece, (file, path)), hasher) in pieces.iter_mut().zip(&mut *inputs).zip(&mut hashers)
        {
            let count = read_piece(file, path, &mut piece[..len])?;
            hasher.update(&piece[..count]);
            slices.push(&piece[..count]);
            watch(Step::Read(count as u64))?;
        }
        slices.resize(arithmetic.members(), &[]);
        let mut parities: Vec<&mut [u8]> = made.iter_mut().map(|piece| &mut piece[..len]).collect();
        let encoded = arithmetic.encode(&slices, &mut parities);
        encoded.map_err(|e| Failure::other(e.to_string()))?;
        for ((file, hasher), piece) in outputs.iter_mut().zip(&made) {
            file.write(&piece[..len])?;
            hasher.update(&piece[..len]);
        }
        at += len as u64;
    }
    Ok(hashers.iter().map(Hasher::finalize).collect())
}

fn give_up(outputs: Vec<(Unnamed, Hasher)>) -> Done {
    outputs.into_iter().try_for_each(|(file, _)| file.remove())
}

/// Copies that a set does not keep: somebody was stopped before removing them.
fn remove_extra(tree: &Tree, record: &Record, done: &mut Encoded, watch: Watch<'_>) -> Done {
    for member in &record.set.members {
        let Some(copies) = tree.files.files.get(&member.what.path) else { continue };
        let extra = copies.iter().filter(|(target, _)| !member.targets.contains(target));
        let extra: Vec<_> = extra.map(|(target, copy)| (*target, *copy)).collect();
        if extra.is_empty() {
            continue;
        }
        let mut same = |target: TargetId| -> Done<bool> {
            if !copies.contains_key(&target) {
                return Ok(false);
            }
            let (mut file, path) = open(tree, &member.what.path, target)?;
            let same = hash(&mut file, &path, watch)?.0 == member.what.hash;
            file.sync_all().map_err(|e| Failure::file(&path, e))?;
            Ok(same)
        };
        let mut removed = Vec::new();
        if member
            .targets
            .iter()
            .try_fold(true, |all, target| -> Done<bool> { Ok(all && same(*target)?) })?
        {
            for (target, copy) in extra {
                if same(target)? {
                    removed.push((target, copy));
                }
            }
        }
        for copy in removed {
            remove_copy(tree, &member.what.path, copy, done, watch)?;
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
    let path = tree.targets.dir(target).ok_or_else(|| missing(target))?.join(file);
    let now = std::fs::symlink_metadata(&path).map_err(|e| Failure::file(&path, e))?;
    if Copy::of(&now) != copy {
        let what = format!("{file}: was written while it was read");
        done.left.push(Finding { trouble: Trouble::Changed, what, target: Some(target.0) });
        return Ok(());
    }
    remove(&path, watch)?;
    done.removed_copies += 1;
    done.removed_bytes += copy.len;
    Ok(())
}

fn open(tree: &Tree, file: &str, target: TargetId) -> Done<(File, PathBuf)> {
    let path = tree.targets.dir(target).ok_or_else(|| missing(target))?.join(file);
    let file = File::open(&path).map_err(|e| Failure::file(&path, e))?;
    Ok((file, path))
}
