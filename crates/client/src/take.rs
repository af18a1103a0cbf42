//! Loose read ordering (River): the processes of a job read files together, and it does not matter
//! which of them reads which block. Each reads from the disk of its own machine, less if that is
//! slow: then those with the second copies take some of its blocks.
//!
//! Which block is next a process decides by itself (`weir_policy::taking`), by what all have taken:
//! that is in a small file of claims, changed under a lock. Nothing else goes between processes.
//!
//! Invariants
//! - A block is read by one process at the most: what is claimed is claimed before it is read, and
//!   nobody takes it back.
//! - A process takes part in a job once: what one took that has died is not read, and nobody
//!   takes its place silently.
//! - No more than [`AHEAD`] blocks are in memory, and the one that the caller has.

mod board;
mod reading;

use crate::core::blocks::{Blocks, MAX_FILES};
use crate::core::claims::Claims;
use crate::core::records::Record;
use crate::{Client, Context, File};
use board::Board;
use reading::{Job, Readers};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_host::{clock, thread};
use weir_policy::taking::{Next, Taken, Taking};
use weir_types::{Error, ErrorKind, FileId, FileKind, JobId, Result, TargetId};
use weir_wire::Rights;

/// Blocks that are read at the same time, each by a thread of its own: one from the disk, while the
/// other one is asked for, or on its way.
pub const AHEAD: usize = 2;
/// The smallest and the largest block.
pub const BLOCK_BYTES: std::ops::RangeInclusive<u64> = 4096..=64 << 20;
/// Files that are kept open.
const MAX_OPEN: usize = 8;
/// Who has nothing left but what others are about to take looks so often,
const LOOK: Duration = Duration::from_millis(50);
/// and takes it if none of them has taken anything for as long as two blocks take, but for no
/// less and no more than this.
const PATIENCE: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));

/// A file that is to be read.
#[derive(Clone, Debug)]
pub struct Input {
    /// For messages.
    pub name: String,
    /// The file.
    pub file: FileId,
}

/// Who takes, and how. All processes of a job have the same but for `rank` and `local`.
#[derive(Clone, Debug)]
pub struct TakeOptions {
    /// The job.
    pub job: JobId,
    /// Which of its processes this is,
    pub rank: u32,
    /// of how many.
    pub ranks: u32,
    /// The directory in which the claims are kept until the last process has ended.
    pub dir: FileId,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// What must not be cut.
    pub record: Record,
    /// The targets on disks of this machine; `None`: those whose servers run on it.
    pub local: Option<Vec<TargetId>>,
    /// Who has ended already, and comes again, waits so long for the others to end.
    pub wait: Duration,
}

impl TakeOptions {
    /// The defaults, for a process that takes alone.
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

/// What was read of one block: all records that belong to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Which of the inputs.
    pub file: usize,
    /// Where the block begins in it.
    pub offset: u64,
    /// Its records.
    pub bytes: Vec<u8>,
    near_bytes: u64,
    other_bytes: u64,
    /// So long it was read.
    took: Duration,
}

/// What a process has taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TakeSummary {
    /// Blocks.
    pub blocks: u64,
    /// Bytes of records.
    pub bytes: u64,
    /// Bytes that were read from disks of this machine,
    pub near_bytes: u64,
    /// and from others.
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
    /// Claimed, and not asked for yet: lane, block, and the target to read it from.
    held: VecDeque<(usize, u32, Option<TargetId>)>,
    open: VecDeque<(usize, Arc<File>)>,
    seen: (Vec<Taken>, Instant),
    /// How long the last block took.
    pace: Duration,
    ended: bool,
    failed: Option<Error>,
    summary: TakeSummary,
}

impl<'a> Take<'a> {
    /// Comes to the other processes of the job.
    ///
    /// # Errors
    /// `InvalidArgument`: what the options may be; the others take other files. `Exists`: this process
    /// of the job has been here before.
    pub fn new(
        client: &'a Client,
        ctx: &Context,
        inputs: &[Input],
        options: &TakeOptions,
    ) -> Result<Self> {
        let files = check(client, ctx, inputs, options)?;
        let local = match &options.local {
            Some(local) => local.clone(),
            None => client.inner.servers.local_targets(&client.cluster_map()?),
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

    /// A block that nobody else of the job has; `None`: there is no more, and this process counts
    /// as ended. Blocks come in no order.
    ///
    /// # Errors
    /// Those of reading; what was claimed before is lost then, and every later call fails.
    pub fn next_block(&mut self) -> Result<Option<Block>> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let next = self.try_next();
        self.failed = next.as_ref().err().cloned();
        next
    }

    /// What was taken so far.
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

    /// Claims blocks and has them read, as many as may be under way.
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

/// Refuses what cannot be taken; the files with their sizes.
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
