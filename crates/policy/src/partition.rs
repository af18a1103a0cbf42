//! The part of a file that a process reads (logical partitioning, 1.24): ranges, which may have
//! gaps between them and may overlap those of other processes. The progress of the process counts
//! bytes of these ranges only.

use std::fmt::{Display, Formatter};
use std::ops::Range;
use std::str::FromStr;

/// The most ranges of one process.
pub const MAX_RANGES: usize = 1024;

/// Ranges of a file. Invariant: ascending, not empty, not touching each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Partition {
    ranges: Vec<Range<u64>>,
}

impl Partition {
    /// The union of these ranges.
    pub fn new(ranges: impl IntoIterator<Item = Range<u64>>) -> Self {
        let mut all: Vec<Range<u64>> = ranges.into_iter().filter(|r| !r.is_empty()).collect();
        all.sort_by_key(|range| range.start);
        let mut ranges: Vec<Range<u64>> = Vec::with_capacity(all.len());
        for range in all {
            match ranges.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => ranges.push(range),
            }
        }
        Self { ranges }
    }

    /// The ranges, ascending.
    pub fn ranges(&self) -> &[Range<u64>] {
        &self.ranges
    }

    /// Number of bytes of `other` that the ranges contain.
    pub fn overlap(&self, other: Range<u64>) -> u64 {
        let first = self.ranges.partition_point(|range| range.end <= other.start);
        let met = self.ranges[first..].iter().take_while(|range| range.start < other.end);
        met.map(|range| range.end.min(other.end) - range.start.max(other.start)).sum()
    }
}

impl FromStr for Partition {
    type Err = String;

    /// Parses a text such as `0+64M,1G+64M`: offset and length of each range, in bytes, or in K, M,
    /// G or T (powers of 1024).
    fn from_str(text: &str) -> Result<Self, String> {
        let mut ranges = Vec::new();
        for part in text.split(',') {
            let what = || format!("{part:?} is no range such as 0+64M: an offset and a length");
            let (offset, length) = part.trim().split_once('+').ok_or_else(what)?;
            let (offset, length) = (bytes(offset).ok_or_else(what)?, bytes(length));
            let length = length.filter(|length| *length > 0).ok_or_else(what)?;
            let end = offset.checked_add(length).ok_or_else(what)?;
            if ranges.len() == MAX_RANGES {
                return Err(format!("more than {MAX_RANGES} ranges"));
            }
            ranges.push(offset..end);
        }
        Ok(Self::new(ranges))
    }
}

fn bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|unit: char| unit.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KIB" => 10,
        "M" | "MIB" => 20,
        "G" | "GIB" => 30,
        "T" | "TIB" => 40,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

impl Display for Partition {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        for (n, range) in self.ranges.iter().enumerate() {
            let comma = if n > 0 { "," } else { "" };
            write!(f, "{comma}{}+{}", range.start, range.end - range.start)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(text: &str) -> Result<String, String> {
        Partition::from_str(text).map(|partition| partition.to_string())
    }

    #[test]
    fn ranges_are_written_as_offset_and_length() {
        assert_eq!(of("0+64K").unwrap(), "0+65536");
        assert_eq!(of("1G+1M, 0+10,5+15").unwrap(), "0+20,1073741824+1048576");
        assert_eq!(of("0+10,10+10").unwrap(), "0+20", "they meet");
        for wrong in
            ["", "7", "0+0", "-1+5", "0+5x", "1+18446744073709551615", "0+99999999T", "a+b"]
        {
            assert!(of(wrong).is_err(), "{wrong}");
        }
        let many = (0..=MAX_RANGES).map(|n| format!("{}+1", 2 * n)).collect::<Vec<_>>().join(",");
        assert!(of(&many).unwrap_err().contains("1024"));
    }

    proptest! {
        #[test]
        fn overlaps_are_those_of_the_bytes(
            ranges in prop::collection::vec((0u64..200, 0u64..40), 0..12),
            other in (0u64..260, 0u64..60),
        ) {
            let partition = Partition::new(ranges.iter().map(|(at, len)| *at..at + len));
            let has = |byte: u64| ranges.iter().any(|(at, len)| (*at..at + len).contains(&byte));
            let (start, end) = (other.0, other.0 + other.1);
            let bytes = (start..end).filter(|byte| has(*byte)).count() as u64;
            prop_assert_eq!(partition.overlap(start..end), bytes);
            let apart = partition.ranges().windows(2).all(|pair| pair[0].end < pair[1].start);
            prop_assert!(apart);
            if partition != Partition::default() {
                prop_assert_eq!(partition.to_string().parse::<Partition>().unwrap(), partition);
            }
        }
    }
}
