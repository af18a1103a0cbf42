//! Which columns of whole stripes are computed from parities, because their disks are slow. Who reads
//! whole stripes has the other columns anyway, so a parity costs as many bytes as the column.

/// A disk is slow if it takes so many times as long as that of the middle column.
const SLOW: f64 = 1.5;
/// It is busy if it would take so many times as long, with what others ask there. That is known only
/// roughly.
const BUSY: f64 = 2.5;

/// What is known of the disk of a column or a parity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seen {
    /// Time for the bytes that are wanted, microseconds; 0 if it is not known, infinite if nothing
    /// comes from there now.
    pub service_us: f64,
    /// Requests of this client that are outstanding there.
    pub own: u32,
    /// Requests of others.
    pub others: u32,
}

impl Seen {
    /// Of a disk that gives nothing now.
    pub const NOTHING: Self = Self { service_us: f64::INFINITY, own: 0, others: 0 };

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

/// A column to be computed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Instead {
    /// Its number among the columns.
    pub column: usize,
    /// The parity that is read instead, by its number among the parities.
    pub parity: usize,
    /// Time until the parity comes, microseconds.
    pub answer_us: f64,
}

/// The one in the middle, of those that are known and give something; 0 if there are none.
fn middle(of: impl Iterator<Item = f64>) -> f64 {
    let mut known: Vec<f64> = of.filter(|us| *us > 0.0 && us.is_finite()).collect();
    known.sort_by(f64::total_cmp);
    known.get(known.len().saturating_sub(1) / 2).copied().unwrap_or_default()
}

/// Columns to be computed. A parity that is not to be read is `None`. A disk that gives in no more
/// than `soon_us` is not slow. Nothing is computed if more columns are out of reach than there are
/// parities.
pub fn around(columns: &[Seen], parities: &[Option<Seen>], soon_us: f64) -> Vec<Instead> {
    let middle_us = middle(columns.iter().map(|seen| seen.service_us));
    let middle_alone_us = middle(columns.iter().map(Seen::alone_us));
    let is_slow = |seen: &Seen| match seen.service_us > 0.0 {
        _ if seen.service_us.is_infinite() => true,
        true => {
            seen.alone_us() >= soon_us
                && (seen.service_us >= middle_us * SLOW
                    || seen.alone_us() >= middle_alone_us * BUSY)
        }
        // One request finds out.
        false => seen.own > 0 && middle_us >= soon_us,
    };
    let until_us = |seen: &Seen| match seen.service_us > 0.0 {
        true => seen.answer_us(),
        // Later than any that is known, and sooner than one that gives nothing.
        false => f64::MAX,
    };
    let mut slow: Vec<(usize, f64)> = (0..columns.len())
        .filter(|column| is_slow(&columns[*column]))
        .map(|column| (column, until_us(&columns[column])))
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
    let out = columns.iter().filter(|seen| seen.service_us.is_infinite()).count();
    if out > free.len() {
        return Vec::new();
    }
    let pairs = slow.into_iter().zip(free).filter(|((_, slow_us), (_, us))| us < slow_us);
    pairs.map(|((column, _), (parity, answer_us))| Instead { column, parity, answer_us }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON_US: f64 = 1_000.0;

    fn seen(service_us: f64, own: u32, others: u32) -> Seen {
        Seen { service_us, own, others }
    }

    fn pairs(columns: &[Seen], parities: &[Option<Seen>]) -> Vec<(usize, usize)> {
        let of = |instead: Instead| (instead.column, instead.parity);
        around(columns, parities, SOON_US).into_iter().map(of).collect()
    }

    #[test]
    fn a_disk_of_half_the_speed_gives_so_much_that_nobody_waits_for_it() {
        // Of a window of eight pieces, each goes to the column or to the parity.
        let (mut own, mut parity, mut by_parity) = (0, 0, 0);
        for _ in 0..8 {
            let columns = [seen(60_000.0, own, 0), seen(30_000.0, 8, 0), seen(30_000.0, 8, 0)];
            match pairs(&columns, &[Some(seen(30_000.0, parity, 0))])[..] {
                [] => own += 1,
                [(0, 0)] => (parity, by_parity) = (parity + 1, by_parity + 1),
                _ => panic!("of one column"),
            }
        }
        assert!((5..=6).contains(&by_parity), "{by_parity} of 8");
    }

    #[test]
    fn equal_disks_and_what_is_in_memory_are_read_as_they_are() {
        let idle = [Some(seen(30_000.0, 0, 0)), Some(seen(0.0, 0, 0))];
        let equal = [seen(30_000.0, 1, 0), seen(30_000.0, 9, 0), seen(40_000.0, 3, 0)];
        assert_eq!(pairs(&equal, &idle), []);
        let with_others = [seen(30_000.0, 1, 1), seen(30_000.0, 9, 0), seen(30_000.0, 3, 0)];
        assert_eq!(pairs(&with_others, &idle), [], "one request of another is not much");
        assert_eq!(pairs(&[seen(900.0, 0, 0), seen(10.0, 0, 0)], &idle), []);
        assert_eq!(pairs(&[seen(0.0, 4, 0), seen(0.0, 0, 0)], &idle), [], "nothing is known");
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
        assert_eq!(pairs(&columns, &parities), [(2, 0), (0, 2)]);
        assert_eq!(pairs(&columns, &[None, Some(seen(50_000.0, 0, 0))]), [(2, 1)]);
        assert_eq!(pairs(&columns, &[Some(seen(50_000.0, 2, 0))]), []);
    }

    #[test]
    fn what_gives_nothing_now_is_computed_and_what_is_not_known_is_asked_once() {
        let good = seen(30_000.0, 2, 0);
        let out = seen(f64::INFINITY, 0, 0);
        let parity = Some(good);
        assert_eq!(pairs(&[good, out, good], &[parity]), [(1, 0)]);
        assert_eq!(pairs(&[out, out, good], &[parity]), [], "too much is lacking");
        assert_eq!(pairs(&[out, out], &[parity, Some(seen(0.0, 0, 0))]), [(0, 1), (1, 0)]);
        let unknown = seen(0.0, 0, 0);
        assert_eq!(pairs(&[unknown, out, unknown], &[Some(unknown)]), [(1, 0)]);
        let asked = seen(0.0, 1, 0);
        assert_eq!(pairs(&[asked, out, asked], &[Some(unknown)]), [(1, 0)]);
        assert_eq!(pairs(&[asked, out, good], &[parity]), [(1, 0)]);
        assert_eq!(pairs(&[good, seen(0.0, 0, 0), good], &[parity]), [], "it is asked");
        assert_eq!(pairs(&[good, seen(0.0, 1, 0), good], &[parity]), [(1, 0)]);
    }
}
