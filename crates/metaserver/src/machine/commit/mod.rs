//! How an operation comes to count: what it sees, its effects in memory after its transaction is
//! committed, replies that wait until it is durable, and what it revokes.

mod apply;
mod context;
mod replies;
pub(super) mod revoke;
