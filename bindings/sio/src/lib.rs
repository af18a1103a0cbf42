//! The SIO low-level interface (`sio_fs.h`) on Weir and on plain files: `docs/sio.md`.
//!
//! `core` has the parts that do not depend on the file system, without I/O. `library` carries out
//! calls on a [`backend::Backend`]. `c` is the boundary: it checks pointers and lets no panic out.
//! `safe` offers the calls to programs in Rust.
//!
//! Invariant: only `c` and `transfer` dereference pointers of the program.

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
