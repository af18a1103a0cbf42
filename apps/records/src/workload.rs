//! The read workloads of paper 0: each of several readers reads the whole file (local whole file),
//! its own part (global whole file), or random records. All begin together, and the time ends with
//! the last one.
//!
//! A reader is a separate process. It prints `ready`, waits for `go`, and finally prints its
//! results as JSON.

use crate::progress::Progress;
use crate::record::{self, RECORD_BYTES};
use crate::size::megabytes_per_second;
use crate::team::Member;
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sio::constants::{HINT_RANDOM_PARTIAL, HINT_READ, HINT_SEQUENTIAL};
use sio::safe;
use std::fs::File;
use std::io::{self, BufRead, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

/// Maximum number of records per call.
const MAX_RECORDS: u64 = 1 << 20;

/// What each reader reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Workload {
    /// Local whole file: the whole file, sequentially
    Lwf,
    /// Global whole file: an equal part of the file, sequentially
    Gwf,
    /// Chunks that begin at random records
    Random,
}

/// How a file is read. The program passes these options on to its readers.
#[derive(Args, Clone)]
pub struct How {
    /// The file of records; with --files, its name in that file system
    pub file: String,
    /// What each reader reads
    #[arg(long, value_enum, default_value_t = Workload::Lwf)]
    pub workload: Workload,
    /// Number of records per call
    #[arg(long, default_value_t = 1, value_name = "N",
          value_parser = clap::value_parser!(u64).range(1..=MAX_RECORDS))]
    pub records: u64,
    /// Number of calls of a reader that reads at random
    #[arg(long, default_value_t = 100_000, value_name = "N",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub chunks: u64,
    /// Read only this many records, from the beginning of the file
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub first: Option<u64>,
    /// Seed of the random offsets
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Check every record that was read
    #[arg(long)]
    pub verify: bool,
    /// Read through the SIO interface: plain:DIRECTORY or weir:CLUSTER
    #[arg(long, value_name = "FILES")]
    pub files: Option<String>,
    /// Give a hint on the order in which the file is read
    #[arg(long, requires = "files")]
    pub hinted: bool,
    /// Cache nothing on this machine: every call goes to the servers
    #[arg(long, requires = "files")]
    pub uncached: bool,
}

/// `weir-records read`.
#[derive(Args)]
pub struct Read {
    /// What is read, and how
    #[command(flatten)]
    pub how: How,
    /// Readers on this machine
    #[arg(long, default_value_t = 1, value_name = "N",
          value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub readers: u64,
    /// Start a reader with this command, as in 'ssh node2', instead of the readers here; can be
    /// repeated
    #[arg(long, value_name = "COMMAND", conflicts_with = "readers")]
    pub via: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// One of the readers.
#[derive(Args)]
pub struct Reader {
    /// What is read, and how
    #[command(flatten)]
    pub how: How,
    /// Its rank, from 0
    #[arg(long)]
    pub rank: u64,
    /// Number of readers
    #[arg(long)]
    pub of: u64,
}

/// The results of a reader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Had {
    bytes: u64,
    calls: u64,
    seconds: f64,
}

impl How {
    /// The command line arguments for these options.
    fn words(&self) -> Vec<String> {
        let name = self.workload.to_possible_value().map(|value| value.get_name().to_owned());
        let mut words = vec!["--workload".to_owned(), name.unwrap_or_default()];
        for (flag, number) in
            [("--records", self.records), ("--chunks", self.chunks), ("--seed", self.seed)]
        {
            words.extend([flag.to_owned(), number.to_string()]);
        }
        if let Some(first) = self.first {
            words.extend(["--first".to_owned(), first.to_string()]);
        }
        if let Some(files) = &self.files {
            words.extend(["--files".to_owned(), files.clone()]);
        }
        let flags =
            [("--verify", self.verify), ("--hinted", self.hinted), ("--uncached", self.uncached)];
        for (flag, is_set) in flags {
            words.extend(is_set.then(|| flag.to_owned()));
        }
        words.extend(["--".to_owned(), self.file.clone()]);
        words
    }
}

/// Starts the readers, lets them read together, and reports their speed.
///
/// # Errors
/// That of the first reader that has failed.
pub fn read(asked: &Read) -> Result<String, String> {
    let how = &asked.how;
    let here = vec![String::new(); asked.readers as usize];
    let vias = if asked.via.is_empty() { &here } else { &asked.via };
    let mut readers = Vec::with_capacity(vias.len());
    for (rank, via) in vias.iter().enumerate() {
        let (rank, of, words) = (rank.to_string(), vias.len().to_string(), how.words());
        let place = ["reader", "--rank", &rank, "--of", &of];
        let words: Vec<&str> = place.into_iter().chain(words.iter().map(String::as_str)).collect();
        readers.push(Member::start(format!("reader {rank}"), via, &words)?);
    }
    for reader in &mut readers {
        if line(reader)? != "ready" {
            return Err(format!("{} says something else than that it is ready", reader.name));
        }
    }
    let mut progress = Progress::default();
    progress.name(format!("{} readers", readers.len()));
    let begin = Instant::now();
    for reader in &mut readers {
        let said = reader.input.as_mut().map_or(Ok(()), |input| input.write_all(b"go\n"));
        said.map_err(|error| reader.lost(&error))?;
    }
    let mut had = Vec::with_capacity(readers.len());
    for reader in &mut readers {
        let said = line(reader)?;
        let of: Had = serde_json::from_str(&said)
            .map_err(|_| format!("{} says something else than what it has read", reader.name))?;
        had.push(of);
        progress.at(had.len() as u64, vias.len() as u64);
    }
    let seconds = begin.elapsed().as_secs_f64();
    progress.end();
    readers.into_iter().try_for_each(Member::end)?;
    let bytes = had.iter().map(|of| of.bytes).sum();
    let rate = megabytes_per_second(bytes, seconds);
    if asked.json {
        let report = json!({
            "file": how.file,
            "workload": how.workload,
            "records": how.records,
            "bytes": bytes,
            "seconds": seconds,
            "mb_per_s": rate,
            "readers": had,
        });
        return Ok(format!("{report:#}"));
    }
    let slowest = had.iter().map(|of| megabytes_per_second(of.bytes, of.seconds));
    let slowest = slowest.fold(f64::INFINITY, f64::min);
    Ok(format!(
        "{rate:.2} MB/s: {} readers, {bytes} bytes in {seconds:.3} s, {} records a call; the slowest had {slowest:.2} MB/s",
        had.len(),
        how.records
    ))
}

/// The next line of a reader's output.
fn line(reader: &mut Member) -> Result<String, String> {
    let mut line = String::new();
    match reader.output.read_line(&mut line) {
        Ok(0) => Err(reader.lost(&io::ErrorKind::UnexpectedEof.into())),
        Ok(_) => Ok(line.trim_end().to_owned()),
        Err(error) => Err(reader.lost(&error)),
    }
}

/// A file, read with system calls or through SIO.
enum Source {
    System(File),
    Sio(safe::File),
}

impl Source {
    fn open(how: &How) -> Result<(Self, u64), String> {
        let Some(files) = &how.files else {
            let fail = |e: io::Error| format!("{}: {e}", how.file);
            let file = File::open(Path::new(&how.file)).map_err(fail)?;
            let size = file.metadata().map_err(fail)?.len();
            return Ok((Self::System(file), size));
        };
        safe::attach(files).map_err(|e| e.text)?;
        let open = if how.uncached { safe::File::open_uncached } else { safe::File::open };
        let file = open(&how.file).map_err(|e| e.text)?;
        if how.hinted {
            let order = match how.workload {
                Workload::Random => HINT_RANDOM_PARTIAL,
                Workload::Lwf | Workload::Gwf => HINT_SEQUENTIAL,
            };
            file.hint(HINT_READ | order, &[]).map_err(|e| e.text)?;
        }
        let size = file.size().map_err(|e| e.text)?;
        Ok((Self::Sio(file), size))
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), String> {
        match self {
            Self::System(file) => file.read_exact_at(buffer, offset).map_err(|e| e.to_string()),
            Self::Sio(file) => match file.read_at(offset, buffer) {
                Ok(bytes) if bytes == buffer.len() => Ok(()),
                Ok(_) => Err("the file has become shorter".into()),
                Err(error) => Err(error.text),
            },
        }
    }
}

/// The work of one reader.
///
/// # Errors
/// The file cannot be read, or has wrong contents.
pub fn serve(asked: &Reader) -> Result<String, String> {
    let how = &asked.how;
    let about = |what: String| format!("{}: {what}", how.file);
    let (source, size) = Source::open(how)?;
    let there = size / RECORD_BYTES as u64;
    let all = how.first.unwrap_or(there);
    if all > there {
        return Err(about(format!("has {there} records, not {all}")));
    }
    if asked.rank >= asked.of {
        return Err(format!("reader {} of {}", asked.rank, asked.of));
    }
    if how.workload == Workload::Random && all < how.records {
        return Err(about(format!("has {all} records: a call of {} does not fit", how.records)));
    }
    let mut buffer = vec![0; how.records as usize * RECORD_BYTES];
    // Consecutive ranks read at different offsets.
    let begin = fastrand::Rng::with_seed(how.seed).u64(..);
    let own = asked.rank.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let (mut had, mut rng) = (Had::default(), fastrand::Rng::with_seed(begin ^ own));
    let verifier = how.verify.then(|| Verifier::new(&source, all)).transpose().map_err(about)?;
    wait_for_go()?;
    let begin = Instant::now();
    let mut call = |first: u64, records: u64| {
        let bytes = &mut buffer[..records as usize * RECORD_BYTES];
        source.read(first * RECORD_BYTES as u64, bytes).map_err(about)?;
        had.bytes += bytes.len() as u64;
        had.calls += 1;
        verifier.as_ref().map_or(Ok(()), |verifier| verifier.check(first, bytes).map_err(about))
    };
    let part = match how.workload {
        Workload::Lwf => 0..all,
        Workload::Gwf => all * asked.rank / asked.of..all * (asked.rank + 1) / asked.of,
        Workload::Random => 0..0,
    };
    for first in part.clone().step_by(how.records as usize) {
        call(first, how.records.min(part.end - first))?;
    }
    if how.workload == Workload::Random {
        for _ in 0..how.chunks {
            call(rng.u64(0..=all - how.records), how.records)?;
        }
    }
    had.seconds = begin.elapsed().as_secs_f64();
    serde_json::to_string(&had).map_err(|e| e.to_string())
}

/// Prints that it is ready, and waits until all readers are.
fn wait_for_go() -> Result<(), String> {
    let said = writeln!(io::stdout(), "ready").and_then(|()| io::stdout().flush());
    said.map_err(|e| e.to_string())?;
    let mut line = String::new();
    io::stdin().read_line(&mut line).map_err(|e| e.to_string())?;
    match line.trim_end() {
        "go" => Ok(()),
        _ => Err("`weir-records reader` is started by `weir-records read`".into()),
    }
}

/// Checks records against the properties that the first record states.
struct Verifier {
    spec: record::FileSpec,
}

impl Verifier {
    fn new(source: &Source, all: u64) -> Result<Self, String> {
        let mut first = [0; RECORD_BYTES];
        if all == 0 {
            return Err("has no record".into());
        }
        source.read(0, &mut first)?;
        let (_, spec) = record::read(&first).map_err(|fault| format!("record 0 {fault}"))?;
        Ok(Self { spec })
    }

    fn check(&self, first: u64, bytes: &[u8]) -> Result<(), String> {
        for (number, bytes) in (first..).zip(bytes.as_chunks::<RECORD_BYTES>().0) {
            record::check(self.spec, number, bytes)
                .map_err(|fault| format!("record {number} {fault}"))?;
        }
        Ok(())
    }
}
