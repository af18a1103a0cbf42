//! What the paper says of its figure, and whether it is so here.

use super::cells::{Cell, System};
use super::machines::Rates;
use super::results::Results;
use crate::report::Report;

/// Of all drives' rates (paper: 0.91).
const AIM: f64 = 0.99;
/// A curve is flat from so many drives on,
const FLAT_FROM: u32 = 4;
/// if it does not rise by more than this.
const FLAT: f64 = 1.10;

pub fn judge(report: &mut Report, results: &Results, drives: &[u32], rates: &Rates) {
    let most = drives.last().copied().unwrap_or(1);
    let (drive, disk) = (rates.drive as f64 / 1e6, rates.nfs_disk as f64 / 1e6);
    let rate = |system, drives| results.rate(&Cell::of(system, drives));
    for n in drives {
        let (rate, ideal) = (rate(System::Weir, *n), f64::from(*n) * drive);
        let what = format!(
            "Weir, {n} drives: {rate:.2} MB/s, efficiency {:.1} % of {n} x {drive:.2} (paper, 8: \
             {:.2}, 91 %)",
            100.0 * rate / ideal,
            45.0 / rates.scale
        );
        report.verdict(rate >= AIM * ideal, &what);
    }
    let (deep, ideal) = (Cell::deep(most), f64::from(most) * drive);
    let rate_of_deep = results.rate(&deep);
    let what = format!(
        "Weir, {most} drives, clients of {} producers: {rate_of_deep:.2} MB/s, efficiency {:.1} %",
        deep.producers,
        100.0 * rate_of_deep / ideal
    );
    report.verdict(rate_of_deep >= AIM * ideal, &what);
    for (system, paper) in [(System::Nfs, 20.2), (System::NfsParallel, 22.5)] {
        let flat = drives.iter().filter(|n| **n >= FLAT_FROM || **n == most);
        let all: Vec<f64> = flat.map(|n| rate(system, *n)).collect();
        let (first, last) =
            (all.first().copied().unwrap_or(0.0), all.last().copied().unwrap_or(0.0));
        let name = system.name();
        let numbers: Vec<String> =
            drives.iter().map(|n| format!("{n}: {:.2}", rate(system, *n))).collect();
        let (numbers, paper) = (numbers.join(", "), paper / rates.scale);
        let what = format!("{name} is flat: {numbers} MB/s by disks (paper {paper:.2})");
        report.verdict(last <= FLAT * first, &what);
        let ideal = f64::from(most) * disk;
        let what = format!(
            "{name}, {most} disks: efficiency {:.1} % of {most} x {disk:.2} (paper: less than half)",
            100.0 * last / ideal
        );
        report.verdict(last < ideal / 2.0, &what);
    }
    let (one, each) = (rate(System::Nfs, most), rate(System::NfsParallel, most));
    let what = format!(
        "NFS-parallel is above NFS: {each:.2} of {one:.2} MB/s, {:+.1} % (paper +11 %)",
        100.0 * (each / one - 1.0)
    );
    report.verdict(each > one, &what);
    for system in [System::Nfs, System::NfsParallel] {
        limits(report, results, Cell::of(system, most), rates);
    }
}

/// What limits the server: its processor, or its links.
fn limits(report: &mut Report, results: &Results, cell: Cell, rates: &Rates) {
    let (capped, whole) = (results.rate(&cell), results.rate(&cell.whole()));
    let links = rates.server_link as f64 / 1e6;
    let of_link = |cell: &Cell| {
        let all = results.of(cell);
        let bytes: u64 = all.iter().map(|measured| measured.link_bytes).sum();
        let seconds: f64 = all.iter().map(|measured| measured.seconds).sum();
        100.0 * bytes as f64 / seconds / rates.server_link as f64
    };
    let waited: f64 = results.of(&cell).iter().map(|measured| measured.waited_seconds).sum();
    let what = format!(
        "{} loses to its processor: {capped:.2} MB/s ({:.0} % of links of {links:.1} MB/s, threads \
         waited {waited:.1} s for the processor), {whole:.2} with all of it ({:.0} % of links)",
        cell.system.name(),
        of_link(&cell),
        of_link(&cell.whole())
    );
    report.verdict(capped < whole && waited > 0.0, &what);
}

/// All that was read came from disks.
pub fn cold(report: &mut Report, results: &Results) {
    let (bytes, disks) = results.all().fold((0, 0), |(bytes, disks), measured| {
        (bytes + measured.bytes, disks + measured.disk_bytes)
    });
    let what = format!(
        "caches were cold in {} rounds: disks gave {disks} bytes of {bytes}, by the kernel's counts",
        results.all().count()
    );
    report.verdict(disks >= bytes, &what);
}
