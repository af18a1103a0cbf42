//! Ratios of the parts of a file that processes read or write.

use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

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

/// Of parts: those that were asked for, or the paper's.
pub fn ratios(asked: &[Ratio], quick: bool) -> Vec<Ratio> {
    let usual: &[f64] = if quick { &[1.0, 2.0] } else { &[1.0, 1.5, 2.0] };
    match asked {
        [] => usual.iter().map(|odd| Ratio { even: 1.0, odd: *odd }).collect(),
        ratios => ratios.to_vec(),
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
