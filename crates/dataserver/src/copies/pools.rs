//! Threads that carry out changes of columns with several copies. They wait for other servers,
//! whereas disk threads wait for nothing but their disk. Each place in the chain has separate
//! threads, which wait only for those of later places; the last place is left to the disk threads.
//! So servers that wait for each other make progress. Each target has separate threads, so that a
//! slow or hung disk takes none of the others'.

use super::follow::follow;
use super::mend::serve_repair;
use super::{chain, order};
use crate::attempts::Sender;
use crate::disk::Disk;
use crate::machine::{Change, Outcome};
use crate::queue::Admission;
use crate::queue::backlog::Backlog;
use crate::queue::tasks::{ChangeTask, Data, Event, MirrorJob};
use crate::state::Shared;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool,
    Ordering::{AcqRel, Release},
};
use weir_host::sync::Mutex;
use weir_host::thread::{self, JoinHandle};
use weir_net::{AbortOnPanic, ConnId};
use weir_types::{Error, ErrorKind, Result, TargetId};

/// Threads of a target for each place in the chain: the number of changes under way at once.
const THREADS: [usize; 8] = [16, 8, 4, 4, 4, 4, 4, 4];

struct Pool {
    backlog: Backlog<ChangeTask>,
    started: AtomicBool,
}

/// The threads of all targets; see the top of the file. They are started when there is work for
/// them.
pub(crate) struct Pools {
    /// Pools by target, and by place in the chain.
    pools: BTreeMap<TargetId, Vec<Arc<Pool>>>,
    /// Whether there is a thread for staged bytes.
    watches: AtomicBool,
    threads: Mutex<Vec<JoinHandle>>,
}

impl Pools {
    pub(crate) fn new(targets: impl Iterator<Item = TargetId>, queue_limit: usize) -> Self {
        let pool = |_| {
            let (backlog, started) = (Backlog::new(queue_limit), AtomicBool::new(false));
            Arc::new(Pool { backlog, started })
        };
        let pools = targets.map(|target| (target, THREADS.iter().map(pool).collect())).collect();
        Self { pools, watches: AtomicBool::new(false), threads: Mutex::default() }
    }

    /// Adds a change. Returns `Full` if its connection must pause.
    ///
    /// Errors: the target is not open, or no threads can be started.
    pub(crate) fn submit(
        &self,
        shared: &Arc<Shared>,
        task: ChangeTask,
        conn: ConnId,
    ) -> Result<Admission> {
        let depth = match &task.job {
            MirrorJob::Change(change) => match &change.access.relay {
                Some(relay) => chain::depth(&change.access.copies, task.target, relay),
                None => 0,
            },
            MirrorJob::Repair(_) => 0,
        };
        let depth = depth.min(THREADS.len() - 1);
        let target = task.target;
        let Some((pool, disk)) = self.pool(target, depth).zip(shared.disk(target)) else {
            return Err(Error::new(ErrorKind::TargetMissing, "not open"));
        };
        self.start(shared, (disk, pool), depth)?;
        let resume = task.reply_to.clone();
        Ok(pool.backlog.submit(task, conn, resume, |_| ()))
    }

    fn pool(&self, target: TargetId, depth: usize) -> Option<&Arc<Pool>> {
        self.pools.get(&target)?.get(depth)
    }

    fn start(
        &self,
        shared: &Arc<Shared>,
        (disk, pool): (&Arc<Disk>, &Arc<Pool>),
        depth: usize,
    ) -> Result<()> {
        if pool.started.swap(true, AcqRel) {
            return Ok(());
        }
        for n in 0..THREADS[depth] {
            let (shared, disk, of) = (shared.clone(), disk.clone(), pool.clone());
            let target = disk.served.id;
            let body = move || {
                let _guard = AbortOnPanic("a thread for copies");
                of.work_off(&shared, &disk);
            };
            match thread::spawn(&format!("weir-mirror-{target}.{depth}.{n}"), body) {
                Ok(thread) => self.threads.lock().push(thread),
                // The next change tries again.
                Err(error) if n == 0 => {
                    pool.started.store(false, Release);
                    return Err(Error::from(error).context("start a thread"));
                }
                Err(error) => {
                    tracing::warn!("cannot start all threads for copies: {error}");
                    break;
                }
            }
        }
        Ok(())
    }

    /// Starts the thread for staged bytes, if it is not running.
    ///
    /// Errors: it cannot be started.
    pub(crate) fn watch_staged(&self, shared: &Arc<Shared>) -> Result<()> {
        if self.watches.swap(true, AcqRel) {
            return Ok(());
        }
        let of = shared.clone();
        let body = move || {
            let _guard = AbortOnPanic("a thread for copies");
            of.copies.staged.watch(give_up);
        };
        match thread::spawn("weir-staged", body) {
            Ok(thread) => {
                self.threads.lock().push(thread);
                Ok(())
            }
            Err(error) => {
                self.watches.store(false, Release);
                Err(Error::from(error).context("start a thread"))
            }
        }
    }

    /// Refuses waiting changes of a target that was given up.
    pub(crate) fn refuse(&self, target: TargetId, error: &Error) {
        for pool in self.pools.get(&target).into_iter().flatten() {
            for ChangeTask { op, data, reply_to, .. } in
                pool.backlog.take_out(|_| true, |task| task)
            {
                reply_to.post(Event::Done { op, result: Err(error.clone()), data });
            }
        }
    }

    /// Ends the threads once the queues are empty, and returns them to be joined.
    pub(crate) fn stop(&self) -> Vec<JoinHandle> {
        self.pools.values().flatten().for_each(|pool| pool.backlog.stop());
        std::mem::take(&mut *self.threads.lock())
    }
}

impl Pool {
    fn work_off(&self, shared: &Shared, disk: &Disk) {
        while let Some(task) = self.backlog.next(|_| ()) {
            let ChangeTask { op, job, mut data, sender, reply_to, .. } = task;
            let mut answered = false;
            let result = match &job {
                MirrorJob::Change(change) => {
                    let early = |outcome: &Outcome| {
                        let (result, data) = (Ok(outcome.clone()), Data::default());
                        reply_to.post(Event::Done { op, result, data });
                        answered = true;
                    };
                    let change = (&**change, sender.as_ref());
                    let result = in_turn(shared, disk, change, &mut data, early);
                    let change = change.0;
                    shared.copies.repairs.notice(disk.served.id, change, &result);
                    result
                }
                MirrorJob::Repair(work) => serve_repair(shared, disk, work),
            };
            if !answered {
                reply_to.post(Event::Done { op, result, data });
            }
        }
    }
}

/// Refuses a change whose staged bytes have not come.
fn give_up((_, task): (ConnId, ChangeTask)) {
    let ChangeTask { op, data, reply_to, .. } = task;
    reply_to.post(Event::Done { op, result: Err(ErrorKind::NotStaged.into()), data });
}

fn in_turn(
    shared: &Shared,
    disk: &Disk,
    (change, sender): (&Change, Option<&Sender>),
    data: &mut Data,
    early: impl FnOnce(&Outcome),
) -> Result<Outcome> {
    let carry_out = || match &change.access.relay {
        None => {
            let since = sender.map(Sender::since);
            order::order(shared, disk, (change, since), data, early)
        }
        Some(relay) => follow(shared, disk, change, relay, data),
    };
    match sender {
        Some(sender) => sender.in_turn(disk.served.id, carry_out),
        None => carry_out(),
    }
}
