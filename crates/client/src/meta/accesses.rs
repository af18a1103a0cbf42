//! Access times that the metadata server is told.

use crate::context::Context;
use crate::state::Inner;
use std::sync::atomic::Ordering;
use weir_types::ErrorKind;
use weir_wire::meta::AccessedRequest;

impl Inner {
    /// Sends all times noted until now to the metadata server, waiting `time_ms` for each message.
    /// Later reads wait for the next call.
    pub(crate) fn send_accesses(&self, time_ms: u64) {
        for _ in 0..self.accesses.messages() {
            let Some(files) = self.accesses.take() else { return };
            let request = AccessedRequest { files };
            let (told, _) = self.session.ask_within(&Context::root(), &request, time_ms);
            let sent = self.accesses.was_told();
            match told {
                // Whoever keeps the attributes of a file sees no older time than before.
                Ok(()) => {
                    let mut kept = self.holdings.kept.lock();
                    for (file, noted) in &sent {
                        kept.was_accessed(*file, |attr| noted.show(attr));
                    }
                }
                Err(error) => {
                    if error.kind == ErrorKind::ReadOnly {
                        self.accesses.is_refused.store(true, Ordering::Relaxed);
                    }
                    tracing::debug!("access times not reported: {error}");
                    return;
                }
            }
        }
    }
}
