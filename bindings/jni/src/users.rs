//! Names of users and groups, by the tables of this machine.

use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::ptr;
use weir_types::limits::MAX_GROUPS;
use weir_types::{Caller, Error, ErrorKind, Result};

/// The longest entry of a table that is understood.
const ENTRY_BYTES: usize = 64 << 10;

/// Asks a table for an entry: `ask` is one of the `_r` functions of libc, and `take` copies out
/// of the entry what is wanted while the buffer lives.
fn entry<E, T>(
    ask: impl FnOnce(*mut E, *mut libc::c_char, usize, *mut *mut E) -> i32,
    take: impl FnOnce(&E) -> T,
) -> Option<T> {
    let mut place = MaybeUninit::<E>::uninit();
    let mut buffer = vec![0; ENTRY_BYTES];
    let mut found = ptr::null_mut();
    let code = ask(place.as_mut_ptr(), buffer.as_mut_ptr(), buffer.len(), &raw mut found);
    if code != 0 {
        return None;
    }
    // SAFETY: a successful call has filled `place`, and `found` points to it or is null.
    unsafe { found.as_ref() }.map(take)
}

/// A text of an entry.
fn text(chars: *const libc::c_char) -> String {
    if chars.is_null() {
        return String::new();
    }
    // SAFETY: libc puts zero-terminated text into the buffer, which outlives this call.
    unsafe { CStr::from_ptr(chars) }.to_string_lossy().into_owned()
}

/// The name of a user; its number where there is none.
pub fn user_name(uid: u32) -> String {
    let found = entry::<libc::passwd, _>(
        // SAFETY: all pointers are to memory of the lengths that are said.
        |e, b, n, f| unsafe { libc::getpwuid_r(uid, e, b, n, f) },
        |e| text(e.pw_name),
    );
    found.unwrap_or_else(|| uid.to_string())
}

/// The name of a group; its number where there is none.
pub fn group_name(gid: u32) -> String {
    let found = entry::<libc::group, _>(
        // SAFETY: as above.
        |e, b, n, f| unsafe { libc::getgrgid_r(gid, e, b, n, f) },
        |e| text(e.gr_name),
    );
    found.unwrap_or_else(|| gid.to_string())
}

fn c_name(name: &str) -> Result<CString> {
    CString::new(name).map_err(|_| ErrorKind::InvalidArgument.into())
}

/// User and first group of a name.
fn user(name: &str) -> Result<Option<(u32, u32)>> {
    let c_name = c_name(name)?;
    Ok(entry::<libc::passwd, _>(
        // SAFETY: as above; the name lives until the call returns.
        |e, b, n, f| unsafe { libc::getpwnam_r(c_name.as_ptr(), e, b, n, f) },
        |e| (e.pw_uid, e.pw_gid),
    ))
}

/// The number of a user, given as a name or as a number.
pub fn user_number(name: &str) -> Result<u32> {
    let found = user(name)?.map(|(uid, _)| uid).or_else(|| name.parse().ok());
    found.ok_or_else(|| unknown("user", name))
}

/// The number of a group, given as a name or as a number.
pub fn group_number(name: &str) -> Result<u32> {
    let c_name = c_name(name)?;
    let found = entry::<libc::group, _>(
        // SAFETY: as above.
        |e, b, n, f| unsafe { libc::getgrnam_r(c_name.as_ptr(), e, b, n, f) },
        |e| e.gr_gid,
    );
    found.or_else(|| name.parse().ok()).ok_or_else(|| unknown("group", name))
}

fn unknown(what: &str, name: &str) -> Error {
    let text = format!(
        "this machine knows no {what} '{name}': files belong to numbers, which /etc/passwd and \
         /etc/group give names; add it there, give its number, or let such users act as another \
         one (fs.weir.unknown.user)"
    );
    Error::new(ErrorKind::InvalidArgument, text)
}

/// The user of a name with all groups of it.
pub fn caller(name: &str) -> Result<Caller> {
    let Some((uid, gid)) = user(name)? else { return Err(unknown("user", name)) };
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
    Ok(Caller { uid, gid, groups })
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
        assert_eq!(caller("root").unwrap().uid, 0);
        assert!(caller("no such user").is_err());
    }
}
