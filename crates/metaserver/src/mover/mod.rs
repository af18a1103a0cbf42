//! What makes, moves and drops copies of files that exist: pure.
//!
//! A copy is lost (its target is away for too long, out of service or removed), leaves
//! (its target is being drained, or has too much) or is good. What a segment needs
//! follows from its columns, the wish of its file and the targets alone
//! ([`plan::improve`]), so that nothing has to be remembered over a restart: what is
//! half done stands in the layout, as copies that are being filled.
//!
//! Invariants (`plan/tests.rs`)
//! - No two copies of a column are on one target, nor on one server, on one machine or in
//!   one domain while there is another; nor in one group of nodes, if they are to be in two.
//! - The last copy that is whole and online is never dropped; a copy that leaves goes
//!   only when as many others as are wished are whole and online.
//! - The same layout and targets give the same verdict, and it ends: when all copies
//!   that are asked for have been filled, nothing is left to do.

pub mod away;
pub mod even;
pub mod partners;
pub mod plan;
pub mod progress;
pub mod sites;
