//! Threads that tell the kernel to drop pages, or a file's minimum size.
//!
//! Invariant: no thread that serves requests asks the kernel itself, and none waits for ever: the
//! kernel waits for pages that are being read or written, and those requests need threads, too.
//! (Attributes alone it drops without waiting for any.)

use crate::kernel::pages::PAGE_BYTES;
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use weir_fuse::{NodeId, Notifier};
use weir_types::FileId;

/// The most threads, and so the most drops that are stuck behind pages in use. When a mount is cut
/// off, that may be a page or two of each file being read.
const MAX_THREADS: usize = 512;
/// The most drops that wait for a thread. Each has a waiting thread, so they are bounded by the
/// threads of the mount and of the client. Further drops are refused, and no page counts as dropped
/// wrongly.
const MAX_QUEUED: usize = 4096;

/// Asks the kernel to drop pages.
#[derive(Clone, Default)]
pub(crate) struct Dropper {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// Empty until the mount is complete: before that there are no pages either.
    notifier: OnceLock<Notifier>,
    state: Mutex<State>,
    work: Condvar,
    done: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Job>,
    /// Drops of single pages that are queued or under way, the last for each page. Bounded by
    /// those.
    pages: HashMap<(FileId, u64), Arc<Progress>>,
    threads: usize,
    idle: usize,
}

struct Job {
    file: FileId,
    what: What,
    progress: Arc<Progress>,
}

enum What {
    /// Drop the pages of these bytes.
    Drop(Range<u64>),
    /// Raise the file's size. The kernel may wait for the page of byte `from` after it knows the
    /// size. With `empty` it has no such page, and makes one that is not read yet, which would
    /// split reads across it.
    Raise { size: u64, from: u64, empty: bool },
    /// Drop the attributes of a node, access control lists included.
    Forget,
}

impl State {
    /// Ends a job.
    fn forget(&mut self, job: &Job) {
        let Some(page) = job.what.page() else { return };
        let page = (job.file, page);
        if self.pages.get(&page).is_some_and(|last| Arc::ptr_eq(last, &job.progress)) {
            self.pages.remove(&page);
        }
    }
}

impl What {
    /// The single page of the drop. (A drop of as many bytes in two pages has none: its waiter for
    /// the second page has dropped the first.)
    fn page(&self) -> Option<u64> {
        let What::Drop(bytes) = self else { return None };
        let is_whole = bytes.start.is_multiple_of(PAGE_BYTES);
        let is_one = bytes.end.checked_sub(bytes.start) == Some(PAGE_BYTES);
        (is_whole && is_one).then_some(bytes.start)
    }
}

#[derive(Default)]
struct Progress {
    /// The thread that runs the job.
    thread: OnceLock<rustix::thread::Pid>,
    done: OnceLock<()>,
}

/// A job under way.
pub(crate) struct Dropping {
    progress: Arc<Progress>,
    shared: Arc<Shared>,
}

impl Dropper {
    /// Attaches the mount's notifier.
    pub(crate) fn attach(&self, notifier: Notifier) {
        // A mount is attached once.
        let _ = self.shared.notifier.set(notifier);
    }

    /// Begins to drop the pages of these bytes. If another drop is waiting for the same single
    /// page, that one is used: it drops the page later than a new one would have begun. (A page
    /// that is locked by one write after another may otherwise be waited for by dozens of drops.)
    pub(crate) fn start(&self, file: FileId, bytes: Range<u64>) -> Dropping {
        let what = What::Drop(bytes);
        if let Some(page) = what.page() {
            let waits = self.shared.lock().pages.get(&(file, page)).cloned();
            if let Some(progress) = waits.filter(|progress| progress.is_blocked()) {
                return Dropping { progress, shared: self.shared.clone() };
            }
        }
        self.queue(file, what)
    }

    /// Begins to raise the size of a file. When the job is blocked, the size is raised.
    pub(crate) fn raise(&self, file: FileId, size: u64, from: u64, empty: bool) -> Dropping {
        self.queue(file, What::Raise { size, from, empty })
    }

    /// Begins to drop the attributes of a node.
    pub(crate) fn forget(&self, node: NodeId) -> Dropping {
        self.queue(FileId(node), What::Forget)
    }

    /// Drops the attributes of a node. Returns whether the kernel has it.
    pub(crate) fn forget_now(&self, node: NodeId) -> bool {
        let Some(notifier) = self.shared.notifier.get() else { return true };
        // It fails only at the end of a mount, when nobody reads any more.
        notifier.forget_attributes(node).unwrap_or(true)
    }

    /// Whether the mount is complete.
    pub(crate) fn is_attached(&self) -> bool {
        self.shared.notifier.get().is_some()
    }

    fn queue(&self, file: FileId, what: What) -> Dropping {
        let progress = Arc::new(Progress::default());
        let dropping = Dropping { progress: progress.clone(), shared: self.shared.clone() };
        let nothing = matches!(&what, What::Drop(bytes) if bytes.is_empty());
        if self.shared.notifier.get().is_none() || nothing {
            let _ = progress.done.set(());
            return dropping;
        }
        let mut state = self.shared.lock();
        if state.queue.len() >= MAX_QUEUED {
            tracing::error!("file {file}: too many drops of pages are waiting; one is refused");
            return dropping;
        }
        if let Some(page) = what.page() {
            state.pages.insert((file, page), progress.clone());
        }
        state.queue.push_back(Job { file, what, progress });
        if state.queue.len() > state.idle && state.threads < MAX_THREADS {
            let shared = self.shared.clone();
            let run = move || shared.run();
            match std::thread::Builder::new().name("weir-drop".into()).spawn(run) {
                Ok(_) => state.threads += 1,
                Err(error) => tracing::warn!(%error, "cannot start a thread for dropping pages"),
            }
        }
        drop(state);
        self.shared.work.notify_one();
        dropping
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut state = self.lock();
        loop {
            let Some(job) = state.queue.pop_front() else {
                state.idle += 1;
                state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
                state.idle -= 1;
                continue;
            };
            drop(state);
            let _ = job.progress.thread.set(rustix::thread::gettid());
            self.tell(&job);
            state = self.lock();
            let _ = job.progress.done.set(());
            state.forget(&job);
            self.done.notify_all();
        }
    }

    fn tell(&self, job: &Job) {
        let Some(notifier) = self.notifier.get() else { return };
        let told = match &job.what {
            What::Drop(bytes) => match i64::try_from(bytes.start) {
                Ok(offset) => {
                    // A length of 0 is to the end.
                    let length = i64::try_from(bytes.end).map_or(0, |end| end - offset);
                    notifier.inval_inode(job.file.0, offset, length)
                }
                Err(_) => return,
            },
            What::Raise { size, from, empty } => {
                let raised = notifier.raise_size(job.file.0, *size, *from);
                match i64::try_from(*from) {
                    Ok(offset) if *empty => {
                        raised.and_then(|()| notifier.inval_inode(job.file.0, offset, 1))
                    }
                    _ => raised,
                }
            }
            What::Forget => notifier.inval_inode(job.file.0, -1, 0),
        };
        if let Err(error) = told {
            // Only at the end of a mount, when nobody reads any more.
            tracing::debug!("file {}: {error}", job.file);
        }
    }
}

impl Progress {
    fn is_blocked(&self) -> bool {
        let Some(thread) = self.thread.get() else { return false };
        let stat =
            std::fs::read_to_string(format!("/proc/self/task/{}/stat", thread.as_raw_nonzero()));
        let waits = |stat: String| Some(stat.rsplit_once(") ")?.1.starts_with('D'));
        let waiting = stat.ok().and_then(waits).unwrap_or(false);
        // Else it may be at another job by now.
        self.done.get().is_none() && waiting
    }
}

impl Dropping {
    /// Whether the job waits in the kernel for a locked page, and not for a processor.
    pub(crate) fn is_blocked(&self) -> bool {
        self.progress.is_blocked()
    }

    /// Waits until the job is done, or until this time. Returns whether it is done.
    pub(crate) fn wait(&self, until: Instant) -> bool {
        let mut state = self.shared.lock();
        loop {
            if self.progress.done.get().is_some() {
                return true;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left == Duration::ZERO {
                return false;
            }
            let waited = self.shared.done.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_page_is_a_whole_one() {
        assert_eq!(What::Drop(8192..12_288).page(), Some(8192));
        for bytes in [0..0, 0..8192, 100..4196, 0..u64::MAX] {
            assert_eq!(What::Drop(bytes).page(), None);
        }
        assert_eq!(What::Raise { size: 4096, from: 0, empty: false }.page(), None);
    }
}
