//! Many concurrent callers: threads of several processes, each thread on one of the mounts. A
//! history records every call and result with its times, and must be explained by one order.

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
