//! A session of this process with a cluster, and what it holds open.

use crate::process::{PerProcess, gate};
use crate::recalls::Recalls;
use std::ops::Deref;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use weir_client::job::JobReader;
use weir_client::{Client, ClientConfig, Context, File};
use weir_types::{Caller, Error, ErrorKind, FileId, Result};
use weir_wire::capability::Rights;

/// Request timeouts within which a call ends that makes several requests.
const CALL_TIMEOUTS: u64 = 4;

/// What each process has for itself.
pub(crate) struct Session {
    pub(crate) client: Client,
    pub(crate) recalls: Arc<Recalls>,
}

impl Session {
    fn open(config: &ClientConfig) -> Result<Self> {
        let recalls = Arc::new(Recalls::default());
        let client = Client::connect_with(config.clone(), recalls.clone())?;
        Ok(Self { client, recalls })
    }
}

/// A cluster that is connected to.
pub(crate) struct Connection {
    config: ClientConfig,
    pub(crate) context: Context,
    session: PerProcess<Session>,
}

impl Connection {
    pub(crate) fn new(config: ClientConfig, caller: Caller) -> Result<Self> {
        let session = PerProcess::new(Session::open(&config)?);
        Ok(Self { config, context: Context::of(caller), session })
    }

    /// The session of this process: a child of `fork` gets one of its own.
    pub(crate) fn session(&self) -> Result<Arc<Session>> {
        self.session.get(|| Session::open(&self.config))
    }
}

/// A file that is open in one process.
pub(crate) struct Open {
    /// Before the session: its close needs that.
    pub(crate) file: File,
    pub(crate) session: Arc<Session>,
    // A child of `fork` has its own `Open`.
    calls: Mutex<Calls>,
    ended: Condvar,
}

/// Calls by an open file, queued ones too.
#[derive(Default)]
struct Calls {
    under_way: usize,
    /// No more begin.
    closed: bool,
}

impl Open {
    fn new(file: File, session: Arc<Session>) -> Self {
        Self { file, session, calls: Mutex::default(), ended: Condvar::new() }
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets no more calls begin, and waits until all have ended. `patience`: for the next one.
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

/// A call by an open file: closing the file waits until this is dropped.
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
    /// For which process of a job it is read. Locked with the gate held.
    reader: Mutex<Option<Arc<JobReader>>>,
}

impl OpenFile {
    pub(crate) fn new(
        connection: Arc<Connection>,
        session: Arc<Session>,
        (file, rights, appends): (File, Rights, bool),
    ) -> Self {
        let id = file.id();
        let open = PerProcess::new(Open::new(file, session));
        Self { connection, id, rights, appends, open, reader: Mutex::default() }
    }

    /// Begins a call by it as this process has it open: a child of `fork` opens it anew.
    pub(crate) fn open(&self) -> Result<Using> {
        Using::begin(self.open.get(|| {
            let session = self.connection.session()?;
            let opened = session.client.open(&self.connection.context, self.id, self.rights);
            let (file, _) = opened.map_err(|e| e.context("open a file anew after fork"))?;
            Ok(Open::new(file, session))
        })?)
    }

    /// For which process of a job it is read.
    pub(crate) fn reader(&self) -> Option<Arc<JobReader>> {
        let _gate = gate();
        self.reader.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// It is read for this process of a job from now on; `None`: for none.
    pub(crate) fn set_reader(&self, reader: Option<Arc<JobReader>>) {
        let _gate = gate();
        *self.reader.lock().unwrap_or_else(PoisonError::into_inner) = reader;
    }

    /// Closes what this process has open, when all calls by it have ended.
    pub(crate) fn close(&self) -> Result<()> {
        let Some(open) = self.open.take() else { return Ok(()) };
        let patience = self.connection.config.request_timeout_ms.saturating_mul(CALL_TIMEOUTS);
        open.end_calls(Duration::from_millis(patience))?;
        match Arc::try_unwrap(open) {
            Ok(Open { file, session, .. }) => {
                let closed = file.close(&self.connection.context);
                drop(session);
                closed
            }
            // Something holds it still: what ends last closes it.
            Err(shared) => shared.file.flush(&self.connection.context),
        }
    }
}
