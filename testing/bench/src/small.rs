//! The cost of sequential calls of one record, and of reading a file again: through the mount and
//! the library, compared with a trivial FUSE server and the machine's memory (`weir-bench small`).

use crate::accounting::{Accounting, Group};
use crate::args::Small;
use crate::cluster::Cluster;
use crate::failure::{Done, Failure};
use crate::files::Files;
use crate::fuse_limit::FuseLimit;
use crate::library::Library;
use crate::pieces::{Known, median};
use crate::stop;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use std::fs::File;
use std::hint::black_box;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;
use weir_types::TargetId;

const NAME: &str = "small";
const TARGETS: u16 = 4;
/// Bytes of a call of one record, and of a call that reads a file again.
const RECORD_BYTES: usize = 838;
const CALL_BYTES: usize = 1 << 20;
/// How often a file is read again. The first pass is the cold one.
const PASSES: usize = 3;
const STATUS_MS: u64 = 5_000;

/// The way in which the bytes of a call are read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Via {
    Memory,
    Fuse,
    Mount,
    Library,
    LibraryWithout,
}

const RECORDS: [Via; 4] = [Via::Memory, Via::Fuse, Via::Mount, Via::Library];
const AGAIN: [Via; 3] = [Via::Mount, Via::Library, Via::LibraryWithout];

/// The result of one pass: medians over the rounds.
#[derive(Debug, Serialize)]
struct Line {
    what: &'static str,
    way: &'static str,
    pass: usize,
    /// MB (10^6 bytes) per second.
    mb_per_s: f64,
    /// CPU time of the reader, the mount and all servers.
    cpu_us_per_call: f64,
    /// Bytes sent by the data servers for each byte read.
    fetched: f64,
}

/// One pass.
struct Pass {
    mb_per_s: f64,
    cpu_us_per_call: f64,
    fetched: f64,
}

/// A function that fills a buffer from an offset.
type Read<'a> = Box<dyn FnMut(u64, &mut [u8]) -> Done + 'a>;

struct Bench<'a> {
    accounting: &'a Accounting,
    /// Mount points of the cluster, and of the trivial server.
    mounted: &'a Path,
    trivial: &'a Path,
    library: Library,
    without: Library,
    known: Known,
    size: u64,
}

/// Measures all ways with alternating rounds, and prints a table.
pub fn run(arguments: &Small, weir: &Path, dir: &Path) -> Done {
    let place = tempfile::Builder::new()
        .prefix("weir-bench-")
        .tempdir_in(dir)
        .map_err(|e| Failure::file(dir, e))?;
    let mut accounting = Accounting::new();
    let mut cluster = Cluster::start(weir, place.path(), TARGETS.into(), &mut accounting)?;
    let fuse = FuseLimit::start(place.path().join("trivial"), &mut accounting)?;
    cluster.mount(&mut accounting)?;
    let bench = Bench {
        accounting: &accounting,
        mounted: cluster.mountpoint(),
        trivial: fuse.mountpoint(),
        library: Library::connect(&cluster.credential(), true)?,
        without: Library::connect_without_cache(&cluster.credential())?,
        known: Known::new(),
        size: arguments.size,
    };
    bench.library.write_file(NAME, bench.known.first(), arguments.size)?;
    let mut lines = bench.rounds("one record", &RECORDS, RECORD_BYTES, arguments.rounds)?;
    lines.extend(bench.rounds("1 MiB", &AGAIN, CALL_BYTES, arguments.rounds)?);
    print!("{}", text(&lines));
    let Some(path) = &arguments.json else { return Ok(()) };
    let json = serde_json::json!({ "small": lines });
    std::fs::write(path, format!("{json:#}\n")).map_err(|e| Failure::file(path, e))
}

fn text(lines: &[Line]) -> String {
    let mut out = format!(
        "\n{:11} {:26} {:>5} {:>10} {:>13} {:>8}\n",
        "calls of", "through", "pass", "MB/s", "CPU µs/call", "fetched"
    );
    for line in lines {
        out += &format!(
            "{:11} {:26} {:>5} {:>10.1} {:>13.2} {:>8.2}\n",
            line.what, line.way, line.pass, line.mb_per_s, line.cpu_us_per_call, line.fetched
        );
    }
    out
}

impl Via {
    fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory (memcpy)",
            Self::Fuse => "a trivial FUSE server",
            Self::Mount => "the mount",
            Self::Library => "the library",
            Self::LibraryWithout => "the library without cache",
        }
    }

    /// Whether the contents are known.
    fn is_known(self) -> bool {
        self != Self::Fuse
    }
}

impl Bench<'_> {
    fn rounds(
        &self,
        what: &'static str,
        ways: &[Via],
        call: usize,
        rounds: u32,
    ) -> Done<Vec<Line>> {
        let mut all: Vec<Vec<Vec<Pass>>> =
            ways.iter().map(|_| (0..PASSES).map(|_| Vec::new()).collect()).collect();
        // The first round is a warm-up.
        for number in 0..=rounds {
            for (via, passes) in ways.iter().zip(&mut all) {
                let round = self.round(*via, call)?;
                for (pass, rounds) in round.into_iter().zip(passes) {
                    if number > 0 {
                        rounds.push(pass);
                    }
                }
            }
        }
        let of = |(via, passes): (&Via, &Vec<Vec<Pass>>)| {
            let line = |(pass, rounds): (usize, &Vec<Pass>)| Line {
                what,
                way: via.name(),
                pass: pass + 1,
                mb_per_s: median(rounds, |r| r.mb_per_s),
                cpu_us_per_call: median(rounds, |r| r.cpu_us_per_call),
                fetched: median(rounds, |r| r.fetched),
            };
            passes.iter().enumerate().map(line).collect::<Vec<_>>()
        };
        Ok(ways.iter().zip(&all).flat_map(of).collect())
    }

    /// Opens the file once and reads it several times.
    fn round(&self, via: Via, call: usize) -> Done<Vec<Pass>> {
        let path = match via {
            Via::Fuse => self.trivial.join("data"),
            _ => self.mounted.join(NAME),
        };
        let file = |path: &Path| File::open(path).map_err(|e| Failure::file(path, e));
        match via {
            Via::Memory => {
                let memory = self.memory();
                self.passes(
                    via,
                    call,
                    Box::new(|offset, into| {
                        let from = offset as usize;
                        into.copy_from_slice(black_box(&memory[from..from + into.len()]));
                        Ok(())
                    }),
                )
            }
            Via::Fuse | Via::Mount => {
                let file = file(&path)?;
                self.passes(
                    via,
                    call,
                    Box::new(|offset, into| {
                        file.read_exact_at(into, offset).map_err(|e| Failure::file(&path, e))
                    }),
                )
            }
            Via::Library | Via::LibraryWithout => {
                let library = if via == Via::Library { &self.library } else { &self.without };
                let (_, context) = library.session();
                let file = library.open_read(NAME, false)?;
                let passes = self.passes(
                    via,
                    call,
                    Box::new(|offset, into| {
                        let is_whole = file.read_at(context, offset, into)? == into.len();
                        let short =
                            || Failure::file(&path, std::io::Error::from(ErrorKind::UnexpectedEof));
                        is_whole.then_some(()).ok_or_else(short)
                    }),
                )?;
                library.close(file)?;
                Ok(passes)
            }
        }
    }

    /// The bytes of the whole file.
    fn memory(&self) -> Vec<u8> {
        let first = self.known.first();
        let mut memory = Vec::with_capacity(self.size as usize);
        while memory.len() < self.size as usize {
            memory.extend_from_slice(first);
        }
        memory
    }

    fn passes(&self, via: Via, call: usize, mut read: Read<'_>) -> Done<Vec<Pass>> {
        let mut buffer = vec![0; call];
        let calls = self.size / call as u64;
        let mut pass = || {
            stop::check()?;
            let (given, cpu, begin) = (self.given()?, self.cpu_s(), Instant::now());
            for n in 0..calls {
                let offset = n * call as u64;
                read(offset, &mut buffer)?;
                // The contents of the trivial server's file are unspecified.
                if via.is_known() && n % 64 == 0 {
                    self.known.check(offset, &buffer)?;
                }
            }
            let (seconds, bytes) = (begin.elapsed().as_secs_f64(), (calls * call as u64) as f64);
            Ok(Pass {
                mb_per_s: bytes / seconds / 1e6,
                cpu_us_per_call: (self.cpu_s() - cpu) * 1e6 / calls as f64,
                fetched: (self.given()? - given) / bytes,
            })
        };
        (0..PASSES).map(|_| pass()).collect()
    }

    /// Bytes that the data servers have sent so far.
    fn given(&self) -> Done<f64> {
        let (client, _) = self.library.session();
        let mut sum = 0;
        for target in 1..=TARGETS {
            let status = client.data_status(TargetId(target.into()), STATUS_MS)?;
            let counters = status.counters.iter();
            sum += counters.filter(|(name, _)| name == "bytes.read").map(|(_, n)| n).sum::<u64>();
        }
        Ok(sum as f64)
    }

    fn cpu_s(&self) -> f64 {
        let groups = [Group::Data, Group::Meta, Group::Mount, Group::RawFuse];
        let all = self.accounting.snapshot();
        let others: f64 = groups.iter().filter_map(|group| all.get(group)).sum();
        let own = clock_gettime(ClockId::ProcessCPUTime);
        others + own.tv_sec as f64 + own.tv_nsec as f64 / 1e9
    }
}
