//! The engine on simulated disks: power cuts, kills, faults and rot at any
//! moment, each decided by a seed.
//!
//! `WEIR_CRASH_IMAGES=n` asks for more images, `WEIR_SEED=s` for one seed.

#![expect(clippy::disallowed_methods, reason = "the simulations run in several threads")]

mod faults;
mod full;
mod history;
mod images;
mod pace;
mod room;
mod rot;
mod sites;
