//! What other threads tell the event loop of a metadata server.

use crate::observed::Members;
use weir_types::FsUsage;

/// Events from other threads.
#[derive(Debug)]
pub(crate) enum News {
    /// The engine has results.
    Engine,
    /// A request for metrics.
    Observer,
    /// Free space of the metadata's disk.
    Room(FsUsage),
    /// What the metadata servers hold.
    Members(Members),
    /// This server leads: what serves from now on is there to be taken.
    Lead,
}
