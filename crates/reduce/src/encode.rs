//! Encodes files: joins them to sets, computes parities, and removes copies.

use crate::blocks::{is_replaced, lacking};
use crate::candidate::Candidate;
use crate::choosing::choose;
use crate::cleaning::{Leaving, unsafe_copy};
use crate::copy::Copy;
use crate::doubles::{Doubles, is_kept};
use crate::durable::Instead;
use crate::encoded::Encoded;
use crate::extra::{remove_copy, remove_extra};
use crate::failure::{Done, Failure, is_absent};
use crate::finding::{Finding, Trouble, note};
use crate::making::{Made, make, open};
use crate::place::Place;
use crate::record::{FileFacts, Record, STATE, SetId, generation};
use crate::removal::{forget, settle, to_clean};
use crate::room::Room;
use crate::state::usage;
use crate::stream::{Watch, hash};
use crate::tree::{Tree, missing};
use crate::wishes::{Waits, Wishes};
use blake3::{Hash, Hasher};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::SystemTime;
use weir_layout::set::{Arrangement, Member, Parity, Set, SetCode, Site};
use weir_types::TargetId;

/// Estimated bytes of a record for each member, without its path, and for each parity.
const RECORD_BYTES: u64 = 250;

/// Encodes the files that are in no set yet, as `wishes` allows. Stale sets are dissolved when
/// their other members are in new sets: sets with a member that was written or forgotten, and sets
/// of which enough was removed. A file that fails is left as it is and reported; the others go on.
pub fn encode(tree: &mut Tree, code: SetCode, wishes: &Wishes, watch: Watch<'_>) -> Done<Encoded> {
    let forgotten = &wishes.forgotten;
    let waits = Waits::new(tree, wishes)?;
    let sites = tree.sites();
    let arrange =
        |sites: &[Site]| Arrangement::new(code, sites).map_err(|e| Failure::other(e.to_string()));
    arrange(&sites)?;
    check_forgotten(tree, forgotten)?;
    let mut done = Encoded::default();
    let mut torn = go_on(tree, &mut done, watch)?;
    remove_extra(tree, &torn, &mut done, watch)?;
    done.left.extend(tree.files.failed.iter().cloned());
    forget(tree, forgotten, &mut done.left, watch)?;
    let doubles = Doubles::of(tree, &torn);
    let to_clean = to_clean(tree, wishes, &waits);
    let stale = stale(tree, (forgotten, &to_clean, &doubles), &mut done, watch)?;
    let known = (&doubles, forgotten);
    let mut leaving = Leaving::begin(tree, &stale, known, &mut done.left, watch)?;
    // This makes room for the new sets.
    leaving.dissolve(tree, (&mut torn, &mut done.left), watch)?;
    if !leaving.gone.is_empty() {
        tree.rescan()?;
    }
    let waits = |copies: &BTreeMap<TargetId, Copy>| waits.wait(code, copies);
    let (mut waiting, left) = candidates(tree, &stale, waits, &mut done);
    for file in left {
        leave(tree, &file, &mut leaving, &mut done, watch)?;
    }
    // Files with too few copies fit in no set, and must not take the places of files that do.
    waiting.retain(|file| {
        let is_enough = file.copies.len() >= code.copies();
        if !is_enough {
            done.left.push(too_few(file));
        }
        is_enough
    });
    let mut room = Room::of(tree)?;
    while !waiting.is_empty() {
        let chosen = choose(&waiting, &mut arrange(&sites)?, (code, sites.len()));
        // Free space decides about parities only: more files fit in sets if all targets rank
        // equally for members.
        let mut by_room = sites.clone();
        room.sort(&mut by_room);
        let mut arrangement = arrange(&by_room)?;
        for (_, targets) in &chosen {
            arrangement.add(targets, false);
        }
        let parities = arrangement.parities();
        let members: Vec<(Candidate, Vec<TargetId>)> =
            chosen.iter().map(|(i, targets)| (waiting[*i].clone(), targets.clone())).collect();
        if !is_worth_it(code, &members) {
            // The first file would not be in a better set later: it has the fewest files to join.
            let first = chosen.first().map_or(0, |(i, _)| *i);
            if let Some(alone) = waiting.remove(first) {
                if alone.copies.len() > code.bears() {
                    leave(tree, &alone, &mut leaving, &mut done, watch)?;
                } else {
                    done.left.push(too_few(&alone));
                }
            }
            continue;
        }
        let made = one_set(tree, code, (&members, &parities), &mut torn, &mut done, watch);
        match note(made, None, &mut done.left)? {
            Some(Some((bad, finding))) => {
                done.left.push(finding);
                waiting.remove(chosen[bad].0);
            }
            made => {
                if made.is_some() {
                    let longest = members.iter().map(|(file, _)| file.len).max().unwrap_or(0);
                    room.take(&parities, longest);
                    leaving.encoded(members.iter().map(|(file, _)| file.path.as_str()));
                    leaving.dissolve(tree, (&mut torn, &mut done.left), watch)?;
                }
                // The chosen files are near the front, so removing them is cheap.
                for (i, _) in chosen.iter().rev() {
                    waiting.remove(*i);
                }
            }
        }
    }
    leaving.end();
    leaving.dissolve(tree, (&mut torn, &mut done.left), watch)?;
    if done.left.iter().any(|finding| finding.trouble == Trouble::Failed) {
        // These belong to sets that have no record, or no longer have one.
        note(tree.remove_orphans(watch), None, &mut done.left)?;
    }
    tree.rescan()?;
    if !leaving.gone.is_empty() {
        // These are copies that only the dissolved sets kept.
        remove_extra(tree, &torn, &mut done, watch)?;
    }
    done.left.extend(lacking(tree));
    // A finding about a file in two sets appears twice.
    let mut seen = BTreeSet::new();
    done.left.retain(|finding| seen.insert(finding.clone()));
    done.cleaned = leaving.gone.intersection(&to_clean).count() as u64;
    done.usage = usage(tree);
    Ok(done)
}

fn too_few(file: &Candidate) -> Finding {
    Finding { trouble: Trouble::FewCopies, what: file.path.clone(), target: None }
}

/// Leaves a file as plain copies, if they are safe: then its stale sets are not needed for it.
fn leave(
    tree: &Tree,
    file: &Candidate,
    leaving: &mut Leaving,
    done: &mut Encoded,
    watch: Watch<'_>,
) -> Done {
    if file.sets.is_empty() {
        return Ok(());
    }
    match note(unsafe_copy(tree, file, watch), None, &mut done.left)? {
        Some(None) => leaving.encoded(std::iter::once(file.path.as_str())),
        Some(Some(finding)) => done.left.push(finding),
        None => {}
    }
    Ok(())
}

/// Completes what an interrupted command has left. Returns the sets that could not be completed:
/// they may lack records or marks.
fn go_on(tree: &mut Tree, done: &mut Encoded, watch: Watch<'_>) -> Done<BTreeSet<SetId>> {
    let (mut settled, mut torn) = (0, BTreeSet::new());
    for record in tree.sets.values().cloned().collect::<Vec<_>>() {
        let completed = tree.complete(&record, watch);
        match note(completed.and_then(|()| settle(tree, &record, watch)), None, &mut done.left)? {
            Some(changes) => settled += changes,
            None => {
                settled += 1;
                torn.insert(record.id);
            }
        }
    }
    settled += note(tree.remove_orphans(watch), None, &mut done.left)?.unwrap_or(1);
    if settled > 0 {
        tree.rescan()?;
    }
    Ok(torn)
}

/// Refuses a path that is in no set: it is a typing error, and the meant file would come back.
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

/// Whether a set, with its records, takes less space than the copies that exist, or protects a file
/// that has too few copies.
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

/// Stale sets: those to be cleaned, and those with a member that was written, is in a newer set, or
/// is forgotten.
fn stale(
    tree: &Tree,
    (forgotten, to_clean, doubles): (&BTreeSet<String>, &BTreeSet<SetId>, &Doubles),
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
            if doubles.is_older(record.id, path) {
                stale.insert(record.id);
                continue;
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

/// The sets that have contained a file.
#[derive(Default)]
struct Before<'a> {
    again: u64,
    /// The stale sets among them.
    sets: Vec<(SetId, &'a Member<FileFacts>)>,
}

/// Files that are in no set that stays, the longest first, so that members are of similar length.
/// The second list has those files of stale sets that are not encoded now: they wait or are empty.
fn candidates(
    tree: &Tree,
    stale: &BTreeSet<SetId>,
    waits: impl Fn(&BTreeMap<TargetId, Copy>) -> bool,
    done: &mut Encoded,
) -> (VecDeque<Candidate>, Vec<Candidate>) {
    let (mut encoded, mut before) = (BTreeSet::new(), BTreeMap::<&str, Before<'_>>::new());
    for record in tree.sets.values() {
        for (number, member) in record.set.members.iter().enumerate() {
            let path = member.what.path.as_str();
            let before = before.entry(path).or_default();
            before.again = before.again.max(record.again.saturating_add(1));
            match () {
                () if tree.dead.has(record.id, number) => {}
                () if stale.contains(&record.id) => before.sets.push((record.id, member)),
                () => _ = encoded.insert(path),
            }
        }
    }
    let (mut all, mut left) = (Vec::new(), Vec::new());
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
        let is_as_it_was = |member: &Member<FileFacts>| {
            let mut times = copies.values().map(|copy| copy.modified);
            len == member.len && times.all(|time| member.what.modified.contains(&time))
        };
        let Before { again, sets } = before.remove(path.as_str()).unwrap_or_default();
        let expected = sets.iter().find(|(_, member)| is_as_it_was(member));
        let candidate = Candidate {
            path: path.clone(),
            copies: copies.clone(),
            len,
            expected: expected.map(|(_, member)| member.what.hash),
            again,
            sets: sets.iter().map(|(id, _)| *id).collect(),
        };
        if len > 0 && !waits(copies) {
            all.push(candidate);
            continue;
        }
        done.waiting += u64::from(len > 0);
        done.waiting_bytes += len * copies.len() as u64;
        left.extend(Some(candidate).filter(|file| !file.sets.is_empty()));
    }
    all.sort_by(|a, b| b.len.cmp(&a.len).then_with(|| a.path.cmp(&b.path)));
    (all.into(), left)
}

/// Makes a set. If a member is not as expected, returns which one and why; then nothing has
/// changed.
fn one_set(
    tree: &mut Tree,
    code: SetCode,
    (members, parities): (&[(Candidate, Vec<TargetId>)], &[TargetId]),
    torn: &mut BTreeSet<SetId>,
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
    let again = members.iter().map(|(candidate, _)| candidate.again).max().unwrap_or(0);
    let record = new_record(tree, set, parity_hashes, again)?;
    // All records are written before any gets its name: a set with some of its records would be in
    // the way.
    let mut records = Vec::new();
    for target in record.targets() {
        records.push((target, tree.begin_record(&record, target)?));
    }
    for (row, (file, _)) in outputs.into_iter().enumerate() {
        let dir = tree.targets.dir(parities[row]).ok_or_else(|| missing(parities[row]))?;
        let place = Place::new(dir, format!("{STATE}/{}", record.parity_name(row)));
        file.name(&place, Instead::Anything, watch)?;
    }
    let mut named = records.into_iter();
    let completed =
        named.try_for_each(|(target, file)| tree.name_record(&record, target, file, watch));
    if tree.recorded.contains_key(&record.id) {
        if completed.is_err() {
            torn.insert(record.id);
        }
        tree.sets.insert(record.id, record);
    }
    completed?;
    done.sets += 1;
    done.files += members.len() as u64;
    for ((candidate, targets), hash) in members.iter().zip(&hashes) {
        let is_extra = |target: &TargetId| {
            let sets = candidate.sets.iter().copied();
            !targets.contains(target) && !is_kept(tree, sets, (&candidate.path, *hash), *target)
        };
        for (target, copy) in candidate.copies.iter().filter(|(target, _)| is_extra(target)) {
            remove_copy(tree, &candidate.path, (*target, *copy), done, watch)?;
        }
    }
    Ok(None)
}

/// Makes a record whose id is new. What is known about an earlier set of the same files, for
/// example dead members, must not apply to this one. A directory that returns later may also know
/// an earlier set, so the number comes from the clock.
fn new_record(
    tree: &Tree,
    set: Set<FileFacts>,
    parities: Vec<Hash>,
    mut again: u64,
) -> Done<Record> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    again = again.max(u64::try_from(now.as_micros()).unwrap_or(0));
    loop {
        let record = Record::new(set.clone(), parities.clone(), again)?;
        if !tree.sets.contains_key(&record.id) && !tree.dead.knows(record.id) {
            return Ok(record);
        }
        let more = again.checked_add(1);
        again = more.ok_or_else(|| Failure::other("no number is left for a new set"))?;
    }
}
