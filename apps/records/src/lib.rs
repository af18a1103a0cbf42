//! Code that the applications share: records of 838 bytes and reading them, sizes, progress, exit,
//! and processes that work together.

pub mod end;
pub mod progress;
pub mod record;
pub mod size;
pub mod team;
pub mod workload;
