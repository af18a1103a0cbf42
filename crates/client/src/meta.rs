//! Requests to the metadata server about what this client has open, holds and changes.

mod accesses;
mod changes;
mod closes;
mod layouts;
mod locks;
mod opens;
mod room;
