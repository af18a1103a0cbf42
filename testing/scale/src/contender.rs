//! The compared policies: how readers choose, and what readers and disks know.

use weir_policy::ReadPolicy;

/// A policy in the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contender {
    /// Its name in tables.
    pub name: &'static str,
    /// How readers choose.
    pub policy: ReadPolicy,
    /// Whether readers are ranks of a job: requests and replies carry progress, disks serve the
    /// reader that is furthest behind, and blocks are requested in any order. Otherwise readers act
    /// like clients without a job: in order, with read-ahead, and in runs of 4 MiB.
    pub is_job: bool,
}

const fn contender(name: &'static str, policy: ReadPolicy, is_job: bool) -> Contender {
    Contender { name, policy, is_job }
}

/// All policies.
pub const ALL: [Contender; 7] = [
    contender("primary", ReadPolicy::Primary, false),
    contender("halves", ReadPolicy::Halves, false),
    contender("skip-hot", ReadPolicy::SkipHot, false),
    contender("proportional", ReadPolicy::Proportional, false),
    contender("graduated", ReadPolicy::Graduated, true),
    contender("graduated-primary", ReadPolicy::GraduatedPrimary, true),
    contender("proportional, job", ReadPolicy::Proportional, true),
];

impl Contender {
    /// The policy with this name.
    pub fn named(name: &str) -> Option<Self> {
        ALL.into_iter().find(|contender| contender.name == name)
    }

    /// Whether it uses disk speeds, so that readers ask for them.
    pub fn is_by_speed(self) -> bool {
        !self.is_job && matches!(self.policy, ReadPolicy::Proportional | ReadPolicy::SkipHot)
    }

    /// Whether it uses the progress of other readers.
    pub fn is_by_progress(self) -> bool {
        self.is_job && self.policy != ReadPolicy::Graduated
    }
}
