//! What clients keep, as the metadata server knows it: leases on ranges of
//! files, beliefs in names and attributes, and the events that take them back.
//! Nothing here knows of requests or the store; `docs/leases.md` says what it
//! is for.
//!
//! Invariant: what is noted here is at least what clients keep. A lease or a
//! belief is noted before the answer that gives it leaves, and forgotten only
//! when the client has said so, or may not use it any more.

pub mod beliefs;
pub mod events;
pub mod ranges;
