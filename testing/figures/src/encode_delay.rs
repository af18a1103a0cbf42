//! Files are written in three copies, read while they are new, and become sets after a delay: what
//! readers gain by that, and what it holds (DiskReduce, encoding that waits). Seconds are scaled: an
//! hour of a trace is `--hour`.
//!
//! None of the papers has the distribution of the age at which files are read. Here nine of ten
//! reads are of an age that falls off exponentially, with a mean of one hour, and one of ten is of
//! any file.

use crate::args::EncodeDelay;
use crate::lab::{Lab, write_noise};
use crate::plot::{self, Labels, Series};
use crate::report::{Report, Table};
use crate::statistics::Spread;
use crate::stop;
use std::fs::{self, File};
use std::io::{Error, Read, Result};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};
use weir_testbed::forget;

const COLUMNS: usize = 4;
const COPIES: usize = 3;
const PARITIES: usize = 2;
const DIR: &str = "d";
const EVERY: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_millis(20);
const CALL_BYTES: usize = 1 << 20;
/// Of ten reads, those of new files.
const OF_NEW: usize = 9;
const MIB: f64 = (1 << 20) as f64;
/// Of what never encoding gains, what a delay of the longest ages is to keep.
const AIM: f64 = 0.7;
/// So many hours are such a delay.
const HOURS: f64 = 4.0;

/// A read of a whole file.
struct OneRead {
    at: f64,
    age: f64,
    seconds: f64,
    /// Of its bytes, by the layout, the share that a process finds on its own disk, as a mean over
    /// all nodes.
    local: f64,
    is_coded: bool,
}

/// What came of one delay.
struct Course {
    reads: Vec<OneRead>,
    /// Seconds from which on reads count.
    from: f64,
    /// Seconds, bytes of all copies and parities, bytes of the files.
    looks: Vec<(f64, u64, u64)>,
}

impl Course {
    /// Reads from when files are encoded with any delay of less than a run.
    fn counted(&self) -> impl Iterator<Item = &OneRead> {
        self.reads.iter().filter(|read| read.at >= self.from)
    }

    fn mib_s(&self, plan: &EncodeDelay) -> f64 {
        let seconds: f64 = self.counted().map(|read| read.seconds).sum();
        self.counted().count() as f64 * plan.file() as f64 / MIB / seconds
    }

    fn mean(&self, of: impl Fn(&OneRead) -> f64) -> f64 {
        self.counted().map(of).sum::<f64>() / self.counted().count().max(1) as f64
    }

    /// MiB beside what sets of all files take, as a mean over the second half of the time.
    fn held_mib(&self) -> f64 {
        let half = &self.looks[self.looks.len() / 2..];
        let more = |(_, stored, files): &(f64, u64, u64)| {
            *stored as f64 - *files as f64 * (COLUMNS + PARITIES) as f64 / COLUMNS as f64
        };
        half.iter().map(more).sum::<f64>() / half.len().max(1) as f64 / MIB
    }
}

/// What threads tell each other.
#[derive(Default)]
struct Shared {
    /// When each file was there.
    made: Mutex<Vec<Instant>>,
    /// Files that are being read.
    taken: Mutex<Vec<usize>>,
    reads: Mutex<Vec<OneRead>>,
}

pub fn run(plan: &EncodeDelay) -> Result<()> {
    let mut report = Report::new(&plan.common.out, "encode-delay")?;
    let mut reads =
        report.table("reads.csv", "trial,delay_s,at_s,age_s,seconds,local_percent,coded")?;
    let mut space = report.table("space.csv", "trial,delay_s,seconds,stored_bytes,file_bytes")?;
    let head = "trial,delay_s,reads,mib_s,local_percent,of_coded_percent,held_mib";
    let mut summary = report.table("summary.csv", head)?;
    let mut all = Vec::new();
    for trial in 1..=plan.trials() {
        for delay in plan.delays() {
            let course = course(plan, delay)?;
            write((&mut reads, &mut space, &mut summary), plan, (trial, delay), &course)?;
            println!(
                "encoded after {delay:?}: {} reads, {:.1} MiB/s each, {:.0} % on the own disk, {:.0} MiB held",
                course.counted().count(),
                course.mib_s(plan),
                course.mean(|read| read.local) * 100.0,
                course.held_mib()
            );
            all.push((delay, course));
        }
    }
    judge(&mut report, plan, &all);
    draw(&report, plan, &all)?;
    report.finish()
}

/// One run: files are made at a set pace, and readers read one after another.
fn course(plan: &EncodeDelay, delay: Duration) -> Result<Course> {
    stop::check()?;
    let mut common = plan.common.clone();
    common.rate = Some(plan.rate());
    let files = plan.run().as_secs_f64() / plan.period().as_secs_f64() + 2.0;
    let room = (files * plan.file() as f64) as u64 * COPIES as u64 * 2 / u64::from(plan.disks);
    let lab = Lab::new(&common, plan.disks as usize, room)?;
    lab.cluster.weir(&["mkdir", &format!("weir:/{DIR}")])?;
    let (dir, after) = (format!("weir:/{DIR}"), format!("{}s", delay.as_secs()));
    let [columns, copies] = [COLUMNS, COPIES].map(|number| number.to_string());
    let wish = ["setlayout", &dir, "--copies", &copies, "--count", &columns];
    lab.cluster.weir(&[&wish[..], &["--reduce", "raid6", "--after", &after]].concat())?;
    lab.slow_down()?;
    let (shared, begin) = (Shared::default(), Instant::now());
    let end = begin + plan.run();
    let looks = thread::scope(|scope| {
        let (lab, shared) = (&lab, &shared);
        let maker = scope.spawn(move || make(plan, lab, shared, (begin, end)));
        let reader = |n| scope.spawn(move || read(plan, lab, shared, (n, begin, end)));
        let readers: Vec<_> = (0..plan.readers as usize).map(reader).collect();
        let looks = watch(plan, lab, shared, (begin, end));
        let panicked = |_| Err(Error::other("a thread has panicked"));
        maker.join().unwrap_or_else(panicked)?;
        readers.into_iter().try_for_each(|reader| reader.join().unwrap_or_else(panicked))?;
        looks
    })?;
    let reads = shared.reads.into_inner().unwrap_or_else(PoisonError::into_inner);
    let course = Course { reads, looks, from: plan.counted_from().as_secs_f64() };
    if course.counted().next().is_none() {
        return Err(Error::other("nothing was read that counts: take a longer --run"));
    }
    Ok(course)
}

fn name(file: usize) -> String {
    format!("{DIR}/{file}")
}

fn make(
    plan: &EncodeDelay,
    lab: &Lab,
    shared: &Shared,
    (begin, end): (Instant, Instant),
) -> Result<()> {
    let mount = lab.cluster.mount(0, lab.place("w"), "rw")?;
    for file in 0.. {
        let at = begin + plan.period() * file as u32;
        if at >= end {
            break;
        }
        sleep(at.saturating_duration_since(Instant::now()));
        stop::check()?;
        write_noise(&mount.path().join(name(file)), plan.file(), file as u64 + 1)?;
        lock(&shared.made).push(Instant::now());
    }
    Ok(())
}

fn read(
    plan: &EncodeDelay,
    lab: &Lab,
    shared: &Shared,
    (reader, begin, end): (usize, Instant, Instant),
) -> Result<()> {
    let mount = lab.cluster.mount(reader, lab.place(&format!("r{reader}")), &lab.options)?;
    let mut random = Random(reader as u64 + 1);
    while Instant::now() < end {
        stop::check()?;
        let Some(file) = choose(plan, shared, &mut random) else {
            sleep(PAUSE);
            continue;
        };
        let made = lock(&shared.made)[file];
        let (local, is_coded) = locality(lab, file)?;
        lab.disks.iter().try_for_each(|disk| forget(&disk.path().join("target")))?;
        let at = Instant::now();
        let bytes = read_whole(&mount.path().join(name(file)))?;
        let seconds = at.elapsed().as_secs_f64();
        if bytes != plan.file() {
            return Err(Error::other(format!("{} has {bytes} bytes", name(file))));
        }
        let (age, at) = (at - made, at - begin);
        let (age, at) = (age.as_secs_f64(), at.as_secs_f64());
        lock(&shared.reads).push(OneRead { at, age, seconds, local, is_coded });
        lock(&shared.taken).retain(|taken| *taken != file);
        forget(&mount.path().join(DIR))?;
    }
    Ok(())
}

/// A file of a random age that nobody reads now.
fn choose(plan: &EncodeDelay, shared: &Shared, random: &mut Random) -> Option<usize> {
    let made = lock(&shared.made);
    let mut taken = lock(&shared.taken);
    let free: Vec<usize> = (0..made.len()).filter(|file| !taken.contains(file)).collect();
    let any = *free.get(random.below(free.len().max(1)))?;
    let file = match random.below(10) < OF_NEW {
        true => {
            let age = plan.hour().mul_f64(-(1.0 - random.part()).ln());
            let off = |file: &&usize| made[**file].elapsed().abs_diff(age);
            *free.iter().min_by_key(off)?
        }
        false => any,
    };
    taken.push(file);
    Some(file)
}

/// The share of a file that a process on any one node has on its own disk, and whether it has
/// parities.
fn locality(lab: &Lab, file: usize) -> Result<(f64, bool)> {
    let segment = lab.cluster.segment(&name(file))?;
    let objects = segment["objects"].as_array().map(Vec::as_slice).unwrap_or_default();
    let of_columns = objects.iter().filter(|o| o["column"].as_u64() < Some(COLUMNS as u64));
    let local = of_columns.count() as f64 / (COLUMNS * lab.disks.len()) as f64;
    Ok((local, segment["coded"] == true))
}

fn read_whole(path: &Path) -> Result<u64> {
    let (mut file, mut buffer, mut bytes) = (File::open(path)?, vec![0; CALL_BYTES], 0);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(bytes),
            n => bytes += n as u64,
        }
    }
}

/// How much there is on the disks, again and again.
fn watch(
    plan: &EncodeDelay,
    lab: &Lab,
    shared: &Shared,
    (begin, end): (Instant, Instant),
) -> Result<Vec<(f64, u64, u64)>> {
    let mut looks = Vec::new();
    while Instant::now() < end {
        stop::check()?;
        let targets = lab.disks.iter().map(|disk| disk.path().join("target"));
        let stored: u64 = targets.map(|target| bytes_below(&target, false)).sum();
        let files = lock(&shared.made).len() as u64 * plan.file();
        looks.push((begin.elapsed().as_secs_f64(), stored, files));
        sleep(EVERY);
    }
    Ok(looks)
}

/// Bytes of all objects below a directory; what goes meanwhile is not there.
fn bytes_below(dir: &Path, is_object: bool) -> u64 {
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    let bytes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => {
            bytes_below(&entry.path(), is_object || entry.file_name() == "objects")
        }
        Ok(meta) if is_object => meta.len(),
        _ => 0,
    });
    bytes.sum()
}

fn lock<T>(what: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The same numbers each time.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() >> 11) as usize % bound
    }

    /// From 0 to 1, without 1.
    fn part(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

fn write(
    (reads, space, summary): (&mut Table, &mut Table, &mut Table),
    plan: &EncodeDelay,
    (trial, delay): (u32, Duration),
    course: &Course,
) -> Result<()> {
    let key = [trial.to_string(), delay.as_secs().to_string()];
    for read in &course.reads {
        let times = [read.at, read.age, read.seconds].map(|time| format!("{time:.3}"));
        let more = [format!("{:.1}", read.local * 100.0), read.is_coded.to_string()];
        reads.row(&[&key[..], &times, &more].concat())?;
    }
    for (seconds, stored, files) in &course.looks {
        let values = [format!("{seconds:.2}"), stored.to_string(), files.to_string()];
        space.row(&[&key[..], &values].concat())?;
    }
    let coded = course.mean(|read| f64::from(u8::from(read.is_coded)));
    let values = [
        course.counted().count().to_string(),
        format!("{:.2}", course.mib_s(plan)),
        format!("{:.1}", course.mean(|read| read.local) * 100.0),
        format!("{:.1}", coded * 100.0),
        format!("{:.1}", course.held_mib()),
    ];
    summary.row(&[&key[..], &values].concat())
}

/// Of all trials with one delay.
fn mean_of(
    all: &[(Duration, Course)],
    delay: Duration,
    of: impl Fn(&Course) -> f64,
) -> Option<Spread> {
    let here: Vec<f64> =
        all.iter().filter(|(at, _)| *at == delay).map(|(_, course)| of(course)).collect();
    (!here.is_empty()).then(|| Spread::of(&here))
}

fn judge(report: &mut Report, plan: &EncodeDelay, all: &[(Duration, Course)]) {
    let rate = |delay| mean_of(all, delay, |course| course.mib_s(plan)).map(|rate| rate.mean);
    let held = |delay| mean_of(all, delay, Course::held_mib).map(|held| held.mean);
    let local = |delay| {
        mean_of(all, delay, |course| course.mean(|read| read.local)).map(|l| l.mean * 100.0)
    };
    let delays = plan.delays();
    let (Some(least), Some(most)) = (delays.iter().min(), delays.iter().max()) else { return };
    let ends = (rate(*least), rate(*most), local(*least), local(*most));
    let (Some(soon), Some(never), Some(soon_local), Some(never_local)) = ends else { return };
    let what = format!(
        "readers of files in copies ÷ in sets: {:.2} ({never:.1} and {soon:.1} MiB/s); by the layout \
         {never_local:.0} and {soon_local:.0} % on the own disk",
        never / soon
    );
    report.verdict(never > soon && never_local > soon_local, &what);
    let enough = plan.hour().mul_f64(HOURS);
    let between = delays.iter().find(|delay| **delay >= enough && *delay < most);
    let Some(between) = between else {
        let what = format!("no delay of {HOURS} hours or more beside never: say --delays");
        report.verdict(false, &what);
        return;
    };
    if let (Some(some), Some(holds), Some(local)) =
        (rate(*between), held(*between), local(*between))
    {
        let part = (some - soon) / (never - soon);
        let local_part = (local - soon_local) / (never_local - soon_local);
        let all_held = held(*most).unwrap_or_default();
        let what = format!(
            "a delay of {between:?} (the mean age of new reads is {:?}) keeps {:.0} % of the gain in \
             MiB/s and {:.0} % of that in locality by the layout (aim {:.0} %), and holds {holds:.0} MiB \
             instead of {all_held:.0}",
            plan.hour(),
            part * 100.0,
            local_part * 100.0,
            AIM * 100.0
        );
        report.verdict(part.min(local_part) >= AIM && holds < all_held, &what);
    }
}

fn draw(report: &Report, plan: &EncodeDelay, all: &[(Duration, Course)]) -> Result<()> {
    let line = |of: &dyn Fn(&Course) -> f64| -> Vec<(f64, Spread)> {
        let at = |delay: Duration| Some((delay.as_secs_f64(), mean_of(all, delay, of)?));
        plan.delays().into_iter().filter_map(at).collect()
    };
    let title =
        format!("Encoded after a delay; nine of ten reads at a mean age of {:?}", plan.hour());
    let labels = Labels { title: &title, x: "delay, s", y: "MiB/s of a reader; %" };
    let rates = Series::new("MiB/s of a reader".into(), line(&|course| course.mib_s(plan)));
    let local = line(&|course| course.mean(|read| read.local) * 100.0);
    let local = Series::new("on the own disk, %".into(), local);
    plot::lines(&report.path("reads.svg"), &labels, &[rates, local])?;
    let course = |delay: Duration| {
        let (_, course) = all.iter().find(|(at, _)| *at == delay)?;
        let at = |(seconds, stored, _): &(f64, u64, u64)| {
            (*seconds, Spread { mean: *stored as f64 / MIB, deviation: 0.0 })
        };
        Some(Series::new(format!("after {delay:?}"), course.looks.iter().map(at).collect()))
    };
    let all: Vec<Series> = plan.delays().into_iter().filter_map(course).collect();
    let labels = Labels { title: &title, x: "seconds", y: "MiB on disk" };
    plot::lines(&report.path("space.svg"), &labels, &all)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // A panic is how a test fails.
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_what_sets_would_not_take() {
        let looks = vec![(0.0, 9 << 20, 0), (1.0, 18 << 20, 8 << 20), (2.0, 30 << 20, 16 << 20)];
        let course = Course { reads: Vec::new(), from: 0.0, looks };
        // 18 - 12 and 30 - 24.
        assert!((course.held_mib() - 6.0).abs() < 1e-9);
    }

    #[test]
    fn objects_count_and_notes_beside_them_do_not() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("objects/1")).unwrap();
        fs::write(dir.path().join("objects/1/a"), [0; 70]).unwrap();
        fs::write(dir.path().join("note"), [0; 9]).unwrap();
        assert_eq!(bytes_below(dir.path(), false), 70);
    }
}
