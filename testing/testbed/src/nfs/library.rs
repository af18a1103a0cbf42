//! libnfs, loaded by `dlopen` so that it is not needed to build.

use std::ffi::{CStr, c_char, c_int, c_void};

/// A connection of the library.
#[repr(C)]
pub struct Context {
    _opaque: [u8; 0],
}

/// An open file of the library.
#[repr(C)]
pub struct OpenFile {
    _opaque: [u8; 0],
}

/// Location of an export: `struct nfs_url`.
#[repr(C)]
pub struct Url {
    pub server: *mut c_char,
    pub path: *mut c_char,
    pub file: *mut c_char,
}

/// Attributes of a file: `struct nfs_stat_64`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Stat {
    pub dev: u64,
    pub ino: u64,
    pub mode: u64,
    pub nlink: u64,
    pub uid: u64,
    pub gid: u64,
    pub rdev: u64,
    pub size: u64,
    pub blksize: u64,
    pub blocks: u64,
    pub atime: u64,
    pub mtime: u64,
    pub ctime: u64,
    pub atime_nsec: u64,
    pub mtime_nsec: u64,
    pub ctime_nsec: u64,
    pub used: u64,
}

/// Callback for a completed operation: error or length, context, result, and the caller's pointer.
pub type Callback = unsafe extern "C" fn(c_int, *mut Context, *mut c_void, *mut c_void);
type Path = *const c_char;
type Given = *mut c_void;

/// The functions of the library that are used; see its `libnfs.h`.
#[derive(Clone, Copy)]
pub struct Library {
    pub init_context: unsafe extern "C" fn() -> *mut Context,
    pub destroy_context: unsafe extern "C" fn(*mut Context),
    pub get_fd: unsafe extern "C" fn(*mut Context) -> c_int,
    pub which_events: unsafe extern "C" fn(*mut Context) -> c_int,
    pub service: unsafe extern "C" fn(*mut Context, c_int) -> c_int,
    pub parse_url_dir: unsafe extern "C" fn(*mut Context, Path) -> *mut Url,
    pub destroy_url: unsafe extern "C" fn(*mut Url),
    pub mount: unsafe extern "C" fn(*mut Context, Path, Path, Callback, Given) -> c_int,
    pub stat: unsafe extern "C" fn(*mut Context, Path, Callback, Given) -> c_int,
    pub open: unsafe extern "C" fn(*mut Context, Path, c_int, Callback, Given) -> c_int,
    pub close: unsafe extern "C" fn(*mut Context, *mut OpenFile, Callback, Given) -> c_int,
    pub read: unsafe extern "C" fn(*mut Context, *mut OpenFile, u64, u64, Callback, Given) -> c_int,
}

/// The version with the types above.
const NAME: &CStr = c"libnfs.so.13";

impl Library {
    /// `None` if it is not installed.
    #[expect(clippy::missing_transmute_annotations, reason = "the fields above have the types")]
    pub fn load() -> Option<Self> {
        // SAFETY: the name is a C string, and the library's initialisers have no preconditions.
        let library = unsafe { libc::dlopen(NAME.as_ptr(), libc::RTLD_NOW) };
        if library.is_null() {
            return None;
        }
        macro_rules! find {
            ($name:literal) => {{
                // SAFETY: the library stays open, and the name is a C string.
                let symbol = unsafe { libc::dlsym(library, $name.as_ptr()) };
                if symbol.is_null() {
                    return None;
                }
                // SAFETY: the field has the type from `libnfs.h` of this version.
                unsafe { std::mem::transmute::<*mut c_void, _>(symbol) }
            }};
        }
        Some(Self {
            init_context: find!(c"nfs_init_context"),
            destroy_context: find!(c"nfs_destroy_context"),
            get_fd: find!(c"nfs_get_fd"),
            which_events: find!(c"nfs_which_events"),
            service: find!(c"nfs_service"),
            parse_url_dir: find!(c"nfs_parse_url_dir"),
            destroy_url: find!(c"nfs_destroy_url"),
            mount: find!(c"nfs_mount_async"),
            stat: find!(c"nfs_lstat64_async"),
            open: find!(c"nfs_open_async"),
            close: find!(c"nfs_close_async"),
            read: find!(c"nfs_pread_async"),
        })
    }
}
