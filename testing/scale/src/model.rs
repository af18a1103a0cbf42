//! Events on virtual time: requests complete, disks die, disks send the progress of their own
//! readers. The network takes no time.

use crate::cost::{self, Cost};
use crate::disk::{Asked, Disk, disks};
use crate::reader::{Reader, Wish, router, tells};
use crate::{Cluster, Contender};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use weir_policy::{Limits, Micros, Watermarks};

/// The parameters of a simulation.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// The policy of all readers.
    pub contender: Contender,
    /// The disks, in a ring.
    pub cluster: &'a Cluster,
    /// Number of copies. Copy `k` of rank `i` is on disk `i + k`.
    pub copies: usize,
    /// Number of jobs, each with one rank on each node.
    pub jobs: usize,
    /// Work of each rank.
    pub work_bytes: u64,
    /// Size of a request.
    pub block_bytes: u64,
    /// Limits of the disks' queues.
    pub limits: Limits,
    /// Watermarks of policies that use progress.
    pub marks: Watermarks,
    /// Interval at which a disk sends its own reader's progress to readers that have not heard from
    /// it (1.21).
    pub push_us: Micros,
}

/// The outcome, which is the same for equal seeds.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// When the last rank of all jobs finished.
    pub slowest_us: Micros,
    /// Share of bytes that did not come from the first copy.
    pub backup_share: f64,
    /// Whether each block of each rank was read exactly once.
    pub is_complete: bool,
    /// Bytes served by all disks.
    pub served_bytes: u64,
    /// Number of seeks.
    pub turns: u64,
    /// Length of the longest queue.
    pub longest_queue: usize,
}

/// The cost of a run's decisions.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// Choices of copies by readers.
    pub choices: Cost,
    /// Queue operations of disks.
    pub turns: Cost,
}

/// Mean time of one node's decisions, made alone; nanoseconds of CPU time.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// One choice of a reader.
    pub choice_ns: f64,
    /// One operation on a disk's queue.
    pub turn_ns: f64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Begin { reader: usize },
    Served { disk: usize },
    Dies { disk: usize },
    Push { disk: usize },
}

struct Model<'a> {
    run: Run<'a>,
    readers: Vec<Reader>,
    disks: Vec<Disk>,
    events: BinaryHeap<Reverse<(Micros, u64, Event)>>,
    number: u64,
    now: Micros,
    /// Readers that have not finished.
    left: usize,
    backup_bytes: u64,
    longest_queue: usize,
    choices: Cost,
    turns: Cost,
}

/// Ranks begin within this time.
const BEGIN_US: Micros = 10_000;

impl Run<'_> {
    /// Simulates until all ranks have finished; `seed` determines when they begin.
    pub fn run(self, seed: u64) -> (Outcome, Costs) {
        let mut model = self.model();
        model.run_to_the_end(seed);
        model.outcome()
    }

    /// Time of the decisions of the first `nodes` in such a run.
    pub fn times(self, seed: u64, nodes: usize) -> Times {
        let mut model = self.model();
        model.readers.iter_mut().take(nodes).for_each(|reader| reader.log = Some(Vec::new()));
        model.disks.iter_mut().take(nodes).for_each(|disk| disk.log = Some(Vec::new()));
        model.run_to_the_end(seed);
        let router = router(&self);
        let choices = model.readers.iter().filter_map(|reader| reader.log.as_ref());
        let choices = choices.filter_map(|log| cost::choice_ns(&router, log));
        let turns = model.disks.iter().filter_map(|disk| disk.log.as_ref());
        let turns = turns.filter_map(|log| cost::turn_ns(self.limits, log));
        let mean = |times: Vec<f64>| times.iter().sum::<f64>() / times.len() as f64;
        Times { choice_ns: mean(choices.collect()), turn_ns: mean(turns.collect()) }
    }

    fn model(&self) -> Model<'_> {
        let readers = self.cluster.disks.len() * self.jobs;
        Model {
            run: *self,
            readers: (0..readers).map(|_| Reader::new(self)).collect(),
            disks: disks(self.cluster, self.jobs, self.work_bytes, self.limits),
            events: BinaryHeap::new(),
            number: 0,
            now: 0,
            left: readers,
            backup_bytes: 0,
            longest_queue: 0,
            choices: Cost::default(),
            turns: Cost::default(),
        }
    }
}

impl Model<'_> {
    fn run_to_the_end(&mut self, seed: u64) {
        self.plan(&mut fastrand::Rng::with_seed(seed));
        while let Some(Reverse((now, _, event))) = self.events.pop() {
            self.now = now;
            self.happen(event);
            if self.left == 0 {
                return;
            }
        }
    }

    fn plan(&mut self, random: &mut fastrand::Rng) {
        for reader in 0..self.readers.len() {
            self.at(random.u64(0..BEGIN_US), Event::Begin { reader });
        }
        for disk in 0..self.disks.len() {
            if let Some(us) = self.run.cluster.disks[disk].dies_us() {
                self.at(us as Micros, Event::Dies { disk });
            }
            if self.run.contender.is_by_progress() {
                self.at(random.u64(0..self.run.push_us), Event::Push { disk });
            }
        }
    }

    fn at(&mut self, at: Micros, event: Event) {
        self.number += 1;
        self.events.push(Reverse((at, self.number, event)));
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Begin { reader } => self.ask(reader),
            Event::Served { disk } => self.served(disk),
            Event::Dies { disk } => self.dies(disk),
            Event::Push { disk } => self.push(disk),
        }
    }

    fn outcome(self) -> (Outcome, Costs) {
        let served_bytes: u64 = self.disks.iter().map(|disk| disk.served_bytes).sum();
        let outcome = Outcome {
            slowest_us: self.readers.iter().filter_map(|r| r.end).max().unwrap_or(0),
            backup_share: self.backup_bytes as f64 / served_bytes as f64,
            is_complete: self.readers.iter().all(Reader::is_complete),
            served_bytes,
            turns: self.disks.iter().map(|disk| disk.turns).sum(),
            longest_queue: self.longest_queue,
        };
        (outcome, Costs { choices: self.choices, turns: self.turns })
    }

    fn disk_of(&self, reader: usize, copy: usize) -> usize {
        (reader + copy) % self.disks.len()
    }

    /// Sends as many requests as the policy allows.
    fn ask(&mut self, reader: usize) {
        while let Some(wish) = self.readers[reader].wish(self.now, &mut self.choices) {
            let (copy, block) = match wish {
                Wish::Block { copy, block } => (copy, block),
                Wish::Word { copy } => {
                    self.tell(reader, copy);
                    continue;
                }
                Wish::TakenBack { copy } => match self.take_back(reader, copy) {
                    Some(block) => (copy, block),
                    None => return,
                },
            };
            self.send(reader, copy, block);
        }
    }

    /// Sends the state of a disk to a reader; a dead disk sends nothing.
    fn tell(&mut self, reader: usize, copy: usize) {
        let disk = &self.disks[self.disk_of(reader, copy)];
        if !disk.is_dead {
            let report = disk.meter.report(disk.waiting());
            self.readers[reader].sights[copy].heard(report, self.now);
        }
    }

    fn send(&mut self, reader: usize, copy: usize, block: u64) {
        let (nodes, at) = (self.disks.len(), self.disk_of(reader, copy));
        let (this, disk) = (&mut self.readers[reader], &mut self.disks[at]);
        if disk.is_dead {
            this.failed(block, copy);
            // A reader that has lost all copies is not waited for.
            self.left -= usize::from(this.is_lost());
            return;
        }
        let (offset, len_bytes) = this.place(block);
        let asked = Asked { job: reader / nodes, reader, copy, block, offset, len_bytes };
        let progress = this.progress();
        if copy == 0 {
            disk.known[asked.job] = progress;
        }
        let told = tells(self.run.contender).then_some(progress);
        let ticket = disk.push(self.now, asked, told, &mut self.turns);
        this.asked(block, copy, ticket);
        self.longest_queue = self.longest_queue.max(disk.waiting());
        self.serve(at);
    }

    /// A block that another copy was asked for and has not begun.
    fn take_back(&mut self, reader: usize, copy: usize) -> Option<u64> {
        let nodes = self.disks.len();
        let disks = &mut self.disks;
        let mut could = self.readers[reader].could_take_back(copy);
        let taken = could.find(|at| disks[(reader + at.copy) % nodes].cancel(at.ticket))?;
        drop(could);
        self.readers[reader].settle(taken.block, taken.copy);
        Some(taken.block)
    }

    fn serve(&mut self, at: usize) {
        let (speed, seek_us) = (&self.run.cluster.disks[at], self.run.cluster.seek_us);
        let done = self.disks[at].begin(self.now, speed, seek_us, &mut self.turns);
        if let Some(done) = done {
            self.at(done, Event::Served { disk: at });
        }
    }

    fn served(&mut self, at: usize) {
        let disk = &mut self.disks[at];
        let Some(asked) = disk.end() else { return };
        let Asked { job, reader, copy, block, len_bytes, .. } = asked;
        disk.served_bytes += u64::from(len_bytes);
        if copy > 0 {
            self.backup_bytes += u64::from(len_bytes);
        }
        let report = disk.meter.report(disk.waiting());
        let peer = self.run.contender.is_by_progress().then_some(disk.known[job]);
        let this = &mut self.readers[reader];
        this.got(block, copy, report, peer, self.now);
        if this.end.is_some() {
            self.left -= 1;
            // The reader's last report to its own disk.
            let nodes = self.disks.len();
            self.disks[reader % nodes].known[job] = self.readers[reader].progress();
        }
        self.ask(reader);
        self.serve(at);
    }

    /// A disk dies. Its requests fail, and are sent to other disks.
    fn dies(&mut self, at: usize) {
        let failed = self.disks[at].die(self.now);
        for asked in &failed {
            let this = &mut self.readers[asked.reader];
            this.settle(asked.block, asked.copy);
            this.failed(asked.block, asked.copy);
        }
        failed.iter().for_each(|asked| self.ask(asked.reader));
    }

    /// A disk sends its own reader's progress to the readers of its other copies that have not
    /// heard from it.
    fn push(&mut self, at: usize) {
        let nodes = self.disks.len();
        let since = self.now.saturating_sub(self.run.push_us);
        for job in 0..self.run.jobs {
            for copy in 1..self.run.copies {
                let reader = job * nodes + (at + nodes - copy) % nodes;
                let known = self.disks[at].known[job];
                let this = &mut self.readers[reader];
                let is_told = this.sights[copy].is_heard_since(since);
                if this.wants_news() && !is_told && !self.disks[at].is_dead {
                    this.sights[copy].peer = Some(known);
                    self.ask(reader);
                }
            }
        }
        self.at(self.now + self.run.push_us, Event::Push { disk: at });
    }
}
