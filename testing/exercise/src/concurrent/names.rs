//! A few names of one directory, which all callers create, rename and remove. A name identifies an
//! inode, so that every lookup must find the right one.

use super::calls::{How, Place};
use super::kind::{Exercise, SEARCH_BOUND};
use crate::Outcome;
use crate::linear::{Event, Sequential, Verdict, check};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Few, so that callers collide. All names of a history form one object.
const NAMES: u8 = 3;

#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub enum Op {
    /// With `O_EXCL`.
    Create {
        name: u8,
    },
    Unlink {
        name: u8,
    },
    /// `keep`: with `RENAME_NOREPLACE`.
    Rename {
        from: u8,
        to: u8,
        keep: bool,
    },
    /// Links a file of the caller's own. With a shared file, `link` is two steps even on a local
    /// file system: finding the file, and giving it the name.
    Link {
        inode: u64,
        to: u8,
    },
    Lookup {
        name: u8,
    },
}

#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub enum Answer {
    Done,
    /// The inode that was created or found.
    Inode(u64),
    Exists,
    Missing,
}

pub struct Names {
    at: Place,
    own: PathBuf,
    own_inode: u64,
}

impl Names {
    fn path(&self, name: u8) -> PathBuf {
        self.at.dir.join(format!("name-{name}"))
    }

    fn call(&self, op: &Op) -> std::io::Result<Answer> {
        let calls = &self.at.calls;
        match *op {
            Op::Create { name } => {
                let file = calls.open(&self.path(name), How::New)?;
                return Ok(Answer::Inode(file.inode()?));
            }
            Op::Unlink { name } => calls.unlink(&self.path(name))?,
            Op::Rename { from, to, keep } => {
                calls.rename(&self.path(from), &self.path(to), keep)?;
            }
            Op::Link { to, .. } => calls.link(&self.own, &self.path(to))?,
            Op::Lookup { name } => return Ok(Answer::Inode(calls.inode(&self.path(name))?)),
        }
        Ok(Answer::Done)
    }
}

impl Exercise for Names {
    type Op = Op;
    type Result = Answer;

    fn prepare(_at: &Place) -> Outcome {
        Ok(())
    }

    fn open(at: &Place, caller: u32) -> Outcome<Self> {
        let name = format!("own-{caller}");
        let made = at.open(&name, How::Empty)?.inode();
        let own_inode = made.map_err(|e| format!("{name}: {e}"))?;
        Ok(Self { own: at.dir.join(name), at: at.clone(), own_inode })
    }

    fn choose(&mut self, rng: &mut fastrand::Rng) -> Op {
        let (name, other) = (rng.u8(..NAMES), rng.u8(..NAMES));
        match rng.u32(..20) {
            0..5 => Op::Create { name },
            5..8 => Op::Unlink { name },
            8..11 => Op::Rename { from: name, to: other, keep: rng.u32(..3) == 0 },
            11..13 => Op::Link { inode: self.own_inode, to: name },
            _ => Op::Lookup { name },
        }
    }

    fn perform(&mut self, op: &Op) -> Outcome<Answer> {
        self.call(op).or_else(|e| match Errno::from_io_error(&e) {
            Some(Errno::EXIST) => Ok(Answer::Exists),
            Some(Errno::NOENT) => Ok(Answer::Missing),
            _ => Err(e.to_string()),
        })
    }

    fn check(events: &[Seen], places: &[Place]) -> Outcome {
        let mut events = events.to_vec();
        let mut end = events.iter().map(|e| e.returned_ns).max().unwrap_or(0);
        for at in places {
            for name in 0..NAMES {
                end += 1;
                let op = Op::Lookup { name };
                let result = Self::open(at, u32::MAX)?.perform(&op)?;
                let (invoked_ns, returned_ns) = (end, end);
                events.push(Event { caller: u32::MAX, op, result, invoked_ns, returned_ns });
            }
        }
        let judged = judged(&events, places.len() as u32);
        match check(&Directory, &judged, SEARCH_BOUND) {
            Verdict::Explained => Ok(()),
            Verdict::Contradiction(why) => Err(why),
            Verdict::TooHard => Err("too many orders to try; use fewer callers".into()),
        }
    }
}

type Seen = Event<Op, Answer>;

/// An operation, and whether a caller on another mount has meanwhile changed one of a rename's
/// names.
#[derive(Clone, Debug)]
struct Judged {
    op: Op,
    raced: bool,
}

/// The events to judge. Caller `n` uses mount `n % mounts`.
fn judged(events: &[Seen], mounts: u32) -> Vec<Event<Judged, Answer>> {
    let raced = |event: &Seen, from, to| {
        events.iter().any(|other| {
            other.caller % mounts != event.caller % mounts
                && other.invoked_ns <= event.returned_ns
                && event.invoked_ns <= other.returned_ns
                && other.changed().iter().flatten().any(|name| [from, to].contains(name))
        })
    };
    let judge = |event: &Seen| {
        let Event { caller, op, result, invoked_ns, returned_ns } = event.clone();
        let raced = matches!(op, Op::Rename { from, to, .. } if raced(event, from, to));
        Event { caller, op: Judged { op, raced }, result, invoked_ns, returned_ns }
    };
    events.iter().map(judge).collect()
}

impl Seen {
    /// The names that it may have changed.
    fn changed(&self) -> [Option<u8>; 2] {
        match (&self.op, &self.result) {
            (Op::Create { name }, Answer::Inode(_))
            | (Op::Unlink { name } | Op::Link { to: name, .. }, Answer::Done) => {
                [Some(*name), None]
            }
            (Op::Rename { from, to, .. }, Answer::Done) => [Some(*from), Some(*to)],
            _ => [None, None],
        }
    }
}

struct Directory;

impl Sequential for Directory {
    type Op = Judged;
    type Result = Answer;
    type State = BTreeMap<u8, u64>;

    fn initial(&self) -> Self::State {
        BTreeMap::new()
    }

    fn apply(&self, state: &Self::State, asked: &Judged, answer: &Answer) -> Option<Self::State> {
        let mut next = state.clone();
        let right = match (&asked.op, answer) {
            (Op::Create { name }, Answer::Inode(inode)) => next.insert(*name, *inode).is_none(),
            (Op::Create { name }, Answer::Exists) => state.contains_key(name),
            (Op::Unlink { name }, Answer::Done) => next.remove(name).is_some(),
            (Op::Unlink { name } | Op::Lookup { name }, Answer::Missing) => {
                !state.contains_key(name)
            }
            (Op::Lookup { name }, Answer::Inode(inode)) => state.get(name) == Some(inode),
            (Op::Rename { from, .. }, Answer::Missing) => !state.contains_key(from),
            (Op::Rename { from, to, keep }, Answer::Done) => {
                rename(&mut next, *from, *to) && !(*keep && state.contains_key(to))
            }
            (Op::Rename { from, to, keep: true }, Answer::Exists) => {
                (asked.raced || state.contains_key(from)) && state.contains_key(to)
            }
            (Op::Link { to, .. }, Answer::Exists) => state.contains_key(to),
            // Linux refuses to link a file that seems to have no name left, and its link count from
            // FUSE may be outdated while others are removed. Nothing was done then.
            (Op::Link { .. }, Answer::Missing) => true,
            (Op::Link { inode, to }, Answer::Done) => next.insert(*to, *inode).is_none(),
            _ => false,
        };
        right.then_some(next)
    }

    /// Linux looks up `from`, then `to`, and does nothing if both are one file (or, for `keep`, if
    /// `to` exists). On one mount nothing happens between the two lookups; another mount may rename
    /// the file from one name to the other.
    fn otherwise(
        &self,
        state: &Self::State,
        asked: &Judged,
        answer: &Answer,
    ) -> Option<Self::State> {
        let Op::Rename { from, to, .. } = asked.op else { return None };
        let nothing = asked.raced && *answer == Answer::Done && from != to;
        (nothing && state.contains_key(&to)).then(|| state.clone())
    }

    fn only_looks(&self, asked: &Judged, answer: &Answer) -> bool {
        matches!(asked.op, Op::Lookup { .. }) || matches!(answer, Answer::Exists | Answer::Missing)
    }
}

/// Two names of one inode stay unchanged.
fn rename(names: &mut BTreeMap<u8, u64>, from: u8, to: u8) -> bool {
    let Some(&inode) = names.get(&from) else { return false };
    if names.get(&to) != Some(&inode) {
        names.remove(&from);
        names.insert(to, inode);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(op: Op, result: Answer, invoked_ns: u64, returned_ns: u64) -> Seen {
        Event { caller: 0, op, result, invoked_ns, returned_ns }
    }

    fn verdict(events: &[Seen]) -> Verdict {
        check(&Directory, &judged(events, 2), 10_000)
    }

    #[test]
    fn two_winners_of_an_exclusive_create_are_refused() {
        let create = |answer| seen(Op::Create { name: 0 }, answer, 0, 100);
        let one = [create(Answer::Inode(5)), create(Answer::Exists)];
        assert_eq!(verdict(&one), Verdict::Explained);
        let two = [create(Answer::Inode(5)), create(Answer::Inode(6))];
        assert!(matches!(verdict(&two), Verdict::Contradiction(_)));
        // With a concurrent removal both may have succeeded.
        let unlink = seen(Op::Unlink { name: 0 }, Answer::Done, 50, 60);
        assert_eq!(verdict(&[two[0].clone(), two[1].clone(), unlink]), Verdict::Explained);
    }

    #[test]
    fn a_name_that_was_moved_away_is_not_found_any_more() {
        let made = seen(Op::Create { name: 0 }, Answer::Inode(5), 0, 10);
        let moved = seen(Op::Rename { from: 0, to: 1, keep: false }, Answer::Done, 20, 30);
        let found = |name, answer| seen(Op::Lookup { name }, answer, 40, 50);
        let good = [made, moved, found(1, Answer::Inode(5)), found(0, Answer::Missing)];
        assert_eq!(verdict(&good), Verdict::Explained);
        let mut stale = good.to_vec();
        stale.push(found(0, Answer::Inode(5)));
        assert!(matches!(verdict(&stale), Verdict::Contradiction(_)));
        let mut other = good.to_vec();
        other.push(found(1, Answer::Inode(6)));
        assert!(matches!(verdict(&other), Verdict::Contradiction(_)));
    }

    #[test]
    fn only_renames_of_two_mounts_may_both_have_moved_one_name() {
        let made = seen(Op::Create { name: 0 }, Answer::Inode(5), 0, 10);
        let moved = |caller, invoked_ns| {
            let op = Op::Rename { from: 0, to: 1, keep: false };
            Event { caller, ..seen(op, Answer::Done, invoked_ns, invoked_ns + 20) }
        };
        let both = |one, two| verdict(&[made.clone(), one, two]);
        assert_eq!(both(moved(0, 20), moved(1, 30)), Verdict::Explained);
        let refused = |verdict| matches!(verdict, Verdict::Contradiction(_));
        assert!(refused(both(moved(0, 20), moved(2, 30))), "on one mount");
        assert!(refused(both(moved(0, 20), moved(1, 50))), "one after the other");
    }
}
