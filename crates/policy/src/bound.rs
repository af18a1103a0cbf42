//! The bound for reads of chained copies: the highest rate at which all readers can finish
//! together.

/// The bound for a ring of readers and disks: reader `i` has its copies on the `copies` disks from
/// disk `i` on, counted around. Returns `None` if the two slices differ in length, or if the ring
/// is shorter than the number of copies.
///
/// Any `m` consecutive readers can use only their `m + copies - 1` disks, and all readers together
/// use all disks. The bound is the least of these quotients of speed and work. It can be reached,
/// by max-flow min-cut on a ring. Its unit is parts of the whole work per second, if speeds are
/// bytes per second.
pub fn best_common_rate(work_bytes: &[f64], bytes_per_s: &[f64], copies: usize) -> Option<f64> {
    let n = work_bytes.len();
    if n == 0 || bytes_per_s.len() != n || copies == 0 || copies > n {
        return None;
    }
    let all_work: f64 = work_bytes.iter().sum();
    let all_speed: f64 = bytes_per_s.iter().sum();
    let mut best = all_speed / all_work;
    for first in 0..n {
        let (mut work, mut speed) = (0.0, 0.0);
        for disk in 0..copies - 1 {
            speed += bytes_per_s[(first + disk) % n];
        }
        // Groups of consecutive readers that leave at least one disk unused. The bound above covers
        // all readers together.
        for reader in 0..=n - copies {
            work += work_bytes[(first + reader) % n];
            speed += bytes_per_s[(first + reader + copies - 1) % n];
            if work > 0.0 {
                best = best.min(speed / work);
            }
        }
    }
    Some(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(work: &[f64], speed: &[f64], copies: usize) -> f64 {
        best_common_rate(work, speed, copies).unwrap()
    }

    #[test]
    fn one_slow_disk_of_sixteen_costs_everybody_little() {
        let mut speed = [1.0; 16];
        speed[3] = 0.5;
        assert_eq!(rate(&[1.0; 16], &speed, 1), 0.5);
        assert_eq!(rate(&[1.0; 16], &speed, 2), 15.5 / 16.0);
    }

    #[test]
    fn slow_disks_side_by_side_are_bound_by_their_arc() {
        let mut speed = [1.0; 16];
        (4..8).for_each(|disk| speed[disk] = 0.1);
        // Three readers can use only the four slow disks.
        assert!((rate(&[1.0; 16], &speed, 2) - 0.4 / 3.0).abs() < 1e-9);
        // With three copies, two readers can use only the four slow disks.
        assert!((rate(&[1.0; 16], &speed, 3) - 0.4 / 2.0).abs() < 1e-9);
    }

    #[test]
    fn uneven_work_counts() {
        assert_eq!(rate(&[3.0, 1.0, 1.0, 1.0], &[1.0; 4], 2), 2.0 / 3.0);
        assert_eq!(best_common_rate(&[1.0], &[1.0], 2), None);
        assert_eq!(best_common_rate(&[], &[], 1), None);
    }
}
