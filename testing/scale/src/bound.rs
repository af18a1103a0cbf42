//! The earliest possible end of the slowest rank, also if disk speeds change.
//!
//! Any `m` consecutive ranks can use only their `m + copies - 1` disks, and up to time `t` these
//! give the integral of their speeds. So `t` is too early while some arc has more work than its
//! disks can have given. Otherwise `t` is enough for readers that know the future (max-flow min-cut
//! on a ring). For steady speeds this equals [`weir_policy::best_common_rate`]. That function looks
//! at all arcs, which takes too long for 10,000 nodes; here one pass over the disks is enough.

use crate::Speed;

/// The bound, with a relative precision of one millionth. `None`: never, because all copies of
/// something are lost; or the numbers of ranks and disks differ, or there are fewer than copies.
pub fn earliest_end_us(work_bytes: &[f64], disks: &[Speed], copies: usize) -> Option<f64> {
    const LATEST_US: f64 = 1e15;
    if work_bytes.len() != disks.len() || copies == 0 || copies > disks.len() {
        return None;
    }
    let suffices = |us: f64| {
        let given: Vec<f64> = disks.iter().map(|disk| disk.bytes_until(us)).collect();
        all_arcs_suffice(work_bytes, &given, copies)
    };
    let mut late = 1.0;
    while !suffices(late) {
        late *= 2.0;
        if late > LATEST_US {
            return None;
        }
    }
    let mut early = 0.0;
    while late - early > late * 1e-6 {
        let middle = f64::midpoint(early, late);
        *(if suffices(middle) { &mut late } else { &mut early }) = middle;
    }
    Some(late)
}

/// Whether the disks of every arc have given at least its work. With prefix sums around the ring
/// twice, the slack of an arc is a difference between a term of its end and a term of its
/// beginning. So for each end, the largest term of the possible beginnings is compared.
fn all_arcs_suffice(work: &[f64], given: &[f64], copies: usize) -> bool {
    let n = work.len();
    if given.iter().sum::<f64>() < work.iter().sum::<f64>() {
        return false;
    }
    // An arc that leaves no disk out is the whole ring.
    let longest = n - copies + 1;
    let (mut work_sum, mut given_sum) = (vec![0.0; 2 * n + 1], vec![0.0; 2 * n + copies]);
    for at in 0..2 * n {
        work_sum[at + 1] = work_sum[at] + work[at % n];
    }
    for at in 0..2 * n + copies - 1 {
        given_sum[at + 1] = given_sum[at] + given[at % n];
    }
    // Beginnings that may still have the largest term, the largest first.
    let mut firsts: std::collections::VecDeque<usize> = std::collections::VecDeque::new();
    let spare_before = |first: usize| given_sum[first] - work_sum[first];
    for end in 1..=2 * n {
        let first = end - 1;
        while firsts.back().is_some_and(|last| spare_before(*last) <= spare_before(first)) {
            firsts.pop_back();
        }
        firsts.push_back(first);
        while firsts.front().is_some_and(|first| end - first > longest) {
            firsts.pop_front();
        }
        let greatest = firsts.front().map_or(0.0, |first| spare_before(*first));
        if given_sum[end + copies - 1] - work_sum[end] < greatest {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_policy::best_common_rate;

    #[test]
    fn steady_disks_are_bound_as_the_policies_are_tested_with() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..300 {
            let n = random.usize(1..20);
            let copies = random.usize(1..=n.min(4));
            let mut draw = || (0..n).map(|_| 0.1 + random.f64()).collect::<Vec<_>>();
            let (work, rates) = (draw(), draw());
            let disks: Vec<_> = rates.iter().map(|rate| Speed::steady(*rate)).collect();
            let end = earliest_end_us(&work, &disks, copies).unwrap();
            let rate = best_common_rate(&work, &rates, copies).unwrap();
            assert!((end * rate - 1.0).abs() < 1e-5, "{work:?}, {rates:?}, {copies}");
        }
    }

    #[test]
    fn what_a_dead_disk_has_given_counts_and_both_copies_lost_is_never() {
        let mut disks = vec![Speed::steady(1.0); 4];
        disks[1].then(2.0, 0.0);
        let end = |disks: &[Speed]| earliest_end_us(&[4.0; 4], disks, 2);
        // Four disks for two microseconds, then three.
        assert!((end(&disks).unwrap() - (2.0 + 8.0 / 3.0)).abs() < 1e-4);
        disks[2].then(1.0, 0.0);
        assert_eq!(end(&disks), None);
    }
}
