//! `libweir`: Weir for programs in C and in languages that call C. `include/weir.h` is generated
//! from this source; `docs/c.md` explains its use.
//!
//! Invariants: no call panics across the boundary, and no handle is a pointer ([`handles`]). A
//! child of `fork` never uses a session of its parent ([`process`]).
//!
//! Every function returns a value of 0 or more, or the negative number of an error (`-ENOENT`);
//! [`error::weir_errmsg`] has the text.

// C has no modules, so types have the names of the header.
#![allow(non_camel_case_types)]

pub mod args;
pub mod dirs;
pub mod error;
pub mod files;
pub mod find;
pub mod fs;
pub mod handles;
pub mod hints;
pub mod io;
pub mod jobs;
pub mod layouts;
pub mod leases;
pub mod lists;
pub mod locations;
pub mod names;
pub mod process;
pub mod queue;
pub mod queues;
pub mod recalls;
pub mod session;
pub mod xattrs;
