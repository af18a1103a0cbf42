//! The mover: finds files whose copies are not as they should be, changes their layouts, and has
//! the copies filled.
//!
//! All its results are in the layouts. The state in memory says only where to look, and is rebuilt
//! by a scan of all files after a start.
//!
//! Invariants
//! - A layout changes only while no session has leases on the file, and leases are granted again
//!   after the change is durable: so no write uses the old layout.
//! - Copies are filled, and dropped copies removed, only according to durable layouts.
//! - A whole copy is dropped only after its column's first copy has said, while no session has
//!   leases, that one of the remaining copies has everything: a postponed write may exist nowhere
//!   else.
//! - The number of files being changed, and of copies being filled, is bounded.

mod encode;
mod fills;
mod look;
mod rebalance;
mod scan;
mod tick;
mod visit;
