//! What is said of a metric beside its values.

/// How the values of a metric behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It grows, from 0 when the process starts.
    Counter,
    /// It goes up and down.
    Gauge,
    /// Counts of times, by how long they were.
    Histogram,
}

impl Kind {
    /// Its name in the text format.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// A metric: all values of one name.
#[derive(Debug)]
pub struct Family {
    /// Its name, with the unit last.
    pub name: &'static str,
    /// How its values behave.
    pub kind: Kind,
    /// The labels of each value, in this order.
    pub labels: &'static [&'static str],
    /// What it says, in a sentence without a full stop.
    pub help: &'static str,
}
