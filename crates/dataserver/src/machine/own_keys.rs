//! The own keys of a target, from which its working keys follow: the one in its file, and later ones
//! that the metadata server has brought. Each counts for a range of generations of working keys. The
//! latest may have come before it is known from which generation on it counts; then it counts beside
//! the one before it.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use weir_host::sync::RwLock;
use weir_types::KeyGeneration;
use weir_wire::Key;

/// Not known yet.
const UNKNOWN: KeyGeneration = KeyGeneration(0);
/// Generation of the key in the file.
const OF_FILE: KeyGeneration = KeyGeneration(1);
/// The most later keys. The metadata server brings the next one only when of the earlier ones at most
/// two count.
const MAX_LATER: usize = 4;

/// A key that has come later than the one in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaterKey {
    /// Generation of the key.
    pub generation: KeyGeneration,
    /// The first generation of working keys that follow from it; 0: not known yet.
    pub from: KeyGeneration,
    /// The key.
    pub key: Key,
}

/// All own keys of a target.
#[derive(Debug)]
pub struct OwnKeys {
    of_file: Key,
    /// By ascending generation.
    later: RwLock<Vec<LaterKey>>,
    any_later: AtomicBool,
}

impl OwnKeys {
    /// With the key in the target's file.
    pub fn new(of_file: Key) -> Self {
        Self { of_file, later: RwLock::default(), any_later: AtomicBool::new(false) }
    }

    /// Sets the later keys.
    pub fn set_later(&self, later: Vec<LaterKey>) {
        self.any_later.store(!later.is_empty(), Relaxed);
        *self.later.write() = later;
    }

    /// The later keys with a new one, or with what is newly known of one. Those are left out that
    /// count no more, because only working keys from `oldest` on do.
    pub fn later_with(&self, new: LaterKey, oldest: KeyGeneration) -> Vec<LaterKey> {
        let mut later = self.later.read().clone();
        later.retain(|key| key.generation != new.generation);
        later.push(new);
        later.sort_by_key(|key| key.generation);
        let is_over = |pair: &[LaterKey]| pair[1].from != UNKNOWN && pair[1].from <= oldest;
        let over = later.windows(2).take_while(|pair| is_over(pair)).count();
        later.drain(..over.max(later.len().saturating_sub(MAX_LATER)));
        later
    }

    /// Generation of the latest key, and from which generation of working keys on it counts.
    pub fn latest(&self) -> (KeyGeneration, KeyGeneration) {
        self.later.read().last().map_or((OF_FILE, UNKNOWN), |key| (key.generation, key.from))
    }

    /// Calls `check` with the key from which working keys of a generation follow; and if the answer is
    /// no, with a key that may have begun to sign meanwhile.
    pub fn check<T>(&self, working: KeyGeneration, check: impl Fn(&Key) -> Result<T, T>) -> T {
        let first = match self.any_later.load(Relaxed) {
            false => check(&self.of_file),
            true => {
                let later = self.later.read();
                let counts = |key: &&LaterKey| key.from != UNKNOWN && key.from <= working;
                let known = later.iter().rev().find(counts).map_or(&self.of_file, |it| &it.key);
                let coming = later.last().filter(|key| key.from == UNKNOWN);
                match (check(known), coming) {
                    (Err(_), Some(coming)) => check(&coming.key),
                    (answer, _) => answer,
                }
            }
        };
        first.unwrap_or_else(|no| no)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u8) -> Key {
        Key::from_bytes([n; 32])
    }

    fn later(generation: u32, from: u32) -> LaterKey {
        let (generation, from) = (KeyGeneration(generation), KeyGeneration(from));
        LaterKey { generation, from, key: key(generation.0 as u8) }
    }

    /// Whether working keys of a generation may follow from the key of a generation.
    fn counts(keys: &OwnKeys, own: u8, working: u32) -> bool {
        let is_it = |found: &Key| if *found == key(own) { Ok(true) } else { Err(false) };
        keys.check(KeyGeneration(working), is_it)
    }

    #[test]
    fn each_key_counts_for_its_working_keys_and_a_replaced_one_for_no_later_ones() {
        let keys = OwnKeys::new(key(1));
        let oldest = KeyGeneration(1);
        assert_eq!(keys.latest(), (KeyGeneration(1), KeyGeneration(0)));
        keys.set_later(keys.later_with(later(2, 0), oldest));
        assert!(counts(&keys, 1, 4) && counts(&keys, 2, 4), "it may sign already");
        keys.set_later(keys.later_with(later(2, 4), oldest));
        assert_eq!(keys.latest(), (KeyGeneration(2), KeyGeneration(4)));
        let of = |own, working| counts(&keys, own, working);
        assert!(of(1, 3) && !of(2, 3) && of(2, 4) && of(2, 9));
        assert!(!of(1, 4) && !of(1, 9), "whoever has the old key signs with no later generation");
    }

    #[test]
    fn keys_that_count_no_more_are_forgotten() {
        let keys = OwnKeys::new(key(1));
        let none = KeyGeneration(0);
        for n in 2..=9 {
            keys.set_later(keys.later_with(later(n, n * 10), none));
        }
        assert_eq!(keys.later.read().len(), MAX_LATER);
        let left = keys.later_with(later(9, 90), KeyGeneration(80));
        assert_eq!(left, [later(8, 80), later(9, 90)]);
    }
}
