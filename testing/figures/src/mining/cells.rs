//! Who serves how many clients from how many drives.

use std::fmt::{self, Display, Formatter};

/// Threads of a client that read, as in the paper.
pub const PRODUCERS: u32 = 4;

/// Four times as many, to tell whether drives wait for requests.
const MANY_PRODUCERS: u32 = 16;

/// Who serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum System {
    /// A file striped over all drives.
    Weir,
    /// One server with a file that is striped over all its disks.
    Nfs,
    /// The same server with a whole file on each of its disks, one for each client.
    NfsParallel,
}

pub const SYSTEMS: [System; 3] = [System::Weir, System::Nfs, System::NfsParallel];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cell {
    pub system: System,
    /// The NFS server has its share of a core, and not all that there is.
    pub is_capped: bool,
    pub drives: u32,
    pub clients: u32,
    pub producers: u32,
}

impl System {
    pub fn name(self) -> &'static str {
        match self {
            Self::Weir => "Weir",
            Self::Nfs => "NFS",
            Self::NfsParallel => "NFS-parallel",
        }
    }
}

impl Cell {
    /// As many clients as drives.
    pub fn of(system: System, drives: u32) -> Self {
        let is_capped = system != System::Weir;
        Self { system, is_capped, drives, clients: drives, producers: PRODUCERS }
    }

    /// Weir with more requests under way.
    pub fn deep(drives: u32) -> Self {
        Self { producers: MANY_PRODUCERS, ..Self::of(System::Weir, drives) }
    }

    /// With all that there is of the processor.
    pub fn whole(self) -> Self {
        Self { is_capped: false, ..self }
    }
}

impl Display for Cell {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { system, is_capped, drives, clients, producers } = self;
        write!(f, "{}, {drives} drives, {clients} clients of {producers}", system.name())?;
        if *is_capped { write!(f, ", processor capped") } else { Ok(()) }
    }
}

/// What the figure shows; and on all drives Weir with more producers, and NFS with a whole processor.
pub fn of_figure(drives: &[u32]) -> Vec<Cell> {
    let line = |system| drives.iter().map(move |drives| Cell::of(system, *drives));
    let mut cells: Vec<Cell> = SYSTEMS.into_iter().flat_map(line).collect();
    let most = drives.last().copied().unwrap_or(1);
    cells.push(Cell::deep(most));
    cells.extend([System::Nfs, System::NfsParallel].map(|nfs| Cell::of(nfs, most).whole()));
    cells
}
