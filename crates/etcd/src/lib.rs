//! The journal of metadata servers on etcd (`docs/high-availability.md`).
//!
//! Weir uses etcd's JSON gateway (`/v3/kv/txn` and so on) with a synchronous HTTP client. The gRPC
//! client would need an async runtime and a protobuf compiler for a handful of requests. Base64
//! makes a batch one third larger on the way; etcd stores the bytes themselves.
//!
//! Keys, all below `/weir/CLUSTER/`
//! - `leader`: address of the server that leads, under its lease. The create revision of the key is
//!   the fence: every append compares it.
//! - `term`: number of leads so far.
//! - `head`: the last record that was appended. Every append compares and changes it.
//! - `log/LAST`: a batch, by its last record, 16 hexadecimal digits.
//! - `members/NAME`: what a member holds durably.
//! - `removed/NAME`: a member that takes part no more. They go when another log is begun.

mod gateway;
mod journal;
mod message;
mod unix;

pub use journal::{EtcdJournal, LEASE_S};
