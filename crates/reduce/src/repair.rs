//! What is missing or rotten is made anew from what is left.

use crate::blocks::{Found, look};
use crate::durable::{Unnamed, make_directories};
use crate::failure::{Done, Failure};
use crate::record::{FileFacts, Record};
use crate::state::{Finding, Trouble};
use crate::stream::{PIECE_BYTES, Step, Watch, read_piece};
use crate::tree::{Tree, missing};
use blake3::{Hash, Hasher};
use rustix::fs::{Timespec, Timestamps, futimens};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::{File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::PathBuf;
use weir_layout::set::{Block, Recovery};
use weir_types::TargetId;

/// What a repair has done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Repaired {
    /// Copies of files that were made anew.
    pub copies: u64,
    /// Parities that were made anew.
    pub parities: u64,
    /// Records that were written anew.
    pub records: u64,
    /// What could not be repaired.
    pub left: Vec<Finding>,
}

/// Repairs all sets. Files that were written since they were encoded are left as they are.
pub fn repair(tree: &mut Tree, watch: Watch<'_>) -> Done<Repaired> {
    let mut done = Repaired::default();
    let records: Vec<Record> = tree.sets.values().cloned().collect();
    for record in &records {
        let found = look(tree, record, watch)?;
        let lacks =
            record.targets().len() - tree.recorded.get(&record.id).map_or(0, |there| there.len());
        tree.complete(record, watch)?;
        done.records += lacks as u64;
        let is_good = |block: &Block| found.get(block) == Some(&Found::Good);
        let version = |block: Block| is_good(&block).then(|| record.set.generation(block));
        match record.set.recover(version) {
            Ok(recovery) => one_set(tree, record, (&found, &recovery), &mut done, watch)?,
            Err(why) => done.left.push(Finding {
                trouble: Trouble::Lost,
                what: format!("{}: {why}", record.name()),
                target: None,
            }),
        }
    }
    let mut unknown = Vec::new();
    for path in std::mem::take(&mut tree.rotten_records) {
        // Its targets have it again by now, if any of them had it.
        if tree.is_known(&path) {
            continue;
        }
        let what = path.display().to_string();
        done.left.push(Finding { trouble: Trouble::Record, what, target: None });
        unknown.push(path);
    }
    tree.rotten_records = unknown;
    // A parity of a set of which no record can be read may be needed yet.
    if tree.rotten_records.is_empty() {
        tree.remove_orphans(watch)?;
    }
    Ok(done)
}

/// A block that is being written.
struct Output {
    block: Block,
    target: TargetId,
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
    // What somebody has written since is not overwritten.
    let is_kept = |block: &Block| found.get(block) == Some(&Found::Changed);
    let kept = recovery.decoded.iter().chain(recovery.copied.iter().map(|(to, _)| to));
    for block in kept.filter(|&block| is_kept(block)) {
        done.left.push(Finding {
            trouble: Trouble::Changed,
            what: describe(record, *block),
            target: targets.get(block).map(|target| target.0),
        });
    }
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
                false => Some(begin(tree, record, *block, targets[block])?),
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
            for (output, bytes) in outputs.iter_mut().zip(&made) {
                let Some(output) = output else { continue };
                let left = output.len.saturating_sub(at).min(piece as u64) as usize;
                output.file.write(&bytes[..left])?;
                output.hasher.update(&bytes[..left]);
            }
            at += piece as u64;
        }
        for output in outputs.into_iter().flatten() {
            finish(tree, record, output, done, watch)?;
        }
    }
    for (to, from) in recovery.copied.iter().filter(|(to, _)| !is_kept(to)) {
        // Of a file that was written since there is no good copy to copy.
        if is_kept(from) {
            continue;
        }
        let (mut input, path) = open(tree, record, *from, targets[from])?;
        let mut output = begin(tree, record, *to, targets[to])?;
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            let count = read_piece(&mut input, &path, &mut piece)?;
            if count == 0 {
                break;
            }
            watch(Step::Read(count as u64))?;
            output.file.write(&piece[..count])?;
            output.hasher.update(&piece[..count]);
        }
        finish(tree, record, output, done, watch)?;
    }
    Ok(())
}

fn describe(record: &Record, block: Block) -> String {
    match block {
        Block::Member { member, .. } => record.set.members[member].what.path.clone(),
        Block::Parity(row) => record.parity_name(row),
    }
}

fn open(tree: &Tree, record: &Record, block: Block, target: TargetId) -> Done<(File, PathBuf)> {
    let path = tree.path(record, block, target).ok_or_else(|| missing(target))?;
    let file = File::open(&path).map_err(|e| Failure::file(&path, e))?;
    Ok((file, path))
}

fn begin(tree: &mut Tree, record: &Record, block: Block, target: TargetId) -> Done<Output> {
    let (len, hash) = match block {
        Block::Member { member, .. } => {
            let member = &record.set.members[member];
            (member.len, member.what.hash)
        }
        Block::Parity(row) => (record.set.parity_bytes(), record.parities[row]),
    };
    let file = tree.unnamed(target)?;
    Ok(Output { block, target, len, hash, file, hasher: Hasher::new() })
}

/// Gives a block its name, if it is what it was.
fn finish(
    tree: &Tree,
    record: &Record,
    output: Output,
    done: &mut Repaired,
    watch: Watch<'_>,
) -> Done {
    let Output { block, target, hash, file, hasher, .. } = output;
    if hasher.finalize() != hash {
        file.remove()?;
        done.left.push(Finding {
            trouble: Trouble::Lost,
            what: format!("{}: what was read is not what was encoded", describe(record, block)),
            target: Some(target.0),
        });
        return Ok(());
    }
    let path = tree.path(record, block, target).ok_or_else(|| missing(target))?;
    match block {
        Block::Parity(_) => done.parities += 1,
        Block::Member { member, copy } => {
            done.copies += 1;
            restore(file.file(), &record.set.members[member].what, copy)
                .map_err(|e| Failure::file(&path, e))?;
            path.parent().map_or(Ok(()), make_directories)?;
        }
    }
    file.name(&path, watch)
}

/// Owner, permissions and time of a file.
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
