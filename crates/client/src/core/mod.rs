//! The decisions of the client, without I/O or clocks: what to ask of whom,
//! what to do about each answer, what to fetch ahead.

pub mod gather;
pub mod plan;
pub mod stream;
pub mod transfer;
pub mod written;
