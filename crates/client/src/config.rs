//! What a client has to know.

pub use weir_policy::ReadPolicy;
pub use weir_types::Consistency;

use weir_types::ClientId;
use weir_wire::Key;

/// How to reach data servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// Unix sockets to servers on this host, TCP to others.
    #[default]
    Auto,
    /// TCP always.
    Tcp,
}

/// Everything a client needs to start.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Name of the cluster, for messages.
    pub cluster: String,
    /// `host:port` or the path of a Unix socket of the metadata server; tried in order.
    pub metadata: Vec<String>,
    /// Who we are.
    pub client: ClientId,
    /// Our credential.
    pub key: Key,
    /// Program and host, shown by `weir status`.
    pub name: String,
    /// How to reach data servers.
    pub transport: Transport,
    /// The first connection must stand within this time.
    pub connect_timeout_ms: u64,
    /// Every call ends within this time, with an error that names the server.
    pub request_timeout_ms: u64,
    /// Bytes fetched ahead of each sequential reader; 0: none, so that the
    /// bytes on the wire are the bytes asked for.
    pub read_ahead_bytes: u64,
    /// Bytes of a file written and not yet confirmed; 0: every write waits
    /// for its confirmation.
    pub write_behind_bytes: usize,
    /// Whether data is checked against its checksums on arrival.
    pub verify: bool,
    /// How far other clients' changes are seen.
    pub consistency: Consistency,
    /// From which copy mirrored files are read, where any will do: under a lease, which keeps
    /// others from changing them meanwhile. Without one it is the first that is current.
    pub read_policy: ReadPolicy,
    /// Whether names and attributes are kept. Permissions to see them are then
    /// not checked by the metadata server: for callers that check themselves.
    pub keep_metadata: bool,
    /// How long they are believed with [`Consistency::Relaxed`].
    pub metadata_ttl_ms: u64,
}

impl ClientConfig {
    /// The defaults, for a cluster with one metadata server.
    pub fn new(metadata: impl Into<String>, client: ClientId, key: Key) -> Self {
        Self {
            cluster: "default".into(),
            metadata: vec![metadata.into()],
            client,
            key,
            name: "weir".into(),
            transport: Transport::Auto,
            connect_timeout_ms: 5_000,
            request_timeout_ms: 30_000,
            read_ahead_bytes: 4 << 20,
            write_behind_bytes: 8 << 20,
            verify: true,
            consistency: Consistency::Strict,
            read_policy: ReadPolicy::Proportional,
            keep_metadata: false,
            metadata_ttl_ms: 1_000,
        }
    }

    /// Neither read-ahead nor write-behind.
    #[must_use]
    pub fn without_cache(mut self) -> Self {
        self.read_ahead_bytes = 0;
        self.write_behind_bytes = 0;
        self
    }
}
