//! Which of several metadata servers a session is with: the one that leads.

use super::{Joined, MetaSession};
use crate::counters::add;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use weir_host::clock;
use weir_net::{Address, BlockingConn, Wait, Watch, host_name, random_bytes};
use weir_types::{Error, ErrorKind, Result, SessionId};
use weir_wire::frame::VERSION;
use weir_wire::handshake::{Hello, Identity, Welcome};

/// Longest wait for the handshake with one of several servers.
const HANDSHAKE: Duration = Duration::from_secs(1);
/// With several servers: after this time of silence it is looked up whether another one leads.
const SILENCE: Duration = Duration::from_millis(1_500);
/// Longest wait for another server that leads, to hear that it does and to tell it what is open.
const TAKEOVER_MS: u64 = 5_000;

impl MetaSession {
    /// Whether there are several servers, of which one leads.
    pub(crate) fn has_several_servers(&self) -> bool {
        self.several
    }

    /// Waits for the reply to what was sent on this connection. A server that has stopped leading,
    /// or stopped altogether, may never reply.
    ///
    /// # Errors
    /// `Unreachable` if the session has gone to another server meanwhile.
    pub(super) fn wait_for_leader(&self, joined: &Joined, wait: &Wait) -> Result<()> {
        if !self.has_several_servers() {
            return Ok(());
        }
        let look = || self.look_for_another_than(joined.instance);
        joined.conn.watch_for_reply(wait, Some(Watch { every: SILENCE, look: &look }))
    }

    /// The wait for one answer of a server that is new to the session. Of several servers, one that
    /// has welcomed and then hangs is waited for only so long: then the next one is asked.
    pub(super) fn wait_for_one_answer(&self, wait: &Wait) -> Wait {
        match self.has_several_servers() {
            true => wait.at_most(Duration::from_millis(TAKEOVER_MS)),
            false => wait.at_most(wait.remaining()),
        }
    }

    /// Goes to the server that leads. Errors: `Unreachable` if it is another one than this.
    fn look_for_another_than(&self, instance: u64) -> Result<()> {
        let due = {
            let mut state = self.lock();
            let due = state.instance == Some(instance)
                && state.looked.is_none_or(|at| clock::elapsed(at) >= SILENCE);
            if due {
                state.looked = Some(clock::now());
            }
            due
        };
        if due {
            // If none is there, the one that is waited for may yet answer.
            match self.connect(&Wait::for_ms(TAKEOVER_MS)) {
                Ok(joined) => self.put_back(joined),
                Err(error) => tracing::debug!("no metadata server leads: {error}"),
            }
        }
        if self.lock().instance == Some(instance) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Unreachable, "another metadata server leads meanwhile"))
    }

    /// Opens a new connection that belongs to the session.
    pub(super) fn connect(&self, wait: &Wait) -> Result<Joined> {
        let mut last = Error::new(ErrorKind::InvalidArgument, "no metadata server is configured");
        for name in &self.config.metadata {
            match self.connect_to(name, wait) {
                Ok(conn) => return Ok(conn),
                // One that stands by says more than silence of the one that led.
                Err(_) if last.kind == ErrorKind::NotLeader => {}
                Err(error) => last = error,
            }
        }
        if self.has_several_servers() && last.kind == ErrorKind::TimedOut && !wait.expired() {
            last.kind = ErrorKind::Unreachable;
        }
        if last.kind == ErrorKind::Unreachable && !self.established.load(Relaxed) {
            let hint = "is the cluster up? Start it with `weir up`, or look at `weir status`";
            last.message = format!("{}; {hint}", last.message);
        }
        Err(last)
    }

    fn connect_to(&self, name: &str, wait: &Wait) -> Result<Joined> {
        let address = Address::parse(name)?;
        let in_context = |e: Error| e.context(format!("metadata server {address}"));
        let session = self.id();
        let joined = match self.handshake(&address, session, wait) {
            Err(error) if error.kind == ErrorKind::SessionExpired => {
                self.forget_session(session);
                self.handshake(&address, SessionId(0), wait)
            }
            other => other,
        };
        let (conn, welcome) = joined.map_err(in_context)?;
        add(&self.counters.meta_connections, 1);
        self.joined(conn, &welcome, wait).map_err(in_context)
    }

    fn handshake(
        &self,
        address: &Address,
        session: SessionId,
        wait: &Wait,
    ) -> Result<(BlockingConn, Welcome)> {
        let hello = Hello {
            version: VERSION,
            identity: Identity::Client(self.config.client),
            nonce: random_bytes()?,
            session,
            name: self.config.name.clone(),
            host: host_name(),
            protection: self.config.protection,
        };
        let short = wait.at_most(HANDSHAKE);
        let wait = if self.has_several_servers() { &short } else { wait };
        BlockingConn::connect(address, self.config.key.clone(), &hello, wait)
    }
}
