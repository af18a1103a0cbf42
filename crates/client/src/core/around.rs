//! Which columns of whole stripes are computed from parities, because their disks are slow. Who reads
//! whole stripes has the other columns anyway, so a parity costs as many bytes as the column.

use weir_host::plant::{Bug, planted};
use weir_types::{Epoch, SegmentIndex};

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

/// What has to stay as it was when parities were asked for, until the columns are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The segment, and the epoch of its layout.
    pub segment: (SegmentIndex, Epoch),
    /// Number of losses of leases.
    pub losses: u64,
}

/// How the file is when everything has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The segment with its epoch, if it has parities.
    pub segment: Option<(SegmentIndex, Epoch)>,
    /// Whether leases hold now.
    pub is_held: bool,
    /// Number of losses of leases.
    pub losses: u64,
    /// Whether a newer layout was seen than the one that is known.
    pub is_behind: bool,
    /// Whether this client is changing the file, or may be.
    pub is_changing: bool,
    /// Whether an object was shorter than what was asked of it.
    pub is_short: bool,
}

/// Why columns are not computed from what came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Others may have written the file meanwhile.
    LeaseLost,
    /// The parities may be of other bytes, or others may count by now.
    OtherLayout,
    /// A file that this client cuts has other bytes, or none, at once.
    Changing,
    /// A column that is short may have been cut just now.
    Short,
}

/// Whether what came belongs together, so that columns may be computed from it.
pub fn refusal(asked: &Asked, found: &Found) -> Option<Refusal> {
    let skips = |bug| planted(bug) || planted(Bug::ComputeUnchecked);
    let reasons = [
        (
            found.segment != Some(asked.segment) || found.is_behind,
            Refusal::OtherLayout,
            Bug::ComputeFromOtherLayout,
        ),
        (
            !found.is_held || found.losses != asked.losses,
            Refusal::LeaseLost,
            Bug::ComputeWithoutLease,
        ),
        (found.is_changing, Refusal::Changing, Bug::ComputeWhileCut),
        (found.is_short, Refusal::Short, Bug::ComputeFromShort),
    ];
    let mut all = reasons.into_iter().filter(|(is_so, _, bug)| *is_so && !skips(*bug));
    all.next().map(|(_, refusal, _)| refusal)
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
    use weir_host::plant::plant;

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

    /// Environment variable that names the bug for a test's process.
    const PLANTED: &str = "WEIR_PLANTED_HERE";

    #[test]
    fn columns_are_computed_only_from_what_belongs_together() {
        if let Ok(name) = std::env::var(PLANTED) {
            let bug = Bug::ALL.iter().find(|(_, known)| *known == name).unwrap().0;
            assert!(plant(Some(bug)));
        }
        let segment = (SegmentIndex(3), Epoch(7));
        let asked = Asked { segment, losses: 2 };
        let found = Found {
            segment: Some(segment),
            is_held: true,
            losses: 2,
            is_behind: false,
            is_changing: false,
            is_short: false,
        };
        assert_eq!(refusal(&asked, &found), None);
        let other =
            |index, epoch| Found { segment: Some((SegmentIndex(index), Epoch(epoch))), ..found };
        for (found, why) in [
            (Found { is_held: false, ..found }, Refusal::LeaseLost),
            // It was lost, and got again.
            (Found { losses: 3, ..found }, Refusal::LeaseLost),
            (other(3, 8), Refusal::OtherLayout),
            (other(4, 7), Refusal::OtherLayout),
            (Found { segment: None, ..found }, Refusal::OtherLayout),
            (Found { is_behind: true, ..found }, Refusal::OtherLayout),
            (Found { is_changing: true, ..found }, Refusal::Changing),
            (Found { is_short: true, ..found }, Refusal::Short),
        ] {
            assert_eq!(refusal(&asked, &found), Some(why), "{found:?}");
        }
    }

    #[test]
    fn planted_bugs_are_found() {
        if !plant(None) || !cfg!(debug_assertions) {
            return;
        }
        let test = "core::around::tests::columns_are_computed_only_from_what_belongs_together";
        let fails_with = |bug: Option<&str>| {
            let mut command = std::process::Command::new(std::env::current_exe().unwrap());
            command.args([test, "--exact"]);
            if let Some(name) = bug {
                command.env(PLANTED, name);
            }
            let output = command.output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(text.contains("running 1 test"), "{test} is not there: {text}");
            !output.status.success()
        };
        assert!(!fails_with(None));
        let bugs = Bug::ALL.iter().filter(|(_, name)| name.starts_with("compute-"));
        let missed: Vec<&str> =
            bugs.clone().map(|(_, name)| *name).filter(|name| !fails_with(Some(*name))).collect();
        assert!(missed.is_empty() && bugs.count() == 5, "{missed:?}");
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
