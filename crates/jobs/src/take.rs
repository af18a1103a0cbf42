//! Loose read ordering (River): the processes of a job read files together, and any of them may
//! read any block. Each reads from the disk of its own machine, and less if that is slow: then
//! processes with the second copies take some of its blocks.
//!
//! Each process decides by itself which block is next (`weir_policy::taking`), from what all
//! processes have taken. That is recorded in a small file of claims, changed under a lock.
//! Processes exchange nothing else.
//!
//! Invariants
//! - A block is read by at most one process: it is claimed before it is read, and no claim is taken
//!   back.
//! - A process takes part in a job once. Blocks claimed by a process that died are not read, and no
//!   process takes its place silently.
//! - At most [`AHEAD`] blocks are in memory, and the one that the caller has.

mod board;
mod reading;

use crate::blocks::{Blocks, MAX_FILES};
use crate::claims::Claims;
use crate::records::Record;
use board::Board;
use reading::{Job, Readers};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_client::{Client, Context, File};
use weir_host::{clock, thread};
use weir_policy::taking::{Next, Taken, Taking};
use weir_types::{Error, ErrorKind, FileId, FileKind, JobId, Result, TargetId};
use weir_wire::Rights;

/// Number of blocks that are read in parallel, each by its own thread: one comes from the disk
/// while the other is being requested or transferred.
pub const AHEAD: usize = 2;
/// The smallest and the largest block, bytes.
pub const BLOCK_BYTES: std::ops::RangeInclusive<u64> = 4096..=64 << 20;
/// The most files that are kept open.
const MAX_OPEN: usize = 8;
/// Poll interval of a process for which only blocks remain that other processes are about to take.
const LOOK: Duration = Duration::from_millis(50);
/// Such a process takes a block if no other has taken any for the duration of two blocks, but at
/// least and at most these times.
const PATIENCE: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));

/// A file to be read.
#[derive(Clone, Debug)]
pub struct Input {
    /// Name for messages.
    pub name: String,
    /// The file.
    pub file: FileId,
}

/// Options of a process. All processes of a job have the same except `rank` and `local`.
#[derive(Clone, Debug)]
pub struct TakeOptions {
    /// The job.
    pub job: JobId,
    /// Rank of this process.
    pub rank: u32,
    /// Number of processes.
    pub ranks: u32,
    /// Directory that keeps the claims until the last process has ended.
    pub dir: FileId,
    /// Bytes per block.
    pub block_bytes: u64,
    /// Kind of the records, which are not cut.
    pub record: Record,
    /// Targets on disks of this machine; `None` for those whose servers run on it.
    pub local: Option<Vec<TargetId>>,
    /// How long a process that has ended, and begins again, waits for the others to end.
    pub wait: Duration,
}

impl TakeOptions {
    /// The defaults for a process that takes alone.
    pub fn new(job: JobId, dir: FileId) -> Self {
        Self {
            job,
            rank: 0,
            ranks: 1,
            dir,
            block_bytes: 4 << 20,
            record: Record::Line,
            local: None,
            wait: Duration::from_secs(10),
        }
    }
}

/// All records that belong to one block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Index of the input.
    pub file: usize,
    /// Offset of the block in the input.
    pub offset: u64,
    /// The records.
    pub bytes: Vec<u8>,
    near_bytes: u64,
    other_bytes: u64,
    /// Duration of the read.
    took: Duration,
}

/// Totals of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TakeSummary {
    /// Number of blocks.
    pub blocks: u64,
    /// Bytes of records.
    pub bytes: u64,
    /// Bytes read from disks of this machine.
    pub near_bytes: u64,
    /// Bytes read from other disks.
    pub other_bytes: u64,
}

/// A process of a job that takes blocks; see the top of the file.
pub struct Take<'a> {
    client: &'a Client,
    ctx: Context,
    board: Board<'a>,
    blocks: Blocks,
    names: Vec<Arc<str>>,
    local: Arc<[TargetId]>,
    taking: Taking,
    readers: Readers,
    /// Claimed blocks that were not requested yet: lane, block, and the target to read from.
    held: VecDeque<(usize, u32, Option<TargetId>)>,
    open: VecDeque<(usize, Arc<File>)>,
    seen: (Vec<Taken>, Instant),
    /// Duration of the last block.
    pace: Duration,
    ended: bool,
    failed: Option<Error>,
    summary: TakeSummary,
}

impl<'a> Take<'a> {
    /// Joins the processes of a job.
    ///
    /// # Errors
    /// `InvalidArgument`: an option is invalid, or the other processes take other files. `Exists`:
    /// this process of the job has already taken part.
    pub fn new(
        client: &'a Client,
        ctx: &Context,
        inputs: &[Input],
        options: &TakeOptions,
    ) -> Result<Self> {
        let files = check(client, ctx, inputs, options)?;
        let local = match &options.local {
            Some(local) => local.clone(),
            None => client.local_targets()?,
        };
        let (board, blocks) = Board::join(client, ctx, &files, (inputs, options))?;
        let disks: Vec<u32> = local.iter().map(|target| target.0).collect();
        let taking = Taking::new(blocks.lanes(), &disks, (options.rank, options.ranks));
        Ok(Self {
            client,
            ctx: ctx.clone(),
            board,
            blocks,
            names: inputs.iter().map(|input| input.name.as_str().into()).collect(),
            local: local.into(),
            taking,
            readers: Readers::start(AHEAD, ctx, options.record)?,
            held: VecDeque::new(),
            open: VecDeque::new(),
            seen: (Vec::new(), clock::now()),
            pace: Duration::ZERO,
            ended: false,
            failed: None,
            summary: TakeSummary::default(),
        })
    }

    /// A block that no other process of the job gets. Returns `None` at the end, when this process
    /// counts as ended. Blocks come in no particular order.
    ///
    /// # Errors
    /// Those of reading. Earlier claims are then lost, and every later call fails.
    pub fn next_block(&mut self) -> Result<Option<Block>> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let next = self.try_next();
        self.failed = next.as_ref().err().cloned();
        next
    }

    /// Totals so far.
    pub fn summary(&self) -> TakeSummary {
        self.summary
    }

    fn try_next(&mut self) -> Result<Option<Block>> {
        loop {
            let next = self.ask_for_more()?;
            if self.readers.outstanding() > 0 {
                let block = self.readers.next()?;
                self.pace = block.took;
                // The disk goes on while the caller has this one.
                self.ask_for_more()?;
                self.summary.blocks += 1;
                self.summary.bytes += block.bytes.len() as u64;
                self.summary.near_bytes += block.near_bytes;
                self.summary.other_bytes += block.other_bytes;
                // As when a line goes on over all of it.
                if !block.bytes.is_empty() {
                    return Ok(Some(block));
                }
            } else if next == Next::Later {
                thread::sleep(LOOK);
            } else if self.ended {
                return Ok(None);
            } else {
                self.board.end()?;
                self.ended = true;
            }
        }
    }

    /// Claims blocks and has them read, up to the limit of blocks under way.
    fn ask_for_more(&mut self) -> Result<Next> {
        while !self.ended && self.readers.outstanding() < AHEAD {
            if self.held.is_empty() {
                let next = self.claim()?;
                if !matches!(next, Next::Take(_)) {
                    return Ok(next);
                }
            }
            if let Some((lane, block, from)) = self.held.pop_front() {
                let job = self.job(lane, block, from)?;
                self.readers.send(job);
            }
        }
        Ok(Next::Nothing)
    }

    fn claim(&mut self) -> Result<Next> {
        let Self { board, blocks, taking, held, seen, pace, .. } = self;
        board.change(|claims: &mut Claims| {
            let mut taken = claims.taken();
            if taken != seen.0 {
                *seen = (taken.clone(), clock::now());
            }
            let patience = (*pace * 2).clamp(PATIENCE.0, PATIENCE.1);
            let next = taking.next(&taken, clock::elapsed(seen.1) < patience);
            if let Next::Take(take) = next {
                let of = &mut taken[take.lane];
                let range = of.take(blocks.lanes()[take.lane].blocks, take.end, take.blocks);
                claims.set(take.lane, *of);
                held.extend(range.map(|block| (take.lane, block, take.disk.map(TargetId))));
                *seen = (taken, clock::now());
            }
            next
        })
    }

    fn job(&mut self, lane: usize, block: u32, from: Option<TargetId>) -> Result<Job> {
        let place = self.blocks.place(lane, block).ok_or(ErrorKind::Internal)?;
        let (id, file_bytes) = self.blocks.files()[place.file];
        let name = self.names[place.file].clone();
        let known = self.open.iter().find(|(number, _)| *number == place.file);
        let file = match known {
            Some((_, file)) => file.clone(),
            None => {
                let opened = self.client.open(&self.ctx, id, Rights::READ);
                let file = Arc::new(opened.map_err(|error| error.context(&name))?.0);
                if self.open.len() >= MAX_OPEN {
                    self.open.pop_front();
                }
                self.open.push_back((place.file, file.clone()));
                file
            }
        };
        Ok(Job { file, name, file_bytes, place, from, local: self.local.clone() })
    }
}

/// Checks inputs and options, and returns the files with their sizes.
fn check(
    client: &Client,
    ctx: &Context,
    inputs: &[Input],
    options: &TakeOptions,
) -> Result<Vec<(FileId, u64)>> {
    let invalid = |what: String| Error::new(ErrorKind::InvalidArgument, what);
    board::check_ranks(options.rank, options.ranks)?;
    if !BLOCK_BYTES.contains(&options.block_bytes) {
        let what = format!("blocks of 4 KiB to 64 MiB, not of {} bytes", options.block_bytes);
        return Err(invalid(what));
    }
    if !(1..=MAX_FILES).contains(&inputs.len()) {
        return Err(invalid(format!("1 to {MAX_FILES} files at a time, not {}", inputs.len())));
    }
    // Of the size of records alone.
    options.record.check(0)?;
    let size = |input: &Input| {
        let attr = client.getattr(ctx, input.file)?;
        if attr.kind != FileKind::File {
            return Err(invalid("not a regular file".to_owned()));
        }
        options.record.check(attr.size)?;
        Ok((attr.file, attr.size))
    };
    let named = |input: &Input| size(input).map_err(|error| error.context(&input.name));
    inputs.iter().map(named).collect()
}
