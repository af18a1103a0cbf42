//! Mounts: how they are made, replaced and ended.

mod bare;
pub(crate) mod config;
pub(crate) mod mount;
pub(crate) mod mount_error;
mod takeover;
