//! Bugs planted on purpose, one at a time, to check that the tests find them.
//!
//! A build with debug assertions can activate one. A release build has none of them: there
//! [`planted`] is the constant `false`.

#[cfg(debug_assertions)]
use std::sync::atomic::{AtomicU32, Ordering};

#[cfg(debug_assertions)]
static PLANTED: AtomicU32 = AtomicU32::new(0);

macro_rules! bugs {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal,)+) => {
        /// A bug that can be planted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub enum Bug {
            #[doc(hidden)]
            None,
            $($(#[doc = $doc])+ $name,)+
        }

        impl Bug {
            /// Every bug, with its name on the command line.
            pub const ALL: &[(Bug, &str)] = &[$((Bug::$name, $text),)+];
        }
    };
}

bugs! {
    /// A range is overwritten without its mark in the intent log.
    SkipIntentMark = "skip-intent-mark",
    /// The metadata server answers before the operation is in the log.
    AckBeforeAppend = "ack-before-append",
    /// File ids are handed out again after a restart.
    ReuseIds = "reuse-ids",
    /// A truncation does not fence writes that were issued before it.
    ForgetGeneration = "forget-generation",
    /// A mutation with an old sequence number is executed.
    AcceptOldSequence = "accept-old-sequence",
    /// The result of a mutation is not kept for its repetition.
    DropStoredResult = "drop-stored-result",
    /// A block that is sent in part is not verified first.
    ServeUnverified = "serve-unverified",
    /// A rename makes the new name and forgets to remove the old one.
    HalfRename = "half-rename",
    /// fsync reports success without a sync of the object.
    SkipObjectSync = "skip-object-sync",
    /// Recovery forgets what the intent log says.
    SkipRecovery = "skip-recovery",
    /// The client does not send a write again after its connection was lost.
    DropRetriedWrite = "drop-retried-write",
    /// A client that reconnects does not say which files it has open.
    SkipReassert = "skip-reassert",
    /// A data server executes requests from connections that the client has given up.
    DoLateChanges = "do-late-changes",
    /// A primary acknowledges a change before the other copies have it.
    AckBeforePartner = "ack-before-partner",
    /// A data server serves copies without a lease of the metadata server.
    ServeWithoutLease = "serve-without-lease",
    /// A copy that is back serves reads, and orders changes, before all servers know it.
    RegrantBeforeReconcile = "regrant-before-reconcile",
    /// A change is applied while changes of an earlier epoch are still being applied.
    ApplyOldEpoch = "apply-old-epoch",
    /// A lease is given to a session while others still hold theirs.
    SkipRecall = "skip-recall",
    /// After a restart the metadata server does not wait until clients have reported their leases.
    GrantInGrace = "grant-in-grace",
    /// A write lease is taken from a silent session without fencing the session off.
    SkipFence = "skip-fence",
    /// A name changes without an event to the clients that cache it.
    KeepBelief = "keep-belief",
    /// A client says that it has given up a lease before it has written back.
    AnswerBeforeFlush = "answer-before-flush",
    /// A client gives up a lease and keeps the data that it and the layer above have cached.
    KeepPages = "keep-pages",
    /// A client acknowledges an event and keeps the cache entry that the event invalidates.
    KeepAfterEvent = "keep-after-event",
    /// A client goes on using its leases after it has heard nothing for too long.
    IgnoreLeaseClock = "ignore-lease-clock",
    /// A client that reconnects does not say which leases it holds.
    SkipReassertLeases = "skip-reassert-leases",
    /// A client trusts its cached attributes of a file or name that it has changed itself.
    ForgetOwnChange = "forget-own-change",
    /// A change is made before it is noted which bytes another copy will lack.
    SkipGapNote = "skip-gap-note",
    /// A gap is cleared before the other copy has confirmed the bytes.
    ClearGapEarly = "clear-gap-early",
    /// A missing or damaged gap log counts as an empty one.
    LoseGapLog = "lose-gap-log",
    /// A checkpoint drops the marks of changes that other copies are still executing.
    ForgetPledge = "forget-pledge",
    /// The last online target is removed because it lacks bytes.
    MarkLastCopy = "mark-last-copy",
    /// A disk that was mounted again, and may have lost unsynced bytes, counts as one that kept
    /// them.
    ForgetMount = "forget-mount",
    /// A target comes online while others still have gaps noted for it.
    OnlineTooEarly = "online-too-early",
    /// A parity is reported as made before it is durable.
    SkipParitySync = "skip-parity-sync",
    /// Parities count as protection before they are made.
    CountUnmadeParities = "count-unmade-parities",
    /// A block of a set goes to a target that already has another block of it.
    SetOnOneTarget = "set-on-one-target",
    /// A read around a slow disk computes a column from whatever came, whatever happened meanwhile.
    ComputeUnchecked = "compute-unchecked",
    /// The same, only where the lease was lost meanwhile.
    ComputeWithoutLease = "compute-without-lease",
    /// The same, only where the file has another layout by then.
    ComputeFromOtherLayout = "compute-from-other-layout",
    /// The same, only while the client itself changes the file.
    ComputeWhileCut = "compute-while-cut",
    /// The same, only where an object was shorter than what was asked of it.
    ComputeFromShort = "compute-from-short",
    /// A metadata server goes on answering after it has lost the lead.
    OldLeaderAnswers = "old-leader-answers",
    /// A metadata server answers a read that saw a change whose append to the journal is under way.
    ReadBeforeAppend = "read-before-append",
    /// A snapshot for another metadata server claims to include an operation that it lacks.
    SnapshotSkips = "snapshot-skips",
    /// The journal is truncated before all metadata servers have its records.
    CutJournalEarly = "cut-journal-early",
    /// A client panics when it reads a symbolic link.
    PanicAtLinks = "panic-at-links",
}

/// Whether this bug is planted.
#[inline]
pub fn planted(bug: Bug) -> bool {
    #[cfg(debug_assertions)]
    return PLANTED.load(Ordering::Relaxed) == bug as u32;
    #[cfg(not(debug_assertions))]
    {
        let _ = bug;
        false
    }
}

/// Plants a bug in this process, or removes it (`None`). Returns `false` if this build has no bugs.
pub fn plant(bug: Option<Bug>) -> bool {
    #[cfg(debug_assertions)]
    {
        PLANTED.store(bug.unwrap_or(Bug::None) as u32, Ordering::Relaxed);
        true
    }
    #[cfg(not(debug_assertions))]
    bug.is_none()
}
