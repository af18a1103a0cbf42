//! Programs that read as people's programs do, of files with two copies, while nothing is hot, or one
//! disk, or one link: how long does each take, by the way in which copies are chosen?

mod programs;

use crate::args::{Applications, Common};
use crate::bed::Bed;
use crate::cluster::Mount;
use crate::lab::Lab;
use crate::plot::{self, Labels};
use crate::points::Points;
use crate::report::Report;
use crate::round::{Beside, Load, Round};
use crate::stop;
use programs::Inputs;
use std::io::{Error, Result};
use std::process::Child;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The server of first copies whose disk or link is hot.
const HOT: usize = 0;
const LINES: [&str; 4] = ["primary", "halves", "skip-hot", DEFAULT];
const DEFAULT: &str = "proportional";
/// What a disk gives, if nothing else is said, and what a link carries: processes on several nodes
/// together get more from disks than one link carries.
const DISK_RATE: u64 = 8 << 20;
const LINK_RATE: u64 = 24 << 20;
/// Of a hot link somebody else has so much, per cent.
const SENT_PERCENT: u64 = 90;
/// The default has so much of what the best of the others has.
const OF_THE_BEST: f64 = 0.95;
/// Rounds that are tried until perturbers had what they were to have.
const ATTEMPTS: usize = 3;
/// A program that has not ended by then never does.
const PATIENCE: Duration = Duration::from_secs(300);
const LOOK: Duration = Duration::from_millis(5);
const MIB: f64 = (1 << 20) as f64;

/// What is hot, in the order of the plots.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Hot {
    Nothing,
    Disk,
    Link,
}

impl Hot {
    const ALL: [Self; 3] = [Self::Nothing, Self::Disk, Self::Link];

    fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing hot",
            Self::Disk => "one disk hot",
            Self::Link => "one link hot",
        }
    }

    fn load(self, link_rate: u64) -> Load {
        match self {
            Self::Link => Load::Sends { bytes_per_s: link_rate * SENT_PERCENT / 100 },
            Self::Nothing | Self::Disk => Load::Writes,
        }
    }
}

pub fn run(plan: &Applications) -> Result<()> {
    let mut report = Report::new(&plan.common.out, "applications")?;
    let common = Common { rate: plan.common.rate.or(Some(DISK_RATE)), ..plan.common.clone() };
    let mut bed = Bed::new(&plan.profile, plan.disks);
    (bed.clients, bed.link_rate) = (plan.processes, Some(LINK_RATE));
    let lab = Lab::on(&common, &bed, room(plan))?;
    let inputs = Inputs::make(&lab, plan)?;
    let head = "trial,program,hot,policy,seconds,mib_per_s,disks_gave_mib,perturber_mib_per_s";
    let mut table = report.table("runs.csv", head)?;
    let mut all: Vec<(&str, Points)> = Vec::new();
    for program in plan.programs() {
        let mut points = Points::default();
        for trial in 1..=common.trials() {
            for (x, hot) in Hot::ALL.into_iter().enumerate() {
                for line in LINES {
                    let of = round(&lab, plan, &inputs, (program, hot, line))?;
                    let (seconds, gave) = (of.done, of.read_bytes as f64 / MIB);
                    let perturber = of.perturbers.first().map_or(0.0, |had| had.bytes_per_s / MIB);
                    let rate = inputs.bytes(program) as f64 / MIB / seconds;
                    points.add(line, x as u64, rate);
                    let what = [trial.to_string(), program.into(), hot.name().into(), line.into()];
                    println!(
                        "{}: {seconds:.2} s, {rate:.1} MiB/s; the disks gave {gave:.0} MiB, a perturber had {perturber:.2} MiB/s",
                        what.join(", ")
                    );
                    let numbers = [seconds, rate, gave, perturber].map(|n| format!("{n:.3}"));
                    table.row(&[&what[..], &numbers].concat())?;
                }
            }
        }
        all.push((program, points));
    }
    drop(lab);
    for (program, points) in &all {
        points.write(&report, &format!("{program}.csv"), "hot")?;
        Hot::ALL.iter().enumerate().for_each(|(x, hot)| {
            judge(&mut report, (program, *hot), |line| points.mean(line, x as u64));
        });
        let title = format!("weir-{program}: nothing is hot (0), one disk (1), one link (2)");
        let labels = Labels { title: &title, x: "what is hot", y: "MiB of input a second" };
        let path = report.path(&format!("applications-{program}.svg"));
        plot::lines(&path, &labels, &points.series(&LINES, 1.0))?;
    }
    report.finish()
}

/// What a disk has of all inputs, and as much again.
fn room(plan: &Applications) -> u64 {
    let copies = 2 * programs::INPUTS * plan.size;
    2 * copies / u64::from(plan.disks)
}

/// Seconds from when a program is started until all its processes have ended, in a round whose
/// perturbers had what they were to have.
fn round(
    lab: &Lab,
    plan: &Applications,
    inputs: &Inputs,
    (program, hot, line): (&str, Hot, &str),
) -> Result<Beside<f64>> {
    let perturbed: &[usize] = if hot == Hot::Nothing { &[] } else { &[HOT] };
    let round = Round { perturbed, load: hot.load(LINK_RATE), ..Round::of(line, &[]) };
    for _ in 0..ATTEMPTS {
        stop::check()?;
        let beside = lab.disturbed(&round, || once(lab, plan, inputs, (program, line)))?;
        match beside.flaw(inputs.bytes(program)) {
            None => return Ok(beside),
            Some(flaw) => println!("left out: {program}, {}, {line}: {flaw}", hot.name()),
        }
    }
    Err(Error::other("no such round in which it was as hot as it was to be"))
}

fn once(
    lab: &Lab,
    plan: &Applications,
    inputs: &Inputs,
    (program, line): (&str, &str),
) -> Result<f64> {
    let options = format!("{},read_policy={line}", lab.options);
    let mount = |n| lab.cluster.mount(n, lab.place(&format!("m{n}")), &options);
    let mounts = (0..plan.processes as usize).map(mount).collect::<Result<Vec<Mount>>>()?;
    let commands = inputs.commands(program, &mounts)?;
    let begin = Instant::now();
    let mut running = Running(Vec::new());
    for mut command in commands {
        running.0.push(command.spawn()?);
    }
    running.end(program)?;
    let seconds = begin.elapsed().as_secs_f64();
    inputs.clean()?;
    Ok(seconds)
}

/// Processes of a program. Dropped, they are killed.
struct Running(Vec<Child>);

impl Running {
    /// Waits until all have ended well.
    fn end(&mut self, program: &str) -> Result<()> {
        let begin = Instant::now();
        while let Some(process) = self.0.first_mut() {
            match process.try_wait()? {
                Some(status) if status.success() => drop(self.0.remove(0)),
                Some(status) => return Err(Error::other(format!("weir-{program}: {status}"))),
                None if begin.elapsed() > PATIENCE => {
                    return Err(Error::other(format!("weir-{program}: not within {PATIENCE:?}")));
                }
                None => {
                    stop::check()?;
                    sleep(LOOK);
                }
            }
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for process in &mut self.0 {
            // It may have ended by itself.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

fn judge(
    report: &mut Report,
    (program, hot): (&str, Hot),
    of: impl Fn(&'static str) -> Option<f64>,
) {
    let name = hot.name();
    let others = LINES.into_iter().filter(|line| *line != DEFAULT);
    let best = others.filter_map(|line| Some((of(line)?, line)));
    let best = best.max_by(|(a, _), (b, _)| a.total_cmp(b));
    let Some(((best, line), rate)) = best.zip(of(DEFAULT)) else { return };
    let part = rate / best;
    let what = format!(
        "{program}, {name}: {rate:.1} MiB/s by default, {best:.1} by {line}, the best of the others: {:.0} % (aim {:.0} %)",
        part * 100.0,
        OF_THE_BEST * 100.0
    );
    report.verdict(part >= OF_THE_BEST, &what);
    let Some((skip, halves)) = of("skip-hot").zip(of("halves")) else { return };
    if hot != Hot::Nothing {
        let what = format!(
            "{program}, {name}: skip-hot {skip:.1} MiB/s, halves {halves:.1}: {:.2} times (aim: more)",
            skip / halves
        );
        report.verdict(skip > halves, &what);
    }
}
