//! Blocks of 4 KiB as registers. A block consists of 512 equal words, its stamp; each write has a
//! unique stamp. The first and the last word must each behave as a register. A concurrent read may
//! see a partly written block, as on a local file system; a block may never stay mixed. With
//! several mounts, the writer's own mount may show a write before it has returned and before others
//! see it, because the kernel writes to its page cache first. Such a read proves nothing about the
//! others.

use super::calls::{How, OpenFile, Place};
use super::kind::{Exercise, SEARCH_BOUND};
use crate::Outcome;
use crate::linear::{Event, Sequential, Verdict, check};
use serde::{Deserialize, Serialize};

const BLOCK: usize = 4096;
/// More than one stripe unit of 4 KiB, so that they are on several targets in some layouts.
const BLOCKS: u32 = 5;
const FILE: &str = "blocks";

#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub enum Op {
    Write { block: u32, stamp: u64 },
    Read { block: u32 },
}

/// The stamps of a read, equal neighbours joined. An intact block has one.
pub type Stamps = Vec<u64>;

pub struct Blocks {
    file: Box<dyn OpenFile>,
    caller: u32,
    made: u64,
}

impl Exercise for Blocks {
    type Op = Op;
    type Result = Stamps;

    fn prepare(at: &Place) -> Outcome {
        let file = at.open(FILE, How::Empty)?;
        let zeros = vec![0; BLOCK * BLOCKS as usize];
        file.write_at(&zeros, 0).map_err(|e| format!("{FILE}: {e}"))
    }

    fn open(at: &Place, caller: u32) -> Outcome<Self> {
        Ok(Self { file: at.open(FILE, How::Existing)?, caller, made: 0 })
    }

    fn choose(&mut self, rng: &mut fastrand::Rng) -> Op {
        let block = rng.u32(..BLOCKS);
        if rng.u32(..5) < 2 {
            self.made += 1;
            Op::Write { block, stamp: (u64::from(self.caller) + 1) << 32 | self.made }
        } else {
            Op::Read { block }
        }
    }

    fn perform(&mut self, op: &Op) -> Outcome<Stamps> {
        match *op {
            Op::Write { block, stamp } => {
                let bytes = stamp.to_le_bytes().repeat(BLOCK / 8);
                let wrote = self.file.write_at(&bytes, u64::from(block) * BLOCK as u64);
                wrote.map_err(|e| e.to_string())?;
                Ok(Vec::new())
            }
            Op::Read { block } => {
                let mut bytes = vec![0; BLOCK];
                let read = self.file.read_at(&mut bytes, u64::from(block) * BLOCK as u64);
                let len = read.map_err(|e| e.to_string())?;
                if len < BLOCK {
                    return Err(format!("{len} bytes of block {block} are there"));
                }
                let mut stamps: Stamps = Vec::new();
                for word in bytes.chunks_exact(8) {
                    let word = u64::from_le_bytes(word.try_into().unwrap_or_default());
                    if stamps.last() != Some(&word) {
                        stamps.push(word);
                    }
                }
                Ok(stamps)
            }
        }
    }

    fn check(events: &[Seen], places: &[Place]) -> Outcome {
        for block in 0..BLOCKS {
            let of_block = |e: &&Seen| match e.op {
                Op::Write { block: b, .. } | Op::Read { block: b } => b == block,
            };
            let mut events: Vec<Seen> = events.iter().filter(of_block).cloned().collect();
            // The final state, as each mount shows it.
            let end = events.iter().map(|e| e.returned_ns).max().unwrap_or(0);
            for (i, at) in places.iter().enumerate() {
                let op = Op::Read { block };
                let result = Self::open(at, 0)?.perform(&op)?;
                let (invoked_ns, returned_ns) = (end + 1 + i as u64, end + 1 + i as u64);
                events.push(Event { caller: u32::MAX, op, result, invoked_ns, returned_ns });
            }
            check_block(&events, places.len()).map_err(|e| format!("block {block}: {e}"))?;
        }
        Ok(())
    }
}

type Seen = Event<Op, Stamps>;

/// The first or last word of a block.
struct Word {
    last: bool,
}

impl Sequential for Word {
    type Op = Op;
    type Result = Stamps;
    type State = u64;

    fn initial(&self) -> u64 {
        0
    }

    fn apply(&self, state: &u64, op: &Op, seen: &Stamps) -> Option<u64> {
        match op {
            Op::Write { stamp, .. } => Some(*stamp),
            Op::Read { .. } => {
                let word = if self.last { seen.last() } else { seen.first() };
                (word == Some(state)).then_some(*state)
            }
        }
    }

    fn only_looks(&self, op: &Op, _: &Stamps) -> bool {
        matches!(op, Op::Read { .. })
    }
}

/// Whether a read saw a write of its own mount that had not returned.
fn is_early(read: &Seen, last: bool, events: &[Seen], mounts: usize) -> bool {
    let seen = if last { read.result.last() } else { read.result.first() };
    let mount = |e: &Seen| e.caller as usize % mounts;
    let wrote = |w: &&Seen| matches!(&w.op, Op::Write { stamp, .. } if Some(stamp) == seen);
    let writer = events.iter().find(wrote).filter(|_| mounts > 1 && read.caller != u32::MAX);
    writer.is_some_and(|w| {
        mount(w) == mount(read) && (w.invoked_ns..w.returned_ns).contains(&read.returned_ns)
    })
}

fn check_block(events: &[Seen], mounts: usize) -> Outcome {
    let writes = |e: &&Seen| matches!(e.op, Op::Write { .. });
    for read in events.iter().filter(|e| e.result.len() > 1) {
        let beside =
            |w: &Seen| w.invoked_ns <= read.returned_ns && w.returned_ns >= read.invoked_ns;
        if !events.iter().filter(writes).any(beside) {
            return Err(format!("mixed, and nobody was writing: {read:?}"));
        }
    }
    for last in [false, true] {
        let late = |e: &&Seen| !is_early(e, last, events, mounts);
        let events: Vec<Seen> = events.iter().filter(late).cloned().collect();
        match check(&Word { last }, &events, SEARCH_BOUND) {
            Verdict::Explained => {}
            Verdict::Contradiction(why) => {
                let which = if last { "last" } else { "first" };
                return Err(format!("{which} word: {why}"));
            }
            Verdict::TooHard => return Err("too many orders to try; use fewer callers".into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(stamp: u64, invoked_ns: u64, returned_ns: u64) -> Seen {
        let op = Op::Write { block: 0, stamp };
        Event { caller: 0, op, result: Vec::new(), invoked_ns, returned_ns }
    }

    fn read(stamps: &[u64], invoked_ns: u64, returned_ns: u64) -> Seen {
        let op = Op::Read { block: 0 };
        Event { caller: 1, op, result: stamps.to_vec(), invoked_ns, returned_ns }
    }

    #[test]
    fn a_block_that_stays_mixed_is_refused() {
        let beside = [write(1, 0, 10), write(2, 20, 40), read(&[2, 1], 30, 35), read(&[2], 50, 60)];
        assert_eq!(check_block(&beside, 1), Ok(()));
        let stays = [write(1, 0, 40), write(2, 20, 40), read(&[2, 1], 50, 60)];
        assert!(check_block(&stays, 1).unwrap_err().contains("nobody was writing"));
    }

    #[test]
    fn a_stale_end_of_a_block_is_refused() {
        let stale = [write(1, 0, 10), write(2, 20, 30), write(3, 35, 80), read(&[2, 1], 40, 60)];
        assert!(check_block(&stale, 1).unwrap_err().starts_with("last word"));
        assert!(check_block(&[write(1, 0, 10), read(&[0], 20, 30)], 1).is_err());
        assert!(check_block(&[write(1, 0, 10), read(&[7], 20, 30)], 1).is_err());
    }

    #[test]
    fn only_the_writers_mount_may_see_a_write_that_has_not_returned() {
        let by = |caller, event: Seen| Event { caller, ..event };
        let history = |early| {
            let write = by(0, write(1, 0, 100));
            [write, by(early, read(&[1], 10, 20)), by(1, read(&[0], 30, 40))]
        };
        assert_eq!(check_block(&history(2), 2), Ok(()));
        assert!(check_block(&history(2), 1).is_err());
        assert!(check_block(&history(3), 2).is_err());
        let old =
            [by(0, write(1, 0, 100)), by(2, read(&[1], 10, 120)), by(1, read(&[0], 130, 140))];
        assert!(check_block(&old, 2).is_err());
    }
}
