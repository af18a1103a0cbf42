//! A client: names, attributes, and whole files.

use crate::cat;
use crate::copying::{copy, refuse_others};
use crate::file::{File, Handle, Readable, checked};
use crate::opening::{Mode, spec, umask};
use crate::options::{self, Job, Options};
use crate::problem::{about, plain, value};
use crate::session::{Owned, Registry, Session};
use crate::stat::{Stat, shown};
use crate::tree::{self, parent};
use crate::whereabouts;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use std::collections::HashMap;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use weir_client::job::JobReader;
use weir_client::{Context, CreateOptions, set_nothing};
use weir_types::{ErrorKind, FileId, LayoutSpec, Result, Timestamp};
use weir_wire::meta::{RenameRequest, SetAttrRequest, SetTime, XattrMode};

/// The mode bits that can be set.
const PERMISSIONS: u32 = 0o7777;

/// A connection to a cluster. Any number of threads can use it.
#[pyclass(frozen, weakref, module = "weir")]
pub(crate) struct Client {
    pub(crate) options: Options,
    state: Arc<Mutex<State>>,
}

/// All clients of this process and of its ancestors by fork.
static CLIENTS: Registry<Mutex<State>> = Registry::new();

/// Ends the sessions of all clients without open files. If such a client is used again, it connects
/// again.
pub(crate) fn end_sessions(py: Python<'_>) {
    for state in CLIENTS.all() {
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        if let State::Connected(session) = &*state
            && session.is_ours()
        {
            let ended = std::mem::replace(&mut *state, State::Idle);
            drop(state);
            py.detach(|| drop(ended));
        }
    }
}

enum State {
    /// Connects at its first use.
    Idle,
    Connected(Arc<Owned<Session>>),
    Closed,
}

impl Client {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session of this process. After a fork the child connects for itself.
    pub(crate) fn session(&self, py: Python<'_>) -> PyResult<Arc<Owned<Session>>> {
        match &*self.state() {
            State::Closed => return Err(closed()),
            State::Connected(session) if session.is_ours() => return Ok(session.clone()),
            State::Connected(_) | State::Idle => {}
        }
        let part = self.options.part()?;
        let client = py.detach(|| options::connect(&self.options))?;
        let reader = part.member.map(|member| Arc::new(JobReader::of_ranges(member, part.ranges)));
        let ctx = Context { reader, ..Context::of(weir_connect::caller()) };
        let fresh = Arc::new(Owned::new(Session { client, ctx }));
        let mut state = self.state();
        match &*state {
            State::Closed => Err(closed()),
            // Another thread was faster.
            State::Connected(session) if session.is_ours() => Ok(session.clone()),
            State::Connected(_) | State::Idle => {
                *state = State::Connected(fresh.clone());
                Ok(fresh)
            }
        }
    }

    /// Runs an operation on a path, without the interpreter's lock.
    fn run<R: Send>(
        &self,
        py: Python<'_>,
        path: &[u8],
        work: impl FnOnce(&weir_client::Client, &Context) -> Result<R> + Send,
    ) -> PyResult<R> {
        let session = self.session(py)?;
        py.detach(|| work(&session.client, &session.ctx)).map_err(about(path))
    }

    fn set(&self, py: Python<'_>, path: &[u8], request: SetAttrRequest) -> PyResult<()> {
        self.run(py, path, |client, ctx| {
            let file = client.resolve(ctx, path, true)?.file;
            client.setattr(ctx, &SetAttrRequest { file, ..request }).map(drop)
        })
    }

    fn open_bytes(
        &self,
        py: Python<'_>,
        path: &[u8],
        mode: Mode,
        permissions: u32,
        layout: Option<LayoutSpec>,
    ) -> PyResult<Handle> {
        let session = self.session(py)?;
        let opened = py.detach(|| {
            let (client, ctx) = (&session.client, &session.ctx);
            if !mode.create {
                let attr = client.resolve(ctx, path, true)?;
                refuse_others(&attr)?;
                return Ok(client.open(ctx, attr.file, mode.rights)?.0);
            }
            // The target of a symbolic link is opened, not the link.
            if !mode.exclusive
                && let Ok(attr) = client.resolve(ctx, path, true)
            {
                refuse_others(&attr)?;
                let (file, _) = client.open(ctx, attr.file, mode.rights)?;
                if mode.truncate {
                    file.truncate(ctx, 0)?;
                }
                return Ok(file);
            }
            let options = CreateOptions {
                mode: (permissions & PERMISSIONS) as u16,
                umask: umask(),
                exclusive: mode.exclusive,
                truncate: mode.truncate,
                rights: mode.rights,
                layout,
            };
            let (dir, name) = parent(client, ctx, path)?;
            Ok(client.create(ctx, dir, name, &options)?.0)
        });
        Handle::new(session, opened.map_err(about(path))?, self)
    }
}

#[pymethods]
impl Client {
    #[new]
    #[pyo3(signature = (
        cluster = None, *, credential = None, dir = None, config = None, name = "python".to_owned(),
        consistency = "strict", read_policy = "proportional", read_ahead = 4 << 20,
        write_behind = 8 << 20, verify = true, timeout = 30.0, job = None, rank = 0, ranks = 1,
        shared = false, connect = true,
    ))]
    #[allow(clippy::too_many_arguments)] // Keywords of Python.
    fn new(
        py: Python<'_>,
        cluster: Option<String>,
        credential: Option<PathBuf>,
        dir: Option<PathBuf>,
        config: Option<PathBuf>,
        name: String,
        consistency: &str,
        read_policy: &str,
        read_ahead: i64,
        write_behind: i64,
        verify: bool,
        timeout: f64,
        job: Option<String>,
        rank: u32,
        ranks: u32,
        shared: bool,
        connect: bool,
    ) -> PyResult<Self> {
        if !(0.001..=86_400.0).contains(&timeout) {
            return Err(value(format!("timeout={timeout}: give seconds from 0.001 to 86400")));
        }
        if rank >= ranks {
            return Err(value(format!("rank={rank} of ranks={ranks}: the first rank is 0")));
        }
        let bytes = |number: i64, what: &str| match usize::try_from(number) {
            Ok(bytes) if bytes <= 1 << 30 => Ok(bytes),
            _ => Err(value(format!("{what}={number}: give 0 to 1073741824 bytes"))),
        };
        let client = Self {
            options: Options {
                choice: options::choice(cluster, credential, dir, config)?,
                name,
                consistency: options::consistency(consistency)?,
                read_policy: options::read_policy(read_policy)?,
                read_ahead: bytes(read_ahead, "read_ahead")? as u64,
                write_behind: bytes(write_behind, "write_behind")?,
                verify,
                timeout_ms: (timeout * 1000.0) as u64,
                job: job.map(|name| Job { name, rank, ranks, shared }),
            },
            state: Arc::new(Mutex::new(State::Idle)),
        };
        CLIENTS.remember(&client.state);
        if connect {
            client.session(py)?;
        }
        Ok(client)
    }

    /// Arguments that make the same client in another process: the configuration, never the
    /// session.
    fn __getnewargs_ex__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyTuple>, Bound<'py, PyDict>)> {
        let Options {
            choice,
            name,
            consistency,
            read_policy,
            read_ahead,
            write_behind,
            verify,
            timeout_ms,
            job,
        } = &self.options;
        let keywords = PyDict::new(py);
        keywords.set_item("cluster", &choice.name)?;
        keywords.set_item("credential", choice.credential.as_deref())?;
        keywords.set_item("dir", choice.dir.as_deref())?;
        keywords.set_item("config", choice.config.as_deref())?;
        keywords.set_item("name", name)?;
        keywords.set_item("consistency", consistency.name())?;
        keywords.set_item("read_policy", read_policy.name())?;
        keywords.set_item("read_ahead", read_ahead)?;
        keywords.set_item("write_behind", write_behind)?;
        keywords.set_item("verify", verify)?;
        keywords.set_item("timeout", *timeout_ms as f64 / 1000.0)?;
        if let Some(Job { name, rank, ranks, shared }) = job {
            keywords.set_item("job", name)?;
            keywords.set_item("rank", rank)?;
            keywords.set_item("ranks", ranks)?;
            keywords.set_item("shared", shared)?;
        }
        keywords.set_item("connect", false)?;
        Ok((PyTuple::empty(py), keywords))
    }

    /// Ends the session. Open files stay open until they are closed.
    fn close(&self, py: Python<'_>) {
        let state = std::mem::replace(&mut *self.state(), State::Closed);
        py.detach(|| drop(state));
    }

    /// Whether the client was closed.
    #[getter]
    fn closed(&self) -> bool {
        matches!(*self.state(), State::Closed)
    }

    /// The id of the session in the cluster. It differs between processes.
    #[getter]
    fn session_id(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.session(py)?.client.session().0)
    }

    /// Counters of the client library by name: requests, bytes and so on.
    fn counters(&self, py: Python<'_>) -> PyResult<HashMap<String, u64>> {
        Ok(self.session(py)?.client.counters().into_iter().collect())
    }

    /// Attributes of a file.
    #[pyo3(signature = (path, *, follow = true))]
    fn stat(&self, py: Python<'_>, path: PathBuf, follow: bool) -> PyResult<Stat> {
        let path = bytes(&path);
        let attr = self.run(py, path, |client, ctx| client.resolve(ctx, path, follow))?;
        Ok(Stat::from(&attr))
    }

    /// Names and attributes of the entries of a directory, sorted by name.
    fn listdir(&self, py: Python<'_>, path: PathBuf) -> PyResult<Vec<(OsString, Stat)>> {
        let path = bytes(&path);
        let found = self.run(py, path, |client, ctx| {
            let dir = tree::directory(client, ctx, path)?;
            tree::entries(client, ctx, dir)
        })?;
        Ok(shown(found))
    }

    /// Relative paths and attributes of everything below a directory, sorted by path. Symbolic
    /// links are not followed. Directories are listed in parallel.
    #[pyo3(signature = (path, *, maxdepth = None))]
    fn walk(
        &self,
        py: Python<'_>,
        path: PathBuf,
        maxdepth: Option<usize>,
    ) -> PyResult<Vec<(OsString, Stat)>> {
        let path = bytes(&path);
        let found = self.run(py, path, |client, ctx| {
            let dir = tree::directory(client, ctx, path)?;
            tree::walk(client, ctx, dir, maxdepth.unwrap_or(usize::MAX))
        })?;
        Ok(shown(found))
    }

    /// Opens a regular file. Modes are those of `open`: r, r+, w, w+, x, x+, a, a+; always binary.
    /// A new file gets the given stripe unit, number of disks and copies, or those of its
    /// directory.
    #[pyo3(signature = (path, mode = "r", *, permissions = 0o666, unit = 0, count = 0, copies = 0))]
    #[allow(clippy::too_many_arguments)] // Keywords of Python.
    fn open(
        slf: Py<Self>,
        py: Python<'_>,
        path: PathBuf,
        mode: &str,
        permissions: u32,
        unit: u32,
        count: u16,
        copies: u8,
    ) -> PyResult<File> {
        let (path, mode) = (bytes(&path), Mode::parse(mode)?);
        let layout = spec(unit, count, copies)?;
        let handle = slf.get().open_bytes(py, path, mode, permissions, layout)?;
        Ok(File::new(slf, path.to_vec(), mode.rights, handle))
    }

    /// Reads a file from `start` up to `end`. Negative numbers count from the end of the file.
    #[pyo3(signature = (path, start = None, end = None, *, threads = 8))]
    fn cat_file<'py>(
        &self,
        py: Python<'py>,
        path: PathBuf,
        start: Option<i64>,
        end: Option<i64>,
        threads: usize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let mut all = cat::ranges(py, self, &[(path, start, end)], threads)?;
        all.pop().unwrap_or_else(|| Err(value("nothing was asked for")))
    }

    /// Reads many ranges (path, start, end) of files. Returns bytes or an exception for each. Small
    /// ranges of a file are read together, with one request to each server; the others in parallel.
    #[pyo3(signature = (ranges, *, threads = 8))]
    fn cat_ranges<'py>(
        &self,
        py: Python<'py>,
        ranges: Vec<cat::Range>,
        threads: usize,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let all = cat::ranges(py, self, &ranges, threads)?;
        let shown = |one: PyResult<Bound<'py, PyBytes>>| match one {
            Ok(bytes) => bytes.into_any(),
            Err(error) => error.into_value(py).into_bound(py).into_any(),
        };
        Ok(all.into_iter().map(shown).collect())
    }

    /// Writes a whole file. An existing file is replaced, unless it must not exist.
    #[pyo3(signature = (path, data, *, exclusive = false))]
    fn pipe_file(
        &self,
        py: Python<'_>,
        path: PathBuf,
        data: &Bound<'_, PyAny>,
        exclusive: bool,
    ) -> PyResult<()> {
        let (path, data) = (bytes(&path), Readable::new(data)?);
        let mode = Mode::parse(if exclusive { "x" } else { "w" })?;
        let handle = self.open_bytes(py, path, mode, 0o666, None)?;
        let data = data.slice();
        py.detach(|| handle.write_all_and_close(data)).map_err(about(path))
    }

    /// Copies a file. The servers copy the data among themselves.
    fn copy(&self, py: Python<'_>, source: PathBuf, target: PathBuf) -> PyResult<()> {
        let (source, target) = (bytes(&source), bytes(&target));
        self.run(py, source, |client, ctx| copy(client, ctx, source, target, umask()))
    }

    /// Makes a directory.
    #[pyo3(signature = (path, mode = 0o777))]
    fn mkdir(&self, py: Python<'_>, path: PathBuf, mode: u32) -> PyResult<()> {
        let path = bytes(&path);
        let mode = (mode & PERMISSIONS) as u16;
        self.run(py, path, |client, ctx| {
            if client.resolve(ctx, path, false).is_ok() {
                return Err(ErrorKind::Exists.into());
            }
            let (dir, name) = parent(client, ctx, path)?;
            client.mkdir_masked(ctx, dir, name, (mode, umask())).map(drop)
        })
    }

    /// Removes an empty directory.
    fn rmdir(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        let path = bytes(&path);
        self.run(py, path, |client, ctx| {
            let (dir, name) = parent(client, ctx, path)?;
            client.rmdir(ctx, dir, name)
        })
    }

    /// Removes a name of anything but a directory.
    fn unlink(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        let path = bytes(&path);
        self.run(py, path, |client, ctx| {
            let (dir, name) = parent(client, ctx, path)?;
            client.unlink(ctx, dir, name).map(drop)
        })
    }

    /// Renames a file or directory. An existing one is replaced unless `replace` is false.
    #[pyo3(signature = (source, target, *, replace = true))]
    fn rename(
        &self,
        py: Python<'_>,
        source: PathBuf,
        target: PathBuf,
        replace: bool,
    ) -> PyResult<()> {
        let (source, target) = (bytes(&source), bytes(&target));
        self.run(py, source, |client, ctx| {
            let ((dir, name), (new_dir, new_name)) =
                (parent(client, ctx, source)?, parent(client, ctx, target)?);
            let request = RenameRequest {
                parent: dir,
                name: name.into(),
                new_parent: new_dir,
                new_name: new_name.into(),
                no_replace: !replace,
                exchange: false,
                whiteout: false,
                hold: false,
            };
            client.rename(ctx, &request)
        })
    }

    /// Makes a symbolic link at `path`.
    fn symlink(&self, py: Python<'_>, target: PathBuf, path: PathBuf) -> PyResult<()> {
        let (target, path) = (bytes(&target), bytes(&path));
        self.run(py, path, |client, ctx| {
            let (dir, name) = parent(client, ctx, path)?;
            client.symlink(ctx, dir, name, target).map(drop)
        })
    }

    /// The target of a symbolic link.
    fn readlink(&self, py: Python<'_>, path: PathBuf) -> PyResult<OsString> {
        let path = bytes(&path);
        let said = self.run(py, path, |client, ctx| {
            client.readlink(ctx, client.resolve(ctx, path, false)?.file)
        })?;
        Ok(OsString::from_vec(said))
    }

    /// Changes permission bits.
    fn chmod(&self, py: Python<'_>, path: PathBuf, mode: u32) -> PyResult<()> {
        let mode = Some((mode & PERMISSIONS) as u16);
        self.set(py, bytes(&path), SetAttrRequest { mode, ..set_nothing(FileId::ROOT) })
    }

    /// Sets the times of last access and modification, seconds since 1970. Without `times`: the
    /// present time.
    #[pyo3(signature = (path, times = None))]
    fn utime(&self, py: Python<'_>, path: PathBuf, times: Option<(f64, f64)>) -> PyResult<()> {
        let at = |seconds: f64| SetTime::At(Timestamp((seconds * 1e9) as i64));
        let (atime, mtime) = match times {
            None => (SetTime::Now, SetTime::Now),
            Some((atime, mtime)) => (at(atime), at(mtime)),
        };
        let request =
            SetAttrRequest { atime: Some(atime), mtime: Some(mtime), ..set_nothing(FileId::ROOT) };
        self.set(py, bytes(&path), request)
    }

    /// Truncates or extends a file.
    fn truncate(&self, py: Python<'_>, path: PathBuf, size: i64) -> PyResult<()> {
        let size = Some(checked(size, "size")?);
        self.set(py, bytes(&path), SetAttrRequest { size, ..set_nothing(FileId::ROOT) })
    }

    /// The value of an extended attribute.
    fn getxattr<'py>(
        &self,
        py: Python<'py>,
        path: PathBuf,
        name: &str,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let path = bytes(&path);
        let found = self.run(py, path, |client, ctx| {
            let file = client.resolve(ctx, path, true)?.file;
            client.get_xattr(ctx, file, name.as_bytes())
        })?;
        Ok(PyBytes::new(py, &found))
    }

    /// Sets an extended attribute. Some of them are hints, such as `user.weir.consistency`.
    fn setxattr(&self, py: Python<'_>, path: PathBuf, name: &str, value: &[u8]) -> PyResult<()> {
        let path = bytes(&path);
        self.run(py, path, |client, ctx| {
            let file = client.resolve(ctx, path, true)?.file;
            client.set_xattr(ctx, file, name.as_bytes(), value, XattrMode::Any)
        })
    }

    /// Removes an extended attribute.
    fn removexattr(&self, py: Python<'_>, path: PathBuf, name: &str) -> PyResult<()> {
        let path = bytes(&path);
        self.run(py, path, |client, ctx| {
            let file = client.resolve(ctx, path, true)?.file;
            client.remove_xattr(ctx, file, name.as_bytes())
        })
    }

    /// The names of all extended attributes.
    fn listxattr(&self, py: Python<'_>, path: PathBuf) -> PyResult<Vec<OsString>> {
        let path = bytes(&path);
        let names = self.run(py, path, |client, ctx| {
            client.list_xattr(ctx, client.resolve(ctx, path, true)?.file)
        })?;
        Ok(names.iter().map(|name| OsString::from_vec(name.to_vec())).collect())
    }

    /// Total and free bytes for this user at this path.
    #[pyo3(signature = (path = PathBuf::from("/")))]
    fn statfs(&self, py: Python<'_>, path: PathBuf) -> PyResult<(u64, u64)> {
        let path = bytes(&path);
        let usage = self.run(py, path, |client, ctx| {
            client.statfs(ctx, client.resolve(ctx, path, true)?.file)
        })?;
        Ok((usage.total_bytes, usage.free_bytes))
    }

    /// Sets the layout of new files in a directory, or of an empty file. 0 stands for the default.
    #[pyo3(signature = (path, *, unit = 0, count = 0, copies = 0))]
    fn set_layout(
        &self,
        py: Python<'_>,
        path: PathBuf,
        unit: u32,
        count: u16,
        copies: u8,
    ) -> PyResult<()> {
        let path = bytes(&path);
        let layout = spec(unit, count, copies)?;
        self.run(py, path, |client, ctx| {
            let file = client.resolve(ctx, path, true)?.file;
            client.set_layout(ctx, file, layout)
        })
    }

    /// The locations of a file's bytes, range by range, with the present speed of each disk.
    #[pyo3(signature = (path, offset = 0, length = None))]
    fn locations(
        &self,
        py: Python<'_>,
        path: PathBuf,
        offset: i64,
        length: Option<i64>,
    ) -> PyResult<Vec<whereabouts::Location>> {
        let path = bytes(&path);
        let offset = checked(offset, "offset")?;
        let length = length.map(|length| checked(length, "length")).transpose()?;
        let length = whereabouts::length_or_rest(length);
        let found =
            self.run(py, path, |client, ctx| client.locations_of(ctx, path, offset, length))?;
        found.into_iter().map(|one| whereabouts::location(py, one)).collect()
    }

    /// Makes all changes of names and attributes durable.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        let session = self.session(py)?;
        py.detach(|| session.client.sync_metadata(&session.ctx)).map_err(plain)
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _type: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) {
        self.close(py);
    }
}

fn closed() -> PyErr {
    PyValueError::new_err("the client is closed; make a new weir.Client")
}

fn bytes(path: &std::path::Path) -> &[u8] {
    path.as_os_str().as_bytes()
}
