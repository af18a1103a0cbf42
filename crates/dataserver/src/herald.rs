//! Tells the metadata server how far a server is that does not serve yet: it recovers its
//! targets. To all others that is a server which is away, and says when it comes.

use crate::opening::Under;
use crate::register::{connect, exchange};
use crate::run::spawn;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;
use weir_host::clock;
use weir_host::net::Signal;
use weir_host::thread::JoinHandle;
use weir_net::{Address, Wait, host_name};
use weir_types::{Epoch, ErrorKind, Result, ServerId};
use weir_wire::Key;
use weir_wire::peer::{HeartbeatReply, HeartbeatRequest, RegisterRequest};
use weir_wire::targets::MachineLoad;

/// One exchange ends within this time.
const EXCHANGE_MS: u64 = 5_000;
/// Between attempts to connect.
const AGAIN: Duration = Duration::from_secs(1);
/// Between heartbeats, whatever the metadata server says.
const INTERVAL_MS: std::ops::RangeInclusive<u32> = 10..=2_000;

pub(crate) struct Herald {
    pub(crate) server: ServerId,
    pub(crate) key: Key,
    pub(crate) cluster: [u8; 16],
    pub(crate) metadata: Vec<Address>,
    pub(crate) domain: String,
    pub(crate) run: u64,
    pub(crate) tcp: String,
    pub(crate) unix: String,
    pub(crate) ending: Signal,
    pub(crate) under: Arc<Under>,
}

/// One at work.
pub(crate) struct AtWork {
    ending: Signal,
    thread: JoinHandle,
}

impl AtWork {
    /// From here on the server speaks for itself.
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

    /// Returns only with an error; `Interrupted` when it is to end.
    fn tell(&self, address: &Address) -> Result<std::convert::Infallible> {
        let who = (self.server, self.key.clone(), self.cluster);
        let mut conn = connect(who, address, &self.wait())?;
        let request = RegisterRequest {
            host: host_name(),
            domain: self.domain.clone(),
            tcp: self.tcp.clone(),
            unix: self.unix.clone(),
            first: true,
            run: self.run,
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
            let request = HeartbeatRequest { acting, machine, targets: self.under.reports() };
            reply = exchange(&mut conn, &request, &self.wait())?;
        }
    }

    fn wait(&self) -> Wait {
        let until = clock::now() + Duration::from_millis(EXCHANGE_MS);
        Wait::until(until).interruptible(self.ending.fd().map(|fd| fd.as_raw_fd()))
    }
}
