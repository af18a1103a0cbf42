//! The session of this process with a cluster, and the handles that use it.

use crate::process::{PerProcess, gate, this};
use crate::recalls::Recalls;
use std::ops::Deref;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use weir_client::job::JobReader;
use weir_client::{Client, ClientConfig, Context, File};
use weir_connect::program_name;
use weir_types::{Caller, Error, ErrorKind, FileId, Result};
use weir_wire::capability::Rights;

/// A call that makes several requests ends within this many request timeouts.
const CALL_TIMEOUTS: u64 = 4;

/// The state that each process has for itself.
pub(crate) struct Session {
    pub(crate) client: Client,
    pub(crate) recalls: Arc<Recalls>,
}

impl Session {
    /// Opens a session under a name with the number of this process.
    fn open(config: &ClientConfig, program: &str) -> Result<Self> {
        let recalls = Arc::new(Recalls::default());
        let config = ClientConfig { name: program_name(program), ..config.clone() };
        let client = Client::connect_with(config, recalls.clone())?;
        Ok(Self { client, recalls })
    }
}

/// A connection to a cluster.
pub(crate) struct Connection {
    config: ClientConfig,
    program: String,
    pub(crate) context: Context,
    session: PerProcess<Session>,
    /// Locked with the gate held.
    holds: Mutex<Holds>,
}

/// Numbers of handles that need the connection. They are counted because a handle that a thread of
/// the parent used during a fork is never dropped in the child.
#[derive(Default)]
struct Holds {
    /// The process that `own` belongs to.
    process: u64,
    /// Handles that a child of `fork` shares.
    shared: usize,
    /// Handles that a child of `fork` does not have.
    own: usize,
    disconnected: bool,
}

/// Whether a child of `fork` shares a handle.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hold {
    Shared,
    Own,
}

impl Holds {
    fn of(&mut self, process: u64) -> &mut Self {
        if std::mem::replace(&mut self.process, process) != process {
            self.own = 0;
        }
        self
    }

    fn count(&mut self, hold: Hold) -> &mut usize {
        match hold {
            Hold::Shared => &mut self.shared,
            Hold::Own => &mut self.own,
        }
    }

    /// Whether nothing needs the connection any longer.
    fn is_over(&self) -> bool {
        self.disconnected && self.shared == 0 && self.own == 0
    }
}

impl Connection {
    pub(crate) fn new(config: ClientConfig, program: String, caller: Caller) -> Result<Self> {
        let session = PerProcess::new(Session::open(&config, &program)?);
        let (context, holds) = (Context::of(caller), Mutex::default());
        Ok(Self { config, program, context, session, holds })
    }

    /// Counts a handle that needs the connection.
    pub(crate) fn hold(&self, hold: Hold) {
        self.held(|holds| *holds.count(hold) += 1);
    }

    /// Uncounts a handle.
    pub(crate) fn release(&self, hold: Hold) {
        self.held(|holds| {
            let count = holds.count(hold);
            *count = count.saturating_sub(1);
        });
    }

    /// Ends the use of the connection: its session ends with the last handle that needs it.
    pub(crate) fn disconnect(&self) {
        self.held(|holds| holds.disconnected = true);
    }

    fn held(&self, change: impl FnOnce(&mut Holds)) {
        let is_over = {
            let _gate = gate();
            let mut holds = self.holds.lock().unwrap_or_else(PoisonError::into_inner);
            change(holds.of(this()));
            holds.is_over()
        };
        if is_over {
            drop(self.session.take());
        }
    }

    /// The session of this process. A child of `fork` gets one of its own.
    pub(crate) fn session(&self) -> Result<Arc<Session>> {
        self.session.get(|| Session::open(&self.config, &self.program))
    }
}

/// A file that is open in one process.
pub(crate) struct Open {
    /// Declared before the session, because closing the file needs it.
    pub(crate) file: File,
    pub(crate) session: Arc<Session>,
    // A child of `fork` has its own `Open`.
    calls: Mutex<Calls>,
    ended: Condvar,
}

/// Running and queued calls on an open file.
#[derive(Default)]
struct Calls {
    under_way: usize,
    /// Whether further calls are refused.
    closed: bool,
}

impl Open {
    fn new(file: File, session: Arc<Session>) -> Self {
        Self { file, session, calls: Mutex::default(), ended: Condvar::new() }
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses further calls, and waits until all have ended. `patience`: the longest wait for the
    /// next one.
    fn end_calls(&self, patience: Duration) -> Result<()> {
        let mut calls = self.calls();
        calls.closed = true;
        while calls.under_way > 0 {
            let left = calls.under_way;
            let same = |calls: &mut Calls| calls.under_way == left;
            let waited = self.ended.wait_timeout_while(calls, patience, same);
            let (now, time) = waited.unwrap_or_else(PoisonError::into_inner);
            if time.timed_out() {
                let text =
                    format!("{left} calls by the file have not ended: their data may be lost");
                return Err(Error::new(ErrorKind::TimedOut, text));
            }
            calls = now;
        }
        Ok(())
    }
}

/// A call on an open file. Closing the file waits until this is dropped.
pub(crate) struct Using(Arc<Open>);

impl Using {
    fn begin(open: Arc<Open>) -> Result<Self> {
        let mut calls = open.calls();
        if calls.closed {
            return Err(Error::new(ErrorKind::BadHandle, "file: it is being closed"));
        }
        calls.under_way += 1;
        drop(calls);
        Ok(Self(open))
    }
}

impl Deref for Using {
    type Target = Arc<Open>;

    fn deref(&self) -> &Arc<Open> {
        &self.0
    }
}

impl Drop for Using {
    fn drop(&mut self) {
        self.calls().under_way -= 1;
        self.ended.notify_all();
    }
}

/// A file that a handle stands for.
pub(crate) struct OpenFile {
    pub(crate) connection: Arc<Connection>,
    pub(crate) id: FileId,
    pub(crate) rights: Rights,
    pub(crate) appends: bool,
    open: PerProcess<Open>,
    /// The process of a job on whose behalf it is read. Locked with the gate held.
    reader: Mutex<Option<Arc<JobReader>>>,
}

impl OpenFile {
    pub(crate) fn new(
        connection: Arc<Connection>,
        session: Arc<Session>,
        (file, rights, appends): (File, Rights, bool),
    ) -> Self {
        let id = file.id();
        connection.hold(Hold::Shared);
        let open = PerProcess::new(Open::new(file, session));
        Self { connection, id, rights, appends, open, reader: Mutex::default() }
    }

    /// Begins a call on the file as this process has it open. A child of `fork` opens it again.
    pub(crate) fn open(&self) -> Result<Using> {
        Using::begin(self.open.get(|| {
            let session = self.connection.session()?;
            let opened = session.client.open(&self.connection.context, self.id, self.rights);
            let (file, _) = opened.map_err(|e| e.context("open a file anew after fork"))?;
            Ok(Open::new(file, session))
        })?)
    }

    /// The process of a job on whose behalf it is read.
    pub(crate) fn reader(&self) -> Option<Arc<JobReader>> {
        let _gate = gate();
        self.reader.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets the process of a job on whose behalf it is read; `None`: no job.
    pub(crate) fn set_reader(&self, reader: Option<Arc<JobReader>>) {
        let _gate = gate();
        *self.reader.lock().unwrap_or_else(PoisonError::into_inner) = reader;
    }

    /// Closes the file of this process after all calls on it have ended.
    pub(crate) fn close(&self) -> Result<()> {
        // First, so that a child forked meanwhile has no handle. The open file keeps the session.
        self.connection.release(Hold::Shared);
        self.close_own()
    }

    fn close_own(&self) -> Result<()> {
        let Some(open) = self.open.take() else { return Ok(()) };
        let patience = self.connection.config.request_timeout_ms.saturating_mul(CALL_TIMEOUTS);
        open.end_calls(Duration::from_millis(patience))?;
        match Arc::try_unwrap(open) {
            Ok(Open { file, session, .. }) => {
                let closed = file.close(&self.connection.context);
                drop(session);
                closed
            }
            // Something still uses it, and closes it at its end.
            Err(shared) => shared.file.flush(&self.connection.context),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_ends_with_the_last_handle_that_its_process_has() {
        let mut holds = Holds::default();
        *holds.of(0).count(Hold::Shared) += 1;
        *holds.of(0).count(Hold::Own) += 1;
        holds.of(0).disconnected = true;
        assert!(!holds.is_over());
        *holds.of(0).count(Hold::Shared) -= 1;
        assert!(!holds.is_over(), "the parent still lists a directory");
        holds.of(1);
        assert!(holds.is_over(), "which a child of it does not");
        *holds.of(1).count(Hold::Own) += 1;
        assert!(!holds.is_over());
    }
}
