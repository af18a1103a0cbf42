//! Asks for which bytes of a file a local file system has allocated space: the ioctl `FIEMAP`.

use rustix::io::{Errno, Result};
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};

/// The number of `FS_IOC_FIEMAP` on every machine that Weir supports. Neither `libc` nor `rustix`
/// defines it.
const FIEMAP: u32 = 0xC020_660B;
/// Extents returned by one call.
const EXTENTS: usize = 128;

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Extent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved_64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

#[repr(C)]
struct Question {
    start: u64,
    length: u64,
    flags: u32,
    found: u32,
    room: u32,
    reserved: u32,
    extents: [Extent; EXTENTS],
}

const _: () = assert!(size_of::<Extent>() == 56 && size_of::<Question>() == 32 + 56 * EXTENTS);

/// See [`crate::fs::File::extents`].
pub(crate) fn extents(file: &OwnedFd, from: u64) -> Result<Option<Vec<Range<u64>>>> {
    let mut question = Box::new(Question {
        start: from,
        length: u64::MAX - from,
        flags: 0,
        found: 0,
        room: EXTENTS as u32,
        reserved: 0,
        extents: [Extent::default(); EXTENTS],
    });
    loop {
        // SAFETY: the descriptor is open. The structure has the kernel's layout, says how many
        // extents it has space for, and outlives the call; the kernel does not keep its address.
        let result =
            unsafe { libc::ioctl(file.as_raw_fd(), libc::Ioctl::from(FIEMAP), &raw mut *question) };
        if result == 0 {
            break;
        }
        let errno = std::io::Error::last_os_error().raw_os_error();
        match Errno::from_raw_os_error(errno.unwrap_or(libc::EIO)) {
            Errno::INTR => {}
            Errno::OPNOTSUPP | Errno::NOTTY | Errno::NOSYS | Errno::BADR => return Ok(None),
            errno => return Err(errno),
        }
    }
    let found = question.extents.iter().take(question.found as usize);
    let range =
        |extent: &Extent| extent.logical.max(from)..extent.logical.saturating_add(extent.length);
    Ok(Some(found.map(range).filter(|range| !range.is_empty()).collect()))
}

/// Whether space is allocated for all bytes of a range. Reserved space that was never written
/// counts as allocated.
///
/// # Errors
/// `OPNOTSUPP`: the file system does not say; those of the disk.
pub(crate) fn cover(file: &OwnedFd, position: u64, bytes: u64) -> Result<bool> {
    let end = position.saturating_add(bytes);
    let mut at = position;
    while at < end {
        let some = extents(file, at)?.ok_or(Errno::OPNOTSUPP)?;
        let before = at;
        for range in some {
            if range.start > at {
                return Ok(false);
            }
            at = at.max(range.end);
        }
        if at == before {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::{Directory, OpenHow};
    use std::os::unix::fs::FileExt;

    #[test]
    fn room_is_told_before_it_is_written_to_the_disk_and_after() {
        let file = tempfile::tempfile().unwrap();
        let blocks = 2 * EXTENTS as u64 + 7;
        for block in 0..blocks {
            file.write_all_at(&[7; 4096], block * 16_384).unwrap();
        }
        let fd = OwnedFd::from(file.try_clone().unwrap());
        let all = || -> Option<u64> {
            let (mut at, mut sum) = (0, 0);
            loop {
                let some = extents(&fd, at).unwrap()?;
                let Some(last) = some.last() else { return Some(sum) };
                at = last.end;
                sum += some.iter().map(|range| range.end - range.start).sum::<u64>();
            }
        };
        let Some(before) = all() else { return println!("skipped: no FIEMAP here") };
        assert_eq!(before, blocks * 4096);
        file.sync_all().unwrap();
        assert_eq!(all(), Some(before));
        assert_eq!(extents(&fd, 100).unwrap().unwrap().first(), Some(&(100..4096)));
    }

    #[test]
    fn what_is_written_or_reserved_has_room_and_a_hole_has_none() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path();
        let dir = Directory::open(path).unwrap();
        let file = dir.open_file("f", OpenHow::CREATE).unwrap();
        file.write_full(&[1; 8192], 0).unwrap();
        file.set_len(1 << 20).unwrap();
        let has_room = |at, len| file.has_room(at, len).unwrap();
        assert!(has_room(0, 8192) && has_room(100, 5000) && has_room(5, 0));
        assert!(!has_room(0, 8193) && !has_room(1 << 19, 1));
        match file.allocate(1 << 19, 1 << 16, true) {
            Err(Errno::OPNOTSUPP) => println!("skipped: no room can be reserved here"),
            done => done.unwrap(),
        }
        // Where the file system does not support this, reserved space may count as a hole.
        assert!(!has_room(1 << 19, (1 << 16) + 1));
        if super::cover(&std::fs::File::open(path.join("f")).unwrap().into(), 0, 1).is_ok() {
            assert!(has_room(1 << 19, 1 << 16));
        }
    }
}
