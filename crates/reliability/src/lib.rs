//! How long data lasts and how often it can be read: mean time to data loss, probability of loss
//! and availability of a cluster. Computed from the failure rates of its disks and nodes, for every
//! layout, code and duplication of writes.
//!
//! `docs/reliability.md` describes the models, their assumptions and their limits. Times are hours,
//! sizes bytes, all values `f64`. Nothing here reads a clock, a file or a random number.
//!
//! Invariant: probabilities of loss are computed without subtracting nearly equal numbers, so that
//! 1e-20 has as many correct digits as 0.1.

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
