//! Parses and writes durations, rates and probabilities as people do.

use crate::text::{ByteSize, human_duration, parse_size};
use weir_layout::set::SetCode;
use weir_reliability::{HOURS_PER_YEAR, Redundancy};

/// Parses a duration into hours: 40ms, 5s, 10m, 2h, 3d, 1y.
pub fn parse_hours(text: &str) -> Result<f64, String> {
    let text = text.trim();
    let unit_at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let hours = match unit {
        "ms" => 1.0 / 3_600_000.0,
        "s" => 1.0 / 3600.0,
        "m" => 1.0 / 60.0,
        "h" => 1.0,
        "d" => 24.0,
        "y" => HOURS_PER_YEAR,
        "" => return Err("a duration has a unit: ms, s, m, h, d or y".to_owned()),
        other => return Err(format!("unknown unit '{other}': use ms, s, m, h, d or y")),
    };
    match number.trim().parse::<f64>() {
        Ok(number) if number >= 0.0 && number.is_finite() => Ok(number * hours),
        _ => Err("not a duration: try 5s or 1000000h".to_owned()),
    }
}

/// Parses an annual rate into a fraction of 1: 4%.
pub fn parse_annual_rate(text: &str) -> Result<f64, String> {
    let percent = text.trim().strip_suffix('%').and_then(|p| p.trim().parse::<f64>().ok());
    match percent {
        Some(percent) if percent > 0.0 && percent < 100.0 => Ok(percent / 100.0),
        _ => Err("not a percentage above 0% and below 100%: try 4%".to_owned()),
    }
}

/// Parses a probability: 0, 1e-15.
pub fn parse_probability(text: &str) -> Result<f64, String> {
    match text.trim().parse::<f64>() {
        Ok(p) if (0.0..=1e-3).contains(&p) => Ok(p),
        _ => Err("not a probability from 0 to 0.001: try 1e-15".to_owned()),
    }
}

/// Parses a speed in bytes a second: 100MB/s.
pub fn parse_speed(text: &str) -> Result<ByteSize, String> {
    match parse_size(text.trim().strip_suffix("/s").unwrap_or(text))? {
        ByteSize(0) => Err("at 0 bytes a second a rebuild never ends".to_owned()),
        speed => Ok(speed),
    }
}

/// Parses a code: 8+2, or as `weir reduce` has them: raid6, raid5-mirror:16, rs:8+3.
pub fn parse_code(text: &str) -> Result<Redundancy, String> {
    if text.trim().starts_with('r') {
        return match text.trim().parse::<SetCode>().map_err(|e| e.to_string())? {
            SetCode::Raid5Mirror { members } => {
                Ok(Redundancy::Raid5Mirror { data: members as u32 })
            }
            code => {
                Ok(Redundancy::Code { data: code.members() as u32, parity: code.parities() as u32 })
            }
        };
    }
    let parts = text.trim().split_once('+');
    let numbers = parts.and_then(|(data, parity)| Some((data.parse().ok()?, parity.parse().ok()?)));
    let (data, parity) = numbers.ok_or("not a code: try 8+2, raid6 or raid5-mirror")?;
    Ok(Redundancy::Code { data, parity })
}

/// Writes a long time: 3.2 h, 22.3 d, 481 y, 1.3e9 y.
pub fn lifetime(hours: f64) -> String {
    let years = hours / HOURS_PER_YEAR;
    match () {
        () if hours < 48.0 => format!("{hours:.1} h"),
        () if years < 3.0 => format!("{:.1} d", hours / 24.0),
        () if years < 100.0 => format!("{years:.1} y"),
        () if years < 100_000.0 => format!("{years:.0} y"),
        () => format!("{years:.1e} y"),
    }
}

/// Writes a short time: 40ms, 5s, 11h06m, 180d.
pub fn duration(hours: f64) -> String {
    let seconds = hours * 3600.0;
    match () {
        () if seconds < 1.0 => format!("{:.0}ms", seconds * 1e3),
        () if seconds < 10.0 => format!("{}s", (seconds * 10.0).round() / 10.0),
        () => {
            let text = human_duration(seconds.round() as u64);
            let whole = ["00s", "00m", "00h"].iter().find_map(|zero| text.strip_suffix(zero));
            whole.map_or(text.clone(), str::to_owned)
        }
    }
}

/// Writes a probability: 0.95, 0.0031, 1.2e-9.
pub fn probability(p: f64) -> String {
    match () {
        () if p == 0.0 => "0".to_owned(),
        () if p >= 0.9995 => format!("{p:.3}"),
        () if p >= 1e-3 => format!("{p:.*}", (1.0 - p.log10().floor()) as usize),
        () => format!("{p:.1e}"),
    }
}

/// Writes an availability in percent with all its nines, given the unavailability as a fraction.
pub fn available(unavailability: f64) -> String {
    if unavailability < 1e-12 {
        return ">99.9999999999%".to_owned();
    }
    let decimals = (-unavailability.log10()).floor().clamp(1.0, 11.0) as usize;
    // Cut off (except for rounding errors): an availability below 100 % must not be shown as 100 %.
    let scale = f64::powi(10.0, decimals as i32);
    let percent = 100.0 - (unavailability * 100.0 * scale - 1e-6).ceil() / scale;
    format!("{percent:.decimals$}%")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_rates_and_codes_are_read() {
        assert_eq!(parse_hours("1000000h"), Ok(1e6));
        assert_eq!(parse_hours("1.5d"), Ok(36.0));
        assert_eq!(parse_hours("36 s"), Ok(0.01));
        assert_eq!(parse_hours("1y"), Ok(8760.0));
        for bad in ["", "5", "h", "-1h", "5 weeks", "1e999h", "nand"] {
            assert!(parse_hours(bad).is_err(), "{bad}");
        }
        assert_eq!(parse_annual_rate("4%"), Ok(0.04));
        for bad in ["4", "0%", "100%", "-3%", "x%"] {
            assert!(parse_annual_rate(bad).is_err(), "{bad}");
        }
        assert_eq!(parse_speed("100MB/s"), Ok(ByteSize(100_000_000)));
        assert!(parse_speed("0").is_err() && parse_speed("fast").is_err());
        assert_eq!(parse_code("8+2"), Ok(Redundancy::Code { data: 8, parity: 2 }));
        assert_eq!(parse_code("raid6"), parse_code("8+2"));
        assert_eq!(parse_code("rs:16+3"), parse_code("16+3"));
        assert_eq!(parse_code("raid5-mirror:16"), Ok(Redundancy::Raid5Mirror { data: 16 }));
        assert!(parse_code("raid7").is_err());
        assert!(parse_code("8").is_err() && parse_code("8+x").is_err());
        assert!(parse_probability("1e-15").is_ok() && parse_probability("1").is_err());
    }

    #[test]
    fn times_and_probabilities_are_short() {
        assert_eq!(lifetime(535.2), "22.3 d");
        assert_eq!(lifetime(8760.0 * 1.26e9), "1.3e9 y");
        assert_eq!(lifetime(8760.0 * 481.2), "481 y");
        assert_eq!(duration(40.0 / 3_600_000.0), "40ms");
        assert_eq!(duration(5.0 / 3600.0), "5s");
        assert_eq!(duration(11.1), "11h06m");
        assert_eq!(duration(8760.0), "365d");
        assert_eq!(duration(1.0), "1h");
        assert_eq!(probability(0.86), "0.86");
        assert_eq!(probability(0.0312), "0.031");
        assert_eq!(probability(1.26e-9), "1.3e-9");
        assert_eq!(probability(1.0), "1.000");
    }

    #[test]
    fn nothing_is_always_available() {
        assert_eq!(available(0.082), "91.8%");
        assert_eq!(available(0.0012), "99.88%");
        assert_eq!(available(4.1e-6), "99.99959%");
        assert_eq!(available(1e-15), ">99.9999999999%");
    }
}
