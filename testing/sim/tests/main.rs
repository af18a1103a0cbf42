//! Whole clusters on simulated time. One program of all tests: linking takes longer than running
//! some of them.
#![allow(clippy::unwrap_used, clippy::expect_used)] // A panic is how a test fails.

/// How many of something are tried: `few` by `make test`, `all` by `make soak`, which sets `WEIR_SIM_ALL`.
fn few_or_all(few: u64, all: u64) -> u64 {
    if std::env::var_os("WEIR_SIM_ALL").is_some() { all } else { few }
}

mod alone;
mod comes_back;
mod crash_points;
mod detour;
mod encoded;
mod failover;
mod graduated;
mod half_done;
mod late;
mod lost_notes;
mod members;
mod once;
mod oracles;
mod pace;
mod protocols;
mod regrant;
mod reserved;
mod rotten_cut;
mod seeds;
mod server_cut;
mod shrink;
mod slow_disk;
mod spread;
mod standings;
mod take;
mod taken_back;
