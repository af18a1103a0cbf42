//! Reads ranges of a file with several threads in Rust, for comparison with `cat_ranges` of the
//! Python package (`bindings/python/bench/ranges.py`).
//!
//! Usage: `ranges CLUSTER PATH THREADS TURNS`. Standard input: lines `OFFSET LENGTH`, then an empty
//! line. Each further line starts a turn, which prints its seconds.

use std::io::{BufRead, Write, stdin, stdout};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use weir_client::{Context, File};
use weir_layout::{Region, RegionList};
use weir_types::limits::MAX_REGIONS;
use weir_wire::Rights;

type Failed = Box<dyn std::error::Error + Send + Sync>;

/// Ranges up to this size are read together, [`TOGETHER_BYTES`] at once.
const SMALL_BYTES: u64 = 64 << 10;
const TOGETHER_BYTES: u64 = 1 << 20;

fn main() -> Result<(), Failed> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, cluster, path, threads, turns] = &arguments[..] else {
        return Err("ranges CLUSTER PATH THREADS TURNS".into());
    };
    let (threads, turns): (usize, usize) = (threads.parse()?, turns.parse()?);
    let mut lines = stdin().lock().lines();
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for line in lines.by_ref() {
        let line = line?;
        let Some((offset, length)) = line.split_once(' ') else { break };
        ranges.push((offset.parse()?, length.parse()?));
    }
    let client = weir_connect::Choice::of_cluster(Some(cluster)).connect("ranges")?;
    let context = Context::of(weir_connect::caller());
    let file = client.resolve(&context, path.as_bytes(), true)?.file;
    let (file, _) = client.open(&context, file, Rights::READ)?;
    read_all(&file, &context, &ranges, threads)?;
    say("ready")?;
    for _ in 0..turns {
        lines.next().ok_or("no turn")??;
        let begun = Instant::now();
        let all = read_all(&file, &context, &ranges, threads)?;
        let seconds = begun.elapsed().as_secs_f64();
        drop(all);
        say(&seconds.to_string())?;
    }
    Ok(())
}

fn say(line: &str) -> Result<(), Failed> {
    let mut out = stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

/// The bytes read, one buffer for each range.
fn read_all(
    file: &File,
    context: &Context,
    ranges: &[(u64, u64)],
    threads: usize,
) -> Result<Vec<Vec<u8>>, Failed> {
    let together = |length: u64| match length <= SMALL_BYTES {
        true => ((TOGETHER_BYTES / length.max(1)) as usize).clamp(1, MAX_REGIONS),
        false => 1,
    };
    let calls: Vec<&[(u64, u64)]> =
        ranges.chunks(ranges.first().map_or(1, |(_, length)| together(*length))).collect();
    let next = AtomicUsize::new(0);
    let run = || -> Result<Vec<Vec<u8>>, Failed> {
        let mut all = Vec::new();
        while let Some(call) = calls.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let [(offset, length)] = call {
                let mut buffer = vec![0; *length as usize];
                file.read_at(context, *offset, &mut buffer)?;
                all.push(buffer);
                continue;
            }
            let region = |(offset, length): &(u64, u64)| Region::contiguous(*offset, *length);
            let regions = RegionList::new(call.iter().map(region).collect())?;
            let mut buffer = vec![0; regions.total_bytes() as usize];
            file.read_regions(context, &regions, &mut buffer)?;
            all.push(buffer);
        }
        Ok(all)
    };
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        let mut all = Vec::new();
        for thread in running {
            all.extend(thread.join().map_err(|_| "a thread panicked")??);
        }
        Ok(all)
    })
}
