//! Requests to the metadata server about what this client has open, holds and changes.

pub(crate) mod changes;

mod accesses;
mod closes;
mod layouts;
mod locks;
mod opens;
mod room;
