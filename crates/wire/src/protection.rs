//! How much of a connection is protected. Each side states the lowest level that it accepts; the
//! higher of the two is used.

use std::fmt;

/// Protection of the frames of a connection. Higher levels protect more, and cost more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Level {
    /// Heads of frames have a code; payloads have checksums.
    #[default]
    Args = 1,
    /// Payloads have a code, too.
    Data = 2,
    /// All frames are encrypted, with keys that nobody can learn later.
    Private = 3,
}

impl Level {
    /// Every level, the lowest first.
    pub const ALL: [Level; 3] = [Level::Args, Level::Data, Level::Private];

    /// The level with this code.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|level| *level as u8 == code)
    }

    /// The name in options, configuration files and metrics.
    pub fn label(self) -> &'static str {
        match self {
            Level::Args => "args",
            Level::Data => "data",
            Level::Private => "private",
        }
    }

    /// The level with this name. The error says which there are.
    pub fn parse(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|level| level.label() == name);
        found.ok_or_else(|| format!("`{name}` is not args, data or private"))
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

weir_types::codec_tag!(Level { Args = 1, Data = 2, Private = 3 });

#[cfg(test)]
mod tests {
    use super::*;
    use weir_types::{Decode, Encode};

    #[test]
    fn levels_are_ordered_and_survive_names_and_bytes() {
        assert!(Level::ALL.is_sorted());
        for level in Level::ALL {
            assert_eq!(Level::parse(level.label()), Ok(level));
            assert_eq!(Level::from_bytes(&level.to_bytes()), Ok(level));
        }
        assert!(Level::parse("privat").unwrap_err().contains("private"));
        assert!(Level::from_bytes(&[0]).is_err() && Level::from_bytes(&[4]).is_err());
    }
}
