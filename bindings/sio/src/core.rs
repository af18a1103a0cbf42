//! The parts that do not depend on the backend, without I/O: codes, lists, controls, hints, tables.

pub mod codes;
pub mod collective;
pub mod control;
pub mod hint;
pub mod limits;
pub mod list;
pub mod name;
pub mod table;
