//! Layouts and redundancy.

use crate::cluster::Cluster;
use crate::duplicate::Duplication;
use crate::pairs::nodes_of_set;
use std::fmt;
use thiserror::Error;

/// Maximum number of disks whose loss a scheme survives: 8 parities, or 9 copies.
pub const MAX_LOSSES: u32 = 8;

/// Maximum number of data fragments of a code.
pub const MAX_DATA: u32 = 64;

/// Which disks hold a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Columns on all disks. With a code, fixed sets of disks on as many nodes.
    Striped,
    /// Two or more groups of nodes: the others are copies of the first one (CEFT).
    Mirrored,
    /// The further copies of a node's data are on the nodes that follow it.
    Chained,
    /// Each segment on disks of its own, drawn at random on distinct nodes, and
    /// rebuilt by all disks together (declustered).
    Random,
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Striped => "striped",
            Self::Mirrored => "mirrored",
            Self::Chained => "chained",
            Self::Random => "random",
        })
    }
}

/// The redundancy of each byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redundancy {
    /// This many copies, including the first one.
    Copies(u32),
    /// `data` fragments and `parity` further ones. Any `data` of them restore all.
    Code {
        /// Fragments with data.
        data: u32,
        /// Fragments that may be lost.
        parity: u32,
    },
    /// Sets of members with two copies each and one parity. No two members are on the same pair of
    /// nodes, and the parity is on a node of no pair. Any two disks may be lost.
    Raid5Mirror {
        /// Members of a set.
        data: u32,
    },
}

impl Redundancy {
    /// Number of nodes that hold parts of a segment. For RAID 5 and mirror, the smallest possible
    /// number.
    pub fn width(self) -> u32 {
        match self {
            Self::Copies(_) | Self::Code { .. } => self.parts(),
            Self::Raid5Mirror { data } => nodes_of_set(data),
        }
    }

    /// Number of parts of a segment or set.
    pub fn parts(self) -> u32 {
        match self {
            Self::Copies(copies) => copies,
            Self::Code { data, parity } => data + parity,
            Self::Raid5Mirror { data } => 2 * data + 1,
        }
    }

    /// Number of parts that hold different data.
    pub fn data(self) -> u32 {
        match self {
            Self::Copies(_) => 1,
            Self::Code { data, .. } | Self::Raid5Mirror { data } => data,
        }
    }

    /// Mean bytes read to restore one lost byte. For RAID 5 and mirror: one byte for a copy, and
    /// all members for the parity.
    pub fn read_for_one(self) -> f64 {
        match self {
            Self::Copies(_) | Self::Code { .. } => f64::from(self.data()),
            Self::Raid5Mirror { data } => f64::from(3 * data) / f64::from(self.parts()),
        }
    }

    /// Number of disks that may be lost, whichever they are.
    pub fn spare(self) -> u32 {
        match self {
            Self::Copies(copies) => copies.saturating_sub(1),
            Self::Code { parity, .. } => parity,
            Self::Raid5Mirror { .. } => 2,
        }
    }

    /// Redundant bytes per byte of data.
    pub fn overhead(self) -> f64 {
        f64::from(self.parts() - self.data()) / f64::from(self.data())
    }

    /// Share of the disks' capacity that users' data can fill.
    pub fn usable(self) -> f64 {
        f64::from(self.data()) / f64::from(self.parts())
    }
}

impl fmt::Display for Redundancy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Copies(1) => f.write_str("1 copy"),
            Self::Copies(copies) => write!(f, "{copies} copies"),
            Self::Code { data, parity } => write!(f, "{data}+{parity}"),
            Self::Raid5Mirror { data } => write!(f, "raid5-mirror:{data}"),
        }
    }
}

/// A layout, its redundancy, and how writes are duplicated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scheme {
    /// Which disks hold a segment.
    pub layout: Layout,
    /// The redundancy of a segment.
    pub redundancy: Redundancy,
    /// How copies are written. Has no effect with one copy.
    pub duplication: Duplication,
}

/// Why a scheme cannot be assessed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Misfit {
    /// A value is out of range.
    #[error("{0} must be {1}")]
    Value(&'static str, &'static str),
    /// The layout does not have this redundancy.
    #[error("{0} does not go with {1}: {2}")]
    Layout(Layout, Redundancy, &'static str),
    /// A segment needs more nodes.
    #[error("{0} {1} needs at least {2} nodes")]
    Nodes(Layout, Redundancy, u32),
    /// Writes come faster than they can be duplicated.
    #[error("writes come faster than they can be duplicated: what is at risk grows without bound")]
    Backlog,
}

impl Scheme {
    /// The layout in effect: a chain in which every node has a copy of everything is a mirror.
    pub(crate) fn in_effect(&self, cluster: &Cluster) -> Layout {
        match self.layout {
            Layout::Chained if cluster.nodes == self.redundancy.width() => Layout::Mirrored,
            layout => layout,
        }
    }

    /// Checks that the scheme is valid and fits this cluster.
    pub fn check(&self, cluster: &Cluster) -> Result<(), Misfit> {
        let wrong = |why| Err(Misfit::Layout(self.layout, self.redundancy, why));
        match (self.layout, self.redundancy) {
            (_, Redundancy::Copies(0)) => return wrong("there is at least one copy"),
            (_, Redundancy::Code { data: 0, .. } | Redundancy::Code { parity: 0, .. }) => {
                return wrong("a code has data and parity");
            }
            (_, Redundancy::Raid5Mirror { data: 0 | 1 }) => {
                return wrong("a set has at least two members");
            }
            (Layout::Striped, Redundancy::Copies(2..)) => {
                return wrong("copies are mirrored, chained or random");
            }
            (Layout::Mirrored | Layout::Chained, Redundancy::Copies(1)) => {
                return wrong("it has two copies or more");
            }
            (
                Layout::Mirrored | Layout::Chained,
                Redundancy::Code { .. } | Redundancy::Raid5Mirror { .. },
            ) => {
                return wrong("codes are striped or random");
            }
            _ => {}
        }
        if self.redundancy.spare() > MAX_LOSSES || self.redundancy.data() > MAX_DATA {
            return wrong("at most 9 copies, 64 data fragments and 8 parities");
        }
        let width = self.redundancy.width();
        if cluster.nodes < width {
            return Err(Misfit::Nodes(self.layout, self.redundancy, width));
        }
        if matches!(self.duplication, Duplication::Asynchronous { .. }) {
            if !matches!(self.redundancy, Redundancy::Copies(_)) {
                return wrong("codes are not duplicated asynchronously");
            }
            self.duplication.pending()?;
        }
        Ok(())
    }
}
