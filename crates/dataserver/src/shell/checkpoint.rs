//! Checkpoints: everything of a target is made durable now and then, so that a start after a crash
//! has little to examine. Audit records are written more often, and not synced.

use crate::disk::Disk;
use std::time::Duration;
use weir_host::clock;
use weir_host::net::Signal;

/// The longest time between two writes of audit records.
const AUDIT_EVERY: Duration = Duration::from_secs(5);

/// Makes checkpoints until `shutdown` is raised. Each target has its own thread, so that a hung
/// disk blocks no other.
pub(crate) fn run(disk: &Disk, interval_ms: u64, shutdown: &Signal) {
    let interval = Duration::from_millis(interval_ms.max(1));
    let mut last = clock::now();
    loop {
        let left = interval.saturating_sub(clock::elapsed(last));
        let wait = match disk.served.audit.is_on() {
            true => left.min(AUDIT_EVERY),
            false => left,
        };
        match shutdown.wait(Some(wait)) {
            Ok(false) => {}
            Ok(true) => return,
            Err(e) => {
                tracing::error!("no more checkpoints: {}", std::io::Error::from(e));
                return;
            }
        }
        // A target in trouble has said so, and is reported by heartbeats.
        let trouble = disk.store.trouble().is_some();
        if !trouble {
            disk.served.audit.write(disk.store.dir(), unix_ms());
        }
        if clock::elapsed(last) < interval {
            continue;
        }
        last = clock::now();
        // However long all of it takes, it does not hang.
        if !trouble && let Err(e) = disk.store.sync_all() {
            tracing::error!("checkpoint: {e}");
        }
    }
}

/// Milliseconds since 1970.
fn unix_ms() -> u64 {
    clock::unix_now().as_millis() as u64
}
