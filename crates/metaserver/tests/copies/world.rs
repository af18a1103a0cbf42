//! Data servers with a copy of one column each, as the contract wants them to be,
//! and what clients read and write of it.

use crate::harness::*;
use std::collections::BTreeMap;
use weir_metastore::ModelEngine;
use weir_types::{Epoch, FileId, LayoutSpec, TargetId};
use weir_wire::map::TargetState;
use weir_wire::peer::{HeartbeatReply, TargetReport};

/// A data server with a copy, as the contract wants it to be.
#[derive(Clone, Debug, Default)]
pub struct Copy {
    pub runs: bool,
    /// Nobody hears it, nor it them.
    cut: bool,
    registered: bool,
    /// The last write that its copy has.
    pub has: u64,
    /// It cannot vouch for what it has.
    own_gap: bool,
    /// For whom it has noted gaps.
    gaps: BTreeMap<u32, u64>,
    pub states: BTreeMap<u32, (TargetState, u64)>,
    acting: u64,
    in_effect: u64,
    lease_until_ms: u64,
}

impl Copy {
    fn state(&self, target: u32) -> TargetState {
        self.states.get(&target).map_or(TargetState::Offline, |(state, _)| *state)
    }

    pub fn primary(&self) -> Option<u32> {
        self.states.iter().find(|(_, (s, _))| *s == TargetState::Online).map(|(t, _)| *t)
    }
}

pub struct World {
    c: Cluster<ModelEngine>,
    pub copies: BTreeMap<u32, Copy>,
    writes: u64,
    pub acknowledged: u64,
    /// The newest that anybody read.
    seen: u64,
    random: u64,
    pub stale: bool,
}

impl World {
    pub fn new(count: u32, seed: u64) -> Self {
        let mut c = Cluster::new(1);
        (2..=count).for_each(|n| drop(c.register(n, &[n]).unwrap()));
        let spec = LayoutSpec { copies: 2, ..LayoutSpec::default() };
        let me = &mut c.client(root());
        c.make(me, &create_with(FileId::ROOT, "f", spec)).unwrap();
        let copy = Copy { runs: true, ..Copy::default() };
        let copies = (1..=count).map(|n| (n, copy.clone())).collect();
        let random = seed;
        let mut world =
            Self { c, copies, writes: 0, acknowledged: 0, seen: 0, random, stale: false };
        (0..4).for_each(|_| world.beats(0));
        world
    }

    fn below(&mut self, n: u64) -> u64 {
        self.random =
            self.random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.random >> 33) % n
    }

    /// Time passes, and everybody who can be heard is heard.
    pub fn beats(&mut self, ms: u64) {
        self.c.pass_ms(ms);
        for n in self.copies.keys().copied().collect::<Vec<_>>() {
            self.work(n);
            self.beat(n);
        }
    }

    fn beat(&mut self, n: u32) {
        let copy = &self.copies[&n];
        if !copy.runs || copy.cut {
            return;
        }
        let elsewhere = copy.states.iter().any(|(t, (s, _))| *t != n && *s == TargetState::Online);
        let mut gaps: Vec<_> = copy.gaps.iter().map(|(t, g)| (TargetId(*t), *g)).collect();
        let tell = !copy.registered || elsewhere || copy.state(n) == TargetState::Online;
        if copy.own_gap && tell {
            gaps.push((TargetId(n), 1));
        }
        let report = TargetReport { gaps, ..Cluster::<ModelEngine>::report(n) };
        let sent_ms = self.c.now.monotonic_ms;
        let reply = match copy.registered {
            true => self.c.heartbeat_under(n, Epoch(copy.acting), vec![report]),
            false => self.c.register_reports(n, vec![report]),
        };
        self.adopt(n, &reply.unwrap(), sent_ms);
    }

    fn adopt(&mut self, n: u32, reply: &HeartbeatReply, sent_ms: u64) {
        let copy = self.copies.get_mut(&n).unwrap();
        if !reply.standings.is_empty() {
            let states = reply.standings.iter();
            copy.states = states.map(|s| (s.target.0, (s.state, s.since.0))).collect();
        }
        copy.registered = true;
        copy.acting = reply.epoch.0;
        copy.in_effect = copy.in_effect.max(reply.in_effect.0);
        copy.lease_until_ms = sent_ms + u64::from(reply.serve_ms);
    }

    fn is_up(&self, n: u32) -> bool {
        self.copies.get(&n).is_some_and(|c| c.runs && !c.cut && c.registered)
    }

    /// Whether a copy serves, by what it knows itself.
    pub fn serves(&self, n: u32) -> bool {
        let copy = &self.copies[&n];
        let since = copy.states.get(&n).map_or(u64::MAX, |(_, since)| *since);
        copy.runs
            && copy.registered
            && copy.state(n) == TargetState::Online
            && since <= copy.in_effect
            && self.c.now.monotonic_ms < copy.lease_until_ms
    }

    pub fn orders(&self, n: u32) -> bool {
        self.serves(n) && self.copies[&n].primary() == Some(n)
    }

    /// What the gap worker of a server does.
    fn work(&mut self, n: u32) {
        if !self.is_up(n) {
            return;
        }
        let copy = self.copies[&n].clone();
        if copy.own_gap && self.orders(n) {
            // Brought to all who serve, or to none: what it cannot vouch for, nobody
            // can who has it from it.
            let others: Vec<u32> = copy.states.keys().copied().filter(|t| *t != n).collect();
            let serves = |t: &u32| copy.state(*t) == TargetState::Online;
            if others.iter().any(|t| serves(t) && !self.is_up(*t)) {
                return;
            }
            for other in others {
                if self.is_up(other) {
                    let other = self.copies.get_mut(&other).unwrap();
                    (other.has, other.own_gap) = (copy.has, false);
                } else {
                    self.copies.get_mut(&n).unwrap().gaps.insert(other, 1);
                }
            }
            self.copies.get_mut(&n).unwrap().own_gap = false;
        } else if let Some(primary) = copy.primary().filter(|p| *p != n && self.is_up(*p)) {
            // Handed to who orders.
            for behind in copy.gaps.keys().copied().chain(copy.own_gap.then_some(n)) {
                if self.orders(primary) {
                    // What it lacks itself is none: it says what is so.
                    if behind != primary {
                        self.copies.get_mut(&primary).unwrap().gaps.insert(behind, 1);
                    }
                    self.copies.get_mut(&n).unwrap().gaps.remove(&behind);
                }
            }
        }
        if !self.orders(n) || self.copies[&n].own_gap {
            return;
        }
        for behind in self.copies[&n].gaps.keys().copied().collect::<Vec<_>>() {
            let takes = matches!(copy.state(behind), TargetState::Online | TargetState::Syncing);
            if takes && self.is_up(behind) {
                let has = self.copies[&n].has;
                let other = self.copies.get_mut(&behind).unwrap();
                (other.has, other.own_gap) = (has, false);
                self.copies.get_mut(&n).unwrap().gaps.remove(&behind);
            }
        }
    }

    /// A client writes through a server; with several, the write may stop half way.
    pub fn write(&mut self, n: u32, stops_after: u64) {
        let copy = self.copies[&n].clone();
        if !self.is_up(n) || !self.orders(n) || copy.own_gap {
            return;
        }
        self.writes += 1;
        let mut has_it = vec![n];
        let mut lacks = Vec::new();
        for (&other, (state, _)) in copy.states.iter().filter(|(t, _)| **t != n) {
            let known = copy.in_effect >= copy.states[&other].1;
            match state {
                // Nobody reads from it, so nobody waits for it.
                TargetState::Syncing if known && !self.is_up(other) => lacks.push(other),
                TargetState::Online | TargetState::Syncing if !self.is_up(other) => {
                    // It waits for it, and the client for the answer.
                    self.half_done(&has_it);
                    return;
                }
                TargetState::Online | TargetState::Syncing => has_it.push(other),
                _ => lacks.push(other),
            }
            if has_it.len() as u64 > stops_after {
                self.half_done(&has_it);
                return;
            }
        }
        for who in &has_it {
            let copy = self.copies.get_mut(who).unwrap();
            copy.has = self.writes;
            copy.gaps.extend(lacks.iter().map(|t| (*t, 1)));
        }
        self.acknowledged = self.writes;
    }

    /// Whoever has it now cannot vouch for it: its server dies with it under way.
    fn half_done(&mut self, who: &[u32]) {
        for n in who {
            self.copies.get_mut(n).unwrap().has = self.writes;
            self.kill(*n, true);
        }
    }

    fn read(&mut self, n: u32) {
        if self.serves(n) && !self.copies[&n].own_gap {
            let has = self.copies[&n].has;
            self.stale |= has < self.acknowledged.max(self.seen);
            self.seen = self.seen.max(has);
        }
    }

    pub fn kill(&mut self, n: u32, under_way: bool) {
        let copy = self.copies.get_mut(&n).unwrap();
        let (has, gaps) = (copy.has, std::mem::take(&mut copy.gaps));
        let own_gap = copy.own_gap || under_way;
        *copy = Copy { has, gaps, own_gap, ..Copy::default() };
    }

    pub fn start(&mut self, n: u32) {
        self.copies.get_mut(&n).unwrap().runs = true;
    }

    /// All run and hear each other, until all is well; false if that never is.
    pub fn heal(&mut self) -> bool {
        for n in self.copies.keys().copied().collect::<Vec<_>>() {
            self.copies.get_mut(&n).unwrap().cut = false;
            self.start(n);
        }
        for _ in 0..3_000 {
            self.beats(200);
            self.copies.keys().copied().collect::<Vec<_>>().into_iter().for_each(|n| self.read(n));
            let well = |(n, c): (&u32, &Copy)| {
                c.state(*n) == TargetState::Online && !c.own_gap && c.gaps.is_empty()
            };
            if self.copies.iter().all(well) {
                let newest = self.acknowledged.max(self.seen);
                let same =
                    self.copies.values().all(|c| c.has >= newest && c.has == self.copies[&1].has);
                return same;
            }
        }
        false
    }

    fn anything(&mut self) {
        let n = 1 + self.below(self.copies.len() as u64) as u32;
        match self.below(14) {
            0 => {
                let under_way = self.below(2) == 0;
                self.kill(n, under_way);
            }
            1 | 2 => self.start(n),
            3 => self.copies.get_mut(&n).unwrap().cut = true,
            4 | 5 => self.copies.get_mut(&n).unwrap().cut = false,
            6 => {
                let stops_after = 1 + self.below(8);
                self.write(n, stops_after);
            }
            7 | 8 => self.write(n, u64::MAX),
            9 => self.read(n),
            10 => {
                self.work(n);
                self.beat(n);
            }
            11 => {
                let ms = self.below(3000);
                self.beats(ms);
            }
            12 if self.below(20) == 0 => {
                let c = std::mem::replace(&mut self.c, Cluster::new(0));
                self.c = c.restart();
            }
            _ => {
                self.beats(300);
            }
        }
    }
}

/// Whether all went well.
pub fn random_run(seed: u64) -> bool {
    let count = 2 + (seed % 2) as u32;
    let mut world = World::new(count, seed);
    for _ in 0..4 {
        (0..60).for_each(|_| world.anything());
        if !world.heal() || world.stale {
            return false;
        }
    }
    true
}

/// Whether the last target that is online stays so, though it lacks something.
pub fn the_last_one_stays() -> bool {
    let mut world = World::new(2, 1);
    world.kill(2, false);
    (0..30).for_each(|_| world.beats(200));
    let before = world.copies[&1].states[&1];
    world.kill(1, true);
    world.start(1);
    world.beats(0);
    // It says since when, as what was not synced may be gone.
    let (state, since) = world.copies[&1].states[&1];
    before == (TargetState::Online, 1) && state == TargetState::Online && since > 1
}

/// Whether a target stays online that others cannot reach, while one is away with which it may
/// share a column.
pub fn the_last_copy_stays() -> bool {
    let mut world = World::new(3, 1);
    world.kill(3, false);
    (0..30).for_each(|_| world.beats(200));
    let away = world.copies[&1].states[&3].0 == TargetState::Offline;
    let acting = Epoch(world.copies[&1].acting);
    let unreachable = vec![TargetId(2)];
    let report = TargetReport { unreachable, ..Cluster::<ModelEngine>::report(1) };
    world.c.heartbeat_under(1, acting, vec![report]).unwrap();
    world.beat(2);
    away && world.copies[&2].state(2) == TargetState::Online
}
