//! Records of servers, clients and the store itself.

use weir_types::codec::Bytes;
use weir_types::{LayoutSpec, TargetId};
use weir_wire::map::TargetState;

/// A target of a data server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetRecord {
    /// The target.
    pub target: TargetId,
    /// Whether it served when last heard of.
    pub state: TargetState,
}
weir_types::codec_struct!(TargetRecord { target, state });

/// A data server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerRecord {
    /// Where it runs.
    pub host: String,
    /// `address:port` for TCP.
    pub tcp: String,
    /// Path of its Unix socket; may be empty.
    pub unix: String,
    /// Its targets.
    pub targets: Vec<TargetRecord>,
}
weir_types::codec_struct!(ServerRecord { host, tcp, unix, targets });

/// What a client may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientStanding {
    /// Use the file system: what every client with a key may do.
    #[default]
    Ordinary,
    /// Administer the cluster too.
    Administrator,
    /// Nothing any more.
    Revoked,
}
weir_types::codec_tag!(ClientStanding { Ordinary = 0, Administrator = 1, Revoked = 2 });

/// What is known of a client. Its key is derived, not stored; a client without
/// a record is an ordinary one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientRecord {
    /// What it may do.
    pub standing: ClientStanding,
    /// For people.
    pub name: String,
}
weir_types::codec_struct!(ClientRecord { standing, name });

/// What this store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormatRecord {
    /// The cluster.
    pub cluster: [u8; 16],
    /// Depends on the master key, to tell a wrong one; says nothing about it.
    pub key_check: Bytes,
    /// What directories go back to that have no parent to ask.
    pub default_layout: LayoutSpec,
}
weir_types::codec_struct!(FormatRecord { cluster, key_check, default_layout });
