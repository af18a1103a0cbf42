//! Standard error that is systemd's journal: each line says how grave it is, as sd-daemon(3) wants
//! it, and leaves the time to the journal.

use rustix::fs::fstat;
use std::fmt;
use std::io;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::FmtContext;
use tracing_subscriber::fmt::format::{Format, FormatEvent, FormatFields, Full, Writer};
use tracing_subscriber::registry::LookupSpan;

/// Whether this is so: systemd says which file the journal is, and who has got that word from a
/// parent may write elsewhere.
pub fn is_stderr() -> bool {
    let Ok(named) = std::env::var("JOURNAL_STREAM") else { return false };
    fstat(io::stderr()).is_ok_and(|is| named == format!("{}:{}", is.st_dev, is.st_ino))
}

/// A failure as standard error is to have it, journal or not.
pub fn failure(text: &str) -> String {
    match is_stderr() {
        true => graded(text, &Level::ERROR),
        false => text.to_owned(),
    }
}

/// Lines of a level as the journal is to have them.
pub fn graded(text: &str, level: &Level) -> String {
    let lines = text.lines().map(|line| format!("{}{line}", priority(level)));
    lines.collect::<Vec<String>>().join("\n")
}

/// How the journal has each event.
pub struct ForJournal(Format<Full, ()>);

impl ForJournal {
    /// With the part of the program that says it.
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
