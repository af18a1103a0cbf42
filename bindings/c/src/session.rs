//! A session of this process with a cluster, and what it holds open.

use crate::process::{PerProcess, gate};
use crate::recalls::Recalls;
use std::sync::{Arc, Mutex, PoisonError};
use weir_client::job::JobReader;
use weir_client::{Client, ClientConfig, Context, File};
use weir_types::{Caller, FileId, Result};
use weir_wire::capability::Rights;

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
        let open = PerProcess::new(Open { file, session });
        Self { connection, id, rights, appends, open, reader: Mutex::default() }
    }

    /// As this process has it open: a child of `fork` opens it anew.
    pub(crate) fn open(&self) -> Result<Arc<Open>> {
        self.open.get(|| {
            let session = self.connection.session()?;
            let opened = session.client.open(&self.connection.context, self.id, self.rights);
            let (file, _) = opened.map_err(|e| e.context("open a file anew after fork"))?;
            Ok(Open { file, session })
        })
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

    /// What this process had open, to be closed.
    pub(crate) fn close(&self) -> Option<Arc<Open>> {
        self.open.take()
    }
}
