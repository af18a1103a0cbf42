//! Open files.

use crate::client::Client;
use crate::problem::{about, value};
use crate::ranges::{self, Want};
use crate::session::{Owned, Registry, Session};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyResourceWarning, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::ffi::CString;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use weir_client::job::JobReader;
use weir_client::{Context, Hint};
use weir_types::limits::MAX_FILE_BYTES;
use weir_types::{Error, ErrorKind, FileId, Result};
use weir_wire::Rights;

/// An open file of a session.
pub(crate) struct Handle {
    file: weir_client::File,
    session: Arc<Owned<Session>>,
    ctx: Context,
}

impl Handle {
    /// Opens a file. Its reads count for the job of the process, if it has one.
    pub(crate) fn new(
        session: Arc<Owned<Session>>,
        file: weir_client::File,
        client: &Client,
    ) -> PyResult<Self> {
        let part = client.options.part()?;
        let reader = part.member.map(|member| Arc::new(JobReader::of_ranges(member, part.ranges)));
        if let Some(reader) = &reader {
            reader.reads(file.size());
        }
        let ctx = Context { reader, ..session.ctx.clone() };
        Ok(Self { file, session, ctx })
    }

    /// Writes all data of a new file, and closes it.
    pub(crate) fn write_all_and_close(self, data: &[u8]) -> Result<()> {
        self.file.write_at(&self.ctx, 0, data)?;
        self.file.close(&self.ctx)
    }

    fn read(&self, offset: u64, dest: &mut [u8]) -> Result<usize> {
        let len = self.file.read_at(&self.ctx, offset, dest)?;
        self.has_read(offset..offset + len as u64);
        Ok(len)
    }

    fn has_read(&self, bytes: Range<u64>) {
        if let Some(reader) = &self.ctx.reader {
            reader.has_read(bytes);
        }
    }
}

/// All open files of this process and of its ancestors by fork.
static OPEN: Registry<Owned<Handle>> = Registry::new();

/// Called when the program ends: sends buffered writes of open files, and ends sessions without
/// open files, so that other clients need not wait for their leases.
#[pyfunction]
pub(crate) fn end(py: Python<'_>) -> PyResult<()> {
    let mut result = Ok(());
    for handle in OPEN.all().into_iter().filter(|handle| handle.is_ours()) {
        let flushed = py.detach(|| handle.file.flush(&handle.ctx));
        result = result.and(flushed.map_err(crate::problem::plain));
    }
    crate::client::end_sessions(py);
    result
}

/// An open file. Reads and writes take offsets; the file has no position.
#[pyclass(frozen, weakref, module = "weir")]
pub(crate) struct File {
    client: Py<Client>,
    path: Vec<u8>,
    id: FileId,
    rights: Rights,
    state: Mutex<State>,
}

enum State {
    Open(Arc<Owned<Handle>>),
    Closed,
}

impl File {
    pub(crate) fn new(client: Py<Client>, path: Vec<u8>, rights: Rights, handle: Handle) -> Self {
        let id = handle.file.id();
        let handle = Arc::new(Owned::new(handle));
        OPEN.remember(&handle);
        Self { client, path, id, rights, state: Mutex::new(State::Open(handle)) }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The handle of this process. After a fork the child opens the file for itself.
    fn handle(&self, py: Python<'_>) -> PyResult<Arc<Owned<Handle>>> {
        match &*self.state() {
            State::Closed => return Err(self.closed_error()),
            State::Open(handle) if handle.is_ours() => return Ok(handle.clone()),
            State::Open(_) => {}
        }
        let client = self.client.get();
        let session = client.session(py)?;
        let opened = py.detach(|| session.client.open(&session.ctx, self.id, self.rights));
        let (file, _) = opened.map_err(about(&self.path))?;
        let fresh = Arc::new(Owned::new(Handle::new(session, file, client)?));
        OPEN.remember(&fresh);
        let mut state = self.state();
        match &*state {
            State::Closed => Err(self.closed_error()),
            // Another thread was faster.
            State::Open(handle) if handle.is_ours() => Ok(handle.clone()),
            State::Open(_) => {
                *state = State::Open(fresh.clone());
                Ok(fresh)
            }
        }
    }

    fn closed_error(&self) -> PyErr {
        PyValueError::new_err("the file is closed; open it again with Client.open")
    }

    /// Refuses an operation for which the file is not open, before any bytes are buffered.
    fn require(&self, right: Rights) -> PyResult<()> {
        if self.rights.allow(right) {
            return Ok(());
        }
        let what = match right == Rights::READ {
            true => "the file is open to write only: open it with r, r+ or w+ to read",
            false => "the file is open to read only: open it with r+, w or a to write",
        };
        Err(about(&self.path)(Error::new(ErrorKind::BadHandle, what)))
    }

    fn run<R: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&Handle) -> Result<R> + Send,
    ) -> PyResult<R> {
        let handle = self.handle(py)?;
        py.detach(|| work(&handle)).map_err(about(&self.path))
    }
}

/// Python drops a file that was not closed. As with Python's own files, a warning says so, and an
/// error that no code can catch any longer is printed.
impl Drop for File {
    fn drop(&mut self) {
        let State::Open(handle) = std::mem::replace(&mut *self.state(), State::Closed) else {
            return;
        };
        if !handle.is_ours() {
            return;
        }
        Python::attach(|py| {
            // An exception may be propagating. It must survive this.
            let on_its_way = OnItsWay::put_aside(py);
            let text = CString::new(format!("unclosed file {}", self.__repr__()));
            let kind = py.get_type::<PyResourceWarning>();
            if let Err(error) = PyErr::warn(py, &kind, &text.unwrap_or_default(), 1) {
                error.write_unraisable(py, None);
            }
            if let Err(error) = send_and_drop(py, handle) {
                about(&self.path)(error).write_unraisable(py, None);
            }
            drop(on_its_way);
        });
    }
}

/// Sends buffered writes. The last user of the handle closes it.
fn send_and_drop(py: Python<'_>, handle: Arc<Owned<Handle>>) -> Result<()> {
    py.detach(|| {
        let flushed = handle.file.flush(&handle.ctx);
        drop(handle);
        flushed
    })
}

/// A pending exception, which is restored when this is dropped.
struct OnItsWay<'py>(Python<'py>, [*mut ffi::PyObject; 3]);

impl<'py> OnItsWay<'py> {
    fn put_aside(py: Python<'py>) -> Self {
        let [mut kind, mut value, mut trace] = [std::ptr::null_mut(); 3];
        // SAFETY: this thread is attached; the caller owns what the call stores.
        unsafe { ffi::PyErr_Fetch(&raw mut kind, &raw mut value, &raw mut trace) };
        Self(py, [kind, value, trace])
    }
}

impl Drop for OnItsWay<'_> {
    fn drop(&mut self) {
        let [kind, value, trace] = self.1;
        // SAFETY: this thread is attached, as `Python` proves; the call takes back the objects from
        // `put_aside`.
        unsafe { ffi::PyErr_Restore(kind, value, trace) };
    }
}

#[pymethods]
impl File {
    /// Reads up to `length` bytes at `offset`; fewer at the end of the file.
    fn pread<'py>(
        &self,
        py: Python<'py>,
        length: i64,
        offset: i64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let (offset, length) = (checked(offset, "offset")?, checked(length, "length")?);
        self.require(Rights::READ)?;
        let handle = self.handle(py)?;
        let end = offset.saturating_add(length);
        let size = py
            .detach(|| ranges::size_for(&handle.session.client, &handle.ctx, &handle.file, end))
            .map_err(about(&self.path))?;
        let length = end.min(size).saturating_sub(offset) as usize;
        let mut result = Ok(0);
        let bytes = PyBytes::new_with(py, length, |dest| {
            result = py.detach(|| handle.read(offset, dest));
            Ok(())
        })?;
        let read = result.map_err(about(&self.path))?;
        Ok(if read == length { bytes } else { PyBytes::new(py, &bytes.as_bytes()[..read]) })
    }

    /// Reads into a writable buffer at `offset`; returns the bytes read.
    fn pread_into(
        &self,
        py: Python<'_>,
        buffer: &Bound<'_, PyAny>,
        offset: i64,
    ) -> PyResult<usize> {
        let offset = checked(offset, "offset")?;
        self.require(Rights::READ)?;
        let mut buffer = Writable::new(buffer)?;
        let dest = buffer.slice();
        self.run(py, |handle| handle.read(offset, dest))
    }

    /// Reads into several buffers, each at an offset of its own; returns the bytes read into each.
    /// Small ranges are read together, with one request to each server; the others in parallel.
    #[pyo3(signature = (ranges, threads = 8))]
    fn readv(
        &self,
        py: Python<'_>,
        ranges: Vec<(i64, Bound<'_, PyAny>)>,
        threads: usize,
    ) -> PyResult<Vec<usize>> {
        let mut buffers: Vec<(u64, Writable)> = Vec::with_capacity(ranges.len());
        for (offset, buffer) in &ranges {
            buffers.push((checked(*offset, "offset")?, Writable::new(buffer)?));
        }
        self.require(Rights::READ)?;
        refuse_overlap(buffers.iter().map(|(_, buffer)| buffer.addresses()).collect())?;
        let handle = self.handle(py)?;
        let slices: Vec<(u64, &mut [u8])> =
            buffers.iter_mut().map(|(offset, buffer)| (*offset, buffer.slice())).collect();
        let read = py.detach(|| -> Result<Vec<usize>> {
            let ends = slices.iter().map(|(offset, dest)| offset.saturating_add(dest.len() as u64));
            let last = ends.max().unwrap_or(0);
            let Handle { file, session, ctx } = &**handle;
            let size = ranges::size_for(&session.client, ctx, file, last)?;
            let count = slices.len();
            let mut wants = Vec::with_capacity(count);
            for (range, (offset, dest)) in slices.into_iter().enumerate() {
                let within = size.saturating_sub(offset).min(dest.len() as u64) as usize;
                wants.push(Want { range, file, offset, dest: &mut dest[..within] });
            }
            ranges::read(ctx, wants, count, threads).into_iter().collect()
        });
        read.map_err(about(&self.path))
    }

    /// Writes all of `data` at `offset`; returns its length. The bytes may still be buffered: an
    /// error is then raised by a later write, or by `flush`, `fsync` or `close`.
    fn pwrite(&self, py: Python<'_>, data: &Bound<'_, PyAny>, offset: i64) -> PyResult<usize> {
        let offset = checked(offset, "offset")?;
        self.require(Rights::WRITE)?;
        let data = Readable::new(data)?;
        let bytes = data.slice();
        self.run(py, |handle| handle.file.write_at(&handle.ctx, offset, bytes))?;
        Ok(bytes.len())
    }

    /// Writes several pieces, each at an offset of its own. Small ones are written together, with
    /// one request to each server. Returns the bytes written. If two pieces overlap, nothing is
    /// written.
    fn writev(&self, py: Python<'_>, ranges: Vec<(i64, Bound<'_, PyAny>)>) -> PyResult<usize> {
        let mut buffers = Vec::with_capacity(ranges.len());
        for (offset, data) in &ranges {
            buffers.push((checked(*offset, "offset")?, Readable::new(data)?));
        }
        let slices: Vec<(u64, &[u8])> =
            buffers.iter().map(|(offset, data)| (*offset, data.slice())).collect();
        self.require(Rights::WRITE)?;
        let bytes = slices.iter().map(|(_, data)| data.len()).sum();
        self.run(py, |handle| ranges::write(&handle.ctx, &handle.file, slices))?;
        Ok(bytes)
    }

    /// Appends to the file, atomically with other appends; returns the offset.
    fn append(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<u64> {
        self.require(Rights::WRITE)?;
        let data = Readable::new(data)?;
        let bytes = data.slice();
        self.run(py, |handle| handle.file.append(&handle.ctx, bytes))
    }

    /// The present size in bytes.
    fn size(&self, py: Python<'_>) -> PyResult<u64> {
        self.run(py, |handle| Ok(handle.session.client.getattr(&handle.ctx, self.id)?.size))
    }

    /// Truncates or extends the file.
    fn truncate(&self, py: Python<'_>, size: i64) -> PyResult<()> {
        let size = checked(size, "size")?;
        self.require(Rights::WRITE)?;
        self.run(py, |handle| handle.file.truncate(&handle.ctx, size).map(drop))
    }

    /// Waits until the servers have all writes.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, |handle| handle.file.flush(&handle.ctx))
    }

    /// Makes data and attributes durable.
    fn fsync(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, |handle| handle.file.sync(&handle.ctx))
    }

    /// Sets how soon other clients' changes are seen: "strict", "relaxed" or "none".
    fn set_consistency(&self, py: Python<'_>, consistency: &str) -> PyResult<()> {
        let consistency = crate::options::consistency(consistency)?;
        self.handle(py)?.file.set_consistency(consistency);
        Ok(())
    }

    /// Gives a hint on how this file will be read: "normal", "random", "read_once", "reverse",
    /// "records" (`length`: bytes of a record), or "will_need" and "done_with" for a range. Results
    /// stay the same.
    #[pyo3(signature = (name, offset = 0, length = 0))]
    fn hint(&self, py: Python<'_>, name: &str, offset: i64, length: i64) -> PyResult<()> {
        let (offset, length) = (checked(offset, "offset")?, checked(length, "length")?);
        self.require(Rights::READ)?;
        let hint = Hint::named(name, offset, length).ok_or_else(|| {
            value(format!("there is no hint {name:?}: give one of {}", Hint::NAMES.join(", ")))
        })?;
        self.run(py, |handle| handle.file.hint(&handle.ctx, hint))
    }

    /// The locations of the bytes, with the present speed of each disk.
    #[pyo3(signature = (offset = 0, length = None))]
    fn locations(
        &self,
        py: Python<'_>,
        offset: i64,
        length: Option<i64>,
    ) -> PyResult<Vec<crate::whereabouts::Location>> {
        let offset = checked(offset, "offset")?;
        let length = length.map(|length| checked(length, "length")).transpose()?;
        let length = crate::whereabouts::length_or_rest(length);
        let found = self.run(py, |handle| {
            handle.session.client.locations(&handle.ctx, &handle.file, offset, length)
        })?;
        found.into_iter().map(|one| crate::whereabouts::location(py, one)).collect()
    }

    /// Sends buffered writes and closes. It is the last call that can report a failed write.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let state = std::mem::replace(&mut *self.state(), State::Closed);
        let State::Open(handle) = state else { return Ok(()) };
        if !handle.is_ours() {
            return Ok(());
        }
        send_and_drop(py, handle).map_err(about(&self.path))
    }

    /// Whether the file was closed.
    #[getter]
    fn closed(&self) -> bool {
        matches!(*self.state(), State::Closed)
    }

    /// The path with which the file was opened.
    #[getter]
    fn path(&self) -> std::ffi::OsString {
        std::os::unix::ffi::OsStringExt::from_vec(self.path.clone())
    }

    /// The inode number.
    #[getter]
    fn ino(&self) -> u64 {
        self.id.0
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
    ) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self) -> String {
        format!("<weir.File {:?}>", String::from_utf8_lossy(&self.path))
    }
}

/// Checks an offset, a length or a size.
pub(crate) fn checked(number: i64, what: &str) -> PyResult<u64> {
    match u64::try_from(number) {
        Ok(number) if number <= MAX_FILE_BYTES => Ok(number),
        Ok(_) => Err(value(format!(
            "{what} {number} is beyond the largest file ({MAX_FILE_BYTES} bytes)"
        ))),
        Err(_) => Err(value(format!("{what} {number} is negative: give 0 or more"))),
    }
}

fn refuse_overlap(mut buffers: Vec<Range<usize>>) -> PyResult<()> {
    buffers.retain(|range| !range.is_empty());
    buffers.sort_unstable_by_key(|range| range.start);
    match buffers.windows(2).any(|pair| pair[0].end > pair[1].start) {
        true => Err(value("two of the buffers overlap: give each range memory of its own")),
        false => Ok(()),
    }
}

/// A Python buffer for reading. It cannot be freed or resized while this exists.
///
/// The interpreter's lock is not held. If other code changes the bytes at the same time, the file
/// gets a mixture of both, as with `os.pwrite`; length and address stay.
pub(crate) struct Readable(PyUntypedBuffer);

impl Readable {
    pub(crate) fn new(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let buffer = PyUntypedBuffer::get(object)?;
        match buffer.is_c_contiguous() {
            true => Ok(Self(buffer)),
            false => Err(value("the buffer is not contiguous: copy it first")),
        }
    }

    pub(crate) fn slice(&self) -> &[u8] {
        let len = self.0.len_bytes();
        if len == 0 {
            return &[];
        }
        // SAFETY: Python keeps this many contiguous bytes there until the buffer is released.
        unsafe { std::slice::from_raw_parts(self.0.buf_ptr().cast(), len) }
    }
}

/// A Python buffer for writing; see [`Readable`]. Code that holds several must ensure that they do
/// not overlap ([`refuse_overlap`]).
struct Writable(PyUntypedBuffer);

impl Writable {
    fn new(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let buffer = PyUntypedBuffer::get(object)?;
        if buffer.readonly() {
            return Err(value("the buffer cannot be written: give a bytearray or the like"));
        }
        match buffer.is_c_contiguous() {
            true => Ok(Self(buffer)),
            false => Err(value("the buffer is not contiguous: read into one that is")),
        }
    }

    fn addresses(&self) -> Range<usize> {
        let start = self.0.buf_ptr() as usize;
        start..start + self.0.len_bytes()
    }

    fn slice(&mut self) -> &mut [u8] {
        let len = self.0.len_bytes();
        if len == 0 {
            return &mut [];
        }
        // SAFETY: Python keeps this many contiguous bytes there until the buffer is released.
        unsafe { std::slice::from_raw_parts_mut(self.0.buf_ptr().cast(), len) }
    }
}
