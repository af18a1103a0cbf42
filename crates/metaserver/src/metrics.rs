//! Metrics of a metadata server for Prometheus. All state belongs to its one loop, so the loop is
//! asked: by one request at a time, and for no longer than [`PATIENCE`].

use crate::news::News;
use std::sync::Arc;
use std::time::Duration;
use weir_host::clock;
use weir_host::sync::{Condvar, Mutex};
use weir_metrics::names as n;
use weir_metrics::{Counted, Family, Histogram, Page, tell_network};
use weir_net::LoopHandle;
use weir_net::server::ServerCounters;
use weir_wire::data::ServerStatus;
use weir_wire::map::TargetState;
use weir_wire::peer::is_recovering;
use weir_wire::targets::TargetView;

/// Longest wait for the loop.
const PATIENCE: Duration = Duration::from_secs(2);

/// Durations of requests, by what they had to wait for.
#[derive(Debug, Default)]
pub(crate) struct RequestTimes {
    /// Requests that waited for nothing.
    pub(crate) now: Histogram,
    /// Requests that waited for the disk.
    pub(crate) synced: Histogram,
    /// Requests that waited for other clients.
    pub(crate) parked: Histogram,
}

/// The loop's reply.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) status: ServerStatus,
    pub(crate) targets: Vec<TargetView>,
}

/// Reads the counters of a metadata server from any thread.
#[derive(Default)]
pub struct Observer {
    pub(crate) times: RequestTimes,
    /// Durations of appends to the journal.
    pub(crate) appends: Histogram,
    /// Operations that this server lacks, while it stands by.
    behind: Mutex<Option<u64>>,
    state: Mutex<State>,
    answered: Condvar,
}

#[derive(Default)]
struct State {
    serving: Option<(LoopHandle<News>, Arc<ServerCounters>)>,
    /// Whether the loop was asked and has not replied: it is not asked again.
    asked: bool,
    /// Number of replies.
    answers: u64,
    last: Option<Arc<Told>>,
}

impl Observer {
    pub(crate) fn begin(&self, serving: LoopHandle<News>, net_counters: Arc<ServerCounters>) {
        self.state.lock().serving = Some((serving, net_counters));
    }

    /// Notes that this server stands by, and what it lacks; `None`: it does not stand by.
    pub(crate) fn stand_by(&self, behind: Option<u64>) {
        *self.behind.lock() = behind;
    }

    pub(crate) fn end(&self) {
        self.state.lock().serving = None;
    }

    /// Stores the loop's reply.
    pub(crate) fn answer(&self, told: Told) {
        let mut state = self.state.lock();
        state.asked = false;
        state.answers += 1;
        state.last = Some(Arc::new(told));
        self.answered.notify_all();
    }

    /// Asks the loop; `None` if it does not serve, or is too busy to reply.
    fn ask(&self) -> Option<(Arc<Told>, Arc<ServerCounters>)> {
        let until = clock::now() + PATIENCE;
        let mut state = self.state.lock();
        let (handle, net_counters) = state.serving.clone()?;
        let before = state.answers;
        if !std::mem::replace(&mut state.asked, true) {
            handle.post(News::Observer);
        }
        while state.answers == before {
            let left = until.saturating_duration_since(clock::now());
            if left.is_zero() {
                return None;
            }
            state = self.answered.wait_timeout(state, left);
        }
        Some((state.last.clone()?, net_counters))
    }

    /// Adds all metrics of a metadata server to a page. Returns `false` if it does not serve, or
    /// does not reply in time.
    pub fn tell(&self, page: &mut Page) -> bool {
        let Some((told, net_counters)) = self.ask() else {
            let Some(behind) = *self.behind.lock() else { return false };
            page.number(&n::META_LEADS, 0);
            page.number(&n::META_BEHIND, behind);
            return true;
        };
        let Told { status, targets } = &*told;
        page.value(&n::UPTIME, status.uptime_ms as f64 / 1e3);
        let mut counted = Counted::new(status.counters.iter().cloned());
        for (name, value) in net_counters.snapshot() {
            counted.add(name, value);
        }
        tell_network(page, &mut counted);
        self.tell_requests(page, &mut counted);
        tell_clients(page, &mut counted);
        counted.tell(page, &n::META_DISK_SIZE, "disk.size_bytes");
        counted.tell(page, &n::META_DISK_FREE, "disk.free_bytes");
        tell_copies(page, &mut counted);
        self.tell_members(page, &mut counted);
        tell_targets(page, targets);
        // Told of each target: its state, and what it lacks.
        counted.take("targets_out_of_service");
        // Told by `weir key rotate --own`, which waits for them.
        counted.take("keys.own_waiting");
        counted.take_if(|name| name.starts_with("target."));
        debug_assert!(counted.left().is_empty(), "not told: {:?}", counted.left());
        true
    }

    /// Who leads, and what the others lack.
    fn tell_members(&self, page: &mut Page, counted: &mut Counted) {
        page.number(&n::META_LEADS, 1);
        page.number(&n::META_BEHIND, 0);
        counted.tell(page, &n::META_TERM, "journal.term");
        counted.tell_prefix(page, &n::META_MEMBER_BEHIND, "journal.behind.");
        let prefix = "journal.silent_ms.";
        let mut samples = page.family(&n::META_MEMBER_SILENT);
        for (name, ms) in counted.take_if(|name| name.starts_with(prefix)) {
            samples.value(&[name.get(prefix.len()..).unwrap_or_default()], ms as f64 / 1e3);
        }
        page.family(&n::META_APPEND_TIME).times(&[], &self.appends.times());
        // The names say who leads and where the journal ends.
        counted.take_if(|name| name.starts_with("journal."));
    }

    fn tell_requests(&self, page: &mut Page, counted: &mut Counted) {
        let errors = counted.take_if(|name| name.starts_with("op.") && name.ends_with(".errors"));
        counted.tell_prefix(page, &n::META_REQUESTS, "op.");
        let mut samples = page.family(&n::META_ERRORS);
        for (name, value) in &errors {
            let op = name.strip_prefix("op.").and_then(|name| name.strip_suffix(".errors"));
            samples.number(&[op.unwrap_or_default()], *value);
        }
        let RequestTimes { now, synced, parked } = &self.times;
        let mut samples = page.family(&n::META_REQUEST_TIME);
        for (answer, times) in [("now", now), ("synced", synced), ("parked", parked)] {
            samples.times(&[answer], &times.times());
        }
        counted.tell(page, &n::META_DATA_REQUESTS, "data_requests");
        counted.tell(page, &n::META_REPLAYS, "replays");
        counted.tell(page, &n::META_CONFLICTS, "conflicts");
    }
}

/// Sessions, and what clients hold and wait for.
fn tell_clients(page: &mut Page, counted: &mut Counted) {
    counted.tell(page, &n::META_SESSIONS, "sessions");
    counted.tell(page, &n::META_EXPIRED, "sessions_expired");
    counted.tell_prefix(page, &n::META_LEASES, "leases.");
    counted.tell_prefix(page, &n::META_EVENTS, "events.");
    counted.tell(page, &n::META_BELIEFS, "beliefs");
    counted.tell(page, &n::META_PARKED, "parked");
    counted.tell(page, &n::META_PARKED_NOW, "parked_now");
    page.value(&n::META_PARKED_LONGEST, counted.take("parked_ms_max") as f64 / 1e3);
    counted.tell_prefix(page, &n::META_LOCKS, "locks.");
    counted.tell(page, &n::META_ORPHANS, "orphans");
    counted.tell(page, &n::META_OBJECTS_REMOVED, "objects_removed");
    counted.tell(page, &n::META_TARGETS_LOST, "targets_lost");
    counted.tell(page, &n::META_EPOCH, "map_epoch");
    counted.tell(page, &n::META_KEY_GENERATION, "keys.generation");
    counted.tell(page, &n::META_REVOCATIONS_LACKING, "revocations.servers_lacking");
}

/// Copies that are being made and moved.
fn tell_copies(page: &mut Page, counted: &mut Counted) {
    let numbers: [(&'static Family, &str); 12] = [
        (&n::COPIES_TO_DO, "mover.copies_to_do"),
        (&n::COPIES_BYTES_TO_DO, "mover.bytes_to_do"),
        (&n::COPIES_DONE, "mover.copies_done"),
        (&n::COPIES_BYTES_DONE, "mover.bytes_done"),
        (&n::COPIES_EXPECTED, "mover.expected_s"),
        (&n::COPIES_FILLING, "mover.filling"),
        (&n::COPIES_SOURCELESS, "mover.without_source"),
        (&n::COPIES_STUCK, "mover.segments_stuck"),
        (&n::COPIES_LOOKING, "mover.looking"),
        (&n::COPIES_LOOKED_AT, "mover.files_looked_at"),
        (&n::REBALANCING, "mover.rebalancing"),
        (&n::RELIEVED, "mover.relieved"),
    ];
    for (family, name) in numbers {
        counted.tell(page, family, name);
    }
    counted.tell_prefix(page, &n::ENCODING_SEGMENTS, "encoding.segments.");
    counted.tell_prefix(page, &n::ENCODING_BYTES, "encoding.bytes.");
    page.value(&n::UNEVEN, counted.take("mover.uneven_percent") as f64 / 100.0);
    // What was made says it better, over any time.
    counted.take("mover.bytes_per_s");
}

fn tell_targets(page: &mut Page, targets: &[TargetView]) {
    let names = |view: &TargetView| [view.target.to_string(), view.server.to_string()];
    let mut samples = page.family(&n::TARGET_STATE);
    for view in targets {
        let [target, server] = names(view);
        let is = match view.state {
            TargetState::Suspect => "suspect",
            TargetState::Online if view.suspect => "suspect",
            TargetState::Online => "online",
            TargetState::Offline => "offline",
            TargetState::OutOfService => "out_of_service",
            TargetState::Syncing => "syncing",
        };
        for state in ["online", "suspect", "syncing", "offline", "out_of_service"] {
            samples.number(&[&target, &server, state], (state == is).into());
        }
    }
    let mut each = |family, value: &dyn Fn(&TargetView) -> f64| {
        let mut samples = page.family(family);
        for view in targets {
            let [target, server] = names(view);
            samples.value(&[&target, &server], value(view));
        }
    };
    each(&n::TARGET_SLOW, &|view| u8::from(view.slow).into());
    each(&n::TARGET_DRAINING, &|view| u8::from(view.draining).into());
    let hangs = |view: &TargetView| view.given_up && !is_recovering(&view.trouble);
    each(&n::TARGET_GIVEN_UP, &|view| u8::from(hangs(view)).into());
    each(&n::TARGET_BEHIND, &|view| view.behind as f64);
    each(&n::TARGET_BEHIND_EXPECTED, &|view| view.behind_expected_s as f64);
    each(&n::TARGET_SILENT, &|view| view.silent_ms as f64 / 1e3);
}
