//! Checkpoints: everything of a target is made durable now and then, so that a start after a crash
//! has little to examine.

use crate::disk::Disk;
use std::time::Duration;
use weir_host::net::Signal;

/// Makes checkpoints until `shutdown` is raised. Each target has its own thread, so that a hung
/// disk blocks no other.
pub(crate) fn run(disk: &Disk, interval_ms: u64, shutdown: &Signal) {
    let interval = Duration::from_millis(interval_ms.max(1));
    loop {
        match shutdown.wait(Some(interval)) {
            Ok(false) => {}
            Ok(true) => return,
            Err(e) => {
                tracing::error!("no more checkpoints: {}", std::io::Error::from(e));
                return;
            }
        }
        // A target in trouble has said so, and is reported by heartbeats. However long all of
        // it takes, it does not hang.
        if disk.store.trouble().is_none()
            && let Err(e) = disk.store.sync_all()
        {
            tracing::error!("checkpoint: {e}");
        }
    }
}
