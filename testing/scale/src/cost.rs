//! The cost of decisions: what they look at, and their CPU time.
//!
//! A simulation holds the state of all nodes, so with many nodes a decision's time in it is mostly
//! waiting for memory. So the decisions of a few nodes are recorded, and repeated alone, as each
//! node would make them.

use std::hint::black_box;
use std::time::Instant;
use weir_policy::{
    CopyView, DiskQueue, Limits, Micros, Progress, Request, Router, Ticket, UNKNOWN,
};

/// Number of repetitions. The quickest one counts, because other load only slows the machine down.
const ROUNDS: usize = 25;

/// Decisions of one kind.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    /// Number of decisions.
    pub decisions: u64,
    /// Number of items they looked at: copies for a reader's choice, waiting requests for a disk's.
    pub looked_at: u64,
}

impl Cost {
    /// Counts a decision.
    pub fn count(&mut self, looks_at: usize) {
        self.decisions += 1;
        self.looked_at += looks_at as u64;
    }
}

/// A reader's choice, with its inputs.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The block, or run of blocks.
    pub block: u64,
    /// The reader's progress.
    pub own: Progress,
    /// The reader's knowledge of the copies.
    pub views: Vec<CopyView>,
}

/// An operation on a disk's queue.
#[derive(Clone, Copy, Debug)]
pub enum Asked {
    /// Adds a request.
    Push(Micros, Request),
    /// Takes the next request.
    Pop(Micros),
    /// Removes a request.
    Cancel(Ticket),
}

/// Mean nanoseconds per choice; `None` without choices.
pub fn choice_ns(router: &Router, choices: &[Choice]) -> Option<f64> {
    quickest_ns(choices.len(), || {
        let mut router = router.clone();
        for Choice { block, own, views } in choices {
            _ = black_box(router.choose(*block, (*own, UNKNOWN), black_box(views)));
        }
    })
}

/// Mean nanoseconds per queue operation; `None` without operations.
pub fn turn_ns(limits: Limits, asked: &[Asked]) -> Option<f64> {
    quickest_ns(asked.len(), || {
        let mut queue = DiskQueue::new(limits);
        for asked in asked {
            match *asked {
                Asked::Push(now, request) => _ = black_box(queue.push(now, request, ())),
                Asked::Pop(now) => _ = black_box(queue.pop(now)),
                Asked::Cancel(ticket) => _ = black_box(queue.cancel(ticket)),
            }
        }
    })
}

fn quickest_ns(times: usize, decide: impl Fn()) -> Option<f64> {
    let round = |_| {
        let begun = Instant::now();
        decide();
        begun.elapsed().as_nanos() as f64 / times as f64
    };
    (0..ROUNDS).map(round).min_by(f64::total_cmp).filter(|_| times > 0)
}
