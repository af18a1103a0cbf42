//! Reads claimed blocks in a few threads, so that the disk always has the next request when it is
//! done with one.

use crate::blocks::BlockPlace;
use crate::records::{MAX_RECORD_BYTES, More, Owned, Record};
use crate::take::Block;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use weir_client::{Context, File};
use weir_host::clock;
use weir_host::sync::{Condvar, Mutex};
use weir_host::thread::{JoinHandle, spawn};
use weir_layout::{Region, RegionList};
use weir_types::limits::MAX_REGIONS;
use weir_types::{Error, ErrorKind, Result, TargetId};

/// Bytes per request: no reply takes long enough for its copy to be taken for dead.
const REQUEST_BYTES: u64 = 1 << 20;
/// Bytes read at a time behind the end of a piece, to find the end of its last line.
const MORE_BYTES: u64 = 4 << 10;

/// A block to be read.
pub(super) struct Job {
    pub(super) file: Arc<File>,
    pub(super) name: Arc<str>,
    pub(super) file_bytes: u64,
    pub(super) place: BlockPlace,
    /// The target to read from.
    pub(super) from: Option<TargetId>,
    /// Targets on disks of this machine.
    pub(super) local: Arc<[TargetId]>,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    done: VecDeque<Result<Block>>,
    outstanding: usize,
    ended: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// The reading threads.
pub(super) struct Readers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle>,
}

impl Readers {
    pub(super) fn start(count: usize, ctx: &Context, record: Record) -> Result<Self> {
        let mut all = Self { shared: Arc::default(), threads: Vec::new() };
        for _ in 0..count {
            let (shared, ctx) = (all.shared.clone(), ctx.clone());
            let thread = spawn("weir-take", move || shared.serve(&ctx, record));
            all.threads.push(thread.map_err(Error::from)?);
        }
        Ok(all)
    }

    /// Number of blocks that were sent and not received.
    pub(super) fn outstanding(&self) -> usize {
        self.shared.state.lock().outstanding
    }

    pub(super) fn send(&self, job: Job) {
        let mut state = self.shared.state.lock();
        state.outstanding += 1;
        state.jobs.push_back(job);
        drop(state);
        self.shared.changed.notify_all();
    }

    /// The next block that is ready. At least one must be outstanding.
    pub(super) fn next(&self) -> Result<Block> {
        let mut state = self.shared.state.lock();
        loop {
            if let Some(done) = state.done.pop_front() {
                state.outstanding -= 1;
                return done;
            }
            state = self.shared.changed.wait(state);
        }
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.ended = true;
        state.jobs.clear();
        drop(state);
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            // One that panicked has said so.
            let _ = thread.join();
        }
    }
}

/// Reports a panic of a reading thread, so that no thread waits for it.
struct TellOfPanic<'a>(&'a Shared);

impl Drop for TellOfPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let error = Error::new(ErrorKind::Internal, "a thread that reads has panicked");
            self.0.state.lock().done.push_back(Err(error));
            self.0.changed.notify_all();
        }
    }
}

impl Shared {
    fn serve(&self, ctx: &Context, record: Record) {
        let _told = TellOfPanic(self);
        loop {
            let mut state = self.state.lock();
            let job = loop {
                if state.ended {
                    return;
                }
                match state.jobs.pop_front() {
                    Some(job) => break job,
                    None => state = self.changed.wait(state),
                }
            };
            drop(state);
            let mut reading = Reading { job: &job, ctx, near_bytes: 0, other_bytes: 0 };
            let block = reading.block(record).map_err(|error| error.context(&job.name));
            self.state.lock().done.push_back(block);
            self.changed.notify_all();
        }
    }
}

struct Reading<'a> {
    job: &'a Job,
    ctx: &'a Context,
    near_bytes: u64,
    other_bytes: u64,
}

impl Reading<'_> {
    fn block(&mut self, record: Record) -> Result<Block> {
        let (job, size, begun) = (self.job, self.job.file_bytes, clock::now());
        if job.file.size() != size {
            let what = format!("it had {size} bytes when it was cut into blocks");
            return Err(Error::new(ErrorKind::Stale, what));
        }
        let mut read = self.read(&job.place.ranges)?;
        let (mut pieces, mut at) = (Vec::new(), 0);
        for range in &job.place.ranges {
            let bytes = at..at + (range.end - range.start) as usize;
            at = bytes.end;
            if let Some(Owned { skip, more }) = record.owned(range, size, &read[bytes.clone()]) {
                pieces.push((bytes.start + skip..bytes.end, range.end, more));
            }
        }
        let offset = job.place.ranges.first().map_or(0, |range| range.start);
        let more = self.more(&pieces)?;
        if let ([(bytes, ..)], [more]) = (&pieces[..], &more[..]) {
            // As a rule: nothing is copied but what is behind.
            read.truncate(bytes.end);
            read.drain(..bytes.start);
            read.extend_from_slice(more);
        } else {
            let whole =
                pieces.iter().zip(&more).map(|((bytes, ..), more)| (&read[bytes.clone()], more));
            let whole = whole.flat_map(|(bytes, more)| [bytes, &more[..]]);
            read = whole.collect::<Vec<_>>().concat();
        }
        let end = pieces.last().zip(more.last()).map(|((_, end, _), more)| end + more.len() as u64);
        if record == Record::Line
            && end == Some(size)
            && read.last().is_some_and(|byte| *byte != b'\n')
        {
            // So that the next one that is read after it does not begin within it.
            read.push(b'\n');
        }
        let Self { near_bytes, other_bytes, .. } = *self;
        let (file, took) = (job.place.file, clock::elapsed(begun));
        Ok(Block { file, offset, bytes: read, near_bytes, other_bytes, took })
    }

    /// The bytes behind each piece that belong to it.
    fn more(&mut self, pieces: &[(Range<usize>, u64, More)]) -> Result<Vec<Vec<u8>>> {
        let size = self.job.file_bytes;
        let wanted = |&(_, end, more): &(Range<usize>, u64, More)| match more {
            More::Nothing => end..end,
            More::Bytes(bytes) => end..end + bytes,
            More::Line => end..(end + MORE_BYTES).min(size),
        };
        let ranges: Vec<Range<u64>> = pieces.iter().map(wanted).collect();
        let (read, mut at, mut all) = (self.read(&ranges)?, 0, Vec::new());
        for (range, (_, _, more)) in ranges.iter().zip(pieces) {
            let len = (range.end - range.start) as usize;
            let mut bytes = read[at..at + len].to_vec();
            at += len;
            if *more == More::Line {
                self.end_line(range.start, &mut bytes)?;
            }
            all.push(bytes);
        }
        Ok(all)
    }

    /// Extends `bytes`, which begin at `start`, to the end of a line.
    fn end_line(&mut self, start: u64, bytes: &mut Vec<u8>) -> Result<()> {
        let mut looked = 0;
        loop {
            if let Some(end) = bytes[looked..].iter().position(|byte| *byte == b'\n') {
                bytes.truncate(looked + end + 1);
                return Ok(());
            }
            looked = bytes.len();
            let at = start + looked as u64;
            if at >= self.job.file_bytes {
                return Ok(());
            }
            if looked as u64 >= MAX_RECORD_BYTES {
                let what = "a line of more than 64 MiB: give the size of records by --record";
                return Err(Error::new(ErrorKind::InvalidArgument, what));
            }
            let next = (looked as u64).clamp(MORE_BYTES, REQUEST_BYTES);
            let range = at..(at + next).min(self.job.file_bytes);
            bytes.extend(self.read(std::slice::from_ref(&range))?);
        }
    }

    /// Reads ascending ranges, one after the other.
    fn read(&mut self, ranges: &[Range<u64>]) -> Result<Vec<u8>> {
        let total: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        let mut all = vec![0; total as usize];
        let (mut request, mut bytes, mut done) = (Vec::new(), 0, 0);
        let requests = ranges.iter().flat_map(|range| {
            let starts = range.clone().step_by(REQUEST_BYTES as usize);
            starts.map(|at| at..(at + REQUEST_BYTES).min(range.end))
        });
        for range in requests {
            let len = range.end - range.start;
            if bytes + len > REQUEST_BYTES || request.len() >= MAX_REGIONS {
                self.ask(&request, &mut all[done..done + bytes as usize])?;
                (done, bytes) = (done + bytes as usize, 0);
                request.clear();
            }
            request.push(Region::contiguous(range.start, len));
            bytes += len;
        }
        if !request.is_empty() {
            self.ask(&request, &mut all[done..])?;
        }
        Ok(all)
    }

    fn ask(&mut self, request: &[Region], buffer: &mut [u8]) -> Result<()> {
        let Job { file, from, local, .. } = self.job;
        let list = RegionList::new(request.to_vec())?;
        let is_near = match file.read_regions_from(self.ctx, &list, buffer, *from) {
            // Of a hole at its end.
            Err(error) if error.kind == ErrorKind::Stale => {
                self.ask_for_each(request, buffer)?;
                false
            }
            read => read?.iter().all(|target| local.contains(target)),
        };
        let counts = if is_near { &mut self.near_bytes } else { &mut self.other_bytes };
        *counts += buffer.len() as u64;
        Ok(())
    }

    fn ask_for_each(&self, request: &[Region], mut buffer: &mut [u8]) -> Result<()> {
        for region in request {
            let (bytes, rest) = buffer.split_at_mut(region.size as usize);
            if self.job.file.read_at(self.ctx, region.offset, bytes)? < bytes.len() {
                return Err(Error::new(ErrorKind::Stale, "it was cut while it was read"));
            }
            buffer = rest;
        }
        Ok(())
    }
}
