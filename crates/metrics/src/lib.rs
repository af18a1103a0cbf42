//! Metrics of daemons for Prometheus: the names of all metrics, histograms of durations, and the
//! text format (version 0.0.4). The HTTP server is elsewhere.
//!
//! Invariants
//! - Every metric that is served is one of [`names`], and `docs/metrics.md` has the same.
//! - Labels have few values: targets, servers, and words that the program knows. Never names of
//!   files, clients or users.

mod counted;
mod family;
mod histogram;
pub mod names;
mod network;
mod page;

pub use counted::Counted;
pub use family::{Family, Kind};
pub use histogram::{Histogram, Times};
pub use network::tell_network;
pub use page::{Page, Samples};
