//! A model of a parallel read: readers in a ring, each with its copies on consecutive disks from
//! its own on. The decisions are those of the policies. Time is virtual, the network costs nothing,
//! and a disk has a rate and a seek time.

use std::collections::BinaryHeap;
use weir_policy::{
    CopyView, DiskQueue, JobKey, Limits, Progress, ReadPolicy, Request, Router, StreamKey, Ticket,
    UNKNOWN, Watermarks, window,
};

/// The parameters of a model.
#[derive(Clone)]
pub struct Ring {
    pub policy: ReadPolicy,
    pub copies: usize,
    pub block_bytes: u32,
    pub work_bytes: Vec<u64>,
    pub bytes_per_s: Vec<f64>,
    pub seek_us: f64,
    pub window_bytes: u64,
    pub marks: Watermarks,
    pub run_bytes: u64,
    /// Interval at which a disk sends its own reader's progress to readers of its other copies.
    pub push_us: u64,
    /// A disk, the factor by which it is slow, and for how long: it alternates between slow and
    /// normal.
    pub comes_and_goes: Option<(usize, f64, u64)>,
}

/// The result of a run.
#[derive(Debug)]
pub struct Outcome {
    /// Time at which the last reader finished.
    pub slowest_s: f64,
    /// Time at which the first reader finished.
    pub fastest_s: f64,
    /// Share of bytes that did not come from the first copy.
    pub diverted: f64,
    /// Whether each block was read exactly once.
    pub is_complete: bool,
    /// Bytes served by each disk.
    pub disk_bytes: Vec<u64>,
    /// Number of seeks of each disk.
    pub turns: Vec<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Served { disk: usize },
    Push { disk: usize },
}

struct Reader {
    router: Router,
    next_block: u64,
    blocks: u64,
    in_flight: Vec<u32>,
    peers: Vec<Option<Progress>>,
    done_bytes: u64,
    times_read: Vec<u8>,
    /// Outstanding requests: block, copy, ticket.
    asked: Vec<(u64, usize, Ticket)>,
    end_us: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    reader: usize,
    copy: usize,
    block: u64,
    len: u32,
}

struct Disk {
    queue: DiskQueue<Asked>,
    now: Option<Asked>,
    at: Option<(usize, u64)>,
    served_bytes: u64,
    turns: u64,
    known: Vec<Progress>,
}

struct Model<'a> {
    ring: &'a Ring,
    readers: Vec<Reader>,
    disks: Vec<Disk>,
    events: BinaryHeap<std::cmp::Reverse<(u64, u64, Event)>>,
    number: u64,
    own_bytes: u64,
}

impl Ring {
    pub fn run(&self) -> Outcome {
        let n = self.work_bytes.len();
        let reader = |work: &u64| {
            let blocks = work.div_ceil(self.block_bytes.into());
            Reader {
                router: Router::new(self.policy, self.copies, self.marks),
                next_block: 0,
                blocks,
                in_flight: vec![0; self.copies],
                peers: vec![None; self.copies],
                done_bytes: 0,
                times_read: vec![0; blocks as usize],
                asked: Vec::new(),
                end_us: None,
            }
        };
        let limits = Limits { run_bytes: self.run_bytes, ..Limits::default() };
        let limits = Limits { longest_wait: 60_000_000, ..limits };
        let disk = |_| Disk {
            queue: DiskQueue::new(limits),
            now: None,
            at: None,
            served_bytes: 0,
            turns: 0,
            known: self
                .work_bytes
                .iter()
                .map(|w| Progress { done_bytes: 0, work_bytes: *w })
                .collect(),
        };
        let mut model = Model {
            ring: self,
            readers: self.work_bytes.iter().map(reader).collect(),
            disks: (0..n).map(disk).collect(),
            events: BinaryHeap::new(),
            number: 0,
            own_bytes: 0,
        };
        model.run()
    }
}

impl Model<'_> {
    fn run(&mut self) -> Outcome {
        let n = self.readers.len();
        for disk in 0..n {
            self.at(self.ring.push_us, Event::Push { disk });
        }
        (0..n).for_each(|reader| self.ask(0, reader));
        (0..n).for_each(|disk| self.serve(0, disk));
        while let Some(std::cmp::Reverse((now, _, event))) = self.events.pop() {
            match event {
                Event::Served { disk } => self.served(now, disk),
                Event::Push { disk } => self.push(now, disk),
            }
            if self.readers.iter().all(|reader| reader.end_us.is_some()) {
                break;
            }
        }
        let ends = || self.readers.iter().filter_map(|r| r.end_us);
        let (fastest, slowest) = (ends().min().unwrap_or(0), ends().max().unwrap_or(0));
        let all: u64 = self.ring.work_bytes.iter().sum();
        Outcome {
            slowest_s: slowest as f64 / 1e6,
            fastest_s: fastest as f64 / 1e6,
            diverted: 1.0 - self.own_bytes as f64 / all as f64,
            is_complete: self.readers.iter().all(|r| r.times_read.iter().all(|n| *n == 1)),
            disk_bytes: self.disks.iter().map(|disk| disk.served_bytes).collect(),
            turns: self.disks.iter().map(|d| d.turns).collect(),
        }
    }

    fn at(&mut self, at: u64, event: Event) {
        self.number += 1;
        self.events.push(std::cmp::Reverse((at, self.number, event)));
    }

    fn progress(&self, reader: usize) -> Progress {
        let work_bytes = self.ring.work_bytes[reader];
        Progress { done_bytes: self.readers[reader].done_bytes, work_bytes }
    }

    /// Sends as many requests as the policy allows.
    fn ask(&mut self, now: u64, reader: usize) {
        let own = self.progress(reader);
        loop {
            let ring = self.ring;
            let room = window(ring.window_bytes, ring.block_bytes.into(), own);
            let this = &mut self.readers[reader];
            let view = |copy: usize| CopyView {
                is_usable: true,
                is_full: this.in_flight[copy] >= room,
                has_enough: false,
                in_flight: this.in_flight[copy],
                queued: 0,
                is_idle: false,
                service_us: 0.0,
                to_come: 0,
                rest_us: 0.0,
                turn_us: 0.0,
                peer: this.peers[copy],
                may_be_owned: false,
                is_mine: false,
                keeps_up: false,
            };
            let views: Vec<_> = (0..this.in_flight.len()).map(view).collect();
            let block = this.next_block;
            let Some(copy) = this.router.choose(block, (own, UNKNOWN), &views) else { return };
            let block = if block < this.blocks {
                this.next_block += 1;
                block
            } else if let Some(block) = self.take_back(reader, copy) {
                block
            } else {
                return;
            };
            self.readers[reader].in_flight[copy] += 1;
            let offset = block * u64::from(self.ring.block_bytes);
            let left = own.work_bytes - offset;
            let len = u64::from(self.ring.block_bytes).min(left) as u32;
            let at = (reader + copy) % self.disks.len();
            let disk = &mut self.disks[at];
            disk.known[reader] = own;
            let request = Request {
                job: JobKey(1),
                stream: StreamKey(reader as u64),
                progress: Some(own),
                offset,
                len_bytes: len,
            };
            let asked = Asked { reader, copy, block, len };
            let ticket = disk.queue.push(now, request, asked);
            let ticket = ticket.expect("windows are smaller than the queue");
            self.readers[reader].asked.push((block, copy, ticket));
            self.serve(now, at);
        }
    }

    /// Takes a block back from another copy that has not begun it, if no block is left to request
    /// and this copy has room.
    fn take_back(&mut self, reader: usize, copy: usize) -> Option<u64> {
        let n = self.disks.len();
        let Reader { asked, in_flight, .. } = &mut self.readers[reader];
        for at in (0..asked.len()).rev() {
            let (block, from, ticket) = asked[at];
            // Only until the outstanding requests are even.
            let is_longer = in_flight[from] > in_flight[copy] + 1;
            if from != copy
                && is_longer
                && self.disks[(reader + from) % n].queue.cancel(ticket).is_some()
            {
                asked.remove(at);
                in_flight[from] -= 1;
                return Some(block);
            }
        }
        None
    }

    fn serve(&mut self, now: u64, at: usize) {
        let disk = &mut self.disks[at];
        if disk.now.is_some() {
            return;
        }
        let Some(asked) = disk.queue.pop(now) else { return };
        let offset = asked.block * u64::from(self.ring.block_bytes);
        let turns = disk.at.is_some_and(|(reader, _)| reader != asked.reader);
        disk.turns += u64::from(turns);
        disk.at = Some((asked.reader, offset));
        disk.now = Some(asked);
        let slower = match self.ring.comes_and_goes {
            Some((slow, factor, us)) if slow == at && (now / us) % 2 == 1 => factor,
            _ => 1.0,
        };
        let rate = self.ring.bytes_per_s[at] / slower;
        let seek = if turns { self.ring.seek_us } else { 0.0 };
        let takes = f64::from(asked.len) / rate * 1e6 + seek;
        self.at(now + takes.ceil() as u64, Event::Served { disk: at });
    }

    fn served(&mut self, now: u64, at: usize) {
        let Some(Asked { reader, copy, block, len }) = self.disks[at].now.take() else { return };
        self.disks[at].served_bytes += u64::from(len);
        if copy == 0 {
            self.own_bytes += u64::from(len);
        }
        // The reply carries the disk's knowledge of its own reader.
        let peer = self.disks[at].known[at];
        let this = &mut self.readers[reader];
        this.times_read[block as usize] += 1;
        this.in_flight[copy] -= 1;
        this.asked.retain(|(asked, _, _)| *asked != block);
        this.done_bytes += u64::from(len);
        if copy > 0 {
            this.peers[copy] = Some(peer);
        }
        if this.done_bytes == self.ring.work_bytes[reader] {
            this.end_us = Some(now);
            // The reader's last report to its own disk.
            let done = self.progress(reader);
            self.disks[reader].known[reader] = done;
        }
        self.ask(now, reader);
        self.serve(now, at);
    }

    /// The disk sends its own reader's progress to the readers of its other copies.
    fn push(&mut self, now: u64, disk: usize) {
        let n = self.disks.len();
        for copy in 1..self.ring.copies {
            let reader = (disk + n - copy) % n;
            self.readers[reader].peers[copy] = Some(self.disks[disk].known[disk]);
            self.ask(now, reader);
        }
        self.at(now + self.ring.push_us, Event::Push { disk });
    }
}
