//! Audit records: who did what, with which result. Data servers have a log for each target, the
//! metadata server has one.
//!
//! Requests are not recorded one by one. A [`Tally`] belongs to one thread and counts requests that
//! are alike without a lock; each second it is added to the [`Log`], which sums up further and makes
//! a record of what has ended or has gone on for a minute.
//!
//! Invariants
//! - Memory is bounded: [`tally::MAX_EVENTS`] sums in a tally, [`book::MAX_OPEN`] in a log, and as many
//!   records as the log has room for. The file has as many slots. The oldest records of the client that
//!   has most go first: no client pushes out what others have done.
//! - A client makes many records only by what it does to many files. Of one that names very many users,
//!   sessions and names, or is refused very often, further records are coarse.
//! - No request waits for the disk, or fails because of it: [`Log::write`] runs on another thread.

mod book;
mod event;
mod file;
mod log;
mod tally;

pub use event::{Event, Sum};
pub use log::{Log, MAX_RECORDS};
pub use tally::Tally;
