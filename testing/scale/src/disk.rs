//! A disk: serves one request at a time, in the order of the policies' queue.

use crate::cost::{self, Cost};
use crate::sight::Meter;
use crate::{Cluster, Speed};
use weir_policy::{DiskQueue, JobKey, Limits, Micros, Progress, Request, StreamKey, Ticket};

/// A request of a reader for a block.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    pub job: usize,
    pub reader: usize,
    pub copy: usize,
    pub block: u64,
    pub offset: u64,
    pub len_bytes: u32,
}

/// A disk of a ring.
#[derive(Debug)]
pub struct Disk {
    queue: DiskQueue<Asked>,
    now: Option<Asked>,
    /// Position of the head: the reader, and the end of its last read.
    at: Option<(usize, u64)>,
    pub is_dead: bool,
    pub meter: Meter,
    pub served_bytes: u64,
    pub turns: u64,
    /// Operations on its queue, if they are recorded.
    pub log: Option<Vec<cost::Asked>>,
    /// For each job, the progress of the rank that owns this disk.
    pub known: Vec<Progress>,
}

impl Disk {
    /// An idle disk.
    pub fn new(limits: Limits, known: Vec<Progress>) -> Self {
        Self {
            queue: DiskQueue::new(limits),
            now: None,
            at: None,
            is_dead: false,
            meter: Meter::default(),
            served_bytes: 0,
            turns: 0,
            log: None,
            known,
        }
    }

    /// Number of unanswered requests.
    pub fn waiting(&self) -> usize {
        self.queue.len() + usize::from(self.now.is_some())
    }

    /// Adds a request.
    pub fn push(
        &mut self,
        now: Micros,
        asked: Asked,
        progress: Option<Progress>,
        cost: &mut Cost,
    ) -> Ticket {
        let request = Request {
            job: JobKey(asked.job as u64),
            stream: StreamKey(asked.reader as u64),
            progress,
            offset: asked.offset,
            len_bytes: asked.len_bytes,
        };
        cost.count(self.queue.len());
        self.note(cost::Asked::Push(now, request));
        let pushed = self.queue.push(now, request, asked);
        pushed.expect("the requests of all its readers are fewer than the limit")
    }

    /// Removes a request that has not begun.
    pub fn cancel(&mut self, ticket: Ticket) -> bool {
        self.note(cost::Asked::Cancel(ticket));
        self.queue.cancel(ticket).is_some()
    }

    fn note(&mut self, asked: cost::Asked) {
        if let Some(log) = &mut self.log {
            log.push(asked);
        }
    }

    /// Begins the next request, if the disk is idle. Returns when it completes, if ever.
    pub fn begin(
        &mut self,
        now: Micros,
        speed: &Speed,
        seek_us: f64,
        cost: &mut Cost,
    ) -> Option<Micros> {
        if self.now.is_some() || self.queue.is_empty() {
            return None;
        }
        cost.count(self.queue.len());
        self.note(cost::Asked::Pop(now));
        let asked = self.queue.pop(now)?;
        let turn_us = self.turn_us(&asked, speed, now as f64, seek_us);
        self.turns += u64::from(turn_us > 0.0);
        self.at = Some((asked.reader, asked.offset + u64::from(asked.len_bytes)));
        self.now = Some(asked);
        let done = speed.done_us(now as f64, turn_us, asked.len_bytes.into())?.ceil();
        self.meter.served(done - now as f64, asked.len_bytes.into());
        Some(done as Micros)
    }

    /// Skipping a short distance takes no longer than reading it.
    fn turn_us(&self, asked: &Asked, speed: &Speed, now: f64, seek_us: f64) -> f64 {
        match self.at {
            Some((reader, at)) if reader == asked.reader && asked.offset >= at => {
                let over = (asked.offset - at) as f64;
                speed.done_us(now, 0.0, over).map_or(0.0, |end| seek_us.min(end - now))
            }
            _ => seek_us,
        }
    }

    /// The request that has completed.
    pub fn end(&mut self) -> Option<Asked> {
        self.now.take()
    }

    /// Ends the disk's service; returns all requests that will never complete.
    pub fn die(&mut self, now: Micros) -> Vec<Asked> {
        self.is_dead = true;
        let waiting = std::iter::from_fn(|| self.queue.pop(now));
        self.now.take().into_iter().chain(waiting).collect()
    }
}

/// The disks of a cluster, with the work of each job's ranks.
pub fn disks(cluster: &Cluster, jobs: usize, work_bytes: u64, limits: Limits) -> Vec<Disk> {
    let known = vec![Progress { done_bytes: 0, work_bytes }; jobs];
    cluster.disks.iter().map(|_| Disk::new(limits, known.clone())).collect()
}
