//! What a power cut leaves: any state that a Linux file system may show
//! afterwards, the rare ones more often than in life.
//!
//! - A sector has any of the states that it had in memory since it was last
//!   durable, each sector for itself.
//! - The length is any that it was since then; what was cut off on the way to
//!   it is gone. Bytes that did not reach the disk read as zeros.
//! - Of the changes of names in one directory the first few are there (or, if
//!   the disk is loose, of those of one name). A rename is there or not.

use super::content::{Content, SECTORS};
use super::file_node::{Change, FileNode};
use super::state::{Kind, ROOT, State};
use fastrand::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What becomes of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Lost,
    Kept,
    /// Pieces of it.
    Torn,
}

/// What becomes of everything.
#[derive(Clone, Copy, Debug)]
enum Plan {
    Lost,
    Kept,
    /// What was before this operation is kept, what came after it is lost.
    Until(u64),
    /// All but this operation.
    AllBut(u64),
    /// Only this operation.
    Only(u64),
    /// Everything is kept, but this inode has a plan of its own.
    OneHurt(u64),
    /// Everything is lost, but this inode has a plan of its own.
    OneLeft(u64),
    /// Every file for itself.
    Mixed,
}

/// What becomes of the operations on one file.
#[derive(Clone, Copy, Debug)]
enum FilePlan {
    Whole(Plan),
    /// Each operation is kept with so many chances of 8.
    Coin(u8),
    /// Each is kept in part.
    Torn,
}

impl Plan {
    fn draw(rng: &mut Rng, seqs: &[u64], inodes: &[u64]) -> Self {
        let (Some(&seq), Some(&inode)) = (rng.choice(seqs), rng.choice(inodes)) else {
            return Plan::Kept;
        };
        match rng.u8(0..32) {
            0..3 => Plan::Lost,
            3..5 => Plan::Kept,
            5..10 => Plan::Until(seq),
            10..14 => Plan::AllBut(seq),
            14..16 => Plan::Only(seq),
            16..19 => Plan::OneHurt(inode),
            19..21 => Plan::OneLeft(inode),
            _ => Plan::Mixed,
        }
    }

    /// For an operation of a file that has no plan of its own, or of names.
    fn fate(self, seq: u64, rng: &mut Rng) -> Fate {
        let kept = match self {
            Plan::Lost => false,
            Plan::Kept => true,
            Plan::Until(at) if seq == at => return Fate::Torn,
            Plan::Until(at) => seq < at,
            Plan::AllBut(at) => seq != at,
            Plan::Only(at) => seq == at,
            // Names do not belong to that file.
            Plan::OneHurt(_) => true,
            Plan::OneLeft(_) => false,
            Plan::Mixed => rng.bool(),
        };
        if kept { Fate::Kept } else { Fate::Lost }
    }

    fn for_file(self, inode: u64, seqs: &[u64], rng: &mut Rng) -> FilePlan {
        let own = match self {
            Plan::OneHurt(other) | Plan::OneLeft(other) => other == inode,
            Plan::Mixed => true,
            _ => false,
        };
        if !own {
            return FilePlan::Whole(self);
        }
        let ends = [seqs.first(), seqs.last(), rng.choice(seqs)];
        let seq = rng.choice(ends).flatten().copied().unwrap_or(0);
        match rng.u8(0..16) {
            0..4 => FilePlan::Whole(Plan::Lost),
            4..5 => FilePlan::Whole(Plan::Kept),
            5..7 => FilePlan::Whole(Plan::Until(seq)),
            7..9 => FilePlan::Whole(Plan::AllBut(seq)),
            9..11 => FilePlan::Whole(Plan::Only(seq)),
            11..14 => FilePlan::Coin([1, 4, 7][rng.usize(0..3)]),
            _ => FilePlan::Torn,
        }
    }
}

impl FilePlan {
    fn fate(self, seq: u64, rng: &mut Rng) -> Fate {
        match self {
            FilePlan::Whole(plan) => plan.fate(seq, rng),
            FilePlan::Coin(of_8) if rng.u8(0..8) < of_8 => Fate::Kept,
            FilePlan::Coin(_) => Fate::Lost,
            FilePlan::Torn => Fate::Torn,
        }
    }
}

/// Turns `state` into what a power cut leaves of it.
pub(super) fn cut(state: &mut State, rng: &mut Rng) {
    let apart: Vec<u64> = state
        .inodes
        .iter()
        .filter(|(_, inode)| matches!(&inode.kind, Kind::File(f) if f.apart))
        .map(|(number, _)| *number)
        .collect();
    let mut seqs: BTreeSet<u64> = state.name_changes.iter().map(|c| c.seq).collect();
    // What may be hurt or left: files, and under `ROOT` all names together.
    let mut inodes = Vec::new();
    if !seqs.is_empty() {
        inodes.push(ROOT);
    }
    for inode in &apart {
        let before = seqs.len();
        seqs.extend(state.file(*inode).iter().flat_map(|f| f.pending.iter().map(|p| p.seq)));
        if seqs.len() > before {
            inodes.push(*inode);
        }
    }
    let seqs: Vec<u64> = seqs.into_iter().collect();
    let plan = Plan::draw(rng, &seqs, &inodes);
    cut_names(state, plan, rng);
    for inode in apart {
        // Every file is settled, also those that will have no name.
        let _ = state.change_file(inode, |file| {
            let left = what_is_left(file, inode, plan, rng);
            file.settle(left);
        });
    }
    forget_nameless(state);
    state.forget_handles();
    state.boot += 1;
}

fn cut_names(state: &mut State, plan: Plan, rng: &mut Rng) {
    let changes = std::mem::take(&mut state.name_changes);
    let loose = rng.u8(0..8) < state.loose_names_of_8;
    let own = match plan {
        Plan::OneHurt(ROOT) | Plan::OneLeft(ROOT) | Plan::Mixed => {
            Some(kept_of_each(&changes, rng))
        }
        _ => None,
    };
    let mut counted = BTreeMap::<u64, usize>::new();
    let mut cut = BTreeSet::<(u64, Option<Arc<str>>)>::new();
    for change in &changes {
        let mut kept = match &own {
            Some(_) if loose => rng.bool(),
            Some(kept) => change.names().all(|(directory, _)| {
                let count = counted.entry(*directory).or_default();
                *count += 1;
                *count <= kept[directory]
            }),
            None => match plan.fate(change.seq, rng) {
                Fate::Kept => true,
                Fate::Lost => false,
                Fate::Torn => rng.bool(),
            },
        };
        // Whatever comes after a lost change in the same place is lost too.
        let places: Vec<_> =
            change.names().map(|(d, name)| (*d, loose.then(|| name.clone()))).collect();
        kept &= !places.iter().any(|place| cut.contains(place));
        if kept {
            state.make_durable(change);
        } else {
            cut.extend(places);
        }
    }
}

/// How many changes of each directory last.
fn kept_of_each(changes: &[super::state::NameChange], rng: &mut Rng) -> BTreeMap<u64, usize> {
    let mut kept = BTreeMap::<u64, usize>::new();
    for (directory, _) in changes.iter().flat_map(|c| c.names()) {
        *kept.entry(*directory).or_default() += 1;
    }
    for count in kept.values_mut() {
        *count = match rng.u8(0..8) {
            0..2 => 0,
            2..4 => *count,
            4 => *count - 1,
            _ => rng.usize(0..=*count),
        };
    }
    kept
}

/// What of a failed sync became durable.
pub(super) fn after_failed_sync(file: &FileNode, inode: u64, rng: &mut Rng) -> Content {
    what_is_left(file, inode, Plan::Mixed, rng)
}

fn what_is_left(file: &FileNode, inode: u64, plan: Plan, rng: &mut Rng) -> Content {
    let mut content = file.durable.clone();
    if file.pending.is_empty() {
        return content;
    }
    let mut seqs: Vec<u64> = file.pending.iter().map(|p| p.seq).collect();
    seqs.dedup();
    let plan = plan.for_file(inode, &seqs, rng);
    let fates: BTreeMap<u64, Fate> = seqs.iter().map(|seq| (*seq, plan.fate(*seq, rng))).collect();
    let last_length = last_length_kept(file, &fates, plan, rng);
    for (index, pending) in file.pending.iter().enumerate() {
        match (&pending.change, fates[&pending.seq]) {
            (Change::Length { .. }, _) => {
                if last_length.is_some_and(|last| index <= last) {
                    pending.change.apply(&mut content, 0, u64::MAX);
                }
            }
            (_, Fate::Lost) => {}
            (Change::Reserve { .. }, _) | (_, Fate::Kept) => {
                pending.change.apply(&mut content, 0, u64::MAX);
            }
            (Change::Data { first, end, .. } | Change::Hole { first, end }, Fate::Torn) => {
                tear(&pending.change, *first, *end, &mut content, rng);
            }
        }
    }
    content.trim();
    content
}

/// The last change of length that lasts. Those before it do too: the length
/// is in the inode, and an older inode never replaces a newer one.
fn last_length_kept(
    file: &FileNode,
    fates: &BTreeMap<u64, Fate>,
    plan: FilePlan,
    rng: &mut Rng,
) -> Option<usize> {
    let lengths: Vec<usize> = (0..file.pending.len())
        .filter(|i| matches!(file.pending[*i].change, Change::Length { .. }))
        .collect();
    let with_data =
        lengths.iter().rev().find(|i| fates[&file.pending[**i].seq] != Fate::Lost).copied();
    match plan {
        FilePlan::Whole(Plan::Lost | Plan::Kept) => with_data,
        // The inode goes its own way.
        _ if rng.u8(0..3) == 0 => match rng.u8(0..4) {
            0 => None,
            1 => lengths.last().copied(),
            _ => rng.choice(&lengths).copied(),
        },
        _ => with_data,
    }
}

/// Lets pieces of `first..end` through.
fn tear(change: &Change, first: u64, end: u64, content: &mut Content, rng: &mut Rng) {
    let somewhere = rng.u64(first..=end);
    match rng.u8(0..6) {
        0 => change.apply(content, first, somewhere),
        1 => change.apply(content, somewhere, end),
        2 => {
            let from = rng.u64(first..=somewhere);
            change.apply(content, from, somewhere);
        }
        3 => {
            let from = rng.u64(first..=somewhere);
            change.apply(content, first, from);
            change.apply(content, somewhere, end);
        }
        kind => {
            // Sectors or whole pages, each for itself.
            let step = if kind == 4 { 1 } else { SECTORS };
            let mut at = first;
            while at < end {
                let next = end.min((at / step + 1) * step);
                if rng.bool() {
                    change.apply(content, at, next);
                }
                at = next;
            }
        }
    }
}

/// Durable names are all names now; what has none is forgotten.
fn forget_nameless(state: &mut State) {
    let mut reached = BTreeSet::from([ROOT]);
    let mut waiting = vec![ROOT];
    while let Some(number) = waiting.pop() {
        let Ok(directory) = state.directory(number) else { continue };
        let changed = !Arc::ptr_eq(&directory.seen, &directory.durable);
        for child in directory.durable.values() {
            if reached.insert(*child) {
                waiting.push(*child);
            }
        }
        if changed && let Ok(directory) = state.directory_mut(number) {
            directory.seen = directory.durable.clone();
        }
    }
    state.inodes.retain(|number, _| reached.contains(number));
    state.used_pages = 0;
    for inode in state.inodes.values_mut() {
        state.used_pages += inode.used_pages();
        if !(inode.linked && inode.durably_linked) {
            let inode = Arc::make_mut(inode);
            (inode.linked, inode.durably_linked) = (true, true);
        }
    }
}
