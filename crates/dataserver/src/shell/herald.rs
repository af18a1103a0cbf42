//! Reports the progress of a recovery to the metadata server while the server does not serve yet.
//! To all others that server is away.

use super::register::{connect, exchange};
use super::threads::spawn;
use super::under::Under;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;
use weir_host::clock;
use weir_host::net::Signal;
use weir_host::thread::JoinHandle;
use weir_net::{Address, Wait, host_name};
use weir_types::{Epoch, ErrorKind, Result, ServerId, TargetId};
use weir_wire::Key;
use weir_wire::peer::{HeartbeatReply, HeartbeatRequest, RegisterRequest};
use weir_wire::targets::MachineLoad;

/// Timeout of one exchange, milliseconds.
const EXCHANGE_MS: u64 = 5_000;
/// Interval of attempts to connect.
const AGAIN: Duration = Duration::from_secs(1);
/// Limits of the heartbeat interval that the metadata server sets, milliseconds.
const INTERVAL_MS: std::ops::RangeInclusive<u32> = 10..=2_000;

pub(crate) struct Herald {
    pub(crate) server: ServerId,
    pub(crate) key: Key,
    pub(crate) cluster: [u8; 16],
    pub(crate) metadata: Vec<Address>,
    pub(crate) domain: String,
    pub(crate) runs: Vec<(TargetId, u64)>,
    pub(crate) tcp: String,
    pub(crate) unix: String,
    pub(crate) ending: Signal,
    pub(crate) under: Arc<Under>,
}

/// A running herald.
pub(crate) struct AtWork {
    ending: Signal,
    thread: JoinHandle,
}

impl AtWork {
    /// Ends the herald: the server reports itself from now on.
    pub(crate) fn end(self) {
        self.ending.raise();
        // One that panics has nothing more to say.
        let _ = self.thread.join();
    }
}

impl Herald {
    pub(crate) fn start(self) -> Result<AtWork> {
        let ending = self.ending.clone();
        let thread = spawn("weir-herald", move || self.work())?;
        Ok(AtWork { ending, thread })
    }

    fn work(self) {
        loop {
            for address in &self.metadata {
                let Err(error) = self.tell(address);
                if error.kind == ErrorKind::Interrupted {
                    return;
                }
                tracing::debug!("metadata server {address}: {error}");
            }
            if !matches!(self.ending.wait(Some(AGAIN)), Ok(false)) {
                return;
            }
        }
    }

    /// Reports until an error occurs; `Interrupted` when it is to end.
    fn tell(&self, address: &Address) -> Result<std::convert::Infallible> {
        let who = (self.server, self.key.clone(), self.cluster);
        let mut conn = connect(who, address, &self.wait())?;
        let request = RegisterRequest {
            host: host_name(),
            domain: self.domain.clone(),
            tcp: self.tcp.clone(),
            unix: self.unix.clone(),
            first: true,
            runs: self.runs.clone(),
            targets: self.under.reports(),
        };
        let mut reply: HeartbeatReply = exchange(&mut conn, &request, &self.wait())?;
        tracing::info!("the metadata server at {address} knows that targets are recovered here");
        loop {
            let interval = reply.interval_ms.clamp(*INTERVAL_MS.start(), *INTERVAL_MS.end());
            match self.ending.wait(Some(Duration::from_millis(interval.into()))) {
                Ok(false) => {}
                Ok(true) => return Err(ErrorKind::Interrupted.into()),
                Err(e) => return Err(std::io::Error::from(e).into()),
            }
            // It acts under no epoch: nothing is served.
            let (acting, machine) = (Epoch(0), MachineLoad::default());
            // Nor does it need to know what was revoked.
            let (revoked, targets) = (u64::MAX, self.under.reports());
            let request = HeartbeatRequest { acting, revoked, machine, targets };
            reply = exchange(&mut conn, &request, &self.wait())?;
        }
    }

    fn wait(&self) -> Wait {
        let until = clock::now() + Duration::from_millis(EXCHANGE_MS);
        Wait::until(until).interruptible(self.ending.fd().map(|fd| fd.as_raw_fd()))
    }
}
