//! Which block a process of a job reads next, where it does not matter who reads
//! which (1.W4): loose read ordering, the distributed queue the other way round.
//!
//! Blocks whose copies are on the same disks are a lane. A lane is taken from the
//! front by those who have its first copy, and from the back by those who have
//! another one and help. All processes see how far each lane is taken; what they
//! do about it they decide alone. So graduated declustering comes down to how much
//! each process reads from the disk of its own machine.

use std::collections::BTreeSet;

/// The most blocks that are taken at once: fewer messages for the many blocks at
/// the beginning.
const MAX_AT_ONCE: u32 = 4;
/// As long as a lane has more than so many left for each that is taken at once.
const LEFT_FOR_EACH: u32 = 32;
/// A lane is helped when it is behind by so many times what is taken at once,
const HIGH: f64 = 1.5;
/// or by this share of what is left of it, if that is more: early differences have
/// time to even out.
const HIGH_SHARE: f64 = 0.01;
/// And is then kept even, until it is ahead by so many times what is taken at once.
const LOW: f64 = 0.5;
/// Who can help who can help is told at once: each on the way is to be ahead of the next one by so
/// much of a block. (With the next one's own progress alone each would be ahead by a whole one.)
const PER_STEP: f64 = 0.25;
/// The last blocks of a lane are left to those whose disk it is, as long as they
/// come for them: to read them over the network saves no time.
const LAST_ELSEWHERE: u32 = 2;

/// Blocks whose copies are on the same disks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lane {
    /// The disks, that of the first copy first.
    pub disks: Vec<u32>,
    /// How many.
    pub blocks: u32,
}

/// How many blocks of a lane are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// From the front.
    pub front: u32,
    /// From the back.
    pub back: u32,
}

/// An end of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Of those whose first copy it is.
    Front,
    /// Of those who help.
    Back,
}

impl Taken {
    /// What is left of so many.
    pub fn left(self, blocks: u32) -> u32 {
        blocks.saturating_sub(self.front).saturating_sub(self.back)
    }

    /// Takes some at one end, as far as there are any: which.
    pub fn take(&mut self, blocks: u32, end: End, count: u32) -> std::ops::Range<u32> {
        let count = count.min(self.left(blocks));
        match end {
            End::Front => {
                let first = self.front;
                self.front += count;
                first..self.front
            }
            End::Back => {
                let last = blocks.saturating_sub(self.back);
                self.back += count;
                last - count..last
            }
        }
    }
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Take blocks.
    Take(Take),
    /// What is left is left to others, as long as they come for it: look again soon.
    Later,
    /// All are taken.
    Nothing,
}

/// Which blocks to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Take {
    /// Of which lane.
    pub lane: usize,
    /// At which end.
    pub end: End,
    /// How many.
    pub blocks: u32,
    /// The disk to read them from; `None`: any that has them.
    pub disk: Option<u32>,
}

/// Whose a lane is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    /// Read as long as there is any of it.
    Own,
    /// A copy of it is here: helped when it is behind.
    Near,
    /// Only when there is nothing else.
    Elsewhere,
}

#[derive(Clone, Debug)]
struct Known {
    whose: Whose,
    blocks: u32,
    /// The disk of its first copy, as a number of [`Taking::disks`].
    first: usize,
    end: End,
    disk: Option<u32>,
}

/// A disk, and the lanes that have their first copy there.
#[derive(Clone, Debug, Default)]
struct Disk {
    /// Those of the process.
    own: bool,
    /// The other disks of which it has further copies: whoever reads it can help those.
    helps: Vec<usize>,
    /// It was found behind, and is kept even with the own ones.
    evened: bool,
    blocks: u64,
    left: u64,
    /// The share that is taken of it, or of a disk that waits for its help, if that is less.
    share: f64,
}

/// The choices of one process.
#[derive(Clone, Debug)]
pub struct Taking {
    lanes: Vec<Known>,
    disks: Vec<Disk>,
    /// Where it begins to look, so that not all go for the same lane.
    first: usize,
}

impl Taking {
    /// Of the process `rank` of `ranks`. `local`: the disks of its machine. If none
    /// has any of the blocks, processes share all disks by rank.
    pub fn new(lanes: &[Lane], local: &[u32], (rank, ranks): (u32, u32)) -> Self {
        let firsts: BTreeSet<u32> =
            lanes.iter().filter_map(|lane| lane.disks.first()).copied().collect();
        let is_here = lanes.iter().any(|lane| lane.disks.iter().any(|disk| local.contains(disk)));
        let mine = |disk: &&u32| !is_here || local.contains(disk);
        let own = share(firsts.iter().filter(mine).copied().collect(), rank, ranks.max(1));
        let near = if is_here { local } else { &own };
        // One more for blocks that are on none.
        let number = |disk: Option<&u32>| {
            let position = disk.and_then(|disk| firsts.iter().position(|first| first == disk));
            position.unwrap_or(firsts.len())
        };
        let known = |lane: &Lane| {
            let first = lane.disks.first();
            let copy = lane.disks.iter().copied().find(|disk| near.contains(disk));
            let (whose, disk) = match (first, copy) {
                (Some(first), _) if own.contains(first) => (Whose::Own, Some(*first)),
                (_, Some(copy)) => (Whose::Near, Some(copy)),
                _ => (Whose::Elsewhere, None),
            };
            let is_first = disk.is_some() && disk.as_ref() == first;
            let end = if is_first { End::Front } else { End::Back };
            Known { whose, blocks: lane.blocks, first: number(first), end, disk }
        };
        let known: Vec<Known> = lanes.iter().map(known).collect();
        let mut disks = vec![Disk::default(); firsts.len() + 1];
        for (lane, of) in known.iter().zip(lanes) {
            disks[lane.first].own |= lane.whose == Whose::Own;
            disks[lane.first].blocks += u64::from(lane.blocks);
            for helper in of.disks.iter().skip(1).map(|disk| number(Some(disk))) {
                if helper != lane.first && !disks[helper].helps.contains(&lane.first) {
                    disks[helper].helps.push(lane.first);
                }
            }
        }
        let first = (u64::from(rank) * lanes.len() as u64 / u64::from(ranks.max(1))) as usize;
        Self { lanes: known, disks, first }
    }

    /// What to take next, by what is taken of each lane. `patient`: those whose the
    /// last blocks are may still come for them.
    pub fn next(&mut self, taken: &[Taken], patient: bool) -> Next {
        let left = |(n, lane): (usize, &Known)| taken.get(n).map_or(0, |of| of.left(lane.blocks));
        let left: Vec<u32> = self.lanes.iter().enumerate().map(left).collect();
        let own = self.look(&left);
        let count = self.lanes.len();
        let mut best: Option<(Wish, Take)> = None;
        for n in (0..count).map(|n| (n + self.first) % count).filter(|n| left[*n] > 0) {
            let (lane, left) = (&self.lanes[n], left[n]);
            let disk = &mut self.disks[lane.first];
            let behind = own.unwrap_or(1.0).max(disk.share) - disk.share;
            let several = (left / LEFT_FOR_EACH).clamp(1, MAX_AT_ONCE);
            let part = f64::from(left) / f64::from(lane.blocks);
            let (wish, blocks) = match lane.whose {
                // Those that are behind, one after the other; the own ones if none is.
                Whose::Near if disk.evened && behind > 0.0 => (
                    Wish::Help(behind),
                    several.min(((behind * disk.blocks as f64 / 2.0) as u32).max(1)),
                ),
                Whose::Own => (Wish::Own(part), several),
                _ if own.is_some() => continue,
                Whose::Near if !patient => (Wish::Near(left), 1),
                Whose::Elsewhere if !patient || left > LAST_ELSEWHERE => (Wish::Elsewhere(left), 1),
                Whose::Near | Whose::Elsewhere => continue,
            };
            if best.is_none_or(|(most, _)| wish > most) {
                best = Some((wish, Take { lane: n, end: lane.end, blocks, disk: lane.disk }));
            }
        }
        match best {
            Some((_, take)) => Next::Take(take),
            None if left.iter().any(|left| *left > 0) => Next::Later,
            None => Next::Nothing,
        }
    }

    /// How far all disks are, and which of them are to be helped; the share that is taken of the
    /// own ones, as long as there is any left.
    fn look(&mut self, left: &[u32]) -> Option<f64> {
        self.disks.iter_mut().for_each(|disk| disk.left = 0);
        for (lane, left) in self.lanes.iter().zip(left) {
            self.disks[lane.first].left += u64::from(*left);
        }
        for disk in &mut self.disks {
            disk.share = share_of(disk.left, disk.blocks);
        }
        let own = self.disks.iter().filter(|disk| disk.own);
        let (own_left, all) = own.fold((0, 0), |(l, all), disk| (l + disk.left, all + disk.blocks));
        let own = share_of(own_left, all);
        // Whoever waits for help from a disk that is not behind itself has that done less.
        for _ in 0..self.disks.len() {
            let mut changed = false;
            for n in 0..self.disks.len() {
                let share = |helped: &usize| {
                    let helped = &self.disks[*helped];
                    helped.share + PER_STEP / helped.blocks.max(1) as f64
                };
                let least = self.disks[n].helps.iter().map(share).fold(f64::INFINITY, f64::min);
                changed |= least < self.disks[n].share;
                self.disks[n].share = self.disks[n].share.min(least);
            }
            if !changed {
                break;
            }
        }
        for disk in self.disks.iter_mut().filter(|disk| !disk.own) {
            let behind = (own - disk.share) * disk.blocks as f64;
            let several =
                (disk.left / u64::from(LEFT_FOR_EACH)).clamp(1, MAX_AT_ONCE.into()) as f64;
            if behind > (HIGH * several).max(HIGH_SHARE * disk.left as f64) {
                disk.evened = true;
            } else if behind < -LOW * several {
                disk.evened = false;
            }
        }
        (own_left > 0).then_some(own)
    }
}

/// What a process takes first: of the same kind what there is more of.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
enum Wish {
    Elsewhere(u32),
    Near(u32),
    Own(f64),
    Help(f64),
}

fn share_of(left: u64, blocks: u64) -> f64 {
    1.0 - left as f64 / blocks.max(1) as f64
}

/// The disks of one process, where all have their share of them.
fn share(disks: Vec<u32>, rank: u32, ranks: u32) -> Vec<u32> {
    let count = disks.len() as u32;
    let is_own =
        |n: u32| if ranks <= count { n % ranks == rank % ranks } else { n == rank % count };
    (0..).zip(disks).filter(|(n, _)| is_own(*n)).map(|(_, disk)| disk).collect()
}

#[cfg(test)]
mod tests;
