//! What the applications share: records of 838 bytes and how they are read, sizes, progress, how a
//! program ends, and processes that work together.

pub mod end;
pub mod progress;
pub mod record;
pub mod size;
pub mod team;
pub mod workload;
