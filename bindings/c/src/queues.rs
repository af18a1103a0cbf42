//! Asynchronous calls, and a descriptor for `poll`.

use crate::args::{bytes, bytes_mut, check_place, put};
use crate::error::{guard, invalid, status};
use crate::handles::{self, weir_file_t, weir_queue_t};
use crate::io::{context, read, write};
use crate::queue::{Queue, WEIR_QUEUE_MOST, weir_completion_t};
use crate::session::OpenFile;
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::time::Duration;
use weir_types::Result;

/// Makes a queue for at most `depth` calls at a time (1 to WEIR_QUEUE_MOST). A child of `fork` has
/// to make its own.
///
/// # Safety
/// `queue` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_queue_open(depth: u32, queue: *mut weir_queue_t) -> c_int {
    status(|| {
        check_place(queue, "queue")?;
        if depth == 0 || depth > WEIR_QUEUE_MOST {
            return Err(invalid(format!("a queue has 1 to {WEIR_QUEUE_MOST} calls")));
        }
        crate::process::watch_forks();
        let handle = handles::add(Arc::new(Queue::new(depth)?))?;
        // SAFETY: by the contract of this function.
        unsafe { put(queue, handle, "queue") }
    })
}

/// A descriptor that is readable while there are completions. Use it with `poll` only; neither read
/// nor close it.
#[unsafe(no_mangle)]
pub extern "C" fn weir_queue_fd(queue: weir_queue_t) -> c_int {
    guard(|| Ok(handles::get::<Queue>(queue)?.descriptor().into())) as c_int
}

/// Waits for all calls of a queue, and closes it. Completions that were not reaped are dropped.
#[unsafe(no_mangle)]
pub extern "C" fn weir_queue_close(queue: weir_queue_t) -> c_int {
    status(|| {
        handles::remove::<Queue>(queue)?.end();
        Ok(())
    })
}

/// A buffer that belongs to a call until that has ended.
struct Buffer(*mut u8, usize);

// SAFETY: the contract of the call lends it the buffer until the call has ended.
unsafe impl Send for Buffer {}

impl Buffer {
    /// Takes the struct as a whole; a closure would otherwise capture its fields.
    fn whole(self) -> (*mut u8, usize) {
        (self.0, self.1)
    }
}

/// As `weir_pread`, but returns at once. The buffer belongs to the call until its completion is
/// reaped. `-EAGAIN`: the queue is full.
///
/// # Safety
/// `buffer` is NULL or has `len` bytes that nobody else uses until the call has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_submit_pread(
    queue: weir_queue_t,
    file: weir_file_t,
    buffer: *mut c_void,
    len: usize,
    offset: u64,
    tag: u64,
) -> c_int {
    status(|| {
        let (queue, file) = both(queue, file)?;
        // SAFETY: by the contract of this function.
        let room = unsafe { bytes_mut(buffer, len, "buffer") }?;
        let room = Buffer(room.as_mut_ptr(), room.len());
        let open = file.open()?;
        let job = move || {
            let (at, len) = room.whole();
            // SAFETY: by the contract of `weir_submit_pread`; the pointer is dangling only if `len`
            // is 0.
            read(&file, &open, offset, unsafe { std::slice::from_raw_parts_mut(at, len) })
        };
        queue.submit(tag, Box::new(job))
    })
}

/// As `weir_pwrite`, but returns at once. See `weir_submit_pread`.
///
/// # Safety
/// `data` is NULL or has `len` bytes that stay unchanged until the call has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_submit_pwrite(
    queue: weir_queue_t,
    file: weir_file_t,
    data: *const c_void,
    len: usize,
    offset: u64,
    tag: u64,
) -> c_int {
    status(|| {
        let (queue, file) = both(queue, file)?;
        // SAFETY: by the contract of this function.
        let data = unsafe { bytes(data, len, "data") }?;
        let data = Buffer(data.as_ptr().cast_mut(), data.len());
        let open = file.open()?;
        let job = move || {
            let (at, len) = data.whole();
            // SAFETY: by the contract of `weir_submit_pwrite`; the pointer is dangling only if
            // `len` is 0.
            write(&file, &open, offset, unsafe { std::slice::from_raw_parts(at, len) })
        };
        queue.submit(tag, Box::new(job))
    })
}

/// As `weir_fsync`, but returns at once. Covers writes that ended before it was submitted, not
/// those that are still queued.
#[unsafe(no_mangle)]
pub extern "C" fn weir_submit_fsync(queue: weir_queue_t, file: weir_file_t, tag: u64) -> c_int {
    status(|| {
        let (queue, file) = both(queue, file)?;
        let open = file.open()?;
        let job = move || open.file.sync(&context(&file)).map(|()| 0);
        queue.submit(tag, Box::new(job))
    })
}

fn both(queue: weir_queue_t, file: weir_file_t) -> Result<(Arc<Queue>, Arc<OpenFile>)> {
    Ok((handles::get::<Queue>(queue)?, handles::get::<OpenFile>(file)?))
}

/// Takes at most `capacity` completions and returns their number. Waits until there is at least
/// one, for at most `timeout_ms`: 0 does not wait, a negative value waits without limit.
///
/// # Safety
/// `completions` is NULL or has room for `capacity` entries.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_reap(
    queue: weir_queue_t,
    completions: *mut weir_completion_t,
    capacity: usize,
    timeout_ms: c_int,
) -> c_int {
    guard(|| {
        check_place(completions, "completions")?;
        if capacity == 0 {
            return Err(invalid("there is no room for a completion"));
        }
        let queue = handles::get::<Queue>(queue)?;
        let timeout = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
        let most = capacity.min(WEIR_QUEUE_MOST as usize);
        let reaped = queue.reap(most, timeout);
        for (n, completion) in reaped.iter().enumerate() {
            // SAFETY: there is room for `capacity` entries, and `n` is less.
            unsafe { completions.add(n).write(*completion) };
        }
        Ok(reaped.len() as i64)
    }) as c_int
}
