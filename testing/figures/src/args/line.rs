//! Policies, each of which is a line of a figure.

use clap::ValueEnum;

/// How a file with copies is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Line {
    Primary,
    Graduated,
    GraduatedPrimary,
    Halves,
    SkipHot,
    Proportional,
}

impl Line {
    /// The mount option.
    pub fn policy(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::Graduated => "graduated",
            Self::GraduatedPrimary => "graduated-primary",
            Self::Halves => "halves",
            Self::SkipHot => "skip-hot",
            Self::Proportional => "proportional",
        }
    }
}
