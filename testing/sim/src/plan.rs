//! What a run does: the cluster, what each client asks, what goes wrong and
//! when. A plan comes from a seed, or from a file that shrinking wrote.

use crate::history::{Name, Node, RenameMode};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The engine below the metadata server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EngineKind {
    /// The real one, on a simulated disk.
    Embedded,
    /// The model, which also has conflicts with writers that are not there.
    Model,
}

/// Who writes the copies of files, and when a write is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Protocol {
    /// The first server hands on; acknowledged when all have it.
    #[default]
    ServerSync,
    /// The first server hands on; acknowledged at once.
    ServerAsync,
    /// The client writes to all; acknowledged when all have it.
    ClientSync,
    /// The client writes to all; acknowledged when one has it.
    ClientAsync,
    /// One of them, by the numbers of servers and writers.
    Hybrid,
}

impl Protocol {
    /// Whether a write may be acknowledged when the first copy alone has it.
    pub fn is_early(self) -> bool {
        matches!(self, Self::ServerAsync | Self::ClientAsync | Self::Hybrid)
    }
}

/// Where the copies of files go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Placement {
    /// Chunks to random targets, all else as [`Placement::Chained`].
    #[default]
    Usual,
    /// To the nodes that follow one another.
    Chained,
    /// First copies to one half of the nodes, second ones to the other; what has another
    /// number of copies, or chunks, as [`Placement::Usual`].
    Groups,
    /// To random nodes.
    Random,
}

/// The cluster of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// Data servers, each on a node of its own.
    pub data_servers: u8,
    /// Targets of each.
    pub targets_each: u8,
    /// Event loops of each.
    pub event_loops: u8,
    /// The metadata server's engine.
    pub engine: EngineKind,
    /// Whether clients hold leases; otherwise those that keep anything use only
    /// what is their own.
    pub leases: bool,
    /// A client of which nothing was heard for so long may lose them.
    pub lease_ms: u32,
    /// A session of which nothing was heard for so long ends.
    pub session_ms: u32,
    /// After a start of the metadata server clients have so long to say what
    /// they hold.
    pub grace_ms: u32,
    /// Files that clients share; each client has one of its own besides.
    pub shared_files: u8,
    /// Files that clients share and append to.
    pub logs: u8,
    /// Cells of a file that is not appended to.
    pub cells: u32,
    /// How the files are laid out.
    pub layout: FileShape,
    /// Clients give up a call after so long, milliseconds.
    pub request_timeout_ms: u32,
    /// Of how many million messages one breaks its connection.
    pub reset_ppm: u32,
    /// Of how many million commits one meets a conflict (model engine).
    pub conflict_ppm: u32,
    /// Copies of the files, in turn; none: one of each.
    #[serde(default)]
    pub copies: Vec<u8>,
    /// How the copies of the files are written, in turn; none: `server-sync`.
    #[serde(default)]
    pub protocols: Vec<Protocol>,
    /// A data server that was silent for so long is away; 0: the usual time.
    #[serde(default)]
    pub target_timeout_ms: u32,
    /// What was on a target that was away for so long is made anew elsewhere; 0:
    /// never.
    #[serde(default)]
    pub rebuild_after_ms: u32,
    /// Where the copies of the files go, in turn; none: as usual.
    #[serde(default)]
    pub placements: Vec<Placement>,
    /// Data servers besides the others that are not part of the cluster yet.
    #[serde(default)]
    pub spares: u8,
}

impl Shape {
    /// Copies of a file.
    pub fn copies_of(&self, file: usize) -> u8 {
        match self.copies.len() {
            0 => 1,
            kinds => self.copies[file % kinds],
        }
    }

    /// How the copies of a file are written.
    pub fn protocol_of(&self, file: usize) -> Protocol {
        match self.protocols.len() {
            0 => Protocol::ServerSync,
            kinds => self.protocols[file % kinds],
        }
    }

    /// Where the copies of a file go.
    pub fn placement_of(&self, file: usize) -> Placement {
        match self.placements.len() {
            0 => Placement::Usual,
            kinds => self.placements[file % kinds],
        }
    }

    /// All data servers, also those that may join.
    pub fn all_servers(&self) -> u8 {
        self.data_servers + self.spares
    }

    /// Whether there are files with several copies.
    pub fn is_mirrored(&self) -> bool {
        self.copies.iter().any(|copies| *copies > 1)
    }
}

/// How files are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileShape {
    /// 4 KiB on a target, then the next.
    Striped,
    /// All of it on one target.
    OneTarget,
    /// Fragments of unequal sizes.
    Fragments,
    /// Chunks of 4 KiB, each on a target of its own choice.
    Chunked,
}

/// A client and what it does, one thing after another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientPlan {
    /// Read-ahead and write-behind.
    pub write_behind: bool,
    /// Keeps pages of files, as the kernel does above a mount.
    pub keeps_pages: bool,
    /// What it does.
    pub ops: Vec<PlannedOp>,
}

/// A call and the pause before it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedOp {
    /// The pause, milliseconds.
    pub wait_ms: u32,
    /// The call.
    pub op: Op,
}

/// Where a name is: in one of two fixed directories, or in a directory that
/// may be found there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Which fixed directory.
    pub dir: u8,
    /// The name in it.
    pub name: Name,
    /// If that is a directory: the name in there.
    pub inner: Option<Name>,
}

/// What a client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Op {
    /// Writes cells.
    Write {
        /// Which file.
        file: u8,
        /// First cell.
        first: u32,
        /// Number of cells.
        cells: u32,
    },
    /// Reads cells.
    Read {
        /// Which file.
        file: u8,
        /// First cell.
        first: u32,
        /// Number of cells.
        cells: u32,
    },
    /// Adds cells at the end of a file.
    Append {
        /// Which file.
        file: u8,
        /// Number of cells.
        cells: u32,
    },
    /// Reads the last cells, and what may follow them.
    Tail {
        /// Which file.
        file: u8,
        /// Number of cells.
        cells: u32,
    },
    /// Asks for size and time.
    Stat {
        /// Which file.
        file: u8,
    },
    /// fsync.
    Sync {
        /// Which file.
        file: u8,
    },
    /// Closes and opens again.
    Reopen {
        /// Which file.
        file: u8,
    },
    /// Cuts the file and makes it whole again.
    Cut {
        /// Which file.
        file: u8,
        /// Cells that stay.
        keep: u32,
    },
    /// `open(O_CREAT)`, with or without `O_EXCL`.
    Create {
        /// Where.
        at: Place,
        /// `O_EXCL`.
        exclusive: bool,
        /// Permission bits.
        mode: u16,
    },
    /// Makes a directory.
    Mkdir {
        /// Where.
        at: Place,
    },
    /// Makes a symbolic link.
    Symlink {
        /// Where.
        at: Place,
    },
    /// Removes a name.
    Unlink {
        /// Which.
        at: Place,
    },
    /// Removes an empty directory.
    Rmdir {
        /// Which.
        at: Place,
    },
    /// Moves a name.
    Rename {
        /// From here.
        from: Place,
        /// To there.
        to: Place,
        /// What if it is taken.
        mode: RenameMode,
    },
    /// Finds a file and gives it another name.
    Link {
        /// The file.
        from: Place,
        /// The other name.
        to: Place,
    },
    /// Looks a name up, and at what it stands for.
    Look {
        /// Which.
        at: Place,
    },
    /// Lists a directory.
    List {
        /// Which fixed directory.
        dir: u8,
    },
    /// Finds a file and changes its mode.
    SetMode {
        /// Which.
        at: Place,
        /// The mode.
        mode: u16,
    },
    /// Finds a file and sets an attribute.
    SetXattr {
        /// Which.
        at: Place,
        /// The attribute.
        name: Name,
    },
    /// Makes names durable.
    SyncNames,
    /// Writes a new file, syncs it, and renames it to this name.
    Publish {
        /// The name that it gets.
        at: Place,
    },
    /// Writes a file, syncs it, removes its name and keeps it open.
    Hide,
    /// Reads the file that is open without a name.
    Peek,
    /// Reads the file with this name.
    Fetch {
        /// Which.
        at: Place,
    },
}

/// Something that goes wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedFault {
    /// When, since the clients began, milliseconds.
    pub at_ms: u32,
    /// What.
    pub fault: Fault,
}

/// What goes wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fault {
    /// `kill -9`, and a start later.
    Kill {
        /// Whose process.
        node: NodeName,
        /// Until it starts again.
        down_ms: u32,
    },
    /// `kill -9` of the metadata server, and a client hears of it later than the
    /// others: it still holds leases that the server does not know of.
    ForgetLeases {
        /// The client.
        client: u8,
        /// Until the server starts again.
        down_ms: u32,
        /// And so long after that the client does not reach it.
        ms: u32,
    },
    /// The power fails.
    PowerCut {
        /// Where.
        node: NodeName,
        /// Until it is back.
        down_ms: u32,
        /// Of the disk alone: what was not synced is gone, and the processes that use it are
        /// killed, but the machine runs on.
        #[serde(default)]
        disk_only: bool,
    },
    /// The process stands still.
    Stop {
        /// Whose.
        node: NodeName,
        /// For so long.
        ms: u32,
    },
    /// Messages are held back.
    Partition {
        /// From here.
        a: NodeName,
        /// To there.
        b: NodeName,
        /// And the other way.
        both: bool,
        /// For so long.
        ms: u32,
    },
    /// All connections between two nodes break.
    Break {
        /// One.
        a: NodeName,
        /// The other.
        b: NodeName,
    },
    /// What a client sends within a moment arrives very late; it has lost
    /// patience by then, has connected anew and sent it again.
    Late {
        /// The client.
        client: u8,
        /// The server.
        server: NodeName,
        /// So late.
        extra_ms: u32,
        /// How long the moment is.
        ms: u32,
    },
    /// Messages take longer.
    Slow {
        /// From here.
        a: NodeName,
        /// To there.
        b: NodeName,
        /// By so much.
        extra_ms: u32,
        /// For so long.
        ms: u32,
    },
    /// The disk is slow.
    SlowDisk {
        /// Whose.
        node: NodeName,
        /// An operation takes up to so long.
        operation_ms: u32,
        /// For so long.
        ms: u32,
    },
    /// The disk hangs: it neither answers nor fails.
    Hang {
        /// Whose.
        node: NodeName,
        /// For so long.
        ms: u32,
    },
    /// One operation of the disk fails; the server is started anew later.
    DiskError {
        /// Whose.
        node: NodeName,
        /// Which operation.
        operation: DiskOperation,
        /// How.
        error: DiskErrorKind,
        /// So many of them pass first.
        after: u32,
        /// Until the restart.
        ms: u32,
    },
    /// Every operation of the disk fails; then the machine starts anew, with what
    /// is on it.
    DiskFails {
        /// Whose.
        node: NodeName,
        /// Until the machine starts anew.
        ms: u32,
    },
    /// `kill -9` of a data server; its notes of what other copies lack are lost, or
    /// damaged, before it starts again.
    LoseGaps {
        /// Whose.
        node: NodeName,
        /// Damaged, not gone.
        damaged: bool,
        /// Until it starts again.
        down_ms: u32,
    },
    /// A bit turns over on the disk of a data server, in an object of a file with
    /// several copies. All in one plan are of one server, so that one copy is sound.
    Rot {
        /// Which.
        server: u8,
        /// Which bit.
        pick: u32,
    },
    /// The disk has no room left.
    DiskFull {
        /// Whose.
        node: NodeName,
        /// For so long.
        ms: u32,
    },
    /// Messages from and to a node are held back.
    Isolate {
        /// Which.
        node: NodeName,
        /// For so long.
        ms: u32,
    },
    /// Time passes too fast or too slow on a machine.
    Pace {
        /// Whose.
        node: NodeName,
        /// By so many millionths.
        ppm: i32,
        /// For so long.
        ms: u32,
    },
    /// An administrator drains a target, and takes that back.
    Drain {
        /// Which.
        target: u32,
        /// After so long.
        ms: u32,
    },
    /// An administrator wants another number of copies of a file that is in use.
    Copies {
        /// Which file.
        file: u8,
        /// How many.
        copies: u8,
    },
    /// An administrator wants targets to be equally full.
    Even,
    /// A data server that was no part of the cluster joins it.
    Join {
        /// Which.
        server: u8,
    },
    /// An administrator takes a data server out of the cluster: its targets are drained, and
    /// removed when nothing is on them any more; then it ends.
    Leave {
        /// Which.
        server: u8,
    },
    /// A data server is lost for good, and an administrator takes its targets out by force.
    Lose {
        /// Which.
        server: u8,
    },
    /// The clock goes wrong from now on.
    Clock {
        /// Whose.
        node: NodeName,
        /// It jumps by so much.
        offset_ms: i32,
        /// And goes too fast by so many millionths.
        drift_ppm: i32,
    },
}

/// Which operation of a disk fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DiskOperation {
    /// Reading.
    Read,
    /// Writing.
    Write,
    /// fsync.
    Sync,
}

/// How a disk fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DiskErrorKind {
    /// `EIO`.
    Io,
    /// `ENOSPC`.
    NoSpace,
}

/// A node in a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum NodeName {
    /// The metadata server's.
    Meta,
    /// A data server's.
    Data(u8),
    /// A client's.
    Client(u8),
}

impl From<NodeName> for Node {
    fn from(name: NodeName) -> Self {
        match name {
            NodeName::Meta => Node::Meta,
            NodeName::Data(n) => Node::Data(n),
            NodeName::Client(n) => Node::Client(n),
        }
    }
}

/// A run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// All other chance: scheduling, network, disks, keys.
    pub seed: u64,
    /// How long things go wrong, milliseconds.
    pub duration_ms: u32,
    /// The cluster.
    pub shape: Shape,
    /// The clients.
    pub clients: Vec<ClientPlan>,
    /// What goes wrong, in order of time.
    pub faults: Vec<PlannedFault>,
    /// From which copies clients read: which of [`weir_client::ReadPolicy::OF_ANY_READER`].
    #[serde(default = "first_copies")]
    pub read_policy: u8,
}

/// `primary`: from the first copies.
pub fn first_copies() -> u8 {
    1
}

impl Plan {
    /// Whether copies are made on other targets while they are in use.
    pub fn moves(&self) -> bool {
        let orders = |planned: &PlannedFault| {
            matches!(
                planned.fault,
                Fault::Drain { .. }
                    | Fault::Copies { .. }
                    | Fault::Even
                    | Fault::Leave { .. }
                    | Fault::Lose { .. }
            )
        };
        self.shape.rebuild_after_ms > 0 || self.faults.iter().any(orders)
    }

    /// Whether targets are taken out of the cluster.
    pub fn removes(&self) -> bool {
        let removes = |planned: &PlannedFault| {
            matches!(planned.fault, Fault::Leave { .. } | Fault::Lose { .. })
        };
        self.faults.iter().any(removes)
    }

    /// Number of files.
    pub fn files(&self) -> u8 {
        self.first_log() + self.shape.logs
    }

    /// The first file that is appended to.
    pub fn first_log(&self) -> u8 {
        self.shape.shared_files + self.clients.len() as u8
    }

    /// Cells of a file; of one that is appended to, more than it can get.
    pub fn cells(&self, file: u8) -> u32 {
        if file < self.first_log() {
            return self.shape.cells;
        }
        let ops = self.clients.iter().flat_map(|client| &client.ops);
        let appended = ops.map(|planned| match planned.op {
            Op::Append { file: to, cells } if to == file => cells,
            _ => 0,
        });
        appended.sum::<u32>() + 1
    }

    /// Calls of all clients.
    pub fn ops(&self) -> usize {
        self.clients.iter().map(|c| c.ops.len()).sum()
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}, {} ms, {:?}", self.seed, self.duration_ms, self.shape)?;
        for (index, client) in self.clients.iter().enumerate() {
            let behind = if client.write_behind { " (write-behind)" } else { "" };
            let pages = if client.keeps_pages { " (keeps pages)" } else { "" };
            writeln!(f, "client{index}{behind}{pages}:")?;
            let mut at_ms = 0;
            for planned in &client.ops {
                at_ms += planned.wait_ms;
                writeln!(f, "  {at_ms:>6} ms  {:?}", planned.op)?;
            }
        }
        writeln!(f, "faults:")?;
        for planned in &self.faults {
            writeln!(f, "  {:>6} ms  {:?}", planned.at_ms, planned.fault)?;
        }
        Ok(())
    }
}

/// Numbers of servers and targets begin with 1.
pub(crate) fn targets_of(shape: &Shape, server: u8) -> Vec<u32> {
    let each = u32::from(shape.targets_each);
    (0..each).map(|i| u32::from(server) * each + i + 1).collect()
}
