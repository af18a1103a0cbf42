//! Targets go, come back, and are online again when they have all that they
//! missed; and servers know under which epoch the others act.
#![allow(clippy::unwrap_used)]

mod harness;
use harness::*;
use weir_metastore::ModelEngine;
use weir_types::{Epoch, FileId, LayoutSpec, TargetId};
use weir_wire::map::TargetState;
use weir_wire::peer::{HeartbeatReply, TargetReport};

type Model = Cluster<ModelEngine>;

/// Three servers with a target each, and a file with two copies.
fn mirrored() -> Model {
    let mut c = Model::new(1);
    c.register(2, &[2]).unwrap();
    c.register(3, &[3]).unwrap();
    let me = &mut c.client(root());
    let spec = LayoutSpec { copies: 2, ..LayoutSpec::default() };
    c.make(me, &create_with(FileId::ROOT, "f", spec)).unwrap();
    c
}

fn beat(c: &mut Model, server: u32, acting: u64, gaps: &[(u32, u64)]) -> HeartbeatReply {
    let gaps = gaps.iter().map(|(target, count)| (TargetId(*target), *count)).collect();
    let report = TargetReport { gaps, ..Model::report(server) };
    c.heartbeat_under(server, Epoch(acting), vec![report]).unwrap()
}

fn state(reply: &HeartbeatReply, target: u32) -> TargetState {
    reply.standings.iter().find(|s| s.target.0 == target).unwrap().state
}

/// Everybody but server 1 is heard of until that is given up.
fn lose_the_first(c: &mut Model) -> HeartbeatReply {
    for _ in 0..6 {
        c.pass_ms(1000);
        beat(c, 2, 0, &[]);
        beat(c, 3, 0, &[]);
    }
    let reply = beat(c, 2, 0, &[]);
    assert_eq!(state(&reply, 1), TargetState::Offline);
    reply
}

#[test]
fn a_target_that_was_away_is_online_when_nobody_has_a_gap_for_it() {
    let mut c = mirrored();
    let away = lose_the_first(&mut c).epoch.0;
    beat(&mut c, 2, away, &[(1, 3)]);
    beat(&mut c, 3, away, &[]);
    let back = c.register(1, &[1]).unwrap();
    assert_eq!(state(&back, 1), TargetState::Syncing);
    let syncing = back.epoch.0;
    // Who does not know yet that it takes writes may note more.
    beat(&mut c, 2, away, &[]);
    assert_eq!(state(&beat(&mut c, 3, 0, &[]), 1), TargetState::Syncing);
    beat(&mut c, 2, syncing, &[(1, 1)]);
    beat(&mut c, 3, syncing, &[]);
    assert_eq!(state(&beat(&mut c, 1, 0, &[]), 1), TargetState::Syncing);
    beat(&mut c, 2, syncing, &[]);
    let online = beat(&mut c, 1, syncing, &[]);
    assert_eq!(state(&online, 1), TargetState::Online);
    assert_eq!(beat(&mut c, 1, online.epoch.0, &[]).standings, [], "known already");
}

#[test]
fn who_may_have_noted_gaps_has_to_come_back_first() {
    let mut c = mirrored();
    let away = lose_the_first(&mut c).epoch.0;
    // The second one goes too, later.
    for _ in 0..6 {
        c.pass_ms(1000);
        beat(&mut c, 3, away, &[]);
    }
    let back = c.register(1, &[1]).unwrap();
    assert_eq!(state(&back, 2), TargetState::Offline);
    beat(&mut c, 3, back.epoch.0, &[]);
    assert_eq!(state(&beat(&mut c, 1, 0, &[]), 1), TargetState::Syncing);
    // All of it outlives a restart, after which everybody says it again.
    let mut c = c.restart();
    let epoch = beat(&mut c, 3, back.epoch.0, &[]).epoch.0;
    assert_eq!(state(&beat(&mut c, 1, 0, &[]), 1), TargetState::Syncing);
    c.register(2, &[2]).unwrap();
    let now = beat(&mut c, 2, 0, &[]).epoch.0;
    assert!(now > epoch);
    beat(&mut c, 3, now, &[]);
    beat(&mut c, 2, now, &[]);
    // The second was away as well; the first never served meanwhile.
    beat(&mut c, 1, now, &[]);
    let done = beat(&mut c, 1, 0, &[]);
    assert_eq!(state(&done, 1), TargetState::Online);
    let done = done.epoch.0;
    [1, 2, 3].into_iter().for_each(|server| drop(beat(&mut c, server, done, &[])));
    assert_eq!(state(&beat(&mut c, 1, 0, &[]), 2), TargetState::Online);
}

#[test]
fn an_epoch_is_in_effect_when_all_who_have_a_lease_act_under_it() {
    let mut c = mirrored();
    let away = lose_the_first(&mut c);
    assert!(away.in_effect < away.epoch);
    assert!(away.interval_ms <= 100, "it shall be soon");
    assert!(u64::from(away.serve_ms) < 5000, "less than after which it is given up");
    beat(&mut c, 2, away.epoch.0, &[]);
    let reply = beat(&mut c, 3, away.epoch.0, &[]);
    assert_eq!(reply.in_effect, away.epoch, "the one that is gone has no lease");
    assert_eq!(reply.interval_ms, 1000);
}

#[test]
fn without_copies_a_target_that_comes_back_has_missed_nothing() {
    let mut c = Model::new(1);
    c.register(2, &[2]).unwrap();
    c.register(3, &[3]).unwrap();
    lose_the_first(&mut c);
    assert_eq!(state(&c.register(1, &[1]).unwrap(), 1), TargetState::Online);
}
