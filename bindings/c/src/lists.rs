//! Calls with lists of regions: one request to each server for up to 4 MiB.

use crate::args::{list, range};
use crate::error::{guard, invalid, status};
use crate::files::{readable, writable};
use crate::handles::{self, weir_file_t, weir_queue_t};
use crate::io::context;
use crate::queue::Queue;
use crate::session::{OpenFile, Using};
use std::ffi::c_int;
use weir_layout::{Region, RegionList};
use weir_types::limits::{MAX_PAYLOAD_BYTES, MAX_REGIONS};
use weir_types::{ErrorKind, Result};

/// Maximum number of elements in the lists of one call.
const MAX_LIST: usize = 1 << 20;

/// Regions of a file: `count` elements of `size` bytes, `stride` bytes from the start of one to the
/// start of the next. A `count` of 0 or 1 is one element; then `stride` is ignored.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct weir_region_t {
    /// First byte of the first element.
    pub offset: u64,
    /// Bytes of each element.
    pub size: u64,
    /// Bytes from the start of one element to the start of the next.
    pub stride: u64,
    /// Number of elements.
    pub count: u64,
}

/// A part of memory, as `struct iovec` of `<sys/uio.h>`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct weir_memory_t {
    /// Address of the first byte.
    pub base: *mut std::ffi::c_void,
    /// Length, bytes.
    pub len: usize,
}

/// Reads regions of a file into parts of memory: the bytes of the regions, in order, fill the parts
/// of memory, in order. Both lists must have the same number of bytes (`-EINVAL`). Each 4 MiB (or
/// 256 regions) are one request to each server that holds any of them. Returns the number of bytes
/// before the end of the file; the others are zeros.
///
/// # Safety
/// The lists are NULL or have that many elements. The parts of memory are valid, and nobody else
/// uses them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_read_list(
    file: weir_file_t,
    regions: *const weir_region_t,
    region_count: usize,
    memory: *const weir_memory_t,
    memory_count: usize,
) -> i64 {
    guard(|| {
        // SAFETY: by the contract of this function.
        let call = unsafe { Call::new(file, (regions, region_count), (memory, memory_count)) }?;
        call.read(&call.handle.open()?)
    })
}

/// Writes regions of a file from parts of memory: see `weir_read_list`. The regions must ascend
/// without overlap (`-EINVAL`). Returns the bytes written, after the servers have confirmed them.
///
/// # Safety
/// The lists are NULL or have that many elements. The parts of memory are valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_write_list(
    file: weir_file_t,
    regions: *const weir_region_t,
    region_count: usize,
    memory: *const weir_memory_t,
    memory_count: usize,
) -> i64 {
    guard(|| {
        // SAFETY: by the contract of this function.
        let call = unsafe { Call::new(file, (regions, region_count), (memory, memory_count)) }?;
        call.write(&call.handle.open()?)
    })
}

/// As `weir_read_list`, but returns at once. The memory belongs to the call until its completion is
/// reaped; the lists do not. `-EAGAIN`: the queue is full.
///
/// # Safety
/// As of `weir_read_list`, until the call has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_submit_read_list(
    queue: weir_queue_t,
    file: weir_file_t,
    regions: *const weir_region_t,
    region_count: usize,
    memory: *const weir_memory_t,
    memory_count: usize,
    tag: u64,
) -> c_int {
    status(|| {
        let queue = handles::get::<Queue>(queue)?;
        // SAFETY: by the contract of this function.
        let call = unsafe { Call::new(file, (regions, region_count), (memory, memory_count)) }?;
        // From now on: closing the file waits for what is queued.
        let open = call.handle.open()?;
        queue.submit(tag, Box::new(move || call.read(&open)))
    })
}

/// As `weir_write_list`, but returns at once: see `weir_submit_read_list`.
///
/// # Safety
/// As of `weir_write_list`, until the call has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_submit_write_list(
    queue: weir_queue_t,
    file: weir_file_t,
    regions: *const weir_region_t,
    region_count: usize,
    memory: *const weir_memory_t,
    memory_count: usize,
    tag: u64,
) -> c_int {
    status(|| {
        let queue = handles::get::<Queue>(queue)?;
        // SAFETY: by the contract of this function.
        let call = unsafe { Call::new(file, (regions, region_count), (memory, memory_count)) }?;
        let open = call.handle.open()?;
        queue.submit(tag, Box::new(move || call.write(&open)))
    })
}

/// A call with checked arguments.
struct Call {
    handle: std::sync::Arc<OpenFile>,
    batches: Vec<RegionList>,
    memory: Vec<weir_memory_t>,
}

// SAFETY: the contract of each call lends it the memory until it has ended.
unsafe impl Send for Call {}

impl Call {
    fn read(&self, open: &Using) -> Result<i64> {
        readable(&self.handle)?;
        let ctx = context(&self.handle);
        let end = self.batches.iter().map(RegionList::end).max().unwrap_or(0);
        let size = open.file.size_for(&ctx, end)?;
        let mut buffer = Vec::new();
        let mut done = 0;
        for batch in &self.batches {
            let len = batch.total_bytes() as usize;
            match self.contiguous(done, len) {
                // SAFETY: the caller has lent this much memory for exclusive use.
                Some(at) => unsafe {
                    let dest = std::slice::from_raw_parts_mut(at, len);
                    open.file.read_regions(&ctx, batch, dest)?;
                },
                None => {
                    buffer.resize(len, 0);
                    open.file.read_regions(&ctx, batch, &mut buffer)?;
                    // SAFETY: the caller has lent this memory; `buffer` is private to this call.
                    self.each(done, len, |at, n, from| unsafe {
                        std::ptr::copy_nonoverlapping(buffer[from..].as_ptr(), at, n);
                    });
                }
            }
            done += len;
        }
        let there = |(offset, len): (u64, u64)| size.saturating_sub(offset).min(len);
        Ok(self.batches.iter().flat_map(RegionList::ranges).map(there).sum::<u64>() as i64)
    }

    fn write(&self, open: &Using) -> Result<i64> {
        writable(&self.handle)?;
        let ctx = context(&self.handle);
        let mut buffer = Vec::new();
        let mut done = 0;
        for batch in &self.batches {
            let len = batch.total_bytes() as usize;
            match self.contiguous(done, len) {
                // SAFETY: the caller has lent this much memory.
                Some(at) => unsafe {
                    open.file.write_regions(&ctx, batch, std::slice::from_raw_parts(at, len))?;
                },
                None => {
                    buffer.resize(len, 0);
                    // SAFETY: the caller has lent this memory; `buffer` is private to this call.
                    self.each(done, len, |at, n, to| unsafe {
                        std::ptr::copy_nonoverlapping(at, buffer[to..].as_mut_ptr(), n);
                    });
                    open.file.write_regions(&ctx, batch, &buffer)?;
                }
            }
            done += len;
        }
        Ok(done as i64)
    }

    unsafe fn new(
        file: weir_file_t,
        (regions, region_count): (*const weir_region_t, usize),
        (memory, memory_count): (*const weir_memory_t, usize),
    ) -> Result<Self> {
        if region_count > MAX_LIST || memory_count > MAX_LIST {
            return Err(invalid(format!("a list has more than {MAX_LIST} elements")));
        }
        // SAFETY: by the contract of the caller.
        let regions = unsafe { list(regions, region_count, "regions") }?;
        // SAFETY: by the contract of the caller.
        let memory = unsafe { list(memory, memory_count, "memory") }?.to_vec();
        if memory.iter().any(|part| part.base.is_null() && part.len > 0) {
            return Err(invalid("a part of memory is NULL"));
        }
        let bytes = memory.iter().try_fold(0_u64, |sum, part| sum.checked_add(part.len as u64));
        let bytes = bytes.filter(|bytes| *bytes <= isize::MAX as u64);
        let bytes =
            bytes.ok_or_else(|| invalid("the parts of memory are more than there can be"))?;
        let handle = handles::get::<OpenFile>(file)?;
        let batches = batches(regions, bytes)?;
        Ok(Self { handle, batches, memory })
    }

    /// The address of a range of the bytes, if it is within one part of memory.
    fn contiguous(&self, start: usize, len: usize) -> Option<*mut u8> {
        let mut at = start;
        for part in &self.memory {
            if at < part.len {
                return (at + len <= part.len).then(|| part.base.cast::<u8>().wrapping_add(at));
            }
            at -= part.len;
        }
        None
    }

    /// Calls `run` for each piece of memory that holds some of these bytes, with its address, its
    /// length, and the number of bytes before it.
    fn each(&self, start: usize, len: usize, mut run: impl FnMut(*mut u8, usize, usize)) {
        let (mut skip, mut done) = (start, 0);
        for part in &self.memory {
            if skip >= part.len {
                skip -= part.len;
                continue;
            }
            let n = (part.len - skip).min(len - done);
            run(part.base.cast::<u8>().wrapping_add(skip), n, done);
            (skip, done) = (0, done + n);
            if done == len {
                return;
            }
        }
    }
}

/// The requests for the regions, in order. `bytes`: length of the memory.
fn batches(regions: &[weir_region_t], bytes: u64) -> Result<Vec<RegionList>> {
    let mut total = 0_u64;
    for of in regions {
        let count = of.count.max(1);
        let span = (count - 1).checked_mul(of.stride).and_then(|span| span.checked_add(of.size));
        range(of.offset, span.ok_or(ErrorKind::FileTooLarge)?)?;
        let all = of.size.checked_mul(count).and_then(|all| total.checked_add(all));
        total = all.ok_or(ErrorKind::FileTooLarge)?;
    }
    if total != bytes {
        let text = format!("the regions have {total} bytes, and the memory {bytes}");
        return Err(invalid(text));
    }
    let mut out = Batches { done: Vec::new(), next: Vec::new(), bytes: 0 };
    for of in regions.iter().filter(|of| of.size > 0) {
        out.add(of)?;
    }
    out.end()?;
    Ok(out.done)
}

struct Batches {
    done: Vec<RegionList>,
    next: Vec<Region>,
    bytes: u64,
}

impl Batches {
    fn add(&mut self, of: &weir_region_t) -> Result<()> {
        const MOST: u64 = MAX_PAYLOAD_BYTES as u64;
        let count = of.count.max(1);
        let mut element = 0;
        while element < count {
            if self.bytes == MOST || self.next.len() == MAX_REGIONS {
                self.end()?;
            }
            let offset = of.offset + element * of.stride;
            // As many whole elements as fit, as one region.
            let most = ((MOST - self.bytes) / of.size).min(count - element).min(ELEMENTS);
            if most > 0 {
                let stride = if count == 1 { of.size } else { of.stride };
                self.push(Region { offset, size: of.size, stride, count: most as u32 });
                element += most;
                continue;
            }
            let mut cut = 0;
            while cut < of.size {
                if self.bytes == MOST || self.next.len() == MAX_REGIONS {
                    self.end()?;
                }
                let len = (of.size - cut).min(MOST - self.bytes);
                self.push(Region::contiguous(offset + cut, len));
                cut += len;
            }
            element += 1;
        }
        Ok(())
    }

    fn push(&mut self, region: Region) {
        self.bytes += region.total_bytes();
        self.next.push(region);
        // The maximum number of elements in a request, whatever their regions.
        if self.next.iter().map(|region| u64::from(region.count)).sum::<u64>() >= ELEMENTS {
            self.bytes = MAX_PAYLOAD_BYTES as u64;
        }
    }

    fn end(&mut self) -> Result<()> {
        self.bytes = 0;
        match self.next.is_empty() {
            true => Ok(()),
            false => {
                self.done.push(RegionList::new(std::mem::take(&mut self.next))?);
                Ok(())
            }
        }
    }
}

/// A request is filled up to this many elements, so that one more region stays below the limit.
const ELEMENTS: u64 = weir_layout::MAX_ELEMENTS / 2;

#[cfg(test)]
mod tests {
    use super::*;

    fn region(offset: u64, size: u64, stride: u64, count: u64) -> weir_region_t {
        weir_region_t { offset, size, stride, count }
    }

    #[test]
    fn regions_keep_their_order_and_their_bytes_in_as_few_requests_as_fit() {
        let some = [region(10, 100, 0, 0), region(1000, 8, 100, 50), region(0, 10, 0, 1)];
        let one = batches(&some, 510).unwrap();
        assert_eq!(one.len(), 1);
        let large = [region(0, 10 << 20, 0, 0), region(20 << 20, 3 << 20, 4 << 20, 3)];
        let several = batches(&large, 19 << 20).unwrap();
        let flat = |all: &[RegionList]| {
            let all = all.iter().flat_map(RegionList::ranges);
            all.flat_map(|(offset, len)| (offset..offset + len).step_by(1 << 20))
                .collect::<Vec<_>>()
        };
        assert_eq!(several.iter().map(RegionList::total_bytes).sum::<u64>(), 19 << 20);
        assert!(several.iter().all(|batch| batch.total_bytes() <= 4 << 20));
        let mut expected: Vec<u64> = (0..10).map(|at| at << 20).collect();
        expected.extend([20, 21, 22, 24, 25, 26, 28, 29, 30].map(|at: u64| at << 20));
        assert_eq!(flat(&several), expected);
        let many = vec![region(0, 1, 0, 0); 1000];
        assert_eq!(batches(&many, 1000).unwrap().len(), 4);
        let small = batches(&[region(0, 1, 2, 1 << 18)], 1 << 18).unwrap();
        assert_eq!(small.iter().map(RegionList::total_bytes).sum::<u64>(), 1 << 18);
    }

    #[test]
    fn lists_that_do_not_fit_and_ranges_too_far_are_refused() {
        assert_eq!(batches(&[region(0, 4, 0, 0)], 5).unwrap_err().kind, ErrorKind::InvalidArgument);
        let far = [region(1 << 62, 1, 0, 0), region(0, 1, u64::MAX, 3), region(u64::MAX, 2, 0, 0)];
        for far in far {
            assert_eq!(batches(&[far], 1).unwrap_err().kind, ErrorKind::FileTooLarge);
        }
        let huge = region(0, 1 << 61, 0, u64::MAX);
        assert_eq!(batches(&[huge], 1).unwrap_err().kind, ErrorKind::FileTooLarge);
        assert!(batches(&[], 0).unwrap().is_empty());
    }
}
