//! Reads all inputs once, distributed over the processes of a job.

use crate::block;
use crate::invalid;
use crate::job::Job;
use crate::plan::{self, Place};
use crate::tree::{Cluster, Open, Tree, join};
use clap::ValueEnum;
use std::collections::BTreeMap;
use std::ops::Range;
use weir_client::job::{JobReader, Partition};
use weir_jobs::blocks::MAX_FILES;
use weir_jobs::{Input, Record, Take, TakeOptions};
use weir_types::{Error, FileKind, Result, TargetId};

/// Permitted block sizes, bytes.
const BLOCK_BYTES: std::ops::RangeInclusive<u64> = 4096..=64 << 20;

/// How blocks are distributed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Way {
    /// Each process takes the next block of the disk that is furthest behind, as in `weir take`
    Take,
    /// Each process reads blocks on its own machine, as far as shares stay equal
    Locations,
    /// Each process reads an equal share, in order
    Shares,
}

impl Way {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Take => "take",
            Self::Locations => "locations",
            Self::Shares => "shares",
        }
    }
}

/// The inputs of a run.
pub struct Inputs {
    tree: Tree,
    /// Path and size in bytes of each file.
    files: Vec<(String, u64)>,
    record: Record,
    way: Way,
    block_bytes: u64,
}

/// Amounts that a process has read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Bytes of whole records.
    pub bytes: u64,
    /// Bytes from disks of this machine, if known.
    pub local_bytes: u64,
}

impl Inputs {
    /// Finds the inputs: files, and the files in directories, sorted by name. Hidden files are left
    /// out.
    ///
    /// # Errors
    /// Those of the files; a file without a whole number of records.
    pub fn find(
        tree: &Tree,
        paths: &[String],
        (record, way, block_bytes): (Record, Way, u64),
    ) -> Result<Self> {
        if !BLOCK_BYTES.contains(&block_bytes) {
            return Err(invalid("--block: 4 KiB to 64 MiB"));
        }
        let mut files = Vec::new();
        for path in paths {
            match kind(tree, path)? {
                (FileKind::Directory, _) => {
                    for name in tree.names(path)?.iter().filter(|name| !name.starts_with('.')) {
                        let path = join(path, name);
                        if let (FileKind::File, size) = kind(tree, &path)? {
                            files.push((path, size));
                        }
                    }
                }
                (FileKind::File, size) => files.push((path.clone(), size)),
                _ => return Err(invalid(format!("{path}: neither a file nor a directory"))),
            }
        }
        if files.len() > MAX_FILES {
            return Err(invalid(format!("{} files: at most {MAX_FILES}", files.len())));
        }
        for (path, size) in &files {
            record.check(*size).map_err(|e| e.context(path))?;
        }
        Ok(Self { tree: tree.clone(), files, record, way, block_bytes })
    }

    /// The input that is the same file as `path`.
    ///
    /// # Errors
    /// Those of the files.
    pub fn same_as(&self, path: &str) -> Result<Option<&str>> {
        let Some(id) = self.tree.id(path)? else { return Ok(None) };
        for (input, _) in &self.files {
            if self.tree.id(input)? == Some(id) {
                return Ok(Some(input));
            }
        }
        Ok(None)
    }

    /// How blocks are distributed.
    pub fn way(&self) -> Way {
        self.way
    }

    /// Bytes of all files.
    pub fn total_bytes(&self) -> u64 {
        self.files.iter().map(|(_, size)| size).sum()
    }

    /// Samples `count` records at equal distances in all files; fewer if there are not as many.
    /// `each`: bytes of a record.
    ///
    /// # Errors
    /// Those of reading.
    pub fn sample(&self, count: u64, each: u64) -> Result<Vec<u8>> {
        let records = self.total_bytes() / each;
        let count = count.min(records);
        let (mut sample, mut next, mut before) = (Vec::new(), 0, 0);
        for (path, size) in &self.files {
            let file = self.tree.read(path)?;
            let here = size / each;
            while next < count {
                let number = (u128::from(next) * u128::from(records) / u128::from(count)) as u64;
                let Some(at) = number.checked_sub(before).filter(|at| *at < here) else { break };
                let begin = sample.len();
                sample.resize(begin + each as usize, 0);
                let read = file.read_at(at * each, &mut sample[begin..]);
                read.map_err(|e| e.context(path))?;
                next += 1;
            }
            before += here;
        }
        Ok(sample)
    }

    /// Calls `each` with the records of each block of this process. All processes of the job
    /// together read each record once.
    ///
    /// # Errors
    /// Those of reading, and of `each`.
    pub fn read(&self, job: &Job, each: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<Totals> {
        match (&self.tree, self.way) {
            (Tree::Weir(cluster), Way::Take) => self.take(cluster, job, each),
            (Tree::Weir(cluster), Way::Locations) => {
                let own = self.by_locations(cluster, job)?;
                self.read_blocks(own, (job, Some(cluster)), each)
            }
            _ => {
                let blocks = self.blocks();
                let of = plan::shares(blocks.len(), job.ranks);
                let own = blocks.into_iter().zip(of).filter(|(_, rank)| *rank == job.rank);
                let own = own.map(|((file, at), _)| (file, at, 0)).collect();
                self.read_blocks(own, (job, None), each)
            }
        }
    }

    /// All blocks: file index and byte range of each.
    fn blocks(&self) -> Vec<(usize, Range<u64>)> {
        let of = |(file, (_, size)): (usize, &(String, u64))| {
            let (size, block) = (*size, self.block_bytes);
            (0..size).step_by(block as usize).map(move |at| (file, at..(at + block).min(size)))
        };
        self.files.iter().enumerate().flat_map(of).collect()
    }

    /// The blocks of this process, each with its bytes on this machine. The first process looks up
    /// the locations and decides for all, because disk speeds change between two looks.
    fn by_locations(&self, cluster: &Cluster, job: &Job) -> Result<Vec<(usize, Range<u64>, u64)>> {
        let hosts = job.exchange("host", weir_host::host_name().as_bytes())?;
        let hosts: Vec<String> =
            hosts.iter().map(|host| String::from_utf8_lossy(host).into_owned()).collect();
        let blocks = self.blocks();
        let mut lines = String::new();
        if job.rank == 0 {
            let places = self.places(cluster, &blocks)?;
            for (places, rank) in places.iter().zip(plan::by_places(&places, &hosts)) {
                let here = places.iter().find(|place| place.host == hosts[rank]);
                lines += &format!("{rank} {}\n", here.map_or(0, |place| place.bytes));
            }
        }
        let told = job.exchange("plan", lines.as_bytes())?.swap_remove(0);
        let told = String::from_utf8_lossy(&told).into_owned();
        let numbers = told.lines().filter_map(|line| {
            let (rank, bytes) = line.split_once(' ')?;
            Some((rank.parse::<usize>().ok()?, bytes.parse::<u64>().ok()?))
        });
        let own = blocks.into_iter().zip(numbers).filter(|(_, (rank, _))| *rank == job.rank);
        Ok(own.map(|((file, at), (_, bytes))| (file, at, bytes)).collect())
    }

    /// The machines that hold each block.
    fn places(&self, cluster: &Cluster, blocks: &[(usize, Range<u64>)]) -> Result<Vec<Vec<Place>>> {
        let mut all: Vec<BTreeMap<String, Place>> = vec![BTreeMap::new(); blocks.len()];
        let mut first = 0;
        for (path, size) in &self.files {
            for piece in cluster.locations(path, *size)? {
                let end = (piece.offset + piece.len).min(*size);
                let mut from = piece.offset;
                // A location may span several blocks.
                while from < end {
                    let block = from / self.block_bytes;
                    let until = ((block + 1) * self.block_bytes).min(end);
                    for copy in piece.copies.iter().filter(|copy| !copy.is_filling) {
                        let of = &mut all[first + block as usize];
                        let place = of.entry(copy.place.host.clone()).or_insert_with(|| Place {
                            host: copy.place.host.clone(),
                            bytes: 0,
                            bytes_per_s: 0,
                        });
                        place.bytes += until - from;
                        let gives = copy.place.bytes_per_s.unwrap_or(0);
                        place.bytes_per_s = place.bytes_per_s.max(gives);
                    }
                    from = until;
                }
            }
            first += size.div_ceil(self.block_bytes) as usize;
        }
        Ok(all.into_iter().map(|places| places.into_values().collect()).collect())
    }

    /// Reads these blocks. With a cluster, prefers copies on disks of this machine.
    fn read_blocks(
        &self,
        own: Vec<(usize, Range<u64>, u64)>,
        (job, near): (&Job, Option<&Cluster>),
        each: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<Totals> {
        let mut totals = Totals::default();
        for blocks in own.chunk_by(|a, b| a.0 == b.0) {
            let (path, size) = &self.files[blocks[0].0];
            let about = |e: Error| e.context(path);
            let mut file = self.tree.read(path)?;
            if let Some(member) = job.who.member {
                let ranges = Partition::new(blocks.iter().map(|(_, at, _)| at.clone()));
                file.read_for(JobReader::of_ranges(member, Some(ranges.into())));
            }
            if let Some(cluster) = near {
                file.read_near(near_bytes(cluster, path, *size)?);
            }
            for (_, at, local_bytes) in blocks {
                let bytes = self.block(&file, *size, at).map_err(about)?;
                totals.bytes += bytes.len() as u64;
                totals.local_bytes += local_bytes;
                each(&bytes)?;
            }
        }
        Ok(totals)
    }

    fn block(&self, file: &Open, size: u64, at: &Range<u64>) -> Result<Vec<u8>> {
        block::records(file, size, at.clone(), self.record)
    }

    fn take(
        &self,
        cluster: &Cluster,
        job: &Job,
        each: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<Totals> {
        if self.files.is_empty() {
            return Ok(Totals::default());
        }
        let input = |(path, _): &(String, u64)| {
            let attr = cluster.attr(path).map_err(|e| e.context(path))?;
            Ok(Input { name: path.clone(), file: attr.file })
        };
        let inputs = self.files.iter().map(input).collect::<Result<Vec<_>>>()?;
        let options = TakeOptions {
            rank: job.rank as u32,
            ranks: job.ranks as u32,
            block_bytes: self.block_bytes,
            record: self.record,
            ..TakeOptions::new(job.who.id, cluster.attr(&job.dir)?.file)
        };
        let mut blocks = Take::new(&cluster.client, &cluster.context, &inputs, &options)?;
        while let Some(block) = blocks.next_block()? {
            each(&block.bytes)?;
        }
        let summary = blocks.summary();
        Ok(Totals { bytes: summary.bytes, local_bytes: summary.near_bytes })
    }
}

/// The ranges of a file that have a copy on this machine, with the target of each.
fn near_bytes(cluster: &Cluster, path: &str, size: u64) -> Result<Vec<(Range<u64>, TargetId)>> {
    let host = weir_host::host_name();
    let mut near = Vec::new();
    for piece in cluster.locations(path, size)? {
        let here = piece.copies.iter().find(|c| !c.is_filling && c.place.host == host);
        let bytes = piece.offset..piece.offset + piece.len;
        near.extend(here.map(|copy| (bytes, copy.place.target)));
    }
    Ok(near)
}

fn kind(tree: &Tree, path: &str) -> Result<(FileKind, u64)> {
    let missing = || Error::new(weir_types::ErrorKind::NotFound, format!("{path}: no such file"));
    tree.stat(path)?.ok_or_else(missing)
}
