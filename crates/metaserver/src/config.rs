//! Configuration of a metadata server.

use crate::leases::ranges::MAX_PIECES;
use crate::machine::{LONG_TICK_MS, MoverSettings, Times};
use serde::{Deserialize, Serialize};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use weir_metastore::EmbeddedConfig;
use weir_types::{Error, ErrorKind, Result};
use weir_wire::key::MasterKey;
use weir_wire::{Key, Level};

/// The configuration of one metadata server process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MetaServerConfig {
    /// Directory of the namespace, made by [`crate::init()`].
    pub dir: PathBuf,
    /// Addresses to listen on: `address:port` (port 0 takes any free port) or the path of a Unix
    /// socket; at least one.
    pub listen: Vec<String>,
    /// Address of the metrics for Prometheus, over HTTP: `address:port`; `None` for no metrics.
    #[serde(default)]
    pub metrics: Option<String>,
    /// File with the cluster's master key, 64 hexadecimal digits.
    pub master_key_file: PathBuf,
    /// Cluster that the directory must belong to; `None` for any.
    #[serde(default)]
    pub cluster: Option<[u8; 16]>,
    /// A session ends after this time of silence.
    #[serde(default = "default_session_timeout_ms")]
    pub session_timeout_ms: u64,
    /// A target is offline after this time of silence; that is noticed within a further second.
    /// Without a reply to their heartbeats, data servers serve files with several copies for at
    /// most four fifths of it.
    #[serde(default = "default_target_timeout_ms")]
    pub target_timeout_ms: u64,
    /// Time for clients to report their open files after a start. A file without a name that no
    /// client has reported by then is removed.
    #[serde(default = "default_grace_ms")]
    pub grace_ms: u64,
    /// A client that was silent for this long may lose its leases and cached names to clients that
    /// need them.
    #[serde(default = "default_lease_ms")]
    pub lease_ms: u64,
    /// The most pieces of leases of a client (one for each open file in use, more for a shared
    /// file). Beyond it the client gives up its oldest leases.
    #[serde(default = "default_leases_per_client")]
    pub leases_per_client: usize,
    /// Validity of capabilities.
    #[serde(default = "default_capability_ms")]
    pub capability_ms: u64,
    /// Validity of tickets for data servers.
    #[serde(default = "default_ticket_ms")]
    pub ticket_ms: u64,
    /// Interval of data servers' reports.
    #[serde(default = "default_heartbeat_ms")]
    pub heartbeat_ms: u32,
    /// Copies on a target that was away for this long are made again elsewhere; 0 for never.
    #[serde(default = "default_rebuild_after_ms")]
    pub rebuild_after_ms: u64,
    /// The most copies that one data server makes at a time.
    #[serde(default = "default_rebuild_concurrency")]
    pub rebuild_concurrency: u32,
    /// Share of the time for making and updating copies while clients have requests at a data
    /// server, percent. Without requests it is all of the time.
    #[serde(default = "default_rebuild_busy_percent")]
    pub rebuild_busy_percent: u8,
    /// Files that wish parities get them early if one of their copies is on a target with less free
    /// space than this, percent; 0 for never.
    #[serde(default = "default_encode_below_percent")]
    pub encode_below_percent: u8,
    /// The lowest level of protection at which the servers of the cluster accept connections: `args`,
    /// `data` or `private`.
    #[serde(default, with = "level")]
    pub protection: Level,
    /// Time from a first change to the sync that makes it durable. A power cut may lose changes of
    /// this time.
    #[serde(default = "default_sync_delay_ms")]
    pub sync_delay_ms: u64,
    /// Size of the engine's cache, bytes.
    #[serde(default = "default_cache_bytes")]
    pub cache_bytes: usize,
    /// The most connections.
    #[serde(default = "default_max_connections")]
    pub max_connections: usize,
    /// The most audit records; 0 for none.
    #[serde(default = "default_audit_records")]
    pub audit_records: usize,
    /// The journal that it shares with other metadata servers, of which one leads; `None`: it is
    /// the only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub journal: Option<JournalConfig>,
}

/// The journal of several metadata servers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JournalConfig {
    /// Addresses of the members of an etcd cluster: `http://HOST:PORT`, or `unix:/PATH`.
    pub etcd: Vec<String>,
    /// Name of this metadata server, different from those of the others: letters, digits, `-`, `_`.
    pub member: String,
}

impl JournalConfig {
    fn check(&self) -> Result<()> {
        let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        if !(1..=64).contains(&self.member.len()) || !self.member.chars().all(good) {
            let what = "`member` of `[journal]` must be 1 to 64 letters, digits, `-` or `_`";
            return Err(Error::new(ErrorKind::InvalidArgument, what));
        }
        Ok(())
    }
}

/// The name of a level of protection.
mod level {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};
    use weir_wire::Level;

    pub(super) fn serialize<S: Serializer>(level: &Level, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(level.label())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Level, D::Error> {
        Level::parse(&String::deserialize(from)?).map_err(D::Error::custom)
    }
}

fn default_session_timeout_ms() -> u64 {
    Times::default().session_timeout_ms
}
fn default_target_timeout_ms() -> u64 {
    Times::default().target_timeout_ms
}
fn default_grace_ms() -> u64 {
    Times::default().grace_ms
}
fn default_lease_ms() -> u64 {
    Times::default().lease_ms
}
fn default_leases_per_client() -> usize {
    MAX_PIECES
}
fn default_capability_ms() -> u64 {
    Times::default().capability_ms
}
fn default_ticket_ms() -> u64 {
    Times::default().ticket_ms
}
fn default_heartbeat_ms() -> u32 {
    Times::default().heartbeat_ms
}
fn default_rebuild_after_ms() -> u64 {
    MoverSettings::default().rebuild_after_ms
}
fn default_rebuild_busy_percent() -> u8 {
    MoverSettings::default().busy_percent
}
fn default_encode_below_percent() -> u8 {
    MoverSettings::default().encode_below_percent
}
fn default_rebuild_concurrency() -> u32 {
    MoverSettings::default().rebuild_concurrency
}
fn default_sync_delay_ms() -> u64 {
    500
}
fn default_cache_bytes() -> usize {
    128 << 20
}
fn default_audit_records() -> usize {
    16_384
}
fn default_max_connections() -> usize {
    65_536
}

impl MetaServerConfig {
    /// The defaults.
    pub fn new(dir: PathBuf, listen: Vec<String>, master_key_file: PathBuf) -> Self {
        Self {
            dir,
            listen,
            metrics: None,
            master_key_file,
            cluster: None,
            session_timeout_ms: default_session_timeout_ms(),
            target_timeout_ms: default_target_timeout_ms(),
            grace_ms: default_grace_ms(),
            lease_ms: default_lease_ms(),
            leases_per_client: default_leases_per_client(),
            capability_ms: default_capability_ms(),
            ticket_ms: default_ticket_ms(),
            heartbeat_ms: default_heartbeat_ms(),
            rebuild_after_ms: default_rebuild_after_ms(),
            rebuild_concurrency: default_rebuild_concurrency(),
            rebuild_busy_percent: default_rebuild_busy_percent(),
            encode_below_percent: default_encode_below_percent(),
            protection: Level::Args,
            sync_delay_ms: default_sync_delay_ms(),
            cache_bytes: default_cache_bytes(),
            max_connections: default_max_connections(),
            audit_records: default_audit_records(),
            journal: None,
        }
    }

    /// Checks the configuration.
    ///
    /// # Errors
    /// `InvalidArgument`, naming the field.
    pub fn check(&self) -> Result<()> {
        let bad = |what: &str| Err(Error::new(ErrorKind::InvalidArgument, what));
        if self.listen.is_empty() {
            return bad("`listen` is empty: a metadata server needs an address or a socket path");
        }
        if self.session_timeout_ms < 1000 {
            return bad("`session_timeout_ms` must be at least 1000");
        }
        if self.heartbeat_ms == 0
            || self.target_timeout_ms < u64::from(self.heartbeat_ms).saturating_mul(2)
        {
            return bad(
                "`target_timeout_ms` must be at least twice `heartbeat_ms`, which is not 0",
            );
        }
        // What was sent while the metadata server stood still is not read yet.
        let shortest_ms = LONG_TICK_MS.saturating_add(self.heartbeat_ms.into());
        if self.target_timeout_ms < shortest_ms {
            return bad("`target_timeout_ms` must be at least 2000 more than `heartbeat_ms`");
        }
        if self.lease_ms < 1000 || self.lease_ms > self.session_timeout_ms {
            return bad("`lease_ms` must be at least 1000, and at most `session_timeout_ms`");
        }
        if self.grace_ms < self.lease_ms {
            return bad(
                "`grace_ms` must be at least `lease_ms`: so long clients use what they keep",
            );
        }
        if self.leases_per_client < 1024 {
            return bad("`leases_per_client` must be at least 1024");
        }
        if self.capability_ms < 1000 || self.ticket_ms < 1000 {
            return bad("`capability_ms` and `ticket_ms` must be at least 1000");
        }
        if self.audit_records > weir_audit::MAX_RECORDS {
            return bad("`audit_records` must be at most 65536");
        }
        if !(1..=100).contains(&self.rebuild_busy_percent) {
            return bad("`rebuild_busy_percent` must be from 1 to 100");
        }
        if self.encode_below_percent > 90 {
            return bad("`encode_below_percent` must be at most 90");
        }
        if self.rebuild_concurrency == 0 || self.rebuild_concurrency > MAX_CONCURRENCY {
            return bad("`rebuild_concurrency` must be from 1 to 1024");
        }
        self.journal.as_ref().map_or(Ok(()), JournalConfig::check)
    }

    pub(crate) fn mover(&self) -> MoverSettings {
        let Self { rebuild_after_ms, rebuild_concurrency, encode_below_percent, .. } = *self;
        let busy_percent = self.rebuild_busy_percent;
        MoverSettings { rebuild_after_ms, rebuild_concurrency, busy_percent, encode_below_percent }
    }

    pub(crate) fn engine(&self) -> EmbeddedConfig {
        let Self { sync_delay_ms, cache_bytes, .. } = *self;
        EmbeddedConfig { sync_delay_ms, cache_bytes, ..EmbeddedConfig::default() }
    }

    pub(crate) fn times(&self) -> Times {
        Times {
            session_timeout_ms: self.session_timeout_ms,
            target_timeout_ms: self.target_timeout_ms,
            grace_ms: self.grace_ms,
            lease_ms: self.lease_ms,
            capability_ms: self.capability_ms,
            ticket_ms: self.ticket_ms,
            heartbeat_ms: self.heartbeat_ms,
        }
    }
}

/// The largest allowed number of copies that one data server makes at a time.
const MAX_CONCURRENCY: u32 = 1024;
/// The most bytes read from a key file, more than one has.
const MAX_KEY_FILE_BYTES: usize = 4096;

/// Reads the file of the master key.
///
/// # Errors
/// `NotFound`; `AccessDenied` if others than its owner may read it; `InvalidArgument` if it has no
/// key. They name the file, never its contents.
pub fn read_master_key(path: &Path) -> Result<MasterKey> {
    let shown = path.display();
    let bytes = weir_host::fs::read_file(path, MAX_KEY_FILE_BYTES).map_err(|e| {
        Error::from(std::io::Error::from(e)).context(format!("master key file {shown}"))
    })?;
    if others_may_read(path)? {
        return Err(Error::new(
            ErrorKind::AccessDenied,
            format!("master key file {shown} can be read by others: run `chmod 600 {shown}`"),
        ));
    }
    let key = std::str::from_utf8(&bytes).ok().and_then(Key::from_hex);
    key.map(MasterKey).ok_or_else(|| {
        Error::new(
            ErrorKind::InvalidArgument,
            format!("master key file {shown} does not hold 64 hexadecimal digits"),
        )
    })
}

/// Whether other users may read a file. A simulated machine has no other users.
#[expect(clippy::disallowed_methods, reason = "of the operating system only")]
fn others_may_read(path: &Path) -> Result<bool> {
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
        let listen = vec!["127.0.0.1:0".to_owned()];
        let good = MetaServerConfig::new("d".into(), listen, "k".into());
        good.check().unwrap();
        let named = |config: MetaServerConfig| config.check().unwrap_err().message;
        assert!(named(MetaServerConfig { listen: vec![], ..good.clone() }).contains("listen"));
        for (target_timeout_ms, heartbeat_ms) in [(900, 500), (2400, 500), (5000, 0)] {
            let short = MetaServerConfig { target_timeout_ms, heartbeat_ms, ..good.clone() };
            assert!(named(short).contains("target_timeout_ms"));
        }
        assert!(named(MetaServerConfig { lease_ms: 40_000, ..good.clone() }).contains("lease_ms"));
        assert!(named(MetaServerConfig { grace_ms: 5_000, ..good.clone() }).contains("grace_ms"));
        assert!(
            named(MetaServerConfig { session_timeout_ms: 0, ..good.clone() }).contains("session")
        );
        for member in ["", "a/b", "a b", &"a".repeat(65)] {
            let journal = Some(JournalConfig { etcd: Vec::new(), member: member.to_owned() });
            assert!(named(MetaServerConfig { journal, ..good.clone() }).contains("member"));
        }
    }

    #[test]
    fn what_is_written_is_what_the_server_goes_by() {
        let text = r#"
            dir = "d"
            listen = ["127.0.0.1:0"]
            master_key_file = "k"
            session_timeout_ms = 31001
            target_timeout_ms = 3851
            grace_ms = 10101
            lease_ms = 10051
            capability_ms = 3600501
            ticket_ms = 3600502
            heartbeat_ms = 601
            rebuild_after_ms = 600001
            rebuild_concurrency = 255
            rebuild_busy_percent = 26
            encode_below_percent = 11
            protection = "data"
            sync_delay_ms = 503
            cache_bytes = 1048576
        "#;
        let config: MetaServerConfig = toml::from_str(text).unwrap();
        config.check().unwrap();
        let times = Times {
            session_timeout_ms: 31_001,
            target_timeout_ms: 3851,
            grace_ms: 10_101,
            lease_ms: 10_051,
            capability_ms: 3_600_501,
            ticket_ms: 3_600_502,
            heartbeat_ms: 601,
        };
        assert_eq!(config.times(), times);
        let (rebuild_after_ms, rebuild_concurrency, busy_percent) = (600_001, 255, 26);
        let encode_below_percent = 11;
        let mover = MoverSettings {
            rebuild_after_ms,
            rebuild_concurrency,
            busy_percent,
            encode_below_percent,
        };
        assert_eq!(config.mover(), mover);
        assert_eq!(config.protection, Level::Data);
        let again: MetaServerConfig = toml::from_str(&toml::to_string(&config).unwrap()).unwrap();
        assert_eq!(again, config);
        let unknown = text.replace("\"data\"", "\"all\"");
        let error = toml::from_str::<MetaServerConfig>(&unknown).unwrap_err().to_string();
        assert!(error.contains("args, data or private"), "{error}");
        let engine = config.engine();
        assert_eq!((engine.sync_delay_ms, engine.cache_bytes), (503, 1 << 20));
        // None of that is what goes without saying: only these are.
        let usual = MetaServerConfig::new("d".into(), config.listen.clone(), "k".into());
        let (said, usual) = (format!("{config:#?}"), format!("{usual:#?}"));
        let same = said.lines().zip(usual.lines()).filter(|(said, usual)| said == usual);
        let same = same.filter_map(|(said, _)| said.split_once(": "));
        let same: Vec<&str> = same.map(|(key, _)| key.trim()).collect();
        let places = ["dir", "listen", "metrics", "master_key_file", "cluster"];
        assert_eq!(
            same,
            [&places[..], &["leases_per_client", "max_connections", "audit_records", "journal"]]
                .concat()
        );
    }

    #[test]
    fn a_key_file_that_others_may_read_is_refused_without_showing_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("master.key");
        std::fs::write(&path, "ab".repeat(32)).unwrap();
        let mode = |m| std::fs::set_permissions(&path, PermissionsExt::from_mode(m)).unwrap();
        mode(0o644);
        assert!(read_master_key(&path).unwrap_err().message.contains("chmod 600"));
        mode(0o600);
        read_master_key(&path).unwrap();
        std::fs::write(&path, "secret").unwrap();
        assert!(!read_master_key(&path).unwrap_err().message.contains("secret"));
    }
}
