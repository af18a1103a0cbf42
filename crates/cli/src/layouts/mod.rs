//! Where the bytes of files are, and where new bytes are placed.

pub mod advise;
pub mod df;
pub mod set;
pub mod show;
pub mod spec;
mod trial;
pub mod whereabouts;
