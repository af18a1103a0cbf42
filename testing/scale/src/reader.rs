//! A rank: requests blocks from copies as the policies decide.

use crate::cost::{Choice, Cost};
use crate::sight::{Report, Sight, views};
use crate::{Contender, Run};
use weir_policy::{
    CopyView, Micros, Progress, RUN_BYTES, ReadPolicy, Router, Runs, Ticket, UNKNOWN, window,
};

/// A sequential reader requests at most this far ahead of the block that it waits for.
const READ_AHEAD_BYTES: u64 = 8 << 20;
/// The read-ahead limits the outstanding requests in this case.
const UNBOUNDED: u64 = 1 << 40;

/// An outstanding request.
#[derive(Clone, Copy, Debug)]
pub struct Outstanding {
    pub block: u64,
    pub copy: usize,
    pub ticket: Ticket,
}

/// One rank of a job.
#[derive(Debug)]
pub struct Reader {
    contender: Contender,
    router: Router,
    runs: Runs<()>,
    pub sights: Vec<Sight>,
    views: Vec<CopyView>,
    block_bytes: u64,
    /// Maximum of outstanding bytes at each copy.
    window_bytes: u64,
    request_bytes: u64,
    work_bytes: u64,
    blocks: u64,
    next_block: u64,
    /// Blocks to request again, because their disk has died.
    again: Vec<u64>,
    pub outstanding: Vec<Outstanding>,
    times_read: Vec<u8>,
    done_bytes: u64,
    pub end: Option<Micros>,
    /// The recorded choices, if they are recorded.
    pub log: Option<Vec<Choice>>,
}

/// The next action of a reader.
pub enum Wish {
    /// Request this block from this copy.
    Block { copy: usize, block: u64 },
    /// Take a block back from another copy that has not begun it, and request it from this one.
    TakenBack { copy: usize },
    /// Ask for the state of this copy's disk.
    Word { copy: usize },
}

impl Reader {
    /// A reader that has not begun.
    pub fn new(run: &Run) -> Self {
        let Run { contender, copies, work_bytes, block_bytes, .. } = *run;
        // A disk then can serve a run to its end, and has the next one queued.
        let is_job = contender.is_job;
        let window_bytes = if is_job { 2 * run.limits.run_bytes } else { UNBOUNDED };
        let request_bytes = if is_job { block_bytes } else { 1 };
        let blocks = work_bytes.div_ceil(block_bytes);
        Self {
            contender,
            router: router(run),
            runs: Runs::default(),
            sights: vec![Sight::new(); copies],
            views: Vec::with_capacity(copies),
            block_bytes,
            window_bytes,
            request_bytes,
            work_bytes,
            blocks,
            next_block: 0,
            again: Vec::new(),
            outstanding: Vec::new(),
            times_read: vec![0; blocks as usize],
            done_bytes: 0,
            end: None,
            log: None,
        }
    }

    /// Its progress.
    pub fn progress(&self) -> Progress {
        Progress { done_bytes: self.done_bytes, work_bytes: self.work_bytes }
    }

    /// Offset and length of a block.
    pub fn place(&self, block: u64) -> (u64, u32) {
        let offset = block * self.block_bytes;
        (offset, self.block_bytes.min(self.work_bytes - offset) as u32)
    }

    /// Whether every block was read exactly once.
    pub fn is_complete(&self) -> bool {
        self.times_read.iter().all(|times| *times == 1)
    }

    /// The next action; `None`: nothing until there is news.
    pub fn wish(&mut self, now: Micros, cost: &mut Cost) -> Option<Wish> {
        if self.contender.is_job { self.wish_of_rank(cost) } else { self.wish_in_order(now, cost) }
    }

    /// For a rank of a job: blocks in any order.
    fn wish_of_rank(&mut self, cost: &mut Cost) -> Option<Wish> {
        if self.end.is_some() {
            return None;
        }
        let copy = self.choose(self.next_block, self.block_bytes, self.progress(), cost)?;
        let wish = match self.next() {
            Some(block) => Wish::Block { copy, block },
            None => Wish::TakenBack { copy },
        };
        Some(wish)
    }

    /// For a sequential program without a job, as a client does.
    fn wish_in_order(&mut self, now: Micros, cost: &mut Cost) -> Option<Wish> {
        let oldest = self.outstanding.iter().map(|asked| asked.block).min();
        let ahead = self.next_block - oldest.unwrap_or(self.next_block);
        if self.again.is_empty() && ahead * self.block_bytes >= READ_AHEAD_BYTES {
            return None;
        }
        if let Some(copy) = self.asks(now) {
            return Some(Wish::Word { copy });
        }
        let block = self.next()?;
        let (offset, len) = self.place(block);
        let begun = self.runs.go_on((), offset, len.into(), now);
        if let Some(copy) = begun.filter(|copy| self.sights[*copy].is_usable) {
            return Some(Wish::Block { copy, block });
        }
        let chosen = self.choose(Runs::<()>::number(offset), len.into(), Progress::OF_NO_JOB, cost);
        let Some(copy) = chosen else {
            self.again.push(block);
            return None;
        };
        self.runs.begin((), (offset, len.into(), RUN_BYTES), copy, now);
        Some(Wish::Block { copy, block })
    }

    fn choose(&mut self, block: u64, len: u64, own: Progress, cost: &mut Cost) -> Option<usize> {
        let Self { router, sights, views: seen, log, .. } = self;
        views(sights, len, seen);
        cost.count(seen.len());
        if let Some(log) = log {
            log.push(Choice { block, own, views: seen.clone() });
        }
        let room = window(self.window_bytes, self.request_bytes, own);
        for view in seen.iter_mut() {
            view.is_full = view.in_flight >= room;
        }
        router.choose(block, (own, UNKNOWN), seen)
    }

    /// A copy whose disk should be asked for its state, if that matters.
    fn asks(&mut self, now: Micros) -> Option<usize> {
        if !self.contender.is_by_speed() {
            return None;
        }
        self.sights.iter_mut().position(|sight| sight.asks(now))
    }

    fn next(&mut self) -> Option<u64> {
        let again = self.again.pop();
        if again.is_none() && self.next_block < self.blocks {
            self.next_block += 1;
            return Some(self.next_block - 1);
        }
        again
    }

    /// Notes a sent request.
    pub fn asked(&mut self, block: u64, copy: usize, ticket: Ticket) {
        self.sights[copy].in_flight += 1;
        self.outstanding.push(Outstanding { block, copy, ticket });
    }

    /// Blocks that could arrive sooner from `copy`: the last ones requested from another copy, if
    /// moving them evens out the outstanding requests.
    pub fn could_take_back(&self, copy: usize) -> impl Iterator<Item = Outstanding> {
        let mine = self.sights[copy].in_flight + 1;
        let asked = self.outstanding.iter().rev().copied();
        asked.filter(move |at| at.copy != copy && self.sights[at.copy].in_flight > mine)
    }

    /// Removes an outstanding request.
    pub fn settle(&mut self, block: u64, copy: usize) {
        self.outstanding.retain(|asked| asked.block != block);
        self.sights[copy].in_flight -= 1;
    }

    /// Notes an arrived block, and the progress of the disk's own reader if both belong to one job.
    pub fn got(
        &mut self,
        block: u64,
        copy: usize,
        report: Report,
        peer: Option<Progress>,
        now: Micros,
    ) {
        self.settle(block, copy);
        self.times_read[block as usize] += 1;
        self.done_bytes += u64::from(self.place(block).1);
        let sight = &mut self.sights[copy];
        sight.heard(report, now);
        if copy > 0 {
            sight.peer = peer;
        }
        if self.done_bytes >= self.work_bytes {
            self.end = Some(now);
        }
    }

    /// Notes that a disk has died without serving a block.
    pub fn failed(&mut self, block: u64, copy: usize) {
        self.sights[copy].is_usable = false;
        self.runs.end((), copy);
        self.again.push(block);
    }

    /// Whether the policy needs the state of other disks.
    pub fn wants_news(&self) -> bool {
        self.end.is_none() && self.contender.is_by_progress()
    }

    /// Whether all copies are lost.
    pub fn is_lost(&self) -> bool {
        self.sights.iter().all(|sight| !sight.is_usable)
    }
}

/// A router for a reader that knows nothing yet.
pub fn router(run: &Run) -> Router {
    Router::new(run.contender.policy, run.copies, run.marks)
}

/// Whether requests of this policy carry progress.
pub fn tells(contender: Contender) -> bool {
    contender.is_job && contender.policy != ReadPolicy::Primary
}
