//! Many callers at once: threads of several processes, each thread on one of
//! the mounts. What every caller asked and saw goes into a history, with times,
//! and the history must be explained by one order.

mod appends;
mod blocks;
mod calls;
mod kind;
mod names;
mod sizes;
mod worker;

pub use calls::{Calls, How, OpenFile, Place, System};
pub use kind::{Kind, Plan, SEARCH_BOUND};
pub use worker::{Launcher, Report, Running, run, run_over, run_worker_if_asked, run_worker_over};
