//! Counts and logs the results of repairs.

use super::{Mend, Mender};
use crate::counters::add;
use crate::state::suspects::Suspect;
use weir_types::{ErrorKind, Result};

impl Mender<'_> {
    /// Counts and logs the result of a repair.
    pub(crate) fn count(&self, suspect: &Suspect, mended: &Result<Mend>) {
        let Self { shared, disk, object } = *self;
        let (name, file) = (disk.store.name(), object.file.0);
        let place = match suspect {
            Suspect::Header => "its header".to_owned(),
            Suspect::Bytes(range) => format!("within its bytes {}-{}", range.start, range.end - 1),
        };
        let what = format!("{name}: file {file}: object {object}, {place}");
        let counters = &shared.counters;
        let blocks = match mended {
            Ok(Mend::Alone | Mend::Sound) => return,
            Ok(Mend::Blocks(count)) => *count,
            Err(error) if error.kind != ErrorKind::Corrupt => {
                tracing::debug!("{what}: not repaired now: {error}");
                return;
            }
            // At least.
            Ok(Mend::Header | Mend::Anew) | Err(_) => 1,
        };
        add(&counters.rot_found, blocks);
        match mended {
            Ok(Mend::Blocks(count)) => {
                tracing::warn!("{what}: {count} blocks had rotted, and were repaired");
                add(&counters.rot_repaired, blocks);
            }
            Ok(Mend::Header) => {
                tracing::warn!("{what}: it had rotted, and was written anew");
                add(&counters.rot_repaired, blocks);
            }
            Ok(_) => {
                tracing::warn!("{what}: the object is damaged, and is made anew");
                add(&counters.rot_repaired, blocks);
            }
            Err(error) => {
                tracing::error!("{what}: damaged, and not repaired: {error}");
                add(&counters.rot_unrepairable, blocks);
            }
        }
    }
}
