//! What is to hold.

use super::{Measured, READS, WRITES};
use crate::args::Congested;
use crate::distributed_queue::QUEUE;
use crate::report::Report;

/// Of the bytes that are to go over the network so much may be missing, or more.
const COUNTED: f64 = 0.05;
/// What is to be nothing is less: what servers say to each other, and the names of files.
const NOTHING: f64 = 0.02;
/// Where links have room everybody has so much of what those have who use their own disk alone.
const ROOM: f64 = 0.95;
/// So much more even are those who write by graduated writing.
const MORE_EVEN: f64 = 0.05;

pub fn judge(report: &mut Report, plan: &Congested, (all, one): (&Measured, &Measured)) {
    let most = plan.most();
    spare(report, all, most);
    counted(report, plan, all);
    for percent in plan.percents().into_iter().filter(|percent| *percent < most) {
        for (measured, which) in [(all, "all links"), (one, "one link")] {
            let what = format!("{which} at {percent} % of a disk");
            slowed(report, (all, measured), (most, percent), &what);
        }
        even(report, all, percent, "all links");
        even(report, one, percent, "one link");
    }
}

/// With room to spare both forms of declustering, and the queue, are as fast as disks.
fn spare(report: &mut Report, all: &Measured, most: u64) {
    for (lines, own) in [(&READS[..], READS[0]), (&WRITES[..], WRITES[0])] {
        let Some(alone) = all.slowest.mean(own, most) else { continue };
        for line in lines.iter().filter(|line| **line != own) {
            let Some(rate) = all.slowest.mean(line, most) else { continue };
            let part = rate / alone;
            let what = format!(
                "links at {most} % of a disk, {line}: slowest {rate:.2} MiB/s, {:.1} % of {own}, {alone:.2} (aim {:.0} %)",
                part * 100.0,
                ROOM * 100.0
            );
            report.verdict(part >= ROOM, &what);
        }
    }
}

/// Bytes over the network, with room to spare: a half, (N - 1) / N, none.
fn counted(report: &mut Report, plan: &Congested, all: &Measured) {
    let nodes = f64::from(plan.nodes);
    for line in READS.into_iter().chain(WRITES) {
        let Some(sent) = all.sent.mean(line, plan.most()) else { continue };
        let stated = match line {
            "graduated" => 0.5,
            QUEUE => (nodes - 1.0) / nodes,
            "graduated write" => {
                println!(
                    "graduated write: {:.1} % of all bytes went to another node",
                    sent * 100.0
                );
                continue;
            }
            _ => 0.0,
        };
        let what = format!(
            "{line}: {:.1} % of all bytes went to another node (paper: {:.1} %)",
            sent * 100.0,
            stated * 100.0
        );
        let may = if stated > 0.0 { stated * COUNTED } else { NOTHING };
        report.verdict((sent - stated).abs() <= may, &what);
    }
}

/// Who uses first copies is slowed least, and the default is not slowed either.
fn slowed(
    report: &mut Report,
    (all, measured): (&Measured, &Measured),
    (most, percent): (u64, u64),
    what: &str,
) {
    let left = |line| Some(measured.slowest.mean(line, percent)? / all.slowest.mean(line, most)?);
    let parts = READS.into_iter().chain(WRITES).filter_map(|line| Some((line, left(line)?)));
    let text: Vec<String> =
        parts.map(|(line, part)| format!("{line} {:.0} %", part * 100.0)).collect();
    let Some((primary, basic)) = left("graduated-primary").zip(left("graduated")) else { return };
    let Some(default) = left("proportional") else { return };
    let what = format!(
        "{what}: of what the slowest had with room to spare is left {} (aim: graduated-primary and proportional {:.0} %)",
        text.join(", "),
        ROOM * 100.0
    );
    report.verdict(primary >= basic && primary.min(default) >= ROOM, &what);
}

/// Behind slow links graduated writers are more even than those of the queue.
fn even(report: &mut Report, measured: &Measured, percent: u64, which: &str) {
    let of = |line| measured.evenness.mean(line, percent);
    let Some((graduated, queue)) = of("graduated write").zip(of(QUEUE)) else { return };
    let what = format!(
        "{which} at {percent} % of a disk: the slowest writer has {:.0} % of the fastest's rate with graduated writing, {:.0} % with the distributed queue (aim: {:.0} points more)",
        graduated * 100.0,
        queue * 100.0,
        MORE_EVEN * 100.0
    );
    report.verdict(graduated - queue >= MORE_EVEN, &what);
}
