//! `weir data`, `weir meta`: the servers, in the foreground or as daemons.

use crate::args::{Daemon, Detach};
use crate::cluster::daemon;
use crate::cluster::process::{self, Report};
use crate::failure::{Done, Failure};
use crate::signals::Signals;
use crate::{metrics, notify};
use std::cell::Cell;
use std::io;
use std::path::Path;
use std::sync::Arc;
use weir_dataserver::DataServerConfig;
use weir_etcd::EtcdJournal;
use weir_host::net::Signal;
use weir_metaserver::{Journal, JournalConfig, MetaServerConfig};
use weir_types::ErrorKind;

/// When a daemon leaves the session of the process that started it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Leaves {
    /// Before it begins to serve.
    First,
    /// When it is ready. At an autofs mountpoint only processes in systemd's process group, where
    /// mount(8) runs, may mount. The kernel makes all others wait for them.
    WhenReady,
}

impl Leaves {
    /// Begins a session without a terminal and its signals, if `now` is the time. It fails only if
    /// the process already leads a session.
    fn at(self, now: Self, detach: &Detach) {
        if detach.detached && self == now {
            let _ = rustix::process::setsid();
        }
    }
}

/// Runs a daemon. Tells the process that started it that it is ready, or why it is not.
pub fn serve(detach: &Detach, leaves: Leaves, run: impl FnOnce(&dyn Fn(&str)) -> Done) -> Done {
    leaves.at(Leaves::First, detach);
    if detach.detached && !process::may_begin() {
        tracing::warn!("the command that started this process has ended: this process ends too");
        return Ok(());
    }
    let is_ready = Cell::new(false);
    let done = run(&|what| {
        is_ready.set(true);
        leaves.at(Leaves::WhenReady, detach);
        if detach.detached {
            Report::Ready.send();
        }
        notify::ready(what);
        tracing::info!("{what}");
    });
    if let (Err(failure), true, false) = (&done, detach.detached, is_ready.get()) {
        let (message, hint) = (failure.message.clone(), failure.hint.clone());
        Report::Failed { message, hint }.send();
    }
    done
}

/// Runs `weir data`.
pub fn data(daemon: &Daemon) -> Done {
    serve(&daemon.detach, Leaves::First, |ready| {
        let shutdown = shutdown_on_signal()?;
        let config: DataServerConfig = daemon::read(&daemon.config)?;
        let detached = daemon.detach.detached;
        let observer = Arc::new(weir_dataserver::Observer::waiting(move |what| {
            if detached {
                Report::Recovering { what: what.to_owned() }.send();
            }
            notify::gets_on(what);
        }));
        if let Some(address) = &config.metrics {
            let observer = Arc::clone(&observer);
            metrics::serve(metrics::parse(address)?, "data", move |page| observer.tell(page));
        }
        weir_dataserver::run_observed(config, &shutdown, &observer, |info| {
            ready(&format!("data server {} serves on {}", info.server, info.tcp));
        })?;
        Ok(())
    })
}

/// Runs `weir meta`.
pub fn meta(config: &Path, detach: &Detach) -> Done {
    serve(detach, Leaves::First, |ready| {
        let shutdown = shutdown_on_signal()?;
        let config: MetaServerConfig = daemon::read(config)?;
        let observer = Arc::new(weir_metaserver::Observer::default());
        if let Some(address) = &config.metrics {
            let observer = Arc::clone(&observer);
            metrics::serve(metrics::parse(address)?, "meta", move |page| observer.tell(page));
        }
        if config.journal.is_some() {
            return member(config, &shutdown, &observer, ready);
        }
        weir_metaserver::run_observed(config, &shutdown, observer, |info| {
            ready(&format!("the metadata server serves on {}", info.addresses.join(", ")));
        })?;
        Ok(())
    })
}

/// Runs a member of several metadata servers. One that has lost the lead stands by again.
fn member(
    config: MetaServerConfig,
    shutdown: &Signal,
    observer: &Arc<weir_metaserver::Observer>,
    ready: &dyn Fn(&str),
) -> Done {
    loop {
        let on_ready = |info: weir_metaserver::ReadyInfo| {
            ready(&format!(
                "the metadata server stands by or leads on {}",
                info.addresses.join(", ")
            ));
        };
        let run = weir_metaserver::run_member;
        match run(config.clone(), on_etcd, shutdown, observer.clone(), on_ready) {
            Err(error) if error.kind == ErrorKind::NotLeader => {
                tracing::warn!("the metadata server stands by again: {error}");
            }
            done => return Ok(done?),
        }
    }
}

/// The journal of a cluster on etcd.
fn on_etcd(journal: &JournalConfig, cluster: [u8; 16]) -> weir_types::Result<Arc<dyn Journal>> {
    Ok(Arc::new(EtcdJournal::new(&journal.etcd, cluster)?))
}

/// A signal that is raised when this process is asked to end. It must be called before other
/// threads start.
fn shutdown_on_signal() -> Done<Signal> {
    let signals = Signals::hold()?;
    let shutdown = Signal::new()
        .map_err(|e| Failure::new(format!("cannot make an eventfd: {}", io::Error::from(e))))?;
    let raised = shutdown.clone();
    signals.on_signal(move || raised.raise())?;
    Ok(shutdown)
}
