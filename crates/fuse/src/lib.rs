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
//!
//! Each layer uses those below it alone:
//!
//! ```text
//! serving                  sessions, workers, and the call of an operation
//! filesystem               what is served: the trait of a file system
//! write_data   notify      data of writes; notifications
//! interrupts   mounting    signals to waiting callers; mounts, their options and their ends
//! protocol                 bytes of the kernel, and the values that they mean
//! ```

mod filesystem;
mod interrupts;
mod mounting;
mod no_access;
mod notify;
mod protocol;
mod serving;
mod write_data;

pub use filesystem::{Filesystem, Negotiated, Reply, RequestContext};
pub use interrupts::interrupt::Interrupt;
pub use interrupts::killed::was_killed;
pub use mounting::config::{Config, MountWith};
pub use mounting::mount_error::MountError;
pub use notify::{MAX_STORE_BYTES, Notifier};
pub use protocol::args::{
    Attributes, CopyArgs, DirEntry, Entry, IoArgs, IoctlArgs, IoctlReply, Lock, LockArgs, LockKind,
    NewMode, NodeId, OpenArgs, Opened, ROOT, ReleaseArgs, SetAttr, SetTime, Statx,
};
pub use protocol::dir_sink::DirSink;
pub use protocol::errno::Errno;
pub use protocol::request::{BadRequest, ForgetList, Header, Init, Op, Request};
pub use serving::measured::Measured;
pub use serving::session::{Handle, Session};
pub use write_data::{OwnedWriteData, WriteData};
