//! Where a regular file may have holes. The allocated space of such a file is known to data servers
//! only.

use weir_types::codec::{DecodeError, Reader};
use weir_types::{Decode, Encode};

/// Possible holes before the end of a file.
///
/// Invariant: it never names fewer holes than exist, with one exception. An extension of a file, or
/// a hole, is recorded before or together with it, and bytes count as written when data servers have
/// confirmed them. The exception is a new small file that is being closed: its bytes count while they
/// are on their way (the client's `writer/closing.rs`). If its writer dies before they arrive, what is
/// not there reads as zeros and counts as written. If a server refuses them, the writer says that
/// holes may be anywhere, unless it cannot reach this server either.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Holes {
    /// No holes: all bytes were written (or the file is older than this record).
    #[default]
    None,
    /// No holes before this byte, which is before the end.
    From(u64),
    /// Holes may be anywhere, and space preallocated beyond the end, until the file is emptied.
    Anywhere,
}

impl Holes {
    /// The holes after a change of size from `before` to `after`. Nothing is known of added bytes.
    pub fn resized(self, before: u64, after: u64) -> Self {
        match self {
            Holes::None if after > before => Holes::From(before),
            Holes::From(from) if from >= after => Holes::None,
            other => other,
        }
    }

    /// The holes after all bytes of these ascending ranges were written; the file has `size` bytes.
    pub fn written(self, ranges: &[(u64, u64)], size: u64) -> Self {
        let Holes::From(from) = self else { return self };
        let reach = |from: u64, (start, end): &(u64, u64)| {
            if *start <= from { from.max(*end) } else { from }
        };
        let from = ranges.iter().fold(from, reach);
        if from < size { Holes::From(from) } else { Holes::None }
    }
}

/// Files without holes store nothing.
impl Encode for Holes {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Holes::None => {}
            Holes::From(from) => Some(*from).encode(out),
            Holes::Anywhere => None::<u64>.encode(out),
        }
    }
}

impl Decode for Holes {
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        if r.remaining() == 0 {
            return Ok(Holes::None);
        }
        Ok(Option::<u64>::decode(r)?.map_or(Holes::Anywhere, Holes::From))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_written_in_order_has_no_holes_and_what_is_left_out_is_one() {
        let holes = Holes::None.resized(0, 100).written(&[(0, 100)], 100);
        assert_eq!(holes, Holes::None);
        // The end was told before the bytes were there.
        let early = holes.resized(100, 300);
        assert_eq!(early, Holes::From(100));
        assert_eq!(early.written(&[(0, 200)], 300), Holes::From(200));
        assert_eq!(early.written(&[(50, 150), (150, 300)], 300), Holes::None);
        assert_eq!(early.written(&[(101, 300)], 300), early);
        // What lay behind a hole is cut off.
        assert_eq!(early.resized(300, 101), early);
        assert_eq!(early.resized(300, 100), Holes::None);
        assert_eq!(Holes::Anywhere.written(&[(0, 300)], 300).resized(300, 10), Holes::Anywhere);
    }

    proptest! {
        /// Against a list of which bytes were written.
        #[test]
        fn no_hole_is_missed(steps in prop::collection::vec((0..4u8, 0..40usize, 0..20usize), 0..40)) {
            let (mut holes, mut bytes) = (Holes::None, Vec::new());
            for (what, at, len) in steps {
                let before = bytes.len() as u64;
                match what {
                    // Written and committed, perhaps behind the end.
                    0 | 1 => {
                        bytes.resize(bytes.len().max(at + len), false);
                        bytes[at..at + len].fill(true);
                        let (size, range) = (bytes.len() as u64, (at as u64, (at + len) as u64));
                        holes = holes.resized(before, size).written(&[range], size);
                    }
                    // Cut, or made longer.
                    2 => {
                        bytes.resize(at, false);
                        holes = holes.resized(before, at as u64);
                    }
                    _ => {
                        let size = bytes.len() + len;
                        bytes.resize(size, false);
                        holes = holes.resized(before, size as u64);
                    }
                }
                let known = match holes {
                    Holes::None => bytes.len(),
                    Holes::From(from) => from as usize,
                    Holes::Anywhere => 0,
                };
                prop_assert!(bytes[..known].iter().all(|written| *written));
                prop_assert!(holes == Holes::None || known < bytes.len());
            }
        }
    }
}
