//! The decisions of the client, without I/O or clocks: which server to ask, how to react to each
//! reply, what to fetch ahead, what to cache.

pub mod choices;
mod complete;
pub mod copies;
pub mod copy;
pub mod departed;
pub mod durable;
pub mod filled;
pub mod gather;
pub mod graduated;
pub mod held;
pub mod job;
pub mod kept;
pub mod lease;
pub mod links;
mod listings;
pub mod located;
pub mod news;
pub mod pace;
pub mod plan;
#[cfg(test)]
pub(crate) mod sample;
pub mod stream;
pub mod tail;
pub mod transfer;
pub mod unknown_sizes;
pub mod written;
