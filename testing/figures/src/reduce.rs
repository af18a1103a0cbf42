//! Nodes write files in three copies, which `weir reduce` makes sets of: bytes on disk, and bytes
//! that are encoded, over time (DiskReduce, figure 3).

use crate::args::Reduce;
use crate::lab::write_noise;
use crate::plot::{self, Labels, Series};
use crate::report::{Report, Table};
use crate::statistics::Spread;
use crate::stop;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::{Error, Result, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use weir_testbed::{Counts, Disk, Throttle, forget};

/// Files that each node writes, and members of a set.
const FILES: usize = 8;
const COPIES: usize = 3;
/// What the file systems and the records of sets need besides.
const SPARE_BYTES: u64 = 48 << 20;
const EVERY: Duration = Duration::from_millis(100);
/// Of what the disks allow.
const AIM: f64 = 0.7;

/// A code, as `weir reduce` calls it.
struct Code {
    name: &'static str,
    /// What it keeps of each file.
    copies: usize,
    /// Bytes beside those of the files, in thousandths.
    overhead: u64,
    paper_percent: f64,
}

const CODES: [Code; 2] = [
    Code { name: "raid6", copies: 1, overhead: 250, paper_percent: 25.0 },
    Code { name: "raid5-mirror", copies: 2, overhead: 1125, paper_percent: 113.0 },
];

/// What there was at a moment.
#[derive(Clone, Copy)]
struct Look {
    seconds: f64,
    /// Of all copies and parities.
    stored_bytes: u64,
    /// Of the files that are in a set.
    encoded_bytes: u64,
}

/// What came of one encoding.
struct Encoding {
    looks: Vec<Look>,
    seconds: f64,
    /// How long the disks take for what was read or written, whichever is more.
    disk_seconds: f64,
    /// What `weir reduce` says there is.
    usage: Value,
}

pub fn run(plan: &Reduce) -> Result<()> {
    let mut report = Report::new(&plan.common.out, "reduce")?;
    let mut course = report.table("course.csv", "trial,code,seconds,stored_bytes,encoded_bytes")?;
    let head = "trial,code,logical_bytes,stored_bytes,seconds,disk_seconds";
    let mut summary = report.table("summary.csv", head)?;
    let mut first = Vec::new();
    for trial in 1..=plan.common.trials() {
        for code in &CODES {
            let encoding = encode(plan, code)?;
            write(&mut course, &mut summary, trial, code, &encoding)?;
            judge(&mut report, plan, code, &encoding);
            if trial == 1 {
                first.push((code, encoding));
            }
        }
    }
    draw(&report, plan, &first)?;
    report.finish()
}

/// Writes the files, and encodes them by one code on disks of a set speed.
fn encode(plan: &Reduce, code: &Code) -> Result<Encoding> {
    stop::check()?;
    let (common, count) = (&plan.common, plan.disks as usize);
    let weir = common.weir()?;
    let dir = tempfile::Builder::new().prefix("weir-fig").tempdir_in(&common.scratch)?;
    let room = plan.file() * (FILES * COPIES * 3 / 2) as u64 + SPARE_BYTES;
    let disk = |n: usize| {
        Disk::make(&dir.path().join(format!("i{n}")), &dir.path().join(format!("d{n}")), room)
    };
    let disks = (0..count).map(disk).collect::<Result<Vec<_>>>()?;
    disks.iter().try_for_each(|disk| disk.device().read_ahead(common.read_ahead_kib))?;
    let dirs: Vec<PathBuf> = disks.iter().map(|disk| disk.path().join("files")).collect();
    thread::scope(|scope| {
        let node = |n: usize| (n, plan.file(), &dirs);
        let nodes: Vec<_> = (0..count).map(|n| scope.spawn(move || fill(node(n)))).collect();
        let panicked = |_| Err(Error::other("a thread has panicked"));
        nodes.into_iter().try_for_each(|node| node.join().unwrap_or_else(panicked))
    })?;
    dirs.iter().try_for_each(|dir| forget(dir))?;
    let throttle = Throttle::new(&format!("weir-figures-{}", std::process::id()))?;
    for disk in &disks {
        throttle.limit(disk, common.rate())?;
        throttle.limit_writes(disk, common.rate())?;
    }
    // It begins when it is in the group.
    let mut encoding = Command::new("sh");
    encoding.args(["-c", "read go && exec \"$@\"", "sh"]).arg(&weir);
    encoding.args(["reduce", "encode", "--quiet", "--json", "--code", code.name]).args(&dirs);
    let mut encoding = encoding.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    throttle.add(encoding.id().cast_signed())?;
    let counts = || disks.iter().map(Disk::counts).collect::<Result<Vec<Counts>>>();
    let before = counts()?;
    let mut go = encoding.stdin.take().ok_or_else(|| Error::other("no input"))?;
    go.write_all(b"go\n")?;
    let looks = watch(&mut encoding, &dirs, code.copies);
    if looks.is_err() {
        encoding.kill()?;
    }
    let status = encoding.wait()?;
    let (looks, after) = (looks?, counts()?);
    let said = encoding.stdout.take().map(std::io::read_to_string).transpose()?;
    let said = said.unwrap_or_default();
    if !status.success() {
        return Err(Error::other(format!("weir reduce encode: {status}: {said}")));
    }
    let said: Value = serde_json::from_str(&said)?;
    // Not by the speed of the disks: this process is in no group.
    let verified =
        Command::new(&weir).args(["reduce", "verify", "--quiet"]).args(&dirs).output()?;
    if !verified.status.success() {
        let why = String::from_utf8_lossy(&verified.stderr).into_owned();
        return Err(Error::other(format!("weir reduce verify: {why}")));
    }
    let sum = |of: fn(&Counts) -> u64| {
        after.iter().map(of).sum::<u64>() - before.iter().map(of).sum::<u64>()
    };
    let most = sum(|disk| disk.read_bytes).max(sum(|disk| disk.written_bytes));
    Ok(Encoding {
        seconds: looks.last().map_or(0.0, |look| look.seconds),
        disk_seconds: most as f64 / common.rate() as f64 / count as f64,
        usage: said["usage"].clone(),
        looks,
    })
}

/// Looks at the files again and again, until they are encoded.
fn watch(encoding: &mut Child, dirs: &[PathBuf], kept: usize) -> Result<Vec<Look>> {
    let begin = Instant::now();
    let mut looks = Vec::new();
    loop {
        let is_over = encoding.try_wait()?.is_some();
        let seconds = begin.elapsed().as_secs_f64();
        let (stored_bytes, encoded_bytes) = look(dirs, kept)?;
        looks.push(Look { seconds, stored_bytes, encoded_bytes });
        if is_over {
            return Ok(looks);
        }
        stop::check()?;
        thread::sleep(EVERY);
    }
}

/// What a node writes: the first copies on its own disk, the others on two more. Pairs of disks
/// differ from file to file.
fn fill((node, bytes, dirs): (usize, u64, &Vec<PathBuf>)) -> Result<()> {
    for file in 0..FILES {
        let step = 1 + file % (dirs.len() - 2);
        for copy in 0..COPIES {
            let away = if copy == 0 { 0 } else { step + copy - 1 };
            let dir = dirs[(node + away) % dirs.len()].join(format!("node{node}"));
            fs::create_dir_all(&dir)?;
            let seed = (node * FILES + file) as u64 + 1;
            write_noise(&dir.join(format!("file{file}")), bytes, seed)?;
        }
    }
    Ok(())
}

/// Bytes of all copies and parities, and of the files of which there are no more copies than a set
/// keeps.
fn look(dirs: &[PathBuf], kept: usize) -> Result<(u64, u64)> {
    let mut stored = 0;
    let mut files: BTreeMap<PathBuf, (usize, u64)> = BTreeMap::new();
    for dir in dirs {
        for inner in fs::read_dir(dir)? {
            let inner = inner?.path();
            let is_state = inner.ends_with(".weir-reduce");
            for entry in fs::read_dir(&inner)? {
                let entry = entry?;
                // What got its name meanwhile is counted the next time.
                let Ok(meta) = entry.metadata() else { continue };
                let path = entry.path();
                let is_parity = path.extension().is_some_and(|e| e == "p0" || e == "p1");
                if !is_state {
                    let name = path.strip_prefix(dir).unwrap_or(&path).to_owned();
                    let (copies, bytes) = files.entry(name).or_default();
                    (*copies, *bytes) = (*copies + 1, meta.len());
                }
                if !is_state || is_parity {
                    stored += meta.len();
                }
            }
        }
    }
    let encoded = files.values().filter(|(copies, _)| *copies <= kept);
    Ok((stored, encoded.map(|(_, bytes)| bytes).sum()))
}

fn write(
    course: &mut Table,
    summary: &mut Table,
    trial: u32,
    code: &Code,
    encoding: &Encoding,
) -> Result<()> {
    let key = [trial.to_string(), code.name.to_owned()];
    for look in &encoding.looks {
        let Look { seconds, stored_bytes, encoded_bytes } = look;
        let values = [format!("{seconds:.2}"), stored_bytes.to_string(), encoded_bytes.to_string()];
        course.row(&[&key[..], &values].concat())?;
    }
    let [logical, stored] =
        ["logical_bytes", "stored_bytes"].map(|of| encoding.usage[of].to_string());
    let seconds = [encoding.seconds, encoding.disk_seconds].map(|seconds| format!("{seconds:.2}"));
    summary.row(&[&key[..], &[logical, stored], &seconds].concat())
}

fn judge(report: &mut Report, plan: &Reduce, code: &Code, encoding: &Encoding) {
    let of = |name: &str| encoding.usage[name].as_u64().unwrap_or_default();
    let payload = plan.file() * FILES as u64 * u64::from(plan.disks);
    let last = encoding.looks.last().map_or(0, |look| look.stored_bytes);
    let expected =
        payload / 1000 * (1000 + code.overhead) + payload % 1000 * (1000 + code.overhead) / 1000;
    let exact = (of("logical_bytes"), of("stored_bytes"), last) == (payload, expected, expected);
    let what = format!(
        "{}: {} MiB in {} MiB, overhead {:.2} % in {} sets, {} files as copies (paper: {} %)",
        code.name,
        payload >> 20,
        last >> 20,
        (last as f64 / payload as f64 - 1.0) * 100.0,
        of("sets"),
        of("other_files"),
        code.paper_percent,
    );
    report.verdict(exact, &what);
    let share = encoding.disk_seconds / encoding.seconds;
    let what = format!(
        "{}: encoded in {:.1} s, {:.1} MiB/s; the disks take {:.1} s, {:.0} %",
        code.name,
        encoding.seconds,
        (payload >> 20) as f64 / encoding.seconds,
        encoding.disk_seconds,
        share * 100.0
    );
    report.verdict(share >= AIM, &what);
}

fn draw(report: &Report, plan: &Reduce, all: &[(&Code, Encoding)]) -> Result<()> {
    let at = |mean: f64| Spread { mean, deviation: 0.0 };
    let mib = |bytes: u64| bytes as f64 / (1 << 20) as f64;
    let payload = mib(plan.file() * FILES as u64 * u64::from(plan.disks));
    let mut stored = Vec::new();
    let mut rates = Vec::new();
    for (code, encoding) in all {
        let points = encoding.looks.iter().map(|look| (look.seconds, at(mib(look.stored_bytes))));
        stored.push(Series::new(code.name.into(), points.collect()));
        let end = (encoding.seconds, payload * (1.0 + code.paper_percent / 100.0));
        stored.extend(Series::stated(code.name, [end]));
        rates.push(Series::new(code.name.into(), rate(&encoding.looks, mib).collect()));
    }
    let title = format!("{payload} MiB in three copies on {} disks become sets of 8", plan.disks);
    let labels = Labels { title: &title, x: "seconds", y: "MiB on disk" };
    plot::lines(&report.path("stored.svg"), &labels, &stored)?;
    let labels = Labels { title: &title, x: "seconds", y: "MiB encoded in a second" };
    plot::lines(&report.path("rate.svg"), &labels, &rates)
}

/// What is encoded in a second, over tenths of the time: sets end one after another.
fn rate(looks: &[Look], mib: impl Fn(u64) -> f64) -> impl Iterator<Item = (f64, Spread)> {
    let part = looks.len().div_ceil(10).max(1);
    let ends: Vec<Look> =
        looks.iter().copied().step_by(part).chain(looks.last().copied()).collect();
    let pairs: Vec<_> = ends.windows(2).map(|pair| (pair[0], pair[1])).collect();
    pairs.into_iter().filter(|(a, b)| b.seconds > a.seconds).map(move |(a, b)| {
        let mean = mib(b.encoded_bytes.saturating_sub(a.encoded_bytes)) / (b.seconds - a.seconds);
        ((a.seconds + b.seconds) / 2.0, Spread { mean, deviation: 0.0 })
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // A panic is how a test fails.
mod tests {
    use super::*;

    #[test]
    fn copies_and_parities_count_and_records_do_not() {
        let root = tempfile::tempdir().unwrap();
        let dirs: Vec<PathBuf> = (0..10).map(|n| root.path().join(format!("d{n}"))).collect();
        (0..10).try_for_each(|node| fill((node, 1000, &dirs))).unwrap();
        let payload = 10 * FILES as u64 * 1000;
        assert_eq!(look(&dirs, 1).unwrap(), (3 * payload, 0));
        let state = dirs[0].join(".weir-reduce");
        fs::create_dir(&state).unwrap();
        fs::write(state.join("1.p0"), [0; 7]).unwrap();
        fs::write(state.join("1.set"), [0; 9]).unwrap();
        for dir in [1, 2] {
            fs::remove_file(dirs[dir].join("node0/file0")).unwrap();
        }
        assert_eq!(look(&dirs, 1).unwrap(), (3 * payload - 2000 + 7, 1000));
        assert_eq!(look(&dirs, 2).unwrap().1, 1000);
    }

    #[test]
    fn a_rate_is_that_of_a_tenth_of_the_time() {
        let look = |n: u64| Look { seconds: n as f64, stored_bytes: 0, encoded_bytes: n << 21 };
        let looks: Vec<Look> = (0..=20).map(look).collect();
        let rates: Vec<_> = rate(&looks, |bytes| (bytes >> 20) as f64).collect();
        assert_eq!(rates.len(), 7);
        assert!(rates.iter().all(|(_, rate)| rate.mean == 2.0));
    }
}
