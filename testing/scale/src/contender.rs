//! The policies that are compared: how readers choose, and what they and the disks know.

use weir_policy::ReadPolicy;

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contender {
    /// As in tables.
    pub name: &'static str,
    /// How readers choose.
    pub policy: ReadPolicy,
    /// Readers are ranks of a job: progress goes with requests and replies, disks serve who is
    /// furthest behind, and blocks are asked for in any order. Otherwise readers are as
    /// clients are today: in order, with read-ahead, and by runs of 4 MiB.
    pub is_job: bool,
}

const fn contender(name: &'static str, policy: ReadPolicy, is_job: bool) -> Contender {
    Contender { name, policy, is_job }
}

/// All that are compared.
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
    /// By its name.
    pub fn named(name: &str) -> Option<Self> {
        ALL.into_iter().find(|contender| contender.name == name)
    }

    /// Whether the speeds of disks count, so that it is worth asking for them.
    pub fn is_by_speed(self) -> bool {
        !self.is_job && matches!(self.policy, ReadPolicy::Proportional | ReadPolicy::SkipHot)
    }

    /// Whether the progress of others counts.
    pub fn is_by_progress(self) -> bool {
        self.is_job && self.policy != ReadPolicy::Graduated
    }
}
