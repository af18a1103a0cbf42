//! The targets' own keys, from which working keys follow. The key of each generation follows from the
//! master key. A new one is brought to the target's server first, which confirms that it has it on
//! disk; then a rotation of the working keys makes it sign. So no capability is made that the server
//! cannot check, and earlier ones count until their time, as after any rotation.

use crate::keys::KEYS_IN_FILES;
use weir_types::{Error, ErrorKind, KeyGeneration, Result, TargetId};

/// No key, or not known.
const NONE: KeyGeneration = KeyGeneration(0);
/// The most targets whose own keys were ever replaced, as many as a cluster has.
const MAX_TARGETS: usize = 4096;

/// The own key of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Own {
    target: TargetId,
    /// The one that signs.
    generation: KeyGeneration,
    /// The first generation of working keys that follow from it.
    from: KeyGeneration,
    /// The one that its server has to get; [`NONE`]: none.
    pending: KeyGeneration,
    /// Whether earlier keys end at once when its server has it.
    now: bool,
}
weir_types::codec_struct!(Own { target, generation, from, pending, now });

/// The record in the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetKeys {
    /// Sorted by target. Others have the keys in their files.
    targets: Vec<Own>,
}
weir_types::codec_struct!(TargetKeys { targets });

/// The own key that a server has of a target: its generation, and from which generation of working
/// keys on it counts.
pub type Has = (KeyGeneration, KeyGeneration);

impl TargetKeys {
    fn of(&self, target: TargetId) -> Own {
        let at = self.targets.binary_search_by_key(&target, |own| own.target);
        at.ok().and_then(|at| self.targets.get(at)).copied().unwrap_or(Own {
            target,
            generation: KEYS_IN_FILES,
            from: NONE,
            pending: NONE,
            now: false,
        })
    }

    fn with(&self, changed: Own, there: impl Fn(TargetId) -> bool) -> Result<Self> {
        let kept = |own: &&Own| own.target != changed.target && there(own.target);
        let mut targets: Vec<Own> = self.targets.iter().filter(kept).copied().collect();
        targets.push(changed);
        targets.sort_by_key(|own| own.target);
        if targets.len() > MAX_TARGETS {
            return Err(ErrorKind::TooBig.into());
        }
        Ok(Self { targets })
    }

    /// The generation whose key signs for a target.
    pub fn generation(&self, target: TargetId) -> KeyGeneration {
        self.of(target).generation
    }

    /// Number of targets whose servers have to get a new key.
    pub fn waiting(&self) -> u64 {
        self.targets.iter().filter(|own| own.pending != NONE).count() as u64
    }

    /// Whether a target's server has to get a new key.
    pub fn is_waiting(&self, target: TargetId) -> bool {
        self.of(target).pending != NONE
    }

    /// Whether earlier keys of a target end at once when its server has the new one.
    pub fn ends_at_once(&self, target: TargetId) -> bool {
        self.of(target).now
    }

    /// The record when a target is to get a new key. If it is to get one already, this asks for the
    /// same one.
    ///
    /// # Errors
    /// `TooBig` if generations run out.
    pub fn begun(
        &self,
        target: TargetId,
        now: bool,
        there: impl Fn(TargetId) -> bool,
    ) -> Result<Self> {
        let own = self.of(target);
        let next = own.generation.0.checked_add(1).ok_or_else(|| {
            let what = format!("target {target} has no further generation of keys: replace it");
            Error::new(ErrorKind::TooBig, what)
        })?;
        let pending = own.pending.max(KeyGeneration(next));
        self.with(Own { pending, now: own.now || now, ..own }, there)
    }

    /// The key that the server of a target lacks; `None` if it has what it needs, or has not said.
    pub fn wanted(&self, target: TargetId, has: Has) -> Option<Has> {
        let Own { generation, from, pending, .. } = self.of(target);
        let (has_generation, has_from) = has;
        if has_generation == NONE {
            return None;
        }
        if has_generation < generation || has_generation == generation && has_from != from {
            return Some((generation, from));
        }
        (has_generation < pending).then_some((pending, NONE))
    }

    /// Whether a target's server has got the key that was brought to it, or one of which this
    /// metadata server does not know: it was restored from an export of before.
    pub fn has_arrived(&self, target: TargetId, has: Has) -> bool {
        let Own { generation, pending, .. } = self.of(target);
        let due = if pending == NONE { generation.0.saturating_add(1) } else { pending.0 };
        has.0.0 >= due
    }

    /// The record when the key that a server has signs for its target, with the working keys from
    /// this generation on.
    ///
    /// # Errors
    /// `TooBig`.
    pub fn switched(
        &self,
        target: TargetId,
        has: Has,
        from: KeyGeneration,
        there: impl Fn(TargetId) -> bool,
    ) -> Result<Self> {
        self.with(Own { target, generation: has.0, from, pending: NONE, now: false }, there)
    }

    /// Each target with another key than that in its file, and the generation of that key.
    pub fn replaced(&self) -> impl Iterator<Item = (TargetId, KeyGeneration)> + '_ {
        self.targets.iter().map(|own| (own.target, own.generation))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: TargetId = TargetId(1);

    fn has(generation: u32, from: u32) -> Has {
        (KeyGeneration(generation), KeyGeneration(from))
    }

    #[test]
    fn a_key_signs_only_when_its_server_has_it_and_the_server_learns_from_when_on() {
        let keys = TargetKeys::default();
        assert_eq!(keys.wanted(ONE, has(1, 0)), None);
        let keys = keys.begun(ONE, false, |_| true).unwrap();
        assert_eq!((keys.generation(ONE), keys.waiting()), (KeyGeneration(1), 1));
        assert_eq!(keys.wanted(ONE, has(1, 0)), Some(has(2, 0)));
        assert_eq!(keys.wanted(ONE, has(0, 0)), None, "the target is not served yet");
        assert!(!keys.has_arrived(ONE, has(1, 0)) && keys.has_arrived(ONE, has(2, 0)));
        let keys = keys.switched(ONE, has(2, 0), KeyGeneration(7), |_| true).unwrap();
        assert_eq!((keys.generation(ONE), keys.waiting()), (KeyGeneration(2), 0));
        assert_eq!(keys.wanted(ONE, has(2, 0)), Some(has(2, 7)));
        assert_eq!(keys.wanted(ONE, has(2, 7)), None);
        assert_eq!(keys.wanted(ONE, has(1, 0)), Some(has(2, 7)), "it has lost its file");
    }

    #[test]
    fn asking_twice_brings_one_key_and_now_is_remembered() {
        let keys = TargetKeys::default().begun(ONE, true, |_| true).unwrap();
        let keys = keys.begun(ONE, false, |_| true).unwrap();
        assert!(keys.ends_at_once(ONE) && keys.is_waiting(ONE));
        assert_eq!(keys.wanted(ONE, has(1, 0)), Some(has(2, 0)));
        let other = keys.begun(TargetId(2), false, |target| target != ONE).unwrap();
        assert!(!other.is_waiting(ONE), "targets that are gone are forgotten");
    }

    #[test]
    fn a_server_with_a_later_key_than_a_restored_metadata_server_knows_keeps_it() {
        let keys = TargetKeys::default();
        assert!(keys.has_arrived(ONE, has(3, 9)));
        let keys = keys.switched(ONE, has(3, 9), KeyGeneration(70_000), |_| true).unwrap();
        assert_eq!(keys.generation(ONE), KeyGeneration(3));
        assert_eq!(keys.wanted(ONE, has(3, 9)), Some(has(3, 70_000)));
    }
}
