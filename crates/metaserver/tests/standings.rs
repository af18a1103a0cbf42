//! Targets go, come back, and are online again when they have all that they
//! missed; and servers know under which epoch the others act.

use crate::harness::*;
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

/// Everybody says, as often as it takes, that there are no gaps but these.
fn rounds(c: &mut Model, servers: &[u32], acting: u64, gaps: &[(u32, &[(u32, u64)])]) {
    for _ in 0..4 {
        for server in servers {
            let gaps = gaps.iter().find(|(of, _)| of == server).map_or(&[][..], |g| g.1);
            beat(c, *server, acting, gaps);
        }
    }
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
    rounds(&mut c, &[1, 3], syncing, &[]);
    rounds(&mut c, &[2], away, &[]);
    assert_eq!(state(&beat(&mut c, 3, 0, &[]), 1), TargetState::Syncing);
    rounds(&mut c, &[1, 2, 3], syncing, &[(2, &[(1, 1)])]);
    assert_eq!(state(&beat(&mut c, 1, 0, &[]), 1), TargetState::Syncing);
    rounds(&mut c, &[1, 2, 3], syncing, &[]);
    let online = beat(&mut c, 1, syncing, &[]);
    assert_eq!(state(&online, 1), TargetState::Online);
    assert_eq!(beat(&mut c, 1, online.epoch.0, &[]).standings, [], "known already");
    // One that did not know has noted a gap for it: nothing was read from it yet.
    beat(&mut c, 2, syncing, &[(1, 1)]);
    assert_eq!(state(&beat(&mut c, 1, 0, &[]), 1), TargetState::Syncing);
}

#[test]
fn who_may_have_noted_gaps_has_to_come_back_first() {
    let mut c = mirrored();
    let away = lose_the_first(&mut c).epoch.0;
    // The second one goes too, later.
    beat(&mut c, 2, away, &[]);
    for _ in 0..6 {
        c.pass_ms(1000);
        beat(&mut c, 3, away, &[]);
    }
    let back = c.register(1, &[1]).unwrap();
    assert_eq!(state(&back, 2), TargetState::Offline);
    rounds(&mut c, &[1, 3], back.epoch.0, &[]);
    assert_eq!(state(&beat(&mut c, 1, 0, &[]), 1), TargetState::Syncing);
    // All of it outlives a restart, after which everybody says it again.
    let mut c = c.restart();
    let epoch = beat(&mut c, 3, back.epoch.0, &[]).epoch.0;
    rounds(&mut c, &[1, 3], epoch, &[]);
    assert_eq!(state(&beat(&mut c, 1, 0, &[]), 1), TargetState::Syncing);
    c.register(2, &[2]).unwrap();
    let now = beat(&mut c, 2, 0, &[]).epoch.0;
    assert!(now > epoch);
    // The third was there all the time.
    rounds(&mut c, &[1, 2, 3], now, &[(3, &[(1, 2)])]);
    let back = beat(&mut c, 1, 0, &[]);
    assert_eq!([1, 2].map(|t| state(&back, t)), [TargetState::Syncing, TargetState::Online]);
    let now = back.epoch.0;
    rounds(&mut c, &[1, 2, 3], now, &[]);
    assert_eq!(state(&beat(&mut c, 1, 0, &[]), 1), TargetState::Online);
}

#[test]
fn one_that_restarts_and_cannot_vouch_for_what_it_has_gives_way_at_once() {
    let mut c = mirrored();
    let own =
        |target: u32| TargetReport { gaps: vec![(TargetId(target), 2)], ..Model::report(target) };
    let back = c.register_reports(1, vec![own(1)]).unwrap();
    assert_eq!(state(&back, 1), TargetState::Syncing);
    // One that has been there all the time may have own gaps.
    let here = c.heartbeat_under(2, Epoch(0), vec![own(2)]).unwrap();
    assert_eq!(state(&here, 2), TargetState::Online);
    c.register_reports(2, vec![own(2)]).unwrap();
    let last = c.register_reports(3, vec![own(3)]).unwrap();
    let states = [1, 2, 3].map(|target| state(&last, target));
    assert_eq!(states, [TargetState::Syncing, TargetState::Syncing, TargetState::Online]);
}

#[test]
fn of_several_targets_of_one_server_that_restarts_the_last_stays() {
    let mut c = Model::new(2);
    let spec = LayoutSpec { copies: 2, ..LayoutSpec::default() };
    let me = &mut c.client(root());
    c.make(me, &create_with(FileId::ROOT, "f", spec)).unwrap();
    let own =
        |target: u32| TargetReport { gaps: vec![(TargetId(target), 2)], ..Model::report(target) };
    let back = c.register_reports(1, vec![own(1), own(2)]).unwrap();
    assert_eq!([1, 2].map(|t| state(&back, t)), [TargetState::Syncing, TargetState::Online]);
    // If that one is out of service, the other is the last.
    let mut c = c.restart();
    let ill = TargetReport { trouble: "its disk is gone".into(), ..own(2) };
    c.register_reports(1, vec![Model::report(1), Model::report(2)]).unwrap();
    let mut now = Epoch(0);
    for _ in 0..6 {
        let both = vec![Model::report(1), Model::report(2)];
        now = c.heartbeat_under(1, now, both).unwrap().epoch;
    }
    let back = c.register_reports(1, vec![own(1), ill]).unwrap();
    assert_eq!([1, 2].map(|t| state(&back, t)), [TargetState::Online, TargetState::OutOfService]);
}

#[test]
fn a_target_that_comes_and_goes_is_kept_waiting() {
    let mut c = mirrored();
    let mut waits = Vec::new();
    for _ in 0..5 {
        let own = TargetReport { gaps: vec![(TargetId(1), 1)], ..Model::report(1) };
        let mut now = c.register_reports(1, vec![own]).unwrap();
        let mut waited_ms = 0;
        while state(&now, 1) != TargetState::Online {
            c.pass_ms(200);
            waited_ms += 200;
            assert!(waited_ms < 60_000);
            [2, 3, 1].into_iter().for_each(|n| drop(beat(&mut c, n, now.epoch.0, &[])));
            now = beat(&mut c, 1, 0, &[]);
        }
        waits.push(waited_ms / 1000);
        // Until everybody knows that it is back, it has not come.
        for _ in 0..2 {
            [2, 3, 1].into_iter().for_each(|n| drop(beat(&mut c, n, now.epoch.0, &[])));
            now = beat(&mut c, 1, now.epoch.0, &[]);
        }
    }
    assert_eq!(waits, [0, 0, 0, 5, 10]);
}

/// Server 1 is started anew with two targets again and again, while others are there: how many
/// seconds it takes each time until one of them is online.
fn waits_of_two(c: &mut Model, others: &[u32]) -> Vec<u64> {
    let own =
        |target: u32| TargetReport { gaps: vec![(TargetId(target), 1)], ..Model::report(target) };
    let beat_all = |c: &mut Model, acting| {
        others.iter().for_each(|n| drop(beat(c, *n, acting, &[])));
        let both = |acting| (Epoch(acting), vec![Model::report(1), Model::report(2)]);
        let (known, reports) = both(acting);
        c.heartbeat_under(1, known, reports).unwrap();
        let (unknown, reports) = both(0);
        c.heartbeat_under(1, unknown, reports).unwrap()
    };
    let mut waits = Vec::new();
    for _ in 0..6 {
        let mut now = c.register_reports(1, vec![own(1), own(2)]).unwrap();
        let (mut waited_ms, mut first) = (0, None);
        while let online = [1, 2].map(|target| state(&now, target) == TargetState::Online)
            && online != [true; 2]
        {
            if online.contains(&true) {
                first.get_or_insert(waited_ms / 1000);
            }
            c.pass_ms(200);
            waited_ms += 200;
            assert!(waited_ms < 60_000, "{waits:?}");
            now = beat_all(c, now.epoch.0);
        }
        waits.push(first.unwrap_or(waited_ms / 1000));
        // Until everybody knows that they are back.
        for _ in 0..3 {
            now = beat_all(c, now.epoch.0);
        }
    }
    waits
}

#[test]
fn a_server_with_two_targets_that_comes_and_goes_is_kept_waiting() {
    let mut c = Model::new(2);
    c.register(3, &[3]).unwrap();
    c.register(4, &[4]).unwrap();
    let me = &mut c.client(root());
    let spec = LayoutSpec { copies: 2, ..LayoutSpec::default() };
    c.make(me, &create_with(FileId::ROOT, "f", spec)).unwrap();
    let waits = waits_of_two(&mut c, &[3, 4]);
    assert!(waits[..3].iter().all(|wait| *wait < 2), "{waits:?}");
    assert!(waits[5] >= 10, "{waits:?}");
}

#[test]
fn a_server_that_may_have_both_copies_has_one_of_them_online_at_once() {
    let mut c = Model::new(2);
    let me = &mut c.client(root());
    let spec = LayoutSpec { copies: 2, ..LayoutSpec::default() };
    c.make(me, &create_with(FileId::ROOT, "f", spec)).unwrap();
    c.register(3, &[3]).unwrap();
    c.register(4, &[4]).unwrap();
    let waits = waits_of_two(&mut c, &[3, 4]);
    assert!(waits.iter().all(|wait| *wait < 3), "{waits:?}");
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
    assert_eq!(reply.interval_ms, 500);
}

#[test]
fn without_copies_a_target_that_comes_back_has_missed_nothing() {
    let mut c = Model::new(1);
    c.register(2, &[2]).unwrap();
    c.register(3, &[3]).unwrap();
    lose_the_first(&mut c);
    assert_eq!(state(&c.register(1, &[1]).unwrap(), 1), TargetState::Online);
}

#[test]
fn of_those_that_went_at_once_the_one_that_kept_its_memory_is_back_first() {
    let mut c = mirrored();
    let epoch = beat(&mut c, 3, 0, &[]).epoch.0;
    for server in [1, 2, 3] {
        beat(&mut c, server, epoch, &[]);
    }
    // The machine of the first starts anew, before anybody misses it; the second stands still.
    let own = TargetReport { gaps: vec![(TargetId(1), 1)], ..Model::report(1) };
    let back = c.register_anew(1, vec![own]).unwrap();
    assert_eq!(state(&back, 1), TargetState::Syncing);
    let mut now = back.epoch.0;
    for _ in 0..6 {
        c.pass_ms(1000);
        now = beat(&mut c, 3, now, &[]).epoch.0;
        beat(&mut c, 1, now, &[]);
    }
    rounds(&mut c, &[1, 3], now, &[]);
    let states = beat(&mut c, 3, 0, &[]);
    assert_eq!([1, 2].map(|t| state(&states, t)), [TargetState::Syncing, TargetState::Offline]);
    // What it cannot vouch for the other one has.
    let back = c.register(2, &[2]).unwrap().epoch.0;
    rounds(&mut c, &[1, 2, 3], back, &[(1, &[(1, 1)])]);
    let states = beat(&mut c, 3, 0, &[]);
    assert_eq!([1, 2].map(|t| state(&states, t)), [TargetState::Syncing, TargetState::Online]);
}

#[test]
fn who_lost_its_memory_waits_for_one_that_was_there_longer_and_kept_it() {
    let mut c = Model::new(1);
    c.register(2, &[2]).unwrap();
    let me = &mut c.client(root());
    let spec = LayoutSpec { copies: 2, ..LayoutSpec::default() };
    c.make(me, &create_with(FileId::ROOT, "f", spec)).unwrap();
    let epoch = beat(&mut c, 1, 0, &[]).epoch.0;
    for server in [1, 2] {
        beat(&mut c, server, epoch, &[]);
    }
    let doubtful = |target| {
        let gaps = vec![(TargetId(target), 1)];
        vec![TargetReport { gaps, ..Model::report(target) }]
    };
    // The second machine has lost its power, and nobody knows it yet. The first server is
    // started anew, and makes way.
    let reply = c.register_reports(1, doubtful(1)).unwrap();
    assert_eq!(state(&reply, 1), TargetState::Syncing);
    let reply = c.register_anew(2, doubtful(2)).unwrap();
    assert_eq!([1, 2].map(|t| state(&reply, t)), [TargetState::Syncing; 2]);
    rounds(&mut c, &[1, 2], reply.epoch.0, &[]);
    let reply = beat(&mut c, 2, 0, &[]);
    assert_eq!([1, 2].map(|t| state(&reply, t)), [TargetState::Online, TargetState::Syncing]);
}

#[test]
fn one_that_has_lost_its_notes_may_have_noted_something_for_everybody() {
    let mut c = mirrored();
    let away = lose_the_first(&mut c).epoch.0;
    beat(&mut c, 2, away, &[]);
    beat(&mut c, 3, away, &[]);
    let syncing = c.register(1, &[1]).unwrap().epoch.0;
    // None stands for whoever it is.
    rounds(&mut c, &[1, 2, 3], syncing, &[(2, &[(u32::MAX, 1)])]);
    assert_eq!(state(&beat(&mut c, 3, 0, &[]), 1), TargetState::Syncing);
    rounds(&mut c, &[1, 2, 3], syncing, &[]);
    assert_eq!(state(&beat(&mut c, 3, 0, &[]), 1), TargetState::Online);
}

/// A heartbeat of one that cannot reach others.
fn accuse(c: &mut Model, server: u32, acting: u64, whom: &[u32]) -> HeartbeatReply {
    let unreachable = whom.iter().map(|target| TargetId(*target)).collect();
    let report = TargetReport { unreachable, ..Model::report(server) };
    c.heartbeat_under(server, Epoch(acting), vec![report]).unwrap()
}

#[test]
fn of_two_that_do_not_reach_each_other_none_goes_while_it_may_have_the_last_copy() {
    let mut c = mirrored();
    let away = lose_the_first(&mut c).epoch.0;
    // Files may have their other copies on the first.
    for _ in 0..3 {
        accuse(&mut c, 2, away, &[3]);
        let reply = accuse(&mut c, 3, away, &[2]);
        assert_eq!(reply.epoch.0, away, "both stay");
    }
    // As soon as that is online again one of them makes way.
    let mut now = c.register(1, &[1]).unwrap();
    while state(&now, 1) != TargetState::Online {
        assert_eq!([2, 3].map(|t| state(&now, t)), [TargetState::Online; 2]);
        let epoch = now.epoch.0;
        accuse(&mut c, 2, epoch, &[3]);
        accuse(&mut c, 3, epoch, &[2]);
        beat(&mut c, 1, epoch, &[]);
        now = beat(&mut c, 1, 0, &[]);
    }
    accuse(&mut c, 2, now.epoch.0, &[3]);
    accuse(&mut c, 3, now.epoch.0, &[2]);
    let states = beat(&mut c, 1, 0, &[]);
    let states = [1, 2, 3].map(|t| state(&states, t));
    assert_eq!(states, [TargetState::Online, TargetState::Online, TargetState::Syncing]);
}

/// As [`mirrored`], and what copies are being made has been looked for.
fn looked_after() -> Model {
    let mut c = mirrored();
    c.pass_ms(1000);
    c
}

/// What server n says of its target whose disk hangs.
fn hangs(c: &mut Model, server: u32, ms: u64, given_up: bool) -> HeartbeatReply {
    let report = TargetReport { hangs_ms: ms, given_up, ..Model::report(server) };
    c.heartbeat_under(server, Epoch(0), vec![report]).unwrap()
}

#[test]
fn a_target_whose_disk_hangs_is_given_up_and_offline_when_its_server_says_so() {
    let mut c = looked_after();
    assert!(hangs(&mut c, 1, 14_000, false).give_up.is_empty(), "it may have much to do");
    let reply = hangs(&mut c, 1, 15_000, false);
    assert_eq!((&reply.give_up[..], state(&reply, 1)), (&[TargetId(1)][..], TargetState::Online));
    let reply = hangs(&mut c, 1, 15_500, true);
    assert!(reply.give_up.is_empty());
    assert_eq!(state(&reply, 1), TargetState::Offline);
    // Whatever it says as long as that is so: also to a metadata server that has just started.
    let report = TargetReport { hangs_ms: 60_000, given_up: true, ..Model::report(1) };
    let reply = c.register_reports(1, vec![report]).unwrap();
    assert_eq!(state(&reply, 1), TargetState::Offline);
    let reply = c.register(1, &[1]).unwrap();
    assert_eq!(state(&reply, 1), TargetState::Syncing, "its server has begun anew");
}

#[test]
fn of_two_that_may_have_the_only_copies_of_something_one_is_not_given_up() {
    let mut c = looked_after();
    assert_eq!(hangs(&mut c, 1, 16_000, false).give_up, [TargetId(1)]);
    assert!(hangs(&mut c, 2, 16_000, false).give_up.is_empty(), "the other is about to go");
    hangs(&mut c, 1, 16_500, true);
    assert!(hangs(&mut c, 2, 30_000, false).give_up.is_empty(), "it has gone");
    // One that answers after all is not about to go any more.
    let mut c = looked_after();
    assert_eq!(hangs(&mut c, 1, 16_000, false).give_up, [TargetId(1)]);
    beat(&mut c, 1, 0, &[]);
    assert_eq!(hangs(&mut c, 2, 16_000, false).give_up, [TargetId(2)]);
}

#[test]
fn where_nothing_has_several_copies_nothing_is_given_up() {
    let mut c = Model::new(1);
    c.register(2, &[2]).unwrap();
    assert!(hangs(&mut c, 1, 60_000, false).give_up.is_empty());
}

#[test]
fn an_epoch_is_not_in_effect_before_a_target_that_hangs_is_offline() {
    let mut c = looked_after();
    let lost = lose(&mut c, 3);
    // Its server acts under it, but for what hangs there.
    let epoch = lost.epoch.0;
    beat(&mut c, 2, epoch, &[]);
    let report = TargetReport { hangs_ms: 60_000, given_up: true, ..Model::report(1) };
    let reply = c.heartbeat_under(1, Epoch(epoch), vec![report]).unwrap();
    assert!(reply.epoch.0 > epoch, "it went");
    beat(&mut c, 2, reply.epoch.0, &[]);
    assert_eq!(beat(&mut c, 2, reply.epoch.0, &[]).in_effect, reply.epoch);
}

/// Everybody but that server is heard of until it is given up.
fn lose(c: &mut Model, server: u32) -> HeartbeatReply {
    let others: Vec<u32> = (1..=3).filter(|other| *other != server).collect();
    for _ in 0..6 {
        c.pass_ms(1000);
        others.iter().for_each(|other| drop(beat(c, *other, 0, &[])));
    }
    beat(c, others[0], 0, &[])
}
