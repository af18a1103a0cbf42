//! Where the bytes of files lie, and where they are to lie.

pub mod advise;
pub mod df;
pub mod set;
pub mod show;
pub mod spec;
mod trial;
pub mod whereabouts;
