//! `weir mount` and `weir umount`.

use crate::args::{Mount, Umount};
use crate::cluster::mount_lock::MountLock;
use crate::cluster::mounting::{self, clear_mountpoint, mountpoint};
use crate::cluster::mounts;
use crate::failure::{Done, Failure};
use crate::mount_log::MountLog;
use crate::output::parse_size;
use crate::serve::serve;
use crate::settings::{self, Cluster};
use crate::signals::Signals;
use rustix::process::{Resource, getrlimit};
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use weir_client::{Client, ClientConfig, Consistency, ReadPolicy, Transport};
use weir_mount::fuse::{Config, MountError, Session};
use weir_mount::{KernelCache, Options, WeirFs};
use weir_types::ErrorKind;

/// Runs `weir mount`.
pub fn mount(mount: &Mount) -> Done {
    let cluster = settings::cluster(&mount.client)?;
    let path = mountpoint(&mount.mountpoint)?;
    let mut options = settings::config_file(&mount.client.cluster)?.mount.options;
    options.extend(mount.options.iter().cloned());
    // What is wrong with the options is said here, not in a log.
    MountOptions::parse(&options)?;
    if mount.foreground {
        // Whoever starts a daemon holds the lock for it.
        let alone = !mount.detach.detached;
        return serve(&mount.detach, |ready| run(&cluster, &path, &options, alone, ready));
    }
    mounting::mount(&cluster, &path, &options).map(drop)
}

/// Runs `weir umount`.
pub fn umount(umount: &Umount) -> Done {
    let path = mountpoint(&umount.mountpoint)?;
    match mounts::at(&path)? {
        Some(mount) => mounting::unmount(&mount, umount.lazy),
        None => Err(Failure::new("no Weir is mounted here").about(path.display())),
    }
}

/// Mounts, and serves until the mount is taken away.
fn run(
    cluster: &Cluster,
    path: &Path,
    options: &[String],
    alone: bool,
    ready: &dyn Fn(&str),
) -> Done {
    let lock = alone.then(|| MountLock::take(path)).transpose()?;
    clear_mountpoint(path)?;
    let signals = Signals::hold()?;
    let credential = cluster.credential()?;
    let options = MountOptions::parse(options)?;
    let address = credential.metadata.first().cloned().unwrap_or_default();
    let mut config = ClientConfig::new(address, credential.client, credential.key.clone());
    config.metadata.clone_from(&credential.metadata);
    config.cluster.clone_from(&credential.cluster);
    config.name = format!("weir mount {}", path.display());
    config.transport = options.transport;
    config.request_timeout_ms = options.timeout_ms.unwrap_or(config.request_timeout_ms);
    // The kernel reads ahead already; to do it twice fetches bytes that nobody
    // comes for (measured: a fifth more on the wire with four readers).
    config.read_ahead_bytes = 0;
    config.consistency = options.weir.consistency;
    config.read_policy = options.read_policy;
    // The kernel checks permissions (`default_permissions`), whose groups and
    // bits it has from us.
    config.keep_metadata = options.weir.consistency != Consistency::None;
    // The kernel believes it as long again.
    config.metadata_ttl_ms = options.weir.ttl.as_millis() as u64 / 2;
    let mut weir = options.weir;
    weir.ttl /= 2;
    if options.no_cache {
        config = config.without_cache();
    }
    let cache = KernelCache::default();
    let client = Client::connect_with(config, Arc::new(cache.clone())).map_err(|e| {
        Failure::from(e).about(format!("cannot connect to cluster {}", credential.cluster))
    })?;
    let _log = MountLog::start(client.watch(), client.config().request_timeout_ms)?;
    let fuse = Config {
        source: cluster.source(),
        max_workers: max_workers(),
        max_lock_waits: max_lock_waits(),
        ..options.fuse
    };
    let session = Session::mount(WeirFs::new(client, cache.clone(), weir), path, &fuse)?;
    drop(lock);
    let handle = session.handle();
    cache.attach(handle.notifier());
    signals.on_signal(move || match handle.unmount(false) {
        Err(MountError::InUse(_)) => {
            tracing::warn!("in use: detached, and gone when the last user is");
            if let Err(e) = handle.unmount(true) {
                tracing::warn!("{e}");
            }
        }
        Err(e) => tracing::warn!("{e}"),
        Ok(()) => {}
    })?;
    ready(&format!("cluster {} is mounted on {}", credential.cluster, path.display()));
    session.run()?;
    Ok(())
}

/// How many calls may wait for locks; each takes two descriptors.
fn max_lock_waits() -> usize {
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    (descriptors / 8).clamp(16, 4096) as usize
}

/// How many operations may be served at once. Those that wait for a server that
/// is away keep theirs, and the others are to go on; each takes two descriptors.
fn max_workers() -> usize {
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    (descriptors / 8).clamp(16, 128) as usize
}

impl From<MountError> for Failure {
    fn from(error: MountError) -> Self {
        // Its text says what to do.
        Self::new(error.to_string())
    }
}

/// What `-o` can say.
struct MountOptions {
    fuse: Config,
    weir: Options,
    transport: Transport,
    read_policy: ReadPolicy,
    no_cache: bool,
    timeout_ms: Option<u64>,
}

const KNOWN: &str = "ro, rw, allow_other, allow_root_only, default_permissions, suid, nosuid, dev, nodev, nocache, \
    direct_io, tcp, \
    consistency=strict|relaxed|none, read_policy=proportional|primary|halves|skip-hot|graduated|graduated-primary, \
    ttl=SECONDS, timeout=SECONDS, max_io=SIZE";
/// What a mount may wait for a server in one step of a call, seconds.
const TIMEOUT_SECONDS: RangeInclusive<u64> = 1..=3600;

impl MountOptions {
    fn parse(options: &[String]) -> Done<Self> {
        let root = rustix::process::geteuid().is_root();
        let fuse = Config {
            // Root mounts for everyone, as with any other file system.
            allow_other: root,
            // The kernel would drop a file's pages whenever its time of change
            // is news, also while a write of our own is on its way: who reads
            // then fills the page with what was there before, and others read
            // that after the write has returned. Pages are dropped at open.
            explicit_inval_data: true,
            posix_locks: true,
            flock_locks: true,
            ..Config::default()
        };
        let mut all = Self {
            fuse,
            weir: Options::default(),
            transport: Transport::Auto,
            read_policy: ReadPolicy::Proportional,
            no_cache: false,
            timeout_ms: None,
        };
        for option in options.iter().flat_map(|o| o.split(',')).filter(|o| !o.is_empty()) {
            all.set(option)?;
        }
        Ok(all)
    }

    fn set(&mut self, option: &str) -> Done {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        let bad = |why: &str| Failure::new(format!("mount option {option}: {why}"));
        match name {
            "ro" => self.fuse.read_only = true,
            "rw" => self.fuse.read_only = false,
            "allow_other" => self.fuse.allow_other = true,
            "allow_root_only" => self.fuse.allow_other = false,
            "suid" => self.fuse.suid = true,
            "nosuid" => self.fuse.suid = false,
            "dev" => self.fuse.dev = true,
            "nodev" => self.fuse.dev = false,
            "nocache" => self.no_cache = true,
            "direct_io" => self.weir.direct_io = true,
            "tcp" => self.transport = Transport::Tcp,
            "consistency" => {
                self.weir.consistency = Consistency::from_name(value.as_bytes())
                    .ok_or_else(|| bad("not strict, relaxed or none"))?;
            }
            "read_policy" => {
                let named = ReadPolicy::ALL.into_iter().find(|p| p.name() == value);
                self.read_policy = named.ok_or_else(|| {
                    bad("not proportional, primary, halves, skip-hot, graduated or graduated-primary")
                })?;
            }
            "ttl" => {
                let seconds: f64 = value.parse().map_err(|_| bad("not a number of seconds"))?;
                let ttl = Duration::try_from_secs_f64(seconds);
                self.weir.ttl = ttl.map_err(|_| bad("not a number of seconds"))?;
            }
            "timeout" => {
                let seconds: u64 = value.parse().map_err(|_| bad("not a number of seconds"))?;
                if !TIMEOUT_SECONDS.contains(&seconds) {
                    let (least, most) = TIMEOUT_SECONDS.into_inner();
                    return Err(bad(&format!("{least} to {most} seconds are allowed")));
                }
                self.timeout_ms = Some(seconds * 1000);
            }
            "max_io" => {
                let size = parse_size(value).map_err(|e| bad(&e))?;
                self.fuse.max_io_bytes = usize::try_from(size.0).map_err(|_| bad("too large"))?;
            }
            // What fstab says to others than the file system; atimes, which are
            // never written at reads; checks by the kernel, which it always does
            // (beside the metadata server's).
            "default_permissions"
            | "defaults"
            | "auto"
            | "noauto"
            | "user"
            | "nofail"
            | "_netdev"
            | "exec"
            | "async"
            | "noatime"
            | "relatime" => {}
            _ => {
                return Err(
                    bad(ErrorKind::InvalidArgument.text()).hint(format!("known options: {KNOWN}"))
                );
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(options: &[&str]) -> Done<MountOptions> {
        MountOptions::parse(&options.iter().map(|o| (*o).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn options_are_understood_or_named() {
        let all = parse(&["ro,nocache", "ttl=0.5", "max_io=512K"]).unwrap();
        assert!(all.fuse.read_only && all.no_cache);
        assert_eq!(all.weir.ttl, Duration::from_millis(500));
        assert_eq!(all.fuse.max_io_bytes, 512 << 10);
        assert_eq!(all.weir.consistency, Consistency::Strict);
        assert_eq!(parse(&["consistency=none"]).unwrap().weir.consistency, Consistency::None);
        for policy in ReadPolicy::ALL {
            let option = format!("read_policy={}", policy.name());
            assert_eq!(parse(&[&option]).unwrap().read_policy, policy);
        }
        let unknown = parse(&["read_policy=best"]).err().unwrap().to_string();
        assert!(unknown.contains("proportional, primary"), "{unknown}");
        assert!(parse(&["consistency=some"]).err().unwrap().to_string().contains("relaxed"));
        let unknown = parse(&["turbo"]).err().unwrap().to_string();
        assert!(unknown.contains("turbo") && unknown.contains("nocache"), "{unknown}");
        assert!(parse(&["ttl=-1"]).is_err());
        assert_eq!(parse(&["timeout=7"]).unwrap().timeout_ms, Some(7000));
        let outside = parse(&["timeout=0"]).err().unwrap().to_string();
        assert!(outside.contains("1 to 3600"), "{outside}");
    }
}
