//! What a simulation may do on its own.

use std::ops::Range;
use std::time::Duration;

/// The odds and limits of a simulation. Rates are per million occasions.
#[derive(Clone, Debug)]
pub struct Options {
    /// Stack of a thread, bytes; touched only as far as it is used.
    pub stack_bytes: usize,
    /// How long a thread that was woken waits for a processor. This alone
    /// makes the order in which threads run differ from seed to seed.
    pub wake_delay: Range<Duration>,
    /// How often that takes much longer, per million.
    pub stall_ppm: u32,
    /// How long it takes then.
    pub stall: Range<Duration>,
    /// How often a thread gives way to others where it takes a lock, per million.
    pub preempt_ppm: u32,
    /// Time that a message takes between two nodes.
    pub delay: Range<Duration>,
    /// Time that a message takes within a node.
    pub loopback_delay: Range<Duration>,
    /// Bytes of a connection that may be on their way or unread.
    pub send_buffer_bytes: Range<usize>,
    /// How often what was sent in one call arrives in pieces, per million.
    pub split_ppm: u32,
    /// How often a connection breaks when something is sent, per million.
    pub reset_ppm: u32,
    /// What to keep of the history.
    pub trace: Trace,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            stack_bytes: 512 << 10,
            wake_delay: Duration::from_nanos(500)..Duration::from_micros(5),
            stall_ppm: 500,
            stall: Duration::from_micros(50)..Duration::from_millis(5),
            preempt_ppm: 10_000,
            delay: Duration::from_micros(50)..Duration::from_micros(500),
            loopback_delay: Duration::from_micros(5)..Duration::from_micros(30),
            send_buffer_bytes: (64 << 10)..(256 << 10),
            split_ppm: 200_000,
            reset_ppm: 0,
            trace: Trace::Off,
        }
    }
}

/// What becomes of the lines that tell what happens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trace {
    /// None are made.
    #[default]
    Off,
    /// The last so many are kept: see [`crate::Simulation::trace_lines`].
    Last(usize),
    /// They are printed on standard error at once.
    Print,
}

/// Times in nanoseconds, both ends included.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    min: u64,
    max: u64,
}

impl Span {
    pub(crate) fn pick(self, rng: &mut fastrand::Rng) -> u64 {
        if self.min == self.max { self.min } else { rng.u64(self.min..=self.max) }
    }
}

impl From<&Range<Duration>> for Span {
    fn from(range: &Range<Duration>) -> Self {
        let min = nanos(range.start);
        Self { min, max: nanos(range.end).max(min) }
    }
}

/// A duration in nanoseconds; what is too long for the type is for ever.
pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// True so many times in a million.
pub(crate) fn chance(rng: &mut fastrand::Rng, ppm: u32) -> bool {
    ppm > 0 && rng.u32(0..1_000_000) < ppm
}
