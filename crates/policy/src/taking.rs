//! The choice of the next block of a process in a job where any process may read any block (1.W4):
//! loose read ordering, the reverse of the distributed queue.
//!
//! Blocks whose copies are on the same disks form a lane. Processes on the disk of the first copy
//! take blocks from its front. Helping processes on the disk of another copy take blocks from its
//! back. All processes see how far each lane is taken, and decide alone. So graduated declustering
//! becomes a matter of how much each process reads from the disk of its own machine.

use std::collections::BTreeSet;

/// The most blocks that are taken at once. This saves messages for the many blocks at the
/// beginning.
const MAX_AT_ONCE: u32 = 4;
/// Several blocks are taken at once only while the lane has this many left for each of them.
const LEFT_FOR_EACH: u32 = 32;
/// A lane is helped when it is behind by this multiple of the blocks taken at once.
const HIGH: f64 = 1.5;
/// A lane is helped only when it is behind by this share of its remaining blocks: early differences
/// have time to even out.
const HIGH_SHARE: f64 = 0.01;
/// A helped lane is helped until it is ahead by this multiple of the blocks taken at once.
const LOW: f64 = 0.5;
/// Share of a block by which each disk in a chain of helpers should be ahead of the next one. If
/// only the next disk's own progress counted, each would be ahead by a whole block.
const PER_STEP: f64 = 0.25;
/// The last blocks of a lane are left to processes on its own disks while those still come: reading
/// them over the network saves no time.
const LAST_ELSEWHERE: u32 = 2;

/// Blocks whose copies are on the same disks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lane {
    /// The disks, beginning with that of the first copy.
    pub disks: Vec<u32>,
    /// Number of blocks.
    pub blocks: u32,
}

/// Number of blocks of a lane that are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Blocks taken from the front.
    pub front: u32,
    /// Blocks taken from the back.
    pub back: u32,
}

/// An end of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The end for processes on the disk of the first copy.
    Front,
    /// The end for helpers.
    Back,
}

impl Taken {
    /// Number of blocks left, of `blocks`.
    pub fn left(self, blocks: u32) -> u32 {
        blocks.saturating_sub(self.front).saturating_sub(self.back)
    }

    /// Takes up to `count` blocks at one end, and returns which.
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

/// What a process should do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Take these blocks.
    Take(Take),
    /// Look again soon: the remaining blocks are left to other processes while those still come.
    Later,
    /// Stop: all blocks are taken.
    Nothing,
}

/// The blocks to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Take {
    /// Index of the lane.
    pub lane: usize,
    /// End of the lane.
    pub end: End,
    /// Number of blocks.
    pub blocks: u32,
    /// The disk to read them from; `None` for any disk that has them.
    pub disk: Option<u32>,
}

/// Relation of a process to a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    /// The lane's first copy is on an own disk: read while any of it is left.
    Own,
    /// Another copy is on a near disk: helped when the lane is behind.
    Near,
    /// No copy is near: read only when nothing else is left.
    Elsewhere,
}

#[derive(Clone, Debug)]
struct Known {
    whose: Whose,
    blocks: u32,
    /// Index in [`Taking::disks`] of the disk with the lane's first copy.
    first: usize,
    end: End,
    disk: Option<u32>,
}

/// A disk and the lanes whose first copies it has.
#[derive(Clone, Debug, Default)]
struct Disk {
    /// Whether the disk is one of the process's own.
    own: bool,
    /// Other disks of which this disk has further copies: its readers can help those.
    helps: Vec<usize>,
    /// Whether the disk was found behind and is helped.
    evened: bool,
    blocks: u64,
    left: u64,
    /// Share of the disk that is taken, or that of a disk which waits for its help, if that is
    /// less.
    share: f64,
}

/// The choices of one process.
#[derive(Clone, Debug)]
pub struct Taking {
    lanes: Vec<Known>,
    disks: Vec<Disk>,
    /// Index of the lane that is looked at first, so that not all processes choose the same lane.
    first: usize,
}

impl Taking {
    /// The choices of process `rank` of `ranks`. `local` are the disks of its machine. If no local
    /// disk has any of the blocks, the processes share all disks by rank.
    pub fn new(lanes: &[Lane], local: &[u32], (rank, ranks): (u32, u32)) -> Self {
        let firsts: BTreeSet<u32> =
            lanes.iter().filter_map(|lane| lane.disks.first()).copied().collect();
        let is_here = lanes.iter().any(|lane| lane.disks.iter().any(|disk| local.contains(disk)));
        let mine = |disk: &&u32| !is_here || local.contains(disk);
        let own = share(firsts.iter().filter(mine).copied().collect(), rank, ranks.max(1));
        let near = if is_here { local } else { &own };
        // One more index for blocks that are on none of the disks.
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

    /// Chooses the next blocks, from the taken blocks of each lane. `patient` is set while the
    /// processes that own the last blocks may still come for them.
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
                // Lanes that are behind come first, the furthest behind before the others; the
                // process's own lanes if none is.
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

    /// Updates the taken share of all disks and which of them are to be helped. Returns the taken
    /// share of the own disks, while any of them has blocks left.
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
        // A disk that helps one which is behind counts as that far behind itself.
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

/// Priority of a choice, ascending. Within one kind the larger value wins.
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

/// The own disks of one process, if all processes share these disks.
fn share(disks: Vec<u32>, rank: u32, ranks: u32) -> Vec<u32> {
    let count = disks.len() as u32;
    let is_own =
        |n: u32| if ranks <= count { n % ranks == rank % ranks } else { n == rank % count };
    (0..).zip(disks).filter(|(n, _)| is_own(*n)).map(|(_, disk)| disk).collect()
}

#[cfg(test)]
mod tests;
