//! Bytes that clients stage at following copies, before the ordering copy tells these to use them.
//!
//! Invariants
//! - Staged bytes are bounded by the space of their buffers, for each session and in all, and are
//!   kept for a short time.
//! - Bytes are used for exactly the write of the ordering copy: object, pieces and checksums are
//!   those of the order. Otherwise they are ignored.
//! - A change that waits for its bytes occupies no thread, and waits for a short time.

use crate::machine::change::Change;
use crate::queue::tasks::Data;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use weir_host::clock;
use weir_host::sync::{Condvar, Mutex};
use weir_types::{ErrorKind, ObjectId, Result, SessionId};

/// Unused bytes are dropped after this time.
const KEEP: Duration = Duration::from_secs(2);
/// Longest wait of a change for bytes that are on their way.
const WAIT: Duration = Duration::from_millis(100);
/// The most waiting changes.
const MAX_WAITING: usize = 1024;

/// Key of staged bytes: the client's session, its number, and the copy that they are for.
pub(crate) type Ticket = (SessionId, u64, ObjectId);

/// Bytes of a write, and the connection that they came on.
pub(crate) struct Left<C> {
    /// The pieces of the object.
    pub(crate) pieces: Vec<(u64, u64)>,
    pub(crate) data: Data,
    pub(crate) conn: C,
}

/// Staged bytes; see the top of the file. `T` is a change that waits for its bytes.
pub(crate) struct Staged<C, T> {
    state: Mutex<State<C, T>>,
    changed: Condvar,
    limit_bytes: usize,
}

struct State<C, T> {
    left: BTreeMap<Ticket, (Left<C>, Instant)>,
    waiting: BTreeMap<Ticket, (T, Instant)>,
    bytes: BTreeMap<SessionId, usize>,
    /// Time of the next look for expired entries; `None` while there are none.
    looks: Option<Instant>,
    stop: bool,
}

/// Result of looking for the bytes of a change that has come without them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found<T> {
    /// The bytes were staged, and are with the change now.
    Here(T),
    /// The change is kept until the bytes come, or for a short time.
    Waits,
    /// No matching bytes.
    Nothing(T),
}

impl<C: Copy + PartialEq, T> Staged<C, T> {
    /// For a server whose buffers have this many bytes in all.
    pub(crate) fn new(buffer_bytes: usize) -> Self {
        let (left, waiting, bytes) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let state = State { left, waiting, bytes, looks: None, stop: false };
        // Most of them are for what comes in and goes out.
        Self { state: Mutex::new(state), changed: Condvar::new(), limit_bytes: buffer_bytes / 4 }
    }

    /// Keeps bytes. Returns the change that waits for them.
    ///
    /// # Errors
    /// `Overloaded`: there is no space; `InvalidArgument`: the number is in use.
    pub(crate) fn leave(&self, ticket: Ticket, left: Left<C>) -> Result<Option<T>> {
        let mut state = self.state.lock();
        if state.left.contains_key(&ticket) {
            return Err(ErrorKind::InvalidArgument.into());
        }
        let room = room(&left);
        let all: usize = state.bytes.values().sum();
        let of_session = state.bytes.get(&ticket.0).copied().unwrap_or_default();
        // Nobody gets more than half of it.
        if all + room > self.limit_bytes || of_session + room > self.limit_bytes / 2 {
            return Err(ErrorKind::Overloaded.into());
        }
        *state.bytes.entry(ticket.0).or_default() += room;
        let until = clock::now() + KEEP;
        state.left.insert(ticket, (left, until));
        self.look(&state, until);
        Ok(state.waiting.remove(&ticket).map(|(change, _)| change))
    }

    /// Gives the bytes to a change: `data`, which has the checksums, gets the buffer.
    pub(crate) fn take(
        &self,
        ticket: Ticket,
        pieces: &[(u64, u64)],
        mut change: T,
        data: impl Fn(&mut T) -> &mut Data,
    ) -> Found<T> {
        let mut state = self.state.lock();
        if let Some(left) = state.remove(&ticket) {
            let data = data(&mut change);
            if left.pieces != pieces || left.data.checks != data.checks {
                return Found::Nothing(change);
            }
            data.buf = left.data.buf;
            return Found::Here(change);
        }
        if state.waiting.len() >= MAX_WAITING || state.waiting.contains_key(&ticket) || state.stop {
            return Found::Nothing(change);
        }
        let until = clock::now() + WAIT;
        state.waiting.insert(ticket, (change, until));
        self.look(&state, until);
        Found::Waits
    }

    /// Schedules a look for expired entries at `at`.
    fn look(&self, state: &State<C, T>, at: Instant) {
        if state.looks.is_none_or(|looks| at < looks) {
            self.changed.notify_one();
        }
    }

    /// Drops what came on a closed connection, since its client may be gone as well.
    pub(crate) fn closed(&self, conn: C) {
        let mut state = self.state.lock();
        let gone = state.left.iter().filter(|(_, (left, _))| left.conn == conn);
        let gone: Vec<Ticket> = gone.map(|(ticket, _)| *ticket).collect();
        gone.iter().for_each(|ticket| drop(state.remove(ticket)));
    }

    /// Drops expired bytes until the server stops. `give_up` is called for changes whose bytes have
    /// not come.
    pub(crate) fn watch(&self, give_up: impl Fn(T)) {
        let mut state = self.state.lock();
        loop {
            let now = clock::now();
            let old = state.left.iter().filter(|(_, (_, until))| *until <= now || state.stop);
            let old: Vec<Ticket> = old.map(|(ticket, _)| *ticket).collect();
            old.iter().for_each(|ticket| drop(state.remove(ticket)));
            let late = state.waiting.iter().filter(|(_, (_, until))| *until <= now || state.stop);
            let late: Vec<Ticket> = late.map(|(ticket, _)| *ticket).collect();
            for ticket in late {
                state.waiting.remove(&ticket).into_iter().for_each(|(change, _)| give_up(change));
            }
            if state.stop {
                return;
            }
            let next = state.left.values().map(|(_, until)| *until);
            let next = next.chain(state.waiting.values().map(|(_, until)| *until)).min();
            state.looks = next;
            state = match next {
                None => self.changed.wait(state),
                Some(next) => self.changed.wait_timeout(state, next.saturating_duration_since(now)),
            };
        }
    }

    /// Ends [`Staged::watch`].
    pub(crate) fn stop(&self) {
        self.state.lock().stop = true;
        self.changed.notify_one();
    }
}

impl<C, T> State<C, T> {
    fn remove(&mut self, ticket: &Ticket) -> Option<Left<C>> {
        let (left, _) = self.left.remove(ticket)?;
        if let Some(bytes) = self.bytes.get_mut(&ticket.0) {
            *bytes -= room(&left);
            if *bytes == 0 {
                self.bytes.remove(&ticket.0);
            }
        }
        Some(left)
    }
}

impl Change {
    /// The ticket of its staged bytes, if it has come without them.
    pub(crate) fn left_under(&self, data: &Data) -> Option<Ticket> {
        let staged = self.staged().filter(|_| self.access.relay.is_some() && data.buf.is_none())?;
        Some((self.access.capability.session, staged.ticket, self.access.object))
    }
}

/// Space that the bytes take in the buffer pool.
fn room<C>(left: &Left<C>) -> usize {
    left.data.buf.as_ref().map_or(0, weir_net::PooledBuf::capacity)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::mpsc::channel;
    use weir_net::BufferPool;
    use weir_types::{ColumnIndex, CopyIndex, FileId, SegmentIndex};

    const ROOM: usize = 64 << 10;

    /// A change and its data.
    type Change = (&'static str, Data);

    fn ticket(session: u64, number: u64) -> Ticket {
        let object = ObjectId {
            file: FileId(1),
            segment: SegmentIndex(0),
            column: ColumnIndex(0),
            copy: CopyIndex(1),
        };
        (SessionId(session), number, object)
    }

    fn left(pool: &BufferPool, conn: u8, checks: &[u32]) -> Left<u8> {
        let data = Data { buf: pool.take(4096), checks: checks.to_vec() };
        Left { pieces: vec![(0, 4096)], data, conn }
    }

    fn take(staged: &Staged<u8, Change>, ticket: Ticket, checks: &[u32]) -> Found<Change> {
        let change = ("write", Data { buf: None, checks: checks.to_vec() });
        staged.take(ticket, &[(0, 4096)], change, |change| &mut change.1)
    }

    #[test]
    fn a_change_gets_the_bytes_that_were_left_for_it_once() {
        let (pool, staged) = (BufferPool::new(4 << 20), Staged::new(64 * ROOM));
        assert!(staged.leave(ticket(1, 5), left(&pool, 1, &[7])).unwrap().is_none());
        assert!(staged.leave(ticket(1, 5), left(&pool, 1, &[7])).is_err(), "the first stays");
        let Found::Here((_, data)) = take(&staged, ticket(1, 5), &[7]) else { panic!() };
        assert_eq!(data.buf.as_ref().map(|buf| buf.len()), Some(4096));
        drop(data);
        assert_eq!(pool.used_bytes(), 0, "the bytes are nowhere else");
        assert!(matches!(take(&staged, ticket(1, 5), &[7]), Found::Waits));
    }

    #[test]
    fn other_bytes_than_those_of_the_copy_that_orders_are_not_used() {
        let (pool, staged) = (BufferPool::new(4 << 20), Staged::new(64 * ROOM));
        staged.leave(ticket(1, 1), left(&pool, 1, &[7])).unwrap();
        assert!(matches!(take(&staged, ticket(1, 1), &[8]), Found::Nothing(_)));
        staged.leave(ticket(1, 2), left(&pool, 1, &[7])).unwrap();
        let change = ("write", Data { buf: None, checks: vec![7] });
        let elsewhere = staged.take(ticket(1, 2), &[(4096, 4096)], change, |c| &mut c.1);
        assert!(matches!(elsewhere, Found::Nothing(_)));
        assert_eq!(pool.used_bytes(), 0);
    }

    #[test]
    fn one_client_leaves_room_for_others_and_all_together_for_the_rest() {
        let (pool, staged) = (BufferPool::new(64 << 20), Staged::<u8, Change>::new(32 * ROOM));
        let fill = |session| {
            let one = |n: &u64| staged.leave(ticket(session, *n), left(&pool, 9, &[7])).is_ok();
            (0..100).take_while(one).count()
        };
        assert_eq!([fill(1), fill(2), fill(3)], [4, 4, 0]);
        assert!(pool.used_bytes() <= 8 * ROOM);
        take(&staged, ticket(1, 0), &[7]);
        assert_eq!(fill(3), 1);
        staged.closed(9);
        assert_eq!(pool.used_bytes(), 0, "who is gone leaves nothing behind");
        assert_eq!(fill(3), 4);
    }

    #[test]
    fn a_change_that_comes_first_waits_for_its_bytes_and_not_for_long() {
        let (pool, staged) = (BufferPool::new(4 << 20), Arc::new(Staged::new(64 * ROOM)));
        assert!(matches!(take(&staged, ticket(1, 1), &[7]), Found::Waits));
        assert!(matches!(take(&staged, ticket(1, 1), &[7]), Found::Nothing(_)), "one waits");
        let waited = staged.leave(ticket(1, 1), left(&pool, 1, &[7])).unwrap();
        assert_eq!(waited.map(|change| change.0), Some("write"));
        assert!(matches!(take(&staged, ticket(1, 1), &[7]), Found::Here(_)));
        // Nobody brings these, and nobody asks for those.
        assert!(matches!(take(&staged, ticket(1, 2), &[7]), Found::Waits));
        staged.leave(ticket(1, 3), left(&pool, 1, &[7])).unwrap();
        let (tell, told) = channel();
        let watcher = {
            let staged = staged.clone();
            let watch = move || staged.watch(|(name, _)| tell.send(name).unwrap());
            weir_host::thread::spawn("watch", watch).unwrap()
        };
        assert_eq!(told.recv().unwrap(), "write");
        while pool.used_bytes() > 0 {
            weir_host::thread::sleep(Duration::from_millis(10));
        }
        staged.stop();
        watcher.join().unwrap();
        assert!(matches!(take(&staged, ticket(1, 4), &[7]), Found::Nothing(_)));
    }
}
