//! The text format of Prometheus, version 0.0.4.

use crate::family::{Family, Kind};
use crate::histogram::{BOUNDS_US, Times};
use std::fmt::Write as _;

/// A page of metrics: the body of the reply to a scrape.
#[derive(Debug, Default)]
pub struct Page {
    text: String,
}

/// Writes the values of one family.
#[derive(Debug)]
pub struct Samples<'a> {
    text: &'a mut String,
    family: &'static Family,
}

impl Page {
    /// Begins a family: its help and type are written even if no value follows. At most once per
    /// family.
    pub fn family(&mut self, family: &'static Family) -> Samples<'_> {
        let Family { name, kind, help, .. } = family;
        // Writing to a String cannot fail.
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {}", kind.name());
        Samples { text: &mut self.text, family }
    }

    /// Writes a family of one value without labels.
    pub fn value(&mut self, family: &'static Family, value: f64) {
        self.family(family).value(&[], value);
    }

    /// Writes a family of one whole number without labels.
    pub fn number(&mut self, family: &'static Family, number: u64) {
        self.family(family).number(&[], number);
    }

    /// The text of the page.
    pub fn into_text(self) -> String {
        self.text
    }
}

impl Samples<'_> {
    /// Writes a value with the values of its labels.
    pub fn value(&mut self, labels: &[&str], value: f64) {
        self.sample("", labels, None, &value.to_string());
    }

    /// Writes a whole number with the values of its labels.
    pub fn number(&mut self, labels: &[&str], number: u64) {
        self.sample("", labels, None, &number.to_string());
    }

    /// Writes all buckets of a histogram with the values of its labels.
    pub fn times(&mut self, labels: &[&str], times: &Times) {
        debug_assert_eq!(self.family.kind, Kind::Histogram);
        let mut below = 0;
        let bounds = BOUNDS_US.iter().map(|us| (*us as f64 / 1e6).to_string());
        for (count, bound) in times.buckets.iter().zip(bounds.chain(["+Inf".to_owned()])) {
            below += count;
            self.sample("_bucket", labels, Some(&bound), &below.to_string());
        }
        self.sample("_sum", labels, None, &(times.sum_us as f64 / 1e6).to_string());
        self.sample("_count", labels, None, &below.to_string());
    }

    fn sample(&mut self, suffix: &str, values: &[&str], bound: Option<&str>, value: &str) {
        let Family { name, labels, .. } = self.family;
        debug_assert_eq!(labels.len(), values.len(), "{name}");
        let own = labels.iter().copied().zip(values.iter().copied());
        let all = own.chain(bound.map(|bound| ("le", bound)));
        self.text.push_str(name);
        self.text.push_str(suffix);
        let mut before = '{';
        for (label, value) in all {
            self.text.push(before);
            before = ',';
            let _ = write!(self.text, "{label}=\"{}\"", escape(value));
        }
        if before == ',' {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
    }
}

fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Histogram;
    use std::time::Duration;

    static PLAIN: Family =
        Family { name: "weir_a_bytes", kind: Kind::Gauge, labels: &[], help: "A" };
    static NAMED: Family =
        Family { name: "weir_b_total", kind: Kind::Counter, labels: &["x", "y"], help: "B" };
    static TIMED: Family =
        Family { name: "weir_c_seconds", kind: Kind::Histogram, labels: &["x"], help: "C" };

    #[test]
    fn values_labels_and_histograms_are_written_as_prometheus_reads_them() {
        let mut page = Page::default();
        page.value(&PLAIN, 1.5);
        page.family(&NAMED).number(&["1", "a\"\\\n"], u64::MAX);
        let histogram = Histogram::default();
        histogram.add(Duration::from_millis(2));
        page.family(&TIMED).times(&["z"], &histogram.times());
        let text = page.into_text();
        let begin = "# HELP weir_a_bytes A\n# TYPE weir_a_bytes gauge\nweir_a_bytes 1.5\n\
                     # HELP weir_b_total B\n# TYPE weir_b_total counter\n\
                     weir_b_total{x=\"1\",y=\"a\\\"\\\\\\n\"} 18446744073709551615\n";
        assert!(text.starts_with(begin), "{text}");
        for line in [
            "weir_c_seconds_bucket{x=\"z\",le=\"0.00005\"} 0",
            "weir_c_seconds_bucket{x=\"z\",le=\"0.001\"} 0",
            "weir_c_seconds_bucket{x=\"z\",le=\"0.0025\"} 1",
            "weir_c_seconds_bucket{x=\"z\",le=\"+Inf\"} 1",
            "weir_c_seconds_sum{x=\"z\"} 0.002",
            "weir_c_seconds_count{x=\"z\"} 1",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} not in {text}");
        }
    }
}
