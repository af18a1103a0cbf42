//! What decisions have to look at, and what they cost in CPU time.
//!
//! A simulation holds the state of all nodes, so that with many of them most of a decision's
//! time in it is waiting for memory. So the decisions of a few nodes are written down, and
//! carried out again alone, as each node would.

use std::hint::black_box;
use std::time::Instant;
use weir_policy::{
    CopyView, DiskQueue, Limits, Micros, Progress, Request, Router, Ticket, UNKNOWN,
};

/// Times that everything is carried out again; the quickest counts, as whatever else the machine
/// does makes it only slower.
const ROUNDS: usize = 25;

/// Decisions of one kind.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    /// How many were made.
    pub decisions: u64,
    /// What they had to look at: copies for a choice, requests waiting for a turn of a disk.
    pub looked_at: u64,
}

impl Cost {
    /// One more.
    pub fn count(&mut self, looks_at: usize) {
        self.decisions += 1;
        self.looked_at += looks_at as u64;
    }
}

/// A choice of a reader, with all that it went by.
#[derive(Clone, Debug)]
pub struct Choice {
    /// Which block, or run of blocks.
    pub block: u64,
    /// How far the reader was.
    pub own: Progress,
    /// What it knew of the copies.
    pub views: Vec<CopyView>,
}

/// What was asked of a disk's queue.
#[derive(Clone, Copy, Debug)]
pub enum Asked {
    /// To take a request in.
    Push(Micros, Request),
    /// What is next.
    Pop(Micros),
    /// To give a request back.
    Cancel(Ticket),
}

/// What one choice takes, in nanoseconds; nothing if there were none.
pub fn choice_ns(router: &Router, choices: &[Choice]) -> Option<f64> {
    quickest_ns(choices.len(), || {
        let mut router = router.clone();
        for Choice { block, own, views } in choices {
            _ = black_box(router.choose(*block, (*own, UNKNOWN), black_box(views)));
        }
    })
}

/// What a queue takes for one of these, in nanoseconds; nothing if there were none.
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
