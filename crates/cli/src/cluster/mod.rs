//! A cluster on this machine: its state directory, keys, daemons and mounts.

pub mod clients;
pub mod credential;
pub mod daemon;
pub mod down;
pub mod keys;
pub mod life;
pub mod mount_lock;
pub mod mounting;
pub mod mounts;
mod moving;
pub mod ports;
pub mod process;
pub mod rebalance;
pub mod secret;
pub mod state;
pub mod status;
pub mod targets;
pub mod up;
