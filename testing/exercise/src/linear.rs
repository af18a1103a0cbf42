//! Linearizability check: whether one order explains what concurrent callers saw, with every
//! operation taking effect at some moment between its call and its return (Herlihy and Wing). The
//! search is that of Wing and Gong with Lowe's memory: a set of completed operations with the
//! resulting state is tried once.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashSet};
use std::fmt::{Debug, Write as _};
use std::hash::Hash;

/// An operation as its caller saw it. Times are of the machine's monotonic
/// clock, which all its processes share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event<O, R> {
    /// The caller.
    pub caller: u32,
    /// The operation.
    pub op: O,
    /// Its result.
    pub result: R,
    /// Just before the call, nanoseconds.
    pub invoked_ns: u64,
    /// Just after its return, nanoseconds.
    pub returned_ns: u64,
}

/// The sequential specification of an object.
pub trait Sequential {
    /// Operations.
    type Op: Debug;
    /// Results.
    type Result: Debug;
    /// States.
    type State: Clone + Debug + Eq + Hash;

    /// The initial state.
    fn initial(&self) -> Self::State;

    /// The state after an operation, or `None` if it cannot have this result in this state.
    fn apply(
        &self,
        state: &Self::State,
        op: &Self::Op,
        result: &Self::Result,
    ) -> Option<Self::State>;

    /// A second possible state after the operation, if the result can come about in two ways.
    fn otherwise(
        &self,
        _state: &Self::State,
        _op: &Self::Op,
        _result: &Self::Result,
    ) -> Option<Self::State> {
        None
    }

    /// Whether an operation with this result never changes the state.
    fn only_looks(&self, op: &Self::Op, result: &Self::Result) -> bool;
}

/// The result of the search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Such an order exists.
    Explained,
    /// No such order exists; describes where the longest attempt failed.
    Contradiction(String),
    /// The search exceeded its bound.
    TooHard,
}

/// Completed operations: all before `base`, and these.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Progress {
    base: usize,
    ahead: BTreeSet<usize>,
}

impl Progress {
    fn with(&self, done: usize) -> Self {
        let mut next = self.clone();
        next.ahead.insert(done);
        while next.ahead.remove(&next.base) {
            next.base += 1;
        }
        next
    }

    fn count(&self) -> usize {
        self.base + self.ahead.len()
    }
}

/// Number of operations that a failure message shows.
const SHOWN: usize = 16;

/// Searches for an order, trying at most `bound` states.
pub fn check<S: Sequential>(
    object: &S,
    events: &[Event<S::Op, S::Result>],
    bound: usize,
) -> Verdict {
    let mut events: Vec<_> = events.iter().collect();
    events.sort_by_key(|e| (e.invoked_ns, e.returned_ns));
    let first = (Progress { base: 0, ahead: BTreeSet::new() }, object.initial());
    let mut furthest = first.clone();
    let mut seen = HashSet::from([first.clone()]);
    let mut stack = vec![first];
    while let Some((progress, state)) = stack.pop() {
        if progress.base == events.len() {
            return Verdict::Explained;
        }
        if progress.count() > furthest.0.count() {
            furthest = (progress.clone(), state.clone());
        }
        for next in successors(object, &events, &progress, &state) {
            if seen.insert(next.clone()) {
                if seen.len() > bound {
                    return Verdict::TooHard;
                }
                stack.push(next);
            }
        }
    }
    Verdict::Contradiction(complaint(&events, &furthest.0, &furthest.1))
}

/// All operations that may come next: no remaining operation returned before they were called. The
/// last one is tried first.
fn successors<S: Sequential>(
    object: &S,
    events: &[&Event<S::Op, S::Result>],
    progress: &Progress,
    state: &S::State,
) -> Vec<(Progress, S::State)> {
    let mut next = Vec::new();
    let mut first_return = u64::MAX;
    for (i, event) in events.iter().enumerate().skip(progress.base) {
        if progress.ahead.contains(&i) {
            continue;
        }
        if event.invoked_ns > first_return {
            break;
        }
        first_return = first_return.min(event.returned_ns);
        let after = object.apply(state, &event.op, &event.result);
        if object.only_looks(&event.op, &event.result)
            && let Some(after) = after
        {
            // The operation fits and never changes the state: if any order works, one with it at
            // this point does.
            return vec![(progress.with(i), after)];
        }
        let otherwise = object.otherwise(state, &event.op, &event.result);
        for after in after.into_iter().chain(otherwise) {
            next.push((event.returned_ns, progress.with(i), after));
        }
    }
    next.sort_by_key(|(returned, ..)| std::cmp::Reverse(*returned));
    next.into_iter().map(|(_, progress, state)| (progress, state)).collect()
}

fn complaint<O: Debug, R: Debug, S: Debug>(
    events: &[&Event<O, R>],
    progress: &Progress,
    state: &S,
) -> String {
    let start = events.first().map_or(0, |e| e.invoked_ns);
    let mut text = format!(
        "no order explains it; {} of {} operations done lead to {state:?}, then none of:\n",
        progress.count(),
        events.len()
    );
    let left = (progress.base..events.len()).filter(|i| !progress.ahead.contains(i));
    let show = |i: usize, text: &mut String| {
        let e = events[i];
        let _ = writeln!(
            text,
            "  [{:>9.1} to {:>9.1} us] caller {}: {:?} -> {:?}",
            (e.invoked_ns - start) as f64 / 1e3,
            (e.returned_ns - start) as f64 / 1e3,
            e.caller,
            e.op,
            e.result
        );
    };
    for i in left.take(SHOWN) {
        show(i, &mut text);
    }
    text.push_str("done, in the order of their calls:\n");
    let last = progress.ahead.last().map_or(progress.base, |last| last + 1);
    let done = (0..last).filter(|i| *i < progress.base || progress.ahead.contains(i));
    let done: Vec<usize> = done.collect();
    for i in &done[done.len().saturating_sub(SHOWN)..] {
        show(*i, &mut text);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A register: `Some` writes, `None` reads.
    struct Register;

    impl Sequential for Register {
        type Op = Option<u32>;
        type Result = u32;
        type State = u32;

        fn initial(&self) -> u32 {
            0
        }

        fn apply(&self, state: &u32, op: &Option<u32>, result: &u32) -> Option<u32> {
            match op {
                Some(value) => Some(*value),
                None => (state == result).then_some(*state),
            }
        }

        fn only_looks(&self, op: &Option<u32>, _: &u32) -> bool {
            op.is_none()
        }
    }

    type Seen = Event<Option<u32>, u32>;

    fn write(value: u32, invoked_ns: u64, returned_ns: u64) -> Seen {
        Event { caller: 0, op: Some(value), result: 0, invoked_ns, returned_ns }
    }

    fn read(result: u32, invoked_ns: u64, returned_ns: u64) -> Seen {
        Event { caller: 1, op: None, result, invoked_ns, returned_ns }
    }

    fn verdict(events: &[Seen]) -> Verdict {
        check(&Register, events, 100_000)
    }

    #[test]
    fn a_stale_read_is_refused() {
        assert_eq!(verdict(&[write(1, 0, 10), read(1, 20, 30)]), Verdict::Explained);
        let Verdict::Contradiction(why) = verdict(&[write(1, 0, 10), read(0, 20, 30)]) else {
            panic!("a stale read was accepted")
        };
        assert!(why.contains("caller 1"), "{why}");
    }

    #[test]
    fn a_read_beside_a_write_may_see_either_but_not_both_ways() {
        let beside = [write(1, 0, 100), read(0, 10, 20), read(1, 30, 40), read(1, 50, 60)];
        assert_eq!(verdict(&beside), Verdict::Explained);
        // The new value, then the old one again: the register went back.
        let back = [write(1, 0, 100), read(1, 10, 20), read(0, 30, 40)];
        assert!(matches!(verdict(&back), Verdict::Contradiction(_)));
    }

    #[test]
    fn a_lost_update_is_refused() {
        let lost = [write(1, 0, 10), write(2, 20, 30), read(1, 40, 50)];
        assert!(matches!(verdict(&lost), Verdict::Contradiction(_)));
        let either = [write(1, 0, 30), write(2, 20, 35), read(1, 40, 50), read(1, 41, 50)];
        assert_eq!(verdict(&either), Verdict::Explained);
    }

    #[test]
    fn readers_must_agree_on_the_order_of_writes() {
        let mut events = vec![write(1, 0, 100), write(2, 0, 100)];
        events.extend([read(1, 110, 120), read(2, 130, 140)]);
        assert!(matches!(verdict(&events), Verdict::Contradiction(_)));
    }

    /// Histories of callers of a real register, with each operation at a moment within its
    /// interval, are all accepted, and quickly.
    #[test]
    fn what_a_register_did_is_accepted() {
        for seed in 0..30 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut clocks = [0u64; 6];
            let mut moments: Vec<(u64, Seen)> = Vec::new();
            for number in 1..=2000u32 {
                let caller = rng.usize(..clocks.len());
                let invoked = clocks[caller] + rng.u64(1..50);
                let moment = invoked + rng.u64(..100);
                let returned = moment + rng.u64(..100);
                clocks[caller] = returned;
                let op = rng.bool().then_some(number);
                let event = Event {
                    caller: caller as u32,
                    op,
                    result: 0,
                    invoked_ns: invoked,
                    returned_ns: returned,
                };
                moments.push((moment * 10_000 + u64::from(number), event));
            }
            moments.sort_by_key(|(moment, _)| *moment);
            let mut state = 0;
            let mut events: Vec<Seen> = Vec::new();
            for (_, mut event) in moments {
                match event.op {
                    Some(value) => state = value,
                    None => event.result = state,
                }
                events.push(event);
            }
            assert_eq!(verdict(&events), Verdict::Explained, "seed {seed}");
            // An invalid history is rejected: a read returns a value that was overwritten before
            // every caller's last call.
            let end = clocks.iter().max().unwrap() + 1;
            events.push(write(9999, end, end + 1));
            events.push(read(state, end + 2, end + 3));
            assert!(matches!(verdict(&events), Verdict::Contradiction(_)), "seed {seed}");
        }
    }

    #[test]
    fn the_search_is_bounded() {
        // Many concurrent writes, and a read of a value that nobody wrote.
        let mut events: Vec<Seen> = (1..40).map(|i| write(i, 0, 100)).collect();
        events.push(read(77, 110, 120));
        assert_eq!(verdict(&events), Verdict::TooHard);
    }
}
