//! Configuration of a data server.

use serde::{Deserialize, Serialize};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use weir_types::{Error, ErrorKind, Result, check_domain};
use weir_wire::Key;

/// One target to serve.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetConfig {
    /// Number of the target.
    pub target: u32,
    /// Directory of the target, made by `weir_store::Target::create`.
    pub dir: PathBuf,
    /// File with the target's capability key, 64 hexadecimal digits.
    pub key_file: PathBuf,
}

/// The configuration of one data server process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataServerConfig {
    /// Number of the server.
    pub server: u32,
    /// Address to listen on: `address:port`; port 0 takes any free port.
    pub listen: String,
    /// `host:port` under which clients reach the server. `None` for the address that it listens on,
    /// or for this host's name if that is every address.
    #[serde(default)]
    pub advertise: Option<String>,
    /// Failure domain: hosts that fail together, such as those of a rack. Copies are kept in
    /// different domains first, then on different hosts. `None` for the host alone.
    #[serde(default)]
    pub domain: Option<String>,
    /// The path of a Unix socket for clients on this host.
    #[serde(default)]
    pub unix: Option<PathBuf>,
    /// Address of the metrics for Prometheus, over HTTP: `address:port`; `None` for no metrics.
    #[serde(default)]
    pub metrics: Option<String>,
    /// Targets to serve; at least one.
    pub targets: Vec<TargetConfig>,
    /// File with the server's key, 64 hexadecimal digits.
    pub server_key_file: PathBuf,
    /// Addresses of metadata servers, tried in order. Without any the server does not register
    /// (tests, benchmarks).
    #[serde(default)]
    pub metadata: Vec<String>,
    /// Number of event loops; 0 for half the processors, at most 4.
    #[serde(default)]
    pub event_loops: usize,
    /// Number of disk threads for each target.
    #[serde(default = "default_disk_threads")]
    pub disk_threads_per_target: usize,
    /// The most requests that wait for each target's disk before connections pause.
    #[serde(default = "default_queue_limit")]
    pub queue_limit: usize,
    /// The most bytes of all data buffers.
    #[serde(default = "default_buffer_bytes")]
    pub buffer_bytes: usize,
    /// The most connections.
    #[serde(default = "default_max_connections")]
    pub max_connections: usize,
    /// Interval at which everything of a target is made durable, if anything has changed. A start
    /// after a crash examines what was written since.
    #[serde(default = "default_checkpoint_ms")]
    pub checkpoint_ms: u64,
    /// The highest rate, bytes per second, at which copies on other targets are brought up to date
    /// from each target; 0 for no limit.
    #[serde(default)]
    pub resync_bytes_per_s: u64,
    /// Whether test reads are made now and then on disks that other programs use and no client
    /// reads, so that clients know their speed before they read.
    #[serde(default = "default_probe_disks")]
    pub probe_disks: bool,
    /// The most audit records of each target; 0 for none.
    #[serde(default = "default_audit_records")]
    pub audit_records: usize,
}

fn default_audit_records() -> usize {
    4096
}
fn default_probe_disks() -> bool {
    true
}

fn default_disk_threads() -> usize {
    2
}
fn default_queue_limit() -> usize {
    256
}
fn default_buffer_bytes() -> usize {
    256 << 20
}
fn default_max_connections() -> usize {
    65_536
}
fn default_checkpoint_ms() -> u64 {
    30_000
}

impl DataServerConfig {
    /// The defaults, for a server without targets.
    pub fn new(server: u32, listen: impl Into<String>, server_key_file: PathBuf) -> Self {
        Self {
            server,
            listen: listen.into(),
            advertise: None,
            domain: None,
            unix: None,
            metrics: None,
            targets: Vec::new(),
            server_key_file,
            metadata: Vec::new(),
            event_loops: 0,
            disk_threads_per_target: default_disk_threads(),
            queue_limit: default_queue_limit(),
            buffer_bytes: default_buffer_bytes(),
            max_connections: default_max_connections(),
            checkpoint_ms: default_checkpoint_ms(),
            resync_bytes_per_s: 0,
            probe_disks: true,
            audit_records: default_audit_records(),
        }
    }

    /// Checks the configuration.
    ///
    /// Errors: `InvalidArgument`, naming the field.
    pub fn check(&self) -> Result<()> {
        let bad = |what: &str| Err(Error::new(ErrorKind::InvalidArgument, what));
        if self.targets.is_empty() {
            return bad("`targets` is empty: a data server needs at least one target to serve");
        }
        for (i, target) in self.targets.iter().enumerate() {
            if self.targets[..i].iter().any(|t| t.target == target.target) {
                let what = format!("target {} is listed twice in `targets`", target.target);
                return bad(&what);
            }
        }
        if !(1..=64).contains(&self.disk_threads_per_target) {
            return bad("`disk_threads_per_target` must be from 1 to 64");
        }
        if self.queue_limit == 0 {
            return bad("`queue_limit` must be at least 1");
        }
        if self.audit_records > weir_audit::MAX_RECORDS {
            return bad("`audit_records` must be at most 65536");
        }
        if let Some(domain) = &self.domain {
            check_domain(domain).map_err(|error| error.context("`domain`"))?;
        }
        Ok(())
    }
}

/// The most bytes read from a key file, more than one has.
const MAX_KEY_FILE_BYTES: usize = 4096;

/// Reads a key file.
///
/// Errors: `NotFound`, `AccessDenied` if others than the owner may read it, `InvalidArgument` if it
/// has no key. They name the file and never its contents.
pub(crate) fn read_key(path: &Path, whose: &str) -> Result<Key> {
    let shown = path.display();
    let bytes = weir_host::fs::read_file(path, MAX_KEY_FILE_BYTES).map_err(|e| {
        let error = Error::from(std::io::Error::from(e));
        let hint = match error.kind {
            ErrorKind::NotFound => {
                "; make it with `weir key`, or copy it from the metadata server's host"
            }
            _ => "",
        };
        Error::new(error.kind, format!("key file {shown} of {whose}: {}{hint}", error.message))
    })?;
    if others_may_read(path)? {
        return Err(Error::new(
            ErrorKind::AccessDenied,
            format!("key file {shown} of {whose} can be read by others: run `chmod 600 {shown}`"),
        ));
    }
    let key = std::str::from_utf8(&bytes).ok().and_then(Key::from_hex);
    key.ok_or_else(|| {
        Error::new(
            ErrorKind::InvalidArgument,
            format!("key file {shown} of {whose} does not hold 64 hexadecimal digits"),
        )
    })
}

/// Whether other users may read a file. A simulated machine has no other users.
#[expect(clippy::disallowed_methods, reason = "of the operating system only")]
pub(crate) fn others_may_read(path: &Path) -> Result<bool> {
    if weir_host::net::is_simulated() {
        return Ok(false);
    }
    Ok(std::fs::metadata(path).map_err(Error::from)?.mode() & 0o077 != 0)
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // Tests ask the operating system.
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_configuration_that_cannot_work_is_refused_by_field() {
        let mut config = DataServerConfig::new(1, "127.0.0.1:0", "key".into());
        assert!(config.check().unwrap_err().message.contains("targets"));
        let target = TargetConfig { target: 1, dir: "d".into(), key_file: "k".into() };
        config.targets = vec![target.clone(), target];
        assert!(config.check().unwrap_err().message.contains("listed twice"));
        config.targets.pop();
        config.check().unwrap();
        config.queue_limit = 0;
        assert!(config.check().unwrap_err().message.contains("queue_limit"));
        (config.queue_limit, config.domain) = (1, Some("rack 7".into()));
        let error = config.check().unwrap_err();
        assert!(
            error.message.contains("`domain`") && error.message.contains("`rack 7`"),
            "{error}"
        );
        config.domain = Some("rack7".into());
        config.check().unwrap();
    }

    #[test]
    fn key_files_are_read_and_bad_ones_named_without_their_contents() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("server.key");
        let mode = |m| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(m)).unwrap();
        let missing = read_key(&path, "server 1").unwrap_err();
        assert!(missing.message.contains("server.key") && missing.message.contains("weir key"));
        std::fs::write(&path, "ab".repeat(32)).unwrap();
        mode(0o644);
        assert!(read_key(&path, "server 1").unwrap_err().message.contains("chmod 600"));
        mode(0o600);
        assert_eq!(read_key(&path, "server 1").unwrap(), Key::from_bytes([0xab; 32]));
        std::fs::write(&path, "secret but no key").unwrap();
        let bad = read_key(&path, "server 1").unwrap_err();
        assert!(!bad.message.contains("secret"), "{bad}");
    }
}
