//! `weir-match` on disks of a set speed, plain and with hints: by time.

use crate::args::Match;
use crate::cluster::said;
use crate::lab::Lab;
use crate::programs::beside;
use crate::report::Report;
use crate::stop;
use serde_json::Value;
use std::io::{Error, Result};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, sleep};
use std::time::Duration;
use weir_testbed::{Disk, forget};

/// Servers keep what they have read for no longer: as if there were far more than their memory.
const KEPT: Duration = Duration::from_millis(100);
const WAYS: [(&str, &[&str]); 2] = [("plain", &[]), ("hinted", &["--hinted"])];
const MIB: f64 = (1 << 20) as f64;

/// What came of a run.
struct Matched {
    seconds: f64,
    calls: u64,
    disk_bytes: u64,
    linked: u64,
}

pub fn run(plan: &Match) -> Result<()> {
    let mut report = Report::new(&plan.common.out, "match")?;
    let mut table =
        report.table("match.csv", "trial,way,records,readers,seconds,calls,disk_bytes,linked")?;
    let mut common = plan.common.clone();
    common.rate = Some(plan.rate());
    let bytes = (plan.customers() + plan.records()) * 838;
    let lab = Lab::new(&common, plan.disks as usize, 2 * bytes / u64::from(plan.disks))?;
    let mut generate = program(&lab)?;
    generate.args(["generate", "customers", "records", "--count", &plan.customers().to_string()]);
    said(generate.args(["--record-count", &plan.records().to_string()]))?;
    lab.slow_down()?;
    for trial in 1..=plan.trials() {
        let mut all = Vec::new();
        for (way, words) in WAYS {
            let matched = measure(plan, &lab, words)?;
            let Matched { seconds, calls, disk_bytes, linked } = matched;
            println!(
                "trial {trial}, {way}: matched in {seconds:.2} s by {calls} calls, disks gave {:.1} MiB",
                disk_bytes as f64 / MIB
            );
            let numbers = [calls, disk_bytes, linked].map(|number| number.to_string());
            let head = [trial.to_string(), way.to_owned(), plan.records().to_string()];
            let more = [plan.readers.to_string(), format!("{seconds:.3}")];
            table.row(&[&head[..], &more, &numbers].concat())?;
            all.push(matched);
        }
        if let [plain, hinted] = &all[..] {
            let what = format!(
                "with hints {:.2} s, without {:.2} ({:.1} times): {} and {} calls, the same {} links",
                hinted.seconds,
                plain.seconds,
                plain.seconds / hinted.seconds,
                hinted.calls,
                plain.calls,
                hinted.linked
            );
            report.verdict(hinted.seconds < plain.seconds && hinted.linked == plain.linked, &what);
        }
    }
    report.finish()
}

/// The program, on the files of the cluster.
fn program(lab: &Lab) -> Result<Command> {
    let mut command = beside("weir-match")?;
    command.env("SIO_FILES", format!("weir:{}", lab.cluster.credential().display()));
    Ok(command)
}

fn measure(plan: &Match, lab: &Lab, words: &[&str]) -> Result<Matched> {
    stop::check()?;
    let mut command = program(lab)?;
    command.args(["run", "records", "customers", "--json", "--readers", &plan.readers.to_string()]);
    command.args(words);
    let read = || lab.disks.iter().map(Disk::read_bytes).sum::<Result<u64>>();
    let before = read()?;
    let is_over = AtomicBool::new(false);
    let text = thread::scope(|scope| {
        let forgets = scope.spawn(|| {
            while !is_over.load(Relaxed) {
                lab.disks.iter().try_for_each(|disk| forget(&disk.path().join("target")))?;
                sleep(KEPT);
            }
            Ok(())
        });
        let text = said(&mut command);
        is_over.store(true, Relaxed);
        let panicked = |_| Err(Error::other("a thread has panicked"));
        forgets.join().unwrap_or_else(panicked).and(text)
    })?;
    let report: Value = serde_json::from_str(&text)?;
    let unknown = || Error::other(format!("weir-match: {text}"));
    let number = |name: &str| report[name].as_u64().ok_or_else(unknown);
    Ok(Matched {
        seconds: report["match_seconds"].as_f64().ok_or_else(unknown)?,
        calls: number("calls")?,
        disk_bytes: read()? - before,
        linked: number("linked")?,
    })
}
