//! Sizes, times, names and tables for people.

use std::fmt::Write as _;
use std::io::IsTerminal;
use std::time::Duration;
use weir_types::Timestamp;

/// A number of bytes from the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteSize(pub u64);

/// Parses the name of a failure domain.
pub fn parse_domain(text: &str) -> Result<String, String> {
    weir_types::check_domain(text).map(|()| text.to_owned()).map_err(|error| error.message)
}

/// Parses a size as people write it.
pub fn parse_size(text: &str) -> Result<ByteSize, String> {
    weir_types::size::parse_size(text).map(ByteSize)
}

/// A size in the form of `ls -h` and `df -h`: 1.5K, 20M, 3.0G.
pub fn human_size(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut unit = "";
    for next in ["K", "M", "G", "T", "P", "E"] {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    match unit {
        "" => bytes.to_string(),
        _ if value < 9.95 => format!("{value:.1}{unit}"),
        _ => format!("{value:.0}{unit}"),
    }
}

/// A duration as 45s, 3m20s, 5h07m or 12d03h.
pub fn human_duration(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match () {
        () if days > 0 => format!("{days}d{:02}h", hours % 24),
        () if hours > 0 => format!("{hours}h{:02}m", minutes % 60),
        () if minutes > 0 => format!("{minutes}m{:02}s", seconds % 60),
        () => format!("{seconds}s"),
    }
}

/// A time as `YYYY-MM-DD HH:MM:SSZ`, in UTC.
pub fn utc_time(time: Timestamp) -> String {
    let (days, second) = (time.seconds().div_euclid(86_400), time.seconds().rem_euclid(86_400));
    let (year, month, day) = civil_date(days);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{:02}Z", second % 60)
}

/// Year, month and day of a count of days since 1970-01-01 (H. Hinnant, "chrono
/// compatible low-level date algorithms").
fn civil_date(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// The mode of a file as `ls -l` writes it.
pub fn mode_string(kind_letter: char, mode: u16) -> String {
    let mut text = String::from(kind_letter);
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (bits & 1 != 0, mode & special != 0) {
            (true, true) => letter,
            (false, true) => letter.to_ascii_uppercase(),
            (true, false) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// Text from elsewhere, on one line and without characters that control a terminal.
pub fn plain(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() { shown.extend(c.escape_unicode()) } else { shown.push(c) }
    }
    shown
}

/// As [`plain`], but keeps the lines of the text.
pub fn plain_lines(text: &str) -> String {
    text.split('\n').map(plain).collect::<Vec<_>>().join("\n")
}

/// A name for standard output: unchanged for a program, made plain for a terminal, as ls(1) does.
pub fn named(name: String) -> String {
    named_for(name, std::io::stdout().is_terminal())
}

fn named_for(name: String, is_terminal: bool) -> String {
    if is_terminal { plain(&name) } else { name }
}

/// Rows with columns as wide as their widest cell. The columns whose title
/// begins with `>` are aligned right.
#[derive(Debug)]
pub struct Table {
    titles: Vec<&'static str>,
    headed: bool,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table with these titles.
    pub fn new(titles: &[&'static str]) -> Self {
        Self { titles: titles.to_vec(), headed: true, rows: Vec::new() }
    }

    /// An empty table that shows no titles. They say only which columns are aligned right.
    pub fn without_titles(titles: &[&'static str]) -> Self {
        Self { headed: false, ..Self::new(titles) }
    }

    /// Adds a row. It must have as many cells as there are titles.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// The table as lines of text.
    pub fn render(&self) -> String {
        let titles = self.titles.iter().map(|t| t.trim_start_matches('>').to_owned()).collect();
        let head = Some(&titles).filter(|_| self.headed);
        let lines: Vec<&Vec<String>> = head.into_iter().chain(&self.rows).collect();
        let width = |i: usize| {
            lines.iter().filter_map(|l| l.get(i)).map(|c| c.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.titles.len()).map(width).collect();
        let gap = if self.headed { "  " } else { " " };
        let mut text = String::new();
        for line in lines {
            let mut row = String::new();
            for (i, cell) in line.iter().enumerate() {
                let right = self.titles.get(i).is_some_and(|t| t.starts_with('>'));
                let width = widths.get(i).copied().unwrap_or(0);
                // Writing to a String cannot fail.
                let _ = match right {
                    true => write!(row, "{cell:>width$}{gap}"),
                    false => write!(row, "{cell:<width$}{gap}"),
                };
            }
            text.push_str(row.trim_end());
            text.push('\n');
        }
        text
    }
}

/// Parses `20s`, `1500ms`, `2m` or a number of seconds.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| "not a duration: try 20s".to_owned())?;
    let ms = match unit {
        "ms" => Some(number),
        "" | "s" => number.checked_mul(1000),
        "m" => number.checked_mul(60_000),
        other => return Err(format!("unknown unit '{other}': use ms, s or m")),
    };
    match ms {
        Some(ms @ 1..=3_600_000) => Ok(Duration::from_millis(ms)),
        _ => Err("must be from 1 ms to 60 m".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_nothing_to_a_terminal_and_are_what_they_are_to_programs() {
        let name = "a\u{1b}]0;title\u{7}\n\u{9b}31mb".to_owned();
        assert_eq!(named_for(name.clone(), false), name);
        let plain = r"a\u{1b}]0;title\u{7}\u{a}\u{9b}31mb";
        assert_eq!(named_for(name, true), plain);
        assert_eq!(plain_lines("one\n\u{1b}[2Jtwo\n"), "one\n\\u{1b}[2Jtwo\n");
    }

    #[test]
    fn sizes_are_read_and_written_as_people_do() {
        assert_eq!(parse_size("64K"), Ok(ByteSize(65536)));
        assert_eq!(parse_size("1GB"), Ok(ByteSize(1_000_000_000)));
        assert_eq!(human_size(1023), "1023");
        assert_eq!(human_size(1536), "1.5K");
        assert_eq!(human_size(20 << 20), "20M");
        assert_eq!(human_size(1 << 40), "1.0T");
    }

    #[test]
    fn times_agree_with_the_calendar() {
        assert_eq!(utc_time(Timestamp::new(0, 0)), "1970-01-01 00:00:00Z");
        assert_eq!(utc_time(Timestamp::new(951_782_400, 0)), "2000-02-29 00:00:00Z");
        assert_eq!(utc_time(Timestamp::new(1_795_246_359, 5)), "2026-11-21 07:32:39Z");
        assert_eq!(utc_time(Timestamp::new(-1, 0)), "1969-12-31 23:59:59Z");
    }

    #[test]
    fn modes_look_like_those_of_ls() {
        assert_eq!(mode_string('-', 0o644), "-rw-r--r--");
        assert_eq!(mode_string('d', 0o1777), "drwxrwxrwt");
        assert_eq!(mode_string('-', 0o4644), "-rwSr--r--");
    }

    #[test]
    fn tables_line_up() {
        let mut table = Table::new(&["NAME", ">SIZE"]);
        table.row(vec!["a".into(), "12345".into()]);
        table.row(vec!["long name".into(), "1".into()]);
        assert_eq!(table.render(), "NAME        SIZE\na          12345\nlong name      1\n");
    }

    #[test]
    fn durations_have_units() {
        let ms = |text| parse_duration(text).map(|d| d.as_millis()).ok();
        assert_eq!(ms("20s"), Some(20_000));
        assert_eq!(ms("20"), Some(20_000));
        assert_eq!(ms("1500ms"), Some(1500));
        assert_eq!(ms("2m"), Some(120_000));
        for bad in ["", "s", "0s", "5h", "-1s", "99999999999999999999s", "61m"] {
            assert_eq!(ms(bad), None, "{bad}");
        }
    }
}
