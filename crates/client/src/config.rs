//! Configuration of a client.

pub use weir_policy::ReadPolicy;
pub use weir_types::Consistency;

use weir_types::ClientId;
use weir_wire::{Key, Level};

/// How to reach data servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// Unix sockets to servers on this host, TCP to others.
    #[default]
    Auto,
    /// TCP to all servers.
    Tcp,
}

/// Everything a client needs to start.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Name of the cluster, for messages.
    pub cluster: String,
    /// Addresses of the metadata server, `host:port` or the path of a Unix socket; tried in order.
    pub metadata: Vec<String>,
    /// Id of this client.
    pub client: ClientId,
    /// Credential of this client.
    pub key: Key,
    /// Program and host, shown by `weir status`.
    pub name: String,
    /// How to reach data servers.
    pub transport: Transport,
    /// The lowest level of protection of connections. Servers may require a higher one, which is then
    /// used.
    pub protection: Level,
    /// The first connection must be made within this time.
    pub connect_timeout_ms: u64,
    /// Every call ends within this time, at the latest with an error that names the server.
    pub request_timeout_ms: u64,
    /// Bytes fetched ahead of each sequential reader. 0 turns read-ahead off: only the bytes that
    /// callers ask for are transferred.
    pub read_ahead_bytes: u64,
    /// Whether only a reader that has given a hint of how it reads is fetched ahead of: the layer above
    /// fetches ahead of the others, as the kernel does on a mount.
    pub only_hinted: bool,
    /// The most bytes of a file that are written and not confirmed. With 0 every write waits for
    /// its confirmation.
    pub write_behind_bytes: usize,
    /// Whether data is checked against its checksums on arrival.
    pub verify: bool,
    /// When other clients' changes become visible.
    pub consistency: Consistency,
    /// How reads choose among copies of mirrored files. It applies under a lease, which keeps other
    /// clients from changing the bytes meanwhile. Without a lease the first current copy is read.
    pub read_policy: ReadPolicy,
    /// Whether reads prefer a copy on this machine, while its disk is not much slower than most
    /// others. For programs that run where their data is.
    pub prefers_near: bool,
    /// Whether the first call that uses a server connects to it. Otherwise connections to the servers
    /// of a file are made in the background when the file is opened, as PVFS makes them.
    pub lazy: bool,
    /// Whether names and attributes are cached. The metadata server then cannot check permissions
    /// to see cached ones, so the layer above has to.
    pub keep_metadata: bool,
    /// How long cached names and attributes are valid under [`Consistency::Relaxed`].
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
            protection: Level::Args,
            connect_timeout_ms: 5_000,
            request_timeout_ms: 30_000,
            read_ahead_bytes: 4 << 20,
            only_hinted: false,
            write_behind_bytes: 8 << 20,
            verify: true,
            consistency: Consistency::Strict,
            read_policy: ReadPolicy::Proportional,
            prefers_near: false,
            lazy: false,
            keep_metadata: false,
            metadata_ttl_ms: 1_000,
        }
    }

    /// Turns off read-ahead and write-behind.
    #[must_use]
    pub fn without_cache(mut self) -> Self {
        self.read_ahead_bytes = 0;
        self.write_behind_bytes = 0;
        self
    }
}
