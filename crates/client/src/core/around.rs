//! Which columns of whole stripes are computed from parities, because their disks are slow. Who reads
//! whole stripes has the other columns anyway, so a parity costs as many bytes as the column.

/// A disk is slow if it takes so many times as long as that of the middle column.
const SLOW: f64 = 1.5;

/// What is known of the disk of a column or a parity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seen {
    /// Time for the bytes that are wanted, microseconds; 0 if it is not known.
    pub service_us: f64,
    /// Requests of this client that are outstanding there.
    pub own: u32,
    /// Requests of others.
    pub others: u32,
}

impl Seen {
    /// Time that the disk would take if this client asked for nothing else there.
    fn alone_us(&self) -> f64 {
        self.service_us * f64::from(self.others.saturating_add(1))
    }

    /// Time until the bytes come, if they are asked for now.
    fn answer_us(&self) -> f64 {
        let before = self.own.saturating_add(self.others);
        self.service_us * f64::from(before.saturating_add(1))
    }
}

/// Columns to be computed, each with the parity that is read instead (both by their numbers among the
/// columns, and among the parities). A parity without a place is `None`. A disk that gives in no more
/// than `soon_us` is not slow.
pub fn around(columns: &[Seen], parities: &[Option<Seen>], soon_us: f64) -> Vec<(usize, usize)> {
    let mut known: Vec<f64> =
        columns.iter().filter(|seen| seen.service_us > 0.0).map(Seen::alone_us).collect();
    known.sort_by(f64::total_cmp);
    let Some(middle_us) = known.get(known.len().saturating_sub(1) / 2).copied() else {
        return Vec::new();
    };
    let least_us = (middle_us * SLOW).max(soon_us);
    let mut slow: Vec<(usize, f64)> = (0..columns.len())
        .filter(|column| columns[*column].alone_us() >= least_us)
        .map(|column| (column, columns[column].answer_us()))
        .collect();
    // The slowest first.
    slow.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    // Of which nothing is known is as the others are.
    let answer_us = |seen: &Seen| match seen.service_us > 0.0 {
        true => seen.answer_us(),
        false => Seen { service_us: middle_us, ..*seen }.answer_us(),
    };
    let mut free: Vec<(usize, f64)> = (0..parities.len())
        .filter_map(|parity| Some((parity, answer_us(&parities[parity]?))))
        .collect();
    free.sort_by(|(_, one), (_, other)| one.total_cmp(other));
    let pairs = slow.into_iter().zip(free);
    pairs.filter(|((_, slow_us), (_, us))| us < slow_us).map(|((c, _), (p, _))| (c, p)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON_US: f64 = 1_000.0;

    fn seen(service_us: f64, own: u32, others: u32) -> Seen {
        Seen { service_us, own, others }
    }

    #[test]
    fn a_disk_of_half_the_speed_gives_so_much_that_nobody_waits_for_it() {
        // Of a window of eight pieces, each goes to the column or to the parity.
        let (mut own, mut parity, mut by_parity) = (0, 0, 0);
        for _ in 0..8 {
            let columns = [seen(60_000.0, own, 0), seen(30_000.0, 8, 0), seen(30_000.0, 8, 0)];
            match around(&columns, &[Some(seen(30_000.0, parity, 0))], SOON_US)[..] {
                [] => own += 1,
                [(0, 0)] => (parity, by_parity) = (parity + 1, by_parity + 1),
                _ => panic!("of one column"),
            }
        }
        assert!((5..=6).contains(&by_parity), "{by_parity} of 8");
    }

    #[test]
    fn equal_disks_and_what_is_in_memory_are_read_as_they_are() {
        let equal = [seen(30_000.0, 1, 0), seen(30_000.0, 9, 0), seen(40_000.0, 3, 0)];
        let idle = [Some(seen(30_000.0, 0, 0)), Some(seen(0.0, 0, 0))];
        assert_eq!(around(&equal, &idle, SOON_US), []);
        assert_eq!(around(&[seen(900.0, 0, 0), seen(10.0, 0, 0)], &idle, SOON_US), []);
        let unknown = [seen(0.0, 4, 0), seen(0.0, 0, 0)];
        assert_eq!(around(&unknown, &idle, SOON_US), []);
    }

    #[test]
    fn the_slowest_columns_go_to_the_soonest_parities_while_there_are_any() {
        let columns = [
            seen(90_000.0, 0, 0),
            seen(30_000.0, 0, 0),
            seen(30_000.0, 0, 3),
            seen(31_000.0, 0, 0),
            seen(30_000.0, 0, 0),
        ];
        let parities = [Some(seen(30_000.0, 0, 0)), None, Some(seen(0.0, 0, 0))];
        assert_eq!(around(&columns, &parities, SOON_US), [(2, 0), (0, 2)]);
        assert_eq!(around(&columns, &[None, Some(seen(50_000.0, 0, 0))], SOON_US), [(2, 1)]);
        assert_eq!(around(&columns, &[Some(seen(50_000.0, 2, 0))], SOON_US), []);
    }
}
