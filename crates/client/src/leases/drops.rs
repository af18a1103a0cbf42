//! The thread that makes the layer above drop what it caches.

use crate::state::{Inner, ToDrop};
use std::sync::Arc;
use std::time::Duration;

impl Inner {
    /// Serves drops until the client ends: makes the layer above drop everything whenever leases
    /// were lost, or may be soon.
    pub(crate) fn drop_lost(self: &Arc<Self>) {
        let Some(upper) = &self.upper else { return };
        let mut ended = Duration::ZERO;
        while let Some(drop) = self.holdings.drops.next(&self.holdings.clock, &mut ended) {
            match drop {
                ToDrop::Everything => {
                    upper.drop_everything();
                    self.holdings.drops.done();
                }
                ToDrop::Files(files) => {
                    files.iter().for_each(|file| upper.drop_pages(*file, 0, u64::MAX));
                }
            }
        }
    }
}
