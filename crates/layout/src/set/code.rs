//! Codes of sets: names and costs.

use std::fmt;
use std::str::FromStr;
use weir_erasure::Code;

/// Number of members if the name of a code does not give it.
pub const DEFAULT_MEMBERS: usize = 8;

/// The redundancy of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SetCode {
    /// RAID 6: one copy of each member, P and Q.
    Raid6 {
        /// Members of a full set.
        members: usize,
    },
    /// RAID 5 and mirror: two copies of each member, and P.
    Raid5Mirror {
        /// Members of a full set.
        members: usize,
    },
    /// Reed-Solomon: one copy of each member, and parities.
    ReedSolomon {
        /// Members of a full set.
        members: usize,
        /// Number of parities, and so of blocks that may be lost.
        parities: usize,
    },
}

impl SetCode {
    /// Members of a full set.
    pub fn members(self) -> usize {
        match self {
            Self::Raid6 { members }
            | Self::Raid5Mirror { members }
            | Self::ReedSolomon { members, .. } => members,
        }
    }

    /// Copies of each member.
    pub fn copies(self) -> usize {
        match self {
            Self::Raid5Mirror { .. } => 2,
            Self::Raid6 { .. } | Self::ReedSolomon { .. } => 1,
        }
    }

    /// Parities of a set.
    pub fn parities(self) -> usize {
        match self {
            Self::Raid6 { .. } => 2,
            Self::Raid5Mirror { .. } => 1,
            Self::ReedSolomon { parities, .. } => parities,
        }
    }

    /// Number of nodes that may be lost, whichever they are.
    pub fn bears(self) -> usize {
        match self {
            Self::Raid5Mirror { .. } => 2,
            Self::Raid6 { .. } | Self::ReedSolomon { .. } => self.parities(),
        }
    }

    /// The erasure code.
    ///
    /// # Errors
    /// If there is no such code.
    pub fn code(self) -> Result<Code, NoSuchCode> {
        Code::new(self.members(), self.parities()).map_err(|why| NoSuchCode(why.to_string()))
    }

    /// Bytes on disk of one set with members of these lengths.
    pub fn stored_bytes(self, lens: impl Iterator<Item = u64> + Clone) -> u64 {
        let longest = lens.clone().max().unwrap_or(0);
        lens.sum::<u64>() * self.copies() as u64 + longest * self.parities() as u64
    }
}

impl fmt::Display for SetCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Raid6 { members } => write!(f, "raid6:{members}"),
            Self::Raid5Mirror { members } => write!(f, "raid5-mirror:{members}"),
            Self::ReedSolomon { members, parities } => write!(f, "rs:{members}+{parities}"),
        }
    }
}

/// A name that no code has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoSuchCode(String);

impl fmt::Display for NoSuchCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NoSuchCode {}

impl FromStr for SetCode {
    type Err = NoSuchCode;

    fn from_str(text: &str) -> Result<Self, NoSuchCode> {
        let unknown = || {
            let kinds = "raid6, raid6:16, raid5-mirror, raid5-mirror:16 or rs:8+3";
            NoSuchCode(format!("`{text}` is no code of sets: use {kinds}"))
        };
        let number = |text: &str| text.parse::<usize>().map_err(|_| unknown());
        let (kind, shape) = text.split_once(':').unzip();
        let members = |shape: Option<&str>| shape.map_or(Ok(DEFAULT_MEMBERS), number);
        let code = match kind.unwrap_or(text) {
            "raid6" => Self::Raid6 { members: members(shape)? },
            "raid5-mirror" => Self::Raid5Mirror { members: members(shape)? },
            "rs" => {
                let (data, parity) = shape.and_then(|s| s.split_once('+')).ok_or_else(unknown)?;
                Self::ReedSolomon { members: number(data)?, parities: number(parity)? }
            }
            _ => return Err(unknown()),
        };
        code.code().map(|_| code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_names() {
        for name in ["raid6:8", "raid6:16", "raid5-mirror:2", "rs:8+3", "rs:32+8"] {
            assert_eq!(name.parse::<SetCode>().unwrap().to_string(), name);
        }
        assert_eq!("raid6".parse(), Ok(SetCode::Raid6 { members: DEFAULT_MEMBERS }));
        for name in ["", "raid6:", "raid6:1", "raid7", "rs", "rs:8", "rs:8+0", "rs:8+9", "rs:-1+2"]
        {
            let error = name.parse::<SetCode>().unwrap_err().to_string();
            assert!(error.contains("is no code") || error.contains("a code has"), "{error}");
        }
    }

    #[test]
    fn full_sets_of_8_cost_exactly_25_and_112_and_a_half_percent() {
        let overhead = |code: SetCode, len: u64| {
            let logical = 8 * len;
            let more = code.stored_bytes(std::iter::repeat_n(len, 8)) - logical;
            assert_eq!(more * 1000 % logical, 0, "not exact");
            more * 1000 / logical
        };
        let members = DEFAULT_MEMBERS;
        for len in [1 << 20, 64 << 20] {
            assert_eq!(overhead(SetCode::Raid6 { members }, len), 250);
            assert_eq!(overhead(SetCode::Raid5Mirror { members }, len), 1125);
            assert_eq!(overhead(SetCode::ReedSolomon { members, parities: 3 }, len), 375);
        }
    }
}
