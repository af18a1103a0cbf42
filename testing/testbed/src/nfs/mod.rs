//! NFS version 3 for comparison: one server, and clients with the kernel's cache.
//!
//! ```text
//! program ── page cache, read-ahead ── FUSE ── files ── connection ── TCP ── nfs-ganesha ── disk
//!                 (kernel)                              (libnfs)             server
//! ```
//! The kernel of the development machines has no NFS client. `library` has the functions of libnfs.

mod connection;
mod files;
mod library;
mod server;

pub use server::{NfsServer, missing as missing_for_nfs};

use crate::served::Served;
use connection::Connection;
use files::NfsFiles;
use library::Library;
use std::io::{Error, Result};
use std::net::Ipv4Addr;
use std::path::Path;
use weir_fuse::Config;

/// The kernel's read-ahead, as on native NFS mounts (since 5.4).
const READ_AHEAD_KIB: u32 = 128;

/// A mounted client, served by threads of this process. Dropping it unmounts it.
#[derive(Debug)]
pub struct NfsClient {
    _served: Served,
}

impl NfsClient {
    /// Mounts an export at an empty directory, read-only, from the caller's network. Without
    /// `keeps` nothing is cached or prefetched: the server gets exactly the programs' requests.
    ///
    /// # Errors
    /// The server does not answer; libnfs is missing; FUSE is missing.
    pub fn mount(server: Ipv4Addr, export: &Path, at: &Path, keeps: bool) -> Result<Self> {
        let library = Library::load().ok_or_else(|| Error::other("needs libnfs13"))?;
        let connection = Connection::open(library, server, crate::text(export)?)?;
        let config = Config {
            source: "weir-nfs".into(),
            subtype: "weir-nfs".into(),
            read_only: true,
            read_ahead_kib: READ_AHEAD_KIB,
            readdirplus: false,
            ..Config::default()
        };
        Ok(Self { _served: Served::mount(NfsFiles::new(connection, keeps), at, &config)? })
    }
}
