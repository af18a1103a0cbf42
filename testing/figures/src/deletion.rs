//! Files are made and removed, round after round, and `weir reduce` cleans sets of which enough
//! is removed: what the disks read and write for that, against what removed files hold
//! (DiskReduce, deletion that waits).

use crate::args::Deletion;
use crate::cluster::said;
use crate::lab::write_noise;
use crate::plot::{self, Labels, Series};
use crate::report::{Report, Table};
use crate::statistics::Spread;
use crate::stop;
use serde_json::Value;
use std::fs;
use std::io::{Error, Result};
use std::path::PathBuf;
use std::process::Command;
use weir_testbed::{Disk, forget};

const COPIES: usize = 3;
/// Rounds before files are removed: so many times a round's files live.
const DEPTH: usize = 6;
/// What the file systems, the records of sets and what waits for its set need besides.
const SPARE_BYTES: u64 = 64 << 20;
/// Of what cleaning at once takes, what the default may.
const AIM: f64 = 0.5;
/// What `weir reduce encode` cleans at unless it is told otherwise.
const DEFAULT_PERCENT: u8 = 50;

/// Files that are made and removed in the same order, whatever is cleaned when.
struct Trace {
    state: u64,
    live: Vec<usize>,
    made: usize,
}

/// What came of it with one threshold; from when files are removed.
#[derive(Default)]
struct Course {
    removed_bytes: u64,
    /// Of all disks, while `weir reduce encode` ran.
    read_bytes: u64,
    written_bytes: u64,
    /// What there was beside the files' bytes, after each round, as shares of these.
    overheads: Vec<f64>,
    /// What removed files held, as shares of the same.
    dead: Vec<f64>,
    cleaned: u64,
}

impl Course {
    fn io_bytes(&self) -> u64 {
        self.read_bytes + self.written_bytes
    }

    fn mean(shares: &[f64]) -> f64 {
        shares.iter().sum::<f64>() / shares.len().max(1) as f64
    }
}

impl Trace {
    fn new(seed: u64) -> Self {
        Self { state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1, live: Vec::new(), made: 0 }
    }

    /// One that is removed.
    fn gone(&mut self) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.live.swap_remove((self.state >> 11) as usize % self.live.len())
    }
}

pub fn run(plan: &Deletion) -> Result<()> {
    let mut report = Report::new(&plan.common.out, "deletion")?;
    let head = "trial,clean_at_percent,removed_bytes,read_bytes,written_bytes,cleaned_sets,\
                overhead_percent,dead_percent";
    let mut table = report.table("deletion.csv", head)?;
    let mut lines: Vec<(f64, f64, f64)> = Vec::new();
    for trial in 1..=plan.common.trials() {
        let mut courses = Vec::new();
        for percent in plan.percents() {
            let course = course(plan, trial, percent)?;
            write(&mut table, trial, percent, &course)?;
            courses.push((percent, course));
        }
        let what = "after all rounds, two disks were emptied: `weir reduce repair` made all anew";
        report.verdict(true, &format!("{what} ({} thresholds)", courses.len()));
        let points = judge(&mut report, &courses);
        lines.extend(points);
    }
    draw(&report, plan, &lines)?;
    report.finish()
}

/// All rounds with one threshold, on disks of their own.
fn course(plan: &Deletion, trial: u32, percent: u8) -> Result<Course> {
    stop::check()?;
    let (common, count) = (&plan.common, plan.disks as usize);
    let weir = common.weir()?;
    let dir = tempfile::Builder::new().prefix("weir-fig").tempdir_in(&common.scratch)?;
    // Three copies of a round, and all that lives and waits in sets of any age.
    let files = (plan.files as usize * (COPIES + 4 * DEPTH)).div_ceil(count) as u64;
    let room = files * plan.file() + SPARE_BYTES;
    let disk = |n: usize| {
        Disk::make(&dir.path().join(format!("i{n}")), &dir.path().join(format!("d{n}")), room)
    };
    let disks = (0..count).map(disk).collect::<Result<Vec<_>>>()?;
    let dirs: Vec<PathBuf> = disks.iter().map(|disk| disk.path().join("files")).collect();
    dirs.iter().try_for_each(|dir| fs::create_dir_all(dir.join("f")))?;
    let counts = || -> Result<(u64, u64)> {
        let all = disks.iter().map(Disk::counts).collect::<Result<Vec<_>>>()?;
        Ok((all.iter().map(|c| c.read_bytes).sum(), all.iter().map(|c| c.written_bytes).sum()))
    };
    let reduce = |words: &[String]| -> Result<Value> {
        let mut command = Command::new(&weir);
        Ok(serde_json::from_str(&said(command.arg("reduce").args(words).args(&dirs))?)?)
    };
    let (mut trace, mut done) = (Trace::new(trial.into()), Course::default());
    for round in 0..DEPTH + plan.rounds as usize {
        stop::check()?;
        for _ in 0..plan.files {
            make(plan, &dirs, trace.made)?;
            trace.live.push(trace.made);
            trace.made += 1;
        }
        let is_counted = round >= DEPTH;
        if is_counted {
            let gone = (0..plan.files).flat_map(|_| ["--file".to_owned(), name(trace.gone())]);
            let words = ["remove".to_owned(), "--json".to_owned()];
            reduce(&words.into_iter().chain(gone).collect::<Vec<_>>())?;
            done.removed_bytes += u64::from(plan.files) * plan.file();
        }
        dirs.iter().try_for_each(|dir| forget(dir))?;
        let before = counts()?;
        let clean_at = format!("{percent}%");
        let words = ["encode", "--json", "--quiet", "--clean-at", &clean_at, "--low", "0%"];
        let said = reduce(&words.map(str::to_owned))?;
        let after = counts()?;
        if is_counted {
            let of = |name: &str| said["usage"][name].as_u64().unwrap_or_default() as f64;
            done.read_bytes += after.0 - before.0;
            done.written_bytes += after.1 - before.1;
            let logical = of("logical_bytes") + of("other_logical_bytes");
            let stored = of("stored_bytes") + of("other_stored_bytes");
            done.overheads.push(stored / logical - 1.0);
            done.dead.push(of("dead_bytes") / logical);
            done.cleaned += said["cleaned"].as_u64().unwrap_or_default();
        }
    }
    prove(&weir, &dirs, &trace)?;
    Ok(done)
}

fn name(file: usize) -> String {
    format!("f/{file}")
}

/// Three copies on disks that differ from file to file.
fn make(plan: &Deletion, dirs: &[PathBuf], file: usize) -> Result<()> {
    let step = 1 + file / dirs.len() % (dirs.len() - 2);
    for copy in 0..COPIES {
        let away = if copy == 0 { 0 } else { step + copy - 1 };
        let path = dirs[(file + away) % dirs.len()].join(name(file));
        write_noise(&path, plan.file(), file as u64 + 1)?;
    }
    Ok(())
}

/// Two disks are emptied; then all that lives comes back, and nothing else.
fn prove(weir: &PathBuf, dirs: &[PathBuf], trace: &Trace) -> Result<()> {
    for dir in [&dirs[0], &dirs[dirs.len() / 2]] {
        fs::remove_dir_all(dir)?;
        fs::create_dir(dir)?;
    }
    for verb in ["repair", "verify"] {
        said(Command::new(weir).args(["reduce", verb, "--quiet"]).args(dirs))?;
    }
    let is_there = |file: usize| dirs.iter().any(|dir| dir.join(name(file)).exists());
    match (0..trace.made).find(|file| is_there(*file) != trace.live.contains(file)) {
        None => Ok(()),
        Some(file) => Err(Error::other(format!("{} is there or is not, wrongly", name(file)))),
    }
}

fn write(table: &mut Table, trial: u32, percent: u8, course: &Course) -> Result<()> {
    let shares = [&course.overheads, &course.dead].map(|of| Course::mean(of) * 100.0);
    let numbers = [course.removed_bytes, course.read_bytes, course.written_bytes, course.cleaned];
    let head = [trial.to_string(), percent.to_string()];
    let numbers = numbers.map(|number| number.to_string());
    let shares = shares.map(|share| format!("{share:.2}"));
    table.row(&[&head[..], &numbers, &shares].concat())
}

/// Threshold, bytes read and written for each byte removed beyond what is done anyway, and bytes
/// beside the files', percent.
fn judge(report: &mut Report, courses: &[(u8, Course)]) -> Vec<(f64, f64, f64)> {
    // Where a set goes only when all of it is removed, nothing is encoded but new files.
    let least = courses.iter().find(|(percent, _)| *percent == 100);
    let least = least.map_or(0, |(_, course)| course.io_bytes());
    let more =
        |course: &Course| (course.io_bytes() as f64 - least as f64) / course.removed_bytes as f64;
    let overhead = |course: &Course| Course::mean(&course.overheads) * 100.0;
    let of = |percent| courses.iter().find(|(at, _)| *at == percent).map(|(_, course)| course);
    for (percent, course) in courses {
        println!(
            "cleaned at {percent} %: {:.2} bytes read and written for each byte removed, \
             overhead {:.1} %, of it {:.1} % removed files",
            more(course),
            overhead(course),
            Course::mean(&course.dead) * 100.0
        );
    }
    if let (Some(at_once), Some(default), Some(never)) = (of(0), of(DEFAULT_PERCENT), of(100)) {
        let share = more(default) / more(at_once);
        let what = format!(
            "cleaned at {DEFAULT_PERCENT} %, for each byte removed {:.2} bytes are read and written, at once {:.2} \
             ({:.0} %); the overhead is {:.0} %, at once {:.0} %, when all is removed {:.0} %",
            more(default),
            more(at_once),
            share * 100.0,
            overhead(default),
            overhead(at_once),
            overhead(never),
        );
        report.verdict(share <= AIM && overhead(default) < overhead(never), &what);
    }
    courses.iter().map(|(at, course)| (f64::from(*at), more(course), overhead(course))).collect()
}

fn draw(report: &Report, plan: &Deletion, lines: &[(f64, f64, f64)]) -> Result<()> {
    let line = |of: fn(&(f64, f64, f64)) -> f64| -> Vec<(f64, Spread)> {
        let at = |percent: u8| {
            let here = lines.iter().filter(|(at, ..)| *at == f64::from(percent));
            (f64::from(percent), Spread::of(&here.map(of).collect::<Vec<_>>()))
        };
        plan.percents().into_iter().map(at).collect()
    };
    let title = format!("{} files made and removed in each of {} rounds", plan.files, plan.rounds);
    let labels = Labels { title: &title, x: "cleaned at, %", y: "read and written ÷ removed" };
    let io = Series::new("bytes read and written for each byte removed".into(), line(|p| p.1));
    plot::lines(&report.path("io.svg"), &labels, &[io])?;
    let labels = Labels { title: &title, x: "cleaned at, %", y: "% beside the files" };
    let held = Series::new("on disk beside the files, %".into(), line(|p| p.2));
    plot::lines(&report.path("held.svg"), &labels, &[held])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cleaning_takes_is_what_is_beyond_that_of_new_files() {
        let dir = tempfile::tempdir().unwrap();
        let mut report = Report::new(dir.path(), "deletion").unwrap();
        let course = |io: u64, overhead: f64| Course {
            removed_bytes: 10,
            read_bytes: io / 2,
            written_bytes: io - io / 2,
            overheads: vec![overhead - 0.1, overhead + 0.1],
            ..Course::default()
        };
        let all = [(0, course(100, 0.25)), (50, course(40, 0.5)), (100, course(20, 1.0))];
        let points = judge(&mut report, &all);
        let io: Vec<f64> = points.iter().map(|(_, io, _)| *io).collect();
        assert_eq!(io, [8.0, 2.0, 0.0]);
        assert!((points[1].2 - 50.0).abs() < 1e-9);
        report.finish().unwrap();
        let said = std::fs::read_to_string(dir.path().join("deletion/verdicts.txt")).unwrap();
        assert!(said.starts_with("PASS") && said.contains("(25 %)"), "{said}");
    }

    #[test]
    fn the_same_files_are_removed_whatever_is_cleaned() {
        let gone = || {
            let mut trace = Trace::new(3);
            trace.live.extend(0..50);
            (0..20).map(|_| trace.gone()).collect::<Vec<_>>()
        };
        let (one, other) = (gone(), gone());
        assert_eq!(one, other);
        assert!(one.iter().all(|file| one.iter().filter(|f| *f == file).count() == 1));
    }
}
