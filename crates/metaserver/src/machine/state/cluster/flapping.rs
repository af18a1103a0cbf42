//! Flapping targets: each return takes longer, so that clients do not have to switch copies all the
//! time. Pure.
//!
//! A target that goes away more than [`FREE`] times within [`WINDOW_MS`] is kept syncing for
//! [`FIRST_HOLD_MS`] before it is online again, and twice as long each further time, at most
//! [`MAX_HOLD_MS`]. After [`PEACE_MS`] online this is forgotten. The state is in memory only: a
//! restart of the metadata server begins anew. Two exceptions: no target is held while another
//! target is away whose columns it may have copies of ([`crate::mover::partners`]), or while it is
//! the only source of a copy. And a target that goes away again before all servers knew of its
//! return has not gone another time.

/// Number of times that a target may go within the window without being held.
pub const FREE: usize = 3;
/// Length of the window.
pub const WINDOW_MS: u64 = 600_000;
/// The first hold.
pub const FIRST_HOLD_MS: u64 = 5_000;
/// The longest hold.
pub const MAX_HOLD_MS: u64 = 300_000;
/// Time online after which a target counts as stable.
pub const PEACE_MS: u64 = 600_000;

/// The most doublings, more than the longest hold needs.
const MAX_LEVEL: u32 = 8;
const _: () = assert!(FIRST_HOLD_MS << (MAX_LEVEL - 1) >= MAX_HOLD_MS);

/// Recent absences of a target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flapping {
    /// Times at which it went; at most one more than are free.
    went_ms: Vec<u64>,
    /// Number of absences beyond the free ones.
    level: u32,
    online_from_ms: u64,
}

impl Flapping {
    /// Records that the target is online.
    pub fn online(&mut self, now_ms: u64) {
        self.online_from_ms = now_ms;
    }

    /// Records that the target has gone.
    pub fn went(&mut self, now_ms: u64) {
        if now_ms.saturating_sub(self.online_from_ms) >= PEACE_MS {
            self.level = 0;
        }
        self.went_ms.retain(|at_ms| now_ms.saturating_sub(*at_ms) < WINDOW_MS);
        if self.went_ms.len() > FREE {
            self.went_ms.remove(0);
        }
        self.went_ms.push(now_ms);
        if self.level > 0 || self.went_ms.len() > FREE {
            self.level = (self.level + 1).min(MAX_LEVEL);
        }
    }

    /// How long it is kept syncing when it comes back.
    pub fn hold_ms(&self) -> u64 {
        match self.level {
            0 => 0,
            level => (FIRST_HOLD_MS << (level - 1)).min(MAX_HOLD_MS),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn who_goes_too_often_comes_back_later_each_time_until_it_has_stayed() {
        let mut target = Flapping::default();
        let mut now_ms = 0;
        let mut holds = Vec::new();
        for _ in 0..12 {
            target.online(now_ms);
            now_ms += 1000;
            target.went(now_ms);
            holds.push(target.hold_ms());
            now_ms += target.hold_ms();
        }
        let seconds: Vec<u64> = holds.iter().map(|ms| ms / 1000).collect();
        assert_eq!(seconds, [0, 0, 0, 5, 10, 20, 40, 80, 160, 300, 300, 300]);
        target.online(now_ms);
        now_ms += PEACE_MS - 1;
        target.went(now_ms);
        assert_eq!(target.hold_ms(), MAX_HOLD_MS, "not long enough");
        target.online(now_ms);
        now_ms += PEACE_MS;
        target.went(now_ms);
        assert_eq!(target.hold_ms(), 0, "forgotten");
    }

    proptest! {
        #[test]
        fn who_goes_seldom_is_not_held(waits in prop::collection::vec(WINDOW_MS / 3..WINDOW_MS * 2, 0..20)) {
            let mut target = Flapping::default();
            let mut now_ms = 0;
            for wait in waits {
                target.online(now_ms);
                now_ms += wait;
                target.went(now_ms);
                prop_assert_eq!(target.hold_ms(), 0);
            }
        }

        #[test]
        fn a_hold_has_a_bound(waits in prop::collection::vec(0..WINDOW_MS, 0..100)) {
            let mut target = Flapping::default();
            let mut now_ms = 0;
            for wait in waits {
                target.online(now_ms);
                now_ms += wait;
                target.went(now_ms);
                prop_assert!(target.hold_ms() <= MAX_HOLD_MS);
                prop_assert!(target.went_ms.len() <= FREE + 1);
            }
        }
    }
}
