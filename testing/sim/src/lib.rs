//! Whole clusters in one thread, on virtual time, with faults from a seed.
//!
//! A seed makes a [`plan::Plan`]: a cluster, the calls of several clients, and the faults
//! meanwhile. [`run::run`] carries it out. The real data server, metadata server and client library
//! run on the simulated machines of `weir_simhost`; there are no protocol handlers here. Then
//! everything heals, a fresh client looks at everything, and the [`oracle`]s judge the
//! [`history::History`] of all calls and results. [`shrink`] reduces a failing plan, [`batch`] runs
//! many seeds.
//!
//! Equal plans have equal histories and equal trace hashes.

mod administer;
pub mod batch;
mod cells;
mod cluster;
pub mod comes_back;
mod copies;
pub mod crash_points;
pub mod detour;
pub mod encoded;
mod engine;
pub mod failover;
pub mod generate;
pub mod graduated;
pub mod half_done;
mod held;
pub mod history;
mod journal;
mod losses;
pub mod members;
mod nemesis;
pub mod once;
pub mod oracle;
pub mod pace;
mod pages;
pub mod plan;
pub mod regrant;
pub mod reserved;
pub mod rotten_cut;
pub mod run;
pub mod server_cut;
mod shared;
pub mod shrink;
pub mod slow_disk;
pub mod spread;
pub mod take;
pub mod taken_back;
mod worker;
