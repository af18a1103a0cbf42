//! Columns with several copies. The *primary* (the first copy that is online) orders changes and
//! passes them along the other copies before it acknowledges them. What a copy misses is noted in
//! the gap logs of the others, and brought to it later.
//!
//! Invariants
//! - Of the changes of one range, one is under way at a time. Before a change is acknowledged, each
//!   copy that takes changes has confirmed it, or has a durable gap for it. A copy with such a gap
//!   that is read from has noted the gap itself.
//! - Nothing is applied under an epoch once this server acts under a later one: earlier changes
//!   have ended when the first change of the later epoch begins.
//! - What may have reached only some copies is a gap of this target for itself, at the latest when
//!   this server reports its gaps under a later epoch.
//! - A thread that waits for another server waits for one further down the chain, and the last of a
//!   chain waits for its disk only. So there is no circle.
//!
//! Its modules, from the bottom; each uses those before it:
//! - `chain`, `passing`, `awaited`: a change on its way from copy to copy, and the wait for the reply.
//! - `lacking`, `columns`, `pace`, `pacer`: what a copy lacks, where the others are, how fast to go on.
//! - `push`, `set`: bytes for another copy, and bytes of a set.
//! - [`mend`]: repair of what has rotted here.
//! - `order`, [`follow`]: a change at the copy that orders it, and at those after it.
//! - `fill`, `build`, [`resync`], [`scout`]: threads that bring copies up to date and make new ones.
//! - [`pools`]: threads for changes that wait for other servers.

mod awaited;
mod build;
mod chain;
mod columns;
mod fill;
pub(crate) mod follow;
mod lacking;
pub(crate) mod mend;
mod order;
mod pace;
mod pacer;
mod passing;
pub(crate) mod pools;
mod push;
pub(crate) mod resync;
pub(crate) mod scout;
mod set;
