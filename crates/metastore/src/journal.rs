//! The log that several metadata servers share: one of them leads and appends to it, the others
//! follow it into their own engines.
//!
//! Invariants
//! - A batch is appended only by the server that leads at that moment, and only behind the batch
//!   before it. What was appended once is never changed.
//! - Who has taken the lead finds in [`Journal::read`] every batch that any earlier leader has
//!   appended, and no earlier leader appends any more.
//! - [`Journal::check`] fails before anybody else can take the lead.

use crate::engine::{MAX_REQUEST_BYTES, Sequence};
use weir_types::Result;

/// The most bytes of one batch. etcd takes transactions of 1.5 MiB, with keys and comparisons.
pub const MAX_BATCH_BYTES: usize = 1 << 20;

const _: () = assert!(MAX_BATCH_BYTES + (64 << 10) < MAX_REQUEST_BYTES);

/// Consecutive records of the log, as they stand in the segments of the embedded log
/// (`docs/format-metastore.md`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The sequence of its last record.
    pub last: Sequence,
    /// The records.
    pub records: Vec<u8>,
}

/// How a log was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begun {
    /// Random id of the log, made when it was begun: it tells the log from every other one.
    pub id: [u8; 16],
    /// The last operation before the log, or before it had the id.
    pub at: Sequence,
    /// The id of the log that the server that began this one had followed before.
    pub from: Option<[u8; 16]>,
    /// Whether the log was there before it had an id: an older version of Weir has begun it.
    pub adopted: bool,
}

/// From where to where a log goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// How it was begun; `None` if an older version of Weir has begun it, and it has no id.
    pub begun: Option<Begun>,
    /// The last record that was appended.
    pub head: Sequence,
}

impl Extent {
    /// What a log is after a server with this `begin` has taken the lead. `None`: nobody has begun it.
    pub fn led(found: Option<Self>, begin: Option<Begun>) -> Option<Self> {
        match (found, begin) {
            (Some(Self { begun: None, head }), Some(begin)) if begin.adopted => {
                Some(Self { begun: Some(Begun { at: head, ..begin }), head })
            }
            (None, Some(begin)) if !begin.adopted => {
                Some(Self { head: begin.at, begun: Some(begin) })
            }
            (found, _) => found,
        }
    }
}

/// A member's durable progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Name of the member.
    pub member: String,
    /// The last record that it holds.
    pub upto: Sequence,
    /// Changes with each report.
    pub stamp: u64,
}

/// A log that is shared by several processes. Every call is bounded in time.
///
/// Errors of all calls: `Unreachable` or `TimedOut` if the log does not answer, `Corrupt` if it
/// holds what nobody writes there.
pub trait Journal: Send + Sync {
    /// Address of the server that leads.
    fn leader(&self) -> Result<Option<String>>;

    /// From where to where the log goes; `None` if nobody has begun it.
    fn extent(&self) -> Result<Option<Extent>>;

    /// The last record that was appended; `None` if nobody has begun the log.
    fn head(&self) -> Result<Option<Sequence>> {
        Ok(self.extent()?.map(|log| log.head))
    }

    /// Takes the lead for a server with this address, unless somebody has it (`None`). With `begin`
    /// a log that is not begun is begun; if `begin` is `adopted`, a log without an id gets this one
    /// instead ([`Extent::led`]). Otherwise a log that is not begun is an error (`NotFound`). Returns
    /// the term, which is greater than all before.
    fn acquire(&self, address: &str, begin: Option<Begun>) -> Result<Option<u64>>;

    /// Some of the batches that end after this sequence, in order from the first one. Empty: there
    /// are none.
    fn read(&self, after: Sequence) -> Result<Vec<Batch>>;

    /// Appends a batch behind the record `previous`. It is durable when this returns.
    ///
    /// Errors: of any kind if this server does not lead any more, or may not. Then it is unknown
    /// whether the batch was appended, and the lead is to be given up.
    fn append(&self, previous: Sequence, batch: &Batch) -> Result<()>;

    /// Extends the lead. An error does not end the lead: [`Journal::check`] tells whether it has
    /// ended.
    fn renew(&self) -> Result<()>;

    /// Whether this server leads at this moment, by its own boot-time clock. Waits for nothing.
    ///
    /// Errors: `NotLeader`.
    fn check(&self) -> Result<()>;

    /// Gives up the lead, so that the next server need not wait until it expires.
    fn resign(&self);

    /// Records what a member holds durably.
    fn report(&self, member: &str, upto: Sequence) -> Result<()>;

    /// Forgets a member: no batches are kept for it.
    fn forget(&self, member: &str) -> Result<()>;

    /// Forgets a member, and marks it: it takes part no more, until the log has ended and another one
    /// is begun. Only the leader's call has an effect.
    fn remove(&self, member: &str) -> Result<()>;

    /// The members that are marked so.
    fn removed(&self) -> Result<Vec<String>>;

    /// Ends the log, as if nobody had begun it: a directory that follows it can go on from it no more.
    /// The marks of removed members stay. Only the leader's call has an effect.
    fn end(&self) -> Result<()>;

    /// What each member holds durably.
    fn members(&self) -> Result<Vec<Held>>;

    /// Removes batches that end at or before this sequence. Only the leader's call has an effect.
    fn cut(&self, upto: Sequence) -> Result<()>;

    /// Lets the log reuse the space of removed and replaced entries. Only the leader's call has an
    /// effect.
    fn compact(&self) -> Result<()>;
}
