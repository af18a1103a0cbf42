//! The gap log at the opening of its target: reading the log, noticing that it is lost, and noting
//! what recovery has found suspect.

use super::log::{GAPS, Log};
use super::record::Record;
use super::table::ALL_FILES;
use super::{Gaps, MAX_OBJECTS, State};
use crate::site::Site;
use crate::superblock::TargetIdentity;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use weir_host::fs::Directory;
use weir_host::plant::{Bug, planted};
use weir_host::sync::{Condvar, Mutex};
use weir_types::{ErrorKind, ObjectId, Result};

/// Objects that may differ from other copies after an unclean stop.
#[derive(Debug, Default)]
pub(crate) struct Suspects {
    /// Suspect bytes of objects.
    pub(crate) objects: Vec<(ObjectId, Range<u64>)>,
    /// Ranges of ids of files whose objects were young. If the machine has stopped, such objects
    /// may be gone together with their names.
    pub(crate) young: Vec<Range<u64>>,
    /// Whether there may be more suspects, because the intent log is damaged.
    pub(crate) unknown: bool,
}

impl Gaps {
    /// Reads the log of a target. The superblock may say that there must be one. The log is
    /// rewritten when it has this many sectors of `history`, that is, obsolete ones.
    ///
    /// Errors: `Unsupported` if its format is of another version, `Io`.
    pub(crate) fn open(
        site: Arc<Site>,
        root: Directory,
        identity: TargetIdentity,
        expected: bool,
        history: usize,
    ) -> Result<Self> {
        let mut state = State::default();
        let found = Log::open(&site, &root, identity, history)?;
        let kept = expected || found.is_some();
        let mut lost = None;
        match found {
            Some((log, contents)) => {
                if let Some(version) = contents.unknown_version {
                    let what = format!(
                        "the gap log `{GAPS}` has format version {version}, unknown here: use the \
                         program that wrote it, or a later one"
                    );
                    return Err(site.error(ErrorKind::Unsupported, what));
                }
                if contents.damaged {
                    lost = Some("is damaged");
                } else {
                    state.log = log;
                }
                if !(contents.damaged && planted(Bug::LoseGapLog)) {
                    contents.records.iter().for_each(|record| state.table.apply(record));
                }
            }
            None if expected => lost = Some("has vanished"),
            None => {}
        }
        if let Some(how) = lost.filter(|_| !planted(Bug::LoseGapLog)) {
            tracing::error!(
                "{site}: the gap log `{GAPS}` {how}, so that it is not known what copies lack: \
                 all of them will be brought anew"
            );
            state.table.apply(&Record::Lost { files: ALL_FILES });
        }
        let any = AtomicBool::new(!state.table.is_empty());
        let (kept, written) = (AtomicBool::new(kept), Condvar::new());
        let (run, state) = (root.memory_run(), Mutex::new(state));
        Ok(Self { site, root, identity, run, history, kept, any, state, written })
    }

    /// Whether the target has, or had, a gap log.
    pub(crate) fn is_kept(&self) -> bool {
        self.kept.load(Ordering::Acquire)
    }

    /// Notes, durably, every suspect part as a gap of this target. To be called before the target
    /// is served.
    pub(crate) fn begin(&self, suspects: Suspects) -> Result<()> {
        if !self.is_kept() {
            return Ok(());
        }
        let state = self.state.lock();
        let same_run = self.run.is_some() && state.table.run() == self.run;
        let mut records = Vec::new();
        if suspects.unknown || state.table.objects() + suspects.objects.len() > MAX_OBJECTS {
            records.push(Record::Lost { files: ALL_FILES });
        } else {
            let of_it = |(object, bytes): (ObjectId, Range<u64>)| {
                let (behind, copy) = (self.identity.target, object.copy);
                Record::Note { object, behind, copy, bytes }
            };
            records.extend(suspects.objects.into_iter().map(of_it));
            if !same_run {
                records.extend(suspects.young.into_iter().map(|files| Record::Lost { files }));
            }
        }
        records.extend(self.run.filter(|_| !same_run).map(|id| Record::Run { id }));
        if records.is_empty() && state.log.is_some() {
            return Ok(());
        }
        match self.submit(state, records, false) {
            Err(e) if e.kind == ErrorKind::NoSpace => {
                tracing::warn!("{e}");
                self.lose_all()
            }
            other => other,
        }
    }

    /// On a full disk: marks the gaps of all files as unknown. That record fits into the reserve.
    fn lose_all(&self) -> Result<()> {
        let state = self.state.lock();
        if state.table.lost().covers(&ALL_FILES) {
            // The state on disk is the same: the log is missing or damaged.
            return Ok(());
        }
        self.submit(state, vec![Record::Lost { files: ALL_FILES }], true)
    }

    /// On a read-only disk after an unclean stop: suspect parts stay marked, and the gaps of this
    /// target are unknown until it is recovered.
    pub(crate) fn distrust(&self) {
        if self.is_kept() {
            self.state.lock().table.apply(&Record::Lost { files: ALL_FILES });
            self.any.store(true, Ordering::Release);
        }
    }
}
