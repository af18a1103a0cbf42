//! What happened in a run, in the order in which it happened: what clients
//! asked, what they were told, and which crashes there were. The oracles see
//! nothing else.
//!
//! The whole simulation is one thread of the operating system, so the position
//! of an entry in the history is a clock that never ties.

use std::fmt;
use std::time::Duration;
use weir_types::{Error, ErrorKind, FileKind};

/// The unit in which files are written and read, bytes: a sector, the least
/// that a disk writes whole.
pub const CELL_BYTES: usize = 512;
/// What is seen of a cell that is neither zeros nor what one write wrote.
pub const TORN: u64 = u64::MAX;

/// Bits of a tag; those above number the cells of a record that was appended.
const TAG_BITS: u32 = 40;
/// No cell has a greater one.
pub const MAX_TAG: u64 = (1 << (TAG_BITS + 8)) - 1;

/// What is seen of a cell of a record that was appended.
pub const fn cell_of_record(tag: u64, cell: u32) -> u64 {
    tag | (cell as u64) << TAG_BITS
}

/// The tag of a record of which this is seen.
pub const fn tag_of_record(seen: u64) -> u64 {
    seen & ((1 << TAG_BITS) - 1)
}

/// Position in a history.
pub type Position = usize;

/// A name in a directory: few, so that clients meet.
pub type Name = u8;

/// How a rename treats a name that is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum RenameMode {
    /// Takes its place.
    Replace,
    /// Fails.
    NoReplace,
    /// Swaps the two.
    Exchange,
}

/// A call about names. Directories and files are named by their ids.
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
    /// Whether it can change anything.
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

/// What is seen of a file's attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Seen {
    /// Its id.
    pub id: u64,
    /// Its kind.
    pub kind: FileKind,
    /// Its names.
    pub nlink: u32,
    /// Permission bits.
    pub mode: u16,
}

/// The answer to a [`NameCall`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameReply {
    /// Attributes of the file that it was about.
    Attr(Seen),
    /// Names and ids of a directory.
    Names(Vec<(Name, u64)>),
    /// What a symbolic link says, the value of an attribute.
    Value(u32),
    /// Nothing more.
    Done,
    /// A definite refusal.
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
    /// Adds cells at the end of a file, wherever that is.
    Append {
        /// Index of the file.
        file: u8,
        /// Number of cells.
        cells: u32,
    },
    /// Asks for size and time.
    Stat {
        /// Index of the file.
        file: u8,
    },
    /// Cuts a file after so many cells and extends it again to its full size,
    /// which is durable then.
    Cut {
        /// Index of the file.
        file: u8,
        /// Cells that stay.
        keep: u32,
    },
    /// Makes a file durable.
    Sync {
        /// Index of the file.
        file: u8,
    },
    /// Hands everything gathered to the servers (close and open again).
    Flush {
        /// Index of the file.
        file: u8,
    },
    /// Something about names.
    Names(NameCall),
    /// Makes names durable.
    SyncNames,
    /// Writes a small file under a name of its own and syncs it. The name that
    /// it gets by a rename afterwards promises its contents.
    Publish {
        /// Its id.
        id: u64,
    },
    /// Reads a published file that has no name any more and was kept open.
    Peek {
        /// Its id.
        id: u64,
    },
    /// Reads the contents that a name promised.
    Fetch {
        /// The id that the name stood for.
        id: u64,
    },
}

impl Call {
    /// Whether, done, it has made all names durable that were acknowledged
    /// before.
    pub fn syncs_names(&self) -> bool {
        matches!(
            self,
            Call::Sync { .. } | Call::SyncNames | Call::Publish { .. } | Call::Cut { .. }
        )
    }
}

/// What became of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done.
    Done,
    /// Tags of the cells that were read, as far as the file went.
    Cells(Vec<u64>),
    /// Appended at this offset, bytes.
    At(u64),
    /// Size, bytes, and time of the last change of the contents, nanoseconds.
    Stat {
        /// Bytes.
        size: u64,
        /// Since 1970.
        mtime_ns: i64,
    },
    /// The answer about names.
    Names(NameReply),
    /// The error says nothing definite: it may have been done, may be done yet,
    /// or never.
    Unknown(Error),
}

/// Where a crash happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Node {
    /// The metadata server's.
    Meta,
    /// A data server's, by its index.
    Data(u8),
    /// A client's, by its index.
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

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A client asked.
    Begin {
        /// Who.
        client: u8,
        /// Number of the call, unique in the run; its tag is one more.
        id: u32,
        /// What.
        call: Call,
    },
    /// A client was told.
    End {
        /// Number of the call.
        id: u32,
        /// What it was told.
        outcome: Outcome,
    },
    /// A client's process was killed: it hears of none of its calls any more.
    ClientKilled {
        /// Who.
        client: u8,
    },
    /// From now on something keeps a client (none: all of them) from servers
    /// for so long that its leases may be taken away, or that it gives up.
    Trouble {
        /// Who.
        client: Option<u8>,
        /// When that is over.
        until: Duration,
        /// What it sends may still arrive when it has given up.
        late: bool,
        /// It is only that something is wrong with one data server.
        one_data_server: bool,
    },
    /// From now on something is wrong with a node, or with the way between two of
    /// them.
    Ill {
        /// Which node.
        node: Node,
        /// The other end.
        peer: Option<Node>,
        /// When that is over.
        until: Duration,
    },
    /// Everything that was not durable on a node may be gone.
    PowerCut(Node),
    /// A disk failed to make durable what it had taken: unsynced data of the
    /// node may be gone.
    DiskForgets(Node),
    /// What the targets of a node had noted that others lack is lost, or damaged.
    GapsLost(Node),
    /// An administrator goes on with what is left of a column of a file, which nobody serves:
    /// from now on these cells may be older, or zeros.
    LossAccepted {
        /// Index of the file.
        file: u8,
        /// The data servers that have a copy of the column.
        nodes: Vec<u8>,
        /// The cells of the column.
        column: Vec<u32>,
        /// Those of them that are lost.
        cells: Vec<u32>,
    },
    /// The server of a node was killed, or ended by itself.
    Down(Node),
    /// It is started.
    Up(Node),
    /// All faults have ended.
    Healed,
    /// For readers: a fault, a phase.
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
    /// Oldest first.
    pub entries: Vec<Entry>,
}

impl History {
    /// Adds an entry.
    pub fn push(&mut self, at: Duration, what: What) {
        self.entries.push(Entry { at, what });
    }

    /// The entries from one position to another that concern some calls, and
    /// all crashes and faults, as text.
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
