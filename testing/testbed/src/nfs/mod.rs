//! The comparator: NFS version 3 with one server, and clients whose caches are those of the kernel.
//!
//! ```text
//! program ── page cache, read-ahead ── FUSE ── files ── connection ── TCP ── nfs-ganesha ── disk
//!                 (kernel)                              (libnfs)             server
//! ```
//! The kernel here has no NFS of its own. `library` has the functions of libnfs.

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

/// What the kernel reads ahead, as on NFS mounts of its own (since 5.4).
const READ_AHEAD_KIB: u32 = 128;

/// A client, mounted: its threads are of this process. Dropped, it is unmounted.
#[derive(Debug)]
pub struct NfsClient {
    _served: Served,
}

impl NfsClient {
    /// Mounts an export at an empty directory, to read, from the network that the caller is in.
    /// Without `keeps` nothing is kept or fetched ahead: the server is asked for what a program asks
    /// for, and for no more.
    ///
    /// # Errors
    /// The server does not answer; libnfs is missing; no FUSE.
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
