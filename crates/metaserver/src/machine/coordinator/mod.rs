//! The coordinator: which data servers and targets there are, what they are told to do, and where
//! copies of files go. It uses sessions and commits, and nothing of the namespace.

mod changes;
mod departures;
mod distrust;
mod find_copies;
mod garbage;
mod membership;
mod mover;
mod own_keys;
mod servers;
mod shortfalls;
