//! The plan of a run: the cluster, the calls of each client, and the faults with their times. A
//! plan is made from a seed, or read from a file that shrinking wrote.

use crate::history::{Name, Node, RenameMode};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The engine below the metadata server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EngineKind {
    /// The real engine, on a simulated disk.
    Embedded,
    /// The model, which also has conflicts with imaginary writers.
    Model,
}

/// The duplication protocol: who writes the copies of files, and when a write is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Protocol {
    /// The first server forwards; acknowledged when all copies have the write.
    #[default]
    ServerSync,
    /// The first server forwards; acknowledged at once.
    ServerAsync,
    /// The client writes to all copies; acknowledged when all have the write.
    ClientSync,
    /// The client writes to all copies; acknowledged when one has the write.
    ClientAsync,
    /// One of the others, by the numbers of servers and writers.
    Hybrid,
}

impl Protocol {
    /// Whether a write may be acknowledged when only the first copy has it.
    pub fn is_early(self) -> bool {
        matches!(self, Self::ServerAsync | Self::ClientAsync | Self::Hybrid)
    }
}

/// The placement of copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Placement {
    /// Random for chunks, [`Placement::Chained`] for everything else.
    #[default]
    Usual,
    /// On consecutive nodes.
    Chained,
    /// First copies on one half of the nodes, second copies on the other half. Chunks and other
    /// numbers of copies as in [`Placement::Usual`].
    Groups,
    /// On random nodes.
    Random,
}

/// The cluster of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// Number of data servers, each on a node of its own.
    pub data_servers: u8,
    /// Targets of each data server.
    pub targets_each: u8,
    /// Event loops of each server.
    pub event_loops: u8,
    /// The metadata server's engine.
    pub engine: EngineKind,
    /// Whether clients hold leases. Otherwise clients with caches use only files of their own.
    pub leases: bool,
    /// The leases of a client may be revoked after this time of silence.
    pub lease_ms: u32,
    /// A session ends after this time of silence.
    pub session_ms: u32,
    /// After a start of the metadata server, clients have this time to report what they hold.
    pub grace_ms: u32,
    /// Number of files that clients share. Each client also has one of its own.
    pub shared_files: u8,
    /// Number of shared files that clients append to.
    pub logs: u8,
    /// Number of cells of a file that is not appended to.
    pub cells: u32,
    /// The layout of the files.
    pub layout: FileShape,
    /// Timeout of a call, milliseconds.
    pub request_timeout_ms: u32,
    /// Of one million messages, how many break their connection.
    pub reset_ppm: u32,
    /// Of one million commits, how many meet a conflict (model engine).
    pub conflict_ppm: u32,
    /// Number of copies of the files, in turn; empty: one of each.
    #[serde(default)]
    pub copies: Vec<u8>,
    /// Duplication protocols of the files, in turn; empty: `server-sync`.
    #[serde(default)]
    pub protocols: Vec<Protocol>,
    /// A data server that is silent for this long counts as away; 0: the default.
    #[serde(default)]
    pub target_timeout_ms: u32,
    /// The data of a target that is away for this long is rebuilt elsewhere; 0: never.
    #[serde(default)]
    pub rebuild_after_ms: u32,
    /// Placements of the files, in turn; empty: the default.
    #[serde(default)]
    pub placements: Vec<Placement>,
    /// Number of further data servers that are not in the cluster yet.
    #[serde(default)]
    pub spares: u8,
}

impl Shape {
    /// Number of copies of a file.
    pub fn copies_of(&self, file: usize) -> u8 {
        match self.copies.len() {
            0 => 1,
            kinds => self.copies[file % kinds],
        }
    }

    /// The duplication protocol of a file.
    pub fn protocol_of(&self, file: usize) -> Protocol {
        match self.protocols.len() {
            0 => Protocol::ServerSync,
            kinds => self.protocols[file % kinds],
        }
    }

    /// The placement of a file.
    pub fn placement_of(&self, file: usize) -> Placement {
        match self.placements.len() {
            0 => Placement::Usual,
            kinds => self.placements[file % kinds],
        }
    }

    /// Number of all data servers, including those that may join.
    pub fn all_servers(&self) -> u8 {
        self.data_servers + self.spares
    }

    /// Whether there are files with several copies.
    pub fn is_mirrored(&self) -> bool {
        self.copies.iter().any(|copies| *copies > 1)
    }
}

/// The family of layouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileShape {
    /// 4 KiB on each target in turn.
    Striped,
    /// The whole file on one target.
    OneTarget,
    /// Fragments of different sizes.
    Fragments,
    /// Chunks of 4 KiB, each on a target of its own.
    Chunked,
}

/// A client and its calls, one after another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientPlan {
    /// Whether it has read-ahead and write-behind.
    pub write_behind: bool,
    /// Whether pages are cached above it, as by the kernel above a mount.
    pub keeps_pages: bool,
    /// Its calls.
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

/// The place of a name: in one of two fixed directories, or in a directory that may exist there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The fixed directory.
    pub dir: u8,
    /// The name in it.
    pub name: Name,
    /// The name inside, if `name` is a directory.
    pub inner: Option<Name>,
}

/// A call of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Op {
    /// Writes cells.
    Write {
        /// The file.
        file: u8,
        /// First cell.
        first: u32,
        /// Number of cells.
        cells: u32,
    },
    /// Reads cells.
    Read {
        /// The file.
        file: u8,
        /// First cell.
        first: u32,
        /// Number of cells.
        cells: u32,
    },
    /// Appends cells to a file.
    Append {
        /// The file.
        file: u8,
        /// Number of cells.
        cells: u32,
    },
    /// Reads the last cells, and bytes that may follow them.
    Tail {
        /// The file.
        file: u8,
        /// Number of cells.
        cells: u32,
    },
    /// Gets size and time.
    Stat {
        /// The file.
        file: u8,
    },
    /// fsync.
    Sync {
        /// The file.
        file: u8,
    },
    /// Closes and opens the file again.
    Reopen {
        /// The file.
        file: u8,
    },
    /// Truncates the file and extends it again.
    Cut {
        /// The file.
        file: u8,
        /// Number of cells that stay.
        keep: u32,
    },
    /// `open(O_CREAT)`, with or without `O_EXCL`.
    Create {
        /// The name.
        at: Place,
        /// `O_EXCL`.
        exclusive: bool,
        /// Permission bits.
        mode: u16,
    },
    /// Makes a directory.
    Mkdir {
        /// The name.
        at: Place,
    },
    /// Makes a symbolic link.
    Symlink {
        /// The name.
        at: Place,
    },
    /// Removes a name.
    Unlink {
        /// The name.
        at: Place,
    },
    /// Removes an empty directory.
    Rmdir {
        /// The name.
        at: Place,
    },
    /// Renames a file or directory.
    Rename {
        /// The old name.
        from: Place,
        /// The new name.
        to: Place,
        /// Treatment of an existing name.
        mode: RenameMode,
    },
    /// Looks up a file and adds a hard link.
    Link {
        /// The file.
        from: Place,
        /// The new name.
        to: Place,
    },
    /// Looks up a name, and inspects its file.
    Look {
        /// The name.
        at: Place,
    },
    /// Lists a directory.
    List {
        /// The fixed directory.
        dir: u8,
    },
    /// Looks up a file and changes its mode.
    SetMode {
        /// The name.
        at: Place,
        /// The mode.
        mode: u16,
    },
    /// Looks up a file and sets an extended attribute.
    SetXattr {
        /// The name.
        at: Place,
        /// The attribute.
        name: Name,
    },
    /// Makes names durable.
    SyncNames,
    /// Writes a new file, syncs it, and renames it.
    Publish {
        /// The new name.
        at: Place,
    },
    /// Writes a file, syncs it, removes its name and keeps it open.
    Hide,
    /// Reads the open file without a name.
    Peek,
    /// Reads the file with this name.
    Fetch {
        /// The name.
        at: Place,
    },
}

/// A fault with its time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedFault {
    /// Time after the start of the clients, milliseconds.
    pub at_ms: u32,
    /// The fault.
    pub fault: Fault,
}

/// A fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fault {
    /// Kills a process (`kill -9`), and starts it again later.
    Kill {
        /// The node.
        node: NodeName,
        /// Time until it starts again.
        down_ms: u32,
    },
    /// Kills the metadata server. A client notices the restart later than the others: it still
    /// holds leases that the server does not know.
    ForgetLeases {
        /// The client.
        client: u8,
        /// Time until the server starts again.
        down_ms: u32,
        /// Time after the restart during which the client cannot reach it.
        ms: u32,
    },
    /// A power failure.
    PowerCut {
        /// The node.
        node: NodeName,
        /// Time until the power is back.
        down_ms: u32,
        /// Only the disk fails: its unsynced bytes are lost, and the processes that use it are
        /// killed, but the machine keeps running.
        #[serde(default)]
        disk_only: bool,
    },
    /// Stops a process.
    Stop {
        /// The node.
        node: NodeName,
        /// Duration.
        ms: u32,
    },
    /// Holds messages back.
    Partition {
        /// The sender.
        a: NodeName,
        /// The receiver.
        b: NodeName,
        /// In both directions.
        both: bool,
        /// Duration.
        ms: u32,
    },
    /// Breaks all connections between two nodes.
    Break {
        /// The first node.
        a: NodeName,
        /// The second node.
        b: NodeName,
    },
    /// Requests of a client within a short time arrive very late. By then the client has given up,
    /// reconnected and sent them again.
    Late {
        /// The client.
        client: u8,
        /// The server.
        server: NodeName,
        /// The delay.
        extra_ms: u32,
        /// The time during which requests are delayed.
        ms: u32,
    },
    /// Delays messages.
    Slow {
        /// The sender.
        a: NodeName,
        /// The receiver.
        b: NodeName,
        /// The delay.
        extra_ms: u32,
        /// Duration.
        ms: u32,
    },
    /// Makes a disk slow.
    SlowDisk {
        /// The node.
        node: NodeName,
        /// Maximum time of an operation.
        operation_ms: u32,
        /// Duration.
        ms: u32,
    },
    /// Makes a disk hang: it neither answers nor fails.
    Hang {
        /// The node.
        node: NodeName,
        /// Duration.
        ms: u32,
    },
    /// One operation of a disk fails. The server is restarted later.
    DiskError {
        /// The node.
        node: NodeName,
        /// The operation.
        operation: DiskOperation,
        /// The error.
        error: DiskErrorKind,
        /// Number of such operations that succeed first.
        after: u32,
        /// Time until the restart.
        ms: u32,
    },
    /// Every operation of a disk fails. Then the machine restarts, with the contents of the disk.
    DiskFails {
        /// The node.
        node: NodeName,
        /// Time until the machine restarts.
        ms: u32,
    },
    /// Kills a data server. Its gap logs are lost or damaged before it starts again.
    LoseGaps {
        /// The node.
        node: NodeName,
        /// Damaged instead of lost.
        damaged: bool,
        /// Time until it starts again.
        down_ms: u32,
    },
    /// Flips a bit on the disk of a data server, in an object of a file with several copies. In one
    /// plan only one server rots, so that one copy is sound.
    Rot {
        /// The data server.
        server: u8,
        /// Selects the bit.
        pick: u32,
    },
    /// Fills a disk.
    DiskFull {
        /// The node.
        node: NodeName,
        /// Duration.
        ms: u32,
    },
    /// Holds back all messages from and to a node.
    Isolate {
        /// The node.
        node: NodeName,
        /// Duration.
        ms: u32,
    },
    /// Time passes too fast or too slowly on a machine.
    Pace {
        /// The node.
        node: NodeName,
        /// The deviation, in millionths.
        ppm: i32,
        /// Duration.
        ms: u32,
    },
    /// An administrator drains a target, and later stops that.
    Drain {
        /// The target.
        target: u32,
        /// Time until the draining is stopped.
        ms: u32,
    },
    /// An administrator changes the number of copies of a file in use.
    Copies {
        /// The file.
        file: u8,
        /// The number of copies.
        copies: u8,
    },
    /// An administrator balances the used space of targets.
    Even,
    /// A data server joins the cluster.
    Join {
        /// The data server.
        server: u8,
    },
    /// An administrator removes a data server from the cluster. Its targets are drained, and
    /// removed when they are empty; then it ends.
    Leave {
        /// The data server.
        server: u8,
    },
    /// A data server is lost for good, and an administrator removes its targets by force.
    Lose {
        /// The data server.
        server: u8,
    },
    /// A clock is wrong from this time on.
    Clock {
        /// The node.
        node: NodeName,
        /// The jump.
        offset_ms: i32,
        /// The drift, in millionths.
        drift_ppm: i32,
    },
}

/// The operation of a disk that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DiskOperation {
    /// Reading.
    Read,
    /// Writing.
    Write,
    /// fsync.
    Sync,
}

/// The error of a disk.
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
    /// The metadata server's node.
    Meta,
    /// A data server's node.
    Data(u8),
    /// A client's node.
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

/// The plan of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Seed of all other random choices: scheduling, network, disks, keys.
    pub seed: u64,
    /// Duration of the faults, milliseconds.
    pub duration_ms: u32,
    /// The cluster.
    pub shape: Shape,
    /// The clients.
    pub clients: Vec<ClientPlan>,
    /// The faults, sorted by time.
    pub faults: Vec<PlannedFault>,
    /// The read policy of the clients: an index in [`weir_client::ReadPolicy::OF_ANY_READER`].
    #[serde(default = "first_copies")]
    pub read_policy: u8,
}

/// The policy `primary`, which reads first copies.
pub fn first_copies() -> u8 {
    1
}

impl Plan {
    /// Whether copies move to other targets while they are in use.
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

    /// Whether targets are removed from the cluster.
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

    /// Number of cells of a file; for one that is appended to, an upper limit.
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

    /// Number of calls of all clients.
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

/// The targets of a server. Ids of servers and targets begin with 1.
pub(crate) fn targets_of(shape: &Shape, server: u8) -> Vec<u32> {
    let each = u32::from(shape.targets_each);
    (0..each).map(|i| u32::from(server) * each + i + 1).collect()
}
