//! The tables: on the terminal, as Markdown, as JSON.

use crate::accounting::Group;
use crate::args::Plan;
use crate::coding::Line;
use crate::judge::{Bound, Orientation, Ratio, Verdicts, disturbance};
use crate::machine::Machine;
use crate::sample::{Results, Sample, Series};
use crate::ways::{Row, Via};
use serde_json::json;
use std::fmt::Write;

/// Share of other processes from which on figures are doubtful.
const DISTURBED: f64 = 0.05;

fn speed_text(row: Row, speed: f64) -> String {
    if row.counts_calls() { format!("{speed:.0}") } else { format!("{speed:.2}") }
}

fn cpu_text(row: Row, cpu: f64) -> String {
    if row.counts_calls() { format!("{cpu:.1}") } else { format!("{cpu:.3}") }
}

fn units(row: Row) -> (&'static str, &'static str) {
    if row.counts_calls() { ("per s", "CPU µs") } else { ("GB/s", "CPU s/GB") }
}

/// The CPU time by group, as in `data 0.2 mount 0.1`.
fn split(row: Row, series: &Series) -> String {
    let shares = Group::ALL.iter().filter_map(|group| {
        let cpu = series.cpu_of(row, *group)?;
        let text = cpu_text(row, cpu);
        (text.bytes().any(|b| (b'1'..=b'9').contains(&b)))
            .then(|| format!("{} {text}", group.name()))
    });
    let mut shares: Vec<String> = shares.collect();
    // Bytes that were prefetched and dropped.
    let wire = series.median(|s| s.loopback_bytes as f64 / s.bytes.max(1) as f64);
    if let Some(wire) = wire.filter(|wire| !row.counts_calls() && *wire > 1.02) {
        shares.push(format!("(on the wire {wire:.2}×)"));
    }
    if let Row::Protocols1 | Row::Protocols4 = row
        && let Some(written) = series.median(Sample::written_gb_per_s)
    {
        shares.push(format!("(written at {written:.2} GB/s before the sync)"));
    }
    shares.join("  ")
}

fn spread(row: Row, series: &Series) -> String {
    let of = |s: &Sample| if row.counts_calls() { s.ops_per_s() } else { s.gb_per_s() };
    let (low, high) = series.range(of);
    format!("{}-{}", speed_text(row, low), speed_text(row, high))
}

/// Prints a row when it is measured.
pub fn print_row(row: Row, list: &[(Via, Series)]) {
    let (speed_unit, cpu_unit) = units(row);
    println!("\n{:34} {speed_unit:>8}  {:>15}  {cpu_unit:>8}  of which", row.title(), "(range)");
    for (via, series) in list {
        match (series.speed(row), series.cpu(row)) {
            (Some(speed), Some(cpu)) => println!(
                "  {:32} {:>8}  {:>15}  {:>8}  {}",
                via.title(),
                speed_text(row, speed),
                spread(row, series),
                cpu_text(row, cpu),
                split(row, series)
            ),
            _ => println!(
                "  {:32} failed: {}",
                via.title(),
                series.failure.as_deref().and_then(|f| f.lines().next()).unwrap_or("no sample")
            ),
        }
    }
}

fn bound_text(ratio: &Ratio) -> (String, &'static str) {
    let bound = match ratio.bound {
        Bound::AtMost(most) => format!("≤ {most:.2}"),
        Bound::AtLeast(least) => format!("≥ {least:.2}"),
        Bound::None => String::new(),
    };
    let verdict = match ratio.passes() {
        Some(true) => "PASS",
        Some(false) => "FAIL",
        None => "",
    };
    (bound, verdict)
}

/// A figure, its reference, the other figure, its reference.
fn orientation_texts(line: &Orientation) -> [String; 4] {
    [
        speed_text(line.row, line.speed),
        format!("≥ {}", speed_text(line.row, line.speed_aim)),
        cpu_text(line.row, line.cpu),
        line.cpu_aim.map_or(String::new(), |aim| format!("≤ {}", cpu_text(line.row, aim))),
    ]
}

fn remarks(results: &Results) -> String {
    let mut out = String::new();
    for (row, why) in &results.left_out {
        let _ = writeln!(out, "left out: {}: {why}", row.title());
    }
    let others = disturbance(results);
    if others > DISTURBED {
        let _ = writeln!(
            out,
            "other processes, or threads of the kernel, used up to {:.0} % of the machine meanwhile",
            others * 100.0
        );
    }
    out
}

/// The verdicts, for a terminal.
pub fn text(results: &Results, verdicts: &Verdicts) -> String {
    let mut out = String::new();
    if !verdicts.ratios.is_empty() {
        out.push_str("\nratios to the limits of this run\n");
    }
    for ratio in &verdicts.ratios {
        let (bound, verdict) = bound_text(ratio);
        let (title, value) = (ratio.row.title(), ratio.value);
        let _ = writeln!(out, "  {title:36}{value:6.2}  {bound:7} {verdict:5} {}", ratio.what);
    }
    if !verdicts.orientations.is_empty() {
        out.push_str("\norientation figures of one machine (2 cores AMD EPYC)\n");
    }
    for line in &verdicts.orientations {
        let [speed, speed_aim, cpu, cpu_aim] = orientation_texts(line);
        let _ = writeln!(
            out,
            "  {:36}{:21}{speed:>8} {speed_aim:9} {cpu:>8} {cpu_aim:9} {}",
            line.row.title(),
            line.via.title(),
            line.verdict()
        );
    }
    out + "\n" + &remarks(results)
}

/// The verdicts as Markdown.
pub fn markdown(machine: &Machine, results: &Results, verdicts: &Verdicts) -> String {
    let mut out = format!("{machine}. {}.\n\n", results.accounting);
    out.push_str("| row | way | speed | CPU | of which |\n|---|---|---|---|---|\n");
    for (row, list) in &results.rows {
        let (speed_unit, cpu_unit) = units(*row);
        let mut title = row.title();
        for (via, series) in list {
            let (Some(speed), Some(cpu)) = (series.speed(*row), series.cpu(*row)) else { continue };
            let weight = if via.is_weir() { "**" } else { "" };
            let _ = writeln!(
                out,
                "| {title} | {} | {weight}{} {speed_unit}{weight} | {weight}{} {}{weight} | {} |",
                via.title(),
                speed_text(*row, speed),
                cpu_text(*row, cpu),
                cpu_unit.trim_start_matches("CPU "),
                split(*row, series)
            );
            title = "";
        }
    }
    if !verdicts.ratios.is_empty() {
        out.push_str("\n| row | ratio | is | to reach | |\n|---|---|---|---|---|\n");
    }
    for ratio in &verdicts.ratios {
        let (bound, verdict) = bound_text(ratio);
        let (title, what, value) = (ratio.row.title(), &ratio.what, ratio.value);
        let _ = writeln!(out, "| {title} | {what} | {value:.2} | {bound} | {verdict} |");
    }
    if !verdicts.orientations.is_empty() {
        out.push_str("\n| row | way | speed | orientation | CPU | orientation | |\n");
        out.push_str("|---|---|---|---|---|---|---|\n");
    }
    for line in &verdicts.orientations {
        let [speed, speed_aim, cpu, cpu_aim] = orientation_texts(line);
        let (row, via, verdict) = (line.row.title(), line.via.title(), line.verdict());
        let _ = writeln!(
            out,
            "| {row} | {via} | {speed} | {speed_aim} | {cpu} | {cpu_aim} | {verdict} |"
        );
    }
    let remarks = remarks(results);
    if remarks.is_empty() { out } else { out + "\n" + &remarks }
}

/// All results as JSON.
pub fn json(
    machine: &Machine,
    plan: &Plan,
    (results, coding): (&Results, &[Line]),
    verdicts: &Verdicts,
) -> String {
    let rows: Vec<_> = results
        .rows
        .iter()
        .flat_map(|(row, list)| list.iter().map(move |(via, series)| (*row, *via, series)))
        .map(|(row, via, series)| {
            json!({
                "row": row, "via": via, "speed_unit": units(row).0, "cpu_unit": units(row).1,
                "speed": series.speed(row), "cpu": series.cpu(row), "series": series,
            })
        })
        .collect();
    let all = json!({
        "machine": machine, "accounting": results.accounting, "size_bytes": plan.size_bytes,
        "rounds": plan.rounds, "files": plan.files, "rows": rows, "verdicts": verdicts,
        "coding": coding,
    });
    format!("{all:#}\n")
}
