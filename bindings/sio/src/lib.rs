//! The SIO low-level interface (`sio_fs.h`) over Weir and over plain files: `docs/sio.md`.
//!
//! `core` has what is the same over every file system, without I/O. `library` carries calls out
//! over a [`backend::Backend`]. `c` is the boundary: it checks pointers, and lets no panic out.
//! `safe` is the same for programs in Rust.
//!
//! Invariant: nothing but `c` and `transfer` follows a pointer of the program.

pub mod backend;
pub mod c;
pub mod core;
pub mod library;
mod plain;
pub mod safe;
mod tasks;
mod transfer;
mod weir;

pub use c::*;
