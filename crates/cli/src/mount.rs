//! `weir mount` and `weir umount`.

use crate::args::{Mount, Umount};
use crate::cluster::mount_lock::MountLock;
use crate::cluster::mounting::{self, MountFiles, clear_mountpoint, made_mountpoint, mountpoint};
use crate::cluster::mounts;
use crate::cluster::process::Report;
use crate::cluster::program;
use crate::failure::{Done, Failure};
use crate::metrics;
use crate::mount_log::MountLog;
use crate::mount_options::MountOptions;
use crate::remount;
use crate::serve::{Leaves, serve};
use crate::settings::{self, Cluster};
use crate::signals::Signals;
use rustix::process::{Resource, geteuid, getrlimit};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use weir_client::{Client, ClientConfig, Consistency, Watch};
use weir_fuse::{Config, Measured, MountError, Session};
use weir_metrics::Page;
use weir_metrics::names::UPTIME;
use weir_mount::{KernelCache, WeirFs, tell_client};

/// The most bytes that the mount itself fetches ahead of a reader.
const MOST_AHEAD_BYTES: u64 = 16 << 20;

/// Runs `weir mount`.
pub fn mount(mount: &Mount) -> Done {
    let cluster = settings::cluster(&mount.client)?;
    if remount::is_asked(&mount.options) {
        let path = mountpoint(&mount.mountpoint)?;
        return remount::remount(&path, &mount.options, Some(&cluster.source()));
    }
    let mut options = settings::config_file(&mount.client.cluster)?.mount.options;
    options.extend(mount.options.iter().cloned());
    // Errors in the options are reported here, not only in a log.
    MountOptions::parse(&options)?;
    let (path, made) = made_mountpoint(&mount.mountpoint)?;
    let done = mount_on(mount, &cluster, &path, &options);
    if made && done.is_err() {
        // This fails if the directory is in use by now.
        let _ = std::fs::remove_dir(&path);
    }
    done
}

fn mount_on(mount: &Mount, cluster: &Cluster, path: &Path, options: &[String]) -> Done {
    if mount.foreground {
        // For a daemon, the starting process holds the lock.
        let alone = !mount.detach.detached;
        let run = |ready: &dyn Fn(&str)| run(cluster, path, options, alone, ready);
        return serve(&mount.detach, Leaves::WhenReady, run);
    }
    mounting::mount(cluster, path, options).map(drop)
}

/// Runs `weir umount`.
pub fn umount(umount: &Umount) -> Done {
    let path = mountpoint(&umount.mountpoint)?;
    match mounts::at(&path)? {
        Some(mount) => mounting::unmount(&mount, umount.lazy),
        None => Err(Failure::new("no Weir is mounted here").about(path.display())),
    }
}

/// Mounts, and serves until the mount is removed.
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
    config.name = program::this(&format!("weir mount {}", path.display()));
    config.transport = options.transport;
    config.protection = options.protection.max(credential.protection);
    config.request_timeout_ms = options.timeout_ms.unwrap_or(config.request_timeout_ms);
    // The kernel already reads ahead; a second read-ahead fetches bytes that nobody reads
    // (measured: a fifth more on the wire with four readers). But for users other than root the
    // kernel reads at most 128 KiB ahead.
    config.only_hinted = geteuid().is_root();
    config.read_ahead_bytes = (u64::from(options.fuse.read_ahead_kib) << 10).min(MOST_AHEAD_BYTES);
    config.consistency = options.weir.consistency;
    config.read_policy = options.read_policy;
    config.lazy = options.lazy;
    // The kernel checks permissions (`default_permissions`), with the groups and mode bits that the
    // mount gives it.
    config.keep_metadata = options.weir.consistency != Consistency::None;
    // The kernel keeps them for as long again.
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
    let watch = client.watch();
    // The log must end after the session and the client, because the last flush may lose something.
    let _log = MountLog::start(watch.clone(), client.config().request_timeout_ms)?;
    let fuse = Config {
        source: cluster.source(),
        max_workers: max_workers(),
        max_lock_waits: max_lock_waits(),
        ..options.fuse
    };
    let session = Session::mount(WeirFs::new(client, cache.clone(), weir), path, &fuse)?;
    if let Some(what) = hidden_below(path, session.hidden()) {
        tracing::warn!("{what}");
        if !alone {
            Report::Noted { what }.send();
        }
    }
    // For a daemon, the starting process has recorded it.
    if alone && let Err(failure) = MountFiles::of(cluster, path)?.record_this() {
        // The mount works without this file, but `weir umount` does not wait for this process.
        tracing::warn!("cannot record which process serves {}: {failure}", path.display());
    }
    drop(lock);
    serve_metrics(cluster, path, options.metrics, watch, session.measured())?;
    let handle = session.handle();
    cache.attach(handle.notifier());
    signals.on_signal(move || match handle.unmount(false) {
        Err(MountError::InUse(_)) => {
            tracing::warn!("in use: detached, and removed when its last user has ended");
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

/// How many hidden files are named.
const MOST_NAMED: usize = 20;

/// What to tell of files that were made below a mountpoint and are hidden by the mount.
fn hidden_below(mountpoint: &Path, hidden: &[OsString]) -> Option<String> {
    let named = hidden.iter().take(MOST_NAMED).map(|name| format!("{name:?}"));
    let named: Vec<String> = named.collect();
    if named.is_empty() {
        return None;
    }
    let more = match hidden.len() - named.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let at = mountpoint.display();
    Some(format!(
        "{}{more} came into the directory below {at} while the dead mount there was being replaced, \
         and the new mount hides what is there. To get it: end the programs that use {at}, \
         `weir umount {at}`, move it to another place, and `weir mount {at}`",
        named.join(", ")
    ))
}

/// Serves the metrics of a mount if they are wanted, and records the address.
fn serve_metrics(
    cluster: &Cluster,
    path: &Path,
    given: Option<SocketAddr>,
    watch: Watch,
    measured: Arc<Measured>,
) -> Done {
    let of_cluster = match cluster {
        Cluster::Here(state) => state.description()?.metrics,
        Cluster::Elsewhere(_) => None,
    };
    let begun = Instant::now();
    let tell = move |page: &mut Page| {
        page.value(&UPTIME, begun.elapsed().as_secs_f64());
        measured.tell(page);
        tell_client(page, &watch);
        true
    };
    let address = given.or(of_cluster.map(|address| SocketAddr::new(address, 0)));
    let bound = address.and_then(|address| metrics::serve(address, "mount", tell));
    let file = MountFiles::of(cluster, path)?.metrics;
    let word = match bound {
        Some(bound) => std::fs::write(&file, format!("{bound}\n")),
        None if file.exists() => std::fs::remove_file(&file),
        None => Ok(()),
    };
    // The mount works without metrics.
    if let Err(error) = word {
        tracing::warn!("cannot record the address of the metrics: {}: {error}", file.display());
    }
    Ok(())
}

/// How many calls may wait for locks. Each takes two descriptors.
fn max_lock_waits() -> usize {
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    (descriptors / 8).clamp(16, 4096) as usize
}

/// How many operations may be served at once. Those that wait for an unreachable server keep their
/// place, and others must still proceed. Each takes two descriptors.
fn max_workers() -> usize {
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    (descriptors / 8).clamp(16, 128) as usize
}

impl From<MountError> for Failure {
    fn from(error: MountError) -> Self {
        // The text of the error says what to do.
        Self::new(error.to_string())
    }
}
