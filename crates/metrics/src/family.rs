//! The description of a metric: name, kind, labels and help text.

/// How the values of a metric behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The value only grows, from 0 when the process starts.
    Counter,
    /// The value goes up and down.
    Gauge,
    /// Counts of durations, in buckets by length.
    Histogram,
}

impl Kind {
    /// The name of this kind in the Prometheus text format.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// A metric family: all values of one metric name.
#[derive(Debug)]
pub struct Family {
    /// Name of the metric, with the unit last.
    pub name: &'static str,
    /// How the values behave.
    pub kind: Kind,
    /// The names of the labels, in the order in which values give them.
    pub labels: &'static [&'static str],
    /// The help text: one sentence without a full stop.
    pub help: &'static str,
}
