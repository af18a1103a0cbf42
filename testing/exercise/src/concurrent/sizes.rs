//! The size of one file, which all callers change in steps of 16 bytes, so that no change spans two
//! pages; even local file systems show such a change half done.
//!
//! While a change is in progress, a query may return the size before or after it, and the next
//! query the other one: the kernel's side of FUSE returns either a fresh answer of the file system,
//! which it does not cache until the change has returned, or its cached one. Without a change in
//! progress, all queries return one size, never one from before a completed change.

use super::calls::{How, OpenFile, Place};
use super::kind::{Exercise, SEARCH_BOUND};
use crate::Outcome;
use crate::linear::{Event, Sequential, Verdict, check};
use serde::{Deserialize, Serialize};

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
    /// `SEEK_END`, which some file systems answer differently from `fstat`. Unless `exact`, the
    /// result may be too large, but never too small.
    SeekEnd {
        exact: bool,
    },
}

/// `EXACT`: `SEEK_END` too must return the exact size.
pub struct Asked<const EXACT: bool> {
    file: Box<dyn OpenFile>,
    append: Box<dyn OpenFile>,
}

pub type Sizes = Asked<false>;
pub type Ends = Asked<true>;

impl<const EXACT: bool> Exercise for Asked<EXACT> {
    type Op = Op;
    /// The size, for a query.
    type Result = Option<u64>;

    fn prepare(at: &Place) -> Outcome {
        at.open(FILE, How::Empty).map(drop)
    }

    fn open(at: &Place, _caller: u32) -> Outcome<Self> {
        Ok(Self { file: at.open(FILE, How::Existing)?, append: at.open(FILE, How::Append)? })
    }

    fn choose(&mut self, rng: &mut fastrand::Rng) -> Op {
        match rng.u32(..20) {
            0..3 => Op::Truncate { to: STEP * rng.u64(..MAX_STEPS) },
            3..6 => Op::Write { at: STEP * rng.u64(..MAX_STEPS) },
            6..10 => Op::Append,
            10..12 => Op::SeekEnd { exact: EXACT },
            _ => Op::Stat,
        }
    }

    fn perform(&mut self, op: &Op) -> Outcome<Option<u64>> {
        let step = [b'x'; STEP as usize];
        let done = match *op {
            Op::Truncate { to } => self.file.set_len(to).map(|()| None),
            Op::Write { at } => self.file.write_at(&step, at).map(|()| None),
            Op::Append => self.append.append(&step).map(|()| None),
            Op::Stat => self.file.size().map(Some),
            Op::SeekEnd { .. } => self.file.end().map(Some),
        };
        done.map_err(|e| e.to_string())
    }

    fn check(events: &[Seen], places: &[Place]) -> Outcome {
        let mut events = events.to_vec();
        let end = events.iter().map(|e| e.returned_ns).max().unwrap_or(0);
        for (i, at) in places.iter().enumerate() {
            let result = Self::open(at, 0)?.perform(&Op::Stat)?;
            let (invoked_ns, returned_ns) = (end + 1 + i as u64, end + 1 + i as u64);
            events.push(Event { caller: u32::MAX, op: Op::Stat, result, invoked_ns, returned_ns });
        }
        judge(&events)
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
            Op::SeekEnd { exact: false } => seen.is_some_and(|end| end >= *size).then_some(*size),
            Op::Stat | Op::SeekEnd { exact: true } => (*seen == Some(*size)).then_some(*size),
        }
    }

    fn only_looks(&self, op: &Op, _: &Option<u64>) -> bool {
        matches!(op, Op::Stat | Op::SeekEnd { .. })
    }
}

fn explained(events: &[Seen]) -> Outcome {
    match check(&Size, events, SEARCH_BOUND) {
        Verdict::Explained => Ok(()),
        Verdict::Contradiction(why) => Err(why),
        Verdict::TooHard => Err("too many orders to try; use fewer callers".into()),
    }
}

fn judge(events: &[Seen]) -> Outcome {
    let Err(why) = explained(events) else { return Ok(()) };
    let (looks, changes): (Vec<&Seen>, Vec<&Seen>) =
        events.iter().partition(|e| Size.only_looks(&e.op, &e.result));
    let beside_a_change = |look: &&Seen| {
        changes.iter().any(|c| c.invoked_ns <= look.returned_ns && look.invoked_ns <= c.returned_ns)
    };
    let (beside, alone): (Vec<&Seen>, Vec<&Seen>) = looks.into_iter().partition(beside_a_change);
    if beside.is_empty() {
        return Err(why);
    }
    // Queries without a concurrent change must agree with each other; each of the others must fit
    // alone.
    let mut some: Vec<Seen> = changes.iter().chain(&alone).map(|e| (*e).clone()).collect();
    explained(&some)?;
    for look in beside {
        some.push(look.clone());
        explained(&some)?;
        some.pop();
    }
    Ok(())
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

    #[test]
    fn an_end_is_never_too_near_and_only_where_it_may_be_too_far() {
        let end = |exact, seen| {
            verdict(&[(Op::Append, None), (Op::SeekEnd { exact }, Some(seen))])
                == Verdict::Explained
        };
        assert!(end(true, 16) && end(false, 16) && end(false, 32));
        assert!(!end(true, 32) && !end(true, 0) && !end(false, 0));
    }

    /// A write within the file changes no size, but may do so after a concurrent truncation.
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

    #[test]
    fn sizes_may_flicker_while_they_change_and_never_afterwards() {
        let event = |op, result, invoked_ns, returned_ns| Event {
            caller: 0,
            op,
            result,
            invoked_ns,
            returned_ns,
        };
        let stat = |size, at| event(Op::Stat, Some(size), at, at + 1);
        let mut events = vec![
            event(Op::Append, None, 0, 5),
            event(Op::Truncate { to: 160 }, None, 10, 100),
            stat(160, 20),
            stat(16, 30),
            stat(160, 40),
            stat(160, 110),
        ];
        assert!(explained(&events).is_err());
        assert_eq!(judge(&events), Ok(()));
        // Neither the old nor the new size.
        events.push(stat(32, 50));
        assert!(judge(&events).is_err());
        events.pop();
        // The old size after the change had returned; also beside another change.
        events.push(stat(16, 120));
        assert!(judge(&events).is_err());
        events.push(event(Op::Append, None, 119, 130));
        assert!(judge(&events).is_err());
    }

    /// Long histories stay far below the bound of the search.
    #[test]
    fn a_long_history_that_flickers_is_judged() {
        let mut rng = fastrand::Rng::with_seed(5);
        let mut clocks = [0u64; 6];
        let mut moments: Vec<(u64, Seen)> = Vec::new();
        for _ in 0..900 {
            let caller = rng.usize(..clocks.len());
            let invoked_ns = clocks[caller] + rng.u64(1..100);
            let moment = invoked_ns + rng.u64(1..50);
            let returned_ns = moment + rng.u64(1..50);
            clocks[caller] = returned_ns;
            let op = match rng.u32(..20) {
                0..3 => Op::Truncate { to: STEP * rng.u64(..MAX_STEPS) },
                3..6 => Op::Write { at: STEP * rng.u64(..MAX_STEPS) },
                6..10 => Op::Append,
                _ => Op::Stat,
            };
            let caller = caller as u32;
            moments.push((moment, Event { caller, op, result: None, invoked_ns, returned_ns }));
        }
        moments.sort_by_key(|(moment, _)| *moment);
        let (mut size, mut events) = (0, Vec::new());
        for (_, mut event) in moments {
            match event.op {
                Op::Stat => event.result = Some(size),
                _ => size = Size.apply(&size, &event.op, &None).unwrap(),
            }
            events.push(event);
        }
        assert_eq!(explained(&events), Ok(()));
        let end = *clocks.iter().max().unwrap() + 10;
        let event = |op, result, invoked_ns, returned_ns| Event {
            caller: 9,
            op,
            result,
            invoked_ns,
            returned_ns,
        };
        events.push(event(Op::Truncate { to: 0 }, None, end, end + 90));
        for (at, seen) in [(10, 0), (20, size), (30, 0)] {
            events.push(event(Op::Stat, Some(seen), end + at, end + at + 1));
        }
        assert!(explained(&events).is_err());
        assert_eq!(judge(&events), Ok(()));
    }
}
