//! What administrators ask for besides targets and quotas: clients and their keys, who holds what,
//! and the store as a whole.

mod clients;
mod export;
mod holders;
pub(super) mod rotate;
mod verify;
