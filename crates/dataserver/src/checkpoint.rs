//! Makes everything of each target durable now and then, so that a start after
//! a crash has little to examine.

use crate::service::Shared;
use std::sync::Arc;
use std::time::Duration;
use weir_host::net::Signal;

/// The life of the thread that does it, until `shutdown` is raised.
pub(crate) fn run(shared: &Arc<Shared>, interval_ms: u64, shutdown: &Signal) {
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
        for disk in &shared.disks {
            // A target in trouble has said so, and is reported by heartbeats.
            if disk.store.trouble().is_none()
                && let Err(e) = disk.store.sync_all()
            {
                tracing::error!("checkpoint: {e}");
            }
        }
    }
}
