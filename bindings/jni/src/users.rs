//! Names of users and groups, from this machine's user and group databases.

use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::ptr;
use weir_client::job::{Member, job_named};
use weir_types::limits::MAX_GROUPS;
use weir_types::{Caller, Error, ErrorKind, Rank, Result};

/// Size of the first buffer for an entry, and of the largest one.
const ENTRY_BYTES: usize = 64 << 10;
const MAX_ENTRY_BYTES: usize = 16 << 20;

/// Looks up an entry of a database. `ask` is one of the `_r` functions of libc; `take` copies what
/// is needed from the entry while the buffer lives. `None`: there is no such entry.
fn entry<E, T>(
    ask: impl Fn(*mut E, *mut libc::c_char, usize, *mut *mut E) -> i32,
    take: impl FnOnce(&E) -> T,
) -> Result<Option<T>> {
    let mut place = MaybeUninit::<E>::uninit();
    let mut buffer = vec![0; ENTRY_BYTES];
    loop {
        let mut found = ptr::null_mut();
        match ask(place.as_mut_ptr(), buffer.as_mut_ptr(), buffer.len(), &raw mut found) {
            // SAFETY: a successful call has filled `place`, and `found` points to it or is null.
            0 => return Ok(unsafe { found.as_ref() }.map(take)),
            libc::ERANGE if buffer.len() < MAX_ENTRY_BYTES => buffer = vec![0; buffer.len() * 4],
            // ENOENT is included: it means that a service is down, not that the name is missing.
            code => {
                let text = format!(
                    "users and groups cannot be looked up on this machine ({}): see \
                     /etc/nsswitch.conf, and whether the services that it names run",
                    std::io::Error::from_raw_os_error(code)
                );
                return Err(Error::new(ErrorKind::Io, text));
            }
        }
    }
}

/// A text field of an entry.
fn text(chars: *const libc::c_char) -> String {
    if chars.is_null() {
        return String::new();
    }
    // SAFETY: libc puts zero-terminated text into the buffer, which outlives this call.
    unsafe { CStr::from_ptr(chars) }.to_string_lossy().into_owned()
}

/// The name of a user, or else its number.
pub fn user_name(uid: u32) -> String {
    let found = entry::<libc::passwd, _>(
        // SAFETY: all pointers refer to memory of the given lengths.
        |e, b, n, f| unsafe { libc::getpwuid_r(uid, e, b, n, f) },
        |e| text(e.pw_name),
    );
    found.ok().flatten().unwrap_or_else(|| uid.to_string())
}

/// The name of a group, or else its number.
pub fn group_name(gid: u32) -> String {
    let found = entry::<libc::group, _>(
        // SAFETY: all pointers refer to memory of the given lengths.
        |e, b, n, f| unsafe { libc::getgrgid_r(gid, e, b, n, f) },
        |e| text(e.gr_name),
    );
    found.ok().flatten().unwrap_or_else(|| gid.to_string())
}

fn c_name(name: &str) -> Result<CString> {
    CString::new(name).map_err(|_| ErrorKind::InvalidArgument.into())
}

/// User id and primary group of a name.
fn user(name: &str) -> Result<Option<(u32, u32)>> {
    let c_name = c_name(name)?;
    entry::<libc::passwd, _>(
        // SAFETY: all pointers refer to memory of the given lengths; the name outlives the call.
        |e, b, n, f| unsafe { libc::getpwnam_r(c_name.as_ptr(), e, b, n, f) },
        |e| (e.pw_uid, e.pw_gid),
    )
}

/// The id of a user, given by name or number.
pub fn user_number(name: &str) -> Result<u32> {
    number(user(name).map(|found| found.map(|(uid, _)| uid)), "user", name)
}

/// The id of a group, given by name or number.
pub fn group_number(name: &str) -> Result<u32> {
    let c_name = c_name(name)?;
    let found = entry::<libc::group, _>(
        // SAFETY: all pointers refer to memory of the given lengths; the name outlives the call.
        |e, b, n, f| unsafe { libc::getgrnam_r(c_name.as_ptr(), e, b, n, f) },
        |e| e.gr_gid,
    );
    number(found, "group", name)
}

/// The id that was found for a name, or the number that the name spells.
fn number(found: Result<Option<u32>>, what: &str, name: &str) -> Result<u32> {
    match (found, name.parse()) {
        (Ok(Some(number)), _) | (_, Ok(number)) => Ok(number),
        (Ok(None), _) => Err(unknown(what, name)),
        (Err(error), _) => Err(error),
    }
}

/// This process as one of a job. Nobody numbers the processes of Hadoop's jobs, so the machine and
/// the process give its number.
pub fn member(job: &str, uid: u32) -> Member {
    let process = format!("{} {}", weir_host::host_name(), std::process::id());
    let rank = Rank(weir_types::checksum::crc32c(process.as_bytes()));
    Member { job: job_named(job, uid), rank, ranks: 1, shared: false }
}

fn unknown(what: &str, name: &str) -> Error {
    let text = format!(
        "this machine knows no {what} '{name}': files belong to numbers, which /etc/passwd and \
         /etc/group give names; add it there, give its number, or let such users act as another \
         one (fs.weir.unknown.user)"
    );
    Error::new(ErrorKind::InvalidArgument, text)
}

/// The identity for a user name. If this machine does not know the user, it is that of `other`,
/// unless that is empty. If the user database does not answer, this is an error: nobody acts as
/// another user because of that.
pub fn caller(name: &str, other: &str) -> Result<Caller> {
    if let Some(caller) = known(name)? {
        return Ok(caller);
    }
    if other.is_empty() {
        return Err(unknown("user", name));
    }
    known(other)?.ok_or_else(|| unknown("user", other))
}

/// The identity of a user name, with all of its groups.
fn known(name: &str) -> Result<Option<Caller>> {
    let Some((uid, gid)) = user(name)? else { return Ok(None) };
    let c_name = c_name(name)?;
    let mut groups = vec![0; MAX_GROUPS];
    let mut count = groups.len() as libc::c_int;
    // SAFETY: there is room for `count` groups.
    let code =
        unsafe { libc::getgrouplist(c_name.as_ptr(), gid, groups.as_mut_ptr(), &raw mut count) };
    if code < 0 {
        let text = format!("user '{name}' is in more than {MAX_GROUPS} groups");
        return Err(Error::new(ErrorKind::InvalidArgument, text));
    }
    groups.truncate(usize::try_from(count).unwrap_or(0));
    Ok(Some(Caller { uid, gid, groups }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_superuser_has_a_name_and_an_unknown_number_stays_one() {
        assert_eq!((user_name(0), user_number("root").unwrap()), ("root".to_owned(), 0));
        assert_eq!((group_name(0), group_number("root").unwrap()), ("root".to_owned(), 0));
        assert_eq!(user_name(3_999_999_999), "3999999999");
        assert_eq!(user_number("3999999999").unwrap(), 3_999_999_999);
        assert!(user_number("no such user").unwrap_err().message.contains("no such user"));
        assert_eq!(caller("root", "").unwrap().uid, 0);
        assert_eq!(caller("no such user", "root").unwrap().uid, 0);
        assert!(caller("no such user", "").is_err());
        assert!(caller("no such user", "nor this").unwrap_err().message.contains("nor this"));
    }

    #[test]
    fn an_entry_gets_room_and_a_table_that_fails_is_not_one_without_the_name() {
        let room = std::cell::Cell::new(0);
        let needs = |bytes: usize| {
            let room = &room;
            entry::<u32, u32>(
                move |place, _, len, found| {
                    room.set(len);
                    if len < bytes {
                        return libc::ERANGE;
                    }
                    // SAFETY: both pointers refer to memory of the caller.
                    unsafe {
                        place.write(7);
                        found.write(place);
                    }
                    0
                },
                |value| *value,
            )
        };
        assert_eq!(needs(ENTRY_BYTES + 1).unwrap(), Some(7));
        assert_eq!(needs(usize::MAX).unwrap_err().kind, ErrorKind::Io);
        assert_eq!(room.get(), MAX_ENTRY_BYTES);
        assert_eq!(entry::<u32, u32>(|_, _, _, _| 0, |value| *value).unwrap(), None);
        for code in [libc::EIO, libc::ENOENT, libc::ECONNREFUSED] {
            let failed = entry::<u32, u32>(|_, _, _, _| code, |value| *value);
            assert_eq!(failed.unwrap_err().kind, ErrorKind::Io);
        }
    }
}
