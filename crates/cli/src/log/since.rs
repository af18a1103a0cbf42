//! The time from which lines are shown.

use crate::reliability::units::parse_hours;
use crate::text::utc_time;
use std::time::{SystemTime, UNIX_EPOCH};
use weir_types::Timestamp;

/// The beginning of a time in the form of the logs, 2026-11-26T14:30:00.123456Z. Such texts sort by
/// time. A shortened one is the beginning of its day, hour or minute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Since(String);

impl Since {
    /// Parses a time or duration as people write it.
    pub fn parse(text: &str) -> Result<Self, String> {
        Self::parse_at(text, now_s())
    }

    /// As [`Since::parse`], where `now` is in seconds since 1970.
    fn parse_at(text: &str, now: u64) -> Result<Self, String> {
        if let Ok(hours) = parse_hours(text) {
            return Ok(Self(log_time(now.saturating_sub((hours * 3600.0) as u64))));
        }
        let time = text.trim_end_matches('Z').replace(' ', "T");
        let today = log_time(now)[..10].to_owned();
        let time = if time.contains('-') { time } else { format!("{today}T{time}") };
        match is_of_form(&time) {
            true => Ok(Self(time)),
            false => Err("not a time: try 10m, 2h, 14:30 or 2026-11-26T14:30 (UTC)".to_owned()),
        }
    }

    /// Whether a line with this time is shown.
    pub fn includes(&self, time: &str) -> bool {
        time >= self.0.as_str()
    }
}

/// The present time in the form of the logs, to the second and without `Z`.
pub fn now_in_logs() -> String {
    log_time(now_s())
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn log_time(seconds: u64) -> String {
    utc_time(Timestamp::new(seconds as i64, 0)).trim_end_matches('Z').replace(' ', "T")
}

/// Whether a text is a date, or a date with hours and minutes and perhaps seconds.
fn is_of_form(time: &str) -> bool {
    const FORM: &str = "0000-00-00T00:00:00.000000";
    let fits =
        |(is, form): (char, char)| if form == '0' { is.is_ascii_digit() } else { is == form };
    matches!(time.len(), 10 | 16 | 19..=26) && time.chars().zip(FORM.chars()).all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_people_write_them() {
        let at = |text| Since::parse_at(text, 1_795_246_359).map(|since| since.0).ok();
        for (written, read) in [
            ("9s", "2026-11-21T07:32:30"),
            ("2h", "2026-11-21T05:32:39"),
            ("1d", "2026-11-20T07:32:39"),
            ("07:30", "2026-11-21T07:30"),
            ("2026-11-20", "2026-11-20"),
            ("2026-11-20 23:59:00Z", "2026-11-20T23:59:00"),
        ] {
            assert_eq!(at(written).as_deref(), Some(read), "{written}");
        }
        for bad in ["", "10", "yesterday", "2026-1-1", "7:3", "2026-11-20T", "25h30m"] {
            assert_eq!(at(bad), None, "{bad}");
        }
        assert!(Since("2026-11-20".into()).includes("2026-11-20T00:00:00.000000Z"));
        assert!(!Since("2026-11-20T00:00:01".into()).includes("2026-11-20T00:00:00.999999Z"));
    }
}
