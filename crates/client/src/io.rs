//! Reading and writing the bytes of open files at the data servers, and what goes with that. The lower
//! half drives the requests of one call; the upper half is read-ahead and write-behind.

pub(crate) mod control;
pub(crate) mod copy;
pub(crate) mod drive;
pub(crate) mod fence;
pub(crate) mod read;
pub(crate) mod space;
pub(crate) mod writer;

mod choose;
mod parts;
mod reader;
mod settle;
mod stage;
mod undone;
mod ways;
mod write;
