//! What is the same over every backend, without I/O: codes, lists, controls, hints, tables.

pub mod codes;
pub mod collective;
pub mod control;
pub mod hint;
pub mod limits;
pub mod list;
pub mod name;
pub mod table;
