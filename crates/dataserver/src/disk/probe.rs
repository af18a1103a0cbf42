//! Test reads: how fast a disk is that no client reads from. Other programs may use it. So it is
//! read from now and then, bypassing the page cache, if it was used by any program since. An unused
//! disk is as fast as at the last test without other use.
//!
//! Test reads take at most a twentieth of the disk's time.

use std::path::Path;
use weir_host::device::Device;
use weir_policy::SOON_US;

/// A time in microseconds.
type Micros = u64;

/// No test is made if a client has read within this time: reads measure the disk better.
const UNREAD_US: Micros = 1_000_000;
/// A disk is in use if this many sectors (2 MiB) were transferred. Less may be logs.
const USED_SECTORS: u64 = 4096;
/// Even with less transfer the speed is tested again after this time, since there may be small
/// requests, or the other use may have ended; unless the disk was completely unused since the last
/// test and for as long before.
const SETTLED_US: Micros = 10_000_000;
const SECTOR: u64 = 512;
/// A disk with fewer sectors (256 KiB) than this transferred in that time is unused.
const QUIET_SECTORS: u64 = 512;
const QUIET_US: Micros = 1_000_000;
/// Shortest pause between two tests.
const PAUSE_US: Micros = 1_000_000;
/// Pause as a multiple of the last test's duration.
const PAUSES: u64 = 19;
/// A test may be served from a disk's own memory: a quicker result says only that the disk is not
/// slow.
const QUICKEST_US_PER_MIB: u64 = 5_000;
/// A target that has served reads from memory is not tested for this long: its disk's speed does
/// not matter.
const IN_MEMORY_US: Micros = 10_000_000;

/// Result of a test.
#[derive(Clone, Copy, Debug)]
struct Found {
    us_per_mib: u32,
    /// Time of the test.
    at: Micros,
    took: Micros,
    /// The disk's transferred sectors by then; `None` if unknown.
    sectors: Option<u64>,
    /// Whether the disk was unused since the previous test.
    was_alone: bool,
    /// Whether other programs used the disk just before or during the test, which may have ended
    /// since.
    was_busy: bool,
}

impl Found {
    /// Sectors transferred since then.
    fn used_since(&self, used: Option<u64>) -> Option<u64> {
        Some(used?.saturating_sub(self.sectors?))
    }

    /// Pause until the next test.
    fn pause_us(&self) -> Micros {
        PAUSE_US.max(self.took * PAUSES)
    }
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    /// Nothing.
    No,
    /// Report the last result again.
    Same(u32),
    /// Make a test.
    Probe,
}

/// Since when a disk is unused.
#[derive(Clone, Copy, Debug, Default)]
struct Quiet {
    /// Transferred sectors at that time.
    sectors: u64,
    since: Option<Micros>,
}

impl Quiet {
    /// Whether the disk is unused, from its transferred sectors.
    fn look(&mut self, used: Option<u64>, now: Micros) -> bool {
        let Some(used) = used else { return false };
        let since = match self.since {
            Some(since) if used.saturating_sub(self.sectors) < QUIET_SECTORS => since,
            _ => {
                *self = Self { sectors: used, since: Some(now) };
                now
            }
        };
        now.saturating_sub(since) >= QUIET_US
    }

    /// Records a test of `bytes` with the sector counts before and after it. Returns whether other
    /// programs used the disk meanwhile.
    fn probed(&mut self, bytes: u64, (before, after): (Option<u64>, Option<u64>)) -> bool {
        let (Some(before), Some(after)) = (before, after) else { return false };
        let others = after.saturating_sub(before + bytes.div_ceil(SECTOR));
        self.sectors = after;
        if others >= QUIET_SECTORS {
            self.since = None;
        }
        others >= QUIET_SECTORS
    }
}

/// Decides what to do. `unread` is the time since the last read; `said` is the value that clients
/// are told, 0 for none; `used` is the count of transferred sectors; `is_quiet` says that the disk
/// is unused.
fn due(
    found: Option<Found>,
    (unread, said): (Micros, u32),
    now: Micros,
    (used, is_quiet): (Option<u64>, bool),
) -> Due {
    // A probe never finds it so quick.
    let serves_from_memory = said > 0 && f64::from(said) < SOON_US && unread < IN_MEMORY_US;
    if unread < UNREAD_US || serves_from_memory {
        return Due::No;
    }
    let Some(found) = found else { return Due::Probe };
    let since = now.saturating_sub(found.at);
    if found.was_busy && is_quiet && since >= PAUSE_US {
        // Who kept it busy then has gone, and nobody is kept waiting.
        return Due::Probe;
    }
    let sectors = found.used_since(used);
    let was_read = now.saturating_sub(unread) > found.at;
    let is_in_use = was_read || sectors.is_some_and(|sectors| sectors >= USED_SECTORS);
    let is_alone = found.was_alone && sectors == Some(0);
    if is_in_use || (since >= SETTLED_US && !is_alone) {
        return if since >= found.pause_us() { Due::Probe } else { Due::No };
    }
    Due::Same(found.us_per_mib)
}

#[derive(Debug, Default)]
enum Opened {
    #[default]
    NotYet,
    Device(Device),
    /// Tests are off, or the disk cannot be read around the page cache.
    None,
}

/// The tests of a disk.
#[derive(Debug, Default)]
pub(crate) struct Probe {
    opened: Opened,
    found: Option<Found>,
    quiet: Quiet,
}

impl Probe {
    /// Without tests.
    pub(crate) fn off() -> Self {
        Self { opened: Opened::None, ..Self::default() }
    }

    /// The time per MiB, if it has to be reported: from a new test, which takes as long as the disk
    /// does and is cut short if the disk `is_read` meanwhile, or from the last one. `unread` and
    /// `said` as in [`due`].
    pub(crate) fn look(
        &mut self,
        dir: &Path,
        read: (Micros, u32),
        is_read: impl Fn() -> bool,
        now: Micros,
    ) -> Option<u32> {
        if let Opened::NotYet = self.opened {
            self.opened = match Device::of(dir) {
                Ok(device) => Opened::Device(device),
                Err(e) => {
                    let dir = dir.display();
                    tracing::info!(
                        "{dir}: its speed is known only while clients read from it: {e}"
                    );
                    Opened::None
                }
            };
        }
        let Opened::Device(device) = &mut self.opened else { return None };
        let used = device.used_sectors();
        let is_quiet = self.quiet.look(used, now);
        match due(self.found, read, now, (used, is_quiet)) {
            Due::No => None,
            Due::Same(us_per_mib) => Some(us_per_mib),
            Due::Probe => {
                let (bytes, took) = match device.read(is_read) {
                    Ok(done) => done,
                    Err(e) => {
                        // A disk may try for long to read a place that is damaged.
                        tracing::warn!("{}: its speed is not tested any more: {e}", dir.display());
                        self.opened = Opened::None;
                        return None;
                    }
                };
                let took = took.as_micros() as Micros;
                let us_per_mib = us_per_mib(bytes, took);
                let sectors = device.used_sectors();
                let name = dir.display();
                tracing::debug!(us_per_mib, took, "test read of {name}: {bytes} bytes");
                let was_alone = self.found.is_some_and(|found| found.used_since(used) == Some(0));
                let at = now + took;
                let was_busy = self.quiet.probed(bytes, (used, sectors)) || !is_quiet;
                self.found = Some(Found { us_per_mib, at, took, sectors, was_alone, was_busy });
                Some(us_per_mib)
            }
        }
    }
}

/// Time per MiB as for reads: a request counts as more bytes than it has.
fn us_per_mib(bytes: u64, took: Micros) -> u32 {
    let bytes = bytes + weir_wire::frame::REQUEST_COST_BYTES;
    let us = (took << 20).div_ceil(bytes).max(QUICKEST_US_PER_MIB);
    u32::try_from(us).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Micros = 1_000_000;

    fn found(took: Micros, sectors: Option<u64>) -> Option<Found> {
        let (was_alone, was_busy) = (false, false);
        Some(Found { us_per_mib: 7, at: 100 * S, took, sectors, was_alone, was_busy })
    }

    #[test]
    fn a_disk_is_probed_if_nobody_reads_and_it_is_not_known() {
        let unread = (60 * S, 0);
        assert_eq!(due(None, unread, 200 * S, (Some(1), false)), Due::Probe);
        assert_eq!(due(None, (S / 2, 50_000), 200 * S, (Some(1), false)), Due::No, "it is read");
        assert_eq!(
            due(None, (5 * S, 100), 200 * S, (Some(1), false)),
            Due::No,
            "it serves from memory"
        );
        assert_eq!(
            due(None, (11 * S, 100), 200 * S, (Some(1), false)),
            Due::Probe,
            "it did long ago"
        );
    }

    #[test]
    fn a_disk_that_nobody_uses_is_left_alone_and_others_pay_a_twentieth() {
        let (unread, since) = ((999 * S, 7), |time: Micros| 100 * S + time);
        let found = |took| found(took, Some(1_000));
        assert_eq!(due(found(20_000), unread, since(9 * S), (Some(1_500), false)), Due::Same(7));
        assert_eq!(
            due(found(20_000), unread, since(10 * S), (Some(1_500), false)),
            Due::Probe,
            "a little"
        );
        assert_eq!(
            due(found(20_000), unread, since(10 * S), (Some(1_000), false)),
            Due::Probe,
            "it was"
        );
        let alone = found(20_000).map(|found| Found { was_alone: true, ..found });
        assert_eq!(
            due(alone, unread, since(900 * S), (Some(1_000), false)),
            Due::Same(7),
            "for good"
        );
        assert_eq!(
            due(alone, (20 * S, 50_000), since(60 * S), (Some(1_000), false)),
            Due::Probe,
            "read"
        );
        assert_eq!(due(found(20_000), unread, since(S), (Some(9_000), false)), Due::Probe);
        assert_eq!(due(found(20_000), unread, since(S / 2), (Some(9_000), false)), Due::No);
        assert_eq!(due(found(S), unread, since(18 * S), (Some(9_000), false)), Due::No);
        assert_eq!(due(found(S), unread, since(19 * S), (Some(9_000), false)), Due::Probe);
    }

    #[test]
    fn a_disk_is_looked_at_again_as_soon_as_who_kept_it_busy_has_gone() {
        let (unread, used) = ((999 * S, 7), Some(5_100));
        let busy = found(S, Some(1_000)).map(|found| Found { was_busy: true, ..found });
        assert_eq!(due(busy, unread, 104 * S, (used, false)), Due::No, "it may be so still");
        assert_eq!(due(busy, unread, 104 * S, (used, true)), Due::Probe);
        assert_eq!(due(busy, unread, 100 * S + S / 2, (used, true)), Due::No);
        let slow = found(S, Some(5_100));
        assert_eq!(due(slow, unread, 104 * S, (used, true)), Due::Same(7), "it is slow by itself");
        let mut quiet = Quiet::default();
        assert!(!quiet.look(Some(1_000), 0) && !quiet.look(Some(1_500), S - 1));
        assert!(quiet.look(Some(1_511), S) && !quiet.look(Some(1_512), 2 * S));
        assert!(!quiet.look(None, 9 * S), "nobody counts");
        assert!(!quiet.probed(256 << 10, (Some(1_512), Some(2_034))));
        assert!(quiet.look(Some(2_034), 3 * S), "but for the probe itself");
        assert!(quiet.probed(256 << 10, (Some(2_034), Some(9_000))), "somebody has come meanwhile");
        assert!(!quiet.look(Some(9_000), 4 * S) && quiet.look(Some(9_000), 5 * S));
    }

    #[test]
    fn a_disk_that_is_not_to_be_probed_is_not() {
        let dir = std::env::temp_dir();
        assert_eq!(Probe::off().look(&dir, (60 * S, 0), || false, 200 * S), None);
    }

    #[test]
    fn where_nobody_counts_it_is_found_out_now_and_then() {
        let unread = (999 * S, 7);
        assert_eq!(due(found(20_000, None), unread, 109 * S, (None, false)), Due::Same(7));
        assert_eq!(due(found(20_000, None), unread, 110 * S, (None, false)), Due::Probe);
    }

    #[test]
    fn a_probe_is_as_fast_as_a_read_of_the_same_size() {
        assert_eq!(us_per_mib((1 << 20) - (64 << 10), 10_000), 10_000);
        assert_eq!(u64::from(us_per_mib(512 << 10, 300)), QUICKEST_US_PER_MIB);
    }
}
