//! Connections to clusters.

use crate::args::{check_place, put, text};
use crate::error::{invalid, status};
use crate::find;
use crate::handles::{self, Handled, weir_fs_t};
use crate::process::watch_forks;
use crate::session::Connection;
use std::ffi::{c_char, c_int};
use std::sync::Arc;
use weir_types::{Caller, Consistency, Result};

/// Maximum of all timeouts: one day.
const MAX_TIMEOUT_MS: u64 = 86_400_000;

impl Handled for Connection {
    const KIND: u64 = 1;
    const NAME: &'static str = "file system";
    const SURVIVES_FORK: bool = true;
}

/// Options of a connection. Set all bytes to zero first: a zero means the default.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct weir_options_t {
    /// Timeout of the first connection, milliseconds; 0: 5000; at most one day.
    pub connect_timeout_ms: u64,
    /// Timeout of each request, milliseconds; 0: 30000; at most one day.
    pub request_timeout_ms: u64,
    /// Read-ahead of each sequential reader, bytes; 0: 4 MiB; UINT64_MAX: none.
    pub read_ahead_bytes: u64,
    /// Maximum of written and unconfirmed bytes of a file; 0: 8 MiB; UINT64_MAX: none, so that each
    /// write waits for its confirmation.
    pub write_behind_bytes: u64,
    /// 1: act as user `uid` and group `gid`. 0: act as the user and groups of this process.
    pub has_caller: u32,
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// When changes of other clients are seen: 0 at once, 1 relaxed, 2 at once because nothing is
    /// cached.
    pub consistency: u32,
}

/// Connects to a cluster. `where` is the path of a credential file or state directory if it
/// contains a `/`, and otherwise the name of a cluster on this machine. NULL: the cluster that the
/// program `weir` would use, by WEIR_CREDENTIAL, WEIR_DIR, WEIR_CLUSTER, the configuration file, or
/// the cluster `default`. `options` may be NULL. A child of `fork` uses the same handle; its first
/// call connects again.
///
/// # Safety
/// The pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_connect(
    r#where: *const c_char,
    options: *const weir_options_t,
    fs: *mut weir_fs_t,
) -> c_int {
    status(|| {
        check_place(fs, "fs")?;
        let named = match r#where.is_null() {
            true => None,
            // SAFETY: by the contract of this function.
            false => Some(unsafe { text(r#where, "where") }?),
        };
        let options = match options.is_null() {
            true => weir_options_t::default(),
            // SAFETY: not NULL, and by the contract of this function.
            false => unsafe { options.read_unaligned() },
        };
        let program = program();
        let mut config = find::cluster(named, &program)?;
        let or = |given: u64, usual: u64| match given {
            0 => usual,
            u64::MAX => 0,
            given => given,
        };
        config.connect_timeout_ms = time(options.connect_timeout_ms, config.connect_timeout_ms)?;
        config.request_timeout_ms = time(options.request_timeout_ms, config.request_timeout_ms)?;
        config.read_ahead_bytes = or(options.read_ahead_bytes, config.read_ahead_bytes);
        let behind = or(options.write_behind_bytes, config.write_behind_bytes as u64);
        config.write_behind_bytes =
            usize::try_from(behind).map_err(|_| invalid("write_behind_bytes is too large"))?;
        config.consistency = match options.consistency {
            0 => Consistency::Strict,
            1 => Consistency::Relaxed,
            2 => Consistency::None,
            other => return Err(invalid(format!("consistency: {other} is not 0, 1 or 2"))),
        };
        let caller = match options.has_caller {
            0 => weir_connect::caller(),
            _ => Caller { uid: options.uid, gid: options.gid, groups: Vec::new() },
        };
        watch_forks();
        let handle = handles::add(Arc::new(Connection::new(config, program, caller)?))?;
        // SAFETY: by the contract of this function.
        unsafe { put(fs, handle, "fs") }
    })
}

/// Ends a connection. Open files, directories and jobs keep its session until they are closed.
#[unsafe(no_mangle)]
pub extern "C" fn weir_disconnect(fs: weir_fs_t) -> c_int {
    status(|| handles::remove::<Connection>(fs).map(|connection| connection.disconnect()))
}

/// The id of this process's session, which `weir status` shows. Two processes never have the same
/// one.
///
/// # Safety
/// `session` is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_session(fs: weir_fs_t, session: *mut u64) -> c_int {
    status(|| {
        let connection = handles::get::<Connection>(fs)?;
        let number = connection.session()?.client.session().0;
        // SAFETY: by the contract of this function.
        unsafe { put(session, number, "session") }
    })
}

/// The value of a counter of this process's session (`data_requests`, `meta_requests`,
/// `read_wire_bytes`, ...); `-ENODATA` if there is none of that name.
///
/// # Safety
/// The pointers are NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_counter(
    fs: weir_fs_t,
    name: *const c_char,
    value: *mut u64,
) -> c_int {
    status(|| {
        // SAFETY: by the contract of this function.
        let name = unsafe { text(name, "name") }?;
        let session = handles::get::<Connection>(fs)?.session()?;
        let all = session.client.counters();
        let found = all.iter().find(|(found, _)| found.as_bytes() == name);
        let (_, count) = found.ok_or(weir_types::ErrorKind::NoAttribute)?;
        // SAFETY: by the contract of this function.
        unsafe { put(value, *count, "value") }
    })
}

/// Checks a timeout, milliseconds; 0 stands for `usual`.
fn time(given: u64, usual: u64) -> Result<u64> {
    match given {
        0 => Ok(usual),
        1..=MAX_TIMEOUT_MS => Ok(given),
        _ => Err(invalid(format!("a timeout of {given} ms: {MAX_TIMEOUT_MS} is the most"))),
    }
}

/// The name of this program, for `weir status`.
fn program() -> String {
    let path = std::env::current_exe().ok();
    let name = path.as_deref().and_then(std::path::Path::file_name);
    name.map_or("libweir".into(), |name| name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_the_usual_ones_or_those_given_up_to_a_day() {
        assert_eq!(time(0, 5000).unwrap(), 5000);
        assert_eq!(time(1, 5000).unwrap(), 1);
        assert_eq!(time(MAX_TIMEOUT_MS, 5000).unwrap(), MAX_TIMEOUT_MS);
        for far in [MAX_TIMEOUT_MS + 1, u64::MAX] {
            assert_eq!(time(far, 5000).unwrap_err().kind, weir_types::ErrorKind::InvalidArgument);
        }
    }
}
