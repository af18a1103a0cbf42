//! Data servers that do as they are told, in virtual time.

use crate::harness::*;
use std::collections::{BTreeMap, BTreeSet};
use weir_metaserver::machine::MoverSettings;
use weir_metastore::ModelEngine;
use weir_types::{Epoch, Error, FileId, FsUsage, LayoutSpec, ObjectId, Segment};
use weir_wire::Rights;
use weir_wire::map::TargetState;
use weir_wire::meta::{GetLayoutRequest, OpenFile, SetLayoutRequest};
use weir_wire::peer::{Build, Fill, HeartbeatReply, TargetReport};

pub(super) type Model = Cluster<ModelEngine>;

pub(super) const REBUILD_AFTER_MS: u64 = 20_000;

/// The size of targets whose use plays a part.
pub(super) const TOTAL: u64 = 1 << 30;

/// Data servers of a target each, which do at once what they are told.
pub(super) struct Servers {
    pub(super) c: Model,
    pub(super) me: Client,
    /// Those that do not answer.
    pub(super) dead: BTreeSet<u32>,
    pub(super) all: Vec<u32>,
    /// What each was told to fill, until it says that it has.
    pub(super) filled: BTreeMap<u32, Vec<Fill>>,
    /// What each was told to compute.
    pub(super) built: BTreeMap<u32, Vec<Build>>,
    pub(super) removed: BTreeMap<u32, Vec<ObjectId>>,
    pub(super) ordered: Vec<Fill>,
    /// Nothing is filled for now.
    pub(super) idle: bool,
    /// Nothing is filled for now by this one.
    pub(super) slow: Option<u32>,
    /// Nothing that is to go to this target is filled.
    pub(super) full: Option<u32>,
    /// Bytes that each target uses, where that plays a part.
    pub(super) used: BTreeMap<u32, u64>,
}

impl Servers {
    pub(super) fn new(count: u32) -> Self {
        let mut c = Model::new(1);
        (2..=count).for_each(|server| drop(c.register(server, &[server]).unwrap()));
        settings(&mut c);
        let me = c.client(root());
        let (dead, filled, built, removed) = Default::default();
        let all = (1..=count).collect();
        let mut new = Self {
            c,
            me,
            dead,
            all,
            filled,
            built,
            removed,
            ordered: vec![],
            idle: false,
            slow: None,
            full: None,
            used: BTreeMap::new(),
        };
        new.pass(1);
        new
    }

    pub(super) fn beat(&mut self, server: u32) -> HeartbeatReply {
        let usage = self.used.get(&server).map(|used| FsUsage {
            total_bytes: TOTAL,
            free_bytes: TOTAL - used,
            ..Model::report(server).usage
        });
        let report = TargetReport {
            usage: usage.unwrap_or(Model::report(server).usage),
            filled: self.filled.remove(&server).unwrap_or_default(),
            built: self.built.remove(&server).unwrap_or_default(),
            removed: self.removed.remove(&server).unwrap_or_default(),
            ..Model::report(server)
        };
        let reply = self.c.heartbeat_under(server, Epoch(u64::MAX), vec![report]).unwrap();
        if !self.idle && self.slow != Some(server) {
            let new = |fill: &&Fill| !self.ordered.contains(fill);
            let new: Vec<Fill> = reply.fill.iter().filter(new).cloned().collect();
            self.ordered.extend(new);
            let can = reply.fill.iter().filter(|fill| Some(fill.to.0) != self.full);
            self.filled.insert(server, can.cloned().collect());
            self.built.insert(server, reply.build.clone());
        }
        let removed = reply.remove.iter().map(|(_, object)| *object).collect();
        self.removed.insert(server, removed);
        reply
    }

    /// Seconds pass.
    pub(super) fn pass(&mut self, seconds: u64) {
        (0..4 * seconds).for_each(|_| self.quarter());
    }

    /// A quarter of a second passes.
    pub(super) fn quarter(&mut self) {
        for server in self.all.clone() {
            if !self.dead.contains(&server) {
                self.beat(server);
            }
        }
        self.c.machine.take_ready(self.c.now);
        self.c.getattr(&self.me, FileId::ROOT).unwrap();
        self.c.pass_ms(250);
    }

    pub(super) fn create(&mut self, name: &str, copies: u8) -> OpenFile {
        let spec = LayoutSpec { copies, count: 2, ..LayoutSpec::default() };
        self.create_of(name, spec)
    }

    pub(super) fn create_of(&mut self, name: &str, spec: LayoutSpec) -> OpenFile {
        let open = self.c.make(&mut self.me, &create_with(FileId::ROOT, name, spec)).unwrap();
        self.c.make(&mut self.me, &commit(&open, 1 << 20)).unwrap();
        open
    }

    pub(super) fn segments(&mut self, open: &OpenFile) -> Vec<Segment> {
        let request = GetLayoutRequest { file: open.attr.file, offset: 0, rights: Rights::READ };
        self.c.ask(&self.me, &request).unwrap().layout.segments
    }

    pub(super) fn copies(&mut self, open: &OpenFile) -> Vec<BTreeSet<u32>> {
        let segments = self.segments(open);
        assert!(segments.iter().all(|s| s.filling.is_empty()), "{segments:?}");
        let columns = segments.iter().flat_map(|s| &s.columns);
        columns.map(|c| c.copies().map(|(_, t)| t.0).collect()).collect()
    }

    pub(super) fn set_copies(&mut self, open: &OpenFile, copies: u8) {
        self.set_layout(open, LayoutSpec { copies, ..LayoutSpec::default() }).unwrap();
    }

    pub(super) fn set_layout(&mut self, open: &OpenFile, layout: LayoutSpec) -> Result<(), Error> {
        let request = SetLayoutRequest { file: open.attr.file, layout: Some(layout) };
        self.c.make(&mut self.me, &request)
    }

    pub(super) fn counter(&self, name: &str) -> u64 {
        let status = self.c.machine.status(self.c.now);
        status.counters.iter().find(|(n, _)| n == name).unwrap().1
    }

    pub(super) fn state(&mut self, server: u32, target: u32) -> TargetState {
        let report = Model::report(server);
        let reply = self.c.heartbeat_under(server, Epoch(0), vec![report]).unwrap();
        reply.standings.iter().find(|s| s.target.0 == target).unwrap().state
    }

    pub(super) fn restart(self) -> Self {
        let mut c = self.c.restart();
        settings(&mut c);
        let (filled, built, removed) = Default::default();
        Self { c, filled, built, removed, ..self }
    }
}

pub(super) fn settings(c: &mut Model) {
    c.machine.set_mover(MoverSettings {
        rebuild_after_ms: REBUILD_AFTER_MS,
        rebuild_concurrency: 4,
        ..MoverSettings::default()
    });
}
