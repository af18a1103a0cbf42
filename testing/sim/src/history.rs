//! The history of a run, in the order of events: calls of clients, their results, and crashes. The
//! oracles see nothing else.
//!
//! The whole simulation is one thread of the operating system, so the position of an entry in the
//! history is a clock without ties.

use std::fmt;
use std::time::Duration;
use weir_types::{Error, ErrorKind, FileKind};

/// The unit of reads and writes, bytes: a sector, the smallest unit that a disk writes atomically.
pub const CELL_BYTES: usize = 512;
/// Value of a cell that is neither zeros nor the result of one write.
pub const TORN: u64 = u64::MAX;

/// Number of bits of a tag. The bits above number the cells of an appended record.
const TAG_BITS: u32 = 40;
/// Upper limit of all values of cells.
pub const MAX_TAG: u64 = (1 << (TAG_BITS + 8)) - 1;

/// The value of a cell of an appended record.
pub const fn cell_of_record(tag: u64, cell: u32) -> u64 {
    tag | (cell as u64) << TAG_BITS
}

/// The tag of the record that has this value.
pub const fn tag_of_record(seen: u64) -> u64 {
    seen & ((1 << TAG_BITS) - 1)
}

/// Position in a history.
pub type Position = usize;

/// A name in a directory. There are few, so that clients collide.
pub type Name = u8;

/// How a rename treats an existing name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum RenameMode {
    /// Replaces it.
    Replace,
    /// Fails.
    NoReplace,
    /// Swaps the two.
    Exchange,
}

/// A call on names. Directories and files are identified by their ids.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum NameCall {
    Create { dir: u64, name: Name, exclusive: bool, mode: u16 },
    Mkdir { dir: u64, name: Name, mode: u16 },
    Symlink { dir: u64, name: Name, target: u32 },
    Unlink { dir: u64, name: Name },
    Rmdir { dir: u64, name: Name },
    Rename { from: (u64, Name), to: (u64, Name), mode: RenameMode },
    Link { file: u64, dir: u64, name: Name },
    Lookup { dir: u64, name: Name },
    List { dir: u64 },
    GetAttr { file: u64 },
    Readlink { file: u64 },
    SetMode { file: u64, mode: u16 },
    SetXattr { file: u64, name: Name, value: u32 },
    GetXattr { file: u64, name: Name },
}

impl NameCall {
    /// Whether the call can change anything.
    pub fn changes(&self) -> bool {
        !matches!(
            self,
            NameCall::Lookup { .. }
                | NameCall::List { .. }
                | NameCall::GetAttr { .. }
                | NameCall::Readlink { .. }
                | NameCall::GetXattr { .. }
        )
    }
}

/// The observed attributes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Seen {
    /// Its id.
    pub id: u64,
    /// Its kind.
    pub kind: FileKind,
    /// Number of its names.
    pub nlink: u32,
    /// Permission bits.
    pub mode: u16,
}

/// The result of a [`NameCall`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameReply {
    /// Attributes of the file that it was about.
    Attr(Seen),
    /// Names and ids of a directory.
    Names(Vec<(Name, u64)>),
    /// The target of a symbolic link, or the value of an attribute.
    Value(u32),
    /// Success without a value.
    Done,
    /// A definite error: nothing was changed.
    Refused(ErrorKind),
}

/// A call of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// Writes the call's tag into cells of a file.
    Write {
        /// Index of the file.
        file: u8,
        /// First cell.
        first: u32,
        /// Number of cells.
        cells: u32,
    },
    /// Reads cells.
    Read {
        /// Index of the file.
        file: u8,
        /// First cell.
        first: u32,
        /// Number of cells.
        cells: u32,
    },
    /// Appends cells to a file.
    Append {
        /// Index of the file.
        file: u8,
        /// Number of cells.
        cells: u32,
    },
    /// Gets size and time.
    Stat {
        /// Index of the file.
        file: u8,
    },
    /// Truncates a file to this many cells and extends it again to its full size, durably.
    Cut {
        /// Index of the file.
        file: u8,
        /// Number of cells that stay.
        keep: u32,
    },
    /// Makes a file durable.
    Sync {
        /// Index of the file.
        file: u8,
    },
    /// Sends all buffered writes to the servers (close and open again).
    Flush {
        /// Index of the file.
        file: u8,
    },
    /// A call on names.
    Names(NameCall),
    /// Makes names durable.
    SyncNames,
    /// Writes a small file under a temporary name and syncs it. The name that it gets by a later
    /// rename promises its contents.
    Publish {
        /// Id of the file.
        id: u64,
    },
    /// Reads a published file without a name that was kept open.
    Peek {
        /// Id of the file.
        id: u64,
    },
    /// Reads the contents that a name promised.
    Fetch {
        /// Id that the name stood for.
        id: u64,
    },
}

impl Call {
    /// Whether its success makes all previously acknowledged names durable.
    pub fn syncs_names(&self) -> bool {
        matches!(
            self,
            Call::Sync { .. } | Call::SyncNames | Call::Publish { .. } | Call::Cut { .. }
        )
    }
}

/// The result of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done.
    Done,
    /// Values of the cells read, up to the end of the file.
    Cells(Vec<u64>),
    /// Offset of the appended record, bytes.
    At(u64),
    /// Size in bytes, and modification time of the contents in nanoseconds.
    Stat {
        /// Size, bytes.
        size: u64,
        /// Modification time, nanoseconds since 1970.
        mtime_ns: i64,
    },
    /// The result of a call on names.
    Names(NameReply),
    /// An error that leaves the outcome open: the call may have been done, may be done later, or
    /// never.
    Unknown(Error),
}

/// Where a crash happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Node {
    /// The node of the metadata server.
    Meta,
    /// The node of a data server, by its index.
    Data(u8),
    /// The node of a client, by its index.
    Client(u8),
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Node::Meta => f.write_str("meta"),
            Node::Data(n) => write!(f, "data{n}"),
            Node::Client(n) => write!(f, "client{n}"),
        }
    }
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A client began a call.
    Begin {
        /// The client.
        client: u8,
        /// Number of the call, unique in the run. Its tag is one more.
        id: u32,
        /// The call.
        call: Call,
    },
    /// A call ended.
    End {
        /// Number of the call.
        id: u32,
        /// The result.
        outcome: Outcome,
    },
    /// A client's process was killed: it gets no more results.
    ClientKilled {
        /// The client.
        client: u8,
    },
    /// Something keeps a client (`None`: all of them) from servers, for so long that its leases may
    /// be revoked or that it gives up.
    Trouble {
        /// The client.
        client: Option<u8>,
        /// When it ends.
        until: Duration,
        /// Whether requests may still arrive after the client has given up.
        late: bool,
        /// Whether only one data server is affected.
        one_data_server: bool,
    },
    /// A fault of a node, or of the connection between two of them.
    Ill {
        /// The node.
        node: Node,
        /// The other end of a connection.
        peer: Option<Node>,
        /// When it ends.
        until: Duration,
    },
    /// Everything on a node that was not durable may be gone.
    PowerCut(Node),
    /// A disk failed to sync: unsynced data of the node may be gone.
    DiskForgets(Node),
    /// The gap logs of a node's targets are lost or damaged.
    GapsLost(Node),
    /// An administrator accepts the remaining bytes of a column of a file that no server serves.
    /// From then on these cells may be older, or zeros.
    LossAccepted {
        /// Index of the file.
        file: u8,
        /// The data servers that have a copy of the column.
        nodes: Vec<u8>,
        /// The cells of the column.
        column: Vec<u32>,
        /// The cells of the column that are lost.
        cells: Vec<u32>,
    },
    /// The server of a node was killed, or ended by itself.
    Down(Node),
    /// The server of a node is started.
    Up(Node),
    /// All faults have ended.
    Healed,
    /// For readers: a fault, or a phase of the run.
    Note(String),
}

/// An entry of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Virtual time.
    pub at: Duration,
    /// What happened.
    pub what: What,
}

/// A history.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// The entries, oldest first.
    pub entries: Vec<Entry>,
}

impl History {
    /// Adds an entry.
    pub fn push(&mut self, at: Duration, what: What) {
        self.entries.push(Entry { at, what });
    }

    /// The entries from one position to another that belong to the wanted calls, and all crashes
    /// and faults, as text.
    pub fn excerpt(&self, wanted: impl Fn(u32) -> bool) -> String {
        let mut text = String::new();
        for entry in &self.entries {
            let line = match &entry.what {
                What::Begin { client, id, call } if wanted(*id) => {
                    format!("client{client} asks #{id} {call:?}")
                }
                What::End { id, outcome } if wanted(*id) => {
                    let outcome = format!("{outcome:?}");
                    let outcome: String = outcome.chars().take(300).collect();
                    format!("        told #{id} {outcome}")
                }
                What::Begin { .. } | What::End { .. } => continue,
                What::ClientKilled { client } => format!("client{client} killed"),
                What::Trouble { client: Some(client), .. } => format!("trouble for client{client}"),
                What::Trouble { client: None, .. } => "trouble for all clients".to_owned(),
                What::Ill { .. } => continue,
                What::PowerCut(node) => format!("power cut of {node}"),
                What::DiskForgets(node) => format!("disk of {node} forgets what was not synced"),
                What::GapsLost(node) => format!("the gap logs of {node} are lost"),
                What::LossAccepted { file, nodes, cells, .. } => {
                    format!(
                        "the loss of cells {cells:?} of file {file}, on data{nodes:?}, is accepted"
                    )
                }
                What::Down(node) => format!("{node} is down"),
                What::Up(node) => format!("{node} starts"),
                What::Healed => "all faults end".to_owned(),
                What::Note(note) => note.clone(),
            };
            text.push_str(&format!("  {:>9.4} s  {line}\n", entry.at.as_secs_f64()));
        }
        text
    }
}
