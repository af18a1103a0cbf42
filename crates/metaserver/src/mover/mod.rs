//! Decides which copies of existing files to make, move and drop. Pure.
//!
//! A copy is lost (its target is away for too long, out of service or removed), leaving (its target
//! is being drained, or has too much) or good. What a segment needs follows from its columns, the
//! wish of its file and the targets alone ([`plan::improve`]). So nothing has to be remembered over
//! a restart: unfinished work is in the layout, as copies that are being filled.
//!
//! Invariants (`plan/tests.rs`)
//! - No two copies of a column are on one target. Nor are they on one server, one machine or in one
//!   domain while there is another; nor in one group of nodes, if they should be in two.
//! - The last copy that is whole and online is never dropped. A leaving copy is dropped only when
//!   as many others as wished are whole and online.
//! - The same layout and targets give the same verdict, and the process ends: when all requested
//!   copies are filled, nothing is left to do.

pub mod away;
pub mod coding;
pub mod even;
pub mod partners;
pub mod plan;
pub mod progress;
pub mod sites;
