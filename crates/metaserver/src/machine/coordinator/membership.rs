//! The state of targets for users, and administrators' orders to drain or remove a target.

use crate::machine::moment::Moment;
use crate::machine::state::MetaMachine;
use crate::machine::store::fault;
use crate::schema::{self, SegmentPage, ServerRecord, TargetRecord, key};
use std::collections::BTreeSet;
use weir_metastore::{Engine, Key, MAX_OPERATIONS, Tx, key_after, transact};
use weir_types::codec::Bytes;
use weir_types::{
    ClientId, Error, ErrorKind, FileId, ObjectId, Result, Segment, ServerId, TargetId,
};
use weir_wire::map::TargetState;
use weir_wire::targets::{
    Removal, RemovalPlace, RemoveTargetRequest, SetTargetRequest, TargetPage, TargetView,
};

/// Targets in one page of the list.
const PAGE: usize = 1024;
/// Pages of segments in one step of a removal.
pub(super) const STEP_PAGES: usize = 512;
/// Object records that one step forgets.
const STEP_GARBAGE: usize = 96;
/// A removal that is not continued for this long is given up.
const STEP_MS: u64 = 60_000;

impl<E: Engine> MetaMachine<E> {
    /// A page of the targets after `after`.
    pub(in crate::machine) fn list_targets(
        &self,
        after: Option<TargetId>,
        now: Moment,
    ) -> TargetPage {
        let all = self.cluster.servers.iter();
        let all = all.flat_map(|(server, r)| r.targets.iter().map(move |t| (*server, r, t)));
        let mut wanted: Vec<_> = all.filter(|(_, _, t)| after < Some(t.target)).collect();
        wanted.sort_by_key(|(_, _, target)| target.target);
        let end = wanted.len() <= PAGE;
        let shown = wanted.into_iter().take(PAGE);
        let targets = shown.map(|(server, r, t)| self.view_of(server, r, t, now)).collect();
        TargetPage { targets, end }
    }

    /// All targets.
    pub(crate) fn all_targets(&self, now: Moment) -> Vec<TargetView> {
        let servers = self.cluster.servers.iter();
        let of = |(server, record): (&ServerId, &ServerRecord)| {
            let targets = record.targets.iter();
            targets.map(|target| self.view_of(*server, record, target, now)).collect::<Vec<_>>()
        };
        servers.flat_map(of).collect()
    }

    fn view_of(
        &self,
        server: ServerId,
        ServerRecord { host, domain, .. }: &ServerRecord,
        record: &TargetRecord,
        now: Moment,
    ) -> TargetView {
        let heard = self.cluster.heard.get(&record.target).cloned().unwrap_or_default();
        let silent_ms = now.monotonic_ms.saturating_sub(heard.at_ms);
        let half = silent_ms > self.times.target_timeout_ms / 2;
        // Until everybody knows that it is back it may have to go again: it is not called
        // online before.
        let state = match record.joins {
            Some(_) if record.state == TargetState::Online => TargetState::Syncing,
            _ => record.state,
        };
        let syncing = state == TargetState::Syncing;
        let machine = self.cluster.machines.get(&server).copied().unwrap_or_default();
        TargetView {
            target: record.target,
            server,
            host: host.clone(),
            domain: domain.clone(),
            state,
            suspect: state == TargetState::Online && half,
            draining: record.draining,
            since_ms: heard.changed_ms.map(|at_ms| now.monotonic_ms.saturating_sub(at_ms)),
            silent_ms,
            held_ms: match syncing {
                true => heard.held_until_ms.saturating_sub(now.monotonic_ms),
                false => 0,
            },
            usage: heard.usage,
            disk: heard.disk,
            behind: self.cluster.hearsay.gaps_for(record.target),
            behind_per_s: heard.behind.per_s(),
            behind_expected_s: heard.behind.expected_s(),
            trouble: heard.trouble,
            hangs_ms: if half { 0 } else { heard.hangs_ms },
            given_up: heard.given_up && !half,
            work: heard.work,
            machine,
            slow: self.cluster.slow.is_slow(record.target),
        }
    }

    fn known_target(&self, target: TargetId) -> Result<TargetRecord> {
        self.cluster.record(target).copied().ok_or_else(|| {
            let message = format!("there is no target {target}: see `weir targets`");
            Error::new(ErrorKind::TargetMissing, message)
        })
    }

    /// Sets whether a target is drained.
    ///
    /// # Errors
    /// `NotAdministrator`, `TargetMissing`.
    pub(in crate::machine) fn set_target(
        &mut self,
        client: ClientId,
        request: &SetTargetRequest,
        now: Moment,
    ) -> Result<()> {
        self.require_administrator(client)?;
        let &SetTargetRequest { target, draining } = request;
        if self.known_target(target)?.draining != draining
            && let Some(change) =
                self.cluster.changed(&[target], |record| TargetRecord { draining, ..record })
        {
            self.commit_change(change, now)?;
            tracing::info!(target = target.0, draining, "an administrator ordered it");
        }
        if !draining {
            self.cluster.stays(target);
        }
        Ok(())
    }

    /// Carries out one step of the removal of a target.
    ///
    /// # Errors
    /// `NotAdministrator`, `TargetMissing`; `Busy` if it is in use, or another one is being
    /// removed; `Stale` if the removal was given up meanwhile.
    pub(in crate::machine) fn remove_target(
        &mut self,
        client: ClientId,
        request: &RemoveTargetRequest,
        now: Moment,
    ) -> Result<Removal> {
        self.require_administrator(client)?;
        let target = request.target;
        self.begin_removal(request, now)?;
        let (start, end) = key::all_segments();
        let place = request.place.clone();
        let place = place.unwrap_or(RemovalPlace { key: Bytes(start), last: FileId(0), files: 0 });
        if place.key.0 < end {
            let next = self.copies_on(target, request.force, place, &end)?;
            return Ok(Removal { files: next.files, next: Some(next) });
        }
        let files = place.files;
        let more = self.forget(key::garbage_of(target))?;
        if self.forget(key::distrust_of(target))? || more {
            return Ok(Removal { files, next: Some(place) });
        }
        self.commit_change(self.cluster.without(target), now)?;
        tracing::warn!(target = target.0, files, "a target was removed from the cluster");
        Ok(Removal { files, next: None })
    }

    /// Begins a removal: nothing new is placed on the target from now on.
    fn begin_removal(&mut self, request: &RemoveTargetRequest, now: Moment) -> Result<()> {
        let target = request.target;
        let record = self.known_target(target)?;
        let busy = |message| Err(Error::new(ErrorKind::Busy, message));
        self.cluster.give_up_removal(now.monotonic_ms);
        let served = matches!(record.state, TargetState::Online | TargetState::Syncing);
        if served && request.force {
            self.cluster.stays(target);
            let message = format!(
                "target {target} is being served, and its copies would be lost: stop its data \
                 server first, or drain it and leave out --force"
            );
            return busy(message);
        }
        if served && !record.draining {
            self.cluster.stays(target);
            return busy(format!("target {target} is in use: `weir target drain {target}` first"));
        }
        match (self.cluster.leaving, &request.place) {
            (Some((other, _)), _) if other != target => {
                return busy(format!("target {other} is being removed: wait for that"));
            }
            (None, Some(_)) => {
                let message = format!("the removal of target {target} was given up: begin anew");
                return Err(Error::new(ErrorKind::Stale, message));
            }
            _ => {}
        }
        self.cluster.leaving = Some((target, now.monotonic_ms + STEP_MS));
        self.cluster.refresh();
        Ok(())
    }

    /// Searches some pages of segments for copies on the target.
    fn copies_on(
        &mut self,
        target: TargetId,
        force: bool,
        mut place: RemovalPlace,
        end: &[u8],
    ) -> Result<RemovalPlace> {
        let found = Tx::new(&self.engine).range(&place.key.0, end, STEP_PAGES)?;
        let behind = self.cluster.behind(target);
        for (at, bytes) in &found {
            let (file, ..) = key::list_page(at)?;
            let page: SegmentPage = schema::decode(bytes, "of segments")?;
            if force {
                self.distrust(file, &page, target, &behind)?;
            }
            let mut columns = page.segments.iter().flat_map(Segment::members);
            if file == place.last || !columns.any(|(_, column)| column.targets.contains(&target)) {
                continue;
            }
            if !force {
                self.cluster.stays(target);
                let message = format!(
                    "files have copies on target {target}, one of them file {file}: drain it \
                     (`weir target drain {target}`) and wait, or, if what it has is lost for \
                     good, remove it with --force"
                );
                return Err(Error::new(ErrorKind::Busy, message));
            }
            (place.last, place.files) = (file, place.files + 1);
        }
        place.key = place_after(&found, end);
        Ok(place)
    }

    /// Records copies that must not be served after the removal, because they may lack bytes of
    /// which only this target knows.
    fn distrust(
        &mut self,
        file: FileId,
        page: &SegmentPage,
        target: TargetId,
        behind: &BTreeSet<TargetId>,
    ) -> Result<()> {
        let mut marks = Vec::new();
        for segment in page.segments.iter().filter(|_| !behind.is_empty()) {
            let on_it = segment.members().filter(|(_, column)| column.targets.contains(&target));
            for (number, column) in on_it {
                let others = column.copies().filter(|(_, other)| behind.contains(other));
                marks.extend(others.map(|(copy, other)| {
                    let (segment, column) = (segment.index, number);
                    key::distrust(other, ObjectId { file, segment, column, copy })
                }));
            }
        }
        for some in marks.chunks(MAX_OPERATIONS / 2) {
            transact(&mut self.engine, |tx| {
                some.iter().try_for_each(|mark| Ok::<_, Error>(tx.put(mark, &[])?))
            })?;
        }
        Ok(())
    }

    /// Removes some of the records about the target's objects. Returns whether there may be more.
    fn forget(&mut self, (start, end): key::Span) -> Result<bool> {
        let (count, _) = transact(&mut self.engine, |tx| {
            let found = tx.range(&start, &end, STEP_GARBAGE).map_err(|e| fault(e.into()))?;
            for (at, _) in &found {
                tx.delete(at)?;
            }
            Ok::<usize, Error>(found.len())
        })?;
        Ok(count == STEP_GARBAGE)
    }
}

/// Where to continue after a step that found this.
pub(super) fn place_after<V>(found: &[(Key, V)], end: &[u8]) -> Bytes {
    Bytes(match found.last() {
        Some((last, _)) if found.len() == STEP_PAGES => key_after(last).into_vec(),
        _ => end.to_vec(),
    })
}
