//! Which pages of a file are in the page cache: `cachestat(2)`, Linux 6.5.

use std::os::fd::{AsRawFd, OwnedFd};

/// The number of `cachestat` on every machine that Weir supports. Neither `libc` nor `rustix`
/// defines it.
const CACHESTAT: libc::c_long = 451;

#[repr(C)]
struct Range {
    start: u64,
    bytes: u64,
}

/// The kernel's `struct cachestat`: numbers of pages.
#[repr(C)]
#[derive(Default)]
struct Counts {
    cached: u64,
    dirty: u64,
    in_writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// See [`crate::fs::File::may_be_cached`].
pub(crate) fn may_be_cached(file: &OwnedFd, start: u64, bytes: u64) -> bool {
    if bytes == 0 {
        return true;
    }
    let (range, mut counts) = (Range { start, bytes }, Counts::default());
    // SAFETY: the descriptor is open. Both structures have the kernel's layout and outlive the
    // call; the kernel keeps neither address.
    let result =
        unsafe { libc::syscall(CACHESTAT, file.as_raw_fd(), &raw const range, &raw mut counts, 0) };
    let page = rustix::param::page_size() as u64;
    let pages = (start + bytes - 1) / page - start / page + 1;
    result != 0 || counts.cached >= pages
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::param::page_size;
    use std::fs::File;
    use std::io::Write;

    #[test]
    fn a_hole_is_not_cached_and_what_was_just_written_is() {
        let page = page_size() as u64;
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![7; 3 * page_size()]).unwrap();
        file.set_len(100 * page).unwrap();
        let file = OwnedFd::from(file);
        assert!(may_be_cached(&file, 0, 3 * page) && may_be_cached(&file, 5000, 1));
        let tells = !may_be_cached(&file, 50 * page, 1);
        assert_eq!(tells, !may_be_cached(&file, page, 3 * page));
        assert!(tells || !has_call(), "Linux 6.5 tells");
    }

    fn has_call() -> bool {
        let (range, mut counts) = (Range { start: 0, bytes: 1 }, Counts::default());
        let file = File::open("/proc/self/exe").unwrap();
        // SAFETY: the descriptor is open, and the structures outlive the call.
        let result = unsafe {
            libc::syscall(CACHESTAT, file.as_raw_fd(), &raw const range, &raw mut counts, 0)
        };
        result == 0
    }
}
