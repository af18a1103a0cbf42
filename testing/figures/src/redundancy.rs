//! One file by one API, with one, two and three copies, and with two parities in the place of
//! copies: what it costs to write and read it, with a slow disk, without a server, and to make
//! whole what that server had.

use crate::args::Redundancy;
use crate::hdfs::cpu_seconds;
use crate::lab::{Lab, write_noise};
use crate::proof::Proof;
use crate::report::{Report, Table};
use crate::round::Round;
use crate::stop;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs::File;
use std::io::{Error, Read, Result};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

const COLUMNS: u64 = 4;
const FILE: &str = "file";
/// Of what is written.
const SEED: u64 = 1;
const PATIENCE: Duration = Duration::from_secs(600);
const PAUSE: Duration = Duration::from_millis(100);
const MIB: f64 = (1 << 20) as f64;
/// Of what one copy gives, what each of the others gives while all is well; of what three copies
/// give without a server, what parities do.
const AIM: f64 = 0.9;
const CALL_BYTES: usize = 1 << 20;

/// How a file bears losses.
struct Way {
    name: &'static str,
    copies: &'static str,
    is_coded: bool,
    /// Servers that may be lost.
    bears: u32,
}

const WAYS: [Way; 4] = [
    Way { name: "one copy", copies: "1", is_coded: false, bears: 0 },
    Way { name: "two copies", copies: "2", is_coded: false, bears: 1 },
    Way { name: "three copies", copies: "3", is_coded: false, bears: 2 },
    Way { name: "two parities", copies: "3", is_coded: true, bears: 2 },
];

/// What came of one of them: seconds, and of the servers' processors. What it does not bear is
/// none.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    stored_bytes: u64,
    write: (f64, f64),
    /// Until the parities count and all other copies are gone.
    encode: Option<(f64, f64)>,
    read: (f64, f64),
    slow: (f64, f64),
    degraded: Option<(f64, f64)>,
    /// From the removal of the target until all is there again.
    repair: Option<(f64, f64)>,
}

pub fn run(plan: &Redundancy) -> Result<()> {
    let mut report = Report::new(&plan.common.out, "redundancy")?;
    let head = "trial,way,bears,stored_bytes,what,seconds,mib_s,servers_cpu_s_per_gb";
    let mut table = report.table("redundancy.csv", head)?;
    let mut proof = Proof::new(false);
    for trial in 1..=plan.trials() {
        let mut costs = Vec::new();
        for way in &WAYS {
            let cost = measure(plan, way, &mut proof)?;
            write(&mut table, plan, (trial, way), &cost)?;
            costs.push(cost);
        }
        judge(&mut report, plan, &costs);
    }
    proof.conclude(&mut report);
    report.finish()
}

fn measure(plan: &Redundancy, way: &Way, proof: &mut Proof) -> Result<Cost> {
    stop::check()?;
    let mut common = plan.common.clone();
    common.rate = Some(plan.rate());
    let lab = Lab::new(&common, plan.disks as usize, plan.file() * 2)?;
    let pids = lab.cluster.pids(lab.disks.len())?;
    let columns = COLUMNS.to_string();
    lab.cluster.make_file(FILE, &["--copies", way.copies, "--count", &columns])?;
    for disk in &lab.disks {
        lab.throttle.limit_writes(disk, lab.rate)?;
    }
    lab.slow_down()?;
    let mut cost = Cost { write: timed(&pids, || fill(&lab, plan.file()))?, ..Cost::default() };
    if way.is_coded {
        cost.encode = Some(timed(&pids, || {
            let path = format!("weir:/{FILE}");
            lab.cluster.weir(&["setlayout", &path, "--reduce", "raid6", "--after", "0s"])?;
            wait(&lab, |segment| {
                segment["coded"] == true && online(segment) == COLUMNS as usize + 2
            })
        })?);
    }
    let segment = lab.cluster.segment(FILE)?;
    cost.stored_bytes = objects(&segment).iter().filter_map(|o| o["bytes"].as_u64()).sum();
    let count = objects(&segment).len();
    let first =
        objects(&segment).iter().find(|o| o["column"] == 0).and_then(|o| o["target"].as_u64());
    let lost = first.ok_or_else(|| Error::other(format!("weir layout: {segment}")))?;
    let files = [FILE.to_owned()];
    let mut read = |perturbed: &[usize]| {
        let round = Round { perturbed, processes: &pids, ..Round::of("proportional", &files) };
        let outcome = proof.round(&lab, &round)?;
        Ok::<_, Error>((outcome.seconds, outcome.cpu_seconds))
    };
    cost.read = read(&[])?;
    cost.slow = read(&[lost as usize - 1])?;
    if way.bears == 0 {
        return Ok(cost);
    }
    let pid = pids[lost as usize - 1];
    let none = || Error::other(format!("no process {pid}"));
    kill_process(Pid::from_raw(pid).ok_or_else(none)?, Signal::KILL)?;
    // Who comes later knows that it is away.
    wait(&lab, |segment| online(segment) < count)?;
    cost.degraded = Some(read(&[])?);
    compare(&lab, plan.file())?;
    cost.repair = Some(timed(&pids, || {
        lab.cluster.weir(&["target", "remove", &lost.to_string(), "--force", "--yes"])?;
        wait(&lab, |segment| online(segment) == count)
    })?);
    compare(&lab, plan.file())?;
    Ok(cost)
}

/// The file has the bytes that were written.
fn compare(lab: &Lab, bytes: u64) -> Result<()> {
    let wanted = lab.place("wanted");
    if !wanted.exists() {
        write_noise(&wanted, bytes, SEED)?;
    }
    let mount = lab.cluster.mount(0, lab.place("compared"), &lab.options)?;
    let (mut is, mut wanted) = (File::open(mount.path().join(FILE))?, File::open(wanted)?);
    let [mut of_is, mut of_wanted] = [(); 2].map(|()| vec![0; CALL_BYTES]);
    let mut left = bytes;
    while left > 0 {
        stop::check()?;
        let part = left.min(CALL_BYTES as u64) as usize;
        is.read_exact(&mut of_is[..part])?;
        wanted.read_exact(&mut of_wanted[..part])?;
        if of_is[..part] != of_wanted[..part] {
            let at = bytes - left;
            return Err(Error::other(format!("other bytes in the MiB from {at} on")));
        }
        left -= part as u64;
    }
    Ok(())
}

/// Writes the file, which is there, and makes it durable.
fn fill(lab: &Lab, bytes: u64) -> Result<()> {
    let mount = lab.cluster.mount(0, lab.place("w"), "rw")?;
    write_noise(&mount.path().join(FILE), bytes, SEED)
}

fn objects(segment: &Value) -> &[Value] {
    segment["objects"].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Copies and parities that are there.
fn online(segment: &Value) -> usize {
    objects(segment).iter().filter(|object| object["state"] == "online").count()
}

/// Waits until the file is as it is to be.
fn wait(lab: &Lab, is_so: impl Fn(&Value) -> bool) -> Result<()> {
    let begin = Instant::now();
    loop {
        stop::check()?;
        let segment = lab.cluster.segment(FILE)?;
        if is_so(&segment) {
            return Ok(());
        }
        if begin.elapsed() > PATIENCE {
            return Err(Error::other(format!("not within {PATIENCE:?}: {segment}")));
        }
        sleep(PAUSE);
    }
}

/// How long something takes besides reads, in which none of the servers dies, and the seconds of processor time
/// of all that live.
fn timed(pids: &[i32], work: impl FnOnce() -> Result<()>) -> Result<(f64, f64)> {
    let lives = |pid: &&i32| Path::new(&format!("/proc/{pid}")).exists();
    let pids: Vec<i32> = pids.iter().filter(lives).copied().collect();
    let (begin, before) = (Instant::now(), cpu_seconds(&pids)?);
    work()?;
    let seconds = begin.elapsed().as_secs_f64();
    Ok((seconds, cpu_seconds(&pids)? - before))
}

fn write(
    table: &mut Table,
    plan: &Redundancy,
    (trial, way): (u32, &Way),
    cost: &Cost,
) -> Result<()> {
    let gb = plan.file() as f64 / 1e9;
    let all = [
        ("write", Some(cost.write)),
        ("encode", cost.encode),
        ("read", Some(cost.read)),
        ("read, one disk gives half", Some(cost.slow)),
        ("read, one server is lost", cost.degraded),
        ("repair", cost.repair),
    ];
    for (what, measured) in all {
        let Some((seconds, cpu)) = measured else { continue };
        let rate = plan.file() as f64 / MIB / seconds;
        println!("{}: {what}: {seconds:.1} s, {rate:.1} MiB/s, {:.2} s/GB", way.name, cpu / gb);
        table.row(&[
            trial.to_string(),
            way.name.to_owned(),
            way.bears.to_string(),
            cost.stored_bytes.to_string(),
            what.replace(',', ":"),
            format!("{seconds:.2}"),
            format!("{rate:.2}"),
            format!("{:.2}", cpu / gb),
        ])?;
    }
    Ok(())
}

fn judge(report: &mut Report, plan: &Redundancy, costs: &[Cost]) {
    let [plain, _, three, coded] = costs else { return };
    let ways = WAYS.iter().zip(costs);
    let rates: Vec<String> =
        ways.map(|(way, cost)| format!("{} {:.2}", way.name, plain.read.0 / cost.read.0)).collect();
    let is_near = costs.iter().all(|cost| plain.read.0 / cost.read.0 >= AIM);
    let what = format!("read while all is well ÷ one copy: {}", rates.join(", "));
    report.verdict(is_near, &what);
    let overhead = |cost: &Cost| (cost.stored_bytes as f64 / plan.file() as f64 - 1.0) * 100.0;
    let what = format!(
        "both bear two servers: three copies take {:.0} % beside the file, two parities {:.0} %",
        overhead(three),
        overhead(coded)
    );
    report.verdict(overhead(coded) < overhead(three) / 2.0, &what);
    if let (Some(three), Some(coded)) = (three.degraded, coded.degraded) {
        let share = three.0 / coded.0;
        let what = format!("read without a server: two parities ÷ three copies {share:.2}");
        report.verdict(share >= AIM, &what);
    }
    let share = three.slow.0 / coded.slow.0;
    let what = format!("read while one disk gives half: two parities ÷ three copies {share:.2}");
    report.verdict(share >= AIM, &what);
    if let (Some(three), Some(coded)) = (three.repair, coded.repair) {
        let what = format!(
            "made whole again, the same bytes: three copies in {:.1} s, two parities in {:.1} s",
            three.0, coded.0
        );
        report.verdict(coded.0 <= three.0, &what);
    }
    if let Some(encode) = coded.encode {
        let what = format!(
            "encoded in {:.1} s; three copies are written in {:.1} s (aim: no longer)",
            encode.0, three.write.0
        );
        report.verdict(encode.0 <= three.write.0, &what);
    }
}
