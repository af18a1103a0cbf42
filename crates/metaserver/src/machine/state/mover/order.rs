//! An administrator's order to even out the used space.

use crate::mover::even::Uneven;

/// A rebalance order.
#[derive(Debug)]
pub struct Rebalance {
    pub within_percent: u8,
    pub rounds: u32,
    /// The next file, while a round searches for copies to move.
    pub walk: Option<(Vec<u8>, u64)>,
    pub uneven: Uneven,
    pub moved: u64,
    /// Whether targets were compared more than once.
    pub looked_again: bool,
    /// Whether nothing could be moved while a target is on its way back.
    pub awaits: bool,
    /// Number of waits for returning targets.
    pub waits: u32,
    /// Time of the next round.
    pub next_ms: Option<u64>,
}
