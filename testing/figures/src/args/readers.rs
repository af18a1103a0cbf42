//! Experiments with as many readers as disks.

use super::{Common, Line, faults, size, two_calls};
use clap::Args;
use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

/// What they have in common.
#[derive(Args, Clone)]
pub struct Readers {
    #[command(flatten)]
    pub common: Common,
    /// Disks, each with a data server; as many readers
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(2..=64))]
    pub disks: u32,
    /// Bytes that each reads, or that they read on average
    #[arg(long, value_parser = size, default_value = "80MiB")]
    pub file: u64,
    /// Bytes of a call [default: 64KiB,1MiB, with --quick 1MiB]
    #[arg(long, value_parser = size, value_delimiter = ',')]
    pub calls: Vec<u64>,
    /// Numbers of perturbed disks [default: 0, 1, 2, 4, ... all, with --quick 0, 1, all;
    /// adjacent-faults: 1, 2, 3]
    #[arg(long, value_delimiter = ',')]
    pub faults: Vec<u32>,
}

impl Readers {
    pub fn calls(&self) -> Vec<u64> {
        two_calls(&self.calls, self.common.quick)
    }

    pub fn faults(&self) -> Vec<u32> {
        faults(&self.faults, self.disks, self.common.quick)
    }
}

#[derive(Args, Clone)]
pub struct EvenReads {
    #[command(flatten)]
    pub readers: Readers,
    /// Policies
    #[arg(long, value_enum, value_delimiter = ',',
        default_values = ["primary", "graduated", "graduated-primary", "proportional"])]
    pub lines: Vec<Line>,
    /// Readers know nothing of each other; else they are processes of one job
    #[arg(long)]
    pub no_job: bool,
    /// Perturbers come and go every so many seconds; 0: they stay
    #[arg(long, default_value_t = 0)]
    pub turn: u64,
    /// On machines of this profile (`weir testbed profiles`), whose links readers are behind
    #[arg(long)]
    pub profile: Option<String>,
}

/// Readers of a file each on disks whose inner tracks give less.
#[derive(Args, Clone)]
pub struct ZonedReads {
    #[command(flatten)]
    pub common: Common,
    /// Disks, each with a data server: equal parts of a drive, from outside to inside
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(2..=64))]
    pub disks: u32,
    /// Bytes of each reader's file
    #[arg(long, value_parser = size, default_value = "48MiB")]
    pub file: u64,
    /// What the innermost track gives of the outermost, per cent; the default is River's
    #[arg(long, default_value_t = 58, value_parser = clap::value_parser!(u64).range(1..=100))]
    pub inner: u64,
}

#[derive(Args, Clone)]
pub struct Partitions {
    #[command(flatten)]
    pub readers: Readers,
    /// Policies
    #[arg(long, value_enum, value_delimiter = ',',
        default_values = ["primary", "graduated", "graduated-primary", "proportional"])]
    pub lines: Vec<Line>,
    /// What readers of even and of odd numbers read [default: 1:1,1:1.5,1:2, with --quick 1:1,1:2]
    #[arg(long, value_delimiter = ',')]
    pub ratios: Vec<Ratio>,
}

impl Partitions {
    pub fn ratios(&self) -> Vec<Ratio> {
        ratios(&self.ratios, self.readers.common.quick)
    }
}

/// Of parts: those that were asked for, or the paper's.
pub fn ratios(asked: &[Ratio], quick: bool) -> Vec<Ratio> {
    let usual: &[f64] = if quick { &[1.0, 2.0] } else { &[1.0, 1.5, 2.0] };
    match asked {
        [] => usual.iter().map(|odd| Ratio { even: 1.0, odd: *odd }).collect(),
        ratios => ratios.to_vec(),
    }
}

#[derive(Args, Clone)]
pub struct AdjacentFaults {
    #[command(flatten)]
    pub readers: Readers,
    /// Policies
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["proportional"])]
    pub lines: Vec<Line>,
    /// Numbers of copies
    #[arg(long, value_delimiter = ',', default_values_t = [2, 3],
        value_parser = clap::value_parser!(u8).range(1..=8))]
    pub copies: Vec<u8>,
}

/// Of two parts, as `1:1.5`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    pub even: f64,
    pub odd: f64,
}

impl FromStr for Ratio {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let part = |part: &str| part.parse().ok().filter(|n: &f64| n.is_finite() && *n > 0.0);
        let of = text.split_once(':').and_then(|(even, odd)| Some((part(even)?, part(odd)?)));
        let (even, odd) = of.ok_or_else(|| format!("{text} is no ratio such as 1:1.5"))?;
        Ok(Self { even, odd })
    }
}

impl Display for Ratio {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.even, self.odd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_two_numbers() {
        let ratio = "1:1.5".parse::<Ratio>();
        assert_eq!(ratio, Ok(Ratio { even: 1.0, odd: 1.5 }));
        assert_eq!(ratio.map(|ratio| ratio.to_string()), Ok("1:1.5".into()));
        for wrong in ["", "1", "1:", "1:0", "1:-2", "a:b", "1:inf", "1:2:3"] {
            assert!(wrong.parse::<Ratio>().is_err(), "{wrong}");
        }
    }
}
