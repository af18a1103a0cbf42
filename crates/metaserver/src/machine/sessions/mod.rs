//! Sessions, and what they hold: who may ask for what, events that take something back, and ends.
//! Both the namespace and the coordinator use it: a change of either waits for sessions.

mod ends;
mod events;
pub(super) mod obstacles;
pub(super) mod recorded;
mod rights;
mod silence;
mod tickets;
mod unlock;
