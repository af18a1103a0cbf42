//! State that all objects of an open target share.

use crate::directories::Directories;
use crate::intents::Intents;
use crate::room::Room;
use crate::site::Site;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use weir_host::fs::Directory;
use weir_types::Result;

/// The directory of a target, its intent log and its state of health.
pub(crate) struct Backing {
    pub(crate) site: Arc<Site>,
    /// The target directory.
    pub(crate) root: Directory,
    pub(crate) directories: Directories,
    pub(crate) room: Room,
    /// Number of objects that may be made before the free inodes are checked again.
    pub(crate) files: Room,
    /// `None` on a disk that is read-only.
    intents: Option<Intents>,
    /// Set if something may have changed since the last checkpoint.
    changed: AtomicBool,
}

impl Backing {
    pub(crate) fn new(
        site: Arc<Site>,
        root: Directory,
        directories: Directories,
        intents: Option<Intents>,
    ) -> Self {
        let (room, files, changed) = (Room::default(), Room::default(), AtomicBool::new(false));
        Self { site, root, directories, room, files, intents, changed }
    }

    /// The intent log, for marking a change.
    ///
    /// Errors: those of [`Site::in_service`].
    pub(crate) fn intents(&self) -> Result<&Intents> {
        self.site.in_service()?;
        let read_only = || self.site.error(weir_types::ErrorKind::ReadOnly, crate::site::READ_ONLY);
        self.intents.as_ref().ok_or_else(read_only)
    }

    /// The intent log, for verifying its bytes.
    pub(crate) fn log(&self) -> Option<&Intents> {
        self.intents.as_ref()
    }

    /// Records that a change is about to begin. Call this before every change.
    pub(crate) fn note_change(&self) {
        if !self.changed.load(Ordering::Relaxed) {
            self.changed.store(true, Ordering::Release);
        }
    }

    /// Makes everything durable. Afterwards the intent log holds no marks.
    pub(crate) fn checkpoint(&self) -> Result<()> {
        let intents = self.intents()?;
        if !self.changed.swap(false, Ordering::AcqRel) && intents.is_empty() {
            return Ok(());
        }
        intents.checkpoint(|| {
            let mark = self.directories.mark();
            self.root
                .sync_file_system("checkpoint")
                .map_err(|e| self.site.failed_sync("sync the file system", e))?;
            self.directories.synced(&mark);
            Ok(())
        })
    }

    /// Makes everything durable for the last time and records the clean stop in the intent log.
    pub(crate) fn close(&self) -> Result<()> {
        let Some(intents) = &self.intents else { return Ok(()) };
        if !self.site.set_closed() {
            return Ok(());
        }
        // Waits for changes in progress; later ones are refused.
        drop(intents.enter_alone());
        if self.site.trouble().is_some() {
            return Ok(());
        }
        if self.changed.load(Ordering::Acquire) || !intents.is_empty() {
            self.root
                .sync_file_system("close")
                .map_err(|e| self.site.failed_sync("sync the file system", e))?;
        }
        if intents.is_pledged() {
            tracing::warn!("{}: closed with changes under way, which it recovers", self.site);
            return Ok(());
        }
        intents.mark_clean()
    }
}
