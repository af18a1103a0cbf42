//! Bugs planted on purpose, one at a time, to see whether the tests find them.
//!
//! A build with debug assertions may turn one on; a release build has none of
//! them: [`planted`] is then the constant `false`.

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
    /// The client does not send a write again that a lost connection left open.
    DropRetriedWrite = "drop-retried-write",
    /// A returning client does not say what it has open.
    SkipReassert = "skip-reassert",
    /// A data server does what comes on connections that were given up.
    DoLateChanges = "do-late-changes",
    /// A primary acknowledges a change before the other copies have it.
    AckBeforePartner = "ack-before-partner",
    /// A data server serves copies without a lease of the metadata server.
    ServeWithoutLease = "serve-without-lease",
    /// A copy that is back is read, and orders changes, before everybody knows it.
    RegrantBeforeReconcile = "regrant-before-reconcile",
    /// A change is applied while ones of an earlier epoch are still being applied.
    ApplyOldEpoch = "apply-old-epoch",
    /// A lease is given to a session while others still hold theirs.
    SkipRecall = "skip-recall",
    /// After a restart the metadata server does not wait until clients have said
    /// what they hold.
    GrantInGrace = "grant-in-grace",
    /// A lease to write is taken from a silent session without fencing it off.
    SkipFence = "skip-fence",
    /// A name changes without an event to those who keep it.
    KeepBelief = "keep-belief",
    /// A client says that it has given up a lease before it has written back.
    AnswerBeforeFlush = "answer-before-flush",
    /// A client gives up a lease and keeps what it and the layer above have read.
    KeepPages = "keep-pages",
    /// A client acknowledges an event and keeps what it is about.
    KeepAfterEvent = "keep-after-event",
    /// A client goes on with its leases when nothing was heard for too long.
    IgnoreLeaseClock = "ignore-lease-clock",
    /// A returning client does not say which leases it holds.
    SkipReassertLeases = "skip-reassert-leases",
    /// A client believes what it knew of a file or name that it has changed.
    ForgetOwnChange = "forget-own-change",
    /// What another copy will lack is not noted before the change.
    SkipGapNote = "skip-gap-note",
    /// A gap is cleared before the other copy has confirmed the bytes.
    ClearGapEarly = "clear-gap-early",
    /// A gap log that has vanished or is damaged is taken for an empty one.
    LoseGapLog = "lose-gap-log",
    /// A checkpoint forgets marks of changes that are under way on other copies.
    ForgetPledge = "forget-pledge",
    /// The last target that is online is taken away because it lacks something.
    MarkLastCopy = "mark-last-copy",
    /// A disk that was mounted anew, and may have lost what was not synced, is taken for the one
    /// of before.
    ForgetMount = "forget-mount",
    /// A target is online again while others have noted gaps for it.
    OnlineTooEarly = "online-too-early",
    /// A parity is said to be made before it is durable.
    SkipParitySync = "skip-parity-sync",
    /// Parities count before they are made.
    CountUnmadeParities = "count-unmade-parities",
    /// A part of a set goes to a target that has another one.
    SetOnOneTarget = "set-on-one-target",
    /// A metadata server goes on answering when its lead has ended.
    OldLeaderAnswers = "old-leader-answers",
    /// A snapshot for another metadata server counts as of an operation that is not in it.
    SnapshotSkips = "snapshot-skips",
    /// The journal is cut before all metadata servers have it.
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

/// Plants a bug in this process, or none; false if this build has none.
pub fn plant(bug: Option<Bug>) -> bool {
    #[cfg(debug_assertions)]
    {
        PLANTED.store(bug.unwrap_or(Bug::None) as u32, Ordering::Relaxed);
        true
    }
    #[cfg(not(debug_assertions))]
    bug.is_none()
}
