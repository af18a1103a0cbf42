//! Results as CSV, and their means.

use crate::grid::Row;
use crate::{Contender, Times};
use std::fmt::Write;

/// Means over the trials of one policy in one scenario with one number of nodes.
#[derive(Clone, Debug)]
pub struct Mean {
    /// The scenario.
    pub scenario: &'static str,
    /// Number of nodes.
    pub nodes: usize,
    /// The policy.
    pub contender: Contender,
    /// Number of trials.
    pub trials: usize,
    /// The slowest rank relative to the best possible: mean and standard deviation.
    pub times_bound: (f64, f64),
    /// Share of bytes that did not come from the first copy.
    pub backup_share: f64,
    /// Bytes per seek.
    pub bytes_per_turn: f64,
}

/// Means of rows in any order, sorted by number of nodes.
pub fn means(rows: &[Row]) -> Vec<Mean> {
    let mut groups: Vec<Vec<&Row>> = Vec::new();
    for row in rows {
        let is_same = |group: &&mut Vec<&Row>| {
            let of = group[0];
            (of.scenario.name, of.nodes, of.contender)
                == (row.scenario.name, row.nodes, row.contender)
        };
        match groups.iter_mut().find(is_same) {
            Some(group) => group.push(row),
            None => groups.push(vec![row]),
        }
    }
    groups.sort_by_key(|group| group[0].nodes);
    groups.iter().map(|group| mean(group)).collect()
}

fn mean(group: &[&Row]) -> Mean {
    let of = |value: &dyn Fn(&Row) -> f64| {
        group.iter().map(|row| value(row)).sum::<f64>() / group.len() as f64
    };
    let times = of(&Row::times_bound);
    let squares = of(&|row| (row.times_bound() - times).powi(2));
    // The standard deviation of a sample; a single value has none.
    let deviation = (squares * group.len() as f64 / (group.len().max(2) - 1) as f64).sqrt();
    let turns = of(&|row| row.outcome.turns as f64);
    Mean {
        scenario: group[0].scenario.name,
        nodes: group[0].nodes,
        contender: group[0].contender,
        trials: group.len(),
        times_bound: (times, deviation),
        backup_share: of(&|row| row.outcome.backup_share),
        bytes_per_turn: of(&|row| row.outcome.served_bytes as f64) / turns,
    }
}

/// CSV with a line for each run.
pub fn csv_of_runs(rows: &[Row]) -> String {
    let mut csv = String::from(
        "scenario,nodes,policy,trial,bound_s,slowest_s,times_bound,backup_share,turns,\
         longest_queue,choices,turn_decisions\n",
    );
    for row in rows {
        let Row { scenario, nodes, contender, trial, bound_us, outcome, costs } = row;
        _ = writeln!(
            csv,
            "{},{nodes},{:?},{trial},{:.4},{:.4},{:.4},{:.4},{},{},{},{}",
            scenario.name,
            contender.name,
            bound_us / 1e6,
            outcome.slowest_us as f64 / 1e6,
            row.times_bound(),
            outcome.backup_share,
            outcome.turns,
            outcome.longest_queue,
            costs.choices.decisions,
            costs.turns.decisions,
        );
    }
    csv
}

/// CSV with a line for each mean.
pub fn csv_of_means(means: &[Mean]) -> String {
    let mut csv = String::from(
        "scenario,nodes,policy,trials,times_bound_mean,times_bound_deviation,backup_share,\
         mib_per_turn\n",
    );
    for mean in means {
        _ = writeln!(
            csv,
            "{},{},{:?},{},{:.4},{:.4},{:.4},{:.2}",
            mean.scenario,
            mean.nodes,
            mean.contender.name,
            mean.trials,
            mean.times_bound.0,
            mean.times_bound.1,
            mean.backup_share,
            mean.bytes_per_turn / f64::from(1 << 20),
        );
    }
    csv
}

/// CSV with a line for each policy and number of nodes.
pub fn csv_of_times(times: &[(Contender, usize, Times)]) -> String {
    let mut csv = String::from("policy,nodes,choice_ns,turn_ns\n");
    for (contender, nodes, Times { choice_ns, turn_ns }) in times {
        _ = writeln!(csv, "{:?},{nodes},{choice_ns:.1},{turn_ns:.1}", contender.name);
    }
    csv
}

/// Markdown with a table for each scenario: policies down, numbers of nodes across.
pub fn markdown(means: &[Mean]) -> String {
    let mut text = String::new();
    let mut left: Vec<&Mean> = means.iter().collect();
    while let Some(first) = left.first().copied() {
        let (these, others): (Vec<_>, Vec<_>) =
            left.into_iter().partition(|mean| mean.scenario == first.scenario);
        left = others;
        table_of(&mut text, &these);
    }
    text
}

fn table_of(text: &mut String, means: &[&Mean]) {
    let columns: Vec<_> =
        means.iter().filter(|mean| mean.contender == means[0].contender).collect();
    _ = write!(text, "| {} |", means[0].scenario);
    columns.iter().for_each(|mean| _ = write!(text, " {} |", mean.nodes));
    _ = writeln!(text, " backup | MiB a turn |\n|---|{}", "---|".repeat(columns.len() + 2));
    for first in means.iter().filter(|mean| mean.nodes == means[0].nodes) {
        let row: Vec<_> = means.iter().filter(|m| m.contender == first.contender).collect();
        _ = write!(text, "| {} |", first.contender.name);
        for mean in &row {
            _ = write!(text, " {:.2} ± {:.2} |", mean.times_bound.0, mean.times_bound.1);
        }
        if let Some(last) = row.last() {
            let (share, turn) = (last.backup_share * 100.0, last.bytes_per_turn);
            _ = writeln!(text, " {share:.1} % | {:.1} |", turn / f64::from(1 << 20));
        }
    }
    text.push('\n');
}
