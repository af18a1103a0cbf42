//! A model of processes that take blocks from disks of different speeds.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// A lane for each disk, with further copies on the following disks.
fn chain(disks: u32, copies: u32, blocks: u32) -> Vec<Lane> {
    let on = |first| (0..copies).map(|n| (first + n) % disks).collect();
    (0..disks).map(|first| Lane { disks: on(first), blocks }).collect()
}

/// The result of a run.
#[derive(Debug)]
struct Outcome {
    end: f64,
    /// Number of blocks read from further copies, or by processes whose disks have no copy.
    helped: u32,
    elsewhere: u32,
}

/// Requests that a process has outstanding.
const OUTSTANDING: usize = 2;

/// A process: the blocks that it has taken and not read, the time of its next look, and since when
/// it has taken nothing.
struct Process {
    taking: Taking,
    /// Time at which each block that is being read arrives.
    reading: Vec<f64>,
    held: Vec<Take>,
    ended: bool,
}

/// Runs one process for each disk. `times`: seconds per block of each disk.
fn run(lanes: &[Lane], times: &[f64]) -> Outcome {
    let count = times.len() as u32;
    let mut taken = vec![Taken::default(); lanes.len()];
    let mut processes: Vec<Process> = (0..count)
        .map(|rank| Process {
            taking: Taking::new(lanes, &[rank], (rank, count)),
            reading: Vec::new(),
            held: Vec::new(),
            ended: false,
        })
        .collect();
    let mut busy = vec![0.0f64; times.len()];
    let (mut now, mut changed) = (0.0f64, 0.0f64);
    let mut outcome = Outcome { end: 0.0, helped: 0, elsewhere: 0 };
    while processes.iter().any(|process| !process.ended) {
        for process in &mut processes {
            process.reading.retain(|end| *end > now);
            while process.reading.len() < OUTSTANDING && !process.ended {
                if process.held.is_empty() {
                    match process.taking.next(&taken, now - changed < 2.0) {
                        Next::Take(take) => {
                            changed = now;
                            let blocks = lanes[take.lane].blocks;
                            let range = taken[take.lane].take(blocks, take.end, take.blocks);
                            assert!(!range.is_empty());
                            process.held.extend(range.map(|_| take));
                        }
                        Next::Later => break,
                        Next::Nothing => process.ended = true,
                    }
                }
                let Some(take) = process.held.pop() else { break };
                let lane = &lanes[take.lane].disks;
                outcome.helped += u32::from(take.disk.is_some_and(|disk| disk != lane[0]));
                outcome.elsewhere += u32::from(take.disk.is_none());
                let soonest =
                    |a: &&u32, b: &&u32| busy[**a as usize].total_cmp(&busy[**b as usize]);
                let any = || *lane.iter().min_by(soonest).unwrap();
                let disk = take.disk.unwrap_or_else(any) as usize;
                busy[disk] = busy[disk].max(now) + times[disk];
                process.reading.push(busy[disk]);
                outcome.end = outcome.end.max(busy[disk]);
            }
        }
        let ends = processes.iter().flat_map(|process| process.reading.iter().copied());
        now = ends.fold(now + 0.5, f64::min);
    }
    assert!(taken.iter().zip(lanes).all(|(taken, lane)| taken.left(lane.blocks) == 0));
    outcome
}

/// The time in which all disks together could read all blocks.
fn ideal(lanes: &[Lane], times: &[f64]) -> f64 {
    let blocks: u32 = lanes.iter().map(|lane| lane.blocks).sum();
    f64::from(blocks) / times.iter().map(|time| 1.0 / time).sum::<f64>()
}

#[test]
fn from_even_disks_each_reads_its_own_alone() {
    for (disks, copies, blocks) in [(4, 2, 50), (8, 2, 300), (8, 3, 300), (3, 1, 7)] {
        let (lanes, times) = (chain(disks, copies, blocks), vec![1.0; disks as usize]);
        let outcome = run(&lanes, &times);
        assert_eq!((outcome.helped, outcome.elsewhere), (0, 0), "{disks} disks: {outcome:?}");
        assert!(outcome.end < ideal(&lanes, &times) * 1.001, "{disks} disks: {outcome:?}");
    }
}

#[test]
fn what_slow_disks_cannot_give_in_time_comes_from_others() {
    let all = [(4, 2, 100), (8, 2, 100), (8, 2, 400), (16, 2, 200), (8, 3, 100), (16, 3, 200)];
    for (disks, copies, blocks) in all {
        for slow in [&[0][..], &[1, 2], &[0, disks / 2]] {
            let lanes = chain(disks, copies, blocks);
            let time = |disk| if slow.contains(&disk) { 2.0 } else { 1.0 };
            let times: Vec<f64> = (0..disks).map(time).collect();
            let outcome = run(&lanes, &times);
            let part = outcome.end / ideal(&lanes, &times);
            assert!(
                part < 1.05,
                "{disks} disks, {copies} copies, {slow:?}: {part:.3}, {outcome:?}"
            );
            assert!(outcome.helped > 0);
        }
    }
}

#[test]
fn who_has_no_disk_takes_its_share_of_all() {
    let lanes = chain(4, 2, 40);
    let mut taken = vec![Taken::default(); 4];
    for rank in 0..2 {
        let mut taking = Taking::new(&lanes, &[], (rank, 2));
        let mut disks = BTreeSet::new();
        for _ in 0..8 {
            let Next::Take(take) = taking.next(&taken, true) else { panic!("nothing to take") };
            taken[take.lane].take(40, take.end, take.blocks);
            disks.insert(take.disk.unwrap());
        }
        assert_eq!(disks, BTreeSet::from([rank, rank + 2]));
    }
}

#[test]
fn processes_of_one_machine_begin_with_different_disks() {
    let lanes = chain(4, 2, 40);
    let first = |rank| match Taking::new(&lanes, &[0, 1, 2, 3], (rank, 4))
        .next(&[Taken::default(); 4], true)
    {
        Next::Take(take) => take.lane,
        other => panic!("{other:?}"),
    };
    assert_eq!([0, 1, 2, 3].map(first), [0, 1, 2, 3]);
}

#[test]
fn the_last_blocks_are_left_to_whose_they_are_unless_nobody_comes() {
    let lanes = chain(4, 2, 10);
    let mut taken = [Taken { front: 10, back: 0 }; 4];
    taken[2].front = 8;
    let mut taking = Taking::new(&lanes, &[0], (0, 4));
    assert_eq!(taking.next(&taken, true), Next::Later);
    let take = Take { lane: 2, end: End::Back, blocks: 1, disk: None };
    assert_eq!(taking.next(&taken, false), Next::Take(take));
    taken[2].front = 10;
    assert_eq!(taking.next(&taken, true), Next::Nothing);
}

proptest! {
    #[test]
    fn each_block_is_taken_once_whatever_the_order(
        lanes in prop::collection::vec((prop::collection::vec(0u32..6, 1..4), 0u32..90), 1..8),
        local in prop::collection::vec(prop::collection::vec(0u32..7, 0..3), 1..5),
        order in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 1..50),
    ) {
        let lanes: Vec<Lane> =
            lanes.into_iter().map(|(disks, blocks)| Lane { disks, blocks }).collect();
        let ranks = local.len() as u32;
        let mut all: Vec<Taking> =
            (0..).zip(&local).map(|(rank, of)| Taking::new(&lanes, of, (rank, ranks))).collect();
        let mut taken = vec![Taken::default(); lanes.len()];
        let mut seen = BTreeSet::new();
        let blocks: u32 = lanes.iter().map(|lane| lane.blocks).sum();
        // Then one process after another without patience: nothing is left.
        let steps = order.iter().map(|(who, patient)| (who.index(all.len()), *patient));
        let rest = (0..blocks as usize + 1).map(|n| (n % local.len(), false));
        for (who, patient) in steps.chain(rest).collect::<Vec<_>>() {
            match all[who].next(&taken, patient) {
                Next::Take(take) => {
                    prop_assert!(take.disk.is_none_or(|disk| lanes[take.lane].disks.contains(&disk)));
                    let of = taken[take.lane].take(lanes[take.lane].blocks, take.end, take.blocks);
                    prop_assert!(!of.is_empty());
                    for block in of {
                        prop_assert!(seen.insert((take.lane, block)));
                    }
                }
                Next::Later => prop_assert!(patient),
                Next::Nothing => prop_assert_eq!(seen.len(), blocks as usize),
            }
        }
        prop_assert_eq!(seen.len(), blocks as usize);
    }
}
