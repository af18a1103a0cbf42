//! How long data lasts and how often it can be read: mean time to data loss,
//! probability of loss and availability of a cluster, from what its disks and
//! nodes do, for every layout, code and way of duplicating writes.
//!
//! `docs/reliability.md` has the models, what they assume and what they leave
//! out. Times are hours, sizes bytes, everything `f64`. Nothing here reads a
//! clock, a file or a random number.
//!
//! Invariant: probabilities of loss are computed without subtracting numbers
//! that are nearly equal, so that one of 1e-20 has as many good digits as one
//! of 0.1.

mod assess;
mod available;
mod chain;
mod cluster;
mod duplicate;
mod many;
mod model;
mod odds;
mod pairs;
pub mod paper;
mod scheme;

pub use assess::{Assessment, assess};
pub use chain::Chain;
pub use cluster::{Cluster, HOURS_PER_YEAR, mttf_of_annual_rate};
pub use duplicate::Duplication;
pub use many::mean_time_to_first_loss;
pub use scheme::{Layout, MAX_DATA, MAX_LOSSES, Misfit, Redundancy, Scheme};
