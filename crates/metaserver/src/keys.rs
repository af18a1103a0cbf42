//! Generations of the targets' working keys. One number counts for all targets; each target says
//! from which generation on keys count. A rotation raises the number, so that all capabilities are
//! signed with new keys at once. The rotated targets' earlier keys count until what they have signed
//! has expired: then whoever has stolen one can do nothing with it.

use std::collections::BTreeMap;
use weir_types::{Error, ErrorKind, KeyGeneration, Result, TargetId};

/// The generation of the keys in the files of servers and targets, from which working keys follow.
pub const KEYS_IN_FILES: KeyGeneration = KeyGeneration(1);
/// The first generation of working keys.
const FIRST: KeyGeneration = KeyGeneration(1);
/// Distance of the generation after a restore from that of the export.
const RESTORED: u32 = 1 << 16;
/// The most targets whose keys were ever rotated, as many as a cluster has.
const MAX_TARGETS: usize = 4096;

/// Which generations count for a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counting {
    target: TargetId,
    /// The lowest one until then.
    before: KeyGeneration,
    /// The lowest one from then on.
    after: KeyGeneration,
    /// Milliseconds since 1970.
    then_unix_ms: u64,
}
weir_types::codec_struct!(Counting { target, before, after, then_unix_ms });

/// The record in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkingKeys {
    generation: KeyGeneration,
    /// No earlier one counts, of any target.
    floor: KeyGeneration,
    /// Sorted by target.
    targets: Vec<Counting>,
}
weir_types::codec_struct!(WorkingKeys { generation, floor, targets });

impl Default for WorkingKeys {
    fn default() -> Self {
        Self { generation: FIRST, floor: FIRST, targets: Vec::new() }
    }
}

impl WorkingKeys {
    /// The generation that signs.
    pub fn generation(&self) -> KeyGeneration {
        self.generation
    }

    /// The lowest generation that counts for a target.
    pub fn oldest(&self, target: TargetId, now_unix_ms: u64) -> KeyGeneration {
        self.of(target).map_or(FIRST, |of| of.oldest(now_unix_ms)).max(self.floor)
    }

    /// The record after earlier keys have ended by the clock, so that they stay ended if the clock
    /// is set back; `None` if none have.
    pub fn settled(&self, now_unix_ms: u64) -> Option<Self> {
        let ends = |of: &Counting| of.before != of.after && now_unix_ms >= of.then_unix_ms;
        self.targets.iter().any(ends).then(|| {
            let settled = |of: &Counting| match ends(of) {
                true => Counting { before: of.after, ..*of },
                false => *of,
            };
            Self { targets: self.targets.iter().map(settled).collect(), ..*self }
        })
    }

    /// The record after the metadata was restored from an export, which may be older than
    /// rotations: keys that none of them has had sign from now on, and no others count.
    ///
    /// # Errors
    /// `NoSpace` if generations run out.
    pub fn restored(&self) -> Result<Self> {
        let later = self.generation.0.checked_add(RESTORED).ok_or(ErrorKind::NoSpace)?;
        let generation = KeyGeneration(later);
        Ok(Self { generation, floor: generation, targets: Vec::new() })
    }

    fn of(&self, target: TargetId) -> Option<&Counting> {
        let at = self.targets.binary_search_by_key(&target, |it| it.target).ok()?;
        self.targets.get(at)
    }

    /// The record after a rotation of these targets; their earlier keys count until then. `there`
    /// says which targets the cluster has.
    ///
    /// # Errors
    /// `Busy`: earlier keys of one of them still count, and are to count for longer.
    pub fn rotated(
        &self,
        of: &[TargetId],
        then_unix_ms: u64,
        now_unix_ms: u64,
        there: impl Fn(TargetId) -> bool,
    ) -> Result<Self> {
        let after = KeyGeneration(self.generation.0.checked_add(1).ok_or(ErrorKind::TooBig)?);
        let kept = self.targets.iter().filter(|it| there(it.target));
        let mut targets: BTreeMap<TargetId, Counting> = kept.map(|it| (it.target, *it)).collect();
        for &target in of {
            let old = self.of(target);
            let two = |old: &&Counting| {
                old.before != old.after && now_unix_ms < old.then_unix_ms.min(then_unix_ms)
            };
            if let Some(old) = old.filter(two) {
                let minutes = (old.then_unix_ms - now_unix_ms).div_ceil(60_000);
                let message = format!(
                    "target {target} has two generations of keys already: wait {minutes} minutes, \
                     until what the older one has signed has expired, or end that with --now"
                );
                return Err(Error::new(ErrorKind::Busy, message));
            }
            let before = self.oldest(target, now_unix_ms);
            targets.insert(target, Counting { target, before, after, then_unix_ms });
        }
        if targets.len() > MAX_TARGETS {
            return Err(ErrorKind::TooBig.into());
        }
        Ok(Self { generation: after, floor: self.floor, targets: targets.into_values().collect() })
    }
}

impl Counting {
    fn oldest(&self, now_unix_ms: u64) -> KeyGeneration {
        if now_unix_ms >= self.then_unix_ms { self.after } else { self.before }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: TargetId = TargetId(1);
    const TWO: TargetId = TargetId(2);

    fn oldest(keys: &WorkingKeys, target: TargetId, now: u64) -> u32 {
        keys.oldest(target, now).0
    }

    #[test]
    fn old_keys_count_until_their_time_and_only_two_generations_do() {
        let keys = WorkingKeys::default().rotated(&[ONE, TWO], 100, 0, |_| true).unwrap();
        assert_eq!(keys.generation(), KeyGeneration(2));
        assert_eq!([0, 99, 100].map(|now| oldest(&keys, ONE, now)), [1, 1, 2]);
        let busy = keys.rotated(&[ONE], 199, 99, |_| true).unwrap_err();
        assert_eq!(busy.kind, ErrorKind::Busy, "{busy}");
        let keys = keys.rotated(&[ONE], 200, 100, |_| true).unwrap();
        assert_eq!(keys.generation(), KeyGeneration(3));
        assert_eq!([100, 199, 200].map(|now| oldest(&keys, ONE, now)), [2, 2, 3]);
        assert_eq!([99, 100, 200].map(|now| oldest(&keys, TWO, now)), [1, 2, 2]);
    }

    #[test]
    fn a_stolen_key_ends_at_once() {
        let keys = WorkingKeys::default().rotated(&[ONE], 100, 0, |_| true).unwrap();
        let keys = keys.rotated(&[ONE], 10, 10, |_| true).unwrap();
        assert_eq!((oldest(&keys, ONE, 10), oldest(&keys, TWO, 10)), (3, 1));
        let keys = keys.rotated(&[ONE], 0, 10, |_| true).unwrap();
        assert_eq!(oldest(&keys, ONE, 0), 4, "whatever the time is");
    }

    #[test]
    fn what_has_ended_stays_ended_when_the_clock_is_set_back() {
        let keys = WorkingKeys::default().rotated(&[ONE], 100, 0, |_| true).unwrap();
        assert_eq!(keys.settled(99), None);
        let keys = keys.settled(100).unwrap();
        assert_eq!((oldest(&keys, ONE, 5), oldest(&keys, TWO, 5)), (2, 1));
        assert_eq!(keys.settled(200), None, "it is seldom written");
    }

    #[test]
    fn after_a_restore_no_key_of_before_counts() {
        let before = WorkingKeys::default().rotated(&[ONE], 0, 0, |_| true).unwrap();
        let keys = WorkingKeys::default().restored().unwrap();
        assert!(keys.generation() > before.generation(), "the export was older than the rotation");
        assert!([ONE, TWO].iter().all(|it| keys.oldest(*it, 0) == keys.generation()));
        let next = keys.rotated(&[ONE], 100, 0, |_| true).unwrap();
        assert_eq!(next.oldest(ONE, 0), keys.generation());
    }

    #[test]
    fn targets_that_are_gone_are_forgotten() {
        let keys = WorkingKeys::default().rotated(&[ONE], 0, 0, |_| true).unwrap();
        let keys = keys.rotated(&[TWO], 0, 0, |target| target == TWO).unwrap();
        assert_eq!(keys.targets.len(), 1);
    }
}
