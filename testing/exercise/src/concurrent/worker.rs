//! The processes of a concurrent exercise, and the one that starts them and judges.

use super::appends::Appends;
use super::blocks::Blocks;
use super::calls::{Calls, Place, System};
use super::kind::{Exercise, Kind, Plan};
use super::names::Names;
use super::sizes::{Ends, Sizes};
use crate::Outcome;
use crate::linear::Event;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// The environment variable that makes a process a worker.
const VARIABLE: &str = "WEIR_EXERCISE_WORKER";
/// Delay from the start of the processes to the first operation.
const START_AFTER: Duration = Duration::from_millis(150);

/// How to start a program that calls [`run_worker_if_asked`].
#[derive(Clone, Debug)]
pub struct Launcher {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Additional environment variables.
    pub environment: Vec<(OsString, OsString)>,
    /// A local directory for the reports of the processes.
    pub scratch: PathBuf,
}

/// The result of an exercise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Number of operations.
    pub operations: usize,
    /// Number of adjacent pairs of operations that overlapped. A run without any has tested
    /// nothing.
    pub overlapping: usize,
}

#[derive(Debug, Serialize, Deserialize)]
struct Task {
    kind: Kind,
    plan: Plan,
    dirs: Vec<PathBuf>,
    process: u32,
    start_ns: u64,
    history: PathBuf,
}

/// The machine's monotonic clock, nanoseconds.
fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// If this process was started as a worker, does its part and returns true.
pub fn run_worker_if_asked() -> Outcome<bool> {
    run_worker_over(|_| Ok(Arc::new(System)))
}

/// As [`run_worker_if_asked`], with other calls: `connect` returns those of a thread for its
/// directory.
pub fn run_worker_over(connect: impl Fn(&Path) -> Outcome<Arc<dyn Calls>> + Sync) -> Outcome<bool> {
    let Ok(task) = std::env::var(VARIABLE) else { return Ok(false) };
    let task: Task = serde_json::from_str(&task).map_err(|e| format!("{VARIABLE}: {e}"))?;
    match task.kind {
        Kind::Blocks => work::<Blocks>(&task, &connect),
        Kind::Appends => work::<Appends>(&task, &connect),
        Kind::Names => work::<Names>(&task, &connect),
        Kind::Sizes => work::<Sizes>(&task, &connect),
        Kind::Ends => work::<Ends>(&task, &connect),
    }?;
    Ok(true)
}

type Connect<'a> = &'a (dyn Fn(&Path) -> Outcome<Arc<dyn Calls>> + Sync);

fn work<E: Exercise>(task: &Task, connect: Connect<'_>) -> Outcome {
    let histories: Vec<Outcome<Vec<_>>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..task.plan.threads)
            .map(|t| scope.spawn(move || thread::<E>(task, t, connect)))
            .collect();
        let ended = |t: std::thread::ScopedJoinHandle<'_, _>| {
            t.join().unwrap_or_else(|_| Err("a thread panicked".to_owned()))
        };
        threads.into_iter().map(ended).collect()
    });
    let mut events = Vec::new();
    for history in histories {
        events.extend(history?);
    }
    let text = serde_json::to_vec(&events).map_err(|e| e.to_string())?;
    std::fs::write(&task.history, text).map_err(|e| format!("{}: {e}", task.history.display()))
}

type History<E> = Vec<Event<<E as Exercise>::Op, <E as Exercise>::Result>>;

fn thread<E: Exercise>(task: &Task, thread: u32, connect: Connect<'_>) -> Outcome<History<E>> {
    let caller = task.process * task.plan.threads + thread;
    // All mounts have the same number of callers.
    let dir = &task.dirs[caller as usize % task.dirs.len()];
    let mut rng = fastrand::Rng::with_seed(task.plan.seed ^ (u64::from(caller) << 32));
    let mut exercise = E::open(&Place { calls: connect(dir)?, dir: dir.clone() }, caller)?;
    let mut events = Vec::new();
    let wait = task.start_ns.saturating_sub(now_ns());
    std::thread::sleep(Duration::from_nanos(wait));
    for _ in 0..task.plan.operations {
        let op = exercise.choose(&mut rng);
        let invoked_ns = now_ns();
        let result = exercise.perform(&op);
        let returned_ns = now_ns();
        let result = result.map_err(|e| format!("caller {caller}: {op:?}: {e}"))?;
        events.push(Event { caller, op, result, invoked_ns, returned_ns });
        if task.plan.rest_us > 0 {
            std::thread::sleep(Duration::from_micros(rng.u64(..task.plan.rest_us)));
        }
    }
    Ok(events)
}

/// Runs one exercise in a new directory `name` of each mount of one file system.
pub fn run(
    kind: Kind,
    mounts: &[PathBuf],
    name: &str,
    plan: &Plan,
    launcher: &Launcher,
) -> Outcome<Report> {
    Running::start(kind, mounts, name, plan, launcher)?.finish()
}

/// As [`run`], with other calls than system calls. The program calls [`run_worker_over`].
pub fn run_over(
    kind: Kind,
    places: &[Place],
    name: &str,
    plan: &Plan,
    launcher: &Launcher,
) -> Outcome<Report> {
    Running::start_over(kind, places, name, plan, launcher)?.finish()
}

/// Running callers. This process has no file of the mounts open meanwhile, because it may have to
/// start what the mounts wait for.
pub struct Running {
    kind: Kind,
    plan: Plan,
    places: Vec<Place>,
    workers: Vec<Worker>,
}

impl Running {
    /// Makes the directory and starts the callers, as in [`run`].
    pub fn start(
        kind: Kind,
        mounts: &[PathBuf],
        name: &str,
        plan: &Plan,
        launcher: &Launcher,
    ) -> Outcome<Self> {
        let places: Vec<Place> = mounts.iter().map(|mount| Place::local(mount)).collect();
        Self::start_over(kind, &places, name, plan, launcher)
    }

    /// Makes the directory and starts the callers, as in [`run_over`].
    pub fn start_over(
        kind: Kind,
        places: &[Place],
        name: &str,
        plan: &Plan,
        launcher: &Launcher,
    ) -> Outcome<Self> {
        let places: Vec<Place> = places.iter().map(|place| place.join(name)).collect();
        let first = places.first().ok_or("no directory")?;
        let made = first.calls.create_dir(&first.dir);
        made.map_err(|e| format!("{}: {e}", first.dir.display()))?;
        match kind {
            Kind::Blocks => Blocks::prepare(first),
            Kind::Appends => Appends::prepare(first),
            Kind::Names => Names::prepare(first),
            Kind::Sizes => Sizes::prepare(first),
            Kind::Ends => Ends::prepare(first),
        }?;
        let start_ns = now_ns() + START_AFTER.as_nanos() as u64;
        let mut running = Self { kind, plan: plan.clone(), places, workers: Vec::new() };
        for process in 0..plan.processes {
            let history = launcher.scratch.join(format!("{name}-{process}.json"));
            let dirs = running.places.iter().map(|place| place.dir.clone()).collect();
            let plan = plan.clone();
            let task = Task { kind, plan, dirs, process, start_ns, history };
            running.workers.push(Worker::start(launcher, task)?);
        }
        Ok(running)
    }

    /// Waits for the callers and checks what they saw. Removes the directory if nothing is wrong.
    pub fn finish(mut self) -> Outcome<Report> {
        let workers = std::mem::take(&mut self.workers);
        let done = match self.kind {
            Kind::Blocks => self.judge::<Blocks>(workers),
            Kind::Appends => self.judge::<Appends>(workers),
            Kind::Names => self.judge::<Names>(workers),
            Kind::Sizes => self.judge::<Sizes>(workers),
            Kind::Ends => self.judge::<Ends>(workers),
        };
        let (kind, plan, mounts) = (self.kind, &self.plan, self.places.len());
        done.map_err(|e| format!("{kind:?} with {plan:?} on {mounts} mounts: {e}"))
    }

    fn judge<E: Exercise>(&self, workers: Vec<Worker>) -> Outcome<Report> {
        let mut events: History<E> = Vec::new();
        for worker in workers {
            events.extend(worker.finish::<E>()?);
        }
        E::check(&events, &self.places)?;
        if let Some(Place { calls, dir }) = self.places.first() {
            calls.remove_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        }
        Ok(Report { operations: events.len(), overlapping: overlapping(&mut events) })
    }
}

fn overlapping<O, R>(events: &mut [Event<O, R>]) -> usize {
    events.sort_by_key(|e| e.invoked_ns);
    events.windows(2).filter(|pair| pair[1].invoked_ns <= pair[0].returned_ns).count()
}

struct Worker {
    child: Child,
    history: PathBuf,
    log: PathBuf,
}

impl Worker {
    fn start(launcher: &Launcher, task: Task) -> Outcome<Self> {
        let log = task.history.with_extension("log");
        let output = |e: std::io::Error| format!("{}: {e}", log.display());
        let stderr = std::fs::File::create(&log).map_err(output)?;
        let text = serde_json::to_string(&task).map_err(|e| e.to_string())?;
        let child = Command::new(&launcher.program)
            .args(&launcher.arguments)
            .envs(launcher.environment.iter().cloned())
            .env(VARIABLE, text)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr)
            .spawn()
            .map_err(|e| format!("{}: {e}", launcher.program.display()))?;
        Ok(Self { child, history: task.history, log })
    }

    fn finish<E: Exercise>(mut self) -> Outcome<History<E>> {
        let status = self.child.wait().map_err(|e| e.to_string())?;
        if !status.success() {
            let log = std::fs::read_to_string(&self.log).unwrap_or_default();
            return Err(format!("a worker ended with {status}:\n{log}"));
        }
        let read = |path: &Path| {
            let text = std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
            serde_json::from_slice(&text).map_err(|e| format!("{}: {e}", path.display()))
        };
        read(&self.history)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It has ended already, unless something else failed first.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
