//! A cluster on this machine: its state directory, keys, daemons and mounts.

pub mod adding;
pub mod clients;
mod control;
pub mod credential;
pub mod daemon;
mod data_servers;
pub mod down;
pub mod draining;
mod grow;
pub mod keys;
pub mod life;
pub mod mount_lock;
pub mod mounting;
pub mod mounts;
mod moving;
pub mod ports;
pub mod process;
pub mod rebalance;
pub mod removal;
pub mod replacing;
pub mod secret;
pub mod servers;
mod shrink;
pub mod state;
pub mod status;
pub mod targets;
pub mod up;
