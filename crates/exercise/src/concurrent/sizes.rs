//! The size of one file, which everybody changes. All of it in steps of 16
//! bytes, so that no change spans two pages, which even local file systems
//! show half done.

use super::{Exercise, SEARCH_BOUND};
use crate::Outcome;
use crate::linear::{Event, Sequential, Verdict, check};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const STEP: u64 = 16;
const MAX_STEPS: u64 = 2000;
const FILE: &str = "size";

#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub enum Op {
    Truncate {
        to: u64,
    },
    /// Writes a step at this place.
    Write {
        at: u64,
    },
    Append,
    Stat,
    /// `SEEK_END`, which some file systems answer in another way than `fstat`.
    SeekEnd,
}

pub struct Sizes {
    file: File,
    append: File,
}

impl Exercise for Sizes {
    type Op = Op;
    /// The size, if it was asked.
    type Result = Option<u64>;

    fn prepare(dir: &Path) -> Outcome {
        std::fs::write(dir.join(FILE), "").map_err(|e| format!("{FILE}: {e}"))
    }

    fn open(dir: &Path, _caller: u32) -> Outcome<Self> {
        let path = dir.join(FILE);
        let open = |append| {
            let file = OpenOptions::new().read(true).write(true).append(append).open(&path);
            file.map_err(|e| format!("{}: {e}", path.display()))
        };
        Ok(Self { file: open(false)?, append: open(true)? })
    }

    fn choose(&mut self, rng: &mut fastrand::Rng) -> Op {
        match rng.u32(..20) {
            0..3 => Op::Truncate { to: STEP * rng.u64(..MAX_STEPS) },
            3..6 => Op::Write { at: STEP * rng.u64(..MAX_STEPS) },
            6..10 => Op::Append,
            10..12 => Op::SeekEnd,
            _ => Op::Stat,
        }
    }

    fn perform(&mut self, op: &Op) -> Outcome<Option<u64>> {
        let step = [b'x'; STEP as usize];
        let done = match *op {
            Op::Truncate { to } => self.file.set_len(to).map(|()| None),
            Op::Write { at } => self.file.write_all_at(&step, at).map(|()| None),
            Op::Append => self.append.write_all(&step).map(|()| None),
            Op::Stat => self.file.metadata().map(|m| Some(m.len())),
            Op::SeekEnd => {
                let end = rustix::fs::seek(&self.file, rustix::fs::SeekFrom::End(0));
                end.map(Some).map_err(Into::into)
            }
        };
        done.map_err(|e| e.to_string())
    }

    fn check(events: &[Seen], dirs: &[PathBuf]) -> Outcome {
        let mut events = events.to_vec();
        let end = events.iter().map(|e| e.returned_ns).max().unwrap_or(0);
        for (i, dir) in dirs.iter().enumerate() {
            let result = Self::open(dir, 0)?.perform(&Op::Stat)?;
            let (invoked_ns, returned_ns) = (end + 1 + i as u64, end + 1 + i as u64);
            events.push(Event { caller: u32::MAX, op: Op::Stat, result, invoked_ns, returned_ns });
        }
        match check(&Size, &events, SEARCH_BOUND) {
            Verdict::Explained => Ok(()),
            Verdict::Contradiction(why) => Err(why),
            Verdict::TooHard => Err("too many orders to try; use fewer callers".into()),
        }
    }
}

type Seen = Event<Op, Option<u64>>;

struct Size;

impl Sequential for Size {
    type Op = Op;
    type Result = Option<u64>;
    type State = u64;

    fn initial(&self) -> u64 {
        0
    }

    fn apply(&self, size: &u64, op: &Op, seen: &Option<u64>) -> Option<u64> {
        match *op {
            Op::Truncate { to } => Some(to),
            Op::Write { at } => Some((*size).max(at + STEP)),
            Op::Append => Some(size + STEP),
            Op::Stat | Op::SeekEnd => (*seen == Some(*size)).then_some(*size),
        }
    }

    fn only_looks(&self, op: &Op, _: &Option<u64>) -> bool {
        matches!(op, Op::Stat | Op::SeekEnd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(history: &[(Op, Option<u64>)]) -> Verdict {
        let event = |(i, (op, seen)): (usize, &(Op, Option<u64>))| Event {
            caller: i as u32,
            op: op.clone(),
            result: *seen,
            invoked_ns: 10 * i as u64,
            returned_ns: 10 * i as u64 + 5,
        };
        let events: Vec<Seen> = history.iter().enumerate().map(event).collect();
        check(&Size, &events, 1000)
    }

    #[test]
    fn two_appends_at_the_same_place_are_refused() {
        use Op::{Append, Stat, Truncate, Write};
        let twice = [(Append, None), (Append, None)];
        let good: Vec<_> = twice.iter().cloned().chain([(Stat, Some(32))]).collect();
        assert_eq!(verdict(&good), Verdict::Explained);
        let lost: Vec<_> = twice.iter().cloned().chain([(Stat, Some(16))]).collect();
        assert!(matches!(verdict(&lost), Verdict::Contradiction(_)));
        let cut = [(Write { at: 160 }, None), (Truncate { to: 32 }, None), (Stat, Some(176))];
        assert!(matches!(verdict(&cut), Verdict::Contradiction(_)));
    }

    /// A write within the file changes nothing, but may do so after a cut that
    /// happened at the same time.
    #[test]
    fn a_write_beside_a_truncation_may_come_after_it() {
        let event = |op, result, invoked_ns, returned_ns| Event {
            caller: 0,
            op,
            result,
            invoked_ns,
            returned_ns,
        };
        let events = [
            event(Op::Write { at: 1600 }, None, 0, 10),
            event(Op::Write { at: 160 }, None, 20, 100),
            event(Op::Truncate { to: 32 }, None, 20, 90),
            event(Op::Stat, Some(176), 110, 120),
        ];
        assert_eq!(check(&Size, &events, 1000), Verdict::Explained);
    }
}
