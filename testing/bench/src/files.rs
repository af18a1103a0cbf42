//! The operations on files, written once for all ways to access files.

use crate::failure::{Done, Failure};
use crate::order::{BLOCK_BYTES, CALL_BYTES, Names, Order, SyncKind, Work};
use std::time::{Duration, Instant};

/// Distance between compared bytes of the data read.
const CHECK_EVERY: u64 = 64 << 10;

/// A way to access files. Paths are relative to its root.
pub trait Files {
    /// An open file.
    type File;
    /// A directory.
    type Dir;
    /// Opens a file for reading; `random`: for small reads at random offsets.
    fn open_read(&self, path: &str, random: bool) -> Done<Self::File>;
    /// Opens a file for writing; creates it if it is missing.
    fn open_write(&self, path: &str) -> Done<Self::File>;
    /// Reads until the buffer is full or the file ends.
    fn read(&self, file: &Self::File, offset: u64, buffer: &mut [u8]) -> Done<usize>;
    /// Writes all of the data.
    fn write(&self, file: &Self::File, offset: u64, data: &[u8]) -> Done;
    /// Makes the file durable.
    fn sync(&self, file: &Self::File, kind: SyncKind) -> Done;
    /// Closes the file.
    fn close(&self, file: Self::File) -> Done;
    /// Makes a directory.
    fn make_dir(&self, path: &str) -> Done;
    /// Looks up a directory.
    fn dir(&self, path: &str) -> Done<Self::Dir>;
    /// Creates an empty file, which must not exist, and closes it.
    fn create(&self, dir: &Self::Dir, name: &str) -> Done;
    /// Gets the attributes of a file.
    fn stat(&self, dir: &Self::Dir, name: &str) -> Done;
    /// Removes a file.
    fn unlink(&self, dir: &Self::Dir, name: &str) -> Done;
}

/// Page-aligned memory, warm after its first use.
pub struct Aligned {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl Aligned {
    /// Memory of this length, filled with noise.
    pub fn new(len: usize) -> Self {
        const PAGE: usize = 4096;
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let memory: Vec<u8> = (0..len + PAGE)
            .map(|_| {
                state = next_random(state);
                state as u8
            })
            .collect();
        let start = memory.as_ptr().align_offset(PAGE);
        Self { memory, start, len }
    }

    /// The memory.
    pub fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }
}

/// Xorshift.
pub fn next_random(mut x: u64) -> u64 {
    x ^= x << 13;
    x ^= x >> 7;
    x ^ (x << 17)
}

/// Nanoseconds of a clock.
pub fn clock_ns(clock: rustix::time::ClockId) -> u64 {
    let time = rustix::time::clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Work that is ready to begin.
pub type Prepared = Box<dyn FnOnce(&mut Aligned) -> Done<Work>>;

/// Prepares an order that works on files.
pub fn prepare<F: Files + 'static>(files: F, order: Order) -> Done<Prepared> {
    Ok(match order {
        Order::Read { path, from, to, check, .. } => {
            let file = files.open_read(&path, false)?;
            Box::new(move |buffer| {
                let work = read(&files, &file, from..to, check, buffer.bytes())?;
                files.close(file)?;
                Ok(work)
            })
        }
        Order::Rewrite { path, from, to, sync, .. } => {
            let file = files.open_write(&path)?;
            Box::new(move |buffer| {
                let work = rewrite(&files, &file, from..to, sync, buffer.bytes())?;
                files.close(file)?;
                Ok(work)
            })
        }
        Order::Random { path, blocks, job, jobs, ms, seed, check, .. } => {
            let file = files.open_read(&path, true)?;
            let walk = Walk::new(blocks, seed).skip(job as usize).step_by(jobs as usize);
            Box::new(move |buffer| {
                let work = random(&files, &file, walk, ms, check, buffer.bytes())?;
                files.close(file)?;
                Ok(work)
            })
        }
        Order::Steady { path, bytes, ms, write, .. } => {
            let file =
                if write { files.open_write(&path)? } else { files.open_read(&path, true)? };
            Box::new(move |buffer| {
                let work = steady(&files, &file, bytes, (ms, write), buffer.bytes())?;
                files.close(file)?;
                Ok(work)
            })
        }
        Order::MakeDir { dir, .. } => Box::new(move |_| {
            files.make_dir(&dir)?;
            Ok(Work { ops: 1, ..Work::default() })
        }),
        Order::Create { names, .. } => {
            each(files, names, |files, dir, name| files.create(dir, name), false)?
        }
        Order::Stat { names, .. } => {
            each(files, names, |files, dir, name| files.stat(dir, name), true)?
        }
        Order::Unlink { names, .. } => {
            each(files, names, |files, dir, name| files.unlink(dir, name), false)?
        }
        Order::StreamSend { .. }
        | Order::StreamReceive { .. }
        | Order::PingServe { .. }
        | Order::PingAsk { .. } => return Err(Failure::other("not an order on files")),
    })
}

fn read<F: Files>(
    files: &F,
    file: &F::File,
    range: std::ops::Range<u64>,
    check: bool,
    buffer: &mut [u8],
) -> Done<Work> {
    let mut work = Work::default();
    let mut at = range.start;
    while at < range.end {
        let len = (range.end - at).min(CALL_BYTES as u64) as usize;
        let n = files.read(file, at, &mut buffer[..len])?;
        if n == 0 {
            return Err(Failure::other(format!("the file ends at {at}")));
        }
        let first = at.next_multiple_of(CHECK_EVERY);
        for place in (first..at + n as u64 - 7).step_by(CHECK_EVERY as usize).filter(|_| check) {
            check_stamp(&buffer[(place - at) as usize..], place)?;
        }
        at += n as u64;
        work.ops += 1;
    }
    work.bytes = range.end - range.start;
    Ok(work)
}

fn rewrite<F: Files>(
    files: &F,
    file: &F::File,
    range: std::ops::Range<u64>,
    sync: SyncKind,
    buffer: &mut [u8],
) -> Done<Work> {
    use rustix::time::ClockId;
    let mut work = Work::default();
    let cpu_before = clock_ns(ClockId::ProcessCPUTime);
    let mut at = range.start;
    while at < range.end {
        let len = (range.end - at).min(CALL_BYTES as u64) as usize;
        for block in (0..len).step_by(BLOCK_BYTES) {
            buffer[block..block + 8].copy_from_slice(&(at + block as u64).to_le_bytes());
        }
        files.write(file, at, &buffer[..len])?;
        at += len as u64;
        work.ops += 1;
    }
    work.written_ns = clock_ns(ClockId::Monotonic);
    work.written_cpu_ns = clock_ns(ClockId::ProcessCPUTime) - cpu_before;
    files.sync(file, sync)?;
    work.bytes = range.end - range.start;
    Ok(work)
}

fn random<F: Files>(
    files: &F,
    file: &F::File,
    walk: impl Iterator<Item = u64>,
    ms: u64,
    check: bool,
    buffer: &mut [u8],
) -> Done<Work> {
    let end = Instant::now() + Duration::from_millis(ms);
    let mut work = Work::default();
    for block in walk {
        let offset = block * BLOCK_BYTES as u64;
        let n = files.read(file, offset, &mut buffer[..BLOCK_BYTES])?;
        if n != BLOCK_BYTES {
            return Err(Failure::other(format!("{n} bytes of a block at {offset}")));
        }
        if check {
            check_stamp(buffer, offset)?;
        }
        work.ops += 1;
        if Instant::now() >= end {
            break;
        }
    }
    work.bytes = work.ops * BLOCK_BYTES as u64;
    Ok(work)
}

fn steady<F: Files>(
    files: &F,
    file: &F::File,
    bytes: u64,
    (ms, write): (u64, bool),
    buffer: &mut [u8],
) -> Done<Work> {
    let end = Instant::now() + Duration::from_millis(ms);
    let (mut work, mut at) = (Work::default(), 0);
    loop {
        let begin = Instant::now();
        if begin >= end {
            return Ok(work);
        }
        let len = (bytes - at).min(CALL_BYTES as u64) as usize;
        let data = &mut buffer[..len];
        match write {
            true => files.write(file, at, data)?,
            false => drop(files.read(file, at, data)?),
        }
        work.longest_ns = work.longest_ns.max(begin.elapsed().as_nanos() as u64);
        (work.ops, work.bytes) = (work.ops + 1, work.bytes + len as u64);
        at = (at + len as u64) % bytes;
    }
}

fn check_stamp(data: &[u8], offset: u64) -> Done {
    let found = data.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    if found == offset {
        return Ok(());
    }
    Err(Failure::other(format!("wrong data: byte {offset} is marked {found}")))
}

fn each<F: Files + 'static>(
    files: F,
    names: Names,
    call: impl Fn(&F, &F::Dir, &str) -> Done + 'static,
    scattered: bool,
) -> Done<Prepared> {
    // Coprime to any count that it does not divide.
    const STRIDE: u64 = 7919;
    let dir = files.dir(&names.dir)?;
    Ok(Box::new(move |_| {
        let count = names.to - names.from;
        for i in 0..count {
            let step = u64::from(i) * STRIDE % u64::from(count);
            let number = names.from + if scattered { step as u32 } else { i };
            call(&files, &dir, &names.name(number))?;
        }
        Ok(Work { ops: u64::from(count), ..Work::default() })
    }))
}

/// All blocks of a file, each once, in pseudorandom order.
struct Walk {
    blocks: u64,
    mask: u64,
    seed: u64,
    next: u64,
}

impl Walk {
    fn new(blocks: u64, seed: u64) -> Self {
        Self { blocks, mask: blocks.next_power_of_two() - 1, seed, next: 0 }
    }

    /// A permutation of the numbers up to the mask.
    fn place(&self, n: u64) -> u64 {
        let half = (self.mask.count_ones() / 2).max(1);
        let mut x = n;
        for round in 0..3 {
            x = x.wrapping_mul(0x9e37_79b9_7f4a_7c15 | 1) & self.mask;
            x = x.wrapping_add(self.seed >> round) & self.mask;
            x ^= x >> half;
        }
        x
    }
}

impl Iterator for Walk {
    type Item = u64;
    fn next(&mut self) -> Option<u64> {
        while self.next <= self.mask {
            let place = self.place(self.next);
            self.next += 1;
            if place < self.blocks {
                return Some(place);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_reads_meet_each_block_once() {
        for blocks in [1, 2, 7, 4096, 5000] {
            let mut seen: Vec<u64> = Walk::new(blocks, 12_345).collect();
            seen.sort_unstable();
            assert!(seen.iter().copied().eq(0..blocks), "{blocks}");
        }
    }

    #[test]
    fn memory_is_aligned_for_direct_io() {
        let mut memory = Aligned::new(CALL_BYTES);
        assert_eq!(memory.bytes().as_ptr() as usize % 4096, 0);
        assert_eq!(memory.bytes().len(), CALL_BYTES);
    }
}
