//! The bounded queue in front of one target's disk, without threads. The shell puts it behind a
//! lock; the simulator drives it directly.
//!
//! Invariant: it holds at most `limit` entries and one more for each paused connection, which
//! delivers nothing until there is space.

pub(crate) mod backlog;
pub(crate) mod lanes;
pub(crate) mod tasks;

use std::collections::VecDeque;
use weir_policy::Micros;

/// Whether the sender may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// The queue has space.
    Room,
    /// The entry was added, but its sender must pause until [`TargetQueue::pop`] names it.
    Full,
}

/// Order in which entries leave a queue.
pub trait Order {
    /// Type of added entries.
    type Entry;
    /// Type of removed entries.
    type Item;
    /// Adds an entry.
    fn push(&mut self, now: Micros, entry: Self::Entry);
    /// Removes the next entry; `None` if nothing waits.
    fn pop(&mut self, now: Micros) -> Option<Self::Item>;
    /// Number of waiting entries.
    fn len(&self) -> usize;
    /// Whether nothing waits.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Order of arrival.
#[derive(Debug)]
pub struct Arrival<T>(VecDeque<T>);

impl<T> Default for Arrival<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T> Order for Arrival<T> {
    type Entry = T;
    type Item = T;

    fn push(&mut self, _now: Micros, entry: T) {
        self.0.push_back(entry);
    }

    fn pop(&mut self, _now: Micros) -> Option<T> {
        self.0.pop_front()
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

/// Entries, and senders that wait for space.
#[derive(Debug)]
pub struct TargetQueue<O, C> {
    limit: usize,
    entries: O,
    waiting: VecDeque<C>,
}

impl<O: Order, C> TargetQueue<O, C> {
    /// Makes a queue for `limit` entries, at least one.
    pub fn new(entries: O, limit: usize) -> Self {
        Self { limit: limit.max(1), entries, waiting: VecDeque::new() }
    }

    /// Adds an entry of `sender`.
    pub fn push(&mut self, now: Micros, entry: O::Entry, sender: C) -> Admission {
        self.entries.push(now, entry);
        if self.entries.len() < self.limit {
            return Admission::Room;
        }
        self.waiting.push_back(sender);
        Admission::Full
    }

    /// Removes entries for which `is_meant` is true. The others keep their order; `entry` converts
    /// them back. `resume`: as for [`TargetQueue::pop`].
    pub fn take_out(
        &mut self,
        now: Micros,
        is_meant: impl Fn(&O::Item) -> bool,
        entry: impl Fn(O::Item) -> O::Entry,
        resume: impl FnMut(C),
    ) -> Vec<O::Item> {
        let all: Vec<O::Item> = std::iter::from_fn(|| self.entries.pop(now)).collect();
        let (meant, others): (Vec<_>, Vec<_>) = all.into_iter().partition(is_meant);
        others.into_iter().for_each(|item| self.entries.push(now, entry(item)));
        self.resume(resume);
        meant
    }

    /// Removes the next entry. `resume` is called for each sender that may go on now: as many as
    /// there is space for. If the queue is empty it is called for all, since those named before may
    /// have nothing more to send.
    pub fn pop(&mut self, now: Micros, resume: impl FnMut(C)) -> Option<O::Item> {
        let entry = self.entries.pop(now);
        self.resume(resume);
        entry
    }

    fn resume(&mut self, mut resume: impl FnMut(C)) {
        let room = match self.entries.len() {
            0 => self.waiting.len(),
            len => self.limit.saturating_sub(len),
        };
        self.waiting.drain(..room.min(self.waiting.len())).for_each(&mut resume);
    }

    /// Number of entries.
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

    fn queue(limit: usize) -> TargetQueue<Arrival<char>, u32> {
        TargetQueue::new(Arrival::default(), limit)
    }

    fn pop(queue: &mut TargetQueue<Arrival<char>, u32>) -> (Option<char>, Vec<u32>) {
        let mut resumed = Vec::new();
        let entry = queue.pop(0, |sender| resumed.push(sender));
        (entry, resumed)
    }

    #[test]
    fn senders_pause_when_it_is_full_and_go_on_in_order() {
        let mut queue = queue(2);
        assert_eq!(queue.push(0, 'a', 1), Admission::Room);
        assert_eq!(queue.push(0, 'b', 1), Admission::Full);
        assert_eq!(queue.push(0, 'c', 2), Admission::Full);
        // Sender 1 paused: nothing of it comes until it is named.
        assert_eq!(pop(&mut queue), (Some('a'), vec![]));
        assert_eq!(pop(&mut queue), (Some('b'), vec![1]));
        assert_eq!(queue.push(0, 'd', 1), Admission::Full);
        assert_eq!(pop(&mut queue), (Some('c'), vec![2]));
        assert_eq!(pop(&mut queue), (Some('d'), vec![1]));
        assert_eq!(pop(&mut queue), (None, vec![]));
    }

    #[test]
    fn what_is_taken_out_makes_room_and_what_stays_keeps_its_order_and_none() {
        let mut queue = queue(2);
        for (entry, sender) in "abc".chars().zip(1..) {
            queue.push(0, entry, sender);
        }
        let mut take = |what: &str| {
            let mut resumed = Vec::new();
            let taken =
                queue.take_out(0, |c| what.contains(*c), |c| c, |sender| resumed.push(sender));
            (taken, resumed)
        };
        assert_eq!(take(""), (vec![], vec![]), "it is as full as before");
        assert_eq!(take("ac"), (vec!['a', 'c'], vec![2]));
        assert_eq!(pop(&mut queue), (Some('b'), vec![3]));
    }

    #[test]
    fn whoever_paused_is_named_by_the_time_it_is_empty() {
        for limit in 1..4 {
            let mut queue = queue(limit);
            let paused: Vec<u32> =
                (0..10).filter(|s| queue.push(0, 'x', *s) == Admission::Full).collect();
            let resumed: Vec<u32> = (0..10).flat_map(|_| pop(&mut queue).1).collect();
            assert_eq!(paused, resumed, "limit {limit}");
        }
    }
}
