//! The metadata server as a state machine: requests and the time go in, replies come out. It opens
//! no socket and reads no clock. Its one resource is the engine, which the shell (or the simulator)
//! chooses.
//!
//! In layers, each of which uses those below it alone:
//!
//! ```text
//! dispatch                                   start, requests, ticks
//! namespace   coordinator   administration   side by side
//! commit                                     contexts, effects, replies
//! sessions                                   rights, events, ends
//! state                                      what is in memory, and `MetaMachine`
//! answer   moment   store                    replies, times, reads of the store
//! ```
//!
//! `MetaMachine` has its methods from all layers: each adds an `impl` of its own.
//!
//! Invariant: a reply may be sent only after [`MetaMachine::flush`] has returned for the turn in
//! which the reply was made.

mod administration;
mod answer;
mod commit;
mod coordinator;
mod dispatch;
mod moment;
mod namespace;
mod sessions;
mod state;
mod store;

pub use answer::{Answer, ParkedTicket, Peer, Reply};
pub(crate) use moment::LONG_TICK_MS;
pub use moment::{Moment, Times};
pub use state::MetaMachine;
pub use state::counters::Counters;
pub use state::mover::MoverSettings;
