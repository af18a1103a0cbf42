//! The FUSE transport: Weir's own, directly on `/dev/fuse`.
//!
//! ```text
//! kernel ── /dev/fuse ── worker ── request ── dispatch ── Filesystem
//!              │           │  parse            typed        (not here)
//!              │           └─ crew: how many threads wait, serve, rest
//!              └── session: mount, INIT, end      notify: invalidations
//! ```
//! No layer above knows the ABI: a [`Filesystem`] sees its own node ids, `weir_types` and plain
//! bytes. The speed is decided here: one warm, reused buffer for each worker, one `writev` for each
//! reply, few threads, and written data that is kept without a copy ([`WriteData::take`]).

mod abi;
mod answer;
mod args;
mod arrivals;
mod bare;
mod config;
mod crew;
mod dir_sink;
mod dispatch;
mod encode;
mod errno;
mod filesystem;
mod heeds;
mod interrupt;
mod killed;
mod measured;
mod mount;
mod mount_error;
mod no_access;
mod notify;
mod request;
mod session;
mod takeover;
mod worker;
mod write_data;

pub use args::{
    Attributes, CopyArgs, DirEntry, Entry, IoArgs, IoctlArgs, IoctlReply, Lock, LockArgs, LockKind,
    NewMode, NodeId, OpenArgs, Opened, ROOT, ReleaseArgs, SetAttr, SetTime, Statx,
};
pub use config::{Config, MountWith};
pub use dir_sink::DirSink;
pub use errno::Errno;
pub use filesystem::{Filesystem, Negotiated, Reply, RequestContext};
pub use interrupt::Interrupt;
pub(crate) use killed::was_killed;
pub use measured::Measured;
pub use mount_error::MountError;
pub use notify::{MAX_STORE_BYTES, Notifier};
pub use request::{BadRequest, ForgetList, Header, Init, Op, Request};
pub use session::{Handle, Session};
pub use write_data::{OwnedWriteData, WriteData};
