//! Open files: opening, closing, size, durability, space.

use crate::args::{check_place, put, range, text};
use crate::error::{guard, invalid, status};
use crate::handles::{self, Handled, weir_file_t, weir_fs_t};
use crate::layouts::weir_layout_t;
use crate::names::{Named, stat_of, weir_stat_t};
use crate::session::{Connection, Hold, OpenFile};
use std::ffi::{c_char, c_int};
use std::sync::Arc;
use weir_client::{CreateOptions, File};
use weir_types::{Attr, ErrorKind, FileKind, LayoutSpec, Result};
use weir_wire::capability::Rights;

/// Maximum number of symbolic links that are followed, as on Linux.
const MAX_LINKS: u32 = 40;

impl Handled for OpenFile {
    const KIND: u64 = 2;
    const NAME: &'static str = "file";
    const SURVIVES_FORK: bool = true;
}

/// Opens a regular file. `flags`: O_RDONLY, O_WRONLY or O_RDWR, with O_CREAT, O_EXCL, O_TRUNC,
/// O_APPEND, O_NOFOLLOW. O_CLOEXEC and O_LARGEFILE are ignored; others are `-EINVAL`. `mode` is for
/// new files; the umask is not applied.
///
/// # Safety
/// The pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_open(
    fs: weir_fs_t,
    path: *const c_char,
    flags: c_int,
    mode: u32,
    file: *mut weir_file_t,
) -> c_int {
    // SAFETY: by the contract of this function.
    status(|| unsafe { open(fs, path, (flags, mode), None, file) })
}

/// As `weir_open` with O_CREAT; a new file gets this layout. `layout` may be NULL, for the layout
/// of the directory.
///
/// # Safety
/// The pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_create(
    fs: weir_fs_t,
    path: *const c_char,
    flags: c_int,
    mode: u32,
    layout: *const weir_layout_t,
    file: *mut weir_file_t,
) -> c_int {
    status(|| {
        // SAFETY: by the contract of this function.
        let spec = unsafe { crate::layouts::spec(layout) }?;
        // SAFETY: as above.
        unsafe { open(fs, path, (flags | libc::O_CREAT, mode), spec, file) }
    })
}

unsafe fn open(
    fs: weir_fs_t,
    path: *const c_char,
    (flags, mode): (c_int, u32),
    layout: Option<LayoutSpec>,
    file: *mut weir_file_t,
) -> Result<()> {
    check_place(file, "file")?;
    let how = How::of(flags, mode)?;
    // SAFETY: by the contract of the caller.
    let path = unsafe { text(path, "path") }?;
    let connection = handles::get::<Connection>(fs)?;
    let session = connection.session()?;
    let named = Named { connection: &connection, client: &session.client, path };
    let opened = named.about(how.open(&named, layout))?;
    let open =
        OpenFile::new(connection.clone(), session.clone(), (opened, how.rights, how.appends));
    let failed = |_: &_| connection.release(Hold::Shared);
    let handle = handles::add(Arc::new(open)).inspect_err(failed)?;
    // SAFETY: by the contract of the caller.
    unsafe { put(file, handle, "file") }
}

/// The options of an open, from its flags.
struct How {
    rights: Rights,
    mode: u16,
    creates: bool,
    exclusive: bool,
    truncates: bool,
    appends: bool,
    follows: bool,
}

impl How {
    fn of(flags: c_int, mode: u32) -> Result<Self> {
        let known = libc::O_ACCMODE
            | libc::O_CREAT
            | libc::O_EXCL
            | libc::O_TRUNC
            | libc::O_APPEND
            | libc::O_NOFOLLOW
            | libc::O_CLOEXEC
            | libc::O_LARGEFILE;
        if flags & !known != 0 {
            return Err(invalid(format!("open: flags {:#o} are not known", flags & !known)));
        }
        let rights = match flags & libc::O_ACCMODE {
            libc::O_RDONLY => Rights::READ,
            libc::O_WRONLY => Rights::WRITE,
            libc::O_RDWR => Rights::READ_WRITE,
            _ => return Err(invalid("open: flags name no way of access")),
        };
        let has = |flag| flags & flag != 0;
        if mode > 0o7777 {
            return Err(invalid(format!("mode {mode:#o} has more than permission bits")));
        }
        Ok(Self {
            rights,
            mode: mode as u16,
            creates: has(libc::O_CREAT),
            exclusive: has(libc::O_EXCL),
            truncates: has(libc::O_TRUNC),
            appends: has(libc::O_APPEND),
            follows: !has(libc::O_NOFOLLOW),
        })
    }

    fn open(&self, named: &Named<'_>, layout: Option<LayoutSpec>) -> Result<File> {
        let (client, ctx) = (named.client, &named.connection.context);
        if self.creates {
            let (dir, name) = named.parent()?;
            let found = match client.lookup(ctx, dir, name) {
                Err(error) if error.kind == ErrorKind::NotFound => None,
                found => Some(found?),
            };
            let leads_on = |attr: &Attr| attr.kind == FileKind::Symlink && !self.exclusive;
            let is_link = found.as_ref().is_some_and(leads_on);
            // The target of a dangling link is the file to be created.
            let nothing = if is_link && self.follows { dangling(named)? } else { None };
            if !is_link || nothing.is_some() {
                let path = nothing.as_deref().unwrap_or(named.path);
                let (dir, name) = Named { path, ..*named }.parent()?;
                let options = CreateOptions {
                    mode: self.mode,
                    exclusive: self.exclusive,
                    truncate: self.truncates,
                    rights: self.rights,
                    layout,
                    ..CreateOptions::default()
                };
                return client.create(ctx, dir, name, &options).map(|(file, _)| file);
            }
        }
        let attr = named.attr(self.follows)?;
        match attr.kind {
            FileKind::File => {}
            FileKind::Directory => return Err(ErrorKind::IsDirectory.into()),
            FileKind::Symlink => return Err(ErrorKind::SymlinkLoop.into()),
            _ => return Err(invalid("not a regular file")),
        }
        let (file, _) = client.open(ctx, attr.file, self.rights)?;
        if self.truncates {
            file.truncate(ctx, 0)?;
        }
        Ok(file)
    }
}

/// The path that a dangling symbolic link leads to; `None` if a file exists there.
fn dangling(named: &Named<'_>) -> Result<Option<Vec<u8>>> {
    let (client, ctx) = (named.client, &named.connection.context);
    let mut path = named.path.to_vec();
    for links in 0..=MAX_LINKS {
        let at = Named { path: &path, ..*named };
        let attr = match at.attr(false) {
            Err(error) if error.kind == ErrorKind::NotFound => {
                return Ok((links > 0).then_some(path));
            }
            attr => attr?,
        };
        if attr.kind != FileKind::Symlink {
            return Ok(None);
        }
        let target = client.readlink(ctx, attr.file)?;
        path = match target.first() {
            Some(b'/') => target.to_vec(),
            _ => [at.split().0, &target].concat(),
        };
    }
    Err(ErrorKind::SymlinkLoop.into())
}

/// Waits for all calls on the file, sends buffered writes and waits for them, and closes. The
/// handle is closed in any case. An error says that data was lost, or may be (`-ETIMEDOUT`: calls
/// have not ended).
#[unsafe(no_mangle)]
pub extern "C" fn weir_close(file: weir_file_t) -> c_int {
    status(|| handles::remove::<OpenFile>(file)?.close())
}

fn with(file: weir_file_t, run: impl FnOnce(&OpenFile, &File) -> Result<()>) -> c_int {
    status(|| {
        let handle = handles::get::<OpenFile>(file)?;
        let open = handle.open()?;
        run(&handle, &open.file)
    })
}

/// Makes data and metadata durable on all copies.
#[unsafe(no_mangle)]
pub extern "C" fn weir_fsync(file: weir_file_t) -> c_int {
    with(file, |handle, open| open.sync(&handle.connection.context))
}

/// Sends buffered writes and waits until the servers have them. Other clients then see them; they
/// are not yet durable.
#[unsafe(no_mangle)]
pub extern "C" fn weir_flush(file: weir_file_t) -> c_int {
    with(file, |handle, open| open.flush(&handle.connection.context))
}

/// Truncates or extends an open file.
#[unsafe(no_mangle)]
pub extern "C" fn weir_ftruncate(file: weir_file_t, size: u64) -> c_int {
    with(file, |handle, open| {
        range(0, size)?;
        writable(handle)?;
        open.truncate(&handle.connection.context, size).map(drop)
    })
}

/// Attributes of an open file, including the writes of this process.
///
/// # Safety
/// `stat` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_fstat(file: weir_file_t, stat: *mut weir_stat_t) -> c_int {
    status(|| {
        let handle = handles::get::<OpenFile>(file)?;
        let session = handle.connection.session()?;
        let attr = session.client.getattr(&handle.connection.context, handle.id)?;
        // SAFETY: by the contract of this function.
        unsafe { put(stat, stat_of(&attr), "stat") }
    })
}

/// `fallocate(2)`: `mode` is 0 or FALLOC_FL_KEEP_SIZE (reserve), FALLOC_FL_PUNCH_HOLE with
/// FALLOC_FL_KEEP_SIZE, or FALLOC_FL_ZERO_RANGE with or without FALLOC_FL_KEEP_SIZE.
#[unsafe(no_mangle)]
pub extern "C" fn weir_fallocate(file: weir_file_t, mode: c_int, offset: u64, len: u64) -> c_int {
    with(file, |handle, open| {
        range(offset, len)?;
        writable(handle)?;
        let ctx = &handle.connection.context;
        let keep_size = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
        match mode & !libc::FALLOC_FL_KEEP_SIZE {
            0 => open.allocate(ctx, offset, len, keep_size),
            libc::FALLOC_FL_PUNCH_HOLE if keep_size => open.punch(ctx, offset, len),
            libc::FALLOC_FL_ZERO_RANGE => open.zero(ctx, offset, len, keep_size),
            _ => Err(ErrorKind::Unsupported.into()),
        }
    })
}

/// The first data (`whence` SEEK_DATA) or hole (SEEK_HOLE) at or after an offset; `-ENXIO` if
/// there is none.
#[unsafe(no_mangle)]
pub extern "C" fn weir_seek(file: weir_file_t, offset: u64, whence: c_int) -> i64 {
    guard(|| {
        range(offset, 0)?;
        let handle = handles::get::<OpenFile>(file)?;
        let (open, ctx) = (handle.open()?, &handle.connection.context);
        let found = match whence {
            libc::SEEK_DATA => open.file.next_data(ctx, offset)?,
            libc::SEEK_HOLE => open.file.next_hole(ctx, offset)?,
            _ => return Err(invalid("whence is neither SEEK_DATA nor SEEK_HOLE")),
        };
        found.map(|at| at as i64).ok_or_else(|| ErrorKind::OutOfRange.into())
    })
}

/// Refuses a change through a handle that is not open for writing.
pub(crate) fn writable(handle: &OpenFile) -> Result<()> {
    match handle.rights.allow(Rights::WRITE) {
        true => Ok(()),
        false => Err(weir_types::Error::new(ErrorKind::BadHandle, "the file is not open to write")),
    }
}

/// Refuses a read through a handle that is not open for reading.
pub(crate) fn readable(handle: &OpenFile) -> Result<()> {
    match handle.rights.allow(Rights::READ) {
        true => Ok(()),
        false => Err(weir_types::Error::new(ErrorKind::BadHandle, "the file is not open to read")),
    }
}
