//! Output to systemd's journal on standard error. Each line begins with its priority as
//! sd-daemon(3) describes, and the journal adds the time.

use rustix::fs::fstat;
use std::fmt;
use std::io;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::FmtContext;
use tracing_subscriber::fmt::format::{Format, FormatEvent, FormatFields, Full, Writer};
use tracing_subscriber::registry::LookupSpan;

/// Whether standard error is the journal. systemd names the journal's file in a variable, but a
/// child that inherits the variable may write to another file.
pub fn is_stderr() -> bool {
    let Ok(named) = std::env::var("JOURNAL_STREAM") else { return false };
    fstat(io::stderr()).is_ok_and(|is| named == format!("{}:{}", is.st_dev, is.st_ino))
}

/// The text of a failure for standard error, which may be the journal.
pub fn failure(text: &str) -> String {
    match is_stderr() {
        true => graded(text, &Level::ERROR),
        false => text.to_owned(),
    }
}

/// Lines with the priority of a level, for the journal.
pub fn graded(text: &str, level: &Level) -> String {
    let lines = text.lines().map(|line| format!("{}{line}", priority(level)));
    lines.collect::<Vec<String>>().join("\n")
}

/// Formats events for the journal.
pub struct ForJournal(Format<Full, ()>);

impl ForJournal {
    /// Each event names the module that logs it.
    pub fn new() -> Self {
        Self(Format::default().without_time().with_ansi(false))
    }
}

impl<S, N> FormatEvent<S, N> for ForJournal
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        writer.write_str(priority(event.metadata().level()))?;
        self.0.format_event(context, writer, event)
    }
}

fn priority(level: &Level) -> &'static str {
    match *level {
        Level::ERROR => "<3>",
        Level::WARN => "<4>",
        Level::INFO => "<6>",
        Level::DEBUG | Level::TRACE => "<7>",
    }
}
