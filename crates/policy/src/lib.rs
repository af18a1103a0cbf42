//! Policies: which copy is read, which request is served next, where a block is written. The code
//! is pure: events and the time come in, decisions go out. The client, the data servers, the
//! simulator and the tests run the same code.
//!
//! ```text
//! client       route      from which copy the next block comes
//!              runs       how many bytes follow from that copy
//!              credits    on which disk the next block goes
//!              taking     which block a process takes when any process may read any block
//! data server  queue      which request the disk serves next
//! both         progress, partition, watermarks
//! metadata     slow       which disks have become slow
//! tests        bound      the highest possible rate
//! ```
//! The papers: graduated declustering and the distributed queue are River's, the watermarks
//! Treuhaft's, halves and skipping CEFT-PVFS's.

mod bound;
mod credits;
mod partition;
mod progress;
mod queue;
mod route;
mod runs;
mod slow;
pub mod taking;
mod watermarks;

pub use bound::best_common_rate;
pub use credits::Credits;
pub use partition::{MAX_RANGES, Partition};
pub use progress::Progress;
pub use queue::{DiskQueue, FAR_BEHIND, Full, JobKey, Limits, Micros, Request, StreamKey, Ticket};
pub use route::{CopyView, LAST_REQUESTS, ReadPolicy, Router, SOON_US, UNKNOWN, window};
pub use runs::{RUN_BYTES, Runs};
pub use slow::{LASTS, SlowDisks, Verdict};
pub use watermarks::{Diverting, Watermarks};
