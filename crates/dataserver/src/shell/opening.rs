//! Opens the targets of a server, in parallel, since unclean targets are recovered first. Meanwhile
//! the metadata server and the starting process are told the progress; nothing is served yet.

use super::herald::{AtWork, Herald};
use super::key_files;
use super::listening::{Listening, listen, runs};
use super::metrics::Observer;
use super::threads::{is_raised, spawn};
use super::under::Under;
use crate::config::{DataServerConfig, TargetConfig, read_key};
use crate::disk::{Disk, Unopened};
use crate::machine::{LaterKey, ServedTarget};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_audit::Log;
use weir_host::clock;
use weir_host::device::Counts;
use weir_host::net::Signal;
use weir_host::thread;
use weir_net::{AbortOnPanic, Address};
use weir_store::{Opening, Target, TargetOptions};
use weir_types::{Error, ErrorKind, Result, ServerId, TargetId};
use weir_wire::Key;
use weir_wire::peer::recovering;

/// Total wait for targets that another process still holds.
const PATIENCE: Duration = Duration::from_secs(2);
/// A server that opens its targets within this time does not report that.
const SOON: Duration = Duration::from_secs(2);
/// Interval of progress reports.
const LOOK: Duration = Duration::from_millis(250);

/// Result for the targets of a configuration.
pub(crate) struct Opened {
    /// Sorted by id.
    pub(crate) disks: Vec<Arc<Disk>>,
    pub(crate) unopened: Vec<Unopened>,
    /// Cluster of the targets.
    pub(crate) cluster: [u8; 16],
}

/// Parameters of the opening.
pub(crate) struct Opener<'a> {
    pub(crate) config: &'a mut DataServerConfig,
    pub(crate) options: TargetOptions,
    pub(crate) server_key: &'a Key,
    pub(crate) shutdown: &'a Signal,
    pub(crate) observer: &'a Observer,
}

/// One target of the configuration.
struct Item {
    id: TargetId,
    key: Key,
    later: Vec<LaterKey>,
    dir: PathBuf,
    opening: Result<Opening>,
}

/// Makes the gap log of a target before its disk can be full: a copy that can refuse a change for
/// lack of room must be able to note that it lacks it, or the change can neither happen nor fail.
fn keep_gaps(store: &Target) {
    if let Err(error) = store.gaps().keep() {
        let name = store.name();
        tracing::warn!("{name}: no gap log yet: changes of files with copies may wait: {error}");
    }
}

impl Opener<'_> {
    /// Opens every target. A target that cannot be opened does not keep the others from being
    /// served. Returns `None` if the server was told to stop meanwhile.
    ///
    /// Errors: if none can be opened, the error of the first; an invalid key file; targets of
    /// different clusters.
    pub(crate) fn open(mut self) -> Result<Option<Opened>> {
        let items = self.begin()?;
        let cluster = cluster_of(&items)?;
        let mut unopened = Vec::new();
        let mut failure: Option<Error> = None;
        let mut fails = |id: TargetId, key: Key, dir: PathBuf, error: Error| {
            tracing::error!("not served: {error}");
            let why = format!("out of service: {error}");
            let served = ServedTarget::new(id, key, Some(why));
            unopened.push(Unopened { served: Arc::new(served), dir });
            failure.get_or_insert(error);
        };
        let (mut kept, mut openings) = (Vec::new(), Vec::new());
        for Item { id, key, later, dir, opening } in items {
            match opening {
                Ok(opening) => {
                    kept.push((id, (key, later), dir));
                    openings.push((id, opening));
                }
                Err(error) => fails(id, key, dir, error),
            }
        }
        let Some(ended) = self.finish(openings, cluster)? else { return Ok(None) };
        let mut disks = Vec::new();
        for ((id, (key, later), dir), result) in kept.into_iter().zip(ended) {
            match result {
                Ok(store) => {
                    keep_gaps(&store);
                    let mut served = ServedTarget::new(id, key, None);
                    served.keys.set_later(later);
                    served.audit = Log::open(store.dir(), self.config.audit_records);
                    let (limit, probes) = (self.config.queue_limit, self.config.probe_disks);
                    disks.push(Arc::new(Disk::new(store, Arc::new(served), limit, probes)));
                }
                Err(error) => fails(id, key, dir, of_target(id, error)),
            }
        }
        disks.sort_by_key(|d| d.served.id);
        match (cluster, failure) {
            (Some(cluster), _) if !disks.is_empty() => {
                Ok(Some(Opened { disks, unopened, cluster }))
            }
            (_, Some(failure)) => Err(failure),
            (_, None) => Err(Error::new(ErrorKind::InvalidArgument, "there is no target to serve")),
        }
    }

    fn begin(&self) -> Result<Vec<Item>> {
        let patience = clock::now() + PATIENCE;
        let begin = |target: &TargetConfig| {
            let id = TargetId(target.target);
            let key = read_key(&target.key_file, &format!("target {id}"))?;
            let later = key_files::read(&target.key_file)?;
            let opening = self.begin_when_free(target, patience);
            Ok(Item { id, key, later, dir: target.dir.clone(), opening })
        };
        self.config.targets.iter().map(begin).collect()
    }

    /// Locks a target. A process that was killed may take a moment to release its lock.
    fn begin_when_free(&self, target: &TargetConfig, until: Instant) -> Result<Opening> {
        loop {
            match self.begin_one(target) {
                Err(e) if e.kind == ErrorKind::Busy && clock::now() < until => {
                    thread::sleep(Duration::from_millis(20));
                }
                result => return result,
            }
        }
    }

    fn begin_one(&self, target: &TargetConfig) -> Result<Opening> {
        let id = TargetId(target.target);
        let opening = Opening::begin(&target.dir, self.options).map_err(|e| of_target(id, e))?;
        let identity = opening.identity();
        if (identity.target, identity.server) != (id, ServerId(self.config.server)) {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!(
                    "{} holds target {} of server {}, but is configured as target {id} of server {}",
                    target.dir.display(),
                    identity.target,
                    identity.server,
                    self.config.server
                ),
            ));
        }
        Ok(opening)
    }

    /// Waits until all are open, or cannot be opened. Returns `None` if the server was told to
    /// stop.
    fn finish(
        &mut self,
        openings: Vec<(TargetId, Opening)>,
        cluster: Option<[u8; 16]>,
    ) -> Result<Option<Vec<Result<Target>>>> {
        let targets = openings.iter().map(|(id, _)| *id).collect();
        let dir = |id: &TargetId| self.config.targets.iter().find(|t| t.target == id.0);
        let counts = openings.iter().filter_map(|(id, _)| dir(id).map(|t| Counts::of(&t.dir)));
        let under = Arc::new(Under::new(targets, counts.collect()));
        let mut threads = Vec::new();
        for (at, (id, opening)) in openings.into_iter().enumerate() {
            let (of, progress) = (under.clone(), under.progress(at));
            threads.push(spawn(&format!("weir-open-{id}"), move || {
                let _guard = AbortOnPanic("a thread that opens a target");
                of.has_ended(at, opening.finish(&progress));
            })?);
        }
        let begun = clock::now();
        let (mut herald, mut said, mut stopped) = (None, None, false);
        while !under.wait(LOOK) {
            if !stopped && is_raised(self.shutdown)? {
                stopped = true;
                under.stop();
            }
            if clock::elapsed(begun) < SOON {
                continue;
            }
            let steps = under.steps();
            if said != Some(steps) {
                said = Some(steps);
                self.observer.tell_recovery(&recovering(under.percent()));
            }
            if let (None, false, Some(cluster)) = (&herald, stopped, cluster) {
                match self.herald(cluster, under.clone()) {
                    Ok(started) => herald = Some(started),
                    // It only tells others; the next look tries again.
                    Err(error) => tracing::debug!(
                        "cannot report the recovery to the metadata server yet: {error}"
                    ),
                }
            }
        }
        if let Some(herald) = herald {
            herald.end();
        }
        for thread in threads {
            // One that panics ends the server.
            let _ = thread.join();
        }
        let ended = under.take();
        Ok((!stopped).then_some(ended))
    }

    /// Starts reports to the metadata server, with the addresses that will be served. They are not
    /// served yet: clients have to wait as for a server that does not run.
    fn herald(&mut self, cluster: [u8; 16], under: Arc<Under>) -> Result<AtWork> {
        let Listening { listeners, bound, tcp, unix } = listen(self.config)?;
        drop(listeners);
        self.config.listen = bound;
        let metadata = self.config.metadata.iter().map(|a| Address::parse(a));
        let herald = Herald {
            server: ServerId(self.config.server),
            key: self.server_key.clone(),
            cluster,
            metadata: metadata.collect::<Result<_>>()?,
            domain: self.config.domain.clone().unwrap_or_default(),
            runs: runs(self.config)?,
            tcp,
            unix,
            ending: Signal::new().map_err(|e| Error::from(std::io::Error::from(e)))?,
            under,
        };
        herald.start()
    }
}

/// The cluster of the targets that can be opened.
fn cluster_of(items: &[Item]) -> Result<Option<[u8; 16]>> {
    let mut cluster = None;
    for item in items {
        let Ok(opening) = &item.opening else { continue };
        let of = opening.identity().cluster;
        if *cluster.get_or_insert(of) != of {
            let dir = item.dir.display();
            let what = format!(
                "target {} ({dir}) belongs to another cluster than the targets before it",
                item.id
            );
            return Err(Error::new(ErrorKind::InvalidArgument, what));
        }
    }
    Ok(cluster)
}

fn of_target(id: TargetId, error: Error) -> Error {
    match error.kind {
        ErrorKind::NotFound => Error::new(
            ErrorKind::NotFound,
            format!(
                "target {id}: {}; if it is new, make it with `weir target create`",
                error.message
            ),
        ),
        _ => error.context(format!("target {id}")),
    }
}
