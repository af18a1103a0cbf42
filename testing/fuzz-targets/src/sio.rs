//! Calls that a C program makes of the SIO low-level interface, with whatever arguments: over plain
//! files in a directory of their own, which is gone after each input.
//!
//! The memory that a list names is the program's promise, so lists that would be followed stay
//! within a buffer. Sizes are small or too large for any file: nothing here fills a disk.

use crate::random::Gen;
use ::sio::constants::*;
use ::sio::core::codes::Code;
use ::sio::*;
use std::ffi::{CStr, CString, c_void};
use std::path::{Path, PathBuf};
use std::ptr::{null, null_mut};
use std::sync::{Mutex, PoisonError};

/// Calls that one input makes at the most.
const MAX_CALLS: usize = 40;
/// Bytes of the memory that lists name.
const MEMORY_BYTES: usize = 64 << 10;
/// The files that there may be.
const NAMES: [&CStr; 2] = [c"a", c"b"];
/// A process has one file system attached.
static TURN: Mutex<()> = Mutex::new(());

/// Takes arguments off the input; zeros when it is used up.
struct Words<'a>(&'a [u8]);

impl Words<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn short(&mut self) -> u64 {
        u64::from(self.byte()) << 8 | u64::from(self.byte())
    }

    /// Small, or larger than anything may be.
    fn number(&mut self) -> u64 {
        match self.byte() % 8 {
            0 => 0,
            1 => u64::MAX,
            2 => (1 << 62) + 1,
            3 => u64::MAX / 2 + self.short(),
            4 => self.short() * 13,
            _ => u64::from(self.byte()),
        }
    }

    fn count(&mut self) -> u32 {
        match self.byte() % 8 {
            0 => 0,
            1 => u32::MAX,
            2 => 65_537,
            _ => u32::from(self.byte()),
        }
    }

    fn name(&mut self) -> Option<CString> {
        match self.byte() % 8 {
            0 => None,
            1 => {
                let bytes = (0..self.byte()).map(|_| self.byte().max(1)).collect::<Vec<_>>();
                // It could name a file that is there: nobody is to touch it.
                Some(CString::new([b"../", &bytes[..]].concat()).unwrap_or_default())
            }
            which => Some(NAMES[usize::from(which) % 2].to_owned()),
        }
    }
}

/// What a program has by and by.
struct Program {
    memory: Vec<u8>,
    descriptors: Vec<i32>,
    operations: Vec<sio_async_handle_t>,
    joined: Vec<sio_async_handle_t>,
    collectives: Vec<sio_coll_handle_t>,
}

fn code(number: i32) -> Code {
    match Code::from_number(number) {
        Some(code) => code,
        None => panic!("{number} is no code"),
    }
}

/// Runs calls, ends what they have begun, and looks that nothing is left.
pub(crate) fn calls(data: &[u8]) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = Directory::new();
    let Ok(files) = CString::new(format!("plain:{}", directory.0.display())) else { return };
    // SAFETY: a string.
    let attached = code(unsafe { sio_attach(files.as_ptr()) });
    assert_eq!(attached, Code::Success, "the last input has left something open");
    let mut program = Program {
        memory: vec![0; MEMORY_BYTES],
        descriptors: Vec::new(),
        operations: Vec::new(),
        joined: Vec::new(),
        collectives: Vec::new(),
    };
    let mut words = Words(data);
    for _ in 0..MAX_CALLS {
        if words.0.is_empty() {
            break;
        }
        program.call(&mut words);
    }
    program.end();
    assert_eq!(code(sio_detach()), Code::Success, "something is in use");
}

impl Program {
    fn call(&mut self, words: &mut Words<'_>) {
        match words.byte() % 12 {
            0 | 1 => self.open(words),
            2 => {
                code(sio_close(self.descriptor(words)));
            }
            3 => self.names(words),
            4 => {
                let (mut data, fd) = (ControlData::new(words, self), self.descriptor(words));
                let len = data.list.len() as u32;
                // SAFETY: the list is as long as it says, and its data is what it points to.
                code(unsafe { sio_control(fd, data.list.as_mut_ptr(), len) });
            }
            5..=7 => self.transfer(words),
            8 => self.status(words),
            9 => self.hint(words),
            10 => self.collective(words),
            _ => {
                let number = words.number() as i32;
                // SAFETY: it returns a string whatever the number.
                let text = unsafe { CStr::from_ptr(sio_error_string(number)) };
                assert!(!text.is_empty());
                code(sio_query_extension(number as u32));
                // SAFETY: a string until the next call.
                let _ = unsafe { CStr::from_ptr(sio_last_error()) }.to_bytes().len();
            }
        }
    }

    fn descriptor(&self, words: &mut Words<'_>) -> i32 {
        let which = words.byte();
        match self.descriptors.get(usize::from(which) % (self.descriptors.len() + 1)) {
            Some(descriptor) => *descriptor,
            None => words.number() as i32,
        }
    }

    fn open(&mut self, words: &mut Words<'_>) {
        let (name, mut fd) = (words.name(), -7);
        let mode = u32::from(words.byte() % 9);
        let mut data = ControlData::new(words, self);
        let name = name.as_ref().map_or(null(), |name| name.as_ptr());
        let (list, len) = (data.list.as_mut_ptr(), data.list.len() as u32);
        // SAFETY: NULL or a string, and a list that is as long as it says.
        let opened = code(unsafe {
            match words.byte() % 8 {
                0 => sio_test(name, mode, list, len),
                _ => sio_open(&mut fd, name, mode, list, len),
            }
        });
        assert!(opened == Code::Success || fd == -7, "a descriptor came with a failure");
        if fd != -7 {
            self.descriptors.push(fd);
        }
    }

    fn names(&mut self, words: &mut Words<'_>) {
        let (one, other) = (words.name(), words.name());
        let pointer = |name: &Option<CString>| name.as_ref().map_or(null(), |name| name.as_ptr());
        // SAFETY: each NULL or a string.
        code(unsafe {
            match words.byte() % 2 {
                0 => sio_unlink(pointer(&one)),
                _ => sio_rename(pointer(&one), pointer(&other)),
            }
        });
    }

    fn lists(
        &mut self,
        words: &mut Words<'_>,
    ) -> (Vec<sio_file_io_list_t>, Vec<sio_mem_io_list_t>) {
        let mut file: Vec<_> = (0..words.byte() % 6).map(|_| file_entry(words)).collect();
        let mut memory: Vec<_> =
            (0..words.byte() % 6).map(|_| memory_entry(words, &mut self.memory)).collect();
        if words.byte().is_multiple_of(2) {
            // Lists that fit each other.
            let size = words.short() % 1000;
            let element_cnt = u32::from(words.byte());
            let gap = u64::from(words.byte());
            let offset = words.short();
            file = vec![sio_file_io_list_t { offset, size, stride: size + gap, element_cnt }];
            let bytes = (size * u64::from(element_cnt)).min(MEMORY_BYTES as u64);
            let addr = self.memory.as_mut_ptr().cast::<c_void>();
            memory = vec![sio_mem_io_list_t { addr, size: bytes, stride: 0, element_cnt: 1 }];
        }
        (file, memory)
    }

    fn transfer(&mut self, words: &mut Words<'_>) {
        let (fd, (file, memory)) = (self.descriptor(words), self.lists(words));
        let (n, m) = (file.len() as u32, memory.len() as u32);
        let (file, memory, mut total) = (file.as_ptr(), memory.as_ptr(), 0);
        let mut handle = null_mut();
        // SAFETY: the lists are as long as they say, and what they name is in `self.memory`, which
        // stays until all operations have ended.
        let moved = code(unsafe {
            match words.byte() % 4 {
                0 => sio_sg_read(fd, file, n, memory, m, &mut total),
                1 => sio_sg_write(fd, file, n, memory, m, &mut total),
                2 => sio_async_sg_read(fd, file, n, memory, m, &mut handle),
                _ => sio_async_sg_write(fd, file, n, memory, m, &mut handle),
            }
        });
        assert!(total <= MEMORY_BYTES as u64 * 6);
        assert!(handle.is_null() || moved == Code::Success, "a handle came with a failure");
        if !handle.is_null() {
            self.operations.push(handle);
        }
    }

    fn status(&mut self, words: &mut Words<'_>) {
        let mut list = self.operations.clone();
        match words.byte() % 4 {
            0 => list.push(std::ptr::without_provenance_mut(words.number() as usize)),
            1 => list.extend(&self.joined),
            2 => list.push(null_mut()),
            _ => {}
        }
        let (mut at, mut status) = (0, sio_async_status_t::default());
        let len = list.len() as u32;
        if words.byte().is_multiple_of(2) {
            // SAFETY: the list is as long as it says.
            code(unsafe { sio_async_cancel_all(list.as_mut_ptr(), len) });
        }
        let flags = if words.byte() < 250 { ASYNC_NONBLOCKING } else { 77 };
        let told = code(
            // SAFETY: as above.
            unsafe { sio_async_status_any(list.as_mut_ptr(), len, &mut at, &mut status, flags) },
        );
        if told == Code::Success {
            code(status.status);
            self.operations.retain(|handle| *handle != list[at as usize]);
            self.joined.retain(|handle| *handle != list[at as usize]);
        }
    }

    fn hint(&mut self, words: &mut Words<'_>) {
        let mut list: Vec<_> = (0..words.byte() % 4).map(|_| file_entry(words)).collect();
        let (flags, class) =
            (1 << (words.byte() % 14) | 1 << (words.byte() % 14), words.byte() % 4);
        let (list_len, io_list) = (list.len() as u32, list.as_mut_ptr());
        let mut record_bytes = words.number();
        let arg = match words.byte() % 2 {
            0 => null_mut(),
            _ => std::ptr::from_mut(&mut record_bytes).cast(),
        };
        let arg_len = u64::from(words.byte() % 2) * 8;
        let hints = [sio_hint_t { flags, io_list, list_len, arg, arg_len }; 2];
        let (name, fd) = (words.name(), self.descriptor(words));
        let name = name.as_ref().map_or(null(), |name| name.as_ptr());
        // SAFETY: the lists are as long as they say.
        code(unsafe {
            match words.byte() % 2 {
                0 => sio_hint(fd, class.into(), hints.as_ptr(), 2),
                _ => sio_hint_by_name(name, class.into(), hints.as_ptr(), 2),
            }
        });
    }

    fn collective(&mut self, words: &mut Words<'_>) {
        let mut handle = null_mut();
        let which = usize::from(words.byte()) % (self.collectives.len() + 1);
        let Some(all) = self.collectives.get(which).copied() else {
            let (fd, direction) = (self.descriptor(words), u32::from(words.byte() % 4));
            let participants = words.count() % 300;
            // SAFETY: a place for the handle.
            code(unsafe { sio_coll_define(fd, direction, participants, &mut handle) });
            self.collectives.extend((!handle.is_null()).then_some(handle));
            return;
        };
        if words.byte().is_multiple_of(8) {
            code(sio_coll_free(all));
            return;
        }
        let ((file, memory), who) = (self.lists(words), u32::from(words.byte() % 4));
        let (n, m) = (file.len() as u32, memory.len() as u32);
        // SAFETY: as in `transfer`.
        code(unsafe { sio_coll_join(all, who, file.as_ptr(), n, memory.as_ptr(), m, &mut handle) });
        self.joined.extend((!handle.is_null()).then_some(handle));
    }

    /// Nothing of the program uses its memory after this.
    fn end(&mut self) {
        for list in [&mut self.operations, &mut self.joined] {
            while !list.is_empty() {
                let (mut at, mut status) = (0, sio_async_status_t::default());
                let (pointer, len) = (list.as_mut_ptr(), list.len() as u32);
                // SAFETY: the list is as long as it says.
                assert_eq!(code(unsafe { sio_async_cancel_all(pointer, len) }), Code::Success);
                let told = code(
                    // SAFETY: as above.
                    unsafe {
                        sio_async_status_any(pointer, len, &mut at, &mut status, ASYNC_BLOCKING)
                    },
                );
                assert_eq!(told, Code::Success);
                code(status.status);
                list.remove(at as usize);
            }
        }
        for all in &self.collectives {
            let freed = code(sio_coll_free(*all));
            assert!(matches!(freed, Code::Success | Code::InvalidHandle), "{freed:?}");
        }
        for fd in &self.descriptors {
            let closed = code(sio_close(*fd));
            assert!(matches!(closed, Code::Success | Code::InvalidDescriptor), "{closed:?}");
        }
    }
}

fn file_entry(words: &mut Words<'_>) -> sio_file_io_list_t {
    sio_file_io_list_t {
        offset: words.number(),
        size: words.number(),
        stride: words.number(),
        element_cnt: words.count(),
    }
}

/// Within the memory, or one that no address has.
fn memory_entry(words: &mut Words<'_>, memory: &mut [u8]) -> sio_mem_io_list_t {
    let at = words.short() as usize % memory.len();
    let (size, stride, element_cnt) = (words.number(), words.number(), words.count());
    let gaps = u64::from(element_cnt.saturating_sub(1)).checked_mul(stride);
    let end = gaps.and_then(|gaps| gaps.checked_add(size)).and_then(|n| n.checked_add(at as u64));
    let inside = end.is_some_and(|end| end <= memory.len() as u64);
    let addr = if inside { memory[at..].as_mut_ptr().cast() } else { null_mut() };
    sio_mem_io_list_t { addr, size, stride, element_cnt }
}

/// A list of controls and what their data points to.
#[allow(clippy::vec_box)] // What is pointed to stays where it is.
struct ControlData {
    list: Vec<sio_control_t>,
    _numbers: Vec<Box<u64>>,
    _labels: Vec<Box<(sio_label_t, [u8; 64])>>,
    _layouts: Vec<Box<sio_layout_t>>,
    _copies: Vec<Box<sio_fast_copy_t>>,
}

impl ControlData {
    fn new(words: &mut Words<'_>, program: &Program) -> Self {
        let (mut numbers, mut labels) = (Vec::new(), Vec::new());
        let (mut layouts, mut copies, mut list) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..words.byte() % 4 {
            let op_code = u32::from(words.byte() % 18);
            let op_data: *mut c_void = match op_code {
                _ if words.byte().is_multiple_of(16) => null_mut(),
                CTL_PROPAGATE | CTL_REFRESH | CTL_SYNC => null_mut(),
                CTL_GET_LABEL | CTL_SET_LABEL => {
                    let size = words.number();
                    let label = sio_label_t { size: size.min(64), data: null_mut() };
                    labels.push(Box::new((label, [7; 64])));
                    let Some(label) = labels.last_mut() else { continue };
                    if words.byte() > 9 {
                        label.0.data = label.1.as_mut_ptr().cast();
                    }
                    (&raw mut label.0).cast()
                }
                CTL_GET_LAYOUT | CTL_SET_LAYOUT => {
                    layouts.push(Box::new(sio_layout_t {
                        flags: u32::from(words.byte() % 9),
                        stripe_width: words.count(),
                        stripe_depth: words.number(),
                        algorithm: u32::from(words.byte() % 3),
                        algorithm_data: null_mut(),
                    }));
                    layouts.last_mut().map_or(null_mut(), |one| (&raw mut **one).cast())
                }
                CTL_FAST_COPY => {
                    copies.push(Box::new(sio_fast_copy_t {
                        source: program.descriptor(words),
                        source_offset: words.number(),
                        offset: words.number(),
                        size: words.number(),
                        copied: 0,
                    }));
                    copies.last_mut().map_or(null_mut(), |one| (&raw mut **one).cast())
                }
                _ => {
                    numbers.push(Box::new(words.number()));
                    numbers.last_mut().map_or(null_mut(), |one| (&raw mut **one).cast())
                }
            };
            let flags = u32::from(words.byte() % 3);
            list.push(sio_control_t { flags, op_code, op_data, result: 0 });
        }
        let (_numbers, _labels, _layouts, _copies) = (numbers, labels, layouts, copies);
        Self { list, _numbers, _labels, _layouts, _copies }
    }
}

/// Gone when it is dropped.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        // In memory, where there is such a file system: nothing waits for a disk.
        let shared = Path::new("/dev/shm");
        let parent = if shared.is_dir() { shared.to_owned() } else { std::env::temp_dir() };
        let path = parent.join(format!("weir-fuzz-sio-{}", std::process::id()));
        if let Err(error) = std::fs::create_dir(&path) {
            panic!("{}: {error}", path.display());
        }
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Opens a file and goes on with anything.
pub(crate) fn calls_example(g: &mut Gen) -> Vec<u8> {
    let mut bytes = vec![0, 2, 7, 0, 1];
    bytes.extend((0..200).map(|_| g.bytes(1).first().copied().unwrap_or_default()));
    bytes
}
