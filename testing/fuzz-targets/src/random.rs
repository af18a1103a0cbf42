//! Seeded randomness, and damage to bytes: equal seeds give equal inputs.

use weir_types::limits::{MAX_BODY_BYTES, MAX_LIST_LEN};

/// The longest input that [`Gen::damage`] leaves, bytes.
pub const MAX_INPUT_BYTES: usize = 64 << 10;

/// A source of random numbers (SplitMix64).
#[derive(Clone, Debug)]
pub struct Gen(u64);

impl Gen {
    /// Begins with a seed; `stream` keeps users of one seed apart.
    pub fn new(seed: u64, stream: &str) -> Self {
        let mixed = stream
            .bytes()
            .fold(seed, |acc, b| (acc ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3));
        Self(mixed)
    }

    /// Any number, all equally likely.
    pub fn any(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`; 0 if that is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.any() % bound.max(1)
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of some values. Panics if there are none.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    /// A number as programs meet them: small, at a border, or any.
    pub fn number(&mut self) -> u64 {
        match self.below(4) {
            0 => self.below(16),
            1 => {
                let power = 1u64 << self.below(64);
                power.wrapping_add(self.below(3)).wrapping_sub(1)
            }
            2 => self.below(1 << 32),
            _ => self.any(),
        }
    }

    /// Up to `max` random bytes.
    pub fn bytes(&mut self, max: usize) -> Vec<u8> {
        let len = self.below(max as u64 + 1) as usize;
        (0..len).map(|_| self.any() as u8).collect()
    }

    /// Damages bytes as a broken or hostile peer would; `other` is what pieces
    /// are taken from.
    pub fn damage(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        for _ in 0..=self.below(3) {
            self.damage_once(bytes, other);
        }
        bytes.truncate(MAX_INPUT_BYTES);
    }

    fn damage_once(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        let len = bytes.len();
        let at = self.below(len as u64) as usize;
        match self.below(10) {
            0 | 1 if len > 0 => bytes[at] ^= 1 << self.below(8),
            2 if len > 0 => bytes[at] = self.pick(&[0, 1, 2, 0x7f, 0x80, 0xff]),
            3 | 4 => self.lie_about_a_length(bytes, at),
            5 => bytes.truncate(at),
            6 => bytes.extend(self.bytes(16)),
            7 => {
                let from = self.below(other.len() as u64 + 1) as usize;
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
            8 if len > 0 => {
                let end = at + self.below((len - at).min(64) as u64 + 1) as usize;
                let piece = bytes[at..end].to_vec();
                let to = self.below(len as u64) as usize;
                bytes.splice(to..to, piece);
            }
            9 if len > 0 => {
                let end = at + self.below((len - at).min(64) as u64 + 1) as usize;
                bytes.drain(at..end);
            }
            _ => {}
        }
    }

    fn lie_about_a_length(&mut self, bytes: &mut [u8], at: usize) {
        let real = bytes.len() as u64;
        let lie = self.pick(&[
            0,
            1,
            real,
            real + 1,
            MAX_LIST_LEN as u64,
            MAX_LIST_LEN as u64 + 1,
            MAX_BODY_BYTES as u64,
            MAX_BODY_BYTES as u64 + 1,
            u64::from(u32::MAX),
            1 << 62,
            u64::MAX,
        ]);
        let width = self.pick(&[2, 4, 4, 8]).min(bytes.len() - at.min(bytes.len()));
        bytes[at..at + width].copy_from_slice(&lie.to_le_bytes()[..width]);
    }
}
