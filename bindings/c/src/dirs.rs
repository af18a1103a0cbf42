//! Directories: listing entries with attributes.

use crate::args::{check_place, put};
use crate::error::{guard, status};
use crate::handles::{self, Handled, weir_dir_t, weir_fs_t};
use crate::names::{stat_of, weir_stat_t, with_path};
use crate::session::{Connection, Hold};
use std::collections::VecDeque;
use std::ffi::{c_char, c_int};
use std::sync::{Arc, Mutex, PoisonError};
use weir_types::{ErrorKind, FileId, FileKind, Result};
use weir_wire::meta::DirEntry;

/// Entries requested at once.
const PAGE: u32 = 1024;
/// Bytes of a name, including the final zero byte.
pub const WEIR_NAME_BYTES: usize = 256;

/// One entry of a directory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct weir_dirent_t {
    /// The name, which ends with a zero byte.
    pub name: [c_char; WEIR_NAME_BYTES],
    /// 1: `stat` is known. 0: the file was removed meanwhile; then `stat` has only `ino` and the
    /// kind.
    pub has_stat: u32,
    /// Attributes. For a symbolic link: of the link itself.
    pub stat: weir_stat_t,
}

pub(crate) struct Directory {
    connection: Arc<Connection>,
    file: FileId,
    // Locked while a page is requested: one thread at a time reads a handle. A child of `fork`
    // cannot use the handle, so this needs no gate.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    cookie: u64,
    last: u64,
    ended: bool,
    entries: VecDeque<DirEntry>,
}

impl Handled for Directory {
    const KIND: u64 = 3;
    const NAME: &'static str = "directory";
    const SURVIVES_FORK: bool = false;
}

/// Opens a directory to be listed. A child of `fork` has to open its own.
///
/// # Safety
/// The pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_opendir(
    fs: weir_fs_t,
    path: *const c_char,
    dir: *mut weir_dir_t,
) -> c_int {
    status(|| {
        check_place(dir, "dir")?;
        // SAFETY: by the contract of this function.
        let attr = unsafe { with_path(fs, path, |named| named.attr(true)) }?;
        if attr.kind != FileKind::Directory {
            return Err(ErrorKind::NotDirectory.into());
        }
        let connection = handles::get::<Connection>(fs)?;
        connection.hold(Hold::Own);
        let (state, file) = (Mutex::default(), attr.file);
        let opened = Arc::new(Directory { connection: connection.clone(), file, state });
        let failed = |_: &_| connection.release(Hold::Own);
        let handle = handles::add(opened).inspect_err(failed)?;
        // SAFETY: by the contract of this function.
        unsafe { put(dir, handle, "dir") }
    })
}

/// Returns the next entry, without `.` and `..`: 1, or 0 at the end.
///
/// # Safety
/// `entry` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_readdir(dir: weir_dir_t, entry: *mut weir_dirent_t) -> c_int {
    guard(|| {
        check_place(entry, "entry")?;
        let dir = handles::get::<Directory>(dir)?;
        let Some(next) = dir.next()? else { return Ok(0) };
        // SAFETY: by the contract of this function.
        unsafe { put(entry, shown(&next), "entry") }.map(|()| 1)
    }) as c_int
}

/// Closes a directory.
#[unsafe(no_mangle)]
pub extern "C" fn weir_closedir(dir: weir_dir_t) -> c_int {
    status(|| handles::remove::<Directory>(dir).map(|dir| dir.connection.release(Hold::Own)))
}

impl Directory {
    fn next(&self) -> Result<Option<DirEntry>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(entry) = state.entries.pop_front() {
                if &*entry.name != b"." && &*entry.name != b".." {
                    return Ok(Some(entry));
                }
                continue;
            }
            if state.ended {
                return Ok(None);
            }
            let session = self.connection.session()?;
            let (ctx, place) = (&self.connection.context, (state.cookie, state.last));
            let page = session.client.readdir(ctx, self.file, place, PAGE, true)?;
            state.last = page.last;
            state.cookie = page.entries.last().map_or(state.cookie, |entry| entry.cookie);
            state.ended = page.end || page.entries.is_empty();
            state.entries.extend(page.entries);
        }
    }
}

fn shown(entry: &DirEntry) -> weir_dirent_t {
    let mut name = [0; WEIR_NAME_BYTES];
    for (to, from) in name[..WEIR_NAME_BYTES - 1].iter_mut().zip(entry.name.iter()) {
        *to = *from as c_char;
    }
    let kind_only =
        weir_stat_t { ino: entry.file.0, mode: entry.kind.mode_bits(), ..Default::default() };
    let stat = entry.attr.as_ref().map_or(kind_only, stat_of);
    weir_dirent_t { name, has_stat: entry.attr.is_some().into(), stat }
}
