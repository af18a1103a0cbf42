//! Requests of data servers: they register, report, and learn which objects to remove.

use super::cluster::Change;
use super::standings::serve_ms;
use super::{Answer, MetaMachine, Moment, Reply, request};
use crate::schema::key;
use weir_metastore::{Engine, Tx, key_after, transact};
use weir_types::codec::Reader;
use weir_types::{ClientId, Epoch, Error, ErrorKind, ObjectId, Result, ServerId, TargetId};
use weir_wire::map::TargetState;
use weir_wire::message::Op;
use weir_wire::peer::{
    FindPeerRequest, HeartbeatReply, HeartbeatRequest, Peer, RegisterRequest, TargetReport,
    is_recovering,
};
use weir_wire::ticket::OF_SERVERS;

/// The most objects for removal in one reply.
const MAX_REMOVALS: usize = 1024;
/// Confirmed removals handled in one transaction.
pub(super) const CONFIRM_PAGE: usize = 100;
/// Interval of searches for silent targets while others report.
const LOOK_FOR_SILENT_MS: u64 = 250;
/// Report interval of a data server with more objects to remove.
const BUSY_HEARTBEAT_MS: u32 = 100;

impl<E: Engine> MetaMachine<E> {
    pub(super) fn on_server(
        &mut self,
        server: ServerId,
        op: Op,
        body: &[u8],
        now: Moment,
    ) -> Result<Answer> {
        // On a connection from before it was removed.
        self.cluster.may_be_there(server)?;
        let rest = Reader::new(body);
        let reply = match op {
            Op::Ping => Reply::ok(&()),
            Op::Register => {
                let reply = self.register(server, &request(rest)?, now)?;
                return Ok(self.after_map(reply));
            }
            Op::Heartbeat => {
                let reply = self.heartbeat(server, &request(rest)?, now)?;
                return Ok(self.after_map(reply));
            }
            Op::FindPeer => self.find_peer(server, &request(rest)?, now)?,
            Op::FindCopies => {
                let found = self.find_copies(server, &request(rest)?, now)?;
                return Ok(self.after_sync(Reply::ok(&found)));
            }
            Op::ListCopies => {
                let page = self.list_copies(server, &request(rest)?)?;
                return Ok(self.after_sync(Reply::ok(&page)));
            }
            _ => {
                let message = format!("data servers do not ask for {}", op.label());
                return Err(Error::new(ErrorKind::Protocol, message));
            }
        };
        Ok(Answer::Now(reply))
    }

    fn register(
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

    fn heartbeat(
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
    fn find_peer(
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

    pub(super) fn commit_change(&mut self, change: Change, now: Moment) -> Result<()> {
        ((), self.map_at) = transact(&mut self.engine, |tx| change.put(tx).map_err(fault))?;
        self.cluster.apply(change, now.monotonic_ms);
        let targets = self.cluster.view.targets.iter().map(|t| t.target);
        self.signer.prepare(targets);
        let all = self.cluster.all();
        let online = all.iter().filter(|(_, t)| t.state == TargetState::Online);
        self.mover.sites.keep_online(&online.map(|(_, t)| t.target).collect());
        Ok(())
    }

    fn report(
        &mut self,
        server: ServerId,
        reports: &[TargetReport],
        (acting, known): (Epoch, u64),
        now: Moment,
    ) -> Result<Reply> {
        self.take_distrusted(server, reports)?;
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
            oldest_keys,
            revoked,
            interval_ms,
        }))
    }

    /// Objects for the server to remove, a fair share for each target.
    fn removals(
        &mut self,
        server: ServerId,
        reports: &[TargetReport],
        now: Moment,
    ) -> Result<Vec<(TargetId, ObjectId)>> {
        let mut remove = Vec::new();
        for (done, report) in reports.iter().enumerate() {
            if report.given_up || !self.cluster.serves(server, report.target) {
                continue;
            }
            let share = (MAX_REMOVALS - remove.len()) / (reports.len() - done);
            let objects = self.garbage(report.target, share, now)?;
            remove.extend(objects.into_iter().map(|object| (report.target, object)));
        }
        Ok(remove)
    }

    /// The next garbage of a target. Only durable garbage: after a power cut a file may have its
    /// name again, and need its objects.
    fn garbage(&mut self, target: TargetId, limit: usize, now: Moment) -> Result<Vec<ObjectId>> {
        let (start, end) = key::garbage_of(target);
        let synced = self.engine.synced();
        let from = self.background.garbage_from.remove(&target).unwrap_or(start);
        let found = self.engine.range(&from, &end, limit).map_err(weir_metastore::TxError::from)?;
        let mut objects = Vec::with_capacity(found.len());
        for (key, value) in &found {
            let object = key::garbage_object(key)?;
            if value.version <= synced && self.mover.dropped.is_due(object, now.monotonic_ms) {
                objects.push(object);
            }
        }
        // Round and round, so that an object that cannot be removed does not
        // keep others waiting.
        if let Some((last, _)) = found.last().filter(|_| found.len() == limit) {
            self.background.garbage_from.insert(target, key_after(last).into_vec());
        }
        Ok(objects)
    }

    pub(super) fn lose_silent_targets(&mut self, now: Moment) -> Result<()> {
        self.cluster.checked_ms = now.monotonic_ms;
        let deadline_ms = now.monotonic_ms.saturating_sub(self.times.target_timeout_ms);
        if let Some((change, count)) = self.cluster.lost(deadline_ms) {
            self.commit_change(change, now)?;
            self.counters.targets_lost += count;
            tracing::warn!(count, "targets went offline: no heartbeat");
        }
        Ok(())
    }
}

/// Removes the records of completed removals. Returns how many of them were known.
pub(super) fn confirm(engine: &mut dyn Engine, keys: Vec<Vec<u8>>) -> Result<u64> {
    let (count, _) = transact(engine, |tx: &mut Tx<'_>| {
        let mut count = 0;
        for key in &keys {
            if tx.get(key)?.is_some() {
                tx.delete(key)?;
                count += 1;
            }
        }
        Ok::<u64, Error>(count)
    })?;
    Ok(count)
}

/// Converts an error of the server's own transactions, which no request can get as a refusal.
pub(super) fn fault(fault: crate::ops::Fault) -> Error {
    match fault {
        crate::ops::Fault::Refused(error) => error,
        crate::ops::Fault::Engine(error) => error.into(),
    }
}
