//! What happened, as one number and, if wanted, as lines.

use crate::options::Trace;
use std::collections::VecDeque;
use std::io::{self, Write};

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

fn fold(hash: u64, value: u64) -> u64 {
    (hash.rotate_left(23) ^ value).wrapping_mul(MULTIPLIER)
}

/// A running hash over everything that was decided, and the last lines.
pub(crate) struct Tracer {
    hash: u64,
    wanted: Trace,
    lines: VecDeque<String>,
}

impl Tracer {
    pub(crate) fn new(seed: u64, wanted: Trace) -> Self {
        Self { hash: seed ^ MULTIPLIER, wanted, lines: VecDeque::new() }
    }

    /// Takes a number into the hash.
    pub(crate) fn mix(&mut self, value: u64) {
        self.hash = fold(self.hash, value);
    }

    /// Takes bytes into the hash, in four lanes: a multiplication takes longer
    /// than the processor needs to begin the next.
    pub(crate) fn mix_bytes(&mut self, bytes: &[u8]) {
        let (blocks, rest) = bytes.as_chunks::<32>();
        let mut lanes = [1, 2, 3, 4];
        for block in blocks {
            let (words, _) = block.as_chunks::<8>();
            for (lane, word) in lanes.iter_mut().zip(words) {
                *lane = fold(*lane, u64::from_le_bytes(*word));
            }
        }
        for lane in lanes {
            self.mix(lane);
        }
        let mut last = [0; 32];
        last[..rest.len()].copy_from_slice(rest);
        for word in last.as_chunks::<8>().0 {
            self.mix(u64::from_le_bytes(*word));
        }
        self.mix(bytes.len() as u64);
    }

    /// The high bits depend on all input, the low ones on little: fold them.
    pub(crate) fn hash(&self) -> u64 {
        self.hash ^ self.hash >> 32
    }

    /// Keeps or prints a line, which is made only if it is wanted.
    pub(crate) fn line(&mut self, now: u64, line: impl FnOnce() -> String) {
        let keep = match self.wanted {
            Trace::Off => return,
            Trace::Print => {
                // Who reads it may have gone.
                let _ = writeln!(io::stderr(), "{}", stamped(now, &line()));
                return;
            }
            Trace::Last(keep) => keep,
        };
        if self.lines.len() >= keep {
            self.lines.pop_front();
        }
        self.lines.push_back(stamped(now, &line()));
    }

    pub(crate) fn lines(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().map(String::as_str)
    }
}

fn stamped(now: u64, line: &str) -> String {
    format!("{:5}.{:09} {line}", now / 1_000_000_000, now % 1_000_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_tells_histories_apart() {
        let hash = |parts: &[&[u8]]| {
            let mut tracer = Tracer::new(1, Trace::Last(2));
            for part in parts {
                tracer.mix_bytes(part);
                tracer.line(1_000_000_001, || format!("{part:?}"));
            }
            assert!(tracer.lines().count() <= 2);
            tracer.hash()
        };
        assert_eq!(hash(&[b"abc", b"defghijk"]), hash(&[b"abc", b"defghijk"]));
        assert_ne!(hash(&[b"abc", b"defghijk"]), hash(&[b"abcd", b"efghijk"]));
        assert_ne!(hash(&[b"abc"]), hash(&[b"abc\0"]));
    }
}
