//! Metrics of a data server for Prometheus, from memory, whatever its disks do.

use crate::state::{RequestTimes, Shared};
use std::sync::Arc;
use weir_host::clock;
use weir_host::sync::Mutex;
use weir_metrics::names as n;
use weir_metrics::{Counted, Page, Samples, tell_network};
use weir_net::server::ServerCounters;
use weir_wire::data::{ServerStatus, TargetStatus};

/// Callback for the progress of a recovery.
type Told = dyn Fn(&str) + Send + Sync;

/// Reads the counters of a data server from any thread, even across its restarts.
#[derive(Default)]
pub struct Observer {
    /// Locked while it is read, so that the server, when it ends, has the last reference.
    serving: Mutex<Option<(Arc<Shared>, Arc<ServerCounters>)>>,
    /// Callback while the server is not serving yet.
    waiting: Option<Box<Told>>,
}

impl Observer {
    /// Makes an observer whose callback gets the progress of the server's recovery, whenever there
    /// is some and at most a few times per second.
    pub fn waiting(told: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self { waiting: Some(Box::new(told)), ..Self::default() }
    }

    pub(crate) fn tell_recovery(&self, what: &str) {
        self.waiting.iter().for_each(|told| told(what));
    }

    pub(crate) fn begin(&self, shared: Arc<Shared>, net_counters: Arc<ServerCounters>) {
        *self.serving.lock() = Some((shared, net_counters));
    }

    pub(crate) fn end(&self) {
        *self.serving.lock() = None;
    }

    /// Adds all metrics of a data server to a page. Returns `false` if none serves just now.
    pub fn tell(&self, page: &mut Page) -> bool {
        let serving = self.serving.lock();
        let Some((shared, net_counters)) = &*serving else { return false };
        page.value(&n::UPTIME, clock::elapsed(shared.started).as_secs_f64());
        let ServerStatus { counters, targets, .. } = shared.status(net_counters);
        let mut counted = Counted::new(counters);
        tell_network(page, &mut counted);
        tell_counters(page, &mut counted);
        tell_times(page, shared);
        tell_work(page, shared);
        tell_targets(page, shared, &targets);
        true
    }
}

fn tell_counters(page: &mut Page, counted: &mut Counted) {
    counted.tell_prefix(page, &n::DATA_REQUESTS, "op.");
    let (begun, ended) = (counted.take("asked.begun"), counted.take("asked.ended"));
    page.number(&n::DATA_IN_PROGRESS, begun.saturating_sub(ended));
    let bytes = [
        ("read", "bytes.read"),
        ("written", "bytes.written"),
        ("staged", "bytes.staged"),
        ("copied", "bytes.copied"),
        ("pulled", "bytes.pulled"),
        ("resynced", "bytes.resynced"),
        ("verified", "scrub.bytes"),
    ];
    counted.tell_all(page, &n::DATA_BYTES, &bytes);
    let reads = [
        ("page_cache", "read.from_page_cache"),
        ("disk_thread", "read.by_disk_thread"),
        ("of_jobs", "read.of_jobs"),
        ("locked", "read.locked"),
    ];
    counted.tell_all(page, &n::DATA_READS, &reads);
    counted.tell_prefix(page, &n::DATA_REFUSED, "refused.");
    counted.tell_prefix(page, &n::DATA_ERRORS, "error.");
    let checksums =
        [("arrival", "checksum.damaged_on_arrival"), ("disk", "checksum.corrupt_on_disk")];
    counted.tell_all(page, &n::DATA_CHECKSUMS, &checksums);
    counted.tell_prefix(page, &n::DATA_ROT, "rot.");
    counted.tell(page, &n::DATA_SCRUB_FINDINGS, "scrub.findings");
    counted.tell(page, &n::DATA_OBJECTS_REMOVED, "objects.removed");
    let stalls = [("queue_full", "queue.full"), ("buffer", "buffer.waits")];
    counted.tell_all(page, &n::DATA_STALLS, &stalls);
    let staged = [("refused", "staged.refused"), ("in_vain", "staged.in_vain")];
    counted.tell_all(page, &n::DATA_STAGED, &staged);
    counted.tell(page, &n::DATA_FORWARDED, "connections.forwarded");
    let paused_ms = counted.take("resync.paused_ms");
    page.value(&n::DATA_RESYNC_PAUSED, paused_ms as f64 / 1e3);
    counted.tell_all(page, &n::DATA_GAPS, &[("others", "gaps.of_others"), ("own", "gaps.own")]);
    counted.tell_prefix(page, &n::DATA_RECOVERED, "recovery.");
    // Told of each target.
    counted.take("targets.in_trouble");
    counted.take("targets.hanging");
    debug_assert!(counted.left().is_empty(), "not told: {:?}", counted.left());
}

fn tell_times(page: &mut Page, shared: &Shared) {
    let RequestTimes { read, write, sync, other } = &shared.times;
    let mut samples = page.family(&n::DATA_REQUEST_TIME);
    for (op, times) in [("read", read), ("write", write), ("sync", sync), ("other", other)] {
        samples.times(&[op], &times.times());
    }
    let mut samples = page.family(&n::TARGET_DISK_TIME);
    for disk in &shared.disks {
        let target = disk.served.id.to_string();
        samples.times(&[&target, "read"], &disk.times.reads.times());
        samples.times(&[&target, "change"], &disk.times.changes.times());
    }
}

/// Work of targets for clients.
fn tell_work(page: &mut Page, shared: &Shared) {
    let works = shared.disks.iter().map(|disk| (disk.served.id.to_string(), disk.work()));
    let works: Vec<_> = works.collect();
    let mut each = |family, number: &dyn Fn(&weir_wire::targets::TargetWork) -> u64| {
        let mut samples: Samples<'_> = page.family(family);
        works.iter().for_each(|(target, work)| samples.number(&[target], number(work)));
    };
    each(&n::TARGET_READ, &|work| work.read_bytes);
    each(&n::TARGET_WRITTEN, &|work| work.written_bytes);
    each(&n::TARGET_QUEUED, &|work| work.queued.into());
    each(&n::TARGET_IN_FLIGHT, &|work| work.in_flight.into());
    let mut samples = page.family(&n::TARGET_PACE);
    for (target, work) in &works {
        samples.value(&[target], f64::from(work.us_per_mib) / 1e6);
    }
}

/// State of targets, also of those that could not be opened.
fn tell_targets(page: &mut Page, shared: &Shared, targets: &[TargetStatus]) {
    let mut each = |family, number: &dyn Fn(&TargetStatus) -> u64| {
        let mut samples: Samples<'_> = page.family(family);
        for target in targets {
            samples.number(&[&target.target.to_string()], number(target));
        }
    };
    each(&n::TARGET_SIZE, &|target| target.usage.total_bytes);
    each(&n::TARGET_FREE, &|target| target.usage.free_bytes);
    each(&n::TARGET_IN_SERVICE, &|target| target.trouble.is_empty().into());
    let mut samples = page.family(&n::TARGET_HANGS);
    for disk in &shared.disks {
        let hangs = disk.at_work.hangs().unwrap_or_default();
        samples.value(&[&disk.served.id.to_string()], hangs.as_secs_f64());
    }
}
