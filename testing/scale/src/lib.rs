//! The policies of `weir-policy` at scale: a ring of 16 to 10,000 nodes, each with a disk and a
//! rank of a reading job, in a simulation of events on virtual time. The code of clients and
//! servers decides which copy is read, and which request is served next and for how long. Disks,
//! faults and the network (which costs nothing) are models.
//!
//! ```text
//! faults     how fast each disk is, and when       speed   what comes of it
//! contender  the policies compared                 bound   the best that is possible
//! model      events ── reader (sight: what it knows of disks), disk
//! cost       what decisions look at, and their CPU time
//! grid       what is run     table, plot  what is written
//! ```
//! Invariants: equal seeds give equal outcomes on any machine. Every block is read exactly once, or
//! the outcome reports otherwise.

mod bound;
mod contender;
mod cost;
mod disk;
mod faults;
pub mod grid;
mod model;
pub mod plot;
mod reader;
mod sight;
mod speed;
pub mod table;

pub use bound::earliest_end_us;
pub use contender::{ALL, Contender};
pub use cost::Cost;
pub use faults::{Cluster, Fault, Hardware};
pub use model::{Costs, Outcome, Run, Times};
pub use speed::Speed;
