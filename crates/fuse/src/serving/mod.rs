//! Serving: threads that read requests and have the file system answer them.

mod crew;
mod dispatch;
pub(crate) mod measured;
pub(crate) mod session;
mod worker;
