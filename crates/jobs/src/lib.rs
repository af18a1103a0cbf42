//! What the processes of a job do together with files of a cluster: they write records to whichever
//! disks can take them ([`Spread`]), and take blocks of files to read ([`Take`]).
//!
//! `blocks`, `claims` and `records` decide, without I/O or clocks. `take` and `spread` carry it out
//! with the calls of a [`Client`](weir_client::Client).

pub mod blocks;
pub mod records;

mod claims;
mod spread;
mod take;

pub use records::Record;
pub use spread::{Fragment, MAX_BATCH_BYTES, MAX_BYTES, MAX_LANES, Spread, SpreadOptions};
pub use take::{Block, Input, Take, TakeOptions, TakeSummary};
