//! The bounded queue in front of one target's disk, without threads: the shell
//! puts it behind a lock, the simulator drives it as it is.
//!
//! Invariant: it holds at most `limit` entries and one more for each waiting
//! connection, from which nothing is taken until there is room.

use std::collections::VecDeque;

/// Whether the sender may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// There is room for more.
    Room,
    /// The entry was taken, but its sender must pause until it is named by
    /// [`TargetQueue::pop`].
    Full,
}

/// Entries in the order in which they came, and who waits for room.
#[derive(Debug)]
pub struct TargetQueue<T, C> {
    limit: usize,
    entries: VecDeque<T>,
    waiting: VecDeque<C>,
}

impl<T, C> TargetQueue<T, C> {
    /// A queue for `limit` entries, at least one.
    pub fn new(limit: usize) -> Self {
        Self { limit: limit.max(1), entries: VecDeque::new(), waiting: VecDeque::new() }
    }

    /// Takes an entry of `sender`.
    pub fn push(&mut self, entry: T, sender: C) -> Admission {
        self.entries.push_back(entry);
        if self.entries.len() < self.limit {
            return Admission::Room;
        }
        self.waiting.push_back(sender);
        Admission::Full
    }

    /// The next entry; `resume` is called for each sender who may go on now
    /// that it is out: as many as there is room for, and all when nothing is
    /// left, since those named before may have nothing more to send.
    pub fn pop(&mut self, mut resume: impl FnMut(C)) -> Option<T> {
        let entry = self.entries.pop_front();
        let room = match self.entries.len() {
            0 => self.waiting.len(),
            len => self.limit.saturating_sub(len),
        };
        self.waiting.drain(..room.min(self.waiting.len())).for_each(&mut resume);
        entry
    }

    /// Entries in it.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pop(queue: &mut TargetQueue<char, u32>) -> (Option<char>, Vec<u32>) {
        let mut resumed = Vec::new();
        let entry = queue.pop(|sender| resumed.push(sender));
        (entry, resumed)
    }

    #[test]
    fn senders_pause_when_it_is_full_and_go_on_in_order() {
        let mut queue = TargetQueue::new(2);
        assert_eq!(queue.push('a', 1), Admission::Room);
        assert_eq!(queue.push('b', 1), Admission::Full);
        assert_eq!(queue.push('c', 2), Admission::Full);
        // Sender 1 paused: nothing of it comes until it is named.
        assert_eq!(pop(&mut queue), (Some('a'), vec![]));
        assert_eq!(pop(&mut queue), (Some('b'), vec![1]));
        assert_eq!(queue.push('d', 1), Admission::Full);
        assert_eq!(pop(&mut queue), (Some('c'), vec![2]));
        assert_eq!(pop(&mut queue), (Some('d'), vec![1]));
        assert_eq!(pop(&mut queue), (None, vec![]));
    }

    #[test]
    fn whoever_paused_is_named_by_the_time_it_is_empty() {
        for limit in 1..4 {
            let mut queue = TargetQueue::new(limit);
            let paused: Vec<u32> =
                (0..10).filter(|s| queue.push('x', *s) == Admission::Full).collect();
            let resumed: Vec<u32> = (0..10).flat_map(|_| pop(&mut queue).1).collect();
            assert_eq!(paused, resumed, "limit {limit}");
        }
    }
}
