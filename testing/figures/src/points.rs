//! What is compared: of each line and each x the values of all trials.

use crate::plot::Series;
use crate::report::{Report, Table};
use crate::statistics::Spread;
use std::collections::BTreeMap;
use std::io::Result;

/// The values of a plot.
#[derive(Default)]
pub struct Points {
    values: BTreeMap<(&'static str, u64), Vec<f64>>,
}

impl Points {
    pub fn add(&mut self, line: &'static str, x: u64, value: f64) {
        self.values.entry((line, x)).or_default().push(value);
    }

    pub fn mean(&self, line: &'static str, x: u64) -> Option<f64> {
        self.values.get(&(line, x)).map(|values| Spread::of(values).mean)
    }

    /// The greatest of all trials.
    pub fn most(&self, line: &'static str, x: u64) -> Option<f64> {
        self.values.get(&(line, x))?.iter().copied().reduce(f64::max)
    }

    /// Lines in this order; an x counts as so many of `unit`.
    pub fn series(&self, lines: &[&'static str], unit: f64) -> Vec<Series> {
        let points = |line: &&'static str| {
            let own = self.values.iter().filter(|((of, _), _)| of == line);
            own.map(|((_, x), values)| (*x as f64 / unit, Spread::of(values))).collect()
        };
        lines.iter().map(|line| Series::new((*line).into(), points(line))).collect()
    }

    /// Writes all of them to a table.
    pub fn write(&self, report: &Report, name: &str, x: &str) -> Result<()> {
        let head = format!("line,{x},mib_per_s,deviation,trials");
        let mut table: Table = report.table(name, &head)?;
        for ((line, x), values) in &self.values {
            let spread = Spread::of(values);
            let numbers = [spread.mean, spread.deviation].map(|n| format!("{n:.3}"));
            let key = [(*line).to_owned(), x.to_string()];
            table.row(&[&key[..], &numbers, &[values.len().to_string()]].concat())?;
        }
        Ok(())
    }
}
