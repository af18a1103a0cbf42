//! The rows of the table, and the ways of each.

use crate::accounting::Group;
use clap::ValueEnum;
use serde::Serialize;
use weir_wire::Level;

/// Number of processes in rows with more than one.
pub const MANY: usize = 4;
/// An ordinary user (`nobody`).
pub const USER: u32 = 65_534;

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Row {
    /// Sequential read, one stream
    Read1,
    /// Sequential read, four disjoint streams
    Read4,
    /// Rewrite and fsync, one stream
    Rewrite1,
    /// Rewrite and fsync, four disjoint streams
    Rewrite4,
    /// Rewrite and fsync of two copies by each protocol, one stream
    Protocols1,
    /// Rewrite and fsync of two copies by each protocol, four disjoint streams
    Protocols4,
    /// Random reads of 4 KiB, four jobs
    Random,
    /// Create empty files, one process
    Create1,
    /// Create empty files, four processes
    Create4,
    /// Stat files that are not cached, one process
    Stat,
    /// Stat files that are not cached, four processes
    Stat4,
    /// Remove files, one process
    Unlink,
    /// Remove files, four processes
    Unlink4,
    /// Read one file and write another while a data server is killed
    Kill,
}

/// A way of doing the work of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Via {
    /// TCP on loopback from warm memory.
    Tcp,
    /// `pread` from the page cache and `send`.
    PreadSend,
    /// As `PreadSend`; the receiver computes CRC-32C.
    PreadSendCrc,
    /// Requests of 256 bytes and replies of 4 KiB between as many processes.
    PingPong,
    /// 256 bytes there and back between two processes.
    RoundTrip,
    /// The local disk's file system: reads from the page cache; rewrites end
    /// with `fdatasync`.
    Disk,
    /// Rewrites of the local disk's page cache until the `fdatasync`.
    PageCache,
    /// The trivial FUSE server.
    Fuse,
    /// The trivial FUSE server with `O_DIRECT`.
    FuseDirect,
    /// Weir's client library.
    Library,
    /// Weir's client library without checking checksums.
    LibraryUnchecked,
    /// Weir's client library at the level of protection `data`.
    LibraryData,
    /// Weir's client library at the level of protection `private`.
    LibraryPrivate,
    /// Weir's mount.
    Mount,
    /// Weir's mount, used by an ordinary user in a directory of the user's own.
    MountUser,
    /// Weir's mount with `O_DIRECT`.
    MountDirect,
    /// Weir's client library, two copies of everything, with the default protocol: the server that
    /// receives a write forwards it before it confirms.
    LibraryTwo,
    /// Weir's mount, two copies of everything.
    MountTwo,
    /// Weir's mount with `O_DIRECT`, two copies of everything.
    MountTwoDirect,
    /// Weir's client library; the server forwards writes after it has confirmed.
    ServerAsync,
    /// Weir's client library, which sends both copies and waits for both.
    ClientSync,
    /// Weir's client library, which sends both copies and waits for the primary.
    ClientAsync,
    /// Weir's client library with the hybrid rule of the paper.
    Hybrid,
}

impl Row {
    /// All rows, in order.
    pub const ALL: [Row; 14] = [
        Row::Read1,
        Row::Read4,
        Row::Rewrite1,
        Row::Rewrite4,
        Row::Protocols1,
        Row::Protocols4,
        Row::Random,
        Row::Create1,
        Row::Create4,
        Row::Stat,
        Row::Stat4,
        Row::Unlink,
        Row::Unlink4,
        Row::Kill,
    ];

    /// A title for people.
    pub fn title(self) -> &'static str {
        match self {
            Row::Read1 => "read, 1 stream",
            Row::Read4 => "read, 4 disjoint streams",
            Row::Rewrite1 => "rewrite + fsync, 1 stream",
            Row::Rewrite4 => "rewrite + fsync, 4 disjoint streams",
            Row::Protocols1 => "protocols: rewrite + fsync, 1",
            Row::Protocols4 => "protocols: rewrite + fsync, 4",
            Row::Random => "random 4 KiB reads, 4 jobs",
            Row::Create1 => "create empty files, 1 process",
            Row::Create4 => "create empty files, 4 processes",
            Row::Stat => "stat (cold), 1 process",
            Row::Stat4 => "stat (cold), 4 processes",
            Row::Unlink => "unlink, 1 process",
            Row::Unlink4 => "unlink, 4 processes",
            Row::Kill => "1 reads, 1 writes; kill -9",
        }
    }

    /// Whether calls are counted instead of bytes.
    pub fn counts_calls(self) -> bool {
        self >= Row::Random
    }

    /// Whether many small files are created, stated or removed.
    pub fn is_of_names(self) -> bool {
        self.makes() || self.stats() || self.removes()
    }

    /// Whether files are created.
    pub fn makes(self) -> bool {
        matches!(self, Row::Create1 | Row::Create4)
    }

    /// Whether files are stated.
    pub fn stats(self) -> bool {
        matches!(self, Row::Stat | Row::Stat4)
    }

    /// Whether files are removed.
    pub fn removes(self) -> bool {
        matches!(self, Row::Unlink | Row::Unlink4)
    }

    /// Whether a big file is written.
    pub fn writes(self) -> bool {
        use Row::{Protocols1, Protocols4, Rewrite1, Rewrite4};
        matches!(self, Rewrite1 | Rewrite4 | Protocols1 | Protocols4)
    }

    /// Number of load generators.
    pub fn processes(self) -> usize {
        match self {
            Row::Read4 | Row::Rewrite4 | Row::Protocols4 | Row::Random => MANY,
            Row::Create4 | Row::Stat4 | Row::Unlink4 => MANY,
            _ => 1,
        }
    }

    /// The ways of the row, limits first.
    pub fn ways(self) -> &'static [Via] {
        use Via::{
            ClientAsync, ClientSync, Disk, Fuse, FuseDirect, Hybrid, Library, LibraryData,
            LibraryPrivate, LibraryTwo, LibraryUnchecked, Mount, MountDirect, MountTwo,
            MountTwoDirect, MountUser, PingPong, PreadSend, PreadSendCrc, RoundTrip, ServerAsync,
            Tcp,
        };
        match self {
            Row::Read1 | Row::Read4 => &[
                Tcp,
                PreadSend,
                PreadSendCrc,
                Disk,
                Fuse,
                FuseDirect,
                Library,
                LibraryUnchecked,
                LibraryData,
                LibraryPrivate,
                Mount,
                MountDirect,
                LibraryTwo,
                MountTwo,
            ],
            Row::Rewrite1 | Row::Rewrite4 => &[
                Tcp,
                Disk,
                Fuse,
                FuseDirect,
                Library,
                LibraryData,
                LibraryPrivate,
                Mount,
                MountDirect,
                LibraryTwo,
                MountTwo,
            ],
            Row::Protocols1 | Row::Protocols4 => {
                &[Library, LibraryTwo, ServerAsync, ClientSync, ClientAsync, Hybrid]
            }
            Row::Random => &[PingPong, Disk, Fuse, Library, Mount],
            Row::Create1 | Row::Create4 => {
                &[RoundTrip, Disk, Fuse, Library, Mount, MountUser, LibraryTwo, MountTwo]
            }
            Row::Stat | Row::Stat4 | Row::Unlink | Row::Unlink4 => {
                &[RoundTrip, Disk, Fuse, Library, Mount, MountUser]
            }
            Row::Kill => &[LibraryTwo, MountTwo, MountTwoDirect],
        }
    }
}

impl Via {
    /// A title for people.
    pub fn title(self) -> &'static str {
        match self {
            Via::Tcp => "raw loopback TCP",
            Via::PreadSend => "raw pread+send",
            Via::PreadSendCrc => "raw pread+send, CRC-32C",
            Via::PingPong => "raw 4 KiB ping-pong",
            Via::RoundTrip => "raw TCP round trip",
            Via::Disk => "local disk",
            Via::PageCache => "local page cache",
            Via::Fuse => "trivial FUSE server",
            Via::FuseDirect => "trivial FUSE server, O_DIRECT",
            Via::Library => "Weir library",
            Via::LibraryUnchecked => "Weir library, checksums off",
            Via::LibraryData => "Weir library, protected as data",
            Via::LibraryPrivate => "Weir library, private",
            Via::Mount => "Weir mount",
            Via::MountUser => "Weir mount, ordinary user",
            Via::MountDirect => "Weir mount, O_DIRECT",
            Via::LibraryTwo => "Weir library, 2 copies",
            Via::MountTwo => "Weir mount, 2 copies",
            Via::MountTwoDirect => "Weir mount, O_DIRECT, 2 copies",
            Via::ServerAsync => "Weir library, server-async",
            Via::ClientSync => "Weir library, client-sync",
            Via::ClientAsync => "Weir library, client-async",
            Via::Hybrid => "Weir library, hybrid",
        }
    }

    /// Whether it measures Weir.
    pub fn is_weir(self) -> bool {
        self >= Via::Library
    }

    /// The groups whose CPU time counts.
    pub fn groups(self) -> &'static [Group] {
        match self {
            Via::Tcp | Via::PreadSend | Via::PreadSendCrc | Via::PingPong | Via::RoundTrip => {
                &[Group::RawServer, Group::RawClient]
            }
            Via::Disk | Via::PageCache => &[Group::Posix],
            Via::Fuse | Via::FuseDirect => &[Group::RawFuse, Group::Posix],
            via if via.is_mount() => &[Group::Data, Group::Meta, Group::Mount, Group::Posix],
            _ => &[Group::Data, Group::Meta, Group::Library],
        }
    }

    /// The directory of its files, if they have two copies, and their protocol.
    pub fn copies(self) -> Option<(&'static str, &'static str)> {
        match self {
            Via::LibraryTwo | Via::MountTwo | Via::MountTwoDirect => Some(("two", "server-sync")),
            Via::ServerAsync => Some(("server-async", "server-async")),
            Via::ClientSync => Some(("client-sync", "client-sync")),
            Via::ClientAsync => Some(("client-async", "client-async")),
            Via::Hybrid => Some(("hybrid", "hybrid")),
            _ => None,
        }
    }

    /// The way whose set of files it uses: one set for the local disk, and one for each layout of
    /// Weir.
    pub fn owner(self) -> Via {
        match self {
            via if !via.is_weir() => via,
            Via::MountTwo | Via::MountTwoDirect => Via::LibraryTwo,
            via if via.copies().is_some() => via,
            _ => Via::Library,
        }
    }

    /// How its connections are protected at least.
    pub fn protection(self) -> Level {
        match self {
            Via::LibraryData => Level::Data,
            Via::LibraryPrivate => Level::Private,
            _ => Level::Args,
        }
    }

    /// Whether it goes through the mount.
    pub fn is_mount(self) -> bool {
        matches!(
            self,
            Via::Mount | Via::MountUser | Via::MountDirect | Via::MountTwo | Via::MountTwoDirect
        )
    }

    /// Whether it bypasses the kernel's page cache.
    pub fn is_direct(self) -> bool {
        matches!(self, Via::FuseDirect | Via::MountDirect | Via::MountTwoDirect)
    }

    /// The group of its load generators.
    pub fn worker_group(self) -> Group {
        if self.is_weir() && !self.is_mount() { Group::Library } else { Group::Posix }
    }

    /// The index of a load generator. Generators keep their sessions, so those without checksums,
    /// with another level of protection and of another user are different ones.
    pub fn worker_index(self, index: usize) -> usize {
        match self {
            Via::LibraryUnchecked | Via::MountUser => index + MANY,
            Via::LibraryData => index + 2 * MANY,
            Via::LibraryPrivate => index + 3 * MANY,
            _ => index,
        }
    }

    /// The user of its load generators, if not the one who measures.
    pub fn user(self) -> Option<u32> {
        (self == Via::MountUser).then_some(USER)
    }
}
