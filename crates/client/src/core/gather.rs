//! Write-behind: which writes are gathered into one request.

/// What to do with a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gather {
    /// Append this many bytes to the gathered ones; then send them if the request is full.
    Append(usize),
    /// Send the gathered bytes first, then ask again.
    SendFirst,
}

/// Decides about a write of `len` bytes at `offset`. `held` bytes that begin at `start` are
/// gathered already (0 for none), in a buffer of `capacity`.
///
/// Gathered requests end at multiples of the capacity in the file, so that they fill whole stripes.
pub fn gather(start: u64, held: usize, capacity: usize, offset: u64, len: usize) -> Gather {
    if held == 0 {
        return Gather::Append(len.min(room(offset, 0, capacity)));
    }
    if offset != start + held as u64 {
        return Gather::SendFirst;
    }
    Gather::Append(len.min(room(start, held, capacity)))
}

/// Whether an uncut buffer of `len` bytes at `offset` may join the gathered bytes. It may end
/// anywhere, so that a stream of such buffers is gathered wherever it begins. But it has to begin
/// at the border of a block of an object (`begins_block`).
pub fn joins(
    (start, held): (u64, usize),
    capacity: usize,
    (offset, len): (u64, usize),
    begins_block: bool,
) -> bool {
    offset == start + held as u64 && begins_block && held + len <= capacity
}

/// Whether the gathered bytes have reached the end of their stripe.
pub fn is_full(start: u64, held: usize, capacity: usize) -> bool {
    room(start, held, capacity) == 0
}

/// Bytes up to the end of the stripe.
pub fn room(start: u64, held: usize, capacity: usize) -> usize {
    (capacity - (start % capacity as u64) as usize).saturating_sub(held)
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
    fn a_jump_sends_what_is_held_and_large_writes_are_cut_at_stripes() {
        assert_eq!(gather(0, 838, MIB, 5000, 10), Gather::SendFirst);
        assert_eq!(gather(0, 0, MIB, 5000, 2 * MIB), Gather::Append(MIB - 5000));
        assert_eq!(gather(0, 0, MIB, MIB as u64, 2 * MIB), Gather::Append(MIB));
    }

    #[test]
    fn buffers_that_follow_one_another_go_together_wherever_they_begin() {
        let (half, mib) = (MIB as u64 / 2, MIB as u64);
        let joins = |held, next, begins_block| joins(held, 2 * MIB, next, begins_block);
        assert!(joins((0, MIB), (mib, MIB), true) && is_full(0, 2 * MIB, 2 * MIB));
        assert!(joins((half, MIB), (half + mib, MIB), true) && is_full(half, 2 * MIB, 2 * MIB));
        assert!(!joins((0, MIB), (mib, MIB + 1), true), "too many");
        assert!(!joins((0, MIB), (mib + 4096, MIB), true), "a jump");
        assert!(!joins((0, MIB), (mib, MIB), false), "within a block");
    }
}
