//! Small pieces of a large file, read and written through the library: one call for each, compared
//! with lists, data sieving and hints, over TCP and Unix sockets (`weir-bench pieces`).

use crate::accounting::{Accounting, Group};
use crate::args::Pieces;
use crate::cluster::Cluster;
use crate::failure::{Done, Failure};
use crate::files::Files;
use crate::library::Library;
use crate::stop;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use std::path::Path;
use std::time::Instant;
use weir_client::{Client, Context, File, Hint, Transport};
use weir_layout::{Region, RegionList};

const NAME: &str = "pieces";
const MIB: u64 = 1 << 20;
/// Bytes of a call in data sieving, which also reads the bytes between pieces.
const SIEVE_BYTES: usize = 1 << 20;
/// Number of pieces in one list.
const LIST_PIECES: u64 = 512;
const RECORD_BYTES: u64 = 838;

/// The pieces that are read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pattern {
    /// Pieces of the first size, one in each stretch of the second size.
    Strided(u64, u64),
    /// Three adjacent records at random places.
    Records,
    /// Pieces of this size from the end to the beginning.
    Backward(u64),
}

/// The way in which pieces are read or written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// One call for each piece.
    Each,
    /// One call for each piece, after a hint.
    Hinted(Hint),
    /// One call for many pieces.
    List,
    /// Data sieving: reads all bytes, and copies the pieces out of them.
    Sieve,
    /// Writes: one call for each piece.
    WriteEach,
    /// Writes: one call for many pieces.
    WriteList,
    /// Data sieving: reads all bytes, changes the pieces, and writes all bytes.
    WriteSieve,
}

const SPARSE: Pattern = Pattern::Strided(4 << 10, 64 << 10);
const DENSE: Pattern = Pattern::Strided(4 << 10, 8 << 10);
const BACKWARD: Pattern = Pattern::Backward(64 << 10);

const CASES: [(Pattern, Way); 16] = [
    (SPARSE, Way::Each),
    (SPARSE, Way::List),
    (SPARSE, Way::Sieve),
    (DENSE, Way::Each),
    (DENSE, Way::List),
    (DENSE, Way::Sieve),
    (Pattern::Records, Way::Each),
    (Pattern::Records, Way::Hinted(Hint::ReadOnce)),
    (BACKWARD, Way::Each),
    (BACKWARD, Way::Hinted(Hint::Reverse)),
    (SPARSE, Way::WriteEach),
    (SPARSE, Way::WriteList),
    (SPARSE, Way::WriteSieve),
    (DENSE, Way::WriteEach),
    (DENSE, Way::WriteList),
    (DENSE, Way::WriteSieve),
];

/// The result of one way: medians over the rounds.
#[derive(Debug, Serialize)]
struct Line {
    transport: &'static str,
    pieces: String,
    way: &'static str,
    /// MB (10^6 bytes) of pieces per second.
    mb_per_s: f64,
    /// CPU time of the client and all servers.
    cpu_us_per_piece: f64,
    requests_per_piece: f64,
    /// Bytes to or from the servers for each byte of a piece.
    moved: f64,
}

/// Measures all ways with alternating rounds, and prints a table.
pub fn run(arguments: &Pieces, weir: &Path, dir: &Path) -> Done {
    let place = tempfile::Builder::new()
        .prefix("weir-bench-")
        .tempdir_in(dir)
        .map_err(|e| Failure::file(dir, e))?;
    let mut accounting = Accounting::new();
    let cluster = Cluster::start(weir, place.path(), 4, &mut accounting)?;
    let known = Known::new();
    let writer = Library::connect(&cluster.credential(), true)?;
    writer.write_file(NAME, known.first(), arguments.size)?;
    let mut lines = Vec::new();
    for (name, transport) in [("TCP", Transport::Tcp), ("Unix", Transport::Auto)] {
        let library = Library::connect_by(&cluster.credential(), true, transport)?;
        let (client, context) = library.session();
        let reader = Reader { client, context, known: &known, size: arguments.size };
        let mut rounds: Vec<Vec<Round>> = CASES.iter().map(|_| Vec::new()).collect();
        // The first round is a warm-up.
        for number in 0..=arguments.rounds {
            for ((pattern, way), rounds) in CASES.iter().zip(&mut rounds) {
                stop::check()?;
                let round = reader.round(&library, *pattern, *way, &accounting)?;
                if number > 0 {
                    rounds.push(round);
                }
            }
        }
        let line = |((pattern, way), rounds): (&(Pattern, Way), &Vec<Round>)| Line {
            transport: name,
            pieces: pattern.name(),
            way: way.name(),
            mb_per_s: median(rounds, |r| r.bytes / r.seconds / 1e6),
            cpu_us_per_piece: median(rounds, |r| r.cpu_s * 1e6 / r.pieces),
            requests_per_piece: median(rounds, |r| r.requests / r.pieces),
            moved: median(rounds, |r| r.moved / r.bytes),
        };
        lines.extend(CASES.iter().zip(&rounds).map(line));
    }
    print!("{}", text(&lines));
    let Some(path) = &arguments.json else { return Ok(()) };
    let json = serde_json::json!({ "pieces": lines });
    std::fs::write(path, format!("{json:#}\n")).map_err(|e| Failure::file(path, e))
}

fn text(lines: &[Line]) -> String {
    let mut out = format!(
        "\n{:5} {:28} {:24} {:>9} {:>13} {:>15} {:>8}\n",
        "", "pieces", "way", "MB/s", "CPU µs/piece", "requests/piece", "moved"
    );
    for line in lines {
        out += &format!(
            "{:5} {:28} {:24} {:>9.1} {:>13.1} {:>15.3} {:>8.2}\n",
            line.transport,
            line.pieces,
            line.way,
            line.mb_per_s,
            line.cpu_us_per_piece,
            line.requests_per_piece,
            line.moved
        );
    }
    out
}

/// The contents of the file: one repeated MiB, stored here twice.
pub struct Known(Vec<u8>);

impl Known {
    pub fn new() -> Self {
        let byte = |at: u64| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
        Self((0..2 * MIB).map(|at| byte(at % MIB)).collect())
    }

    /// The repeated MiB.
    pub fn first(&self) -> &[u8] {
        &self.0[..MIB as usize]
    }

    /// The contents at an offset, at most one MiB.
    fn at(&self, offset: u64, len: u64) -> &[u8] {
        let start = (offset % MIB) as usize;
        &self.0[start..start + len as usize]
    }

    /// Fails if bytes of the file differ from the written ones.
    pub fn check(&self, offset: u64, bytes: &[u8]) -> Done {
        let start = (offset % MIB) as usize;
        match self.0[start..start + bytes.len()] == *bytes {
            true => Ok(()),
            false => Err(Failure::other(format!("other bytes at {offset} than were written"))),
        }
    }
}

impl Pattern {
    fn name(self) -> String {
        match self {
            Self::Strided(len, stride) => format!("{} KiB of each {} KiB", len >> 10, stride >> 10),
            Self::Records => format!("3 × {RECORD_BYTES} bytes, no order"),
            Self::Backward(len) => format!("{} KiB, from the end", len >> 10),
        }
    }

    /// Bytes of a piece.
    fn len(self) -> u64 {
        match self {
            Self::Strided(len, _) | Self::Backward(len) => len,
            Self::Records => RECORD_BYTES,
        }
    }

    /// The offsets of the pieces in a file of this size.
    fn offsets(self, size: u64) -> Vec<u64> {
        match self {
            Self::Strided(_, stride) => (0..size / stride).map(|n| n * stride).collect(),
            Self::Records => {
                let places = (0..size / (256 << 10)).map(|n| {
                    (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 8) % (size - 3 * RECORD_BYTES)
                });
                places.flat_map(|at| (0..3).map(move |n| at + n * RECORD_BYTES)).collect()
            }
            Self::Backward(len) => (0..size / len).rev().map(|n| n * len).collect(),
        }
    }
}

impl Way {
    fn writes(self) -> bool {
        matches!(self, Self::WriteEach | Self::WriteList | Self::WriteSieve)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Each => "a call each",
            Self::Hinted(Hint::Reverse) => "a call each, reverse",
            Self::Hinted(_) => "a call each, once",
            Self::List => "lists of 512",
            Self::Sieve => "calls of 1 MiB",
            Self::WriteEach => "written, a call each",
            Self::WriteList => "written, lists",
            Self::WriteSieve => "written, calls of 1 MiB",
        }
    }
}

/// One round of one way.
struct Round {
    seconds: f64,
    cpu_s: f64,
    pieces: f64,
    bytes: f64,
    requests: f64,
    moved: f64,
}

/// The median of a value over all rounds.
pub fn median<T>(rounds: &[T], of: impl Fn(&T) -> f64) -> f64 {
    let mut all: Vec<f64> = rounds.iter().map(of).collect();
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(f64::NAN)
}

struct Reader<'a> {
    client: &'a Client,
    context: &'a Context,
    known: &'a Known,
    size: u64,
}

impl Reader<'_> {
    fn round(
        &self,
        library: &Library,
        pattern: Pattern,
        way: Way,
        accounting: &Accounting,
    ) -> Done<Round> {
        let file = match way.writes() {
            true => library.open_write(NAME)?,
            false => library.open_read(NAME, false)?,
        };
        if let Way::Hinted(hint) = way {
            file.hint(self.context, hint)?;
        }
        let offsets = pattern.offsets(self.size);
        let moved = || self.counted("read_wire_bytes") + self.counted("write_wire_bytes");
        let before = (self.counted("data_requests"), moved());
        let (cpu, begin) = (cpu_s(accounting), Instant::now());
        match (way, pattern) {
            (Way::List, Pattern::Strided(_, stride)) => {
                self.lists(&file, &offsets, pattern.len(), stride)?;
            }
            (Way::Sieve, _) => self.sieve(&file, &offsets, pattern.len())?,
            (Way::WriteList, Pattern::Strided(_, stride)) => {
                self.write_lists(&file, &offsets, pattern.len(), stride)?;
            }
            (Way::WriteSieve, _) => self.write_sieve(&file, &offsets, pattern.len())?,
            (Way::WriteEach, _) => self.write_each(&file, &offsets, pattern.len())?,
            _ => self.each(&file, &offsets, pattern.len())?,
        }
        // Sends buffered writes.
        file.flush(self.context)?;
        let seconds = begin.elapsed().as_secs_f64();
        let round = Round {
            seconds,
            cpu_s: cpu_s(accounting) - cpu,
            pieces: offsets.len() as f64,
            bytes: offsets.len() as f64 * pattern.len() as f64,
            requests: self.counted("data_requests") - before.0,
            moved: moved() - before.1,
        };
        library.close(file)?;
        Ok(round)
    }

    fn each(&self, file: &File, offsets: &[u64], len: u64) -> Done {
        let mut piece = vec![0; len as usize];
        for offset in offsets {
            self.read(file, *offset, &mut piece)?;
        }
        Ok(())
    }

    fn lists(&self, file: &File, offsets: &[u64], len: u64, stride: u64) -> Done {
        let mut pieces = vec![0; (LIST_PIECES * len) as usize];
        for part in offsets.chunks(LIST_PIECES as usize) {
            let count = part.len() as u32;
            let region = Region { offset: part[0], size: len, stride, count };
            let list = RegionList::new(vec![region])?;
            let pieces = &mut pieces[..part.len() * len as usize];
            file.read_regions(self.context, &list, pieces)?;
            for (offset, piece) in part.iter().zip(pieces.chunks(len as usize)) {
                self.known.check(*offset, piece)?;
            }
        }
        Ok(())
    }

    /// Reads from the first piece to the last, and copies the pieces. No piece crosses the end of a
    /// call.
    fn sieve(&self, file: &File, offsets: &[u64], len: u64) -> Done {
        let (mut all, mut piece) = (vec![0; SIEVE_BYTES], vec![0; len as usize]);
        let mut held = None;
        for offset in offsets {
            let start = offset / MIB * MIB;
            if held != Some(start) {
                self.read(file, start, &mut all)?;
                held = Some(start);
            }
            let at = (offset - start) as usize;
            piece.copy_from_slice(&all[at..at + len as usize]);
            self.known.check(*offset, &piece)?;
        }
        Ok(())
    }

    fn write_each(&self, file: &File, offsets: &[u64], len: u64) -> Done {
        for offset in offsets {
            file.write_at(self.context, *offset, self.known.at(*offset, len))?;
        }
        Ok(())
    }

    fn write_lists(&self, file: &File, offsets: &[u64], len: u64, stride: u64) -> Done {
        let mut pieces = Vec::with_capacity((LIST_PIECES * len) as usize);
        for part in offsets.chunks(LIST_PIECES as usize) {
            let count = part.len() as u32;
            let region = Region { offset: part[0], size: len, stride, count };
            pieces.clear();
            part.iter().for_each(|offset| pieces.extend_from_slice(self.known.at(*offset, len)));
            file.write_regions(self.context, &RegionList::new(vec![region])?, &pieces)?;
        }
        Ok(())
    }

    /// As [`Round::sieve`], for writes. No piece crosses the end of a call.
    fn write_sieve(&self, file: &File, offsets: &[u64], len: u64) -> Done {
        let mut all = vec![0; SIEVE_BYTES];
        for part in offsets.chunk_by(|one, next| one / MIB == next / MIB) {
            let start = part[0] / MIB * MIB;
            self.read(file, start, &mut all)?;
            for offset in part {
                let at = (offset - start) as usize;
                all[at..at + len as usize].copy_from_slice(self.known.at(*offset, len));
            }
            file.write_at(self.context, start, &all)?;
        }
        Ok(())
    }

    fn read(&self, file: &File, offset: u64, buffer: &mut [u8]) -> Done {
        let read = file.read_at(self.context, offset, buffer)?;
        if read < buffer.len() {
            return Err(Failure::other(format!("{read} bytes at {offset}, not {}", buffer.len())));
        }
        self.known.check(offset, buffer)
    }

    fn counted(&self, name: &str) -> f64 {
        let counters = self.client.counters();
        counters.iter().find(|(of, _)| of == name).map_or(0.0, |(_, value)| *value as f64)
    }
}

/// CPU seconds of this process and all servers so far.
fn cpu_s(accounting: &Accounting) -> f64 {
    let all = accounting.snapshot();
    let servers: f64 = [Group::Data, Group::Meta].iter().filter_map(|group| all.get(group)).sum();
    let own = clock_gettime(ClockId::ProcessCPUTime);
    servers + own.tv_sec as f64 + own.tv_nsec as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_within_the_file_and_calls_of_a_sieve_hold_them_whole() {
        let size = 16 << 20;
        for (pattern, way) in CASES {
            let offsets = pattern.offsets(size);
            assert!(offsets.len() >= 192, "{}", pattern.name());
            assert!(offsets.iter().all(|at| at + pattern.len() <= size), "{}", pattern.name());
            if matches!(way, Way::Sieve | Way::WriteSieve) {
                let is_whole = |at: &u64| at % MIB + pattern.len() <= MIB;
                assert!(offsets.iter().all(is_whole), "{}", pattern.name());
            }
        }
        let backward = BACKWARD.offsets(size);
        assert!(backward.is_sorted_by(|a, b| a > b) && backward.last() == Some(&0));
    }

    #[test]
    fn what_was_not_written_is_found() {
        let known = Known::new();
        let mut piece = known.0[MIB as usize - 10..MIB as usize + 828].to_vec();
        known.check(7 * MIB - 10, &piece).unwrap();
        piece[837] ^= 1;
        assert!(known.check(7 * MIB - 10, &piece).is_err());
    }
}
