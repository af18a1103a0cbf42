//! The file system of one cluster: the client, and what this mount knows of the kernel and of
//! programs.
//!
//! Node ids are file ids, which are never reused, so there is no table of files, only of open
//! handles and of the directories that the kernel knows.

use crate::kernel::cache::KernelCache;
use crate::kernel::nodes::Nodes;
use crate::open::access::AccessTimes;
use crate::open::below::Below;
use crate::open::handles::{Handle, Handles};
use crate::open::jobs::Jobs;
use crate::open::locks::HandleLocks;
use crate::open::pins::Pins;
use std::sync::Arc;
use std::time::Duration;
use weir_client::{Client, Consistency};
use weir_fuse::{Errno, NodeId, Reply};
use weir_types::FileId;

/// Options that a user may set for a mount.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Consistency between mounts; the client's has to be the same.
    pub consistency: Consistency,
    /// How long the kernel may cache names and attributes if consistency is relaxed. (Otherwise it
    /// asks each time.)
    pub ttl: Duration,
    /// Bypass the kernel's page cache: fastest for large streams, without shared mappings.
    pub direct_io: bool,
    /// When a read changes the access time.
    pub access_times: AccessTimes,
    /// Whether access times of directories never change (`nodiratime`).
    pub no_directory_access: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            consistency: Consistency::Strict,
            ttl: Duration::from_secs(1),
            direct_io: false,
            access_times: AccessTimes::default(),
            no_directory_access: false,
        }
    }
}

/// The file system of one cluster.
pub struct WeirFs {
    // Both before the client, whose files they are: with its last file it ends its session. Of a
    // mount that ends with its last user the kernel does not say that a file was closed.
    pub(crate) pins: Pins,
    pub(crate) handles: Handles,
    // Before the cache: its last events still concern pages.
    pub(crate) client: Client,
    pub(crate) options: Options,
    pub(crate) jobs: Jobs,
    pub(crate) cache: KernelCache,
    pub(crate) locks: HandleLocks,
    pub(crate) nodes: Nodes,
    pub(crate) below: Below,
}

impl WeirFs {
    /// Serves a client's cluster. The client was connected with this cache, which is attached to
    /// the mount once that is complete.
    pub fn new(client: Client, cache: KernelCache, options: Options) -> Self {
        let (pins, handles, jobs, locks, nodes, below) = Default::default();
        Self { pins, handles, client, options, jobs, cache, locks, nodes, below }
    }

    /// How long the kernel may cache names and attributes.
    pub(crate) fn ttl(&self) -> Duration {
        match self.options.consistency {
            Consistency::Relaxed => self.options.ttl,
            Consistency::Strict | Consistency::None => Duration::ZERO,
        }
    }

    /// The file or directory of a node id.
    pub(crate) fn file(&self, node: NodeId) -> Reply<FileId> {
        self.nodes.file(node).ok_or(Errno(libc::ESTALE))
    }

    pub(crate) fn handle(&self, fh: u64) -> Reply<Arc<Handle>> {
        self.handles.get(fh).ok_or(Errno::EBADF)
    }
}

impl Drop for WeirFs {
    /// Releases all held files: the kernel does not report drops at the end of the mount.
    fn drop(&mut self) {
        self.cache.files.take_held().for_each(|file| self.client.let_go(file));
    }
}
