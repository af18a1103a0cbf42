//! Data servers with a copy of one column each die, are cut off and come back, at
//! random and in every order: nobody reads what is older than what was acknowledged
//! or read before, and in the end all are online and have the same.

pub mod world;

use self::world::{World, random_run, the_last_copy_stays, the_last_one_stays};

#[test]
fn nobody_reads_what_is_older_and_all_are_well_in_the_end() {
    for seed in 0..500 {
        assert!(random_run(seed), "seed {seed}");
    }
}

#[test]
fn the_last_one_that_is_online_stays_so_whatever_it_lacks() {
    assert!(the_last_one_stays());
}

#[test]
fn what_may_be_the_last_copy_stays_whoever_cannot_reach_it() {
    assert!(the_last_copy_stays());
}

/// All orders of the first `count` numbers.
fn orders(count: u32) -> Vec<Vec<u32>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let shorter = orders(count - 1);
    let places = shorter.iter().flat_map(|order| (0..=order.len()).map(move |at| (order, at)));
    places
        .map(|(order, at)| {
            let mut order = order.clone();
            order.insert(at, count);
            order
        })
        .collect()
}

#[test]
fn all_who_went_at_once_come_back_in_any_order() {
    for count in [2, 3] {
        for order in orders(count) {
            for wait_ms in [0, 300, 6_000] {
                let mut world = World::new(count, 1);
                world.write(1, u64::MAX);
                (1..=count).for_each(|n| world.kill(n, true));
                (0..8).for_each(|_| world.beats(1000));
                for n in &order {
                    world.start(*n);
                    world.beats(0);
                    world.beats(wait_ms);
                }
                assert!(world.heal() && !world.stale, "{order:?} {wait_ms}");
            }
        }
    }
}

#[test]
fn the_first_to_come_back_serves_at_once_if_all_went_together() {
    let mut world = World::new(3, 1);
    world.write(1, u64::MAX);
    (1..=3).for_each(|n| world.kill(n, true));
    (0..8).for_each(|_| world.beats(1000));
    world.start(2);
    (0..6).for_each(|_| world.beats(100));
    assert!(world.serves(2) && world.orders(2), "it waits for nobody");
}

#[test]
fn who_went_last_is_waited_for() {
    for order in orders(3) {
        let mut world = World::new(3, 1);
        // They go one after the other, with a write in between.
        for n in &order {
            world.write(world.copies[&order[2]].primary().unwrap(), u64::MAX);
            world.kill(*n, true);
            (0..8).for_each(|_| world.beats(700));
        }
        let newest = world.copies[&order[2]].has;
        assert_eq!(newest, world.acknowledged);
        for n in &order {
            assert!(!world.serves(1) && !world.serves(2) && !world.serves(3), "{order:?}");
            world.start(*n);
            (0..8).for_each(|_| world.beats(200));
        }
        assert!(world.serves(order[2]));
        assert!(world.heal() && !world.stale, "{order:?}");
    }
}
