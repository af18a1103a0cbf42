//! Requests of data servers: they register, report, and learn what to do.

use super::garbage::{CONFIRM_PAGE, MAX_REMOVALS, confirm};
use crate::machine::answer::Reply;
use crate::machine::moment::Moment;
use crate::machine::state::MetaMachine;
use crate::machine::state::cluster::standings::serve_ms;
use crate::schema::key;
use weir_metastore::Engine;
use weir_types::{ClientId, Epoch, Error, ErrorKind, Result, ServerId};
use weir_wire::peer::{
    FindPeerRequest, HeartbeatReply, HeartbeatRequest, Peer, RegisterRequest, TargetReport,
    is_recovering,
};
use weir_wire::ticket::OF_SERVERS;

/// Interval of searches for silent targets while others report.
const LOOK_FOR_SILENT_MS: u64 = 250;
/// Report interval of a data server with more objects to remove.
const BUSY_HEARTBEAT_MS: u32 = 100;

impl<E: Engine> MetaMachine<E> {
    pub(in crate::machine) fn register(
        &mut self,
        server: ServerId,
        request: &RegisterRequest,
        now: Moment,
    ) -> Result<Reply> {
        if let Some(change) = self.cluster.registration(server, request)? {
            self.commit_change(change, now)?;
            tracing::info!(
                server = server.0,
                host = request.host,
                tcp = request.tcp,
                targets = request.targets.len(),
                "data server registered"
            );
            for report in request.targets.iter().filter(|r| !r.trouble.is_empty()) {
                let (server, target, trouble) = (server.0, report.target.0, &report.trouble);
                match is_recovering(trouble) {
                    true => tracing::info!(server, target, "a target is being made ready"),
                    false => tracing::warn!(server, target, "a target fails: {trouble}"),
                }
            }
        }
        if request.first {
            // It adopts the present epoch with the answer, and has no lease before.
            self.cluster.acts(server, &request.targets, self.cluster.epoch);
        }
        self.cluster.heard(server, &request.targets, request.first, now.monotonic_ms);
        self.report(server, &request.targets, (Epoch(0), 0), now)
    }

    pub(in crate::machine) fn heartbeat(
        &mut self,
        server: ServerId,
        request: &HeartbeatRequest,
        now: Moment,
    ) -> Result<Reply> {
        if now.monotonic_ms.saturating_sub(self.cluster.checked_ms) >= LOOK_FOR_SILENT_MS {
            self.lose_silent_targets(now)?;
        }
        if let Some(change) = self.cluster.heartbeat(server, &request.targets)? {
            self.commit_change(change, now)?;
        }
        self.cluster.acts(server, &request.targets, request.acting);
        self.cluster.machines.insert(server, request.machine);
        self.cluster.heard(server, &request.targets, false, now.monotonic_ms);
        self.report(server, &request.targets, (request.acting, request.revoked), now)
    }

    /// Address of a target's server, for a server that copies from it.
    pub(in crate::machine) fn find_peer(
        &mut self,
        asking: ServerId,
        request: &FindPeerRequest,
        now: Moment,
    ) -> Result<Reply> {
        let entry = self.cluster.map().server_of(request.target).cloned().ok_or_else(|| {
            let message = format!("no data server serves target {}", request.target);
            Error::new(ErrorKind::TargetMissing, message)
        })?;
        let who = (ClientId(asking.0.into()), OF_SERVERS);
        let key = self.signer.server_key(asking);
        let ticket = self.ticket(entry.server, who, &key, now);
        Ok(Reply::ok(&Peer { entry, ticket }))
    }

    fn report(
        &mut self,
        server: ServerId,
        reports: &[TargetReport],
        (acting, known): (Epoch, u64),
        now: Moment,
    ) -> Result<Reply> {
        self.take_distrusted(server, reports)?;
        self.take_own_keys(server, reports, now)?;
        let distrust = self.distrusting()?;
        let is_source = |target| self.mover.is_only_source(target);
        if let Some(change) = self.cluster.judge(now.monotonic_ms, &distrust, is_source) {
            self.commit_change(change, now)?;
        }
        for report in reports.iter().filter(|report| self.cluster.serves(server, report.target)) {
            for page in report.removed.chunks(CONFIRM_PAGE) {
                // Nobody brings anything to anybody where no file has several copies.
                let (mover, mirrored) = (&mut self.mover, self.cluster.view.mirrored);
                let done = page.iter().filter(|object| !mirrored || mover.removed(**object, now));
                let keys = done.map(|object| key::garbage(report.target, *object)).collect();
                let removed = confirm(&mut self.engine, keys)?;
                self.counters.objects_removed += removed;
            }
        }
        self.take_filled(server, reports);
        let remove = self.removals(server, reports, now)?;
        let interval_ms = match remove.len() {
            MAX_REMOVALS => BUSY_HEARTBEAT_MS.min(self.times.heartbeat_ms),
            _ => self.times.heartbeat_ms,
        };
        self.cluster.tell(server, reports);
        let (epoch, in_effect) = (self.cluster.epoch, self.cluster.in_effect());
        let standings = if acting < epoch { self.cluster.standings() } else { Vec::new() };
        // Nobody waits for a change longer than need be.
        let interval_ms = match in_effect < epoch || self.cluster.hearsay.is_counting() {
            true => BUSY_HEARTBEAT_MS.min(interval_ms),
            false => interval_ms,
        };
        let fill = self.fills_for(server);
        let build = self.builds_for(server);
        let interval_ms = match fill.is_empty() && build.is_empty() {
            true => interval_ms,
            false => BUSY_HEARTBEAT_MS.min(interval_ms),
        };
        let distrust = self.distrust_for(server, reports)?;
        let interval_ms = match distrust.is_empty() {
            true => interval_ms,
            false => BUSY_HEARTBEAT_MS.min(interval_ms),
        };
        let served = reports.iter().map(|report| report.target);
        let served = served.filter(|target| self.cluster.serves(server, *target));
        let now_unix_ms = now.unix_ms();
        let oldest = |target| (target, self.keys.oldest(target, now_unix_ms));
        // Of all, also if all of its keys count: it may have heard of a rotation that a crash undid.
        let oldest_keys = served.map(oldest).collect();
        let revoked = self.revoked.tell(server, known, self.signer.version());
        let interval_ms = match revoked.list.is_empty() {
            true => interval_ms,
            false => BUSY_HEARTBEAT_MS.min(interval_ms),
        };
        let own_keys = self.own_keys_for(server, reports);
        let interval_ms = match own_keys.is_empty() {
            true => interval_ms,
            false => BUSY_HEARTBEAT_MS.min(interval_ms),
        };
        let is_source = |target| self.mover.is_only_source(target);
        let give_up = self.cluster.who_hangs(reports, is_source);
        let serve_ms = serve_ms(self.times.target_timeout_ms);
        Ok(Reply::ok(&HeartbeatReply {
            epoch,
            in_effect,
            standings,
            serve_ms,
            remove,
            fill,
            build,
            distrust,
            give_up,
            busy_percent: self.mover.busy_percent(),
            protection: self.protection,
            oldest_keys,
            own_keys,
            revoked,
            interval_ms,
        }))
    }
}
