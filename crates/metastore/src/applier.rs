//! Moving commits from memory into redb: one thread that takes a generation of
//! writes at a time.

use crate::directory::sync_directory;
use crate::engine::Sequence;
use crate::overlay::Overlay;
use crate::syncer::{Notify, SyncState};
use crate::tree::{Tree, TreeSnapshot};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use weir_types::{Error, Result};

/// A generation of writes that is to become part of the tree.
pub(crate) struct Job {
    /// The writes.
    pub overlay: Arc<Overlay>,
    /// The last of their commits.
    pub upto: Sequence,
    /// The segment that holds them, not needed afterwards.
    pub retire: PathBuf,
    /// The segment that follows.
    pub next_segment: Arc<File>,
}

/// The thread that applies. At most one job is given to it at a time, so its
/// queues never hold more than one thing.
pub(crate) struct Applier {
    jobs: Option<Sender<Job>>,
    applied: Receiver<Result<TreeSnapshot>>,
    thread: Option<JoinHandle<()>>,
}

impl Applier {
    pub fn start(
        dir: PathBuf,
        tree: Arc<Tree>,
        sync: Arc<SyncState>,
        notify: Notify,
    ) -> std::io::Result<Self> {
        let (jobs, todo) = channel::<Job>();
        let (done, applied) = channel();
        let run = move || {
            for job in todo {
                let result = apply(&dir, &tree, &sync, job);
                let failed = result.is_err();
                if let Err(e) = &result {
                    sync.fail(e.clone());
                }
                if done.send(result).is_err() || failed {
                    return;
                }
                notify();
            }
        };
        let thread = std::thread::Builder::new().name("meta-apply".into()).spawn(run)?;
        Ok(Self { jobs: Some(jobs), applied, thread: Some(thread) })
    }

    /// Hands over a generation; the one before is done.
    pub fn give(&self, job: Job) -> Result<()> {
        let sent = self.jobs.as_ref().map(|jobs| jobs.send(job));
        if matches!(sent, Some(Ok(()))) { Ok(()) } else { Err(stopped()) }
    }

    /// The tree after the generation handed over, if it is done.
    pub fn try_take(&self) -> Option<Result<TreeSnapshot>> {
        match self.applied.try_recv() {
            Ok(applied) => Some(applied),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(stopped())),
        }
    }

    /// Waits for the generation handed over.
    pub fn take(&self) -> Result<TreeSnapshot> {
        self.applied.recv().map_err(|_| stopped())?
    }
}

impl Drop for Applier {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported; there is nothing to add.
            let _ = thread.join();
        }
    }
}

fn stopped() -> Error {
    Error::new(weir_types::ErrorKind::Io, "the thread that commits to tree.redb has stopped")
}

fn apply(dir: &Path, tree: &Tree, sync: &SyncState, job: Job) -> Result<TreeSnapshot> {
    // redb must not get ahead of the log: after a power cut the log would have
    // a hole where redb's commits were, and no segment that follows them.
    sync.wait(job.upto)?;
    let io = |e: std::io::Error| Error::from(e).context(dir.display());
    job.next_segment.sync_all().map_err(io)?;
    sync_directory(dir).map_err(io)?;
    tree.apply(&job.overlay, job.upto)?;
    if let Err(error) = std::fs::remove_file(&job.retire) {
        // Only space is lost, and only until the next start.
        tracing::warn!(file = %job.retire.display(), %error, "cannot remove an applied log segment");
    }
    tree.snapshot()
}
