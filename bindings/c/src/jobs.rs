//! Jobs: processes that read together, in phases with a barrier after each (1.01).
//!
//! A barrier consists of names in a directory of the cluster: each process creates one for each
//! barrier, and waits until all exist. No other communication between the processes is needed.

use crate::args::{check_place, list, put, range, text};
use crate::error::{invalid, status};
use crate::handles::{self, Handled, weir_file_t, weir_fs_t, weir_job_t};
use crate::names::Named;
use crate::session::{Connection, Hold, OpenFile};
use std::collections::BTreeMap;
use std::ffi::{c_char, c_int};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use weir_client::CreateOptions;
use weir_client::job::{JobReader, Member, Partition, job_named, parent_number};
use weir_types::{Error, ErrorKind, FileId, FileKind, Rank, Result};

/// Maximum number of processes of a job.
const MAX_RANKS: u32 = 1 << 20;
/// Maximum number of ranges of a file that a process reads in a phase.
const MAX_RANGES: usize = 1 << 20;
/// First interval between two looks at the names.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
/// Longest interval between two looks at the names.
const LAST_PAUSE: Duration = Duration::from_millis(50);
/// Names requested at once.
const PAGE: u32 = 1024;
/// Maximum number of ranks that an error names.
const NAMED: usize = 8;

/// A range of a file.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct weir_range_t {
    /// First byte.
    pub offset: u64,
    /// Length, bytes.
    pub len: u64,
}

#[derive(Default)]
struct State {
    /// Number of passed barriers.
    barriers: u64,
    /// The last barrier that this process has announced; 0: none.
    marked: u64,
    files: Vec<Arc<OpenFile>>,
}

pub(crate) struct Job {
    connection: Arc<Connection>,
    member: Member,
    /// The directory of the barriers; `None`: the job has none.
    dir: Option<FileId>,
    name: String,
    // Belongs to one process: see `SURVIVES_FORK`.
    state: Mutex<State>,
}

impl Handled for Job {
    const KIND: u64 = 6;
    const NAME: &'static str = "job";
    const SURVIVES_FORK: bool = false;
}

/// Joins a job. `name` identifies the job among those of this user. NULL: job, rank and number of
/// ranks come from the environment of mpirun, srun, torchrun or `weir run`, and `rank` and `ranks`
/// are ignored. `dir` is a directory of the cluster in which the processes wait for each other;
/// NULL: they do not wait. The directory must not contain leftovers of a job of the same name.
///
/// # Safety
/// The pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_job_begin(
    fs: weir_fs_t,
    name: *const c_char,
    dir: *const c_char,
    rank: u32,
    ranks: u32,
    job: *mut weir_job_t,
) -> c_int {
    status(|| {
        check_place(job, "job")?;
        let connection = handles::get::<Connection>(fs)?;
        let member = match name.is_null() {
            true => from_environment(&connection)?,
            // SAFETY: by the contract of this function.
            false => named(unsafe { text(name, "name") }?, (rank, ranks), &connection)?,
        };
        let dir = match dir.is_null() {
            true => None,
            // SAFETY: by the contract of this function.
            false => Some(directory(&connection, unsafe { text(dir, "dir") }?)?),
        };
        let name = format!(".job-{:016x}", member.job.0);
        connection.hold(Hold::Own);
        let of = connection.clone();
        let made = Job { connection: of, member, dir, name, state: Mutex::default() };
        let failed = |_: &_| connection.release(Hold::Own);
        let handle = handles::add(Arc::new(made)).inspect_err(failed)?;
        // SAFETY: by the contract of this function.
        unsafe { put(job, handle, "job") }
    })
}

fn from_environment(connection: &Connection) -> Result<Member> {
    let all: Vec<(String, String)> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let by_name: BTreeMap<&str, &str> =
        all.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let parent = parent_number(std::os::unix::process::parent_id().into());
    let member = Member::of(&by_name, connection.context.caller.uid, parent);
    member.ok_or_else(|| invalid("the environment names no job: give the job a name"))
}

fn named(name: &[u8], (rank, ranks): (u32, u32), connection: &Connection) -> Result<Member> {
    let name = std::str::from_utf8(name).map_err(|_| invalid("the job's name is not UTF-8"))?;
    if ranks == 0 || ranks > MAX_RANKS || rank >= ranks {
        return Err(invalid(format!("rank {rank} of {ranks}: ranks are 0 to {ranks} - 1")));
    }
    let job = job_named(name, connection.context.caller.uid);
    Ok(Member { job, rank: Rank(rank), ranks, shared: false })
}

fn directory(connection: &Connection, path: &[u8]) -> Result<FileId> {
    let session = connection.session()?;
    let named = Named { connection, client: &session.client, path };
    let attr = named.about(named.attr(true))?;
    match attr.kind {
        FileKind::Directory => Ok(attr.file),
        _ => named.about(Err(ErrorKind::NotDirectory.into())),
    }
}

/// Begins a phase in which this process reads these ranges of a file; with a `count` of 0, all of
/// it. The servers try to make all processes of the job finish at about the same time.
///
/// # Safety
/// `ranges` is NULL or has `count` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_phase_begin(
    job: weir_job_t,
    file: weir_file_t,
    ranges: *const weir_range_t,
    count: usize,
) -> c_int {
    status(|| {
        if count > MAX_RANGES {
            return Err(invalid(format!("more than {MAX_RANGES} ranges")));
        }
        // SAFETY: by the contract of this function.
        let ranges = unsafe { list(ranges, count, "ranges") }?;
        ranges.iter().try_for_each(|of| range(of.offset, of.len))?;
        let (job, file) = (handles::get::<Job>(job)?, handles::get::<OpenFile>(file)?);
        let session = file.connection.session()?;
        let size = session.client.getattr(&file.connection.context, file.id)?.size;
        let all = ranges.iter().map(|of| of.offset..of.offset + of.len);
        let ranges = (!ranges.is_empty()).then(|| Arc::new(Partition::new(all)));
        let reader = JobReader::of_ranges(job.member, ranges);
        reader.reads(size);
        file.set_reader(Some(Arc::new(reader)));
        job.lock().files.push(file);
        Ok(())
    })
}

/// Ends a phase: waits until all processes of the job have ended it. Returns `-ETIMEDOUT` after
/// `timeout_ms`; the error text names the missing ranks, and the next call continues the same wait.
#[unsafe(no_mangle)]
pub extern "C" fn weir_phase_end(job: weir_job_t, timeout_ms: u64) -> c_int {
    status(|| {
        let job = handles::get::<Job>(job)?;
        job.forget_files();
        job.barrier(timeout_ms)
    })
}

/// Waits until all processes of a job have made this call equally often. See `weir_phase_end`.
#[unsafe(no_mangle)]
pub extern "C" fn weir_job_barrier(job: weir_job_t, timeout_ms: u64) -> c_int {
    status(|| handles::get::<Job>(job)?.barrier(timeout_ms))
}

/// Leaves the job. Rank 0 waits until all have left, and removes their names from the directory.
#[unsafe(no_mangle)]
pub extern "C" fn weir_job_end(job: weir_job_t, timeout_ms: u64) -> c_int {
    status(|| {
        let job = handles::remove::<Job>(job)?;
        job.forget_files();
        let left = job.leave(timeout_ms);
        job.connection.release(Hold::Own);
        left
    })
}

impl Job {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn forget_files(&self) {
        let files = std::mem::take(&mut self.lock().files);
        files.iter().for_each(|file| file.set_reader(None));
    }

    fn barrier(&self, timeout_ms: u64) -> Result<()> {
        if self.member.ranks == 1 {
            return Ok(());
        }
        let (number, marked) = {
            let state = self.lock();
            (state.barriers + 1, state.marked)
        };
        let group = format!("{}.{number}.", self.name);
        if marked < number {
            self.mark(&group)?;
            self.lock().marked = number;
        }
        self.wait(&group, timeout_ms)?;
        // All are at this barrier, so all have left the previous one.
        if number > 1 {
            self.unmark(&format!("{}.{}.{}", self.name, number - 1, self.member.rank.0))?;
        }
        self.lock().barriers = number;
        Ok(())
    }

    fn leave(&self, timeout_ms: u64) -> Result<()> {
        let Some(dir) = self.dir.filter(|_| self.member.ranks > 1) else { return Ok(()) };
        let group = format!("{}.end.", self.name);
        self.mark(&group)?;
        if self.member.rank != Rank(0) {
            return Ok(());
        }
        self.wait(&group, timeout_ms)?;
        let prefix = format!("{}.", self.name);
        self.names(dir, &prefix)?.iter().try_for_each(|name| self.unmark(name))
    }

    fn dir(&self) -> Result<FileId> {
        self.dir.ok_or_else(|| invalid("the job was begun without a directory for its barriers"))
    }

    fn mark(&self, group: &str) -> Result<()> {
        let session = self.connection.session()?;
        let options = CreateOptions { exclusive: true, mode: 0o600, ..CreateOptions::default() };
        let name = format!("{group}{}", self.member.rank.0);
        let (ctx, dir) = (&self.connection.context, self.dir()?);
        let made = session.client.create(ctx, dir, name.as_bytes(), &options);
        let (file, _) = made.map_err(|e| {
            e.context(format!("{name}: left by an earlier job? Use an empty directory"))
        })?;
        file.close(ctx)
    }

    fn unmark(&self, name: &str) -> Result<()> {
        let session = self.connection.session()?;
        session
            .client
            .unlink(&self.connection.context, self.dir()?, name.as_bytes())
            .map(drop)
            .map_err(|e| e.context(name))
    }

    /// Waits until all processes have created their names.
    fn wait(&self, group: &str, timeout_ms: u64) -> Result<()> {
        let until = Instant::now().checked_add(Duration::from_millis(timeout_ms));
        let (dir, mut pause) = (self.dir()?, FIRST_PAUSE);
        loop {
            let names = self.names(dir, group)?;
            if names.len() >= self.member.ranks as usize {
                return Ok(());
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                let is_missing = |rank: &u32| !names.contains(&format!("{group}{rank}"));
                let missing = (0..self.member.ranks).filter(is_missing).take(NAMED);
                let missing: Vec<String> = missing.map(|rank| rank.to_string()).collect();
                let here = names.len();
                let text = format!(
                    "{here} of {} processes are at the barrier; missing: {}",
                    self.member.ranks,
                    missing.join(", ")
                );
                return Err(Error::new(ErrorKind::TimedOut, text));
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(LAST_PAUSE);
        }
    }

    fn names(&self, dir: FileId, prefix: &str) -> Result<Vec<String>> {
        let session = self.connection.session()?;
        let (mut found, mut place) = (Vec::new(), (0, 0));
        loop {
            let ctx = &self.connection.context;
            let page = session.client.readdir(ctx, dir, place, PAGE, false)?;
            let Some(last) = page.entries.last() else { return Ok(found) };
            place = (last.cookie, page.last);
            let names = page.entries.iter().filter_map(|e| std::str::from_utf8(&e.name).ok());
            found.extend(names.filter(|name| name.starts_with(prefix)).map(str::to_owned));
            if page.end {
                return Ok(found);
            }
        }
    }
}
