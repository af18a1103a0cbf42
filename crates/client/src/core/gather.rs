//! Write-behind: which small writes are gathered into one request.

/// What to do with a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gather {
    /// Append this many bytes to what is gathered; then send it if it is full.
    Append(usize),
    /// Send what is gathered first, then ask again.
    SendFirst,
    /// Send the write by itself.
    Direct,
}

/// Decides about a write of `len` bytes at `offset`, when `held` bytes that
/// begin at `start` are gathered (held 0: none), in a buffer for `capacity`.
///
/// Gathered requests end at multiples of the capacity in the file, so that
/// they fill whole stripes.
pub fn gather(start: u64, held: usize, capacity: usize, offset: u64, len: usize) -> Gather {
    if held == 0 {
        if len >= capacity {
            return Gather::Direct;
        }
        return Gather::Append(len.min(room(offset, 0, capacity)));
    }
    if offset != start + held as u64 {
        return Gather::SendFirst;
    }
    Gather::Append(len.min(room(start, held, capacity)))
}

/// Whether what is gathered has reached the end of its stripe.
pub fn is_full(start: u64, held: usize, capacity: usize) -> bool {
    room(start, held, capacity) == 0
}

fn room(start: u64, held: usize, capacity: usize) -> usize {
    capacity - (start % capacity as u64) as usize - held
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn records_fill_whole_stripes() {
        assert_eq!(gather(0, 0, MIB, 0, 838), Gather::Append(838));
        assert_eq!(gather(0, 838, MIB, 838, 838), Gather::Append(838));
        let held = MIB - 100;
        assert_eq!(gather(0, held, MIB, held as u64, 838), Gather::Append(100));
        assert!(is_full(0, MIB, MIB));
    }

    #[test]
    fn an_unaligned_start_ends_at_the_next_stripe() {
        let start = MIB as u64 + 4096;
        assert_eq!(gather(0, 0, MIB, start, 4096), Gather::Append(4096));
        assert!(is_full(start, MIB - 4096, MIB));
    }

    #[test]
    fn a_jump_sends_what_is_held_and_large_writes_go_alone() {
        assert_eq!(gather(0, 838, MIB, 5000, 10), Gather::SendFirst);
        assert_eq!(gather(0, 0, MIB, 5000, 2 * MIB), Gather::Direct);
    }
}
