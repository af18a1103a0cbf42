//! The C boundary: any function with any handles, numbers, texts and lists, without a cluster.

use crate::random::Gen;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use weir::dirs::{weir_closedir, weir_dirent_t, weir_opendir, weir_readdir};
use weir::error::weir_errmsg;
use weir::files::*;
use weir::fs::{weir_connect, weir_counter, weir_disconnect, weir_options_t, weir_session};
use weir::hints::weir_hint;
use weir::io::{weir_append, weir_pread, weir_pwrite};
use weir::jobs::*;
use weir::layouts::{weir_layout_get, weir_layout_set, weir_layout_t};
use weir::leases::{weir_layout_lease, weir_lease_check, weir_lease_return};
use weir::lists::*;
use weir::locations::{weir_location_t, weir_locations};
use weir::names::*;
use weir::queue::weir_completion_t;
use weir::queues::*;
use weir::xattrs::{weir_getxattr, weir_listxattr, weir_removexattr, weir_setxattr};

/// Calls of one input.
const MAX_CALLS: usize = 64;
/// Kinds of calls.
const KINDS: u8 = 55;
/// Bytes of the buffer that calls are given.
const ROOM: usize = 4096;

/// What an input makes of itself.
struct Input<'a> {
    data: &'a [u8],
    room: Vec<u8>,
    text: Vec<u8>,
    /// Handles that calls have given out.
    handles: Vec<u64>,
}

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        match self.data.split_first() {
            Some((first, rest)) => {
                self.data = rest;
                *first
            }
            None => 0,
        }
    }

    /// A small number, one at a border, or any.
    fn number(&mut self) -> u64 {
        match self.byte() {
            small @ 0..128 => small.into(),
            border @ 128..192 => (1_u64 << (border - 128)).wrapping_sub(self.byte().into()),
            _ => (0..8).fold(0, |number, _| number << 8 | u64::from(self.byte())),
        }
    }

    /// An open one, one of each kind that was never opened, or any.
    fn handle(&mut self) -> u64 {
        match self.byte() {
            at @ 0..100 => *self.handles.get(usize::from(at)).unwrap_or(&0),
            kind @ 100..200 => u64::from(kind & 15) << 60 | 1 << 32 | u64::from(self.byte()),
            _ => self.number(),
        }
    }

    /// NULL, or a text that ends.
    fn text(&mut self) -> *const c_char {
        let len = usize::from(self.byte());
        if len == 255 {
            return null();
        }
        self.text = (0..len).map(|_| self.byte().max(1)).collect();
        self.text.push(0);
        self.text.as_ptr().cast()
    }

    /// NULL, or as many bytes as are there, or more than memory can have.
    fn room(&mut self) -> (*mut c_void, usize) {
        match self.byte() {
            0 => (null_mut(), usize::from(self.byte())),
            1 => (self.room.as_mut_ptr().cast(), usize::MAX - usize::from(self.byte())),
            n => (self.room.as_mut_ptr().cast(), usize::from(n) * ROOM / 256),
        }
    }

    fn regions(&mut self) -> Vec<weir_region_t> {
        let count = self.byte() % 8;
        let region = |_| weir_region_t {
            offset: self.number(),
            size: self.number(),
            stride: self.number(),
            count: self.number(),
        };
        (0..count).map(region).collect()
    }
}

/// Runs the calls that an input stands for.
pub(crate) fn boundary(data: &[u8]) {
    let (room, text, handles) = (vec![0; ROOM], Vec::new(), Vec::new());
    let mut input = Input { data, room, text, handles };
    for _ in 0..MAX_CALLS {
        if input.data.is_empty() {
            break;
        }
        // SAFETY: all texts end, all buffers have as many bytes as is said, or more than memory
        // can have, which is refused; all other pointers are NULL or of values on this stack.
        let result = unsafe { call(&mut input) };
        // SAFETY: the text stays until the next error of this thread.
        let said = unsafe { CStr::from_ptr(weir_errmsg()) };
        assert!(result >= 0 || result > -4096 && !said.is_empty(), "{result}: {said:?}");
    }
    for handle in input.handles {
        weir_queue_close(handle);
    }
}

unsafe fn call(input: &mut Input<'_>) -> i64 {
    let (which, handle, number) = (input.byte(), input.handle(), input.number());
    let (mut given, mut stat) = (0_u64, weir_stat_t::default());
    let flags = number as c_int;
    // SAFETY: by the contract of this function; each is checked there.
    let status: c_int = unsafe {
        match which % KINDS {
            0 => {
                // Nothing is there, whatever follows.
                input.text();
                let place = [b"/nonexistent/", &input.text[..]].concat();
                let place = if place.ends_with(&[0]) { place } else { [&place[..], &[0]].concat() };
                let options = weir_options_t { consistency: flags as u32, ..Default::default() };
                weir_connect(place.as_ptr().cast(), &options, &mut given)
            }
            1 => weir_disconnect(handle),
            2 => weir_session(handle, &mut given),
            3 => weir_counter(handle, input.text(), &mut given),
            4 => weir_open(handle, input.text(), flags, number as u32, &mut given),
            5 => {
                let layout = weir_layout_t {
                    kind: input.number() as u32,
                    stripe_unit_bytes: input.number() as u32,
                    count: input.number() as u32,
                    has_base: 1,
                    base: input.number() as u32,
                    copies: input.number() as u32,
                    duplication: input.number() as u32,
                    placement: input.number() as u32,
                    segment_bytes: input.number(),
                    fragment_bytes: null_mut(),
                    fragments: usize::from(input.byte() / 255),
                };
                weir_create(handle, input.text(), 0, 0, &layout, &mut given).min(weir_layout_set(
                    handle,
                    input.text(),
                    &layout,
                ))
            }
            6 => weir_close(handle),
            7 => weir_fsync(handle),
            8 => weir_ftruncate(handle, number),
            9 => weir_fstat(handle, &mut stat),
            10 => weir_fallocate(handle, flags, number, input.number()),
            11 => return weir_seek(handle, number, c_int::from(input.byte())),
            12 => {
                let (at, len) = input.room();
                return weir_pread(handle, at, len, number);
            }
            13 => {
                let (at, len) = input.room();
                return weir_pwrite(handle, at, len, number);
            }
            14 => {
                let (at, len) = input.room();
                weir_append(handle, at, len, null_mut())
            }
            15 | 16 => {
                let regions = input.regions();
                let (base, len) = input.room();
                let memory = [weir_memory_t { base, len }, weir_memory_t { base, len: 0 }];
                let (list, count) = (regions.as_ptr(), regions.len());
                return match which % KINDS {
                    15 => weir_read_list(handle, list, count, memory.as_ptr(), 2),
                    _ => weir_write_list(handle, list, count, memory.as_ptr(), 2),
                };
            }
            17 => weir_stat(handle, input.text(), &mut stat),
            18 => weir_lstat(handle, input.text(), null_mut()),
            19 => weir_mkdir(handle, input.text(), number as u32),
            20 => weir_rename(handle, input.text(), c"/to".as_ptr(), number as u32),
            21 => weir_opendir(handle, input.text(), &mut given),
            22 => {
                let mut entry = std::mem::MaybeUninit::<weir_dirent_t>::uninit();
                weir_readdir(handle, entry.as_mut_ptr())
            }
            23 => weir_closedir(handle),
            24 => {
                let (at, len) = input.room();
                return weir_getxattr(handle, input.text(), c"user.a".as_ptr(), at, len);
            }
            25 => {
                let (at, len) = input.room();
                weir_setxattr(handle, input.text(), c"user.a".as_ptr(), at, len, flags)
            }
            26 => {
                let (at, len) = input.room();
                return weir_listxattr(handle, input.text(), at.cast(), len);
            }
            27 => weir_removexattr(handle, input.text(), null()),
            28 => weir_layout_get(handle, input.text(), null_mut()),
            29 => {
                let mut list = Vec::<weir_location_t>::with_capacity(2);
                let to = input.number();
                return weir_locations(handle, input.text(), number, to, list.as_mut_ptr(), 2);
            }
            30 => {
                let opened = weir_queue_open(number as u32, &mut given);
                input.handles.extend((opened == 0).then_some(given));
                opened
            }
            31 => weir_queue_fd(handle),
            32 => weir_queue_close(handle),
            33 => {
                let (at, len) = input.room();
                weir_submit_pread(handle, input.handle(), at, len, number, 1)
            }
            34 => {
                let (at, len) = input.room();
                weir_submit_pwrite(handle, input.handle(), at, len, number, 1)
            }
            35 => {
                let mut list = Vec::<weir_completion_t>::with_capacity(2);
                weir_reap(handle, list.as_mut_ptr(), usize::from(input.byte() % 3), 0)
            }
            36 => weir_layout_lease(handle, input.handle(), &mut given),
            37 => weir_lease_check(handle).min(weir_lease_return(handle)),
            38 => {
                let (name, ranks) = (input.text(), input.number() as u32);
                weir_job_begin(handle, name, null(), number as u32, ranks, &mut given)
            }
            39 => weir_hint(handle, number as u32, input.number(), input.number()),
            40 => weir_flush(handle),
            41 => weir_truncate(handle, input.text(), number),
            42 => weir_unlink(handle, input.text()).min(weir_rmdir(handle, input.text())),
            43 => weir_link(handle, input.text(), c"/to".as_ptr()),
            44 => weir_symlink(handle, c"/to".as_ptr(), input.text()),
            45 => {
                let (at, len) = input.room();
                return weir_readlink(handle, input.text(), at.cast(), len);
            }
            46 => weir_chmod(handle, input.text(), number as u32),
            47 => weir_chown(handle, input.text(), number as u32, input.number() as u32),
            48 => weir_utime(handle, input.text(), number as i64, input.number() as i64),
            49 => weir_statfs(handle, input.text(), null_mut()).min(weir_sync_names(handle)),
            50 => weir_submit_fsync(handle, input.handle(), 1),
            51 => weir_job_barrier(handle, 0),
            52 | 53 => {
                let regions = input.regions();
                let (base, len) = input.room();
                let memory = [weir_memory_t { base, len }];
                let (file, list, count) = (input.handle(), regions.as_ptr(), regions.len());
                match which % KINDS {
                    52 => weir_submit_read_list(handle, file, list, count, memory.as_ptr(), 1, 1),
                    _ => weir_submit_write_list(handle, file, list, count, memory.as_ptr(), 1, 1),
                }
            }
            _ => {
                let ranges = [weir_range_t { offset: number, len: input.number() }];
                weir_phase_begin(handle, input.handle(), ranges.as_ptr(), 1)
                    .min(weir_phase_end(handle, 0))
                    .min(weir_job_end(handle, 0))
            }
        }
    };
    status.into()
}

/// Calls one after another.
pub(crate) fn calls(g: &mut Gen) -> Vec<u8> {
    g.bytes(512)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_of_the_header_is_called() {
        let header = include_str!("../../../bindings/c/include/weir.h");
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let before = |call: &'static str| call.rsplit(|c| !is_part(c)).next().unwrap_or_default();
        let functions: std::collections::BTreeSet<_> =
            header.split('(').map(before).filter(|name| name.starts_with("weir_")).collect();
        assert!(functions.len() > 60, "{functions:?}");
        let here = include_str!("c.rs");
        let missing: Vec<_> =
            functions.iter().filter(|name| !here.contains(&format!("{name}("))).collect();
        assert!(missing.is_empty(), "no input calls {missing:?}");
    }

    /// Each function is given NULL or empty texts, handles of each kind that are closed or never were,
    /// buffers and lists without and with too many bytes, and ranges about 2^62 and 2^64.
    #[test]
    fn every_function_refuses_what_makes_no_sense() {
        let queue = [30, 0, 1];
        let close = [32, 0, 0];
        for which in 0..KINDS {
            for filler in [0, 1, 99, 100, 104, 115, 189, 190, 191, 200, 254, 255] {
                let call: Vec<u8> = std::iter::once(which).chain([filler; 100]).collect();
                boundary(&call);
                // The first handle is that of a queue, which is closed.
                boundary(&[&queue[..], &close, &[which, 0], &[filler; 100]].concat());
            }
        }
    }
}
