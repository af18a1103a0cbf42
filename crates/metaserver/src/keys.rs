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
    /// Sorted by target.
    targets: Vec<Counting>,
}
weir_types::codec_struct!(WorkingKeys { generation, targets });

impl Default for WorkingKeys {
    fn default() -> Self {
        Self { generation: FIRST, targets: Vec::new() }
    }
}

impl WorkingKeys {
    /// The generation that signs.
    pub fn generation(&self) -> KeyGeneration {
        self.generation
    }

    /// The lowest generations that count, of those targets for which not all do.
    pub fn oldest(
        &self,
        targets: impl Iterator<Item = TargetId>,
        now_unix_ms: u64,
    ) -> Vec<(TargetId, KeyGeneration)> {
        let of = |target| Some((target, self.of(target)?.oldest(now_unix_ms)));
        targets.filter_map(of).collect()
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
            if let Some(old) = old.filter(|old| now_unix_ms < old.then_unix_ms.min(then_unix_ms)) {
                let minutes = (old.then_unix_ms - now_unix_ms).div_ceil(60_000);
                let message = format!(
                    "target {target} has two generations of keys already: wait {minutes} minutes, \
                     until what the older one has signed has expired, or end that with --now"
                );
                return Err(Error::new(ErrorKind::Busy, message));
            }
            let before = old.map_or(FIRST, |old| old.oldest(now_unix_ms));
            targets.insert(target, Counting { target, before, after, then_unix_ms });
        }
        if targets.len() > MAX_TARGETS {
            return Err(ErrorKind::TooBig.into());
        }
        Ok(Self { generation: after, targets: targets.into_values().collect() })
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
        keys.oldest([target].into_iter(), now).first().map_or(1, |(_, it)| it.0)
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
    fn targets_that_are_gone_are_forgotten() {
        let keys = WorkingKeys::default().rotated(&[ONE], 0, 0, |_| true).unwrap();
        let keys = keys.rotated(&[TWO], 0, 0, |target| target == TWO).unwrap();
        assert_eq!(keys.targets.len(), 1);
    }
}
