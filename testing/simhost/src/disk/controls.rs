//! What a test does to a disk: faults, room, time, the point where it stops.

use super::SimDisk;
use super::faults::{Operation, Planned};
use super::state::ROOT;
use rustix::io::{Errno, Result};
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

impl SimDisk {
    /// After `after` more of these operations one fails with `errno`. A sync
    /// that fails loses what it was for (some of it, or all, or nothing);
    /// everything else that fails does nothing.
    pub fn fail_next(&self, operation: Operation, errno: Errno, after: u64) {
        let planned = Planned { operation, errno, after, always: false };
        self.state().faults.planned.push(planned);
    }

    /// As [`SimDisk::fail_next`], but all further ones fail, until
    /// [`SimDisk::heal`].
    pub fn fail_from(&self, operation: Operation, errno: Errno, after: u64) {
        let planned = Planned { operation, errno, after, always: true };
        self.state().faults.planned.push(planned);
    }

    /// How many failures are still to come.
    pub fn planned_failures(&self) -> usize {
        self.state().faults.planned.len()
    }

    /// Every change fails with `ROFS`, opening for writing too, as on a file
    /// system that was remounted for reading only.
    pub fn set_read_only(&self, on: bool) {
        self.state().faults.read_only = on;
    }

    /// Everything fails with this error (`NOENT`, `IO`), as if the disk had
    /// been taken away.
    pub fn set_gone(&self, errno: Option<Errno>) {
        self.state().faults.gone = errno;
    }

    /// Reads that touch these bytes of a file fail with `IO`, also after they
    /// were written again.
    ///
    /// # Errors
    /// There is no such file.
    pub fn fail_reads(&self, path: &str, bytes: Range<u64>) -> Result<()> {
        let mut state = self.state();
        let inode = state.find(ROOT, path)?;
        state.faults.unreadable.push((inode, bytes));
        Ok(())
    }

    /// With this probability a read that must not wait gives `AGAIN`.
    pub fn set_not_cached(&self, probability: f64) {
        self.state().faults.not_cached = probability;
    }

    /// All faults end, but for a disk that stopped and a site left out.
    pub fn heal(&self) {
        let faults = &mut self.state().faults;
        faults.planned.clear();
        faults.unreadable.clear();
        faults.read_only = false;
        faults.gone = None;
        faults.not_cached = 0.0;
    }

    /// Its size. Writes into pages that have no room yet are cut short or fail
    /// with `NOSPC` when it is used up.
    pub fn set_space(&self, total_bytes: u64) {
        self.state().total_bytes = total_bytes;
    }

    /// Others, who are not simulated, take all that is free but for so many bytes, and keep it
    /// until they are told another number.
    pub fn leave_free(&self, bytes: u64) {
        let mut state = self.state();
        let used = state.used_pages * super::content::PAGE;
        state.others_bytes = state.total_bytes.saturating_sub(used).saturating_sub(bytes);
    }

    /// Bytes that files take, in whole pages.
    pub fn used_bytes(&self) -> u64 {
        self.state().used_pages * super::content::PAGE
    }

    /// How long operations take; those that need no disk take no time.
    pub fn set_latency(&self, operation: Range<Duration>, sync: Range<Duration>) {
        self.state().latency = super::latency::Latency { operation, sync };
    }

    /// It hangs: operations that need the disk, and are begun from now on, end then at the
    /// earliest.
    pub fn hang_until(&self, end: Duration) {
        self.state().hangs_until = end;
    }

    /// What it reads from itself and writes takes its turn, at so many bytes a second; 0: no
    /// limit, as at first.
    pub fn set_rate(&self, bytes_per_s: u64) {
        self.state().rate.bytes_per_s = bytes_per_s;
    }

    /// Bytes that were read, not from memory, while it had such a limit.
    pub fn read_bytes(&self) -> u64 {
        self.state().rate.read_bytes
    }

    /// How often it has turned to another place for them, requests of 64 KiB and more.
    pub fn turns(&self) -> u64 {
        self.state().rate.turns
    }

    /// After `operations` more operations that change something or sync, the
    /// disk stops: the next one is done in part at most and fails with `IO`,
    /// and so does all that comes later, without doing anything.
    pub fn crash_after(&self, operations: u64) {
        self.state().faults.crash_in = Some(operations);
    }

    /// Whether it has stopped.
    pub fn is_frozen(&self) -> bool {
        self.state().faults.frozen
    }

    /// It works again, and shows what processes saw last: they died, not the
    /// machine.
    pub fn thaw(&self) {
        let faults = &mut self.state().faults;
        faults.frozen = false;
        faults.crash_in = None;
    }

    /// How many operations there were that change something or sync.
    pub fn op_count(&self) -> u64 {
        self.state().faults.operations
    }

    /// Syncs at this site do nothing from now on and report success: a test
    /// must notice that.
    pub fn skip_site(&self, site: Option<&str>) {
        self.state().faults.skipped_site = site.map(str::to_owned);
    }

    /// The sites of all syncs so far, with how many there were.
    pub fn sites(&self) -> BTreeMap<&'static str, u64> {
        self.state().faults.sites.clone()
    }
}
