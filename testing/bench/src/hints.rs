//! The effect of each hint: a program reads a file with the pattern that the hint describes, with
//! the hint and without (`weir-bench hints`, `docs/hints.md`).

use crate::accounting::Accounting;
use crate::args::Pieces;
use crate::cluster::Cluster;
use crate::failure::{Done, Failure};
use crate::files::Files;
use crate::library::Library;
use crate::pieces::{Known, median};
use crate::stop;
use serde::Serialize;
use std::path::Path;
use std::time::Instant;
use weir_client::{File, Hint};
use weir_types::TargetId;

const NAME: &str = "hinted";
const TARGETS: u16 = 4;
const MIB: u64 = 1 << 20;
const RECORD_BYTES: u64 = 838;
const STATUS_MS: u64 = 5_000;

/// The access pattern.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// Three adjacent records at random places.
    Records,
    /// Three fields of a record, for records in random order.
    Fields,
    /// Pieces of 64 KiB from the end to the beginning.
    Backward,
    /// Pieces of 1 MiB in random order, each known while the previous one is read.
    Known,
    /// The first 128 KiB of each 8 MiB, in small calls.
    Beginnings,
}

/// Access patterns, each with the hint to give.
const CASES: [(Manner, Option<Hint>); 11] = [
    (Manner::Records, None),
    (Manner::Records, Some(Hint::Random)),
    (Manner::Records, Some(Hint::ReadOnce)),
    (Manner::Fields, None),
    (Manner::Fields, Some(Hint::Records(RECORD_BYTES))),
    (Manner::Backward, None),
    (Manner::Backward, Some(Hint::Reverse)),
    (Manner::Known, None),
    (Manner::Known, Some(Hint::WillNeed(0, MIB))),
    (Manner::Beginnings, None),
    (Manner::Beginnings, Some(Hint::DoneWith(0, 8 * MIB))),
];

/// The result of one case: medians over the rounds.
#[derive(Debug, Serialize)]
struct Line {
    manner: &'static str,
    hint: &'static str,
    /// MB (10^6 bytes) read per second.
    mb_per_s: f64,
    requests_per_call: f64,
    /// Bytes sent by the servers for each byte read.
    fetched: f64,
    /// Bytes sent and not read, MiB.
    wasted_mib: f64,
    /// Memory of the client after reading, KiB.
    held_kib: f64,
}

struct Round {
    seconds: f64,
    calls: f64,
    bytes: f64,
    requests: f64,
    given: f64,
    held: f64,
}

struct Reader<'a> {
    library: &'a Library,
    known: &'a Known,
    size: u64,
}

/// Measures all cases with alternating rounds, and prints a table.
pub fn run(arguments: &Pieces, weir: &Path, dir: &Path) -> Done {
    let place = tempfile::Builder::new()
        .prefix("weir-bench-")
        .tempdir_in(dir)
        .map_err(|e| Failure::file(dir, e))?;
    let mut accounting = Accounting::new();
    let cluster = Cluster::start(weir, place.path(), TARGETS.into(), &mut accounting)?;
    let known = Known::new();
    let library = Library::connect(&cluster.credential(), true)?;
    library.write_file(NAME, known.first(), arguments.size)?;
    let mut rounds: Vec<Vec<Round>> = CASES.iter().map(|_| Vec::new()).collect();
    // The first round is a warm-up.
    for number in 0..=arguments.rounds {
        for ((manner, hint), rounds) in CASES.iter().zip(&mut rounds) {
            stop::check()?;
            // A new session, because the cache of an earlier one would count.
            let library = Library::connect(&cluster.credential(), true)?;
            let reader = Reader { library: &library, known: &known, size: arguments.size };
            let round = reader.round(*manner, *hint)?;
            if number > 0 {
                rounds.push(round);
            }
        }
    }
    let line = |((manner, hint), rounds): (&(Manner, Option<Hint>), &Vec<Round>)| Line {
        manner: manner.name(),
        hint: name_of(*hint),
        mb_per_s: median(rounds, |r| r.bytes / r.seconds / 1e6),
        requests_per_call: median(rounds, |r| r.requests / r.calls),
        fetched: median(rounds, |r| r.given / r.bytes),
        wasted_mib: median(rounds, |r| (r.given - r.bytes).max(0.0) / MIB as f64),
        held_kib: median(rounds, |r| r.held / 1024.0),
    };
    let lines: Vec<Line> = CASES.iter().zip(&rounds).map(line).collect();
    print!("{}", text(&lines));
    let Some(path) = &arguments.json else { return Ok(()) };
    let json = serde_json::json!({ "hints": lines });
    std::fs::write(path, format!("{json:#}\n")).map_err(|e| Failure::file(path, e))
}

fn text(lines: &[Line]) -> String {
    let mut out = format!(
        "\n{:32} {:10} {:>9} {:>14} {:>8} {:>11} {:>9}\n",
        "read", "hint", "MB/s", "requests/call", "fetched", "wasted MiB", "held KiB"
    );
    for line in lines {
        out += &format!(
            "{:32} {:10} {:>9.1} {:>14.3} {:>8.2} {:>11.1} {:>9.0}\n",
            line.manner,
            line.hint,
            line.mb_per_s,
            line.requests_per_call,
            line.fetched,
            line.wasted_mib,
            line.held_kib
        );
    }
    out
}

fn name_of(hint: Option<Hint>) -> &'static str {
    match hint {
        None | Some(Hint::Normal) => "none",
        Some(Hint::Random) => "random",
        Some(Hint::ReadOnce) => "read_once",
        Some(Hint::Reverse) => "reverse",
        Some(Hint::Records(_)) => "records",
        Some(Hint::WillNeed(..)) => "will_need",
        Some(Hint::DoneWith(..)) => "done_with",
    }
}

/// Distinct pseudorandom numbers below a limit.
fn places(count: u64, limit: u64) -> impl Iterator<Item = u64> {
    (0..count).map(move |n| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 8) % limit)
}

impl Manner {
    fn name(self) -> &'static str {
        match self {
            Self::Records => "3 x 838 bytes, no order",
            Self::Fields => "3 fields of a record, no order",
            Self::Backward => "64 KiB, from the end",
            Self::Known => "1 MiB, no order, known before",
            Self::Beginnings => "128 KiB of each 8 MiB",
        }
    }

    /// The calls: offset and length.
    fn calls(self, size: u64) -> Vec<(u64, u64)> {
        match self {
            Self::Records => places(size >> 18, size - 3 * RECORD_BYTES)
                .flat_map(|at| (0..3).map(move |n| (at + n * RECORD_BYTES, RECORD_BYTES)))
                .collect(),
            Self::Fields => places(size >> 18, size / RECORD_BYTES)
                .flat_map(|n| [0, 300, 700].map(|field| (n * RECORD_BYTES + field, 100)))
                .collect(),
            Self::Backward => (0..size >> 16).rev().map(|n| (n << 16, 1 << 16)).collect(),
            Self::Known => places(size >> 20, size >> 20).map(|n| (n << 20, MIB)).collect(),
            Self::Beginnings => (0..size >> 23)
                .flat_map(|n| (0..32).map(move |call| ((n << 23) + (call << 12), 4096)))
                .collect(),
        }
    }
}

impl Reader<'_> {
    fn round(&self, manner: Manner, hint: Option<Hint>) -> Done<Round> {
        let (_, context) = self.library.session();
        let file = self.library.open_read(NAME, false)?;
        let calls = manner.calls(self.size);
        let (given, requests) = (self.given()?, self.counted("data_requests"));
        let begin = Instant::now();
        if let Some(Hint::Random | Hint::ReadOnce | Hint::Reverse | Hint::Records(_)) = hint {
            file.hint(context, hint.unwrap_or(Hint::Normal))?;
        }
        let mut buffer = vec![0; MIB as usize];
        for (number, (offset, len)) in calls.iter().enumerate() {
            if let (Some(Hint::WillNeed(..)), Some(next)) = (hint, calls.get(number + 1)) {
                file.hint(context, Hint::WillNeed(next.0, next.1))?;
            }
            self.read(&file, *offset, &mut buffer[..*len as usize])?;
            let goes_on = calls.get(number + 1).is_some_and(|next| next.0 == offset + len);
            if let (Some(Hint::DoneWith(..)), false) = (hint, goes_on) {
                let start = offset / (8 * MIB) * (8 * MIB);
                file.hint(context, Hint::DoneWith(start, 8 * MIB))?;
            }
        }
        let seconds = begin.elapsed().as_secs_f64();
        let (requests, held) =
            (self.counted("data_requests") - requests, self.counted("buffer_bytes"));
        // Closed first, so that bytes on their way count too.
        self.library.close(file)?;
        let bytes = calls.iter().map(|(_, len)| *len as f64).sum();
        let calls = calls.len() as f64;
        Ok(Round { seconds, calls, bytes, requests, given: self.given()? - given, held })
    }

    fn read(&self, file: &File, offset: u64, buffer: &mut [u8]) -> Done {
        let (_, context) = self.library.session();
        let read = file.read_at(context, offset, buffer)?;
        if read < buffer.len() {
            return Err(Failure::other(format!("{read} bytes at {offset}, not {}", buffer.len())));
        }
        self.known.check(offset, buffer)
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

    fn counted(&self, name: &str) -> f64 {
        let (client, _) = self.library.session();
        let counters = client.counters();
        counters.iter().find(|(of, _)| of == name).map_or(0.0, |(_, value)| *value as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_is_within_the_file_and_every_hint_is_measured_beside_none() {
        let size = 64 << 20;
        for (manner, _) in CASES {
            let calls = manner.calls(size);
            assert!(calls.len() >= 64, "{}", manner.name());
            assert!(calls.iter().all(|(at, len)| at + len <= size), "{}", manner.name());
            assert!(CASES.contains(&(manner, None)), "{}", manner.name());
        }
        let named = |name: &&str| CASES.iter().any(|(_, hint)| name_of(*hint) == *name);
        let missing: Vec<_> = Hint::NAMES.iter().filter(|name| !named(name)).collect();
        assert_eq!(missing, [&"normal"]);
    }
}
