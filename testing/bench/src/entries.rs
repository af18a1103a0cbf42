//! Latencies of names in a namespace with many entries (`weir-bench entries`, and the last part of
//! `weir-bench names`): clients of the library create, look up and remove names in one directory, and
//! in a tree of directories, while a million other names are there.

use crate::accounting::Accounting;
use crate::args::Entries;
use crate::cluster::Cluster;
use crate::failure::{Done, Failure};
use crate::library::Library;
use crate::stop;
use serde::Serialize;
use std::path::Path;
use std::sync::Barrier;
use std::time::{Duration, Instant};
use weir_client::{Client, Context, CreateOptions};
use weir_types::FileId;

const TARGETS: usize = 2;
/// Entries of each directory of the tree.
const IN_DIRECTORY: u32 = 1000;
/// Sessions that make the entries.
const FILLERS: u32 = 64;
/// Distance between names that are looked up in turn, so that neighbours are far apart; a prime.
const STRIDE: u64 = 7_368_787;

/// How the entries lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Shape {
    /// All in one directory.
    Directory,
    /// A thousand in each directory.
    Tree,
}

impl Shape {
    fn name(self) -> &'static str {
        match self {
            Self::Directory => "directory",
            Self::Tree => "tree",
        }
    }
}

/// The entries of one shape.
struct Namespace {
    shape: Shape,
    dirs: Vec<FileId>,
    entries: u32,
}

/// The calls of one kind by all clients at once.
#[derive(Debug, Serialize)]
struct Line {
    shape: Shape,
    entries: u32,
    clients: u32,
    call: &'static str,
    per_s: f64,
    p50_us: f64,
    p99_us: f64,
}

/// A call of a client: the session, its user, and the number of the call.
type Call<'a> = &'a (dyn Fn(&Client, &Context, u32) -> Done + Sync);

/// Measures both shapes, and prints a table.
pub fn run(arguments: &Entries, weir: &Path, dir: &Path) -> Done {
    let mut lines = Vec::new();
    for shape in [Shape::Directory, Shape::Tree] {
        let place = tempfile::Builder::new()
            .prefix("weir-bench-")
            .tempdir_in(dir)
            .map_err(|e| Failure::file(dir, e))?;
        let mut accounting = Accounting::new();
        let cluster = Cluster::start(weir, place.path(), TARGETS, &mut accounting)?;
        let most = arguments.clients.iter().copied().max().unwrap_or(1).max(FILLERS);
        let sessions = (0..most)
            .map(|_| Library::connect_without_cache(&cluster.credential()))
            .collect::<Done<Vec<_>>>()?;
        let begun = Instant::now();
        let there = Namespace::fill(shape, arguments.entries, &sessions)?;
        println!(
            "{}: {} entries, made in {:.0} s",
            shape.name(),
            arguments.entries,
            begun.elapsed().as_secs_f64()
        );
        for &clients in &arguments.clients {
            let sessions = sessions.get(..clients as usize).unwrap_or(&sessions);
            lines.extend(there.measure(sessions, arguments.calls)?);
        }
    }
    print!("{}", text(&lines));
    let Some(path) = &arguments.json else { return Ok(()) };
    let json = serde_json::json!({ "entries": lines });
    std::fs::write(path, format!("{json:#}\n")).map_err(|e| Failure::file(path, e))
}

impl Namespace {
    fn fill(shape: Shape, entries: u32, sessions: &[Library]) -> Done<Self> {
        let (client, context) = match sessions.first() {
            Some(first) => first.session(),
            None => return Err(Failure::other("no client")),
        };
        let count = match shape {
            Shape::Directory => 1,
            Shape::Tree => entries.div_ceil(IN_DIRECTORY),
        };
        let make = |n: u32| {
            Ok(client.mkdir(context, FileId::ROOT, format!("d{n}").as_bytes(), 0o755)?.file)
        };
        let dirs = (0..count).map(make).collect::<Done<Vec<_>>>()?;
        let there = Self { shape, dirs, entries };
        let fillers = sessions.get(..FILLERS as usize).unwrap_or(sessions);
        let create = |client: &Client, context: &Context, n: u32| {
            client.create(context, there.dir_of(n), &old(n), &CreateOptions::default())?;
            Ok(())
        };
        all(fillers, entries, &create)?;
        Ok(there)
    }

    /// The directory of an entry.
    fn dir_of(&self, n: u32) -> FileId {
        let at = n as usize % self.dirs.len().max(1);
        self.dirs.get(at).copied().unwrap_or(FileId::ROOT)
    }

    fn measure(&self, sessions: &[Library], calls: u32) -> Done<Vec<Line>> {
        stop::check()?;
        let create = |client: &Client, context: &Context, n: u32| {
            client.create(context, self.dir_of(n), &new(n), &CreateOptions::default())?;
            Ok(())
        };
        let stat = |client: &Client, context: &Context, n: u32| {
            let n = (u64::from(n) * STRIDE % u64::from(self.entries)) as u32;
            client.lookup(context, self.dir_of(n), &old(n))?;
            Ok(())
        };
        let unlink = |client: &Client, context: &Context, n: u32| {
            client.unlink(context, self.dir_of(n), &new(n))?;
            Ok(())
        };
        let kinds: [(&str, Call<'_>); 3] =
            [("create", &create), ("stat", &stat), ("unlink", &unlink)];
        let line = |(name, call): (&'static str, Call<'_>)| {
            let begun = Instant::now();
            let mut times = all(sessions, calls, call)?;
            let per_s = times.len() as f64 / begun.elapsed().as_secs_f64();
            times.sort_unstable();
            let [p50_us, p99_us] = [0.5, 0.99].map(|share| at(&times, share));
            let (shape, entries) = (self.shape, self.entries);
            let clients = sessions.len() as u32;
            Ok(Line { shape, entries, clients, call: name, per_s, p50_us, p99_us })
        };
        kinds.into_iter().map(line).collect()
    }
}

fn old(n: u32) -> Vec<u8> {
    format!("f{n}").into_bytes()
}

fn new(n: u32) -> Vec<u8> {
    format!("new{n}").into_bytes()
}

/// All clients share the calls `0..calls`. Returns the time of each call.
fn all(sessions: &[Library], calls: u32, call: Call<'_>) -> Done<Vec<Duration>> {
    let clients = sessions.len() as u32;
    let all_ready = Barrier::new(sessions.len());
    let one = &|(at, library): (u32, &Library)| -> Done<Vec<Duration>> {
        let (client, context) = library.session();
        all_ready.wait();
        let timed = |n: u32| {
            let begun = Instant::now();
            call(client, context, n)?;
            Ok(begun.elapsed())
        };
        (at..calls).step_by(clients as usize).map(timed).collect()
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..).zip(sessions).map(|it| scope.spawn(move || one(it))).collect();
        let mut times = Vec::new();
        for thread in threads {
            let done = thread.join().map_err(|_| Failure::other("a client has panicked"))?;
            times.extend(done?);
        }
        Ok(times)
    })
}

/// The time that this share of the sorted times does not exceed, microseconds.
fn at(times: &[Duration], share: f64) -> f64 {
    let at = ((times.len() as f64 * share) as usize).min(times.len().saturating_sub(1));
    times.get(at).map_or(0.0, |time| time.as_secs_f64() * 1e6)
}

fn text(lines: &[Line]) -> String {
    let mut out = format!(
        "\n{:>10} {:>9} {:>8} {:>7} {:>9} {:>9} {:>9}\n",
        "", "entries", "clients", "call", "per s", "p50, us", "p99, us"
    );
    for line in lines {
        out += &format!(
            "{:>10} {:>9} {:>8} {:>7} {:>9.0} {:>9.0} {:>9.0}\n",
            line.shape.name(),
            line.entries,
            line.clients,
            line.call,
            line.per_s,
            line.p50_us,
            line.p99_us
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_is_looked_up_once_in_a_million_calls() {
        let entries = 1_000_000_u64;
        let mut seen = vec![false; entries as usize];
        (0..entries).for_each(|n| seen[(n * STRIDE % entries) as usize] = true);
        assert!(seen.into_iter().all(|seen| seen));
    }

    #[test]
    fn quantiles_are_of_sorted_times() {
        let times: Vec<_> = (1..=100).map(Duration::from_micros).collect();
        assert_eq!((at(&times, 0.5).round(), at(&times, 0.99).round()), (51.0, 100.0));
        assert_eq!(at(&[], 0.5), 0.0);
    }
}
