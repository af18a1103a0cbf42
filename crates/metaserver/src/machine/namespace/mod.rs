//! The namespace: operations of clients on names, sizes, leases, locks and quotas. It uses sessions
//! and commits, and neither the coordinator nor the requests of administrators.

mod collect;
pub(super) mod consider;
mod execute;
mod keep;
mod late;
mod locks;
mod quotas;
mod reassert;
mod room;
mod upkeep;
