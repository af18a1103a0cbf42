//! `weir data`, `weir meta`: the servers, in the foreground or as daemons.

use crate::args::{Daemon, Detach};
use crate::cluster::daemon;
use crate::cluster::process::Report;
use crate::failure::{Done, Failure};
use crate::signals::Signals;
use std::cell::Cell;
use std::io::{PipeReader, Write};
use std::os::fd::{AsFd, BorrowedFd};
use weir_dataserver::DataServerConfig;
use weir_metaserver::MetaServerConfig;

/// Runs what serves; tells whoever started it that it is ready, or why not.
pub fn serve(detach: Detach, run: impl FnOnce(&dyn Fn(&str)) -> Done) -> Done {
    if detach.detached {
        // A session of its own: no terminal's signals, no terminal at all. It
        // fails only if it leads one already.
        let _ = rustix::process::setsid();
    }
    let is_ready = Cell::new(false);
    let done = run(&|what| {
        is_ready.set(true);
        if detach.detached {
            Report::Ready.send();
        }
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
    serve(daemon.detach, |ready| {
        let shutdown = Shutdown::on_signal()?;
        let config: DataServerConfig = daemon::read(&daemon.config)?;
        weir_dataserver::run(config, shutdown.as_fd(), |info| {
            ready(&format!("data server {} serves on {}", info.server, info.tcp));
        })?;
        Ok(())
    })
}

/// Runs `weir meta`.
pub fn meta(daemon: &Daemon) -> Done {
    serve(daemon.detach, |ready| {
        let shutdown = Shutdown::on_signal()?;
        let config: MetaServerConfig = daemon::read(&daemon.config)?;
        weir_metaserver::run(config, shutdown.as_fd(), |info| {
            ready(&format!("the metadata server serves on {}", info.addresses.join(", ")));
        })?;
        Ok(())
    })
}

/// Becomes readable when this process is asked to end.
struct Shutdown {
    reader: PipeReader,
}

impl Shutdown {
    /// To be called before other threads are started.
    fn on_signal() -> Done<Self> {
        let signals = Signals::hold()?;
        let (reader, mut writer) =
            std::io::pipe().map_err(|e| Failure::new(format!("cannot make a pipe: {e}")))?;
        // A second signal finds the pipe readable already, or full: as good.
        signals.on_signal(move || drop(writer.write(&[1])))?;
        Ok(Self { reader })
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }
}
