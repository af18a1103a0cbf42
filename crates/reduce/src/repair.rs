//! Restores missing and rotten blocks from the others.

use crate::blocks::{self, Found, look};
use crate::doubles::Doubles;
use crate::durable::{Instead, Unnamed};
use crate::failure::{Done, Failure};
use crate::finding::{Finding, Trouble, note};
use crate::place::Place;
use crate::record::{FileFacts, Record};
use crate::removal::settle;
use crate::state::lost;
use crate::stream::{PIECE_BYTES, Step, Watch, read_piece};
use crate::tree::{Tree, missing};
use blake3::{Hash, Hasher};
use rustix::fs::{Timespec, Timestamps, futimens};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::PathBuf;
use weir_layout::set::{Block, Recovery, Unrecoverable};
use weir_types::TargetId;

/// The result of a repair.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Repaired {
    /// Number of restored copies.
    pub copies: u64,
    /// Number of restored parities.
    pub parities: u64,
    /// Number of records written again.
    pub records: u64,
    /// Empty directories that took the place of a lost target: the target's number and the path.
    pub replaced: Vec<(u32, String)>,
    /// Findings about blocks that could not be repaired.
    pub left: Vec<Finding>,
}

/// Repairs all sets. Files that were written after they were encoded are left as they are. A
/// failure is reported, and the other blocks go on.
pub fn repair(tree: &mut Tree, watch: Watch<'_>) -> Done<Repaired> {
    let replaced = tree.replaced.iter().map(|(target, dir)| (target.0, dir.display().to_string()));
    let mut done = Repaired { replaced: replaced.collect(), ..Repaired::default() };
    done.left.clone_from(&tree.files.failed);
    let records: Vec<Record> = tree.sets.values().cloned().collect();
    for record in &records {
        // Removals are completed before anything is restored.
        let settled = settle(tree, record, watch);
        done.records += note(settled, None, &mut done.left)?.unwrap_or(0);
    }
    tree.rescan()?;
    let doubles = Doubles::of(tree, &BTreeSet::new());
    for record in &records {
        let found = look(tree, record, &doubles, watch)?;
        let there = |tree: &Tree| tree.recorded.get(&record.id).map_or(0, |there| there.len());
        let before = there(tree);
        let completed = tree.complete(record, watch);
        done.records += (there(tree) - before) as u64;
        note(completed, None, &mut done.left)?;
        let is_good = |block: &Block| found.get(block) == Some(&Found::Good);
        let version = |block: Block| is_good(&block).then(|| record.set.generation(block));
        let recovery = record.set.recover(version).or_else(|why| {
            done.left.extend(lost(tree, record, &found, &why));
            match why {
                Unrecoverable::Lost { copied, .. } => {
                    Ok(Recovery { copied, decoded: Vec::new(), repair: None })
                }
                Unrecoverable::Code(why) => Err(Failure::other(why.to_string())),
            }
        })?;
        let is_kept =
            |finding: &Finding| matches!(finding.trouble, Trouble::Changed | Trouble::Failed);
        done.left.extend(blocks::findings(tree, record, &found).into_iter().filter(is_kept));
        let repaired = one_set(tree, record, (&found, &recovery), &mut done, watch);
        note(repaired, None, &mut done.left)?;
    }
    let mut unknown = Vec::new();
    for path in std::mem::take(&mut tree.rotten_records) {
        // If any target of the set has the record, all of them have it at this point.
        if tree.is_known(&path) {
            continue;
        }
        let what = path.display().to_string();
        done.left.push(Finding { trouble: Trouble::Record, what, target: None });
        unknown.push(path);
    }
    tree.rotten_records = unknown;
    note(tree.remove_orphans(watch), None, &mut done.left)?;
    Ok(done)
}

/// A block that is being restored.
struct Output {
    block: Block,
    target: TargetId,
    instead: Instead,
    len: u64,
    hash: Hash,
    file: Unnamed,
    hasher: Hasher,
}

fn one_set(
    tree: &mut Tree,
    record: &Record,
    (found, recovery): (&BTreeMap<Block, Found>, &Recovery),
    done: &mut Repaired,
    watch: Watch<'_>,
) -> Done {
    let targets: BTreeMap<Block, TargetId> = record.set.blocks().collect();
    // A block that a user has written is not overwritten.
    let is_kept = |block: &Block| found.get(block).is_some_and(|found| found.is_kept());
    if let Some((repair, sources)) = &recovery.repair
        && recovery.decoded.iter().any(|block| !is_kept(block))
    {
        let mut inputs = Vec::new();
        for source in sources {
            inputs.push(match source {
                None => None,
                Some(block) => Some(open(tree, record, *block, targets[block])?),
            });
        }
        let mut outputs = Vec::new();
        for block in &recovery.decoded {
            outputs.push(match is_kept(block) {
                true => None,
                false => {
                    let begun = begin(tree, record, (*block, targets[block]), found);
                    note(begun, Some(targets[block]), &mut done.left)?
                }
            });
        }
        let mut at = 0;
        while at < record.set.parity_bytes() {
            let piece = PIECE_BYTES.min((record.set.parity_bytes() - at) as usize);
            let mut read = Vec::new();
            for input in &mut inputs {
                let mut bytes = vec![0; piece];
                let count = match input {
                    None => 0,
                    Some((file, path)) => read_piece(file, path, &mut bytes)?,
                };
                bytes.truncate(count);
                read.push(bytes);
                watch(Step::Read(count as u64))?;
            }
            let sources: Vec<&[u8]> = read.iter().map(Vec::as_slice).collect();
            let mut made = vec![vec![0; piece]; recovery.decoded.len()];
            let mut slices: Vec<&mut [u8]> = made.iter_mut().map(Vec::as_mut_slice).collect();
            let decoded = repair.run(&sources, &mut slices);
            decoded.map_err(|why| Failure::other(format!("{}: {why}", record.name())))?;
            for (to, bytes) in outputs.iter_mut().zip(&made) {
                let Some(output) = to else { continue };
                let left = output.len.saturating_sub(at).min(piece as u64) as usize;
                output.hasher.update(&bytes[..left]);
                let (written, target) = (output.file.write(&bytes[..left]), output.target);
                if note(written, Some(target), &mut done.left)?.is_none() {
                    *to = None;
                }
            }
            at += piece as u64;
        }
        for output in outputs.into_iter().flatten() {
            let target = output.target;
            let finished = finish(tree, record, output, done, watch);
            note(finished, Some(target), &mut done.left)?;
        }
    }
    for (to, from) in recovery.copied.iter().filter(|(to, _)| !is_kept(to)) {
        // A file that was written after encoding has no good copy to copy from.
        if is_kept(from) {
            continue;
        }
        let copied = copy(tree, record, (*to, *from), (found, &targets), done, watch);
        note(copied, Some(targets[to]), &mut done.left)?;
    }
    Ok(())
}

/// Restores a copy from another copy.
fn copy(
    tree: &mut Tree,
    record: &Record,
    (to, from): (Block, Block),
    (found, targets): (&BTreeMap<Block, Found>, &BTreeMap<Block, TargetId>),
    done: &mut Repaired,
    watch: Watch<'_>,
) -> Done {
    let (mut input, path) = open(tree, record, from, targets[&from])?;
    let mut output = begin(tree, record, (to, targets[&to]), found)?;
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let count = read_piece(&mut input, &path, &mut piece)?;
        if count == 0 {
            return finish(tree, record, output, done, watch);
        }
        watch(Step::Read(count as u64))?;
        output.file.write(&piece[..count])?;
        output.hasher.update(&piece[..count]);
    }
}

fn open(tree: &Tree, record: &Record, block: Block, target: TargetId) -> Done<(File, PathBuf)> {
    let place = tree.place(record, block, target).ok_or_else(|| missing(target))?;
    let file = place.open().map_err(|e| Failure::file(&place.path(), e))?;
    Ok((file, place.path()))
}

fn begin(
    tree: &mut Tree,
    record: &Record,
    (block, target): (Block, TargetId),
    found: &BTreeMap<Block, Found>,
) -> Done<Output> {
    let instead = match (block, found.get(&block)) {
        (Block::Parity(_), _) => Instead::Anything,
        (Block::Member { member, .. }, _) if tree.dead.has(record.id, member) => Instead::Anything,
        (_, Some(Found::Rotten(copy))) => Instead::Of(*copy),
        _ => Instead::Nothing,
    };
    let (len, hash) = match block {
        Block::Member { member, .. } => {
            let member = &record.set.members[member];
            (member.len, member.what.hash)
        }
        Block::Parity(row) => (record.set.parity_bytes(), record.parities[row]),
    };
    let file = tree.unnamed(target)?;
    Ok(Output { block, target, instead, len, hash, file, hasher: Hasher::new() })
}

/// Gives a restored block its name, if its hash is the recorded one.
fn finish(
    tree: &Tree,
    record: &Record,
    output: Output,
    done: &mut Repaired,
    watch: Watch<'_>,
) -> Done {
    let Output { block, target, instead, hash, file, hasher, .. } = output;
    if hasher.finalize() != hash {
        done.left.push(Finding {
            trouble: Trouble::Lost,
            what: format!(
                "{}: what was read is not what was encoded",
                tree.describe(record, block)
            ),
            target: Some(target.0),
        });
        return Ok(());
    }
    let place = tree.place(record, block, target).ok_or_else(|| missing(target))?;
    let failed = |e| Failure::file(&place.path(), e);
    if let Block::Member { member, copy } = block
        && !tree.dead.has(record.id, member)
    {
        restore(file.file(), &record.set.members[member].what, copy).map_err(failed)?;
        let others = |name: &str| {
            let others = tree.targets.iter().filter(|(other, _)| *other != target);
            let mut found = others.map(|(_, dir)| Place::new(dir, name).metadata());
            found.find_map(|meta| meta.ok().filter(|meta| meta.is_dir()))
        };
        place.make_parents(others).map_err(failed)?;
    }
    match (file.name(&place, instead, watch)?, block) {
        (true, Block::Parity(_)) => done.parities += 1,
        (true, Block::Member { .. }) => done.copies += 1,
        (false, _) => done.left.push(Finding {
            trouble: Trouble::Changed,
            what: tree.describe(record, block),
            target: Some(target.0),
        }),
    }
    Ok(())
}

/// Sets the owner, permissions and modification time of a restored file.
fn restore(file: &File, facts: &FileFacts, copy: usize) -> std::io::Result<()> {
    let meta = file.metadata()?;
    if (meta.uid(), meta.gid()) != facts.owner {
        fchown(file, Some(facts.owner.0), Some(facts.owner.1))?;
    }
    file.set_permissions(Permissions::from_mode(facts.mode))?;
    let (seconds, nanoseconds) = facts.modified[copy];
    let time = Timespec { tv_sec: seconds, tv_nsec: nanoseconds.into() };
    Ok(futimens(file, &Timestamps { last_access: time, last_modification: time })?)
}
